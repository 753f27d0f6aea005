"""Samples and scores groups of rollouts; used by the collector and by evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.episodes import Episodes
from rlvr.environment import Environment, MultiTurnEnv, SingleTurnEnv
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sample, Sampler, Sampling, generate_checked, rollout_seed
from rlvr.scoring import Scorer
from rlvr.types import Completion, Group, Rollout, Score, Task
from rlvr.validate import require_whole

__all__ = ["Groups", "completion_of"]

_STEP_THREADS = 8  # for the steps of episodes; slow steps mostly wait for something else than this CPU


class Groups:
    """Samples and scores groups of one environment.  Close it, or use it as a context manager.

    A single-turn environment is scored by a `Scorer`: each rollout as soon as it is finished or, if the reward
    compares completions, each group.  A multi-turn environment computes its scores itself, see `Episodes`.

    Args:
        env: the environment.
        sampler: generates completions.
        group_size: rollouts per task (G).
        sampling: how they are sampled.
        scorer: a scorer of `env`; None for a new one with a worker per core.
        max_turns: most turns of an episode.
        key: with the task, its place in the run and the number in the group, it seeds each rollout.

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
        key: Sequence[str | int] = (),
    ) -> None:
        require_whole("group_size", group_size, 1)
        require_whole("max_turns", max_turns, 1)
        if not isinstance(env, (SingleTurnEnv, MultiTurnEnv)):
            raise UsageError(f"{env!r} is no environment to sample; rlvr.make('gsm8k-v2') gives one")
        if not isinstance(sampler, Sampler):
            raise UsageError(f"{sampler!r} is no sampler: it needs version, generate, encode, decode and sync")
        if scorer is not None and isinstance(env, MultiTurnEnv):
            raise UsageError(f"{env.id} has several turns and computes its score itself; leave the scorer out")
        if scorer is not None and scorer.env is not env:
            raise UsageError(f"the scorer is one of {scorer.env!r}; give a Scorer of the environment that is sampled")
        self.env, self.sampler, self.sampling = env, sampler, sampling
        self.group_size, self.max_turns = int(group_size), int(max_turns)
        self.key = tuple(key)
        self._own = Scorer(env) if scorer is None and isinstance(env, SingleTurnEnv) else None
        self.scorer = scorer or self._own
        threads = max(1, self.scorer.workers) if self.scorer else _STEP_THREADS
        self.background = BackgroundCalls(threads)
        self._episodes = None
        if isinstance(env, MultiTurnEnv):
            self._episodes = Episodes(env, sampler, self.background, sampling, int(max_turns), self.key)

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
        """
        if self._episodes is not None:
            return self._episodes.task(index)
        assert isinstance(self.env, SingleTurnEnv)
        return self.env.task(index)

    def score(self, task: Task, completions: Sequence[Completion]) -> Future[list[Score]]:
        """Score completions of one single-turn task together, in the background.

        Args:
            task: the task.
            completions: of this task.
        """
        assert self.scorer is not None
        return self.background.submit(self.scorer.score_group, task, completions)

    def sample(self, asked: Sequence[tuple[int, int]]) -> list[Group]:
        """Sample and score a group for each task, in the order of `asked`.

        Args:
            asked: (place in the run, index of the task) of each group.
        """
        if self._episodes is not None:
            return self._episodes.play(asked, self.group_size)
        tasks = [self.task(index) for _, index in asked]
        seeds = [
            [rollout_seed(*self.key, task.id, place, g) for g in range(self.group_size)]
            for task, (place, _) in zip(tasks, asked, strict=True)
        ]
        samples: list[dict[int, Sample]] = [{} for _ in tasks]
        futures: dict[tuple[int, int], Future[list[Score]]] = {}
        try:
            with self.background.generating():
                prompts = [task.prompt for task in tasks]
                for p, g, sample in generate_checked(self.sampler, prompts, self.group_size, self.sampling, seeds):
                    samples[p][g] = sample
                    self._begin_scoring(futures, tasks[p], p, g, samples[p])
            with self.background.waiting():
                scores = {key: future.result() for key, future in futures.items()}
        finally:
            for future in futures.values():
                future.cancel()
        return [
            Group(task, [self._rollout(task, samples[p][g], _score(scores, p, g)) for g in range(self.group_size)])
            for p, task in enumerate(tasks)
        ]

    def _begin_scoring(
        self,
        futures: dict[tuple[int, int], Future[list[Score]]],
        task: Task,
        p: int,
        g: int,
        samples: dict[int, Sample],
    ) -> None:
        """Score sample g, or the group once `samples` has all of it if the reward compares completions."""
        if not self.env.reward.group_level:
            futures[p, g] = self.score(task, [completion_of(samples[g])])
        elif len(samples) == self.group_size:
            futures[p, -1] = self.score(task, [completion_of(samples[g]) for g in range(self.group_size)])

    def _rollout(self, task: Task, sample: Sample, score: Score) -> Rollout:
        return Rollout(
            task=task,
            text=sample.text,
            prompt_ids=sample.prompt_ids,
            completion_ids=sample.completion_ids,
            completion_mask=[True] * len(sample.completion_ids),
            behaviour_logprobs=sample.behaviour_logprobs(self.sampling),
            weights_version=sample.weights_version,
            truncated=sample.truncated,
            score=score,
        )


def completion_of(sample: Sample) -> Completion:
    """The completion that a reward is given.

    Args:
        sample: of a sampler.
    """
    return Completion(sample.text, len(sample.completion_ids), sample.truncated)


def _score(scores: dict[tuple[int, int], list[Score]], p: int, g: int) -> Score:
    return scores[p, g][0] if (p, g) in scores else scores[p, -1][g]
