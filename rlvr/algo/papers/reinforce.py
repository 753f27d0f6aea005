r"""REINFORCE (Williams 1992, doi:10.1007/BF00992696).

loss -(r - b) log π(y | x)                                                                  (sec. 4)
b <- decay b + (1 - decay) mean(r)                                                          (sec. 8)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from rlvr.algo.papers.base import Inputs, PolicyGradient
from rlvr.algo.parts import Baseline
from rlvr.validate import require_number, require_one_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["Reinforce"]


@dataclass(frozen=True, kw_only=True)
class Reinforce(PolicyGradient):
    """The policy gradient itself, with a baseline that completions do not change.

    Attributes:
        baseline: what is subtracted from scores.
        baseline_decay: of the moving average, in [0, 1).
    """

    name = "reinforce"
    title = "REINFORCE"
    paper = "doi:10.1007/BF00992696"
    equations = "sec. 4; baseline: sec. 8"
    sources = (
        "Williams 1992, sec. 4: any baseline that the action does not change; sec. 8: the "
        "average of earlier rewards with decay 0.9"
    )
    needs = frozenset({"once"})
    aggregation = "constant"
    length_tokens = 1  # the gradient of a completion's log-probability, which is a sum

    baseline: Baseline = "moving_average"
    baseline_decay: float = 0.9
    group_size: int | None = 1

    def check(self) -> None:
        super().check()
        require_one_of("baseline", self.baseline, get_args(Baseline))
        require_number("baseline_decay", self.baseline_decay, 0, below=1)

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import reinforce_advantages

        return reinforce_advantages(groups.scores, groups.scored, baseline=groups.baseline)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
