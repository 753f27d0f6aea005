r"""VESPO: variational sequence-level soft policy optimisation (arXiv:2602.10693).

w = π(y) / μ(y),   φ(w) = w^k e^{λ (1 - w)}, with k and λ by the sign of A
J = mean sg(φ(w)) A log π,   μ the policy that sampled
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.validate import require_number

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["VESPO"]


@dataclass(frozen=True, kw_only=True)
class VESPO(OfGroups):
    """A completion's weight fades smoothly as its probability leaves that under the policy that
    sampled it.

    Attributes:
        positive_k, positive_rate: k and λ of completions of advantage 0 or above.
        negative_k, negative_rate: k and λ of the others.
    """

    name = "vespo"
    title = "VESPO"
    paper = "arXiv:2602.10693"
    equations = "the Gamma weight φ"
    sources = (
        "k 2 and 3, λ 3 and 2 as in TRL, which also has the mean over tokens; the number of "
        "updates is ours"
    )
    off_policy = True
    updates = 4

    positive_k: float = 2.0
    positive_rate: float = 3.0
    negative_k: float = 3.0
    negative_rate: float = 2.0

    def check(self) -> None:
        super().check()
        for name in ("positive_k", "positive_rate", "negative_k", "negative_rate"):
            require_number(name, getattr(self, name), above=0)

    def loss(self, inputs: Inputs) -> Losses:
        import torch

        from rlvr.algo.masks import zero_masked
        from rlvr.algo.objectives import Losses
        from rlvr.algo.ratios import ratio_stats, sequence_ratio

        A, mask = inputs.advantages, inputs.mask
        w = sequence_ratio(inputs.log_ratio).detach()
        # Not `where` with two numbers, which gives float32 whatever A is.
        k = torch.full_like(A, self.positive_k).masked_fill(A < 0, self.negative_k)
        rate = torch.full_like(A, self.positive_rate).masked_fill(A < 0, self.negative_rate)
        # In logarithms: w^k and e^(λ (1 - w)) may each leave what a float holds.
        phi = (k * w.log() + rate * (1 - w)).exp()
        losses = -phi * A * zero_masked(inputs.logprobs, mask)
        return Losses(losses, ratio_stats(inputs.log_ratio, mask, used=phi))
