r"""GSPO: group sequence policy optimisation (arXiv:2507.18071).

s_i = (π(y_i | x) / π_old(y_i | x))^{1/|y_i|}                                             (eq. 7)
J = 1/G Σ_i min[s_i A_i, clip(s_i, 1 - ε, 1 + ε) A_i],  A as in GRPO                      (eq. 5, 6)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups, Printed
from rlvr.algo.parts import Range

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["GSPO"]


@dataclass(frozen=True, kw_only=True)
class GSPO(OfGroups):
    """One ratio per completion: the geometric mean of its tokens'.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "gspo"
    title = "GSPO"
    paper = "arXiv:2507.18071"
    equations = "eq. 5-7"
    sources = (
        "5.1: clip 3e-4 and 4e-4, each batch in 4 mini-batches; no KL is named; group "
        "size not printed"
    )
    printed = Printed(updates=4)
    updates = 4
    aggregation = "sequence_mean"

    clip: Range = Range(low=3e-4, high=4e-4)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import gspo

        return gspo(*inputs.usual, **asdict(self.clip))
