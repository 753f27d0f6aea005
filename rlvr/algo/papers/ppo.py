r"""PPO: proximal policy optimisation, clipped (arXiv:1707.06347).

L_clip = mean min[ρ A, clip(ρ, 1 - ε, 1 + ε) A]                                         (eq. 7)
δ_t = r_t + γ V_{t+1} - V_t,   A_t = Σ_l (γλ)^l δ_{t+l}                                 (eq. 11, 12)
L = L_clip - c_1 (V - R)²                                                               (eq. 9)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import ActorCritic, Inputs, Printed
from rlvr.algo.parts import Clip, Critic, Kl

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["PPO"]


@dataclass(frozen=True, kw_only=True)
class PPO(ActorCritic):
    """PPO for language models as in InstructGPT, with a critic.

    Attributes:
        clip: the range in which the ratio is kept.
        critic: the value model.
    """

    name = "ppo"
    title = "PPO, clip"
    paper = "arXiv:1707.06347"
    equations = "eq. 7, 9, 11"
    sources = (
        "6.1: clip 0.2, λ 0.95; for language models as in InstructGPT (arXiv:2203.02155, "
        "C.4): KL 0.02 in the reward, γ 1, value clip 0.2, batch 512 in mini-batches of "
        "64, one epoch; whitening as in OpenAI's baselines; no critic warm-up is named"
    )
    printed = Printed(prompts=512, group_size=1, updates=8)
    updates = 8

    clip: Clip = Clip(low=0.2, high=0.2)
    critic: Critic = Critic()
    kl: Kl | None = Kl("k1", 0.02, "reward")

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
