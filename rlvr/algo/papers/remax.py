r"""ReMax (arXiv:2310.10505).

A_i = r(x, y_i) - r(x, ŷ),  ŷ the greedy completion of the prompt
loss -A_i log π(y_i | x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, PolicyGradient, Printed

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["ReMax"]


@dataclass(frozen=True, kw_only=True)
class ReMax(PolicyGradient):
    """REINFORCE whose baseline is the score of a completion without sampling."""

    name = "remax"
    title = "ReMax"
    paper = "arXiv:2310.10505"
    equations = "Algorithm 1, as in verl"
    sources = (
        "one completion of a prompt, and one update, as Algorithm 1; "
        "no KL, which is the paper's choice of reward"
    )
    needs = frozenset({"once"})
    reads = frozenset({"prefix_values", "boundaries"})
    forks = "greedy"
    takes_rewards = False
    printed = Printed(group_size=1, updates=1)
    aggregation = "constant"
    # A completion is one action: its log-probability is the plain sum.
    length_tokens = 1

    group_size: int | None = 1

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.returns import monte_carlo_advantages

        return monte_carlo_advantages(groups.prefix_values, groups.boundaries, groups.mask)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
