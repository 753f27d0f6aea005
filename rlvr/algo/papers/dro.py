r"""DRO: direct reward optimisation (arXiv:2405.19107).

L = ½ (r - V(x) - τ log(π(y | x) / π_ref(y | x)))²                              (eq. 4)
∇L / τ = -(r - V) ∇log π + τ/2 ∇(log π / π_ref)²                                (eq. 8, Algorithm 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["DRO"]


@dataclass(frozen=True, kw_only=True)
class DRO(Proximal):
    """A regression of completions' log-probabilities on their scores,
    right for samples of any policy.

    Attributes:
        tau: τ, the strength of the pull towards the reference policy.
    """

    name = "dro"
    title = "DRO"
    paper = "arXiv:2405.19107"
    equations = "eq. 4, 8"
    sources = (
        "eq. 8 divided by τ, as in Algorithm 1.  V is the mean score of the group, as in Kimi k1.5 "
        "(arXiv:2501.12599, 2.3), where the paper trains a second network (DRO-V); τ and the "
        "number of updates are ours"
    )
    needs = frozenset({"siblings"})
    reads = frozenset({"ref_logprobs"})
    regularised = True
    off_policy = True
    updates = 4
    aggregation = "constant"
    length_tokens = 1

    tau: float = 0.05

    def check(self) -> None:
        super().check()
        require_number("tau", self.tau, above=0)

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages

        return group_advantages(groups.scores, groups.scored, scale=False)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce
        from rlvr.algo.ratios import log_ratio

        losses, mask = reinforce(*inputs.usual), inputs.mask
        gain = log_ratio(inputs.logprobs, inputs.ref_logprobs, mask).sum(dim=1, keepdim=True)
        # The completion's square in equal parts on its tokens, since losses are summed over them.
        square = gain.square() / mask.sum(dim=1, keepdim=True).clamp(min=1) * mask  # over tokens
        return losses._replace(losses=losses.losses + self.tau / 2 * square)
