"""Scores to advantages: numbers by hand, groups that are ragged, and what must not depend on what."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo.advantages import (
    batch_mean,
    global_advantages,
    group_advantages,
    magistral_advantages,
    moving_average,
    reinforce_advantages,
    rloo_advantages,
)

NAN, INF = math.nan, math.inf


def f64(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# ------------------------------------------------------------------------------------------ by hand


def test_one_success_in_four():
    """mean 1/4, population std sqrt(3)/4: the winner gets sqrt(3), each loser -1/sqrt(3)."""
    got = group_advantages(f64([[1.0, 0.0, 0.0, 0.0]]), eps=0.0)
    torch.testing.assert_close(got, f64([[3.0, -1.0, -1.0, -1.0]]) / 3**0.5)


def test_eps_stands_beside_the_std():
    """[1, 0]: ± 1/2 over 1/2 + 1/2."""
    assert group_advantages(f64([[1.0, 0.0]]), eps=0.5).tolist() == [[0.5, -0.5]]


def test_without_scale_only_the_mean_goes():
    """Dr. GRPO: 1 - 1/4 and -1/4."""
    assert group_advantages(f64([[1.0, 0.0, 0.0, 0.0]]), scale=False).tolist() == [
        [0.75, -0.25, -0.25, -0.25]
    ]


@given(st.floats(-1e6, 1e6, width=32), st.integers(1, 9), st.sampled_from([0.0, 1e-6]))
def test_a_group_that_agrees_teaches_nothing(score: float, size: int, eps: float):
    """Exactly: in float32 the mean of seven times 0.1 is not 0.1, and a rounding error over 1e-6 would be a signal."""
    assert group_advantages(torch.full((2, size), score), eps=eps).abs().max() == 0


@pytest.mark.parametrize(
    "function", [group_advantages, rloo_advantages, global_advantages, magistral_advantages]
)
def test_a_lone_completion_has_advantage_0(function):
    """G = 1 and a batch of one: nothing to compare with, and no division by 0."""
    assert function(f64([[0.7]])).tolist() == [[0.0]]


def test_leave_one_out_by_hand():
    """[3, 0, 0]: 3 - 0, then twice 0 - 3/2."""
    assert rloo_advantages(f64([[3.0, 0.0, 0.0]])).tolist() == [[3.0, -1.5, -1.5]]


def test_leave_one_out_of_a_ragged_group():
    """[3, -, 1]: each against the other one."""
    assert rloo_advantages(
        f64([[3.0, NAN, 1.0]]), torch.tensor([[True, False, True]])
    ).tolist() == [[2.0, 0.0, -2.0]]


def test_a_constant_a_batch_and_a_prompt_baseline():
    """Scores 1 0 / 1 1: minus 0.5; minus their mean 3/4; minus 1 and 0."""
    scores = f64([[1.0, 0.0], [1.0, 1.0]])
    assert reinforce_advantages(scores, baseline=0.5).tolist() == [[0.5, -0.5], [0.5, 0.5]]
    assert reinforce_advantages(scores, baseline=batch_mean(scores)).tolist() == [
        [0.25, -0.75],
        [0.25, 0.25],
    ]
    assert reinforce_advantages(scores, baseline=f64([[1.0], [0.0]])).tolist() == [
        [0.0, -1.0],
        [1.0, 1.0],
    ]


def test_a_moving_average_starts_at_the_first_mean():
    """1/2, then 0.9 · 1/2 + 0.1 · 1 = 0.55; a batch in which nothing was scored moves nothing."""
    first = moving_average(None, f64([[1.0, 0.0]]), decay=0.9)
    assert first == 0.5
    assert moving_average(first, f64([[1.0, 1.0]]), decay=0.9) == pytest.approx(0.55)
    assert moving_average(0.3, f64([[NAN]]), torch.tensor([[False]]), decay=0.9) == 0.3
    with pytest.raises(ValueError, match=r"decay is 1\.0; it must lie in \[0, 1\)"):
        moving_average(0.3, f64([[1.0]]), decay=1.0)


def test_global_normalisation_by_hand():
    """[1 0 / 0 0]: mean 1/4, std sqrt(3)/4 over the batch: unlike GRPO's, the second group learns that it failed."""
    got = global_advantages(f64([[1.0, 0.0], [0.0, 0.0]]), eps=0.0)
    torch.testing.assert_close(got, f64([[3.0, -1.0], [-1.0, -1.0]]) / 3**0.5)


def test_the_group_baseline_is_taken_before_the_batch_is_normalised():
    """[1 0 / 0 0]: centred ± 1/2, 0, 0; std sqrt(1/8)."""
    got = global_advantages(f64([[1.0, 0.0], [0.0, 0.0]]), group_baseline=True, eps=0.0)
    torch.testing.assert_close(got, f64([[1.0, -1.0], [0.0, 0.0]]) * 2**0.5)


def test_with_lengths_a_completion_counts_once_per_token():
    """Scores 1, 0 with 3 and 1 tokens: mean 3/4, std sqrt(3)/4, as of the tokens 1 1 1 0."""
    got = global_advantages(f64([[1.0, 0.0]]), lengths_tokens=torch.tensor([[3, 1]]), eps=0.0)
    torch.testing.assert_close(got, f64([[1.0, -3.0]]) / 3**0.5)


def test_magistral_normalises_each_mini_batch():
    """Centred ± 1/2 and ± 2; mini-batch 0 holds 1/2 and -2, mean -3/4 and std 5/4; mini-batch 1 the opposite."""
    scores, minibatch = f64([[1.0, 0.0], [4.0, 0.0]]), torch.tensor([[0, 1], [1, 0]])
    got = magistral_advantages(scores, minibatch=minibatch, eps=0.0)
    torch.testing.assert_close(got, f64([[1.0, -1.0], [1.0, -1.0]]))


def test_magistral_in_one_mini_batch_is_the_global_baseline_form():
    """Both centre per group and divide by the std of all."""
    scores = f64([[1.0, 0.0, 0.3], [0.2, 0.9, 0.4]])
    torch.testing.assert_close(
        magistral_advantages(scores), global_advantages(scores, group_baseline=True)
    )


RAW = (
    group_advantages,
    rloo_advantages,
    reinforce_advantages,
    global_advantages,
    magistral_advantages,
)


@given(
    st.sampled_from(RAW), st.sampled_from([NAN, INF, -INF]), st.integers(0, 2), st.integers(0, 1)
)
def test_a_score_that_is_no_number_is_named(function, bad: float, p: int, g: int):
    """A reward has promised finite scores; one NaN would spread over its group and then over the weights."""
    scores = torch.zeros(3, 2)
    scores[p, g] = bad
    message = f"prompt {p}, completion {g}: the score is {bad}, and it must be finite"
    with pytest.raises(ValueError, match=message):
        function(scores)


@given(
    st.lists(st.lists(st.integers(-8, 8), min_size=2, max_size=2), min_size=1), st.floats(0, 0.99)
)
def test_a_moving_average_forgets_at_its_rate(batches: list[list[int]], decay: float):
    """Each batch's mean has the weight (1 - d) d^age, and all weights sum to 1."""
    average, expected = None, None
    for scores in batches:
        mean = sum(scores) / 2
        assert batch_mean(f64([scores])) == mean
        average = moving_average(average, f64([scores]), decay=decay)
        expected = mean if expected is None else decay * expected + (1 - decay) * mean
    assert average == pytest.approx(expected)


def test_scores_carry_no_gradient():
    """A learned reward model must not be trained through the policy's loss."""
    assert not group_advantages(f64([[1.0, 0.0]]).requires_grad_()).requires_grad


# --------------------------------------------------------------------------------------- properties

FUNCTIONS = {
    "grpo": lambda s, m=None: group_advantages(s, m, eps=0.0),
    "dr_grpo": lambda s, m=None: group_advantages(s, m, scale=False),
    "rloo": rloo_advantages,
    "global": lambda s, m=None: global_advantages(s, m, eps=0.0),
    "reinforce_pp_baseline": lambda s, m=None: global_advantages(
        s, m, group_baseline=True, eps=0.0
    ),
    "magistral": lambda s, m=None: magistral_advantages(s, m, eps=0.0),
}
every = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
eighths = st.integers(-16, 16).map(
    lambda n: n / 8
)  # exact sums: what differs is the function, not the rounding


@st.composite
def tables(draw: st.DrawFn) -> torch.Tensor:
    P, G = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return f64(draw(st.lists(st.lists(eighths, min_size=G, max_size=G), min_size=P, max_size=P)))


@st.composite
def ragged(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    scores = draw(tables())
    bits = draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel()))
    return scores, torch.tensor(bits).reshape(scores.shape)


@every
@given(scores=tables(), shift=eighths, scale=st.sampled_from([0.5, 2.0, 8.0]))
def test_a_shift_changes_nothing_and_a_scale_at_most_the_scale(function, scores, shift, scale):
    """Scores of ± 1 and of 0, 1 teach the same."""
    before, after = function(scores), function(scale * scores + shift)
    scaled = function in (FUNCTIONS["dr_grpo"], FUNCTIONS["rloo"])
    torch.testing.assert_close(after, scale * before if scaled else before)


@every
@given(scores=tables())
def test_advantages_sum_to_0(function, scores):
    """Over each group, or over the batch where that is what is compared with."""
    got = function(scores)
    total = got.sum() if function is FUNCTIONS["global"] else got.sum(dim=1)
    assert total.abs().max() < 1e-9


@every
@given(scores=tables(), data=st.data())
def test_the_order_of_siblings_does_not_matter(function, scores, data):
    """Permute the completions and the advantages follow."""
    order = data.draw(st.permutations(range(scores.shape[1])))
    torch.testing.assert_close(function(scores[:, order]), function(scores)[:, order])


@every
@given(case=ragged(), junk=st.sampled_from([NAN, INF, 1e300, 0.0]))
def test_an_unscored_rollout_neither_counts_nor_learns(function, case, junk):
    """Whatever stands in its place, its own advantage is 0 and the others' are the same."""
    scores, scored = case
    got = function(torch.where(scored, scores, junk), scored)
    assert got[~scored].abs().sum() == 0
    torch.testing.assert_close(
        got, function(torch.where(scored, scores, 0.0), scored), rtol=0, atol=0
    )


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@given(case=ragged())
def test_a_ragged_group_is_the_group_without_the_unscored(name, case):
    """As if they had never been sampled."""
    scores, scored = case
    got = FUNCTIONS[name](scores, scored)
    for row, here, found in zip(scores, scored, got, strict=True):
        if here.any():
            torch.testing.assert_close(found[here], FUNCTIONS[name](row[None, here])[0])


@given(scores=tables())
def test_grpo_has_variance_1_or_0(scores):
    """Population variance, per group."""
    variance = FUNCTIONS["grpo"](scores).square().mean(dim=1)
    assert all(v == 0 or v == pytest.approx(1) for v in variance.tolist())
