r"""How far the policy is from the reference policy.  Axes: B rows, T tokens; d = logprobs - ref_logprobs.

Estimates of KL(π ‖ ref) from one token sampled by π (Schulman 2020, "Approximating KL divergence"):

    k1 = d                  unbiased, may be negative
    k2 = d² / 2             biased, never negative
    k3 = e^-d - 1 + d       unbiased, never negative (GRPO, arXiv:2402.03300, eq. 4)

An unbiased value does not mean a right gradient.  What π moves along, in expectation over its own tokens, when the
estimate is put

                in the loss (differentiated)        in the reward (a constant that weighs ∇log π)
    k1          nothing: ∇k1 = ∇log π has mean 0    -∇KL(π ‖ ref), the policy gradient of the penalty
    k2          -∇KL(π ‖ ref)                       another direction
    k3          -∇KL(ref ‖ π), the forward KL       -∇KL(π ‖ ref) + ∇KL(ref ‖ π)

So k2 in the loss or k1 in the reward if the reverse KL is meant (REINFORCE++, arXiv:2501.03262), k3 in the loss for
GRPO as published.  On a second step over the same rollouts the tokens are no longer π's, and none of this is exact.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.ratios import log_ratio

__all__ = ["Estimator", "kl_loss", "penalised"]

Estimator = Literal["k1", "k2", "k3"]


def kl_loss(
    logprobs: Float[Tensor, "B T"],
    ref_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    estimator: Estimator,
) -> Float[Tensor, "B T"]:
    """The estimate per token, with its gradient in `logprobs`; see the module for which gradient that is.

    The reference carries none.  d is kept in ± 20, so that e^-d stays finite; verl also cuts k3 at 10.

    Raises:
        ValueError: no such estimator.
    """
    d = log_ratio(logprobs, ref_logprobs, completion_mask)
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        return torch.expm1(-d) + d
    raise ValueError(f"estimator is {estimator!r}; it must be 'k1', 'k2' or 'k3'")


def penalised(
    rewards: Float[Tensor, "B T"],
    logprobs: Float[Tensor, "B T"],
    ref_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    coefficient: float,
    estimator: Estimator = "k1",
) -> Float[Tensor, "B T"]:
    """r_t - β k_t: the penalty in the reward, without gradient (arXiv:1909.08593, sec. 2); 0 where masked.

    `logprobs` are those of the policy that sampled.  `returns.discounted_returns` then spreads it over time.

    Raises:
        ValueError: no such estimator.
    """
    estimate = kl_loss(logprobs, ref_logprobs, completion_mask, estimator=estimator)
    return (zero_masked(rewards, completion_mask) - coefficient * estimate).detach()
