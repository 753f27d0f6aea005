"""Evaluates a sampler on an environment: avg@n, pass@k and maj@k, each with a confidence interval.

Axes: P tasks, n completions of each, of which k are considered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from statistics import fmean

from rlvr.collect import Groups, Sampler, Sampling, own_tokens
from rlvr.collect.flight import sample_groups
from rlvr.collect.groups import STEP_S
from rlvr.collect.scheduler import Schedule
from rlvr.console import PlainConsole
from rlvr.display import Activity
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.scoring import Scorer
from rlvr.statistics import Estimate, estimate, majority_at_k, pass_at_k
from rlvr.types import Group, JsonDict, JsonObject, Score
from rlvr.validate import require_whole

__all__ = ["EvaluationReport", "TaskResult", "evaluate", "result_of_scores"]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task.

    Attributes:
        index: of the task.
        task: its id.
        correct: True for each scored completion that is CORRECT, shape [scored].
        answers: the answer of each scored completion, None if none was found, shape [scored].
        unscored: number of completions that could not be scored; they are in no metric.
        truncated: number of completions that hit the token limit.
        reward: mean total of the scored completions; None if there are none.
        length: mean number of tokens of all completions.
        unscored_whys: why each of those could not be scored, shape [unscored].
    """

    index: int
    task: str
    correct: tuple[bool, ...]
    answers: tuple[str | None, ...]
    unscored: int
    truncated: int
    reward: float | None
    length: float
    unscored_whys: tuple[str, ...] = ()

    @property
    def scored(self) -> int:
        """Number of scored completions."""
        return len(self.correct)


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The result of an evaluation.

    Attributes:
        env: id of the environment.
        config: its options.
        n: completions per task.
        sampling: how they were sampled.
        seed: of the completions.
        version: of the sampler's weights.
        level: of the confidence intervals.
        metrics: `avg@n`, `reward`, and for each k `pass@k` and `maj@k`.  For a mixture over the
            tasks of all environments, and once more with `NAME/` before them for each environment.
        tasks: the result of each task, in the order of their indices.
        too_long: ids of tasks that were left out, as their prompts leave no room for `max_tokens`
            in the model's positions; they are in no metric.
        rows_left_out: number of rows of the data that could not be used, by an example of each
            reason.
        identity: by what it was scored, as JSON; None if no scorer was given.
    """

    env: str
    config: JsonObject
    n: int
    sampling: Sampling
    seed: int
    version: int
    level: float
    metrics: Mapping[str, Estimate]
    tasks: Sequence[TaskResult]
    too_long: Sequence[str] = ()
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    identity: JsonObject | None = None

    @property
    def unscored(self) -> int:
        """Number of completions that could not be scored."""
        return sum(task.unscored for task in self.tasks)

    @property
    def truncated(self) -> float:
        """Share of the completions that hit the token limit."""
        # Of all completions, unscored ones too.
        return sum(task.truncated for task in self.tasks) / max(1, self.n * len(self.tasks))

    @property
    def length(self) -> float:
        """Mean number of tokens of a completion."""
        return fmean(task.length for task in self.tasks) if self.tasks else 0.0

    def __str__(self) -> str:
        """The metrics in a line, with the tasks that were left out."""
        texts = [f"{name} {estimate}" for name, estimate in self.metrics.items()]
        if self.too_long:
            texts.append(f"left out as too long: {len(self.too_long)}")
        return ", ".join(texts) or "no task could be evaluated"

    def as_dict(self) -> JsonDict:
        """The report as a dict, which is JSON if the options of the environment are."""
        tree = asdict(self) | {
            "unscored": self.unscored,
            "truncated": self.truncated,
            "length": self.length,
        }
        if self.identity is None:
            del tree["identity"]
        return tree


def evaluate(
    env: Environment,
    sampler: Sampler,
    *,
    sampling: Sampling,
    n: int = 1,
    k: int | Sequence[int] | None = None,
    limit: int | None = None,
    rows: Sequence[int] | None = None,
    scorer: Scorer | None = None,
    seed: int = 0,
    level: float = 0.95,
    max_turns: int = 8,
    step_s: float = STEP_S,
    schedule: Schedule | None = None,
    known: Sequence[TaskResult] = (),
    on_group: Callable[[int, Group], None] | None = None,
    progress: bool | Activity = False,
) -> EvaluationReport:
    """Sample n completions of each task, score them, and compute the metrics.

        report = evaluate(env, sampler, n=8, k=(1, 8), limit=500,
        sampling=Sampling(max_tokens=1024)) print(report.metrics["pass@8"])

    A completion depends only on the seed, its task and its number.  UNSCORED completions are left
    out of every metric and counted; a task with fewer than k scored ones is left out of pass@k and
    maj@k.  Tasks whose prompts are too long for the model are left out, counted in
    `EvaluationReport.too_long`, and there is a warning.

    Args:
        env: the environment.
        sampler: generates completions.
        sampling: how they are sampled.
        n: completions per task.
        k: one or several numbers up to n, for pass@k and maj@k; None for 1 and n.
        limit: evaluate only the first tasks, this many, of each environment of a mixture; needed if
            an environment generates tasks without end.
        rows: evaluate only the tasks of these indices, ascending; None for those of `limit`.
        scorer: a scorer of `env`; None for a new one with a worker per core.
        seed: of the completions.
        level: of the confidence intervals.
        max_turns: most turns of an episode.
        step_s, schedule: see `Collector`.
        known: results of an earlier, stopped call with the same settings; these tasks are not
            sampled again.
        on_group: called with the index of each task and its group as it is finished, for example to
            keep the completions; None for nothing.
        progress: show on stderr how far it is; or where to show that.

    Raises:
        UsageError: a setting cannot work.
    """
    ks = (1, n) if k is None else (k,) if isinstance(k, int) else tuple(k)
    for name, value in (("n", n), *(("k", count) for count in ks)):
        require_whole(name, value, 1)
    earlier = {result.index: result for result in known}
    indices = _indices(env, limit) if rows is None else rows
    if max(ks, default=0) > n:
        raise UsageError(f"k is {max(ks)} and n is {n}; sample at least k completions of each task")
    if sampling.temperature == 0 and n > 1:
        raise UsageError(
            f"temperature is 0: all n={n} completions of a task would be the same; use n=1"
        )
    # Results of a stopped evaluation are taken as they are.
    results = [earlier[index] for index in indices if index in earlier]
    missing = [index for index in indices if index not in earlier]
    too_long: list[str] = []
    with (
        Groups(
            env,
            sampler,
            group_size=n,
            sampling=sampling,
            scorer=scorer,
            max_turns=max_turns,
            step_s=step_s,
            schedule=schedule,
            key=("evaluate", seed),
        ) as groups,
        _activity(progress).task(f"evaluating on {env.id}", n * len(missing)) as advance,
        closing(
            sample_groups(groups, fitting := _fitting(groups, missing, too_long), advance)
        ) as sampled,
    ):
        for number, group in sampled:
            index, _ = fitting[number]
            results.append(_result(index, group))
            if on_group is not None:
                on_group(index, group)
    results.sort(key=lambda result: result.index)
    # Bounds of the reward give its interval; the other metrics lie in [0, 1].
    metrics = _metrics(results, n, sorted(set(ks)), level, env.reward.bounds)
    for name in env.shares:
        env_results = [result for result in results if result.task.startswith(f"{name}:")]
        env_metrics = _metrics(env_results, n, sorted(set(ks)), level, None)
        metrics |= {f"{name}/{key}": value_of_key for key, value_of_key in env_metrics.items()}
    return EvaluationReport(
        env.id,
        env.config,
        n,
        sampling,
        seed,
        sampler.version,
        level,
        metrics,
        tuple(results),
        tuple(too_long),
        env.rows_left_out,
        None if scorer is None else scorer.identity().as_dict(),
    )


def _activity(progress: bool | Activity) -> Activity:
    if isinstance(progress, Activity):
        return progress
    return Activity(PlainConsole(stderr=True)) if progress else Activity()


def _fitting(groups: Groups, indices: Sequence[int], too_long: list[str]) -> list[tuple[int, int]]:
    """Twice the index of each task whose prompt leaves room for a completion; the ids of the others
    are added."""
    if getattr(groups.sampler, "positions", None) is None:
        # Where there is no limit no prompt is tokenised for it.
        return [(index, index) for index in indices]
    fitting = []
    for index in indices:
        task = groups.task(index)
        excess = groups.excess_tokens(task)
        if excess <= 0:
            fitting.append((index, index))
            continue
        too_long.append(task.id)
        if len(too_long) == 1:
            warnings.warn(
                f"the prompt of task {task.id!r} with max_tokens={groups.sampling.max_tokens} "
                f"behind it is {excess} tokens longer than the model's positions: tasks that are "
                "too long are left out of the evaluation and counted. Lower max_tokens, or "
                "shorten prompts",
                RuntimeWarning,
                stacklevel=3,
            )
    return fitting


def _indices(env: Environment, limit: int | None) -> range:
    size = env.size
    if limit is None and size is None:
        raise UsageError(
            f"{env.id} generates tasks without end; say how many to evaluate on, such as limit=500"
        )
    if limit is not None:
        require_whole("limit", limit, 1)
    if size == 0:
        raise UsageError(f"{env.id} has no tasks in split {env.split!r}")
    return range(env.first(limit) or 0)


def _result(index: int, group: Group) -> TaskResult:
    rollouts = group.rollouts
    return result_of_scores(
        index,
        group.task.id,
        [rollout.score for rollout in rollouts],
        [rollout.truncated for rollout in rollouts],
        [own_tokens(rollout) for rollout in rollouts],
    )


def result_of_scores(
    index: int,
    task: str,
    scores: Sequence[Score | None],
    truncated: Sequence[bool],
    lengths: Sequence[int],
) -> TaskResult:
    """The result of one task of which the scores alone are known.

    Args:
        index: of the task.
        task: its id.
        scores, truncated, lengths: of each completion, shape [n].
    """
    # A task without a scored completion is in no mean.
    scored = [
        (score.total, score.verdict)
        for score in scores
        if score is not None and score.total is not None
    ]
    return TaskResult(
        index=index,
        task=task,
        correct=tuple(verdict.correct for _, verdict in scored),
        answers=tuple(verdict.answer for _, verdict in scored),
        unscored=len(scores) - len(scored),
        unscored_whys=tuple(
            "no completion" if score is None else score.verdict.why
            for score in scores
            if score is None or score.total is None
        ),
        truncated=sum(truncated),
        reward=fmean(total for total, _ in scored) if scored else None,
        length=fmean(lengths),
    )


def _metrics(
    results: Sequence[TaskResult],
    n: int,
    ks: Sequence[int],
    level: float,
    bounds: tuple[float, float] | None,
) -> dict[str, Estimate]:
    """The metrics.  Those for which no task has enough scored completions are left out, and maj@k
    without answers."""
    scored = [result for result in results if result.scored]
    columns = {
        f"avg@{n}": [fmean(result.correct) for result in scored],
        "reward": [result.reward for result in scored if result.reward is not None],
    }
    for k in ks:
        # The estimators need at least k scored ones.
        enough = [result for result in results if result.scored >= k]
        counts, right = (
            [result.scored for result in enough],
            [sum(result.correct) for result in enough],
        )
        columns[f"pass@{k}"] = pass_at_k(counts, right, k).tolist() if enough else []
        if any(answer is not None for result in enough for answer in result.answers):
            columns[f"maj@{k}"] = [
                majority_at_k(result.answers, result.correct, k) for result in enough
            ]
    return {
        name: estimate(values, level, bounds if name == "reward" else (0.0, 1.0))
        for name, values in columns.items()
        if values
    }
