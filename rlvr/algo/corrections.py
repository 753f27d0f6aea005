"""When the engine that sampled computes other numbers than the trainer.  Axes: B rows, T tokens.

The same weights in another kernel or precision are another policy.  w = exp(logprobs - behaviour_logprobs), with
`logprobs` the trainer's under the weights *that sampled* and `behaviour_logprobs` the engine's, reweighs what was
sampled; the objective's own ratio then has the trainer's numbers on both sides.  Multiply the per-token losses by the
weights.  They carry no gradient, and are 0 where masked.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.ratios import LOG_RATIO, RatioStats, log_ratio, ratio_stats, sequence_mean_log_ratio

__all__ = ["CorrectionWeights", "Level", "masked", "truncated"]

Level = Literal["token", "sequence", "geometric"]
"""One weight per token; per row, the product over its trained tokens (unbiased, of high variance); or their geometric
mean, which does not grow with the length."""


class CorrectionWeights(NamedTuple):
    """Weights for the per-token losses, and how far apart the two engines were."""

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
    """min(w, cap): truncated importance sampling (Ionides 2008; TIS of Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training", cap 2).  `stats.high` counts tokens at the cap.

    Raises:
        ValueError: cap < 1, or no such level.
    """
    if not cap >= 1:
        raise ValueError(f"cap is {cap}; it must be at least 1, or equal engines would be corrected")
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
    """w inside [low, high], 0 outside: the tokens (or rows) on which the engines disagree teach nothing.

    IcePop (arXiv:2510.18855, 2.3.2) per token, with 0.5 and 5; masked importance sampling per sequence.  The
    denominator keeps what was dropped.  `stats.low` and `stats.high` count it.

    Raises:
        ValueError: bounds that do not hold 1, or no such level.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(
            f"low is {low} and high is {high}; they must hold 1 between them, or equal engines are dropped"
        )
    log_r, w = _weights(logprobs, behaviour_logprobs, completion_mask, level)
    below, above = w < low, w > high
    stats = ratio_stats(log_r, completion_mask, used=w, low=below, high=above)
    return CorrectionWeights(zero_masked(w, completion_mask & ~below & ~above), stats)


def _weights(logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, level: Level) -> tuple[Tensor, Tensor]:
    """The log ratio of each token, and w at the wanted level, one per token either way."""
    log_r = log_ratio(logprobs.detach(), behaviour_logprobs, mask)
    if level == "token":
        return log_r, log_r.exp()
    if level == "sequence":
        return log_r, log_r.sum(dim=1, keepdim=True).clamp(-LOG_RATIO, LOG_RATIO).exp().expand_as(log_r)
    if level == "geometric":
        return log_r, sequence_mean_log_ratio(log_r, mask).exp().expand_as(log_r)
    raise ValueError(f"level is {level!r}; it must be 'token', 'sequence' or 'geometric'")
