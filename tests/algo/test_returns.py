"""Credit over time: short completions by hand, gaps that are stepped over, and identities between the estimates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo.advantages import group_advantages
from rlvr.algo.returns import (
    discounted_returns,
    gae,
    monte_carlo_advantages,
    n_step_returns,
    process_advantages,
    whiten,
)

NAN = math.nan


def f64(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def on(*bits: int) -> torch.Tensor:
    return torch.tensor([bits], dtype=torch.bool)


# ---------------------------------------------------------------------------------- gae and returns


def test_gae_by_hand():
    """γ = λ = 1/2, rewards 0 1, values 2 4: δ₁ = 1 - 4 = -3, δ₀ = 0 + 4/2 - 2 = 0, A₀ = 0 - 3/4; returns A + V."""
    got = gae(f64([[0.0, 1.0]]), f64([[2.0, 4.0]]), on(1, 1), gamma=0.5, lam=0.5)
    assert got.advantages.tolist() == [[-0.75, -3.0]]
    assert got.returns.tolist() == [[1.25, 1.0]]


def test_a_truncated_completion_ends_in_the_critics_estimate():
    """γ = 1/2, bootstrap 8: δ₁ = 1 + 4 - 4 = 1, δ₀ = 0 as before, A₀ = 1/4."""
    got = gae(
        f64([[0.0, 1.0]]), f64([[2.0, 4.0]]), on(1, 1), gamma=0.5, lam=0.5, bootstrap=f64([8.0])
    )
    assert got.advantages.tolist() == [[0.25, 1.0]]


def test_the_environments_tokens_and_padding_are_stepped_over():
    """A gap of two with NaN in it and padding behind change nothing, and get 0: no γ is spent on them."""
    got = gae(
        f64([[0.0, NAN, NAN, 1.0, NAN]]),
        f64([[2.0, NAN, NAN, 4.0, NAN]]),
        on(1, 0, 0, 1, 0),
        gamma=0.5,
        lam=0.5,
    )
    assert got.advantages.tolist() == [[-0.75, 0.0, 0.0, -3.0, 0.0]]
    assert got.returns.tolist() == [[1.25, 0.0, 0.0, 1.0, 0.0]]


def test_discounted_returns_by_hand():
    """γ = 1/2, rewards 1 2 4: 4; 2 + 2; 1 + 2.  With 8 behind: 8; 6; 4."""
    rewards, mask = f64([[1.0, 2.0, 4.0]]), on(1, 1, 1)
    assert discounted_returns(rewards, mask, gamma=0.5).tolist() == [[3.0, 4.0, 4.0]]
    assert discounted_returns(rewards, mask, gamma=0.5, bootstrap=f64([8.0])).tolist() == [
        [4.0, 6.0, 8.0]
    ]


def test_two_step_returns_by_hand():
    """γ = 1/2, rewards 1 2 4, values 8 16 32: 1 + 1 + 32/4; 2 + 2 (+ 0); 4; a gap between is not there."""
    rewards, values = f64([[1.0, NAN, 2.0, 4.0]]), f64([[8.0, NAN, 16.0, 32.0]])
    got = n_step_returns(rewards, values, on(1, 0, 1, 1), n=2, gamma=0.5)
    assert got.tolist() == [[10.0, 0.0, 4.0, 4.0]]
    got = n_step_returns(rewards, values, on(1, 0, 1, 1), n=2, gamma=0.5, bootstrap=f64([64.0]))
    assert got.tolist() == [[10.0, 0.0, 20.0, 36.0]]


@st.composite
def batches(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    B, T = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    numbers = st.lists(st.floats(-2, 2, width=32), min_size=B * T, max_size=B * T)
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=B * T, max_size=B * T)))
    return {
        "rewards": f64(draw(numbers)).reshape(B, T),
        "values": f64(draw(numbers)).reshape(B, T),
        "completion_mask": mask.reshape(B, T),
        "bootstrap": f64(draw(numbers))[:B],
    }


@given(batch=batches(), gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_the_ends_of_gae_are_the_one_step_and_the_whole_return(batch, gamma):
    """λ = 0 is n = 1; λ = 1 is n ≥ T, whose value estimates cancel (arXiv:1506.02438, eq. 17 and 18)."""
    T = batch["values"].shape[1]
    one, whole = (
        n_step_returns(**batch, n=1, gamma=gamma),
        n_step_returns(**batch, n=T + 1, gamma=gamma),
    )
    torch.testing.assert_close(gae(**batch, gamma=gamma, lam=0.0).returns, one)
    torch.testing.assert_close(gae(**batch, gamma=gamma, lam=1.0).returns, whole)
    without = {name: x for name, x in batch.items() if name != "values"}
    torch.testing.assert_close(discounted_returns(**without, gamma=gamma), whole)


@given(batch=batches(), lam=st.sampled_from([0.3, 0.95]))
def test_gae_is_the_weighted_mean_of_n_step_returns(batch, lam):
    """(1 - λ) Σ λ^{n-1} R^(n), the last one with what is left of the weight (eq. 16)."""
    T = batch["values"].shape[1]
    mixed = sum(
        (1 - lam) * lam ** (n - 1) * n_step_returns(**batch, n=n, gamma=0.9) for n in range(1, T)
    )
    mixed = mixed + lam ** (T - 1) * n_step_returns(**batch, n=T, gamma=0.9)
    torch.testing.assert_close(gae(**batch, gamma=0.9, lam=lam).returns, mixed)


def test_estimates_carry_no_gradient():
    """The critic learns from `value_loss`; the policy's loss must not reach it."""
    values = f64([[2.0, 4.0]]).requires_grad_()
    got = gae(f64([[0.0, 1.0]]), values, on(1, 1), bootstrap=values[:, 0])
    assert not got.advantages.requires_grad
    assert not got.returns.requires_grad
    assert not n_step_returns(f64([[0.0, 1.0]]), values, on(1, 1), n=1).requires_grad


def test_what_cannot_be_estimated_is_refused():
    """Each names the value and the rule."""
    x, mask = f64([[0.0, 1.0]]), on(1, 1)
    with pytest.raises(ValueError, match=r"n is 0; a return looks at least 1 token ahead"):
        n_step_returns(x, x, mask, n=0)
    with pytest.raises(ValueError, match=r"gamma is 1\.5; it must lie in \[0, 1\]"):
        discounted_returns(x, mask, gamma=1.5)
    with pytest.raises(ValueError, match=r"lam is -0\.1"):
        gae(x, x, mask, lam=-0.1)
    with pytest.raises(ValueError, match=r"row 0, token 1: the value is nan"):
        gae(x, f64([[0.0, NAN]]), mask)
    with pytest.raises(ValueError, match=r"row 0: the bootstrap value is inf"):
        gae(x, x, mask, bootstrap=f64([math.inf]))


# ------------------------------------------------------------------------------------------ steps


def test_process_supervision_by_hand():
    """Steps 1 0 and 0 in a group: mean 1/3, std sqrt(2)/3, so sqrt(2) and twice -1/sqrt(2); then sums from the end."""
    rewards = f64([[[NAN, 1.0, 0.0, NAN], [0.0, NAN, NAN, NAN]]])
    ends = torch.tensor([[[False, True, True, False], [True, False, False, False]]])
    got = process_advantages(rewards, ends, eps=0.0)
    torch.testing.assert_close(got, f64([[[1.0, 1.0, -1.0, 0.0], [-1.0, 0.0, 0.0, 0.0]]]) / 2**0.5)


def test_one_step_per_completion_is_outcome_supervision():
    """4.1.2 is 4.1.3 with the last token as the only step: every token gets the completion's advantage."""
    scores = f64([[1.0, 0.0, 0.3]])
    ends = torch.zeros(1, 3, 5, dtype=torch.bool)
    ends[..., -1] = True
    got = process_advantages(scores[..., None].expand(1, 3, 5), ends)
    torch.testing.assert_close(got, group_advantages(scores)[..., None].expand(1, 3, 5))


def test_the_steps_of_an_unscored_rollout_do_not_count():
    """Its rewards may be anything, the others' advantages are as if it were not there."""
    ends = torch.tensor([[[False, True], [True, True], [True, False]]])
    rewards = f64([[[NAN, 1.0], [NAN, math.inf], [0.5, NAN]]])
    got = process_advantages(rewards, ends, torch.tensor([[True, False, True]]))
    torch.testing.assert_close(
        got[:, [0, 2]], process_advantages(rewards[:, [0, 2]], ends[:, [0, 2]])
    )
    assert got[0, 1].abs().sum() == 0


def test_monte_carlo_advantages_by_hand():
    """Steps of 2, 1 and 2 tokens, values 0.5 0.75 0.25, score 1: each token gets its step's gain."""
    values, boundaries = f64([[0.5, 0.75, 0.25, 1.0]]), torch.tensor([[0, 2, 3, 5]])
    got = monte_carlo_advantages(values, boundaries, on(1, 1, 1, 1, 1, 0))
    assert got.tolist() == [[0.25, 0.25, -0.5, 0.75, 0.75, 0.0]]


def test_a_row_with_fewer_steps_repeats_its_last_boundary():
    """What stands there as a value is not looked at."""
    values, boundaries = (
        f64([[0.5, 0.75, 0.25], [0.0, 1.0, NAN]]),
        torch.tensor([[0, 1, 2], [0, 2, 2]]),
    )
    got = monte_carlo_advantages(values, boundaries, torch.ones(2, 2, dtype=torch.bool))
    assert got.tolist() == [[0.25, -0.5], [1.0, 1.0]]


def test_monte_carlo_advantages_refuse_boundaries_that_make_no_sense():
    """A token outside of all steps would silently get a neighbour's advantage."""
    values = f64([[0.0, 0.5, 1.0]])
    with pytest.raises(ValueError, match=r"row 0: the boundaries \[0, 3, 2\] decrease"):
        monte_carlo_advantages(values, torch.tensor([[0, 3, 2]]), on(1, 1, 1))
    with pytest.raises(
        ValueError, match=r"row 0: token 2 is trained on and outside the boundaries \[0, 1, 2\]"
    ):
        monte_carlo_advantages(values, torch.tensor([[0, 1, 2]]), on(1, 1, 1))
    with pytest.raises(ValueError, match=r"row 0: token 0 is trained on and outside"):
        monte_carlo_advantages(values, torch.tensor([[1, 2, 3]]), on(1, 1, 1))
    with pytest.raises(ValueError, match=r"row 0, boundary 1: the value is nan"):
        monte_carlo_advantages(f64([[0.0, NAN, 1.0]]), torch.tensor([[0, 1, 3]]), on(1, 1, 1))


def test_whitening_by_hand():
    """Trained tokens 1 1 1 -3: mean 0, std sqrt(3)."""
    got = whiten(
        f64([[1.0, 1.0, NAN], [1.0, -3.0, NAN]]), torch.tensor([[True, True, False]] * 2), eps=0.0
    )
    torch.testing.assert_close(got, f64([[1.0, 1.0, 0.0], [1.0, -3.0, 0.0]]) / 3**0.5)
