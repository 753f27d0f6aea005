"""Samples and scores groups of rollouts; used by the collector and by evaluation."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.episodes import Episodes, unscored
from rlvr.collect.scheduler import Play, Schedule, chosen_schedule, run
from rlvr.collect.tool_episodes import ToolEpisodes
from rlvr.environment import Environment, Mixture, MultiTurnEnv, SingleTurnEnv, TasksEnv, ToolEnv
from rlvr.environment.tools import tools_of
from rlvr.errors import RlvrError, SamplingFailed, UsageError
from rlvr.samplers.protocol import Request, Sample, Sampler, Sampling, rollout_seed
from rlvr.scoring import Scorer
from rlvr.types import Completion, Group, Rollout, Score, Task
from rlvr.validate import require_seconds, require_whole

__all__ = ["Groups", "STEP_S"]

STEP_S = 30.0
"""Wall seconds that `reset` and `step` of an environment of several turns may take."""

_STEP_THREADS = 64  # for the steps of episodes; slow steps mostly wait for something else than this CPU


@dataclass(slots=True)
class _Sampled:
    """The finished rollouts of a group by their numbers, and the scores that are being computed for some of them."""

    rollouts: dict[int, Rollout] = field(default_factory=dict)
    scores: list[tuple[list[int], Future[list[Score]]]] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        return all(future.done() for _, future in self.scores)

    def group(self) -> Group:
        """The group, with the scores; waits for them."""
        rollouts = [rollout for _, rollout in sorted(self.rollouts.items())]
        known = next((rollout for rollout in rollouts if rollout.prompt_ids), rollouts[0])
        for g, rollout in enumerate(rollouts):
            if not rollout.prompt_ids:  # an episode that did not begin
                rollouts[g] = replace(rollout, task=known.task, prompt_ids=known.prompt_ids)
        for numbers, future in self.scores:
            for g, score in zip(numbers, future.result(), strict=True):
                rollouts[g] = replace(rollouts[g], score=score)
        return Group(known.task, rollouts)


class Groups:
    """Samples and scores groups of one environment.  Close it, or use it as a context manager.

    A single-turn environment is scored by a `Scorer`: each rollout as soon as it is finished or, if the reward
    compares completions, each group; so are the episodes of an environment with tools, see `ToolEpisodes`.  Another
    multi-turn environment computes its scores itself, see `Episodes`.

    Args:
        env: the environment.
        sampler: generates completions.
        group_size: rollouts per task (G).
        sampling: how they are sampled.
        scorer: a scorer of `env`; None for a new one with a worker per core.
        max_turns: most turns of an episode; an environment with tools has `turns` of its own.
        step_s: most wall seconds of an environment's `reset` and of each `step`, see `Episodes`.
        schedule: when an environment's reply is sampled from, see `rlvr.collect.scheduler`; None for "tokens" if the
            sampler counts its steps, as the local one does, else "ready".
        key: with the task, its place in the run and the number in the group, it seeds each rollout.
        own_sizes: whether the group sizes of a mixture's environments come before `group_size`.  Their limits on
            tokens always hold.

    Raises:
        UsageError: these do not fit each other.
    """

    def __init__(
        self,
        env: Environment,
        sampler: Sampler,
        *,
        group_size: int,
        sampling: Sampling,
        scorer: Scorer | None = None,
        max_turns: int = 8,
        step_s: float = STEP_S,
        schedule: Schedule | None = None,
        key: Sequence[str | int] = (),
        own_sizes: bool = False,
    ) -> None:
        require_whole("group_size", group_size, 1)
        require_whole("max_turns", max_turns, 1)
        require_seconds("step_s", step_s)
        if not isinstance(env, (SingleTurnEnv, MultiTurnEnv)):
            raise UsageError(f"{env!r} is no environment to sample; rlvr.make('gsm8k-v2') gives one")
        if not isinstance(sampler, Sampler):
            raise UsageError(
                f"{sampler!r} is no sampler: it needs version, submit, poll, abort, sync, logprobs, encode and decode"
            )
        if scorer is not None and not isinstance(env, TasksEnv):
            raise UsageError(f"{env.id} has several turns and computes its score itself; leave the scorer out")
        if scorer is not None and scorer.env is not env:
            raise UsageError(f"the scorer is one of {scorer.env!r}; give a Scorer of the environment that is sampled")
        self.env, self.sampler, self.sampling = env, sampler, sampling
        self.group_size, self.max_turns = int(group_size), int(max_turns)
        self.schedule = chosen_schedule(sampler, schedule)
        self.key, self._own_sizes = tuple(key), own_sizes
        self._own = Scorer(env) if scorer is None and isinstance(env, TasksEnv) else None
        self.scorer = scorer or self._own
        threads = max(1, self.scorer.at_once) if self.scorer else _STEP_THREADS
        self.background = BackgroundCalls(threads + env.max_concurrent if isinstance(env, ToolEnv) else threads)
        self._episodes: Episodes | ToolEpisodes | None = None
        if isinstance(env, ToolEnv):
            self._episodes = ToolEpisodes(
                env, sampler, self.background, sampling, key=self.key, task=lambda index: self._made(env, index)
            )
        elif isinstance(env, MultiTurnEnv):
            self._episodes = Episodes(
                env, sampler, self.background, sampling, max_turns=int(max_turns), step_s=step_s, key=self.key
            )

    def close(self) -> None:
        """End the threads, and the workers unless a scorer was given."""
        self.background.close()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def task(self, index: int) -> Task:
        """The task at an index; for a multi-turn environment, with the prompt that the episode begins with.

        Args:
            index: of the task.

        Raises:
            RlvrError: the environment's `task` raised, or its `reset` took longer than `step_s`.
        """
        [task] = self.tasks([index])
        if task is None:
            raise RlvrError(f"{self.env.id}: reset of task {index} took too long; make it faster, or raise step_s")
        return task

    def limit_of(self, task: Task) -> int:
        """Most tokens of a completion of a task.

        Args:
            task: the task.
        """
        own = self.env.share_of(task).max_tokens if isinstance(self.env, Mixture) else None
        return own or self.sampling.max_tokens

    def size_of(self, index: int) -> int:
        """Number of rollouts of a task.

        Args:
            index: of the task.
        """
        if not self._own_sizes or not isinstance(self.env, Mixture):
            return self.group_size
        return self.env.shares[self.env.locate(index)[0]].group_size or self.group_size

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """The tasks at some indices, see `task`; None where `reset` took longer than `step_s`.

        Args:
            indices: of the tasks.
        """
        if isinstance(self._episodes, Episodes):
            return self._episodes.tasks(indices)
        assert isinstance(self.env, TasksEnv)
        return [self._made(self.env, index) for index in indices]

    @staticmethod
    def _made(env: TasksEnv, index: int) -> Task:
        try:
            return env.task(index)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise RlvrError(f"{env.id} cannot make task {index} of split {env.split!r}: {said}") from error

    def excess_tokens(self, task: Task | None) -> int:
        """By how many tokens a task's prompt, with `max_tokens` behind it, exceeds the model's positions; 0 if it fits.

        Args:
            task: the task; None, and then 0, for one that could not be made.
        """
        positions: int | None = getattr(self.sampler, "positions", None)
        if positions is None or task is None:
            return 0
        tools = [tool.schema for tool in tools_of(self.env, None)] if isinstance(self.env, ToolEnv) else []
        prompt = self.sampler.encode(task.prompt, tools=tools) if tools else self.sampler.encode(task.prompt)
        return max(0, len(prompt) + self.limit_of(task) - positions)

    def score(self, task: Task, completions: Sequence[Completion]) -> Future[list[Score]]:
        """Score completions of one single-turn task together, in the background.

        Args:
            task: the task.
            completions: of this task.
        """
        assert self.scorer is not None
        return self.background.submit(self.scorer.score_group, task, completions)

    def sample(self, asked: Sequence[tuple[int, int]]) -> Generator[tuple[int, Group], None, None]:
        """Sample and score a group for each task; yields (number in `asked`, group) as each is done, in any order.

        Args:
            asked: (place in the run, index of the task) of each group.
        """
        sampled: dict[int, _Sampled] = {}
        sizes = [self.size_of(index) for _, index in asked]
        numbers = [(p, g) for p, size in enumerate(sizes) for g in range(size)]
        complete: deque[int] = deque()
        plays = self._single_turns(asked) if self._episodes is None else self._episodes.plays(asked, self.group_size)
        most = self.env.max_concurrent if isinstance(self.env, ToolEnv) else None
        try:
            for number, rollout in run(plays, self.sampler, self.background, self.schedule, most=most):
                p, g = numbers[number]
                group = sampled.setdefault(p, _Sampled())
                group.rollouts[g] = rollout
                self._begin_scoring(group, g, sizes[p])
                if len(group.rollouts) == sizes[p]:
                    complete.append(p)
                while complete and sampled[complete[0]].scored:
                    yield complete[0], sampled.pop(complete.popleft()).group()
            for p in complete:
                with self.background.waiting():
                    scored = sampled[p].group()
                yield p, scored
        finally:
            for group in sampled.values():
                for _, future in group.scores:
                    future.cancel()

    def _single_turns(self, asked: Sequence[tuple[int, int]]) -> Iterator[Play[Rollout]]:
        for p, (place, index) in enumerate(asked):
            task = self.task(index)
            prompt_ids, limit = tuple(self.sampler.encode(task.prompt)), self.limit_of(task)
            for g in range(self.size_of(index)):
                seed = rollout_seed(*self.key, task.id, place, g)
                request = Request((p, g), prompt_ids, self.sampling, seed, limit, rollout=g)
                yield self._single_turn(task, request)

    def _single_turn(self, task: Task, request: Request) -> Play[Rollout]:
        try:
            sample: Sample = yield request
        except SamplingFailed as error:
            return Rollout(task, "", request.context, [], [], [], self.sampler.version, score=unscored(error))
        return Rollout(
            task=task,
            text=sample.text,
            prompt_ids=sample.prompt_ids,
            completion_ids=sample.completion_ids,
            completion_mask=[True] * len(sample.completion_ids),
            behaviour_logprobs=sample.behaviour_logprobs(self.sampling),
            weights_version=sample.weights_version,
            truncated=sample.truncated,
        )

    def _begin_scoring(self, group: _Sampled, g: int, size: int) -> None:
        """Score rollout g, or all of the group once they are there if the reward compares completions.

        Those that have a score are left out: of episodes, and of completions that could not be had.
        """
        if self.scorer is not None and self.env.reward.group_level:
            together = list(range(size)) if len(group.rollouts) == size else []
        else:
            together = [g]
        if numbers := [i for i in together if group.rollouts[i].score is None]:
            rollouts = [group.rollouts[i] for i in numbers]
            future = self.score(rollouts[0].task, [rollout.completion for rollout in rollouts])
            group.scores.append((numbers, future))
