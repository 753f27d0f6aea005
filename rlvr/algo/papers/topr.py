r"""TOPR: tapered off-policy REINFORCE (arXiv:2503.14286).

∇J = Σ_{R > 0} R ∇log π(y) + Σ_{R < 0} [π(y) / μ(y)]_0^1 R ∇log π(y),   R = r - c
μ the policy that sampled
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["TOPR"]


@dataclass(frozen=True, kw_only=True)
class TOPR(Proximal):
    """Good completions are learned as they are,
    bad ones unlearned only as far as the policy still has them.

    Attributes:
        pivot: c, the score between good and bad; 0 for scores of -1 and 1.
    """

    name = "topr"
    title = "TOPR"
    paper = "arXiv:2503.14286"
    equations = "TOPR, a⁺ = b⁺ = 1, a⁻ = 0, b⁻ = 1"
    sources = (
        "weights as in ROLL and verl; there a completion's ratio is that of verl's mean per token "
        "or ROLL's of a token, here the paper's, of the whole completion; the number of updates is "
        "ours"
    )
    off_policy = True
    updates = 4
    aggregation = "constant"
    length_tokens = 1

    pivot: float = 0.5

    def check(self) -> None:
        super().check()
        require_number("pivot", self.pivot)

    def advantages(self, groups: Inputs) -> Tensor:
        return (groups.scores - self.pivot) * groups.scored

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.masks import zero_masked
        from rlvr.algo.objectives import Losses
        from rlvr.algo.ratios import ratio_stats, sequence_ratio

        A, mask = inputs.advantages, inputs.mask
        s = sequence_ratio(inputs.log_ratio).detach()
        # Positive ones have the weight 1: they are learned
        # however unlikely the policy now finds them.
        weight = s.clamp(max=1).where(A < 0, 1.0)
        losses = -weight * A * zero_masked(inputs.logprobs, mask)
        high = (A < 0) & (s > 1)
        return Losses(losses, ratio_stats(inputs.log_ratio, mask, used=weight, high=high))
