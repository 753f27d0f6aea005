"""What the rollouts of a group need and how they are scored; used by the
collector and by evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.player import Player, prompt_tokens
from rlvr.collect.scheduler import Play, Schedule, chosen_schedule
from rlvr.environment import Environment, require_environment
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.scoring import Scorer
from rlvr.types import Completion, Rollout, Score, Task
from rlvr.validate import require_seconds, require_whole
from rlvr.workers.closing import Closing

__all__ = ["Groups", "STEP_S"]

STEP_S = 30.0
"""Wall seconds that an agent may work between two completions."""


class Groups(Closing):
    """Samples and scores groups of one environment.  Close it, or use it as a context manager.

    Rollouts are scored by a `Scorer`: each as soon as it is finished or, if the reward compares
    completions, each group.

    Args:
        env: the environment.
        sampler: generates completions.
        group_size: rollouts per task (G).
        sampling: how they are sampled.
        scorer: a scorer of `env`; None for a new one with a worker per core.
        max_turns: most turns of an episode whose environment has no limit of its own.
        step_s: most wall seconds of an agent's own between two completions.
        schedule: when an environment's reply is sampled from, see `rlvr.collect.scheduler`; None
            for "tokens" if the sampler counts its steps, as the local one does, else "ready".
        key: with the task, its place in the run and the number in the group, it seeds each rollout.
        own_sizes: whether the group sizes of a mixture's environments come before `group_size`.
            Their limits on tokens always hold.

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
        require_environment(env)
        if not isinstance(sampler, Sampler):
            raise UsageError(
                f"{sampler!r} is no sampler: it needs version, submit, poll, abort, sync, "
                f"logprobs, encode and decode"
            )
        if scorer is not None and scorer.env is not env:
            raise UsageError(
                f"the scorer is one of {scorer.env!r}; give a Scorer of the environment that is "
                f"sampled"
            )
        self.env, self.sampler, self.sampling = env, sampler, sampling
        self.group_size, self.max_turns = int(group_size), int(max_turns)
        self.schedule = chosen_schedule(sampler, schedule)
        self.key, self._own_sizes = tuple(key), own_sizes
        self._own = Scorer(env) if scorer is None else None
        # one of them is given
        self.scorer: Scorer = scorer or self._own  # type: ignore[assignment]
        self.background = BackgroundCalls(max(1, self.scorer.at_once) + (self.most_plays or 0))
        self.player = Player(
            env,
            sampler,
            self.background,
            sampling,
            limit_of=self.limit_of,
            max_turns=int(max_turns),
            step_s=step_s,
            key=self.key,
        )

    def close(self) -> None:
        """End the threads, and the workers unless a scorer was given."""
        self.background.close()
        self.player.close()
        if self._own is not None:
            self._own.close()

    def sample_with(self, sampling: Sampling) -> None:
        """Sample otherwise from here on.  Nothing may be under way.

        Args:
            sampling: how.
        """
        self.sampling = sampling
        self.player.sample_with(sampling)

    def task(self, index: int) -> Task:
        """The task at an index.

        Args:
            index: of the task.

        Raises:
            RlvrError: the environment's `task` raised.
        """
        return self.player.task(index)

    def limit_of(self, task: Task) -> int:
        """Most tokens of a completion of a task.

        Args:
            task: the task.
        """
        share = self.env.shares.get(self.env.name_of(task))
        return (share and share.max_tokens) or self.sampling.max_tokens

    def size_of(self, index: int) -> int:
        """Number of rollouts of a task.

        Args:
            index: of the task.
        """
        share = self.env.shares.get(self.env.locate(index)[0]) if self._own_sizes else None
        return (share and share.group_size) or self.group_size

    def excess_tokens(self, task: Task) -> int:
        """By how many tokens a task's prompt, with `max_tokens` behind it, exceeds the model's
        positions; 0 if it fits.

        Args:
            task: the task.
        """
        positions: int | None = getattr(self.sampler, "positions", None)
        if positions is None:
            return 0
        prompt = prompt_tokens(self.env, self.sampler, task)
        return max(0, len(prompt) + self.limit_of(task) - positions)

    def score(self, task: Task, completions: Sequence[Completion]) -> Future[list[Score]]:
        """Score completions of one task together, in the background.

        Args:
            task: the task.
            completions: of this task.
        """
        return self.background.submit(self.scorer.score_group, task, completions)

    @property
    def compares(self) -> bool:
        """True if the reward compares the completions of a group, which are then scored
        together."""
        return self.env.reward.group_level

    @property
    def most_plays(self) -> int | None:
        """How many rollouts may be under way at a time; None if the environment does not say."""
        limits = [env.plays.most_at_once(env) for env in self.env.members.values()]
        return min((limit for limit in limits if limit is not None), default=None)

    def plays(self, asked: Sequence[tuple[int, int]], first: int = 0) -> Iterator[Play[Rollout]]:
        """The plays of the rollouts, group after group.

        Args:
            asked: (place in the run, index of the task) of each group.
            first: number of the first group, in the ids of requests.
        """
        return self.player.plays(asked, self.size_of, first)
