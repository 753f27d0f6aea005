r"""IPO: identity preference optimisation (arXiv:2310.12036).

loss (h_w - h_l - 1 / 2τ)²                                                                  (eq. 17)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, OfPairs

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["IPO"]


@dataclass(frozen=True, kw_only=True)
class IPO(OfPairs):
    """DPO without the sigmoid; `beta` is τ."""

    name = "ipo"
    title = "IPO"
    paper = "arXiv:2310.12036"
    equations = "eq. 17"
    sources = (
        "eq. 17 has sums; means and 0.1 are TRL's, as the authors advised; length 'sum' "
        "is the paper's"
    )

    length: Literal["sum", "mean"] = "mean"
    dynamic_sampling: bool = True

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import ipo

        return ipo(inputs.chosen, inputs.rejected, beta=self.beta)
