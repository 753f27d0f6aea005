"""Paired statistics: by hand, by their symmetries, and by simulation with bounds of the binomial
law."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.scoring.compare.paired import (
    completions_needed,
    differences,
    estimates,
    holm,
    rank_intervals,
    seeded_difference,
)
from rlvr.statistics import estimate, student_p, student_quantile

TASKS = st.lists(st.tuples(*[st.integers(0, 4)] * 2), min_size=2, max_size=40).map(
    lambda rows: np.array(rows) / 4
)


def _simulated(pairs, gain=0.0, tasks=300, n=4, seed=0):
    """Pairs of models as columns 2i and 2i + 1, the second better by `gain`, shape [P, 2 pairs]."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(0.5, 0.5, (tasks, pairs)) * 0.8 + 0.1
    both = np.stack([rate, rate + gain], axis=2).reshape(tasks, 2 * pairs)
    return rng.binomial(n, both) / n


def _all(values, **given):
    return differences(values, [(i, i + 1) for i in range(0, values.shape[1], 2)], **given)


def _slack(p, trials):
    """Four standard deviations of a share of trials: a right one is beyond it once in 16,000
    times."""
    return 4 * math.sqrt(p * (1 - p) / trials)


def _only(first, second, **given):
    [found] = differences(np.stack([first, second], axis=1), [(0, 1)], **given)
    return found


# ------------------------------------------------------------------------------------------ by hand


def test_p_counts_signs():
    """Of 2^3 signs of (1, 1, 1) two sum to 3 or -3; of 2^6 two again, which is the first below
    0.05."""
    assert _only(np.zeros(3), np.ones(3)).p == 2 / 8
    assert _only(np.zeros(6), np.ones(6)).p == 2 / 64


def test_equal_results_have_p_1_and_no_width_to_judge_by():
    """Nothing differs, so every sign pattern reaches it; and nothing is known of the spread."""
    found = _only(np.full(30, 0.5), np.full(30, 0.5))
    assert (found.value, found.p, found.detectable, found.tasks_needed) == (0, 1, None, None)
    assert found.low < 0 < found.high


def test_detectable_and_needed_by_hand():
    """d = ±1/2 around 1/10 over 100 tasks: s^2 = 100/99 / 4, the error s / 10, and 1.95996 +
    0.84162 of these."""
    d = np.where(np.arange(100) % 2, 0.6, -0.4)
    found = _only(np.zeros(100), d, bounds=None)
    error = math.sqrt(25 / 99) / 10
    assert found.detectable == pytest.approx(2.80158 * error, rel=1e-5)
    assert found.tasks_needed == math.ceil(100 * (found.detectable / 0.1) ** 2) == 199


def test_more_completions_take_away_the_noise_of_sampling_alone():
    """With c = 2 of n = 4 in both files the variance of sampling is 2 (2 / 24), which falls with
    n."""
    rng = np.random.default_rng(0)
    first, second = rng.binomial(4, 0.5, (2, 200)) / 4
    found = _only(first, second + 0.02, bounds=None)
    right = np.full((200, 2), 2.0)
    variance = 200 * (found.detectable / 2.80158) ** 2
    rest = 200 * (found.value / 2.80158) ** 2 - max(0.0, variance - 1 / 6)
    expected = math.ceil(4 * (1 / 6) / rest) if rest > 0 else None
    assert completions_needed(found, np.full((200, 2), 4.0), right) == expected
    assert completions_needed(found, np.full((200, 2), 1.0), right / 2) is None


def test_holm_by_hand():
    """Three times the least, twice the next, and never less than the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_ranks_stand_between_better_and_worse():
    """0 beats 2, and 1 is not told apart from either."""
    assert rank_intervals(3, [(0, 2)]) == [(1, 2), (1, 3), (2, 3)]


def test_student_quantile_and_p_are_inverse():
    """P(|T| >= the 95 % quantile) is 5 %; and with one degree of freedom, Cauchy's: P(|T| >= 1) =
    1/2."""
    assert student_p(1.0, 1) == pytest.approx(0.5)
    for freedom in (1, 2.5, 30):
        assert student_p(student_quantile(0.95, freedom), freedom) == pytest.approx(0.05, rel=1e-6)


# --------------------------------------------------------------------------------------- symmetries


@given(TASKS)
def test_the_other_order_turns_the_sign(values):
    """Second minus first is minus first minus second, with the same p and the mirrored interval."""
    here, there = differences(values, [(0, 1), (1, 0)])
    assert (here.value, here.p) == (pytest.approx(-there.value), there.p)
    assert (here.low, here.high) == (pytest.approx(-there.high), pytest.approx(-there.low))
    assert here.low <= here.value <= here.high


@given(TASKS)
def test_copies_of_a_task_in_one_cluster_add_nothing(values):
    """Three variants of each source with the same results are one observation: the same interval
    and p, no narrower."""
    copies = np.repeat(values, 3, axis=0)
    clusters = np.repeat(np.arange(len(values)), 3)
    [alone] = differences(values, [(0, 1)], bounds=None)
    [copied] = differences(copies, [(0, 1)], clusters=clusters, bounds=None)
    assert (copied.value, copied.p) == (pytest.approx(alone.value), alone.p)
    assert (copied.low, copied.high) == (pytest.approx(alone.low), pytest.approx(alone.high))


def test_means_of_few_tasks_have_the_interval_of_an_evaluation():
    """Below 20 tasks both take the interval that covers for any number."""
    values = np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 1.0]])
    for it, column in zip(estimates(values), values.T, strict=True):
        assert it == estimate(column.tolist(), 0.95)


# --------------------------------------------------------------------------------------- simulation


TRIALS = pytest.mark.parametrize("trials", [100, pytest.param(400, marks=pytest.mark.slow)])


@TRIALS
def test_intervals_cover_and_false_alarms_are_rare(trials):
    """300 tasks x 4, pairs of equal models: 95 % of intervals hold 0, 5 % of p-values are below
    0.05."""
    found = _all(_simulated(trials))
    covered = np.mean([it.low <= 0 <= it.high for it in found])
    alarms = np.mean([it.p < 0.05 for it in found])
    assert covered >= 0.95 - _slack(0.95, trials)
    assert 0.05 - _slack(0.05, trials) <= alarms <= 0.05 + _slack(0.05, trials)


@TRIALS
def test_a_gain_as_great_as_the_detectable_one_is_seen_in_four_of_five(trials):
    """This is what `detectable` promises; intervals of single models overlap in all of them."""
    gain = float(np.mean([it.detectable for it in _all(_simulated(trials))]))
    values = _simulated(trials, gain, seed=1)
    found = _all(values)
    assert gain == pytest.approx(0.04, abs=0.01)  # the 4 points that the documentation speaks of
    assert np.mean([it.p < 0.05 for it in found]) == pytest.approx(0.8, abs=_slack(0.8, trials))
    singles = estimates(values)
    apart = [singles[i + 1].low > singles[i].high for i in range(0, 2 * trials, 2)]
    assert np.mean(apart) <= 0.05


@TRIALS
def test_a_leaderboard_of_equals_names_a_best_one_seldom(trials):
    """Five equal models, ten comparisons: any is told apart in at most 5 % of boards."""
    pairs = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    rng = np.random.default_rng(2)
    boards = [rng.binomial(4, rng.beta(1, 1, (12, 1)), (12, 5)) / 4 for _ in range(trials)]
    wrong = [min(holm([it.p for it in differences(board, pairs)])) < 0.05 for board in boards]
    assert np.mean(wrong) <= 0.05 + _slack(0.05, trials)


@TRIALS
def test_seeds_are_a_level_of_their_own(trials):
    """Runs of one method differ by 0.05 from seed to seed: tasks alone cry wolf, tasks and seeds do
    not."""
    rng = np.random.default_rng(3)
    alarms, alone = 0, 0
    for _ in range(trials):
        rate = rng.uniform(0.3, 0.7, (200, 1)) + rng.normal(0, 0.05, (1, 6))
        values = rng.binomial(4, rate.clip(0, 1)) / 4
        alarms += seeded_difference(values[:, :3], values[:, 3:]).p < 0.05
        d = values[:, 3] - values[:, 0]
        alone += abs(d.mean()) > 1.96 * d.std() / math.sqrt(200)
    assert alarms / trials <= 0.05 + _slack(0.05, trials)
    assert alone / trials > 0.3


def test_one_cluster_is_refused():
    """There is nothing to resample."""
    with pytest.raises(ValueError, match="at least 2"):
        differences(np.zeros((4, 2)), [(0, 1)], clusters=np.zeros(4, dtype=np.int64))
