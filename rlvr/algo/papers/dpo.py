r"""DPO: direct preference optimisation (arXiv:2305.18290).

h = log π(y | x) - log π_ref(y | x),   loss -log σ(β (h_w - h_l))                           (eq. 7)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, OfPairs
from rlvr.validate import require_number, require_one_of

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["DPO"]


@dataclass(frozen=True, kw_only=True)
class DPO(OfPairs):
    """A pair of a right and a wrong completion; with smoothing cDPO or robust DPO.

    Attributes:
        smoothing: share of labels that are supposed to be wrong.
        reading: how smoothing is read: conservative or robust.
    """

    name = "dpo"
    title = "DPO, cDPO, robust DPO"
    paper = "arXiv:2305.18290"
    equations = "eq. 7"
    sources = (
        "App. B: beta 0.1; sums over tokens, eq. 7.  Pairs per group and what is masked are ours"
    )

    smoothing: float = 0.0
    reading: Literal["conservative", "robust"] = "conservative"
    dynamic_sampling: bool = True

    def check(self) -> None:
        super().check()
        require_number("smoothing", self.smoothing, 0, below=0.5)
        require_one_of("reading", self.reading, ("conservative", "robust"))

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import dpo

        return dpo(
            inputs.chosen,
            inputs.rejected,
            beta=self.beta,
            smoothing=self.smoothing,
            reading=self.reading,
        )
