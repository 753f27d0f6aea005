"""Confidence intervals of shares and means, and the metrics pass@k and maj@k.

Axes: P tasks, n completions of each, of which k are considered, B bootstrap samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlvr.text import squeeze_text

__all__ = [
    "Estimate",
    "beta_interval",
    "bootstrap",
    "estimate",
    "majority_at_k",
    "pass_at_k",
    "resample_counts",
    "student_interval",
    "student_p",
    "student_quantile",
    "wilson",
]

_FEW = 20
"""Below this number of tasks `estimate` takes intervals that do not need a large sample."""

_MOST = 1000  # completions of a task in maj@k: the number of subsets, C(n, k), stays a float


def pass_at_k(n: ArrayLike, correct: ArrayLike, k: int) -> NDArray[np.float64]:
    """The probability that at least one of k completions is correct, estimated from n; shapes are
    broadcast.

    1 - C(n-c, k) / C(n, k) for c correct ones, the unbiased estimator of Chen et al.
    (arXiv:2107.03374, eq. 1).  The fraction is computed as the product of (1 - k/i) over i = n-c+1
    … n, which stays in [0, 1].  1 - (1 - c/n)^k would be biased.

    Args:
        n: completions of each task.
        correct: c, how many of them are correct.
        k: from 1 to the least n.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    n, c = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(correct, dtype=np.int64))
    if k < 1 or (n < k).any():
        raise ValueError(
            f"pass@{k} of {n.min(initial=0)} completions; k must lie between 1 and their number"
        )
    if (c < 0).any() or (c > n).any():
        raise ValueError("correct completions must number between 0 and n")
    i = np.arange(1, n.max(initial=1) + 1)
    # Factors at i < k would be negative; there n - c < k, so that k completions cannot all be
    # wrong.
    factors = np.where(i > (n - c)[..., None], np.maximum(1.0 - k / i, 0.0), 1.0)
    factors = np.where(i > n[..., None], 1.0, factors)
    result: NDArray[np.float64] = 1.0 - factors.prod(axis=-1)
    return result


def majority_at_k(
    answers: Sequence[str | None],
    correct: Sequence[bool],
    k: int,
    *,
    key: Callable[[str], Hashable] = squeeze_text,
) -> float:
    """The probability that the most frequent answer of k out of n completions is correct.

    Self-consistency (arXiv:2203.11171, section 2), without weights: the exact mean over all C(n, k)
    subsets.  If answers tie for the first place, each is chosen with the same probability.  A
    completion without an answer casts no vote, and without any vote the majority is wrong.  If only
    some completions with the same answer are correct, the answer counts as correct by their share.

    For each number of votes m that may win, it sums over the answers, one after another, the ways
    in which none has more votes: w[j, t] is the number of ways with j votes cast and t answers at m
    votes, and r[j, t] the summed correctness of these t answers.

    Args:
        answers: the answer of each completion; None if it has none.
        correct: True for each correct completion.
        k: completions in a subset, from 1 to n.
        key: answers are the same if their keys are equal; by default texts without spaces and case.

    Raises:
        ValueError: not 1 <= k <= n <= 1000.
    """
    n = len(answers)
    if not 1 <= k <= n <= _MOST:
        raise ValueError(f"maj@{k} of {n} completions; it must be 1 <= k <= n <= {_MOST}")
    votes: Counter[Hashable] = Counter()
    right: Counter[Hashable] = Counter()
    for answer, is_correct in zip(answers, correct, strict=True):
        if answer is not None:
            votes[key(answer)] += 1
            right[key(answer)] += bool(is_correct)
    if k == n:
        first = [name for name, count in votes.items() if count == max(votes.values())]
        return fmean(right[name] / votes[name] for name in first) if first else 0.0
    return sum(_won_with(m, k, votes, right, n) for m in range(1, k + 1)) / math.comb(n, k)


def _won_with(m: int, k: int, votes: Counter[Hashable], right: Counter[Hashable], n: int) -> float:
    """Number of subsets whose most frequent answer has exactly m votes, each weighted by its
    correctness."""
    silent = n - votes.total()
    if (
        m > max(votes.values(), default=0)
        or silent + sum(min(m, count) for count in votes.values()) < k
    ):
        return 0.0  # no answer can have m votes, or some answer must have more
    w = np.zeros((k + 1, k // m + 1))
    w[0, 0] = 1.0
    r = np.zeros_like(w)
    for name, count in votes.items():
        fewer = _shifts([math.comb(count, v) for v in range(m)], k)
        w_next, r_next = fewer @ w, fewer @ r
        if count >= m:
            ways, share = math.comb(count, m), right[name] / count
            w_next[m:, 1:] += ways * w[: k + 1 - m, :-1]
            r_next[m:, 1:] += ways * (r + share * w)[: k + 1 - m, :-1]
        w, r = w_next, r_next
    cast = np.array([math.comb(silent, k - j) for j in range(k + 1)], dtype=np.float64)
    return float((cast @ r[:, 1:] / np.arange(1, r.shape[1])).sum())


def _shifts(coefficients: Sequence[int], k: int) -> NDArray[np.float64]:
    """The matrix that adds v votes with weight coefficients[v]: [j, i] is coefficients[j - i], for
    i and j up to k."""
    padded = np.zeros(2 * k + 1)  # negative offsets index the zeros at its end
    truncated = coefficients[: k + 1]
    padded[: len(truncated)] = truncated
    steps = np.arange(k + 1)
    matrix: NDArray[np.float64] = padded[steps[:, None] - steps]
    return matrix


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, with a confidence interval for the mean over all tasks of this kind.

    Attributes:
        value: the mean.
        low: lower end of the interval.
        high: upper end of the interval.
        tasks: number of tasks in the mean; those with fewer than k scored completions are left out.
    """

    value: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share: (p + z²/2N ± z √(p(1-p)/N + z²/4N²)) / (1 + z²/N).

    Unlike p ± z √(p(1-p)/N) it stays within [0, 1], and its width is not 0 for 0 of N or N of N.

    Args:
        successes: p · N.
        trials: N, at least 1.
        level: of confidence, between 0 and 1.

    Raises:
        ValueError: not 0 <= successes <= trials, no trials, or a level outside (0, 1).
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"{successes} successes of {trials} trials; it must be 0 <= successes <= trials, at "
            f"least one"
        )
    z = NormalDist().inv_cdf(0.5 + _level(level) / 2)
    p, squared = successes / trials, z * z / trials
    centre, half = p + squared / 2, z * math.sqrt(p * (1 - p) / trials + squared / (4 * trials))
    low, high = (centre - half) / (1 + squared), (centre + half) / (1 + squared)
    # exactly, whatever the rounding
    return (0.0 if successes == 0 else low), (1.0 if successes == trials else high)


def bootstrap(
    values: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean over tasks.

    Tasks are resampled, not completions, since completions of one task are not independent.  The
    same values and seed give the same interval.

    Args:
        values: one per task, shape [P].
        level: of confidence, between 0 and 1.
        resamples: B, number of bootstrap samples.
        seed: of the bootstrap samples.

    Raises:
        ValueError: there is no value, one is not finite, or the level is outside (0, 1).
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size or not np.isfinite(x).all():
        raise ValueError(
            f"bootstrap of an array of shape {x.shape}; it takes finite values of shape [P], P >= 1"
        )
    means = [counts @ x / x.size for counts in resample_counts(x.size, resamples, seed)]
    tail = (1 - _level(level)) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def resample_counts(
    size: int, resamples: int = 2000, seed: int = 0
) -> Iterator[NDArray[np.float64]]:
    """How often each of P values is drawn in bootstrap samples of P, as blocks of shape [b, P].

    The blocks have `resamples` rows together; `counts @ values / P` are the means of the samples.

    Args:
        size: P, at least 1.
        resamples: B, number of bootstrap samples.
        seed: of the samples.
    """
    rng = np.random.default_rng(seed)
    at_once = max(1, 2_000_000 // size)  # B x P numbers would be too many for large sets
    for done in range(0, resamples, at_once):
        rows = min(at_once, resamples - done)
        indices = rng.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        counts = np.bincount(indices.ravel(), minlength=rows * size)
        yield counts.reshape(rows, size).astype(np.float64)


def beta_interval(
    values: ArrayLike, *, bounds: tuple[float, float] = (0.0, 1.0), level: float = 0.95
) -> tuple[float, float]:
    """An interval for the mean of bounded values that covers for any number of tasks.

    For values of 0 and 1 it is Clopper and Pearson's (Biometrika 1934): with s successes of n, the
    quantiles of Beta(s, n - s + 1) and Beta(s + 1, n - s).  Values between the bounds are put on
    [0, 1] and their sum is s: of all values with one mean, those at the bounds vary most, so the
    interval is then wider than needed.

    Args:
        values: one per task, shape [P], inside the bounds.
        bounds: the least and the greatest value that a task can have.
        level: of confidence, between 0 and 1.

    Raises:
        ValueError: there is no value, one is outside the bounds, or the level is outside (0, 1).
    """
    x, (low, high) = np.asarray(values, dtype=np.float64), bounds
    if not x.size or not ((x >= low) & (x <= high)).all() or not low < high:
        raise ValueError(
            f"{x.size} values outside of [{low:g}, {high:g}], or none at all; give the bounds of "
            f"the values"
        )
    n, tail = x.size, (1 - _level(level)) / 2
    s = float(((x - low) / (high - low)).sum())
    lower = 0.0 if s <= 0 else _beta_quantile(tail, s, n - s + 1)
    upper = 1.0 if s >= n else _beta_quantile(1 - tail, s + 1, n - s)
    return low + (high - low) * lower, low + (high - low) * upper


def student_interval(values: ArrayLike, *, level: float = 0.95) -> tuple[float, float]:
    """mean ± t s / √n with Student's t: for a few values of unknown bounds that are not too skewed.

    Args:
        values: one per task, shape [P].
        level: of confidence, between 0 and 1.

    Returns:
        Infinite ends if all values are equal: nothing is then known of their spread.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2 or x.std() == 0:
        return -math.inf, math.inf
    half = student_quantile(level, x.size - 1) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return float(x.mean()) - half, float(x.mean()) + half


def student_quantile(level: float, freedom: float) -> float:
    """The t with P(|T| <= t) = level for Student's T.

    Args:
        level: of confidence, between 0 and 1.
        freedom: degrees of freedom, above 0.
    """
    share = _beta_quantile(1 - _level(level), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - share) / share)


def student_p(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for Student's T: I_x(f / 2, 1 / 2) at x = f / (f + t^2).

    Args:
        t: a statistic.
        freedom: f, degrees of freedom, above 0.
    """
    x = freedom / (freedom + t * t)
    return float(mpmath.betainc(freedom / 2, 0.5, 0, x, regularized=True))


# evaluations ask for the same counts again and again, and a bisection takes milliseconds
@lru_cache(maxsize=4096)
def _beta_quantile(share: float, a: float, b: float) -> float:
    """The x at which Beta(a, b) has this share below it, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(34):  # to 1e-10
        middle = (low + high) / 2
        below = mpmath.betainc(a, b, 0, middle, regularized=True) < share
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def estimate(
    values: Sequence[float], level: float, bounds: tuple[float, float] | None = (0.0, 1.0)
) -> Estimate:
    """The mean with an interval that fits the number of tasks and what is known of the values.

    From 20 tasks on: Wilson's if every value is 0 or 1, else the bootstrap's.  Both cover too
    little of a small sample: for 1 to 19 tasks they had 0.39 to 0.93 of a nominal 0.95.  Below, and
    where the bootstrap would have no width as all values are equal: `beta_interval`, and without
    bounds `student_interval`.

    Args:
        values: one per task.
        level: of confidence, between 0 and 1.
        bounds: the least and the greatest value that a task can have; None if they are not known.
    """
    x, binary = np.asarray(values, dtype=np.float64), all(value in (0.0, 1.0) for value in values)
    is_bounded = (
        bounds is not None and math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]
    )
    if binary and len(values) >= _FEW:
        low, high = wilson(round(sum(values)), len(values), level)
    elif len(values) >= _FEW and (x != x[0]).any():
        low, high = bootstrap(values, level=level)
    elif is_bounded and bounds is not None and bounds[0] <= x.min() and x.max() <= bounds[1]:
        low, high = beta_interval(values, bounds=bounds, level=level)
    else:
        low, high = student_interval(values, level=level)
    value = fmean(values)
    # rounding may leave it out by one ulp
    return Estimate(value, min(low, value), max(high, value), len(values))


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; it must lie between 0 and 1, such as 0.95")
    return level
