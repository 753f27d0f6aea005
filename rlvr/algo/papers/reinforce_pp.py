r"""REINFORCE++ (arXiv:2501.03262).

r_t = 1[t = T] r - β log(π / π_ref),   A_t = Σ_{k≥t} γ^{k-t} r_k, normalised over the batch's tokens
J = mean over tokens of min[ρ A, clip(ρ, 1 - ε, 1 + ε) A]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfTokens, Proximal
from rlvr.algo.parts import Clip, Kl

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["ReinforcePP"]


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(OfTokens, Proximal):
    """PPO without a critic: the KL per token in the reward,
    returns normalised over the whole batch.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "reinforce_pp"
    title = "REINFORCE++"
    paper = "arXiv:2501.03262"
    equations = "sec. 3"
    sources = (
        "KL k1 per token in the reward, advantages normalised over the global batch; 0.01 "
        "and the clip as in the authors' OpenRLHF; the number of updates is ours"
    )
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.2)
    kl: Kl | None = Kl("k1", 0.01, "reward")

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.returns import discounted_returns

        R = discounted_returns(
            groups.rewards, groups.mask, gamma=self.gamma, bootstrap=groups.bootstrap
        )
        return self.whiten_advantages(R, groups.mask)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
