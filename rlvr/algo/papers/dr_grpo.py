r"""Dr. GRPO: GRPO done right (arXiv:2503.20783).

J = Σ_i Σ_t min[ρ A, clip(ρ, 1 - ε, 1 + ε) A] / constant,  A_i = r_i - mean(r)              (3.2)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.algo.parts import Clip

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["DrGRPO"]


@dataclass(frozen=True, kw_only=True)
class DrGRPO(Proximal):
    """GRPO without the two biases: no division by the std, none by a completion's length.

    Attributes:
        clip: the range in which the ratio is kept.
        length_tokens: the constant length; None for the sampler's max_tokens.
    """

    name = "dr_grpo"
    title = "Dr. GRPO"
    paper = "arXiv:2503.20783"
    equations = "3.2"
    sources = (
        "3.2: neither std nor 1/|o|, no KL; 128 x 8 with mini-batch 128, learning rate "
        "1e-6 and 3000 tokens as in the authors' script"
    )
    needs = frozenset({"siblings"})
    printed = Printed(prompts=128, group_size=8, updates=8, lr=1e-6, max_tokens=3000)
    updates = 8
    aggregation = "constant"

    clip: Clip = Clip(low=0.2, high=0.2)
    length_tokens: int | None = None

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages

        return group_advantages(groups.scores, groups.scored, scale=False)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
