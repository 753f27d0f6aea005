r"""SAPO: soft adaptive policy optimisation (arXiv:2511.20347).

f(ρ) = 4/τ σ(τ (ρ - 1)),  τ_pos where A > 0, else τ_neg                                     (eq. 6)
J = 1/G Σ_i 1/|y_i| Σ_t f(ρ) A                                                              (eq. 5)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.algo.parts import SoftClip

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["SAPO"]


@dataclass(frozen=True, kw_only=True)
class SAPO(OfGroups):
    """A smooth gate in the place of the clip.

    Attributes:
        soft_clip: the temperatures of the gate.
    """

    name = "sapo"
    title = "SAPO"
    paper = "arXiv:2511.20347"
    equations = "eq. 5, 6"
    sources = (
        "eq. 5 and 6, temperatures 1 and 1.05; no KL is named; four updates, as in GSPO's "
        "paper, are ours"
    )
    updates = 4
    aggregation = "sequence_mean"

    soft_clip: SoftClip = SoftClip()

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import sapo

        return sapo(*inputs.usual, **asdict(self.soft_clip))
