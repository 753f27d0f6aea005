r"""SLiC: a hinge on gains (arXiv:2305.10425; on gains, as in RSO, arXiv:2309.06657).

loss max(0, 1 - β (h_w - h_l))                                                            (RSO, 3.2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfPairs

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["SLiC"]


@dataclass(frozen=True, kw_only=True)
class SLiC(OfPairs):
    """DPO with a hinge in the place of the logistic loss."""

    name = "slic"
    title = "SLiC, hinge"
    paper = "arXiv:2309.06657"
    equations = "3.2"
    sources = "3.2: the loss; beta 0.1 is DPO's"

    dynamic_sampling: bool = True

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import hinge

        return hinge(inputs.chosen, inputs.rejected, beta=self.beta)
