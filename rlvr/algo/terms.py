"""Value loss, entropy bonus and the choice of tokens by entropy.  Axes: B rows, T tokens.

Masked tokens have loss 0 and gradient 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked

__all__ = ["ValueLosses", "entropy_bonus", "explained_variance", "top_entropy", "value_loss"]


class ValueLosses(NamedTuple):
    """The critic's losses per token.

    Attributes:
        losses: 0 where masked.
        clipped: number of tokens whose loss was clipped.
    """

    losses: Float[Tensor, "B T"]
    clipped: Float[Tensor, ""]


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    clip: float | None = None,
) -> ValueLosses:
    """½ max((V - R)², (clip(V, V_old ± clip) - R)²): the critic's squared error, clipped like PPO's
    policy loss.

    As in OpenAI's baselines, studied in arXiv:2005.12729; PPO's paper has the plain square.

    Args:
        values: V, carrying the critic's gradient.
        old_values: V_old, before the update.
        returns: R.
        completion_mask: True for trained tokens.
        clip: None for the plain square.

    Raises:
        ValueError: clip ≤ 0.
    """
    if clip is not None and not clip > 0:
        raise ValueError(f"clip is {clip}; it must be above 0, or None for the plain squared error")
    # Masked before the square: its gradient is 2 (V - R), and 0 · inf would be NaN.
    values = zero_masked(values, completion_mask)
    old, target = (
        zero_masked(old_values.detach(), completion_mask),
        zero_masked(returns.detach(), completion_mask),
    )
    plain = (values - target).square()
    if clip is None:
        return ValueLosses(plain / 2, plain.new_zeros(()))
    near = (torch.minimum(torch.maximum(values, old - clip), old + clip) - target).square()
    return ValueLosses(torch.maximum(plain, near) / 2, (near > plain).sum().to(plain.dtype))


def entropy_bonus(
    entropies: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, coefficient: float
) -> Float[Tensor, "B T"]:
    """-c H: a loss that falls as the policy's entropy at each token rises (arXiv:1602.01783, sec.
    4).

    Args:
        entropies: H in nats, carrying the gradient.
        completion_mask: True for trained tokens.
        coefficient: c.
    """
    return -coefficient * zero_masked(entropies, completion_mask)


def top_entropy(
    entropies: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, share: float
) -> Bool[Tensor, "B T"]:
    """True for trained tokens whose entropy is among the highest: at least its (1 - share)
    quantile.

    "Beyond the 80/20 Rule" (arXiv:2506.01939, eq. 5; share 0.2): only these tokens are in the
    policy's loss, and all trained tokens stay in the denominators.  The quantile is over the whole
    batch, before it is split.

    Args:
        entropies: of the policy before the step, in nats; no gradient flows.
        completion_mask: True for trained tokens.
        share: ρ, in (0, 1].

    Raises:
        ValueError: `share` is outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it must lie in (0, 1], 0.2 in the paper")
    if not completion_mask.any():
        return completion_mask
    # Not torch.quantile, which takes at most 2^24 entries.
    ordered = entropies.detach()[completion_mask].double().sort().values
    # The quantile between two entries, in proportion, as torch.quantile has it.
    place = (1 - share) * (len(ordered) - 1)
    low = int(place)
    below, above = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    return completion_mask & (entropies.detach() >= below + (place - low) * (above - below))


def explained_variance(
    values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
) -> float:
    """1 - Var(R - V) / Var(R) over trained tokens: 1 for a perfect critic, 0 for a constant; NaN if
    all R are equal.

    Args:
        values: V.
        returns: R.
        completion_mask: True for trained tokens.
    """
    # In float64, as the variance of near equal returns is a small difference.
    R, V = returns[completion_mask].double(), values[completion_mask].double()
    if not len(R) or R.min() == R.max():
        return float("nan")
    return float(1 - (R - V).var(correction=0) / R.var(correction=0))
