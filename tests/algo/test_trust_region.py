"""Trust regions on problems whose answers are known, and the whole vocabulary's KL that the estimators are held to."""

import math

import pytest
import torch

from rlvr.algo.kl import kl_loss
from rlvr.algo.trust_region import (
    conjugate_gradient,
    dual_ascent,
    fisher_product,
    full_kl,
    trust_region_step,
)
from tests.rounding import assert_same, unit


def f64(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


REF = f64([0.2, 0.5, 0.3]).log()
REWARDS = f64([1.0, 0.0, 0.5])


class Bandit:
    """Three arms; the policy is a softmax of three weights."""

    def __init__(self, start: torch.Tensor = REF, rewards: torch.Tensor = REWARDS) -> None:
        self.logits = start.clone().requires_grad_()
        self.old = self.logits.detach().log_softmax(0)
        self.advantages = rewards - (self.old.exp() * rewards).sum()

    def surrogate(self) -> torch.Tensor:
        logprobs = self.logits.log_softmax(0)
        return (self.old.exp() * (logprobs - self.old).exp() * self.advantages).sum()

    def divergence(self) -> torch.Tensor:
        return full_kl(self.old, self.logits.log_softmax(0))

    def gains(self) -> list[torch.Tensor]:
        """In two parts, as micro-batches give them."""
        return [0.25 * self.surrogate(), 0.75 * self.surrogate()]

    def divergences(self) -> list[torch.Tensor]:
        return [0.5 * self.divergence(), 0.5 * self.divergence()]


def test_the_whole_kl_by_hand():
    """½ ln 2 + ½ ln (2/3) of (½, ½) against (¼, ¾); a token of probability 0 adds 0."""
    assert full_kl(f64([0.5, 0.5]).log(), f64([0.25, 0.75]).log()).item() == pytest.approx(
        0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    )
    assert full_kl(f64([1.0, 0.0]).log(), f64([0.5, 0.5]).log()).item() == pytest.approx(
        math.log(2)
    )


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_estimators_are_right_on_average(estimator: str):
    """Weighed by π, k1 and k3 of every token of a vocabulary of 50 sum to the KL over it: to 1e-12, by enumeration."""
    draw = torch.Generator().manual_seed(0)
    policy, ref = (
        torch.randn(50, dtype=torch.float64, generator=draw).log_softmax(0) for _ in range(2)
    )
    each = kl_loss(
        policy[None], ref[None], torch.ones(1, 50, dtype=torch.bool), estimator=estimator
    )
    assert (policy.exp() * each).sum().item() == pytest.approx(
        full_kl(policy, ref).item(), abs=1e-12
    )


def test_k2_is_biased_and_says_so():
    """k2 is not the divergence; for near policies it is close to it."""
    draw = torch.Generator().manual_seed(0)
    policy, ref = (
        torch.randn(50, dtype=torch.float64, generator=draw).log_softmax(0) for _ in range(2)
    )
    each = kl_loss(policy[None], ref[None], torch.ones(1, 50, dtype=torch.bool), estimator="k2")
    assert abs((policy.exp() * each).sum() - full_kl(policy, ref)) > 0.05


def test_conjugate_gradients_solve_in_n_steps():
    """Two sizes of eigenvalues take two steps.  With 8 sizes rounding delays the end: twice the steps come to 1e-10."""
    draw = torch.Generator().manual_seed(1)
    root = torch.randn(8, 8, dtype=torch.float64, generator=draw)
    matrix, b = (
        root @ root.T + torch.eye(8, dtype=torch.float64),
        torch.randn(8, dtype=torch.float64, generator=draw),
    )
    x, residual = conjugate_gradient(lambda v: matrix @ v, b, steps=16)
    assert residual <= 1e-10
    condition = float(torch.linalg.cond(matrix))
    size = b.norm().item()
    assert_same(
        matrix @ x, b, terms=8 * 16, condition=condition, also=1e-10, size=size, dtype=b.dtype
    )
    two = torch.diag(torch.tensor([1.0, 1.0, 1.0, 3.0, 3.0], dtype=torch.float64))
    x, residual = conjugate_gradient(lambda v: two @ v, b[:5], steps=2)
    assert_same(two @ x, b[:5], terms=5 * 2, condition=3, size=size, dtype=b.dtype)
    assert residual <= 3 * 2 * unit(5 * 2, b.dtype)
    nothing, residual = conjugate_gradient(
        lambda v: matrix @ v, torch.zeros(8, dtype=torch.float64)
    )
    assert not nothing.any()
    assert residual == 0.0


def test_the_fisher_matrix_of_a_softmax():
    """diag(p) - p pᵀ, and the damping on its diagonal."""
    bandit = Bandit()
    product = fisher_product(bandit.divergences, [bandit.logits], damping=0.25)
    found = torch.stack([product(row) for row in torch.eye(3, dtype=torch.float64)])
    p = REF.exp()
    expected = torch.diag(p) - torch.outer(p, p) + 0.25 * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_step_is_the_natural_gradient_of_the_right_length():
    """√(2δ / xᵀFx) x with x = (F + damping)⁻¹ g, by a solver of another kind."""
    bandit, delta, damping = Bandit(), 1e-3, 0.1
    p = REF.exp()
    matrix = torch.diag(p) - torch.outer(p, p) + damping * torch.eye(3, dtype=torch.float64)
    x = torch.linalg.solve(
        matrix, p * bandit.advantages
    )  # dE[ratio A]/dlogits at π_old: p (A - E A), and E A = 0
    expected = REF + (2 * delta / x.dot(matrix @ x)).sqrt() * x
    found = trust_region_step(
        [bandit.logits], bandit.gains, bandit.divergences, delta=delta, damping=damping
    )
    assert found.accepted
    assert found.scale == 1.0
    torch.testing.assert_close(bandit.logits.detach(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.3, 3.0])
def test_an_accepted_step_stays_in_the_region_and_is_better(delta: float):
    """Also where the quadratic model is far off and the step has to be halved."""
    bandit = Bandit(rewards=f64([5.0, 0.0, -3.0]))
    found = trust_region_step(
        [bandit.logits], bandit.gains, bandit.divergences, delta=delta, damping=1e-3
    )
    assert found.accepted
    assert bandit.divergence().item() == pytest.approx(found.kl)
    assert found.kl <= 1.5 * delta
    assert bandit.surrogate().item() > 0


def test_many_steps_find_the_best_arm():
    """π(best) → 1."""
    logits = REF
    for _ in range(60):
        bandit = Bandit(logits)
        trust_region_step(
            [bandit.logits], bandit.gains, bandit.divergences, delta=0.05, damping=1e-3
        )
        logits = bandit.logits.detach()
    assert logits.softmax(0)[0].item() > 0.99


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [math.nan, 0.0, 0.0]])
def test_nothing_to_gain_leaves_the_weights_bit_equal(rewards: list):
    """Equal rewards have no gradient; and a gradient that is not a number is not followed."""
    bandit = Bandit(rewards=f64(rewards))
    bandit.advantages = bandit.advantages * 0 if rewards[0] == 1.0 else bandit.advantages
    before = bandit.logits.detach().clone()
    assert not trust_region_step([bandit.logits], bandit.gains, bandit.divergences).accepted
    assert torch.equal(bandit.logits.detach(), before)


def test_a_step_that_never_fits_is_taken_back():
    """A surrogate that falls wherever one goes: after ten halvings the weights are as they were."""
    bandit = Bandit()
    first = bandit.surrogate().item()

    def surrogate() -> list[torch.Tensor]:
        value = bandit.surrogate()
        return [value if value.item() == first else value * 0 - 1]

    before = bandit.logits.detach().clone()
    found = trust_region_step([bandit.logits], surrogate, bandit.divergences)
    assert (found.accepted, found.tries) == (False, 11)
    assert torch.equal(bandit.logits.detach(), before)


def test_dual_ascent_finds_the_multiplier_of_the_constraint():
    """Gradient steps on -surrogate + λ KL with λ by ascent end at KL = δ, where the constraint holds with equality."""
    bandit, multiplier, delta = Bandit(), 1.0, 0.02
    optimiser = torch.optim.SGD([bandit.logits], lr=1.0)
    for _ in range(300):
        optimiser.zero_grad()
        kl = bandit.divergence()
        (-bandit.surrogate() + multiplier * kl).backward()
        optimiser.step()
        multiplier = dual_ascent(multiplier, kl.item(), delta=delta, rate=2.0)
    assert bandit.divergence().item() == pytest.approx(delta, abs=1e-4)
    assert multiplier > 0


def test_the_multiplier_has_bounds():
    """It never rewards divergence, and one bad batch does not make it endless."""
    assert dual_ascent(0.1, 0.0, delta=1.0, rate=1.0) == 0.0
    assert dual_ascent(0.1, 1e9, delta=1.0, rate=1.0) == 100.0
    with pytest.raises(ValueError, match="kl nan"):
        dual_ascent(0.1, math.nan, delta=1.0, rate=1.0)
    bandit = Bandit()
    with pytest.raises(ValueError, match="delta is 0"):
        trust_region_step([bandit.logits], bandit.gains, bandit.divergences, delta=0.0)
