r"""RLOO: REINFORCE leave-one-out (arXiv:2402.14740).

R = r - β Σ_t log(π / π_ref)                                                                (eq. 2)
A_i = R_i - 1/(k - 1) Σ_{j≠i} R_j,   loss -A_i log π(y_i | x)                               (2.3)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, PolicyGradient, Printed
from rlvr.algo.parts import Kl

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["RLOO"]


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyGradient):
    """Each completion is one action, compared with the mean of the others."""

    name = "rloo"
    title = "RLOO"
    paper = "arXiv:2402.14740"
    equations = "2.3"
    sources = (
        "2.2-2.3: the KL in the reward; 5.1: k 2 or 4; appendix C: KL 0.03 (summaries) or "
        "0.10 (dialogue)"
    )
    needs = frozenset({"siblings", "once"})
    printed = Printed(group_size=4, updates=1)
    aggregation = "constant"
    length_tokens = 1  # a completion is one action: its log-probability is the plain sum

    kl: Kl | None = Kl("k1", 0.03, "reward")
    group_size: int | None = 4

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import rloo_advantages

        return rloo_advantages(groups.scores, groups.scored)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
