r"""PPO's clip with a whole completion as one action (arXiv:1707.06347, eq. 7).

s_i = π(y_i | x) / π_old(y_i | x),   J = 1/G Σ_i min[s_i A_i, clip(s_i, 1 - ε, 1 + ε) A_i]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.algo.parts import Range

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses


__all__ = ["PPOCompletions"]


@dataclass(frozen=True, kw_only=True)
class PPOCompletions(OfGroups):
    """The product of the ratios, where GSPO has their geometric mean: for study,
    as long ones are soon at the bounds.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "ppo_completions"
    title = "PPO over completions"
    paper = "arXiv:1707.06347"
    equations = "eq. 7, per completion"
    sources = "6.1: clip 0.2; advantages of GRPO and four updates are ours"
    updates = 4
    aggregation = "sequence_mean"

    clip: Range = Range(low=0.2, high=0.2)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import sequence_clipped

        return sequence_clipped(*inputs.usual, **asdict(self.clip))
