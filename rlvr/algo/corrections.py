"""Importance weights for an engine whose log-probabilities differ from the
trainer's.  Axes: B rows, T tokens.

The same weights in another kernel or precision are another policy.  Samples of the engine are
therefore weighted by w = exp(logprobs - behaviour_logprobs), with `logprobs` computed by the
trainer under the weights *that sampled*, and `behaviour_logprobs` by the engine.  Both sides of the
objective's own ratio then come from the trainer.  Multiply the losses per token by the weights.
They carry no gradient, and are 0 where masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.parts import Correction, Level
from rlvr.algo.ratios import (
    RatioStats,
    log_ratio,
    ratio_stats,
    sequence_mean_log_ratio,
    sequence_ratio,
)

__all__ = ["CorrectionWeights", "compose", "kept", "masked", "truncated"]


class CorrectionWeights(NamedTuple):
    """Weights for the losses per token.

    Attributes:
        weights: 0 where masked.
        stats: of the ratios between trainer and engine.
    """

    weights: Float[Tensor, "B T"]
    stats: RatioStats


def truncated(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    cap: float = 2.0,
    level: Level = "token",
) -> CorrectionWeights:
    """min(w, cap): truncated importance sampling (Ionides 2008; TIS of Yao et al. 2025, "Your
    Efficient RL Framework Secretly Brings You Off-Policy RL Training", cap 2).  `stats.high` counts
    tokens at the cap.

    Args:
        logprobs: of the trainer, under the weights that sampled.
        behaviour_logprobs: of the engine.
        completion_mask: True for trained tokens.
        cap: the greatest weight, at least 1.
        level: what has one weight: "token", "sequence" or "geometric".

    Raises:
        ValueError: `cap` is below 1, or there is no such level.
    """
    if not cap >= 1:
        raise ValueError(
            f"cap is {cap}; it must be at least 1, the weight where both engines agree"
        )
    log_r, w = _weights(logprobs, behaviour_logprobs, completion_mask, level)
    stats = ratio_stats(log_r, completion_mask, used=w, high=w > cap)
    return CorrectionWeights(zero_masked(w.clamp(max=cap), completion_mask), stats)


def masked(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    low: float,
    high: float,
    level: Level = "token",
) -> CorrectionWeights:
    """w inside [low, high], 0 outside: tokens (or rows) on which the engines disagree have no
    gradient.

    IcePop (arXiv:2510.18855, 2.3.2) per token, with 0.5 and 5; masked importance sampling per
    sequence.  Dropped tokens stay in the denominator; `stats.low` and `stats.high` count them.

    Args:
        logprobs: of the trainer, under the weights that sampled.
        behaviour_logprobs: of the engine.
        completion_mask: True for trained tokens.
        low: the least weight that is kept, in [0, 1].
        high: the greatest weight that is kept, at least 1.
        level: what has one weight: "token", "sequence" or "geometric".

    Raises:
        ValueError: 1 is not between the bounds, or there is no such level.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(
            f"low is {low} and high is {high}; 1 must lie between them, the weight where both "
            f"engines agree"
        )
    log_r, w = _weights(logprobs, behaviour_logprobs, completion_mask, level)
    below, above = w < low, w > high
    stats = ratio_stats(log_r, completion_mask, used=w, low=below, high=above)
    return CorrectionWeights(zero_masked(w, completion_mask & ~below & ~above), stats)


def kept(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    low: float,
    high: float,
    level: Level = "token",
) -> CorrectionWeights:
    """1 where w lies inside [low, high], 0 outside: rejection without a weight, as verl's
    `rollout_rs`.

    verl takes rejected tokens out of the loss's denominators; here they stay in, as those that
    `masked` drops.

    Args:
        logprobs, behaviour_logprobs, completion_mask, low, high, level: as in `masked`.

    Raises:
        ValueError: as in `masked`.
    """
    weights, stats = masked(
        logprobs, behaviour_logprobs, completion_mask, low=low, high=high, level=level
    )
    return CorrectionWeights((weights > 0).to(weights.dtype), stats)


def compose(
    rules: Sequence[Correction],
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T"], dict[str, CorrectionWeights]]:
    """The product of the weights of several corrections, and each by itself, by its text.

    Args:
        rules: at least one.
        logprobs, behaviour_logprobs, completion_mask: as in `truncated`.
    """
    policies = logprobs, behaviour_logprobs, completion_mask
    by_text = {}
    for rule in rules:
        if rule.kind == "truncate":
            weights = truncated(*policies, cap=rule.high, level=rule.level)
        else:
            function = masked if rule.kind == "band" else kept
            weights = function(*policies, low=rule.low, high=rule.high, level=rule.level)
        by_text[str(rule)] = weights
    # Begins with the mask, so that masked tokens have 0 and not 1.
    product = completion_mask.to(logprobs.dtype)
    for factor in by_text.values():
        product = product * factor.weights
    return product, by_text


def _weights(
    logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, level: Level
) -> tuple[Tensor, Tensor]:
    """The log ratio of each token, and w, repeated for each token of a row if it is the row's."""
    # Detached: the weight corrects for the sampler, and is no part of what is optimised.
    log_r = log_ratio(logprobs.detach(), behaviour_logprobs, mask)
    if level == "token":
        return log_r, log_r.exp()
    if level == "sequence":
        return log_r, sequence_ratio(log_r)
    if level == "geometric":
        return log_r, sequence_mean_log_ratio(log_r, mask).exp().expand_as(log_r)
    raise ValueError(f"level is {level!r}; it must be 'token', 'sequence' or 'geometric'")
