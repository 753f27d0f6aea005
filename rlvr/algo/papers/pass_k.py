r"""Pass@k training (arXiv:2503.19595).

A_i = max_j r_j - max_{j≠i} r_j: what the best of a group's k scores loses without completion i
loss -A_i log π(y_i | x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, PolicyGradient

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["PassK"]


@dataclass(frozen=True, kw_only=True)
class PassK(PolicyGradient):
    """The gradient of the best score among as many completions as a group has;
    ties of the best teach nothing."""

    name = "pass_k"
    title = "Pass@k policy gradient"
    paper = "arXiv:2503.19595"
    equations = "the k-sample objective, leave-one-out"
    sources = (
        "the advantage as in verl's grpo_passk, which also divides it by the group's std; k is the "
        "group size; the sum over tokens and one update are ours"
    )
    needs = frozenset({"siblings", "once"})
    aggregation = "constant"
    length_tokens = 1

    def advantages(self, groups: Inputs) -> Tensor:
        r = groups.scores.masked_fill(~groups.scored, -float("inf"))
        best, place = r.max(dim=1, keepdim=True)
        # One place of the best is taken out: where several
        # have it, second equals best and the lead is 0.
        second = r.scatter(1, place, -float("inf")).amax(dim=1, keepdim=True)
        # A group without a scored completion has -inf - -inf, which is NaN.
        lead = (best - second).nan_to_num(nan=0.0, posinf=0.0)  # of one alone
        return lead * (r == best) * groups.scored

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
