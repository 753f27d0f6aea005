"""`ToolEnv`: an environment in which the policy calls tools before it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

from rlvr.environment.base import Environment, MultiTurnEnv, TasksEnv
from rlvr.environment.tool_episode import RunningEpisode
from rlvr.environment.tools import Tool, declared, tools_of
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn
from rlvr.errors import UsageError
from rlvr.types import Completion, Prompt, Score, Task, Verdict
from rlvr.validate import require_number, require_whole

__all__ = ["ToolEnv"]


class ToolEnv(TasksEnv, MultiTurnEnv):
    """An environment with tools.  Define `task` or `tasks`, methods with `@rlvr.tool`, and `verify` or a verifier.

        class Sums(rlvr.ToolEnv):
            reward = rlvr.Correct(MathVerifier())         # of the final answer; or verify(task, episode)

            def task(self, index): ...

            @rlvr.tool
            def add(self, state, x: int, y: int) -> str:
                '''Add two numbers.'''
                return str(x + y)

    An episode: `open(task)` gives its state; each turn of the policy makes calls, which are made in order, or is the
    answer; `final` reads the state; the state is closed.  Then `verify(task, episode)` judges the record alone, so
    that it can be replayed without a tool.

    What the model did wrong (a tool that is not there, arguments that do not fit, a `ToolError`, a call over its time)
    becomes a reply that begins with "error: ".  What the environment did wrong (any other exception) is UNSCORED.

    A call over `call_seconds` is ended: a coroutine is cancelled; else `kill()` of the state is called where it has
    one, as a sandbox session does, or the items of a state that is a tuple, list, mapping or dataclass.  The reply is
    "error: time limit".  Code that cannot be killed goes on in its thread, and no further call of the episode is made.

    Options:
        turns: most turns of the policy.
        calls: most calls of an episode; further ones are refused with a reply.
        call_seconds: most wall seconds of a call.
        episode_seconds: most wall seconds of all calls of an episode together.
        reply_chars: most characters of a reply; a longer one loses its middle.
    """

    max_concurrent: ClassVar[int] = 128
    turns: int = 8
    calls: int = 16
    call_seconds: float = 10.0
    episode_seconds: float = 300.0
    reply_chars: int = 4_000
    _running: RunningEpisode | None = field(default=None, init=False, repr=False)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared(cls)

    def __post_init__(self) -> None:
        for name, least in (("turns", 1), ("calls", 0), ("reply_chars", 20)):
            require_whole(f"{self.id}: {name}", getattr(self, name), least)
        for name in ("call_seconds", "episode_seconds"):
            require_number(f"{self.id}: {name}", getattr(self, name), above=0)

    # ------------------------------------------------------------------------------------------- what an author defines

    def open(self, task: Task) -> Any:
        """The state of an episode, which its tools get; by default None.  Plain or async.

        Its `close` (or `aclose`) is called at the end, whatever happened.

        Args:
            task: of the episode.
        """

    def tools(self, state: Any) -> Sequence[Tool]:
        """The tools of an episode: by default the methods with `@rlvr.tool`.

        Override it to add others: `return [*super().tools(state), rlvr.tools.python(state)]`.

        Args:
            state: of the episode.
        """
        return tools_of(self, state)

    def user(self, task: Task, transcript: Sequence[Mapping[str, Any]]) -> Any:
        """The next message of a simulated user after a turn without calls; None ends the episode.  Plain or async.

        Args:
            task: of the episode.
            transcript: the chat messages after the prompt.
        """

    def final(self, task: Task, state: Any) -> Any:
        """What `verify` needs of the state, read at the end: JSON, `EpisodeRecord.final`.  Plain or async.

        Not called if a call was over its time and took the state with it.

        Args:
            task: of the episode.
            state: of the episode.
        """

    def turn_rewards(self, task: Task, episode: EpisodeRecord) -> Sequence[float | None] | None:
        """A reward for each turn, for algorithms that credit turns; None, the default, for none.  Pure.

        They are a division of the total among the turns and do not change it: what they do not sum up to counts for the
        last turn.

        Args:
            task: of the episode.
            episode: its record.
        """
        return None

    def example_episode(self, task: Task) -> Sequence[str | Ask | PolicyTurn] | None:
        """The turns of a policy that earns the maximum, for checks; None for none.

        Args:
            task: of the episode.
        """
        return None

    # --------------------------------------------------------------------------------------------------------- running

    def begin(self, task: Task) -> RunningEpisode:
        """Begin an episode.  Close it, or use it as a context manager.

        Args:
            task: of the episode.

        Raises:
            Unscored: `open` failed.
            UsageError: its tools cannot be used.
        """
        return RunningEpisode(self, task)

    def completion_of(self, episode: EpisodeRecord, length_tokens: int | None = None) -> Completion:
        """An episode as scores read it: `env.score(task, env.completion_of(episode))`.

        Args:
            episode: the record.
            length_tokens: of the policy; None if unknown.
        """
        return Completion(
            episode.answer, length_tokens, episode.end in ("tokens", "turns", "positions"), episode
        )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """Begin the episode of a task drawn at random, or of `options={"index": 7}`; ends the one before.

        Args:
            seed: makes this draw and the following ones repeatable.
            options: `index`, counted from 0, or none.

        Returns:
            The task's prompt, and info with "task", "index" and "tools", the schemas of the tools.
        """
        self.close()
        index, task = self._drawn(seed, options)
        self._running = self.begin(task)
        return task.prompt, {"task": task.id, "index": index, "tools": self._running.schemas}

    def step(self, action: Any) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """Take a turn of the policy.  The last one's reward is the total of the episode.

        Args:
            action: a text, with calls in <tool_call> tags; or a chat message with `tool_calls`; or a `PolicyTurn`.

        Returns:
            The messages that the policy is told, and info with "task"; at the end also "episode", the record, and
            "score".

        Raises:
            UsageError: there was no `reset` before, or the verdict is UNSCORED.
            Unscored: the environment failed.
        """
        running = self._running
        if running is None:
            raise UsageError(f"{self.id}: step before reset; call reset() for the next episode")
        try:
            told = running.take(action)
        except Exception:
            self.close()
            raise
        if told is not None:
            return told, 0.0, False, False, {"task": running.task.id}
        record = running.record
        self.close()
        score = self._scored(running.task, record)
        info = {"task": running.task.id, "episode": record, "score": score}
        truncated = record.end != "answer"
        return "", float(score.total or 0.0), not truncated, truncated, info

    def close(self) -> None:
        """End the episode that `reset` began.  Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _scored(self, task: Task, record: EpisodeRecord) -> Score:
        length = 0 if self.reward.needs_length else None  # tokens are not known here
        score = self.score(task, self.completion_of(record, length))
        if score.total is None:
            raise UsageError(
                f"{self.id}: verify returned UNSCORED ({score.verdict.why}); here it has to raise instead"
            )
        return score

    def _verdict_on(self, task: Task, completion: Completion) -> Verdict | Awaitable[Verdict]:
        if type(self).verify is Environment.verify:
            return self.verify(
                task, completion.text if completion.episode is None else completion.episode.answer
            )
        if completion.episode is None:
            raise UsageError(
                f"{self.id} verifies episodes, and this completion has none; rlvr eval and rlvr train record them, and "
                "env.completion_of(episode) makes a completion of one"
            )
        return self.verify(task, completion.episode)

    def _copy(self: Any) -> Any:
        other = super()._copy()
        other._running = None
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copy()  # an episode of its own; the rest does not change
