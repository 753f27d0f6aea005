r"""PPO with an adaptive KL penalty (arXiv:1707.06347).

L = mean [ρ A - β KL(π_old ‖ π)]                                                            (eq. 8)
β / 2 if KL < target / 1.5,   2 β if KL > 1.5 target                                        (sec. 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import ActorCritic, Inputs
from rlvr.algo.parts import Critic, Trust

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["PPOKL"]


@dataclass(frozen=True, kw_only=True)
class PPOKL(ActorCritic):
    """A penalty on the step instead of a clip; `trust.rule` "dual" makes it TRPO's Lagrangian form.

    Attributes:
        trust: the coefficient of the KL from the policy that sampled, and how it moves.
        critic: the value model.
    """

    name = "ppo_kl"
    title = "PPO, adaptive KL"
    paper = "arXiv:1707.06347"
    equations = "eq. 8, sec. 4"
    sources = (
        "eq. 8 and sec. 4: β 1 at first, halved and doubled around a target, of which "
        "0.01 is their middle one; 6.1: λ 0.95; theirs has 10 epochs, 4 are ours"
    )
    regularised = True

    trust: Trust = Trust()
    critic: Critic = Critic(value_clip=None)
    epochs: int = 4

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import ppo_kl

        return ppo_kl(*inputs.usual, beta=self.trust.coefficient)
