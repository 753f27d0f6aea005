r"""DPPO: divergence proximal policy optimisation (arXiv:2602.04879).

J = mean M sg(min(ρ, c)) A log π,   ρ = π / μ, μ the policy that sampled, not recomputed (5.2)
M = 0 where A moves π away from μ and the divergence of the token's two outcomes (this token, or
another) is above the threshold: |π - μ| (binary TV), or KL(μ ‖ π) of these two (binary KL)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.validate import require_number, require_one_of

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["DPPO"]


@dataclass(frozen=True, kw_only=True)
class DPPO(OfGroups):
    """Tokens are held by how much probability they move, and not by their ratio,
    which is wild where it is small.

    Attributes:
        divergence: tv or kl, of the token against all others.
        low: the greatest divergence of tokens of negative advantage.
        high: the greatest divergence of the others.
        cap: c, the greatest weight.
    """

    name = "dppo"
    title = "DPPO"
    paper = "arXiv:2602.04879"
    equations = "binary TV, binary KL"
    sources = (
        "as in verl's dppo_tv and dppo_kl, whose script has thresholds 0.15 (TV) and 0.05 (KL); "
        "5.4: c 20; the mean over tokens and the number of updates are ours"
    )
    off_policy = True
    updates = 4

    divergence: Literal["tv", "kl"] = "tv"
    low: float = 0.15
    high: float = 0.15
    cap: float = 20.0

    def check(self) -> None:
        super().check()
        require_one_of("divergence", self.divergence, ("tv", "kl"))
        require_number("low", self.low, above=0)
        require_number("high", self.high, above=0)
        require_number("cap", self.cap, 1)

    def loss(self, inputs: Inputs) -> Losses:
        import torch

        from rlvr.algo.masks import zero_masked
        from rlvr.algo.objectives import Losses
        from rlvr.algo.ratios import ratio_stats

        A, mask, r = inputs.advantages, inputs.mask, inputs.ratio.detach()
        # Probabilities of the sampled token, before the step and
        # now; at masked tokens q is 1, and they have no loss.
        q, p = zero_masked(inputs.old_logprobs, mask).exp(), inputs.logprobs.detach().exp()
        moved = zero_masked(p, mask) - q
        apart = moved.abs()
        if self.divergence == "kl":
            # Of all other tokens together; 1e-8 keeps the quotient finite where a token is certain.
            log_rest = torch.log((1 - q + 1e-8) / (1 - q - moved + 1e-8))
            apart = -q * inputs.log_ratio.detach() + (1 - q) * log_rest
        low = (A < 0) & (moved < 0) & (apart > self.low)
        high = (A > 0) & (moved > 0) & (apart > self.high)
        # Only tokens that their advantage moves further
        # away are held; those on the way back are not.
        weight = r.clamp(max=self.cap) * ~(low | high)
        losses = -weight * A * zero_masked(inputs.logprobs, mask)
        return Losses(losses, ratio_stats(inputs.log_ratio, mask, low=low, high=high))
