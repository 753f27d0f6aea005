"""Tasks that another library plays and scores: its loop runs on our endpoint,
and its reward is recorded.

    door = from_verifiers(taskset, loop="theirs")
    env = AgentEnv(env=door, program=door.play)

`play` gives a report, which is the recorded completion, so that a recorded score replays without
the library.  What the library fails at is UNSCORED, never a reward of 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rlvr.environment import Environment
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_number

__all__ = ["RecordedSession", "ReportedEnv", "report", "verdict_of_reward"]

_FORM = "rlvr-report-1"


def report(
    reward: float | None, rewards: Mapping[str, float | None], answer: str = "", why: str = ""
) -> str:
    """What a library made of an episode, as the completion that is recorded.

    Args:
        reward: the number that counts; None if there is none, which is the policy's fault.
        rewards: all its numbers by name.
        answer: the policy's last words.
        why: there is no reward, or more about it.
    """
    return json.dumps(
        {"form": _FORM, "reward": reward, "rewards": dict(rewards), "answer": answer, "why": why},
        ensure_ascii=False,
    )


def verdict_of_reward(
    reward: float, best: float, answer: str | None, detail: Mapping[str, object], more: str = ""
) -> Verdict:
    """CORRECT for `best` or more, else WRONG with the share of it.

    Args:
        reward: finite; what another library gave.
        best: the most that an episode can earn, above 0.
        answer, detail: of the verdict.
        more: follows the reason of what is WRONG.
    """
    if reward >= best:
        return Verdict(Outcome.CORRECT, why="full-reward", answer=answer, detail=detail)
    value = min(1.0, max(0.0, reward / best))
    why = f"reward: {reward:g} of {best:g}{more}"
    return Verdict(Outcome.WRONG, value=value, why=why, answer=answer, detail=detail)


class RecordedSession(ToolEpisode):
    """An episode whose session (`record`) is told what happened when it ends."""

    def finish(self, end: str = "answer") -> None:
        if not self.end:
            self._state.record = self.record
        super().finish(end)


class ReportedEnv(Environment):
    """Episodes that another library plays; derived classes add `tasks` and `play`.

    The reasons: `full-reward` is CORRECT; `reward` (less than `best`), `no-reward` and `no-report`
    WRONG.

    Options:
        best: the most that an episode can earn.
    """

    id: ClassVar[str] = "reported-v0"
    domain = "tools"
    best: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("best", self.best, above=0)

    def play(self, call: Any) -> Any:
        """Play one episode with the library's own loop.

        Args:
            call: the episode, see `rlvr.agents.AgentCall`.

        Returns:
            A `report`, or what is awaited for one.
        """
        raise NotImplementedError

    def verify(self, task: Task, completion: str) -> Verdict:
        try:
            report = json.loads(completion)
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, Mapping) or report.get("form") != _FORM:
            return Verdict(Outcome.WRONG, why="no-report: the episode ended before it was scored")
        earned, detail = report["reward"], {"rewards": report["rewards"]}
        answer = report["answer"]
        if earned is None or not math.isfinite(earned):
            why = f"no-reward: {report['why']}"[:300]
            return Verdict(Outcome.WRONG, why=why, answer=answer, detail=detail)
        return verdict_of_reward(earned, self.best, answer, detail)
