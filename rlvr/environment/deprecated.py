"""The kinds of environments of before 0.2.0, for files that have them: all are `Environment` now.

`SingleTurnEnv` and `ToolEnv` add nothing to it but old names; `MultiTurnEnv` plays an environment that is written as
Gymnasium's `reset` and `step`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeVar

from rlvr.environment.base import Environment, seeded
from rlvr.environment.episode import Episode, EpisodeFailed, EpisodeLimits, TurnLike
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.episode import EpisodeRecord, EpisodeTurn, PolicyTurn
from rlvr.errors import DataError, UsageError, brief, described
from rlvr.rewards import Reward
from rlvr.types import Completion, Outcome, Prompt, Score, Task, Verdict

__all__ = ["MultiTurnEnv", "SingleTurnEnv", "SteppedEpisode", "ToolEnv"]

_E = TypeVar("_E", bound="MultiTurnEnv")


class SingleTurnEnv(Environment):
    """`Environment`, by its name of before."""


class ToolEnv(Environment):
    """`Environment`, by the name that those with tools had before."""

    max_concurrent: ClassVar[int] = 128
    turns: int = 8
    calls: int = 16
    call_seconds: float = 10.0
    episode_seconds: float = 300.0
    reply_chars: int = 4_000

    _plays: ClassVar[type[Episode]] = ToolEpisode

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "open" in cls.__dict__:
            raise UsageError(
                f"{cls.__name__}.open gives a state; name it setup, since open gives the episode now"
            )
        super().__init_subclass__(**kwargs)


class MultiTurnEnv(Environment):
    """An environment that is written as Gymnasium's `reset` and `step`; text in, text or messages out.

    A reward may be given at any step; the `info` of the last step has the episode's `Score` under "score".  Without
    one, the total is the sum of the steps' rewards, and the outcome is CORRECT if the environment ended the episode and
    that sum is above 0, else WRONG.

    Each episode plays on a deep copy, which shares the reward; an environment with much data should define
    `__deepcopy__`.  That of an index begins with `reset(seed=…, options={"index": index})`, where the seed is a hash of
    environment, split and index, so that the episodes of a group begin alike.

    New files define `user` and `verify` instead, whose verdict is a pure function of the record.
    """

    max_concurrent: ClassVar[int] = 512
    scores_itself: ClassVar[bool] = True

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        raise NotImplementedError(f"{type(self).__name__} has no reset")

    def step(self, action: str) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def __deepcopy__(self: _E, memo: dict[int, Any]) -> _E:
        other = self._copy()
        memo[id(self.reward)] = self.reward
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return other

    @property
    def size(self) -> None:
        """None: `reset` makes tasks without end."""
        return None

    @property
    def limits(self) -> EpisodeLimits:
        """Without turns, which are those of the run."""
        return SteppedEpisode.limits

    def task(self, index: int) -> Task:
        return self.open(self.stub(index)).task

    def stub(self, index: int) -> Task:
        return Task(f"{self.id}/{self.split}/{index}", "", meta={"index": index})

    def find(self, task: str | int) -> Task:
        raise DataError(f"{self.id} has no tasks to be found by {task!r}")

    def stop_at_bad_rows(self) -> None:
        raise UsageError(f"{self.id} reads no rows, so that none of them can stop it")

    def with_reward(self: _E, reward: Reward) -> _E:
        """Refused: such an environment computes its score itself.

        Raises:
            UsageError: always.
        """
        if reward is not self.reward:
            raise self._own_score("it takes no reward")
        return self._copy()

    def with_reward_text(self, text: str, load: Callable[[str], Any]) -> Any:
        raise self._own_score("it takes no reward")

    def score_group(self, task: Task, completions: Sequence[str | Completion]) -> list[Score]:
        raise self._own_score("no completion alone has one")

    def _own_score(self, why: str) -> UsageError:
        return UsageError(
            f"{self.id} has several turns and computes its score itself, so {why}; change its class"
        )


class SteppedEpisode(Episode):
    """An episode of a `MultiTurnEnv`, on a copy of it.

    Args:
        env: the environment.
        task: its meta has the `index` to begin with; the prompt comes from `reset`.

    Raises:
        UsageError: the environment cannot be copied.
    """

    limits = EpisodeLimits(turns=None, calls=0)

    def __init__(self, env: MultiTurnEnv, task: Task) -> None:
        super().__init__(env, task)
        self._env = _copied(env)
        index = task.meta["index"]
        # NumPy's legacy generators take 32 bits.
        seed = seeded("episode", env.id, env.split, index).getrandbits(32)
        prompt, info = self._env.reset(seed=seed, options={"index": index})
        name = info.get("task")
        self.task = Task(name if isinstance(name, str) else task.id, prompt, meta=task.meta)
        self._turns: list[EpisodeTurn] = []
        self._rewards: list[float | None] = []

    @property
    def record(self) -> EpisodeRecord:
        return EpisodeRecord(tuple(self._turns), self.end or "turns")

    def turn_rewards(self) -> Sequence[float | None]:
        return self._rewards

    def reply(self, turn: TurnLike, *, last: str = "") -> Prompt | None:
        """Step the environment.

        Args:
            turn: a text or a completion.
            last: see `Episode.reply`.
        """
        self._require_open()
        text = turn.text if isinstance(turn, (Completion, PolicyTurn)) else str(turn)
        self._turns.append(EpisodeTurn(text))
        self._rewards.append(None)
        try:
            told, reward, ended, score = self._step(text)
        except Exception as error:  # the author's code may raise anything
            kind, message, trace = described(error)
            raise EpisodeFailed(f"{kind}: {message}", trace) from error
        if self.end:  # it was given up meanwhile
            return None
        self._rewards[-1] = reward
        if ended or last:
            self._finish("answer" if ended else last, score)
            return None
        return told

    def _step(self, text: str) -> tuple[Prompt, float, bool, Score | None]:
        told, reward, terminated, truncated, info = self._env.step(text)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise TypeError(f"step gave the reward {brief(reward)}; it must be a finite number")
        ended, score = bool(terminated or truncated), info.get("score")
        if ended and score is not None and not isinstance(score, Score):
            raise TypeError(f"step's info has the score {brief(score)}; it must be a Score")
        if not ended and not isinstance(told, str):
            Task("reply", told)  # raises where it is no prompt
        return told, float(reward), ended, score if ended else None

    def finish(self, end: str = "answer") -> None:
        if not self.end:
            self._finish(end, None)

    def _finish(self, end: str, score: Score | None) -> None:
        self.end, self.score = end, score or self._summed(end)

    def _summed(self, end: str) -> Score:
        """The score of an episode whose environment gave none; a step over its time limit earns nothing."""
        total = math.fsum(reward or 0.0 for reward in self._rewards)
        outcome, why = Outcome.WRONG, f"truncated: not over after {len(self._turns)} turns"
        if end == "time":
            total, why = min(0.0, total), "time limit"
        elif end == "answer":
            outcome = Outcome.CORRECT if total > 0 else Outcome.WRONG
            why = "summed: rewards of the steps"
        return Score(total, {"return": total}, Verdict(outcome, why=why))


MultiTurnEnv._plays = SteppedEpisode


def _copied(env: MultiTurnEnv) -> MultiTurnEnv:
    try:
        return copy.deepcopy(env, {id(env.reward): env.reward})
    except Exception as error:  # any attribute may refuse to be copied, with any exception
        raise UsageError(
            f"{env.id} cannot be copied for parallel episodes ({type(error).__name__}: {error}); define "
            "__deepcopy__, or make in reset what an episode changes"
        ) from error
