r"""LUSPO: length-unbiased sequence policy optimisation (arXiv:2602.05261).

J = 1/G Σ_i |y_i| min[s_i A_i, clip(s_i, 1 - ε_low, 1 + ε_high) A_i],  s and A as in GSPO
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.algo.parts import Range

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["LUSPO"]


@dataclass(frozen=True, kw_only=True)
class LUSPO(OfGroups):
    """GSPO with each completion's loss multiplied by its length.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "luspo"
    title = "LUSPO"
    paper = "arXiv:2602.05261"
    equations = "the LUSPO objective"
    sources = "5.1, as TRL cites it: clip 2e-3 and 2.5e-3; the number of updates is GSPO's"
    updates = 4
    aggregation = "constant"
    # The sum over a completion's tokens, each with the row's loss: |y_i| times that loss.
    length_tokens = 1

    clip: Range = Range(low=2e-3, high=2.5e-3)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import gspo

        return gspo(*inputs.usual, **asdict(self.clip))
