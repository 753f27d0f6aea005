"""What the rollouts of a group need and how they are scored; used by the collector and by evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.episodes import Episodes, unscored
from rlvr.collect.players import OwnLoopEnv, Players
from rlvr.collect.scheduler import Play, Schedule, chosen_schedule
from rlvr.collect.tool_episodes import ToolEpisodes
from rlvr.environment import Environment, Mixture, MultiTurnEnv, SingleTurnEnv, TasksEnv, ToolEnv
from rlvr.environment.tools import tools_of
from rlvr.errors import RlvrError, SamplingFailed, UsageError
from rlvr.samplers.protocol import Request, Sample, Sampler, Sampling, rollout_seed
from rlvr.scoring import Scorer
from rlvr.types import Completion, Rollout, Score, Task
from rlvr.validate import require_seconds, require_whole

__all__ = ["Groups", "STEP_S"]

STEP_S = 30.0
"""Wall seconds that `reset` and `step` of an environment of several turns may take."""

_STEP_THREADS = (
    64  # for the steps of episodes; slow steps mostly wait for something else than this CPU
)


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
            raise UsageError(
                f"{env!r} is no environment to sample; rlvr.make('gsm8k-v3') gives one"
            )
        if not isinstance(sampler, Sampler):
            raise UsageError(
                f"{sampler!r} is no sampler: it needs version, submit, poll, abort, sync, logprobs, encode and decode"
            )
        if scorer is not None and not isinstance(env, TasksEnv):
            raise UsageError(
                f"{env.id} has several turns and computes its score itself; leave the scorer out"
            )
        if scorer is not None and scorer.env is not env:
            raise UsageError(
                f"the scorer is one of {scorer.env!r}; give a Scorer of the environment that is sampled"
            )
        self.env, self.sampler, self.sampling = env, sampler, sampling
        self.group_size, self.max_turns = int(group_size), int(max_turns)
        self.schedule = chosen_schedule(sampler, schedule)
        self.key, self._own_sizes = tuple(key), own_sizes
        self._own = Scorer(env) if scorer is None and isinstance(env, TasksEnv) else None
        self.scorer = scorer or self._own
        threads = max(1, self.scorer.at_once) if self.scorer else _STEP_THREADS
        self.background = BackgroundCalls(
            threads + env.max_concurrent if isinstance(env, ToolEnv) else threads
        )
        self._episodes: Episodes | ToolEpisodes | Players | None = None
        self._players: Players | None = None
        if isinstance(env, ToolEnv):
            self._episodes = ToolEpisodes(
                env,
                sampler,
                self.background,
                sampling,
                key=self.key,
                task=lambda index: self._made(env, index),
            )
        elif isinstance(env, OwnLoopEnv):
            self._episodes = self._players = env.players(
                sampler,
                self.background,
                sampling,
                max_turns=int(max_turns),
                step_s=step_s,
                key=self.key,
            )
        elif isinstance(env, MultiTurnEnv):
            self._episodes = Episodes(
                env,
                sampler,
                self.background,
                sampling,
                max_turns=int(max_turns),
                step_s=step_s,
                key=self.key,
            )

    def close(self) -> None:
        """End the threads, and the workers unless a scorer was given."""
        self.background.close()
        if self._players is not None:
            self._players.close()
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
            raise RlvrError(
                f"{self.env.id}: reset of task {index} took too long; make it faster, or raise step_s"
            )
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
        if self._episodes is not None and not isinstance(self._episodes, ToolEpisodes):
            return self._episodes.tasks(indices)
        assert isinstance(self.env, TasksEnv)
        return [self._made(self.env, index) for index in indices]

    @staticmethod
    def _made(env: TasksEnv, index: int) -> Task:
        try:
            return env.task(index)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise RlvrError(
                f"{env.id} cannot make task {index} of split {env.split!r}: {said}"
            ) from error

    def excess_tokens(self, task: Task | None) -> int:
        """By how many tokens a task's prompt, with `max_tokens` behind it, exceeds the model's positions; 0 if it fits.

        Args:
            task: the task; None, and then 0, for one that could not be made.
        """
        positions: int | None = getattr(self.sampler, "positions", None)
        if positions is None or task is None:
            return 0
        tools = (
            [tool.schema for tool in tools_of(self.env, None)]
            if isinstance(self.env, ToolEnv)
            else []
        )
        prompt = (
            self.sampler.encode(task.prompt, tools=tools)
            if tools
            else self.sampler.encode(task.prompt)
        )
        return max(0, len(prompt) + self.limit_of(task) - positions)

    def score(self, task: Task, completions: Sequence[Completion]) -> Future[list[Score]]:
        """Score completions of one single-turn task together, in the background.

        Args:
            task: the task.
            completions: of this task.
        """
        assert self.scorer is not None
        return self.background.submit(self.scorer.score_group, task, completions)

    @property
    def compares(self) -> bool:
        """True if the reward compares the completions of a group, which are then scored together."""
        return self.scorer is not None and self.env.reward.group_level

    @property
    def most_plays(self) -> int | None:
        """How many rollouts may be under way at a time; None if the environment does not say."""
        return self.env.max_concurrent if isinstance(self.env, ToolEnv) else None

    def plays(self, asked: Sequence[tuple[int, int]], first: int = 0) -> Iterator[Play[Rollout]]:
        """The plays of the rollouts, group after group.

        Args:
            asked: (place in the run, index of the task) of each group.
            first: number of the first group, in the ids of requests.
        """
        if self._episodes is not None:
            return self._episodes.plays(asked, self.group_size, first)
        return self._single_turns(asked, first)

    def _single_turns(
        self, asked: Sequence[tuple[int, int]], first: int
    ) -> Iterator[Play[Rollout]]:
        for p, (place, index) in enumerate(asked, first):
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
            return Rollout(
                task, "", request.context, [], [], [], self.sampler.version, score=unscored(error)
            )
        return Rollout(
            task=task,
            text=sample.text,
            prompt_ids=sample.prompt_ids,
            completion_ids=sample.completion_ids,
            completion_mask=[True] * len(sample.completion_ids),
            behaviour_logprobs=sample.behaviour_logprobs(self.sampling),
            weights_version=sample.weights_version,
            truncated=sample.truncated,
            token_versions=tuple(sample.token_versions or ()),
        )
