"""An algorithm: advantages as scores are, without any baseline."""

from dataclasses import dataclass

from rlvr.algo.papers.base import Inputs, Proximal


@dataclass(frozen=True, kw_only=True)
class Plain(Proximal):
    """Log-probabilities weighted by rewards (Williams 1992, without a baseline).

    Attributes:
        least: scores below it count as it.
    """

    updates = 1
    aggregation = "token_mean"
    least: float = 0.0

    def advantages(self, groups: Inputs):
        return groups.scores.clamp(min=self.least) * groups.scored

    def loss(self, inputs: Inputs):
        return -inputs.log_ratio.exp() * inputs.advantages
