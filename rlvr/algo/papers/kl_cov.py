r"""KL-Cov: a KL penalty on the tokens of high covariance (arXiv:2505.22617).

Cov_t = (log π_t - mean log π) (A_t - mean A), means over the tokens of the update
J = mean ρ A - β KL(π_old ‖ π) on the share k of tokens with the highest Cov
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["KLCov"]


@dataclass(frozen=True, kw_only=True)
class KLCov(OfGroups):
    """The tokens on which entropy collapses are held near the policy that sampled;
    the others have no bound.

    Attributes:
        share: k, of the tokens of an update that are held; at least one.
        beta: weight of the penalty on them.
    """

    name = "kl_cov"
    title = "KL-Cov"
    paper = "arXiv:2505.22617"
    equations = "sec. 4, KL-Cov"
    sources = (
        "sec. 4: k 2e-3 (7B) and 2e-4 (32B), β 1; no clip, and the KL is |log ρ|, as in the "
        "authors' code; verl selects per micro-batch, here it is over the whole update; the number "
        "of updates is ours"
    )
    reads = frozenset({"selected"})
    regularised = True
    updates = 4

    share: float = 2e-4
    beta: float = 1.0

    def check(self) -> None:
        super().check()
        require_number("share", self.share, above=0, most=1)
        require_number("beta", self.beta, 0)

    def select(self, update: Inputs) -> Tensor:
        from rlvr.algo.subsets import covariances

        cov = covariances(update.logprobs, update.advantages, update.mask)
        # A share of the trained tokens, not of all places.
        held = cov.flatten().topk(max(1, int(self.share * update.mask.sum()))).indices
        chosen = cov.new_zeros(cov.numel()).bool()
        chosen[held] = True
        return chosen.view_as(cov) & update.mask

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import Losses
        from rlvr.algo.ratios import ratio_stats

        log_r, mask = inputs.log_ratio, inputs.mask
        held = self.beta * log_r.abs() * inputs.selected
        stats = ratio_stats(log_r, mask, high=inputs.selected)
        return Losses((-inputs.ratio * inputs.advantages + held) * mask, stats)
