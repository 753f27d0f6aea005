"""What moves the policy.  Axes: B rows of a micro-batch, T tokens; r = exp(logprobs - behaviour_logprobs).

Each function gives per-token *losses* (to be minimised) [B, T] and gradient-free statistics; `rlvr.algo.aggregation`
makes one number of the losses and holds the denominator.  Behaviour logprobs and advantages carry no gradient.  A token
outside of `completion_mask` has loss 0 and gradient 0, even where its inputs are inf or NaN.  Advantages are one per
token, or one per row [B, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.ratios import RatioStats, log_ratio, ratio_stats, sequence_mean_log_ratio

__all__ = ["Losses", "a2c", "cispo", "clipped", "gspo", "next_beta", "ppo_kl", "reinforce"]


class Losses(NamedTuple):
    """An objective's losses per token and what they were made of."""

    losses: Float[Tensor, "B T"]
    stats: RatioStats


def reinforce(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
) -> Losses:
    """-A log π: the policy gradient itself (Williams 1992).  Behaviour logprobs serve the statistics alone.

    Right only for the weights that sampled: a second step on the same rollouts needs a ratio.
    """
    A = _advantages(advantages, completion_mask)
    losses = -A * zero_masked(logprobs, completion_mask)
    return Losses(losses, ratio_stats(log_ratio(logprobs, behaviour_logprobs, completion_mask), completion_mask))


def a2c(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
) -> Losses:
    """-(R - V) log π: advantage actor-critic's policy term (arXiv:1602.01783, sec. 4).

    R from `returns.n_step_returns`.  V carries no gradient here: the critic learns from `terms.value_loss`.
    """
    return reinforce(logprobs, behaviour_logprobs, returns - values, completion_mask)


def clipped(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    low: float,
    high: float,
    dual: float | None = None,
) -> Losses:
    """-min(r A, clip(r, 1 - low, 1 + high) A): PPO's clip, decoupled clip, dual clip.

    low = high is PPO (arXiv:1707.06347, eq. 7), high > low is DAPO's clip-higher (arXiv:2503.14476, eq. 10).
    `dual` = c bounds the loss of a bad token whose ratio has run away: for A < 0 it is at most -c A
    (arXiv:1912.09729; verl takes c = 3).  A clipped token has gradient 0.

    Raises:
        ValueError: bounds that do not hold 1, or dual ≤ 1 + high.
    """
    _require_bounds(low, high)
    if dual is not None and not dual > 1 + high:
        raise ValueError(f"dual is {dual}; it must be above 1 + high = {1 + high:g}, or it would undo the upper bound")
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    r = log_r.exp()
    losses = torch.maximum(-r * A, -r.clamp(1 - low, 1 + high) * A)
    over = None
    if dual is not None:
        over = (A < 0) & (r > dual)
        losses = torch.where(over, -dual * A, losses)
    # The bound takes hold only on the side to which the advantage pulls.
    stats = ratio_stats(log_r, completion_mask, low=(A < 0) & (r < 1 - low), high=(A > 0) & (r > 1 + high), dual=over)
    return Losses(zero_masked(losses, completion_mask), stats)


def gspo(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    low: float,
    high: float,
    per_token: bool = False,
) -> Losses:
    """-min(s A, clip(s, 1 - low, 1 + high) A), s = exp(mean_t log r_t), one ratio per completion.

    GSPO (arXiv:2507.18071, eq. 5-7; low 3e-4, high 4e-4 in 5.1), to be aggregated by `sequence_mean`.  With
    `per_token` it is GSPO-token (eq. 13-14): the same value s, but a token's gradient is its own, s A_t ∇log π_t.
    Where a row has one advantage, both have the same gradient (sec. 4.3); they differ where advantages do.

    Raises:
        ValueError: bounds that do not hold 1.
    """
    _require_bounds(low, high)
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    s = sequence_mean_log_ratio(log_r, completion_mask).exp()
    if per_token:
        own = zero_masked(logprobs, completion_mask)
        s = s.detach() * (own - own.detach()).exp()
    else:
        s = s.expand_as(log_r)
    losses = torch.maximum(-s * A, -s.clamp(1 - low, 1 + high) * A)
    stats = ratio_stats(log_r, completion_mask, used=s, low=(A < 0) & (s < 1 - low), high=(A > 0) & (s > 1 + high))
    return Losses(zero_masked(losses, completion_mask), stats)


def cispo(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    high: float,
    low: float = 1.0,
) -> Losses:
    """-sg(clip(r, 1 - low, 1 + high)) A log π: the weight is clipped, the token still learns.

    CISPO (arXiv:2506.13585, eq. 4-5).  The paper sets no lower bound, which is `low` = 1, tunes `high` and does not
    print it.

    Raises:
        ValueError: bounds that do not hold 1.
    """
    _require_bounds(low, high)
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    r = log_r.detach().exp()
    losses = -r.clamp(1 - low, 1 + high) * A * zero_masked(logprobs, completion_mask)
    return Losses(losses, ratio_stats(log_r, completion_mask, low=r < 1 - low, high=r > 1 + high))


def ppo_kl(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    beta: float,
) -> Losses:
    """-r A + β KL(behaviour ‖ policy): PPO with a penalty instead of a clip (arXiv:1707.06347, eq. 8).

    The KL is estimated per token as r - 1 - log r.  The tokens are the behaviour policy's, so its mean is the KL and
    its mean gradient the KL's.  `next_beta` adapts β after each step.

    Raises:
        ValueError: beta is negative or not finite.
    """
    if not 0 <= beta < float("inf"):
        raise ValueError(f"beta is {beta}; it must be 0 or a finite number above")
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    r = log_r.exp()
    losses = -r * A + beta * (r - 1 - log_r)
    return Losses(zero_masked(losses, completion_mask), ratio_stats(log_r, completion_mask))


def next_beta(beta: float, kl: float, *, target: float) -> float:
    """β / 2 after a step with KL below target / 1.5, 2 β above 1.5 target, else β (arXiv:1707.06347, sec. 4).

    Raises:
        ValueError: target ≤ 0, or kl is not a number.
    """
    if not target > 0:
        raise ValueError(f"target is {target}; it must be above 0, 0.003 to 0.03 in the paper")
    if kl != kl:
        raise ValueError("kl is NaN; a step that gave it has no place in beta")
    return beta / 2 if kl < target / 1.5 else beta * 2 if kl > target * 1.5 else beta


def _advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, advantages.detach(), 0.0)  # one per row becomes one per token here


def _require_bounds(low: float, high: float) -> None:
    if not (0 <= low <= 1 and 0 <= high < float("inf")):
        raise ValueError(
            f"low is {low} and high is {high}; the ratio is kept in [1 - low, 1 + high], so low lies in [0, 1] and "
            "high is 0 or more"
        )
