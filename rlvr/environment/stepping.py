"""Gym-like use of an environment: `reset`, `step`, `close` over any episode."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr.environment.episode import Episode
from rlvr.environment.task_source import TaskSource
from rlvr.errors import UsageError
from rlvr.types import Completion, JsonDict, JsonObject, Prompt, Score, Task

__all__ = ["Stepping"]


@dataclass(kw_only=True, eq=False)
class Stepping(TaskSource):
    """An episode under way, which the environment itself holds; for one caller at a time."""

    _rng: random.Random | None = field(default=None, init=False, repr=False)
    _episode: Episode | None = field(default=None, init=False, repr=False)
    _playing: Task | None = field(default=None, init=False, repr=False)
    """The task of `_episode`, as this environment names it."""

    if TYPE_CHECKING:  # of `Environment`

        def open(self, task: Task) -> Episode: ...
        def score(self, task: Task, completion: Completion) -> Score: ...

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[Prompt, JsonDict]:
        """Begin an episode as in Gymnasium, with a task drawn at random or that of
        `options={"index": 7}`.

        Args:
            seed: makes this draw and the following ones repeatable.
            options: `index`, counted from 0, or none.

        Returns:
            The task's prompt, and info with "task", "index" and "tools", the schemas.
        """
        self.close()
        index, task = self._draw_task(seed, options)
        self._playing, self._episode = task, (episode := self.open(task))
        return episode.prompt, {"task": task.id, "index": index, "tools": episode.schemas}

    def step(self, action: Any) -> tuple[Prompt, float, bool, bool, JsonDict]:
        """Take a turn of the policy, as in Gymnasium.  The last one's reward is the total of the
        episode.

        Args:
            action: a text, with calls in <tool_call> tags; or another form of a turn, see
                `TurnLike`, such as `Completion(text, length_tokens=…)` where the reward reads the
                length.

        Returns:
            The messages that the policy is told, and info with "task"; at the end also "score" and
            "record", of the episode.

        Raises:
            UsageError: there was no `reset` before, or the verdict is UNSCORED.
            Unscored: the environment failed.
        """
        episode = self._episode
        if episode is None:
            raise UsageError(
                f"{self.id}: step before reset; no episode is under way, call reset() for the next"
            )
        try:
            messages = episode.reply(action)
        except Exception:
            self.close()
            raise
        info: dict[str, object] = {"task": (self._playing or episode.task).id}
        if messages is not None:
            return messages, 0.0, False, False, info
        self.close()
        score = self._last_score(episode)
        info |= {"score": score, "record": episode.record}
        truncated = episode.end != "answer"
        return "", float(score.total or 0.0), not truncated, truncated, info

    def close(self) -> None:
        """End the episode that `reset` began.  Idempotent."""
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()

    def _last_score(self, episode: Episode) -> Score:
        length = 0 if self.reward.needs_length else None  # not known here
        score = self.score(self._playing or episode.task, episode.completion(length))
        if score.total is None:
            raise UsageError(
                f"{self.id}: verify returned UNSCORED ({score.verdict.why}); here it has to raise "
                f"instead"
            )
        return score

    def _draw_task(self, seed: int | None, options: JsonObject | None) -> tuple[int, Task]:
        """The task of `options={"index": 7}`, or one at random."""
        if seed is not None or self._rng is None:
            self._rng = random.Random(seed)
        index = (options or {}).get("index")
        if index is None:
            size = 2**31 if self.size is None else self.size
            # if there are no tasks, `task(0)` raises the error
            index = self._rng.randrange(max(size, 1))
        return index, self.task(index)
