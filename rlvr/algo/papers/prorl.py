r"""ProRL: prolonged reinforcement learning (arXiv:2505.24864).

DAPO's loss with a wider clip, a KL penalty (2.3.1), and hard resets of reference and optimiser
(2.3.1, 3.3)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups, Printed
from rlvr.algo.parts import Clip, Kl, Reset

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["ProRL"]


@dataclass(frozen=True, kw_only=True)
class ProRL(OfGroups):
    """DAPO's loss, held near a reference that is replaced when validation stalls.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "prorl"
    title = "ProRL"
    paper = "arXiv:2505.24864"
    equations = "2.2, 2.3"
    sources = (
        "3.2: clip 0.2/0.4, n 16, temperature 1.2, batch 256 and mini-batch 64, of "
        "prompts, as there are 4 updates a step, learning rate 2e-6, 8096 tokens; 2.3.1, "
        "3.3: reset of reference and optimiser on a stall; KL coefficient, patience and "
        "aggregation are not published: these are ours"
    )
    printed = Printed(prompts=256, group_size=16, updates=4, lr=2e-6, max_tokens=8096)
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.4)
    kl: Kl | None = Kl("k3", 1e-3, "loss")
    dynamic_sampling: bool = True
    reset: Reset | None = Reset(stall_validations=3)
    temperature: float = 1.2

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
