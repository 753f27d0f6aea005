r"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv:2402.03300).

A_i = (r_i - mean(r)) / std(r)                                                              (4.1.2)
J = 1/G Σ_i 1/|o_i| Σ_t { min[ρ A, clip(ρ, 1 - ε, 1 + ε) A] - β D_KL[π ‖ π_ref] }           (eq. 3)
D_KL = π_ref / π - log(π_ref / π) - 1                                                       (eq. 4)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.algo.parts import Clip, Kl
from rlvr.validate import require_one_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["GRPO"]


@dataclass(frozen=True, kw_only=True)
class GRPO(Proximal):
    """Group relative policy optimisation, with one update per batch as in the paper:
    there the clip cannot act.

    Attributes:
        clip: the range in which the ratio is kept.
        scale: divide by the group's standard deviation.
        aggregation: how losses per token become one number; the paper's is sequence_mean.
    """

    name = "grpo"
    title = "GRPO, outcome"
    paper = "arXiv:2402.03300"
    equations = "4.1.2, eq. 3, 4"
    sources = (
        "4.2: KL 0.04, 64 completions, batch 1024 (taken to count completions), one "
        "update, learning rate 1e-6, 1024 tokens; the clip is PPO's, they print none"
    )
    needs = frozenset({"siblings"})
    printed = Printed(prompts=16, group_size=64, updates=1, lr=1e-6, max_tokens=1024)

    clip: Clip = Clip(low=0.2, high=0.2)
    scale: bool = True
    aggregation: Literal["sequence_mean", "token_mean"] = "sequence_mean"
    kl: Kl | None = Kl("k3", 0.04, "loss")

    def check(self) -> None:
        super().check()
        require_one_of("aggregation", self.aggregation, ("sequence_mean", "token_mean"))

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages

        return group_advantages(groups.scores, groups.scored, scale=self.scale)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
