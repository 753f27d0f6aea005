r"""GPG: group policy gradient (arXiv:2504.02546).

A_i = α (r_i - mean(r)) of a group                                                          (eq. 5)
α = B / (B - M), with M of B completions in groups whose scores are all equal               (eq. 7)
loss -A log π, mean over tokens                                                             (eq. 5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, PolicyGradient

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["GPG"]


@dataclass(frozen=True, kw_only=True)
class GPG(PolicyGradient):
    """The policy gradient, without what groups of equal scores take from its length."""

    name = "gpg"
    title = "GPG"
    paper = "arXiv:2504.02546"
    equations = "eq. 5, 7"
    sources = (
        "eq. 5: no std (F_norm 1), no ratio, no KL; eq. 7: α.  Waiting for enough mixed groups "
        "is left out, as in TRL and verl; verl's α counts completions of score 0 instead"
    )
    needs = frozenset({"siblings", "once"})

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages

        A = group_advantages(groups.scores, groups.scored, scale=False)
        # Scored completions of groups in which at least one
        # differs; centred scores of equal ones are exactly 0.
        mixed = (A != 0).any(dim=1, keepdim=True) & groups.scored
        return A * groups.scored.sum() / mixed.sum().clamp(min=1)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
