"""Wilson, bootstrap, pass@k and maj@k: by hand and against brute force."""

import itertools
import math
import random
from collections import Counter
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.statistics import (
    beta_interval,
    bootstrap,
    estimate,
    majority_at_k,
    pass_at_k,
    student_interval,
    wilson,
)
from tests.processes import in_turn

COUNTS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)
VOTES = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=8)

# ------------------------------------------------------------------------------------------ pass@k


def test_pass_at_k_by_hand():
    """Of 4 with 1 right, 2 hit it in 3 of 6 pairs; with 2 right all pairs but one hit; none or all right: 0 or 1."""
    assert pass_at_k([4, 4, 4, 4], [1, 2, 0, 4], 2).tolist() == pytest.approx([1 / 2, 5 / 6, 0, 1])


def test_pass_at_k_counts_subsets():
    """1 - C(n-c, k) / C(n, k), for every n up to 12, in whole numbers."""
    for n in range(1, 13):
        for k in range(1, n + 1):
            exact = [1 - math.comb(n - c, k) / math.comb(n, k) for c in range(n + 1)]
            assert pass_at_k(n, range(n + 1), k).tolist() == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_of_many_completions_is_exact_too():
    """C(10000, 5000) is no float any more, the product is: 1 right of 10000 is in half of the subsets of 5000."""
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5)
    assert pass_at_k(10_000, 10_000, 1) == 1.0


def test_tasks_may_differ_in_their_number_of_completions():
    """Where some could not be scored: 1 of 2 and 1 of 4, looking at 2."""
    assert pass_at_k([2, 4], [1, 1], 2).tolist() == [1.0, 0.5]


@given(COUNTS)
def test_pass_at_k_grows_with_k_and_begins_at_the_mean(counts):
    """One look finds the share c/n; more looks never find less; all looks find any."""
    n, c, k = counts
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert pass_at_k(n, c, k) >= pass_at_k(n, c, max(1, k - 1)) - 1e-12
    assert pass_at_k(n, c, n) == (c > 0)


def test_pass_at_k_is_unbiased():
    """Its mean over the binomial of n = 7 and p = 0.3 is 1 - 0.7^3; that of the plug-in estimate is not."""
    n, p, k = 7, 0.3, 3
    weights = np.array([math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
    assert weights @ pass_at_k(n, range(n + 1), k) == pytest.approx(1 - (1 - p) ** k)
    plug_in = np.array([1 - (1 - c / n) ** k for c in range(n + 1)])
    assert abs(weights @ plug_in - (1 - (1 - p) ** k)) > 0.01


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_numbers_that_cannot_be_are_refused(n, c, k):
    """More looks than completions, more right ones than there are."""
    with pytest.raises(ValueError, match="completions"):
        pass_at_k(n, c, k)


# ------------------------------------------------------------------------------------------ maj@k


def brute_force(answers, correct, k: int) -> float:
    """Every subset, one by one."""
    share = {
        a: fmean(c for b, c in zip(answers, correct, strict=True) if b == a)
        for a in answers
        if a is not None
    }
    worth = []
    for subset in itertools.combinations(answers, k):
        votes = Counter(answer for answer in subset if answer is not None)
        first = [answer for answer in votes if votes[answer] == max(votes.values())]
        worth.append(fmean(share[answer] for answer in first) if first else 0.0)
    return fmean(worth)


def test_the_majority_of_all():
    """Two of three say 7; of a tie each has its chance; who says nothing has no vote."""
    assert majority_at_k(["7", "8", "7"], [True, False, True], 3) == 1.0
    assert majority_at_k(["7", "8", "8"], [True, False, False], 3) == 0.0
    assert majority_at_k(["7", "8", "8", "7"], [True, False, False, True], 4) == 0.5
    assert majority_at_k(["7", None, None], [True, False, False], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_the_majority_of_some_by_hand():
    """7 7 8 9, two of them: 77 is right, 78 and 79 (four pairs) half the time, 89 wrong: (1 + 4/2) / 6."""
    assert majority_at_k(["7", "7", "8", "9"], [True, True, False, False], 2) == pytest.approx(0.5)


@given(VOTES, st.sets(st.sampled_from("abcd")), st.data())
def test_the_majority_of_some_is_the_mean_over_all_subsets(answers, right, data):
    """With ties, silence, several right answers, and any k."""
    k = data.draw(st.integers(1, len(answers)))
    correct = [answer in right for answer in answers]
    assert majority_at_k(answers, correct, k) == pytest.approx(
        brute_force(answers, correct, k), abs=1e-12
    )


def test_one_answer_that_is_judged_both_ways_is_worth_its_share():
    """A reward may look at more than the answer: 7 is right in two of three."""
    answers, correct = ["7", "7", "7", "8"], [True, True, False, False]
    assert majority_at_k(answers, correct, 4) == pytest.approx(2 / 3)
    assert majority_at_k(answers, correct, 2) == pytest.approx(brute_force(answers, correct, 2))


@given(VOTES, st.sets(st.sampled_from("abcd")))
def test_a_majority_of_one_is_the_mean(answers, right):
    """maj@1 is accuracy."""
    correct = [answer in right for answer in answers]
    assert majority_at_k(answers, correct, 1) == pytest.approx(fmean(correct))


def test_answers_are_the_same_but_for_spaces_and_case():
    """Or as the key says."""
    assert (
        majority_at_k(["x = 1", "X=1", "2", "2 ", "1"], [True, True, False, False, False], 5) == 0.5
    )
    assert majority_at_k(["1.0", "1", "2"], [True, True, False], 3, key=float) == 1.0


def test_many_completions_are_no_problem():
    """500 of 1000 make 3e299 subsets, which a float still holds; 10 b among 990 a never win."""
    answers = ["a"] * 990 + ["b"] * 10
    assert majority_at_k(answers, [a == "a" for a in answers], 500) == pytest.approx(1.0, abs=1e-9)
    assert majority_at_k(answers[::-1], [a == "b" for a in answers[::-1]], 500) == pytest.approx(
        0.0, abs=1e-9
    )


@pytest.mark.parametrize(("n", "k"), [(3, 4), (3, 0), (1001, 5)])
def test_a_majority_that_cannot_be_is_refused(n, k):
    """Of more than there are, of none, of more than a float can count subsets of."""
    with pytest.raises(ValueError, match=f"maj@{k} of {n} completions"):
        majority_at_k(["a"] * n, [True] * n, k)


# ---------------------------------------------------------------------------------------- intervals


def test_wilson_by_hand():
    """5 of 10 with z = 1.96: 1/2 ± 1.96 √(0.025 + 0.0096) / 1.384 = 1/2 ± 0.2634."""
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


TRIALS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(TRIALS, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_holds_the_share_in_an_interval_of_shares(counts, level):
    """The mirror image of that of the failures; less for more trials of the same share."""
    successes, trials = counts
    low, high = wilson(successes, trials, level=level)
    assert 0 <= low <= successes / trials <= high <= 1
    assert low < high
    mirrored = wilson(trials - successes, trials, level=level)
    assert mirrored == pytest.approx((1 - high, 1 - low))
    more = wilson(4 * successes, 4 * trials, level=level)
    assert more[1] - more[0] < high - low


def test_wilson_solves_its_equation():
    """Its ends are the shares that lie just z standard errors from what was seen: |p - q| = z √(q(1-q)/N)."""
    for successes, trials in ((1, 10), (7, 9), (250, 1319)):
        for q in wilson(successes, trials, level=0.9):
            assert abs(successes / trials - q) == pytest.approx(
                1.6448536 * math.sqrt(q * (1 - q) / trials)
            )


def test_wilson_at_the_ends_has_a_width():
    """Ten of ten do not prove that all are right: z²/(N + z²) is left, and the end is exact."""
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), 1.0)


def test_the_bootstrap_covers_like_the_normal_interval_of_a_large_sample():
    """Mean ± 1.96 s/√P of 2000 numbers, within a tenth of its width."""
    x = np.random.default_rng(7).normal(size=2000)
    low, high = bootstrap(x)
    half = 1.96 * x.std() / math.sqrt(2000)
    assert low == pytest.approx(x.mean() - half, abs=half / 10)
    assert high == pytest.approx(x.mean() + half, abs=half / 10)


def test_the_bootstrap_of_three_values_by_hand():
    """0, 0, 3: the mean of three draws is 0 with chance 8/27 and 3 with 1/27, both above a tail of 2.5 %."""
    assert bootstrap([0.0, 0.0, 3.0]) == (0.0, 3.0)
    assert bootstrap([0.5, 0.5]) == (0.5, 0.5)


def test_the_bootstrap_repeats():
    """The same seed gives the same interval, however many are drawn at once; another seed another one."""
    rng = random.Random(0)
    x = [rng.random() for _ in range(50)]
    assert bootstrap(x) == bootstrap(x)
    assert bootstrap(x) != bootstrap(x, seed=1)
    low, high = bootstrap(x, level=0.5)
    assert bootstrap(x)[0] < low < high < bootstrap(x)[1]


@pytest.mark.parametrize("values", [[], [float("nan")], [[1.0]]])
def test_a_bootstrap_of_nothing_is_refused(values):
    """There is no mean to resample."""
    with pytest.raises(ValueError, match="bootstrap of an array"):
        bootstrap(values)


def test_a_level_is_a_share():
    """95 instead of 0.95 is easily written."""
    with pytest.raises(ValueError, match="level is 95"):
        wilson(1, 2, level=95)
    with pytest.raises(ValueError, match="level is 95"):
        bootstrap([1.0], level=95)


# ---------------------------------------------------------------------------------------- few tasks


def test_the_beta_interval_is_clopper_and_pearsons():
    """0 of n: the upper end solves (1 - p)^n = 0.025; 8 of 10: 0.4439 to 0.9748, as in tables; bounds shift it."""
    assert beta_interval([0, 0, 0]) == (0.0, pytest.approx(1 - 0.025 ** (1 / 3)))
    assert beta_interval([1] * 8 + [0] * 2) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert beta_interval([2, 0], bounds=(-2, 2)) == pytest.approx(
        [4 * end - 2 for end in beta_interval([1.0, 0.5])]
    )
    with pytest.raises(ValueError, match=r"outside of \[0, 1\]"):
        beta_interval([1.5])


def test_students_interval_by_hand():
    """1, 2, 3: mean 2, s = 1, t(0.975; 2) = 4.3027; equal values say nothing of their spread."""
    assert student_interval([1, 2, 3]) == pytest.approx(
        (2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4
    )
    assert student_interval([0.5, 0.5]) == (-math.inf, math.inf)


@pytest.mark.parametrize("tasks", in_turn([1, 3, 8, 19], 2))
def test_intervals_of_few_tasks_cover(tasks):
    """Pass rates of tasks are drawn from Beta(m s, (1 - m) s), n completions from each: the share of intervals that
    hold the mean m is at least the nominal 0.95, less three standard errors of 400 draws."""
    rng = np.random.default_rng(tasks)
    known = {}  # the interval depends on the sum alone
    for mean, spread, n in itertools.product((0.05, 0.3, 0.5, 0.9), (0.5, 20), (1, 3)):
        covered = []
        for _ in range(400):
            rates = rng.beta(mean * spread, (1 - mean) * spread, size=tasks)
            right = rng.binomial(n, rates)
            total = 3 // n * int(right.sum())
            if total not in known:
                known[total] = estimate((right / n).tolist(), 0.95)
            covered.append(known[total].low <= mean <= known[total].high)
        assert fmean(covered) > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400), (mean, spread, n)


def test_twenty_tasks_have_the_intervals_of_large_samples():
    """And where the bootstrap would have no width, as all values are equal, one that has."""
    half = [0.0, 1.0] * 10
    assert (estimate(half, 0.95).low, estimate(half, 0.95).high) == wilson(10, 20)
    shares = [0.25, 0.75] * 10
    assert (estimate(shares, 0.95).low, estimate(shares, 0.95).high) == bootstrap(shares)
    equal = estimate([0.5] * 20, 0.95)
    assert equal.low < 0.3 < 0.7 < equal.high
