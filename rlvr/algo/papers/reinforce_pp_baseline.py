r"""REINFORCE++-baseline (arXiv:2501.03262).

A' = r - mean_group(r);   A = (A' - mean_batch(A')) / std_batch(A')
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.algo.parts import Clip, Kl

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["ReinforcePPBaseline"]


@dataclass(frozen=True, kw_only=True)
class ReinforcePPBaseline(Proximal):
    """Scores centred per group, then normalised over the whole batch,
    in which a completion counts once per token.

    Attributes:
        clip: the range in which the ratio is kept.
    """

    name = "reinforce_pp_baseline"
    title = "REINFORCE++-baseline"
    paper = "arXiv:2501.03262"
    equations = "sec. 3, baseline"
    sources = (
        "the KL is k2 in the loss; 0.001, the clip and the number of updates are ours. "
        "verl's std divides by n - 1"
    )
    needs = frozenset({"siblings"})
    updates = 4

    clip: Clip = Clip(low=0.2, high=0.2)
    kl: Kl | None = Kl("k2", 1e-3, "loss")

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import global_advantages

        return global_advantages(
            groups.scores,
            groups.scored,
            group_baseline=True,
            lengths_tokens=groups.lengths_tokens,
        )

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
