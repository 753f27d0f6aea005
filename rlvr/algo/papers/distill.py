r"""On-policy distillation by the reverse KL of sampled tokens (MiniLLM, arXiv:2306.08543).

minimise KL(π ‖ π_T):   r_t = log π_T(y_t) - log π(y_t)
A_t = Σ_k γ^k r_{t+k} + w (r_i - mean(r)) / std(r),   loss -ρ A
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["Distill"]


@dataclass(frozen=True, kw_only=True)
class Distill(Proximal):
    """The policy samples, and a teacher says of each token how much likelier it would have been.

    Attributes:
        gamma: γ, by how much a token answers for the later ones.
        reward_weight: w, weight of the scores' advantages within a group beside the teacher's; 0
            for none.
    """

    name = "distill"
    title = "On-policy distillation"
    paper = "arXiv:2306.08543"
    equations = "reverse KL, its policy gradient"
    sources = (
        "of the paper's gradient the part of single steps (γ 0), without its length normalisation "
        "and mix of teacher samples, as in later practice; w and one update are ours"
    )
    reads = frozenset({"teacher_logprobs"})
    takes_rewards = False

    gamma: float = 0.0
    reward_weight: float = 0.0

    def check(self) -> None:
        super().check()
        require_number("gamma", self.gamma, 0, 1)
        require_number("reward_weight", self.reward_weight, 0)

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages
        from rlvr.algo.masks import zero_masked
        from rlvr.algo.returns import discounted_returns

        mask = groups.mask
        # The reward of a token: how much likelier it is to
        # the teacher than it was to the policy that sampled.
        gap = zero_masked(groups.teacher_logprobs - groups.behaviour_logprobs, mask)
        A = discounted_returns(gap, mask, gamma=self.gamma)
        scored = group_advantages(groups.scores, groups.scored).reshape(-1, 1)
        return A + self.reward_weight * scored * mask

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import surrogate

        return surrogate(*inputs.usual)
