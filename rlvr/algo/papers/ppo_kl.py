r"""PPO with an adaptive KL penalty (arXiv:1707.06347).

L = mean [ρ A - β KL(π_old ‖ π)]                                                            (eq. 8)
β / 2 if KL < target / 1.5,   2 β if KL > 1.5 target                                        (sec. 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.algo.parts import Critic, Trust
from rlvr.validate import require_number

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses
    from rlvr.algo.returns import AdvantageEstimate


__all__ = ["PPOKL"]


@dataclass(frozen=True, kw_only=True)
class PPOKL(Proximal):
    """A penalty on the step instead of a clip; `trust.rule` "dual" makes it TRPO's Lagrangian form.

    Attributes:
        trust: the coefficient of the KL from the policy that sampled, and how it moves.
        critic: the value model.
        gamma: discount per token.
        lam: λ of GAE: 0 is TD(0), 1 the Monte-Carlo return.
        whiten: normalise advantages over all tokens of the batch.
    """

    name = "ppo_kl"
    title = "PPO, adaptive KL"
    paper = "arXiv:1707.06347"
    equations = "eq. 8, sec. 4"
    sources = (
        "eq. 8 and sec. 4: β 1 at first, halved and doubled around a target, of which "
        "0.01 is their middle one; 6.1: λ 0.95; theirs has 10 epochs, 4 are ours"
    )
    reads = frozenset({"values"})
    regularised = True

    trust: Trust = Trust()
    critic: Critic = Critic(value_clip=None)
    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    epochs: int = 4
    group_size: int | None = 1

    def check(self) -> None:
        super().check()
        require_number("gamma", self.gamma, 0, 1)
        require_number("lam", self.lam, 0, 1)

    def advantages(self, groups: Inputs) -> AdvantageEstimate:
        from rlvr.algo.returns import AdvantageEstimate, gae, whiten

        A, R = gae(
            groups.rewards,
            groups.values,
            groups.mask,
            gamma=self.gamma,
            lam=self.lam,
            bootstrap=groups.bootstrap,
        )
        return AdvantageEstimate(whiten(A, groups.mask) if self.whiten else A, R)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import ppo_kl

        return ppo_kl(
            inputs.logprobs,
            inputs.old_logprobs,
            inputs.advantages,
            inputs.mask,
            beta=self.trust.coefficient,
        )
