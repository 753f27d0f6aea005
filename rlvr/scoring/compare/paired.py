"""Differences between models over the same tasks: interval, p-value, power, and ranks of several.

Axes: P tasks, F models, C clusters of tasks (each task is one, unless tasks share a source), S
    seeds.

The completions of one task are not independent, so what is resampled and permuted is the task with
all of them.  Pairing takes the tasks' difficulty out of the comparison: two intervals may overlap
where their difference is clear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlvr.statistics import (
    Estimate,
    beta_interval,
    estimate,
    resample_counts,
    student_interval,
    student_p,
    student_quantile,
)

__all__ = [
    "PairedDifference",
    "completions_needed",
    "differences",
    "estimates",
    "holm",
    "rank_intervals",
    "seeded_difference",
]

_Array = NDArray[np.float64]

# The smallest detectable difference is one that four of five repetitions of the comparison would
# find.
_POWER: Final = 0.8
_FEW: Final = 20  # clusters below which a bootstrap covers too little
_EXACT: Final = 13  # clusters up to which all 2^C signs are tried
# The observed signs are counted too: with them 10,000, and p never is 0.
_FLIPS: Final = 9_999
_BLOCK: Final = 4_000_000  # numbers held at a time


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The second of two models minus the first, over tasks that both have.

    Attributes:
        value: the mean difference over tasks.
        low, high: its confidence interval.
        p: two-sided p-value of "there is no difference".
        tasks: number of tasks.
        detectable: the least true difference that so many tasks show with power 0.8; None if all
            tasks differ equally, so that nothing is known of the spread.
        tasks_needed: the number of such tasks that shows `value` with power 0.8; None where that is
            not known.
    """

    value: float
    low: float
    high: float
    p: float
    tasks: int
    detectable: float | None
    tasks_needed: int | None


def differences(
    values: _Array,
    pairs: Sequence[tuple[int, int]],
    *,
    clusters: NDArray[np.int64] | None = None,
    level: float = 0.95,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    seed: int = 0,
) -> list[PairedDifference]:
    """Compare pairs of models: a paired bootstrap over clusters, and a permutation test.

    The interval is the bootstrap's percentile interval of the mean difference; below 20 clusters,
    or if all tasks differ equally, `beta_interval` or, without bounds, `student_interval`.  Under
    "no difference" the two results of a cluster may be exchanged, which
    turns the sign of its difference: p is the share of sign patterns whose mean is at least as far
        from 0, of all 2^C up to C = 13, else of many random ones, the observed one included
        (Phipson and Smyth 2010).

    Args:
        values: of each task and model, shape [P, F].
        pairs: (first, second) model of each comparison.
        clusters: number of each task's cluster, 0 to C - 1, shape [P]; None if each task is its
            own.
        level: of the confidence intervals.
        bounds: the least and the greatest value of a task; None if they are not known.
        seed: of resamples and signs.

    Raises:
        ValueError: there are fewer than two clusters.
    """
    sums, sizes = _by_cluster(values, clusters)
    count, tasks = len(sizes), len(values)
    if count < 2:
        raise ValueError(f"{count} clusters of tasks; differences need at least 2")
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    means = sums.sum(axis=0) / tasks
    resampled = _resampled_means(sums, sizes, seed)
    tail = (1 - level) / 2
    p_values = _permutation_p(sums, first, second, seed)
    results = []
    for a, b, p in zip(first, second, p_values, strict=True):
        value, d = float(means[b] - means[a]), sums[:, b] - sums[:, a]
        # Where all differ alike the bootstrap has no width.
        if count >= _FEW and (d != d[0]).any():
            low, high = np.quantile(resampled[:, b] - resampled[:, a], [tail, 1 - tail])
        else:
            low, high = _few_differences(d, sizes, level, bounds)
        error = _standard_error(d, sizes, value)
        # The mean itself is within: percentiles of few resamples may miss it.
        results.append(
            _difference(value, min(low, value), max(high, value), p, tasks, error, level)
        )
    return results


def estimates(
    values: _Array,
    *,
    clusters: NDArray[np.int64] | None = None,
    level: float = 0.95,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    seed: int = 0,
) -> list[Estimate]:
    """The mean of each model over tasks, with an interval as that of `differences`.

    Args:
        values, clusters, level, bounds, seed: see `differences`.
    """
    sums, sizes = _by_cluster(values, clusters)
    resampled, tail = _resampled_means(sums, sizes, seed), (1 - level) / 2
    results = []
    for x, means in zip(sums.T, resampled.T, strict=True):
        if len(sizes) < _FEW or not (x != x[0]).any():
            # The beta interval is for single tasks; clusters have sums.
            known_bounds = bounds if (sizes == 1).all() else None
            mean = estimate(_scale_sums(x, sizes).tolist(), level, known_bounds)
            results.append(replace(mean, tasks=len(values)))
            continue
        value = float(x.sum() / len(values))
        low, high = np.quantile(means, [tail, 1 - tail])
        results.append(Estimate(value, min(low, value), max(high, value), len(values)))
    return results


def _few_differences(
    d: _Array, sizes: _Array, level: float, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    width = math.inf if bounds is None else bounds[1] - bounds[0]
    if math.isfinite(width) and (sizes == 1).all():
        return beta_interval(d, bounds=(-width, width), level=level)
    low, high = student_interval(_scale_sums(d, sizes), level=level)
    return max(low, -width), min(high, width)


def _scale_sums(sums: _Array, sizes: _Array) -> _Array:
    """Values whose mean over clusters is the mean over tasks."""
    scaled: _Array = sums * (len(sizes) / float(sizes.sum()))
    return scaled


def seeded_difference(
    first: _Array,
    second: _Array,
    *,
    clusters: NDArray[np.int64] | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """Compare two methods that were run with several seeds; seeds and tasks both vary.

    Var = Var_tasks + s^2 (1 / S_1 + 1 / S_2): the first of the differences between the means over
    seeds, the second with the variance s^2 of the seeds' means, pooled.  The interval and p are
    Student's with Satterthwaite's degrees of freedom. The sampling of completions is in both terms,
    so that the interval is a little wider than needed.

    Args:
        first, second: of each task and seed, shapes [P, S_1] and [P, S_2], three seeds together at
            least.
        clusters, level: see `differences`.
    """
    joined = np.stack([first.mean(axis=1), second.mean(axis=1)], axis=1)
    sums, sizes = _by_cluster(joined, clusters)
    d, tasks = sums[:, 1] - sums[:, 0], len(joined)
    value = float(d.sum() / tasks)
    # Degrees of freedom of the pooled variance of the seeds.
    freedom = first.shape[1] + second.shape[1] - 2
    if len(sizes) < 2 or freedom < 1:
        raise ValueError("seeds are compared over at least 2 clusters of tasks and 3 seeds in all")
    squares = sum(float(((x.mean(axis=0) - x.mean()) ** 2).sum()) for x in (first, second))
    of_seeds = squares / freedom * (1 / first.shape[1] + 1 / second.shape[1])
    of_tasks = _standard_error(d, sizes, value) ** 2
    total = of_seeds + of_tasks
    # Neither seeds nor tasks vary: nothing is known of either.
    if total == 0:
        return PairedDifference(value, -math.inf, math.inf, 1.0, tasks, None, None)
    # Welch and Satterthwaite: the freedom of a sum of two estimates.
    joint = total**2 / (of_seeds**2 / freedom + of_tasks**2 / (len(sizes) - 1))
    error = math.sqrt(total)
    half = student_quantile(level, joint) * error
    p = student_p(value / error, joint)
    return PairedDifference(
        value, value - half, value + half, p, tasks, _detectable(error, level), None
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values for several comparisons at once, adjusted by Holm's step-down method (Scand. J.
    Statist. 1979).

    The chance that any of those below 0.05 is false is at most 0.05.

    Args:
        p_values: of the single comparisons.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for step, i in enumerate(order):
        # Never smaller than the one before (step-down).
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def rank_intervals(count: int, better: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranks that each model may have: behind all that are better, before all that are worse.

    If all pairs in `better` are right with 95 % confidence, so are all intervals at once (Mogstad
    et al., Review of Economic Studies 2024).

    Args:
        count: F, the number of models.
        better: (model, the one that it is better than), such as those that Holm's method tells
            apart.
    """
    return [
        # Counted from 1: one more than those that are surely better.
        (1 + sum(worse == i for _, worse in better), count - sum(best == i for best, _ in better))
        for i in range(count)
    ]


def completions_needed(
    difference: PairedDifference, counts: _Array, correct: _Array, level: float = 0.95
) -> int | None:
    """How many completions of each task would show the difference in avg@n with power 0.8; None if
    no number would.

    Only a part of the variance is that of sampling completions, which falls with their number n: of
        a task's share c / n it is c (n - c) / (n^2 (n - 1)).

    Args:
        difference: of avg@n.
        counts: n, scored completions of each task in the two files, shape [P, 2].
        correct: c, how many of them are correct, shape [P, 2].
        level: of the test.
    """
    if difference.detectable is None or not difference.value or (counts < 2).any():
        return None
    scale = NormalDist().inv_cdf(0.5 + level / 2) + NormalDist().inv_cdf(_POWER)
    # The variance that led to `detectable`, solved for.
    variance = len(counts) * (difference.detectable / scale) ** 2
    # p (1 - p) / (n - 1), unbiased, of each task and model.
    sampling = correct * (counts - correct) / (counts**2 * (counts - 1))
    within = float(sampling.sum(axis=1).mean())
    # Only what sampling adds can be bought with completions.
    needed = len(counts) * (difference.value / scale) ** 2 - max(0.0, variance - within)
    return math.ceil(float(counts.mean()) * within / needed) if needed > 0 else None


def _difference(
    value: float, low: float, high: float, p: float, tasks: int, error: float, level: float
) -> PairedDifference:
    if not error:
        return PairedDifference(value, float(low), float(high), float(p), tasks, None, None)
    detectable = _detectable(error, level)
    # The error falls with the root of the number of tasks.
    needed = math.ceil(tasks * (detectable / value) ** 2) if value else None
    return PairedDifference(value, float(low), float(high), float(p), tasks, detectable, needed)


def _detectable(error: float, level: float) -> float:
    """(z_{1 - alpha / 2} + z_power) standard errors, by the normal approximation."""
    normal = NormalDist()
    return (normal.inv_cdf(0.5 + level / 2) + normal.inv_cdf(_POWER)) * error


def _by_cluster(values: _Array, clusters: NDArray[np.int64] | None) -> tuple[_Array, _Array]:
    """The sum of each cluster's tasks, shape [C, F], and their number, shape [C]."""
    if clusters is None:
        return values, np.ones(len(values))
    sizes = np.bincount(clusters).astype(np.float64)
    sums = [np.bincount(clusters, column) for column in values.T]
    return np.stack(sums, axis=1), sizes


def _standard_error(d: _Array, sizes: _Array, value: float) -> float:
    """Of the mean over tasks, from the clusters' sums of differences."""
    count = len(sizes)
    # n / (n - 1): the mean is estimated from the same clusters.
    squares = float(((d - value * sizes) ** 2).sum()) * count / (count - 1)
    return math.sqrt(squares) / float(sizes.sum())


def _resampled_means(sums: _Array, sizes: _Array, seed: int) -> _Array:
    """The mean of each model over tasks in bootstrap samples of clusters, the same ones for all,
    shape [B, F]."""
    means = [
        (counts @ sums) / (counts @ sizes)[:, None]
        for counts in resample_counts(len(sizes), seed=seed)
    ]
    return np.concatenate(means)


def _permutation_p(
    sums: _Array,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    seed: int,
) -> _Array:
    # The sign of each difference is as likely + as - if the models are alike.
    observed = np.abs(sums[:, second].sum(axis=0) - sums[:, first].sum(axis=0))
    # sums of fractions are not exact
    threshold = observed - 1e-9 * (1 + np.abs(sums).sum(axis=0).max())
    reached, flips = np.zeros(len(first)), 0
    for signs in _signs(len(sums), len(first), seed):
        flips += len(signs)
        flipped = signs @ sums
        step = max(1, _BLOCK // len(first))
        for at in range(0, len(flipped), step):
            block = flipped[at : at + step]
            reached += (np.abs(block[:, second] - block[:, first]) >= threshold).sum(axis=0)
    if len(sums) <= _EXACT:
        return reached / flips
    # The observed signs are one of the draws, so p is never 0.
    p: _Array = (reached + 1) / (flips + 1)
    return p


def _signs(count: int, comparisons: int, seed: int) -> Iterator[_Array]:
    """Blocks of rows of C signs.  There are enough for a p-value that Holm's method can still find
    small."""
    if count <= _EXACT:
        yield np.array(list(product((-1.0, 1.0), repeat=count)))
        return
    rng = np.random.default_rng((seed, 1))
    flips = max(_FLIPS, 40 * comparisons)  # the least p times their number is 1 / 40
    at_once = max(1, _BLOCK // count)
    for done in range(0, flips, at_once):
        shape = min(at_once, flips - done), count
        yield (2 * rng.integers(2, size=shape, dtype=np.int8) - 1).astype(np.float64)
