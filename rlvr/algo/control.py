"""Coefficients that adapt from step to step: pure functions of the coefficient
so far and a measurement."""

from __future__ import annotations

__all__ = ["BOUNDS", "next_beta", "next_entropy_coefficient", "ziegler_beta"]

BOUNDS = (1e-6, 1e3)
"""β stays in them: the papers' rules have no bounds, never come to 0, and grow without end if the
target cannot be met."""


def next_beta(beta: float, kl: float, *, target: float) -> float:
    """β / 2 after a step with KL below target / 1.5, 2 β above 1.5 target, else β
    (arXiv:1707.06347, sec. 4).

    Args:
        beta: β of the step.
        kl: mean KL of the step, in nats per token.
        target: the KL that is wanted; 0.003 to 0.03 in the paper.

    Raises:
        ValueError: target ≤ 0, or kl is NaN.
    """
    _require_measured(kl, target)
    return _clamp(beta / 2 if kl < target / 1.5 else beta * 2 if kl > target * 1.5 else beta)


def ziegler_beta(
    beta: float, kl: float, *, target: float, samples: int, horizon: int = 10_000
) -> float:
    """β (1 + e n / horizon), e = clip(KL / target - 1, ± 0.2)  (arXiv:1909.08593, sec. 2.2).

    Args:
        beta: β of the step.
        kl: mean KL of a completion, in nats: the sum over its tokens.
        target: the KL that is wanted; 6 in the paper.
        samples: n, completions of the step.
        horizon: completions over which β changes by at most a fifth; 10,000 in the authors' code.

    Raises:
        ValueError: target ≤ 0, or kl is NaN.
    """
    _require_measured(kl, target)
    error = min(max(kl / target - 1, -0.2), 0.2)
    # With more samples than 5 horizons the factor could
    # be negative; the clamp brings β back to its least.
    return _clamp(beta * (1 + error * samples / horizon))


def next_entropy_coefficient(
    coefficient: float,
    entropy: float,
    *,
    target: float,
    step: float,
    least: float = 0.0,
    most: float = 1.0,
) -> float:
    """c + step while the entropy is at or below the target, else c - step (Skywork-OR1,
    arXiv:2505.22312, sec. 4).

    The bonus itself is used only after a step whose entropy was at or below the target.

    Args:
        coefficient: c of the update.
        entropy: mean entropy of the update's tokens, in nats.
        target: the entropy that is wanted.
        step: the change of c.
        least, most: c stays between them.
    """
    moved = coefficient + step if entropy <= target else coefficient - step
    return min(max(moved, least), most)


def _clamp(beta: float) -> float:
    return min(max(beta, BOUNDS[0]), BOUNDS[1])


def _require_measured(kl: float, target: float) -> None:
    if not target > 0:
        raise ValueError(
            f"target is {target}; it must be above 0, 0.003 to 0.03 per token in PPO's paper"
        )
    # Only NaN differs from itself; no comparison with it is true, and β would stay as it is.
    if kl != kl:
        raise ValueError("kl is NaN; leave such a step out of beta's adaptation")
