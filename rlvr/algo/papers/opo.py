r"""OPO: on-policy RL with optimal reward baseline (arXiv:2505.23585).

b = Σ_i |y_i| r_i / Σ_i |y_i| of a group,   A_i = r_i - b
loss -A log π, one update per batch: exactly on-policy"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, PolicyGradient, Printed

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["OPO"]


@dataclass(frozen=True, kw_only=True)
class OPO(PolicyGradient):
    """REINFORCE whose baseline weighs each score of a group by its length."""

    name = "opo"
    title = "OPO"
    paper = "arXiv:2505.23585"
    equations = "length-weighted baseline"
    sources = (
        "as in the authors' code in verl: no ratio, no clip, no KL, no std, the mean over tokens, "
        "and one update of 1024 prompts"
    )
    needs = frozenset({"siblings", "once"})
    printed = Printed(prompts=1024, updates=1)

    def advantages(self, groups: Inputs) -> Tensor:
        r, scored = groups.scores, groups.scored
        length = groups.lengths_tokens * scored
        b = (length * r).sum(1, keepdim=True) / length.sum(1, keepdim=True).clamp(min=1)
        return (r - b) * scored

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
