r"""RAFT++ (arXiv:2504.11343).

J = 1/|o_i| Σ_t min[ρ, clip(ρ, 1 - ε, 1 + ε)] 1[r_i = max_j r_j]                            (eq. 6)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["RAFTPP"]


@dataclass(frozen=True, kw_only=True)
class RAFTPP(Proximal):
    """Fine-tuning on the best completions of a group, with PPO's ratio and clip.

    Attributes:
        clip_high: the ratio is kept below 1 + this; as no advantage is negative, it needs no other
            bound.
    """

    name = "raft_pp"
    title = "RAFT++"
    paper = "arXiv:2504.11343"
    equations = "eq. 6"
    sources = (
        "sec. 4: 1024 prompts × 4 in mini-batches of 512, learning rate 1e-6, 4096 tokens; the "
        "clip is PPO's; a group whose scores are all equal is left out, as one without a right "
        "completion has nothing to copy"
    )
    needs = frozenset({"siblings"})
    printed = Printed(prompts=1024, group_size=4, updates=2, lr=1e-6, max_tokens=4096)
    updates = 2
    aggregation = "sequence_mean"

    clip_high: float = 0.2

    def check(self) -> None:
        super().check()
        require_number("clip_high", self.clip_high, 0)

    def advantages(self, groups: Inputs) -> Tensor:
        r, scored = groups.scores, groups.scored
        # Completions that do not count are neither the best nor the worst.
        best = r.masked_fill(~scored, -float("inf")).amax(dim=1, keepdim=True)
        worst = r.masked_fill(~scored, float("inf")).amin(dim=1, keepdim=True)
        return ((r == best) & scored & (best > worst)).to(r.dtype)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        # low = 1: no lower bound.
        return clipped(*inputs.usual, low=1.0, high=self.clip_high)
