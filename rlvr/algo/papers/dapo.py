r"""DAPO: decoupled clip and dynamic sampling (arXiv:2503.14476).

J = 1/Σ|o_i| Σ_i Σ_t min[ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A],  A as in GRPO       (eq. 8, 10, 12)
groups: 0 < right completions < G                                                    (eq. 11)
R_length = 0, falling to -1 over the last tokens before the limit, -1 beyond it      (eq. 13)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, OfGroups, Printed
from rlvr.algo.parts import Clip, OverlongHandling
from rlvr.validate import require_one_of

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["DAPO"]


@dataclass(frozen=True, kw_only=True)
class DAPO(OfGroups):
    """Clip-higher, mean over tokens, dynamic sampling and the soft punishment of long completions.

    Attributes:
        clip: the range in which the ratio is kept.
        aggregation: token_mean is over the mini-batch's tokens, as in the authors' code;
            group_token_mean over a group's, and then over groups, as eq. 8 has it.
    """

    name = "dapo"
    title = "DAPO"
    paper = "arXiv:2503.14476"
    equations = "eq. 8, 10-13"
    sources = (
        "4.1: clip 0.2/0.28, 512 x 16, mini-batch 512 (16 updates), learning rate 1e-6, "
        "overlong 20480 with cache 4096, no KL; 2.4: rewards of ±1"
    )
    printed = Printed(prompts=512, group_size=16, updates=16, lr=1e-6, max_tokens=20480)
    updates = 16

    clip: Clip = Clip(low=0.2, high=0.28)
    aggregation: Literal["token_mean", "group_token_mean"] = "token_mean"
    dynamic_sampling: bool = True
    overlong: OverlongHandling = "soft"

    def check(self) -> None:
        super().check()
        require_one_of("aggregation", self.aggregation, ("token_mean", "group_token_mean"))

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
