"""Policy losses per token.  Axes: B rows of a micro-batch, T tokens; r =
exp(logprobs - behaviour_logprobs).

Each function returns *losses* (to be minimised) [B, T] and statistics without gradient;
`rlvr.algo.aggregation` turns the losses into one number, with the right denominator.  A token
outside of `completion_mask` has loss 0 and gradient 0, even if its inputs are inf or NaN.  The
arguments that most functions share:

    logprobs             under the policy, carrying its gradient
    behaviour_logprobs   under the policy that sampled; no gradient
    advantages           one per token [B, T], or one per row [B, 1]; no gradient
    completion_mask      True for trained tokens
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.ratios import (
    RatioStats,
    log_ratio,
    ratio_stats,
    sequence_mean_log_ratio,
    sequence_ratio,
)

__all__ = [
    "Losses",
    "cispo",
    "clipped",
    "gspo",
    "ppo_kl",
    "reinforce",
    "sapo",
    "sequence_clipped",
    "surrogate",
]


class Losses(NamedTuple):
    """An objective's losses.

    Attributes:
        losses: per token, 0 where masked.
        stats: of the ratios in them.
    """

    losses: Float[Tensor, "B T"]
    stats: RatioStats


def reinforce(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
) -> Losses:
    """-A log π: the policy gradient itself (Williams 1992).

    Correct only for the weights that sampled: a second step on the same rollouts needs a ratio.

    Args:
        logprobs, advantages, completion_mask: as in the module's docstring.
        behaviour_logprobs: only for the statistics.
    """
    A = _advantages(advantages, completion_mask)
    # Masked before the product: 0 · -inf at a masked token would be NaN.
    losses = -A * zero_masked(logprobs, completion_mask)
    return Losses(
        losses,
        ratio_stats(log_ratio(logprobs, behaviour_logprobs, completion_mask), completion_mask),
    )


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

    low = high is PPO (arXiv:1707.06347, eq. 7), high > low is DAPO's clip-higher (arXiv:2503.14476,
    eq. 10).  A clipped token has gradient 0.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        low: in [0, 1].
        high: 0 or more.
        dual: c, above 1 + high: for A < 0 the loss is at most -c A, however great the ratio
            (arXiv:1912.09729; verl has c = 3).  None for no such bound.

    Raises:
        ValueError: a bound is out of its range.
    """
    _require_bounds(low, high)
    if dual is not None and not dual > 1 + high:
        raise ValueError(
            f"dual is {dual}; it must be above 1 + high = {1 + high:g}, or it would undo the upper "
            f"bound"
        )
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    r = log_r.exp()
    # -min of two is the maximum of the negatives.
    losses = torch.maximum(-r * A, -r.clamp(1 - low, 1 + high) * A)
    over = None
    if dual is not None:
        over = (A < 0) & (r > dual)
        losses = torch.where(over, -dual * A, losses)
    # A bound has an effect only on the side to which the advantage moves the ratio.
    stats = ratio_stats(
        log_r,
        completion_mask,
        low=(A < 0) & (r < 1 - low),
        high=(A > 0) & (r > 1 + high),
        dual=over,
    )
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

    GSPO (arXiv:2507.18071, eq. 5-7; low 3e-4, high 4e-4 in 5.1), to be aggregated by
    `sequence_mean`.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        low: in [0, 1].
        high: 0 or more.
        per_token: GSPO-token (eq. 13-14): the same value s, but a token's gradient is s A_t ∇log
            π_t.  It is the same gradient if a row has one advantage (sec. 4.3), and another if
            advantages differ within a row.

    Raises:
        ValueError: a bound is out of its range.
    """
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    s = sequence_mean_log_ratio(log_r, completion_mask).exp()
    if per_token:
        masked_logprobs = zero_masked(logprobs, completion_mask)
        # The second factor is 1, with the token's own gradient.
        s = s.detach() * (masked_logprobs - masked_logprobs.detach()).exp()
    return _clipped_per_sequence(
        log_r, s.expand_as(log_r), advantages, completion_mask, low=low, high=high
    )


def sequence_clipped(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    low: float,
    high: float,
) -> Losses:
    """-min(s A, clip(s, 1 - low, 1 + high) A), s = Π_t r_t: PPO's clip with the whole completion as
    one action.

    s is the probability of the completion over that under the policy that sampled: the unbiased
    weight (PPO, arXiv:1707.06347, eq. 7, with completions as actions).  Its log is a sum where
    GSPO's is a mean, so long completions are soon at the bounds: for study beside `gspo`.
    Aggregate by `sequence_mean`; each token has its row's loss.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        low: in [0, 1].
        high: 0 or more.

    Raises:
        ValueError: a bound is out of its range.
    """
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    return _clipped_per_sequence(
        log_r, sequence_ratio(log_r), advantages, completion_mask, low=low, high=high
    )


def _clipped_per_sequence(
    log_r: Tensor,
    s: Tensor,
    advantages: Tensor,
    completion_mask: Tensor,
    *,
    low: float,
    high: float,
) -> Losses:
    _require_bounds(low, high)
    A = _advantages(advantages, completion_mask)
    losses = torch.maximum(-s * A, -s.clamp(1 - low, 1 + high) * A)
    stats = ratio_stats(
        log_r, completion_mask, used=s, low=(A < 0) & (s < 1 - low), high=(A > 0) & (s > 1 + high)
    )
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
    """-sg(clip(r, 1 - low, 1 + high)) A log π: the weight is clipped, and clipped tokens keep their
    gradient.

    CISPO (arXiv:2506.13585, eq. 4-5).

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        high: 0 or more; the paper tunes it and does not print it.
        low: in [0, 1]; 1 is no lower bound, as in the paper.

    Raises:
        ValueError: a bound is out of its range.
    """
    _require_bounds(low, high)
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    r = log_r.detach().exp()
    # The gradient is in the log-probability alone; the weight before it has none.
    losses = -r.clamp(1 - low, 1 + high) * A * zero_masked(logprobs, completion_mask)
    return Losses(losses, ratio_stats(log_r, completion_mask, low=r < 1 - low, high=r > 1 + high))


def surrogate(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
) -> Losses:
    """-r A: what TRPO minimises within its trust region (arXiv:1502.05477, eq. 14); nothing else
    bounds the ratio.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
    """
    return ppo_kl(logprobs, behaviour_logprobs, advantages, completion_mask, beta=0.0)


def ppo_kl(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    beta: float,
) -> Losses:
    """-r A + β KL(behaviour ‖ policy): PPO with a penalty instead of a clip (arXiv:1707.06347, eq.
    8).

    The KL is estimated per token as r - 1 - log r.  As the behaviour policy sampled the tokens, the
    mean of the estimate is the KL, and the mean of its gradient the KL's gradient.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        beta: β, 0 or more; `control.next_beta` adapts it after each step.

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


def sapo(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    positive: float = 1.0,
    negative: float = 1.05,
) -> Losses:
    """-(4 / τ) σ(τ (r - 1)) A: a smooth gate in place of the clip, whose gradient fades as r leaves
    1.

    SAPO (arXiv:2511.20347, eq. 5-6).  At r = 1 the gradient is that of -r A; the value there is -2
    A / τ.

    Args:
        logprobs, behaviour_logprobs, advantages, completion_mask: as in the module's docstring.
        positive: τ where A > 0.
        negative: τ elsewhere; greater, so that it fades faster there.

    Raises:
        ValueError: a τ is not above 0.
    """
    if not (positive > 0 and negative > 0):
        raise ValueError(
            f"the temperatures are {positive} and {negative}; both must be above 0, 1 and 1.05 in "
            f"the paper"
        )
    A = _advantages(advantages, completion_mask)
    log_r = log_ratio(logprobs, behaviour_logprobs, completion_mask)
    tau = torch.full_like(log_r, negative).masked_fill(A > 0, positive)  # not `where`: float32
    # The sigmoid's slope is τ / 4 at r = 1, which 4 / τ makes 1.
    losses = -(4 / tau) * torch.sigmoid(tau * (log_r.exp() - 1)) * A
    return Losses(zero_masked(losses, completion_mask), ratio_stats(log_r, completion_mask))


def _advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, advantages.detach(), 0.0)  # one per row becomes one per token here


def _require_bounds(low: float, high: float) -> None:
    if not (0 <= low <= 1 and 0 <= high < float("inf")):
        raise ValueError(
            f"low is {low} and high is {high}; the ratio is kept in [1 - low, 1 + high], so low "
            "lies in [0, 1] and high is 0 or more"
        )
