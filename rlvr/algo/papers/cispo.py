r"""CISPO: clipped importance sampling weights (MiniMax-M1, arXiv:2506.13585).

J = 1/Σ|o_i| Σ_i Σ_t sg(clip(ρ, 1 - ε_low, 1 + ε_high)) A log π                           (eq. 4, 5)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups, Printed
from rlvr.algo.parts import OverlongHandling, Range

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["CISPO"]


@dataclass(frozen=True, kw_only=True)
class CISPO(OfGroups):
    """The weight is clipped, and clipped tokens keep their gradient.

    Attributes:
        clip: the range in which the weight is kept; a low of 1 is no lower bound.
    """

    name = "cispo"
    title = "CISPO"
    paper = "arXiv:2506.13585"
    equations = "eq. 4, 5"
    sources = (
        "3.1: no lower bound, no KL, dynamic sampling and length penalty of DAPO, 16 rounds of "
        "off-policy updates per batch; their upper bound is not printed: a weight of at most 5 is "
        "that of ScaleRL, arXiv:2510.13786"
    )
    printed = Printed(updates=16)
    updates = 16

    clip: Range = Range(low=1.0, high=4.0)
    dynamic_sampling: bool = True
    overlong: OverlongHandling = "soft"

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import cispo

        return cispo(*inputs.usual, **asdict(self.clip))
