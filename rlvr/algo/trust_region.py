r"""Steps that keep the policy near the one that sampled, for study.  Axes: B rows, T tokens, V vocabulary, n weights.

Trust region policy optimisation (TRPO, arXiv:1502.05477, eq. 14) asks for

    max E[ratio · A]   subject to   mean KL(π_old ‖ π) ≤ δ

Near π_old the surrogate is gᵀx and the divergence ½ xᵀFx, so the step is √(2δ / gᵀF⁻¹g) F⁻¹g: F⁻¹g by conjugate
gradients on products F v (app. C), its length by a line search on the true surrogate and divergence.

One step costs about 25 gradients with 10 iterations, and holds the graph of the divergence's gradient.  Products need
second derivatives, which fused attention does not have, and float32: bfloat16 breaks the conjugate gradients.

The Lagrangian form takes λ (KL - δ) into the loss instead, and lets λ rise while the divergence is above δ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["TrustRegionStep", "conjugate_gradient", "dual_ascent", "fisher_product", "full_kl", "trust_region_step"]


def full_kl(logprobs: Float[Tensor, "*shape V"], other: Float[Tensor, "*shape V"]) -> Float[Tensor, "*shape"]:
    """KL(π ‖ other) = Σ_v π_v (log π_v - log other_v), over the whole vocabulary: what k1, k2 and k3 estimate.

    A token of probability 0 under π adds 0.

    Args:
        logprobs: log π of every token of the vocabulary; they sum to 1.
        other: those of the other policy.
    """
    p = logprobs.exp()
    return torch.where(p > 0, p * (logprobs - other), 0.0).sum(dim=-1)


def conjugate_gradient(
    product: Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]],
    b: Float[Tensor, " n"],
    *,
    steps: int = 10,
    tolerance: float = 1e-10,
) -> tuple[Float[Tensor, " n"], float]:
    """x with A x ≈ b for a symmetric positive A, of which only products are known; and ‖b - A x‖ / ‖b‖.

    Hestenes and Stiefel 1952.  In exact arithmetic n steps give the solution.

    Args:
        product: v ↦ A v.
        b: the right side.
        steps: most iterations.
        tolerance: stop where the residual's share of b is below this.
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction, size = residual.clone(), residual.dot(residual)
    whole = float(size) ** 0.5
    for _ in range(steps):
        if float(size) ** 0.5 <= tolerance * whole:
            break
        moved = product(direction)
        bend = direction.dot(moved)
        if not float(bend) > 0:  # rounding, or A is not positive: the last x is the best one
            break
        length = size / bend
        x = x + length * direction
        residual = residual - length * moved
        new = residual.dot(residual)
        direction, size = residual + new / size * direction, new
    return x, float(size) ** 0.5 / whole if whole else 0.0


def fisher_product(
    divergence: Tensor, parameters: Sequence[Tensor], *, damping: float = 0.1
) -> Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]]:
    """v ↦ (F + damping · 1) v, where F is the matrix of second derivatives of the divergence at π = π_old.

    There it is the Fisher information matrix, since KL and its gradient are 0 (arXiv:1502.05477, app. C.1).  Each
    product is one backward pass through the gradient's graph, which is kept.

    Args:
        divergence: mean KL(π_old ‖ π) with π_old constant, at π = π_old, carrying its graph.
        parameters: the weights.
        damping: added to the diagonal, 0 or above; it makes the system well conditioned and the step shorter.
    """
    slopes = _flat(torch.autograd.grad(divergence, parameters, create_graph=True))

    def product(v: Tensor) -> Tensor:
        second = torch.autograd.grad(slopes.dot(v.detach()), parameters, retain_graph=True)
        return _flat(second) + damping * v

    return product


@dataclass(frozen=True, slots=True)
class TrustRegionStep:
    """What a step did.

    Attributes:
        accepted: whether the weights were changed.
        kl: mean divergence after the step; 0 if there was none.
        gain: rise of the surrogate; 0 if there was no step.
        scale: share of the full step that was taken: 1, ½, ¼ …
        residual: of the conjugate gradients, relative.
        tries: surrogates and divergences that were computed in the line search.
    """

    accepted: bool
    kl: float
    gain: float
    scale: float
    residual: float
    tries: int


def trust_region_step(
    parameters: Sequence[Tensor],
    surrogate: Callable[[], Tensor],
    divergence: Callable[[], Tensor],
    *,
    delta: float = 0.01,
    damping: float = 0.1,
    cg_steps: int = 10,
    backtracks: int = 10,
    slack: float = 1.5,
) -> TrustRegionStep:
    """One step of TRPO, in place; the weights are left to the last bit as they were if no step is accepted.

    Args:
        parameters: the weights.
        surrogate: E[ratio · A] at the weights as they are, to be maximised.
        divergence: mean KL(π_old ‖ π) at the weights as they are, where π_old is the policy of the first call.
        delta: δ, above 0.
        damping: see `fisher_product`.
        cg_steps: iterations of the conjugate gradients.
        backtracks: most halvings of the step.
        slack: the divergence may reach `slack` · δ, as it is not quadratic.

    Raises:
        ValueError: δ is not above 0, or slack is below 1.
    """
    if not delta > 0 or not slack >= 1:
        raise ValueError(f"delta is {delta} and slack {slack}; delta must be above 0, and slack at least 1")
    before = surrogate()
    g = _flat(torch.autograd.grad(before, parameters, retain_graph=True)).detach()
    if not g.isfinite().all() or not g.any():
        return TrustRegionStep(False, 0.0, 0.0, 0.0, 0.0, 0)
    product = fisher_product(divergence(), parameters, damping=damping)
    x, residual = conjugate_gradient(product, g, steps=cg_steps)
    whole = float(x.dot(product(x)))
    if not whole > 0:
        return TrustRegionStep(False, 0.0, 0.0, 0.0, residual, 0)
    step, start = (2 * delta / whole) ** 0.5 * x, [parameter.detach().clone() for parameter in parameters]
    for tried in range(backtracks + 1):
        scale = 0.5**tried
        _move(parameters, start, scale * step)
        with torch.no_grad():
            kl, gain = float(divergence()), float(surrogate() - before)
        if kl <= slack * delta and gain > 0:  # false for NaN
            return TrustRegionStep(True, kl, gain, scale, residual, tried + 1)
    with torch.no_grad():
        for parameter, value in zip(parameters, start, strict=True):
            parameter.copy_(value)
    return TrustRegionStep(False, 0.0, 0.0, 0.0, residual, backtracks + 1)


def dual_ascent(multiplier: float, kl: float, *, delta: float, rate: float, most: float = 100.0) -> float:
    """λ ← min(most, max(0, λ + rate · (KL - δ))): the multiplier of the loss -surrogate + λ (KL - δ).

    Gradient ascent on the dual of the constraint; λ rises while the divergence is above δ and falls to 0 below it.

    Args:
        multiplier: λ now, 0 or above.
        kl: the divergence that was measured.
        delta: δ, above 0.
        rate: step of the ascent, above 0.
        most: bound of λ, so that one bad batch does not stop learning.

    Raises:
        ValueError: a number is out of its range.
    """
    if not (multiplier >= 0 and delta > 0 and rate > 0 and kl == kl):
        raise ValueError(
            f"multiplier is {multiplier}, kl {kl}, delta {delta}, rate {rate}; delta and rate must be above 0, the "
            "multiplier at least 0, and kl a number"
        )
    return min(most, max(0.0, multiplier + rate * (kl - delta)))


def _flat(tensors: Sequence[Tensor]) -> Float[Tensor, " n"]:
    return torch.cat([one.reshape(-1) for one in tensors])


@torch.no_grad()  # type: ignore[untyped-decorator]
def _move(parameters: Sequence[Tensor], start: Sequence[Tensor], step: Tensor) -> None:
    at = 0
    for parameter, value in zip(parameters, start, strict=True):
        parameter.copy_(value + step[at : at + value.numel()].view_as(value))
        at += value.numel()
