r"""GMPO: geometric-mean policy optimisation (arXiv:2507.20673).

J = 1/G Σ_i { Π_t min[ρ_t^sgn(A), clip(ρ_t, e^-ε, e^ε)^sgn(A)]^sgn(A) }^(1 / |o_i|) A_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.validate import require_number

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["GMPO"]


@dataclass(frozen=True, kw_only=True)
class GMPO(OfGroups):
    """The geometric mean of a completion's ratios,
    each clipped in log space on the side to which it is moved.

    Attributes:
        eps: ε: log ratios are kept within ± eps.
    """

    name = "gmpo"
    title = "GMPO"
    paper = "arXiv:2507.20673"
    equations = "the GMPO objective"
    sources = (
        "the clip (e^-0.4, e^0.4), token by token, and no KL, as in the authors' code in verl "
        "(geo_mean) and in TRL; the number of updates is ours"
    )
    updates = 4
    aggregation = "sequence_mean"

    eps: float = 0.4

    def check(self) -> None:
        super().check()
        require_number("eps", self.eps, above=0)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import Losses
        from rlvr.algo.ratios import ratio_stats, sequence_mean_log_ratio

        log_r, A, mask = inputs.log_ratio, inputs.advantages, inputs.mask
        sign = A.sign()
        # The lesser one, by the advantage's sign: a ratio
        # is clipped only on the side to which it is moved.
        used = (sign * log_r).minimum(sign * log_r.clamp(-self.eps, self.eps)) * sign
        s = sequence_mean_log_ratio(used, mask).exp().expand_as(log_r)
        low, high = (A < 0) & (log_r < -self.eps), (A > 0) & (log_r > self.eps)
        return Losses((-s * A) * mask, ratio_stats(log_r, mask, used=s, low=low, high=high))
