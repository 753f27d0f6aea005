r"""The KL penalty against the reference policy.  Axes: B rows, T tokens; d =
logprobs - ref_logprobs.

Estimates of KL(π ‖ ref) from one token sampled by π (Schulman 2020, "Approximating KL divergence"):

    k1 = d                  unbiased, may be negative
    k2 = d² / 2             biased, never negative
    k3 = e^-d - 1 + d       unbiased, never negative (GRPO, arXiv:2402.03300, eq. 4)

An unbiased estimate does not imply a correct gradient.  The expected direction of the update, over
tokens sampled by π, if the estimate is put

          in the loss (differentiated)        in the reward (a constant that weighs ∇log π)
    k1    nothing: ∇k1 = ∇log π has mean 0    -∇KL(π ‖ ref), the policy gradient of the penalty
    k2    -∇KL(π ‖ ref)                       another direction
    k3    -∇KL(ref ‖ π), the forward KL       -∇KL(π ‖ ref) + ∇KL(ref ‖ π)

So use k2 in the loss or k1 in the reward for the reverse KL (REINFORCE++, arXiv:2501.03262), and k3
in the loss for GRPO as published.  In a second step on the same rollouts the tokens are no longer
sampled by π, and nothing of this is exact.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked
from rlvr.algo.parts import Estimator
from rlvr.algo.ratios import log_ratio

__all__ = ["kl_loss", "penalise"]


def kl_loss(
    logprobs: Float[Tensor, "B T"],
    ref_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    estimator: Estimator,
    behaviour_logprobs: Float[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T"]:
    """The estimate per token, with a gradient in `logprobs` (see above for its direction); 0 where
    masked.

    d is clamped to ± 20, so that e^-d stays finite; verl also clamps k3 to 10.

    Args:
        logprobs: under the policy.
        ref_logprobs: under the reference policy; no gradient flows there.
        completion_mask: True for trained tokens.
        estimator: "k1", "k2" or "k3".
        behaviour_logprobs: under the policy that sampled: the estimate is multiplied by r = π /
            behaviour, which carries a gradient.  Then E[r k3] = KL(π ‖ ref) for any π, and its
            gradient is the KL's, in every step on the same rollouts (DeepSeek-V3.2,
            arXiv:2512.02556, 3.1).  None for no weight.

    Raises:
        ValueError: there is no such estimator.
    """
    d = log_ratio(logprobs, ref_logprobs, completion_mask)
    if estimator not in ("k1", "k2", "k3"):
        raise ValueError(f"estimator is {estimator!r}; it must be 'k1', 'k2' or 'k3'")
    estimate = (
        d if estimator == "k1" else d.square() / 2 if estimator == "k2" else torch.expm1(-d) + d
    )
    if behaviour_logprobs is None:
        return estimate
    return estimate * log_ratio(logprobs, behaviour_logprobs, completion_mask).exp()


def penalise(
    rewards: Float[Tensor, "B T"],
    logprobs: Float[Tensor, "B T"],
    ref_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    coefficient: float,
    estimator: Estimator = "k1",
) -> Float[Tensor, "B T"]:
    """r_t - β k_t: the penalty in the reward, without gradient (arXiv:1909.08593, sec. 2); 0 where
    masked.

    Args:
        rewards: r, per token.
        logprobs: under the policy that sampled.
        ref_logprobs: under the reference policy.
        completion_mask: True for trained tokens.
        coefficient: β.
        estimator: k.

    Raises:
        ValueError: there is no such estimator.
    """
    estimate = kl_loss(logprobs, ref_logprobs, completion_mask, estimator=estimator)
    return (zero_masked(rewards, completion_mask) - coefficient * estimate).detach()
