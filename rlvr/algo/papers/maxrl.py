r"""MaxRL: maximum likelihood reinforcement learning (arXiv:2602.02710).

A_i = (r_i - mean(r)) / mean(r) of a group; 0 where no completion is right      (app. D)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.algo.parts import Clip

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["MaxRL"]


@dataclass(frozen=True, kw_only=True)
class MaxRL(Proximal):
    """GRPO's advantages with the mean in the place of the std:
    hard tasks weigh as in maximum likelihood.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "maxrl"
    title = "MaxRL"
    paper = "arXiv:2602.02710"
    equations = "app. D, theorem 5"
    sources = (
        "the centred estimator, which drops groups without a right completion, as in TRL's "
        "example; "
        "clip, mean over tokens and the number of updates are ours"
    )
    needs = frozenset({"siblings"})
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.2)

    def advantages(self, groups: Inputs) -> Tensor:
        r, scored = groups.scores, groups.scored
        mean = (r * scored).sum(1, keepdim=True) / scored.sum(1, keepdim=True).clamp(min=1)
        # Where the mean is not above 0 the divisor is 1, and the factor at the end makes the
        # advantage 0: with rewards of -1 and 1 a mean may be anything.
        return ((r - mean) / mean.where(mean > 0, 1)) * scored * (mean > 0)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
