"""Ratios of two policies' probabilities of the same tokens.  Axes: B rows, T tokens.

log ratio = logprobs - behaviour_logprobs        ratio = exp(log ratio)
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "LOG_RATIO",
    "RatioStats",
    "log_ratio",
    "ratio_stats",
    "sequence_mean_log_ratio",
    "sequence_ratio",
]

LOG_RATIO = 20.0
"""Log ratios are clamped to ± this: exp(88.8) is inf in float32, and a clipped token would then
have the gradient 0 · inf = NaN.  Beyond it, e^20 = 4.9e8, no gradient flows."""


def log_ratio(
    logprobs: Float[Tensor, "B T"],
    other_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """logprobs - other_logprobs within ± LOG_RATIO; 0, also in the gradient, where the mask is
    False.

    Only `logprobs` gets a gradient.

    Args:
        logprobs: under the policy, carrying its gradient.
        other_logprobs: under the other policy.
        completion_mask: True for trained tokens.
    """
    return torch.where(completion_mask, logprobs - other_logprobs.detach(), 0.0).clamp(
        -LOG_RATIO, LOG_RATIO
    )


def sequence_mean_log_ratio(
    log_ratio: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B 1"]:
    """The log of the geometric mean of a row's ratios: the mean over its trained tokens; 0 for a
    row without any.

    Args:
        log_ratio: per token, 0 where masked.
        completion_mask: True for trained tokens.
    """
    return log_ratio.sum(dim=1, keepdim=True) / completion_mask.sum(dim=1, keepdim=True).clamp(
        min=1
    )


def sequence_ratio(log_ratio: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The product of a row's ratios, for each of its tokens: that of the whole completion's
    probabilities.

    Args:
        log_ratio: per token, 0 where masked.
    """
    # Clamped again: a sum of clamped log ratios can be far beyond.
    total = log_ratio.sum(dim=1, keepdim=True).clamp(-LOG_RATIO, LOG_RATIO)
    return total.exp().expand_as(log_ratio)


@dataclass(frozen=True, slots=True)
class RatioStats:
    """Statistics of ratios over trained tokens, without gradient.  `a + b` are those of
    two micro-batches together.

    Attributes:
        tokens: number of trained tokens.
        ratio_sum: sum of the ratios in the loss or the weight.
        ratio_max: the greatest of them; 0 without tokens.
        kl_sum: sum of ratio - 1 - log ratio, the estimate k3 of KL(behaviour policy ‖ policy),
            never negative (Schulman 2020, "Approximating KL divergence").
        low: number of tokens whose ratio was clipped (truncated, dropped) at the lower bound.
        high: the same at the upper bound.
        dual: number of tokens at the bound of the dual clip.
    """

    tokens: Tensor
    ratio_sum: Tensor
    ratio_max: Tensor
    kl_sum: Tensor
    low: Tensor
    high: Tensor
    dual: Tensor

    def __add__(self, other: RatioStats) -> RatioStats:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        # Everything adds up but the maximum.
        return RatioStats(**(sums | {"ratio_max": torch.maximum(self.ratio_max, other.ratio_max)}))

    def none(self) -> RatioStats:
        """Those of no tokens."""
        return RatioStats(**{f.name: torch.zeros_like(getattr(self, f.name)) for f in fields(self)})

    def means(self) -> dict[str, float]:
        """Means per token, for the log; all 0 without tokens.  Waits for the device."""
        n = max(float(self.tokens), 1.0)
        return {
            "ratio_mean": float(self.ratio_sum) / n,
            "ratio_max": float(self.ratio_max),
            "kl": float(self.kl_sum) / n,
            "clipped_low": float(self.low) / n,
            "clipped_high": float(self.high) / n,
            "clipped_dual": float(self.dual) / n,
        }


def ratio_stats(
    log_ratio: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    used: Float[Tensor, "B T"] | None = None,
    low: Bool[Tensor, "B T"] | None = None,
    high: Bool[Tensor, "B T"] | None = None,
    dual: Bool[Tensor, "B T"] | None = None,
) -> RatioStats:
    """The statistics of a micro-batch.

    Args:
        log_ratio: per token.
        completion_mask: True for trained tokens.
        used: the ratio in the loss; None for exp(log_ratio).
        low, high, dual: True where a token was clipped at this bound; None for nowhere.
    """
    # Sums of thousands of tokens in bfloat16 would lose most of them.
    log_ratio = log_ratio.detach().float()
    token_ratio = log_ratio.exp()
    ratio = torch.where(
        completion_mask, token_ratio if used is None else used.detach().float(), 0.0
    )

    def count(clipped: Tensor | None) -> Tensor:
        return (
            ratio.new_zeros(())
            if clipped is None
            else (clipped & completion_mask).sum().to(ratio.dtype)
        )

    return RatioStats(
        tokens=completion_mask.sum().to(ratio.dtype),
        ratio_sum=ratio.sum(),
        ratio_max=ratio.amax() if ratio.numel() else ratio.new_zeros(()),
        # Of the tokens' own ratios, whatever ratio the loss has.
        kl_sum=torch.where(completion_mask, token_ratio - 1 - log_ratio, 0.0).sum(),
        low=count(low),
        high=count(high),
        dual=count(dual),
    )
