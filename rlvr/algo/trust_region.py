r"""Steps that keep the policy near the one that sampled, for study.  Axes: B rows, T tokens,
V vocabulary, n weights.

Trust region policy optimisation (TRPO, arXiv:1502.05477, eq. 14) asks for

    max E[ratio · A]   subject to   mean KL(π_old ‖ π) ≤ δ

Near π_old the surrogate is gᵀx and the divergence ½ xᵀFx, so the step is √(2δ / gᵀF⁻¹g) F⁻¹g: F⁻¹g
by conjugate gradients on products F v (app. C), its length by a line search on the true surrogate
and divergence.

Surrogate and divergence come in parts, the shares of micro-batches, whose graphs are made one after
the other.  A product is a forward pass, a backward pass and one through both, for each part; so a
step of 10 iterations costs about 25 gradients.  Products need second derivatives, which fused
attention does not have, and float32: bfloat16 breaks the conjugate gradients.

The Lagrangian form takes λ (KL - δ) into the loss instead, and lets λ rise while the divergence is
above δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "Parts",
    "Total",
    "TrustRegionStep",
    "conjugate_gradient",
    "dual_ascent",
    "fisher_product",
    "full_kl",
    "trust_region_step",
]

Parts = Callable[[], Iterable[Tensor]]
"""Numbers at the weights as they are, whose sum is meant; each with its
graph where gradients are on."""
Total = Callable[[Tensor], Tensor]
"""Adds up what several processes have computed."""


def full_kl(
    logprobs: Float[Tensor, "*shape V"], other: Float[Tensor, "*shape V"]
) -> Float[Tensor, "*shape"]:
    """KL(π ‖ other) = Σ_v π_v (log π_v - log other_v), over the whole vocabulary: what k1, k2 and
    k3 estimate.

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
    """x with A x ≈ b for a symmetric positive A, of which only products are known; and ‖b - A x‖ /
    ‖b‖.

    Hestenes and Stiefel 1952.  In exact arithmetic n steps give the solution.

    Args:
        product: v ↦ A v.
        b: the right side.
        steps: most iterations.
        tolerance: stop where the residual's share of b is below this.
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction, size = residual.clone(), residual.dot(residual)
    initial_norm = float(size) ** 0.5
    for _ in range(steps):
        # `size` is the square of the residual's norm.
        if float(size) ** 0.5 <= tolerance * initial_norm:
            break
        moved = product(direction)
        bend = direction.dot(moved)
        if not float(bend) > 0:  # rounding, or A is not positive: the last x is the best one
            break
        # The minimum along the direction.
        length = size / bend
        x = x + length * direction
        residual = residual - length * moved
        new = residual.dot(residual)
        # The next direction is conjugate to all before it: their product through A is 0.
        direction, size = residual + new / size * direction, new
    return x, float(size) ** 0.5 / initial_norm if initial_norm else 0.0


def fisher_product(
    divergence: Parts,
    parameters: Sequence[Tensor],
    *,
    damping: float = 0.1,
    sum_over_ranks: Total = lambda values: values,
) -> Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]]:
    """v ↦ (F + damping · 1) v, where F is the matrix of second derivatives of the divergence at π =
    π_old.

    There it is the Fisher information matrix, since KL and its gradient are 0 (arXiv:1502.05477,
    app. C.1).

    Args:
        divergence: mean KL(π_old ‖ π) with π_old constant, at π = π_old.
        parameters: the weights.
        damping: added to the diagonal, 0 or above; it makes the system well conditioned and the
            step shorter.
        sum_over_ranks: of several processes with other parts.
    """

    def product(v: Tensor) -> Tensor:
        bent = torch.zeros_like(v)
        for part in divergence():
            # F v is the gradient of (∇KL · v): two backward passes and no matrix.
            slope = _gradient(part, parameters, create_graph=True).dot(v)
            bent = bent + _gradient(slope, parameters)
        # The damping is added once, after the ranks' sum, or it would grow with their number.
        return damping * v + sum_over_ranks(bent)

    return product


@dataclass(frozen=True, slots=True)
class TrustRegionStep:
    """What a step did.

    Attributes:
        accepted: whether the weights were changed.
        kl: mean divergence after the step; 0 if there was none.
        gain: rise of the surrogate; 0 if there was no step.
        surrogate: where it was last computed: at the new weights if accepted.
        scale: share of the full step that was taken: 1, ½, ¼ …; 0 if there was none.
        gradient_norm: of the surrogate's gradient.
        residual: of the conjugate gradients, relative.
        tries: surrogates and divergences that were computed in the line search.
    """

    accepted: bool
    kl: float
    gain: float
    surrogate: float
    scale: float
    gradient_norm: float
    residual: float
    tries: int


def trust_region_step(
    parameters: Sequence[Tensor],
    surrogate: Parts,
    divergence: Parts,
    *,
    delta: float = 0.01,
    damping: float = 0.1,
    cg_steps: int = 10,
    backtracks: int = 10,
    slack: float = 1.5,
    sum_over_ranks: Total = lambda values: values,
) -> TrustRegionStep:
    """One step of TRPO, in place; the weights are left to the last bit as they were if no step is
    accepted.

    Args:
        parameters: the weights.
        surrogate: E[ratio · A] at the weights as they are, to be maximised.
        divergence: mean KL(π_old ‖ π) at the weights as they are, where π_old is the policy of the
            first call.
        delta: δ, above 0.
        damping: see `fisher_product`.
        cg_steps: iterations of the conjugate gradients.
        backtracks: most halvings of the step.
        slack: the divergence may reach `slack` · δ, as it is not quadratic.
        sum_over_ranks: adds up what processes with the same weights and other parts have computed.

    Raises:
        ValueError: δ is not above 0, or slack is below 1.
    """
    if not delta > 0 or not slack >= 1:
        raise ValueError(
            f"delta is {delta} and slack {slack}; delta must be above 0, and slack at least 1"
        )
    before, g = 0.0, torch.cat([torch.zeros_like(p).reshape(-1) for p in parameters])
    for part in surrogate():
        before, g = before + part.item(), g + _gradient(part, parameters)
    g = sum_over_ranks(g)
    # In float64, since the line search compares it with sums that differ little.
    [before] = sum_over_ranks(torch.tensor([before], dtype=torch.float64)).tolist()
    norm = float(g.norm())
    # A gradient of 0 has no direction, and one that is not finite no use.
    if not 0 < norm < math.inf:
        return TrustRegionStep(False, 0.0, 0.0, before, 0.0, norm, 0.0, 0)
    product = fisher_product(divergence, parameters, damping=damping, sum_over_ranks=sum_over_ranks)
    x, residual = conjugate_gradient(product, g, steps=cg_steps)
    # From x itself, which after few iterations is not exactly F⁻¹g.
    curvature = float(x.dot(product(x)))
    if not curvature > 0:
        return TrustRegionStep(False, 0.0, 0.0, before, 0.0, norm, residual, 0)
    # ½ stepᵀ F step = δ.  The weights are kept as copies: adding and
    # subtracting a step would not give them back to the last bit.
    step, start = (
        (2 * delta / curvature) ** 0.5 * x,
        [parameter.detach().clone() for parameter in parameters],
    )
    for tried in range(backtracks + 1):
        scale = 0.5**tried
        # From the start each time, not from the last try, so that roundings do not add up.
        _move(parameters, start, scale * step)
        with torch.no_grad():
            sums = [sum(map(float, parts())) for parts in (divergence, surrogate)]
            kl, after = sum_over_ranks(torch.tensor(sums, dtype=torch.float64)).tolist()
        if kl <= slack * delta and after > before:  # false for NaN
            return TrustRegionStep(
                True, kl, after - before, after, scale, norm, residual, tried + 1
            )
    with torch.no_grad():
        for parameter, value in zip(parameters, start, strict=True):
            parameter.copy_(value)
    return TrustRegionStep(False, 0.0, 0.0, after, 0.0, norm, residual, backtracks + 1)


def dual_ascent(
    multiplier: float, kl: float, *, delta: float, rate: float, most: float = 100.0
) -> float:
    """λ ← min(most, max(0, λ + rate · (KL - δ))): the multiplier of the loss -surrogate + λ (KL -
    δ).

    Gradient ascent on the dual of the constraint; λ rises while the divergence is above δ and falls
    to 0 below it.

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
            f"multiplier is {multiplier}, kl {kl}, delta {delta}, rate {rate}; delta and rate must "
            "be above 0, the multiplier at least 0, and kl a number"
        )
    return min(most, max(0.0, multiplier + rate * (kl - delta)))


def _gradient(
    of: Tensor, parameters: Sequence[Tensor], *, create_graph: bool = False
) -> Float[Tensor, " n"]:
    gradients = torch.autograd.grad(
        of, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


@torch.no_grad()  # type: ignore[untyped-decorator]
def _move(parameters: Sequence[Tensor], start: Sequence[Tensor], step: Tensor) -> None:
    at = 0
    for parameter, value in zip(parameters, start, strict=True):
        parameter.copy_(value + step[at : at + value.numel()].view_as(value))
        at += value.numel()
