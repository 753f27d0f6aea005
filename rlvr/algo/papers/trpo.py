r"""TRPO: trust region policy optimisation (arXiv:1502.05477).

maximise mean ρ A  subject to  mean KL(π_old ‖ π) ≤ δ                                       (eq. 14)
step = sqrt(2δ / xᵀFx) x,  x = F⁻¹g by conjugate gradients, halved until both hold          (app. C)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import ActorCritic, Inputs
from rlvr.algo.parts import Critic, TrustRegion
from rlvr.errors import UsageError

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["TRPO"]


@dataclass(frozen=True, kw_only=True)
class TRPO(ActorCritic):
    """Natural gradient steps, for study: a step costs about 25 gradients; float32.

    Attributes:
        trust_region: the region in which steps stay.
        critic: the value model, with a backbone of its own.
    """

    name = "trpo"
    title = "TRPO"
    paper = "arXiv:1502.05477"
    equations = "eq. 14, app. C"
    sources = (
        "sec. 8: δ 0.01; sec. 5.1: returns of single paths, so λ and γ are 1; app. C: 10 "
        "iterations.  Damping, the critic as baseline and whitening are those of OpenAI's "
        "code and ours"
    )

    trust_region: TrustRegion = TrustRegion()
    critic: Critic = Critic(value_clip=None)
    lam: float = 1.0

    def check(self) -> None:
        super().check()
        if self.critic.backbone == "shared":
            raise UsageError(
                "critic.backbone is 'shared' with trust_region: the value loss would move the "
                "policy's layers out of the region; give the critic its 'own'"
            )

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import surrogate

        return surrogate(*inputs.usual)
