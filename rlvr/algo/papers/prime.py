r"""PRIME: process reinforcement through implicit rewards (arXiv:2502.01456).

r_φ(y_t) = β log π_φ(y_t | y_<t) / π_ref(y_t | y_<t)                                   (eq. 3)
A_{i,t} = Σ_{s ≥ t} γ^{s-t} [r_φ(y_{i,s}) - mean_{j≠i} mean_u r_φ(y_{j,u})]
          + r_o(y_i) - mean_{j≠i} r_o(y_j)                                             (eq. 5)
policy: mean min[ρ A, clip(ρ, 1 - ε, 1 + ε) A]                                         (eq. 6)
φ: cross-entropy of σ(Σ_t r_φ(y_t)) with the verdict, on the same completions          (Algorithm 1)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.algo.parts import Clip, Implicit
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["PRIME"]


@dataclass(frozen=True, kw_only=True)
class PRIME(Proximal):
    """Rewards of tokens by a model that needs no labels of steps, and learns from each batch.

    Its authors' code multiplies the rewards of tokens by K / (K - 1) before it subtracts their
    baseline, weighs both sums by 5, and whitens the advantages; this is the paper's.

    Attributes:
        clip: the range in which the ratio is kept.
        implicit: the reward model.
        gamma: discount of the rewards of tokens.
        dynamic_sampling: drop groups without variation; the paper keeps pass rates from 0.2 to 0.8,
            which with four completions is the same.
    """

    name = "prime"
    title = "PRIME"
    paper = "arXiv:2502.01456"
    equations = "eq. 3, 5, 6, Algorithm 1"
    sources = (
        "the experiments: β 0.05, 256 prompts × 4, 5e-7 for the policy, 1e-6 for the reward model, "
        "no KL; clip, γ and updates are ours"
    )
    printed = Printed(prompts=256, group_size=4, lr=5e-7)
    needs = frozenset({"siblings"})
    reads = frozenset({"ref_logprobs", "implicit_rewards"})
    takes_rewards = False
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.2)
    implicit: Implicit = Implicit()
    gamma: float = 1.0
    dynamic_sampling: bool = True
    group_size: int | None = 4

    def check(self) -> None:
        super().check()
        require_number("gamma", self.gamma, 0, 1)

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import rloo_advantages
        from rlvr.algo.masks import masked_mean
        from rlvr.algo.returns import discounted_returns

        r, mask = groups.implicit_rewards, groups.mask
        # The mean reward of each completion's tokens, [P, G].
        means = masked_mean(r, mask, dim=1).view_as(groups.scores)
        # Leave-one-out is m_i - mean of the others, so m_i less it is that mean.
        of_others = means - rloo_advantages(means, groups.scored)
        returns = discounted_returns(r - of_others.view(-1, 1), mask, gamma=self.gamma)
        return returns + rloo_advantages(groups.scores, groups.scored).view(-1, 1)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
