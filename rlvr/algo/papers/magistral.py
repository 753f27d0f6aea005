r"""Magistral (arXiv:2506.10910).

A_i = r_i - mean_group(r), divided by the std over the mini-batch                           (2.1)
J as DAPO's, without KL                                                                     (2.1)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.algo.parts import Clip, OverlongHandling

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["Magistral"]


@dataclass(frozen=True, kw_only=True)
class Magistral(Proximal):
    """GRPO whose advantages are normalised per mini-batch.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "magistral"
    title = "Magistral"
    paper = "arXiv:2506.10910"
    equations = "2.1"
    sources = (
        "2.1: no KL, high 0.26 to 0.28, groups without variance dropped; 2.2: soft length "
        "penalty of up to 0.1, where format gives 0.1 and a right answer 0.9; low 0.2 and "
        "two updates are ours"
    )
    needs = frozenset({"siblings"})
    reads = frozenset({"minibatch"})
    updates = 2

    clip: Clip = Clip(low=0.2, high=0.28)
    dynamic_sampling: bool = True
    overlong: OverlongHandling = "soft"
    overlong_share: float = 0.1

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import magistral_advantages

        return magistral_advantages(groups.scores, groups.scored, minibatch=groups.minibatch)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
