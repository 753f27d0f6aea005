r"""GDPO: group reward-decoupled normalisation (arXiv:2601.05242).

A^k_i = (r^k_i - mean(r^k)) / std(r^k) of a group, for each part k of the reward
A_i = normalised over the batch: (Σ_k A^k_i - mean) / std
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.algo.parts import Clip

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["GDPO"]


@dataclass(frozen=True, kw_only=True)
class GDPO(Proximal):
    """GRPO with the parts of a reward normalised one by one, so that none drowns the others.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "gdpo"
    title = "GDPO"
    paper = "arXiv:2601.05242"
    equations = "decoupled advantages, batch normalisation"
    sources = (
        "as in verl and TRL (normalize_then_sum); every part weighs the same, as its weight in the "
        "reward is divided out; the batch is normalised over completions, in verl over tokens; "
        "clip, mean over tokens and the number of updates are ours"
    )
    needs = frozenset({"siblings"})
    reads = frozenset({"score_parts"})
    takes_rewards = False
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.2)

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages
        from rlvr.algo.masks import standardise

        scored, part_scores = groups.scored, groups.score_parts.unbind(dim=2)
        total = sum(group_advantages(part, scored) for part in part_scores)
        weights = scored.to(total.dtype)
        # One row of the whole batch, since `standardise` works along the rows.
        return standardise(total.view(1, -1), weights.view(1, -1), scale=True, eps=1e-6).view_as(
            total
        )

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
