r"""A pointwise reward model, trained as a classifier of verdicts (arXiv:2408.15240, sec. 2).

loss -log σ(r) for a right completion, -log(1 - σ(r)) for a wrong one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Judged

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["PointwiseRewardModel"]


@dataclass(frozen=True, kw_only=True)
class PointwiseRewardModel(Judged):
    """A head that estimates how likely a completion is right, trained on labels of a file."""

    name = "pointwise_reward_model"
    title = "Pointwise reward model"
    paper = "arXiv:2408.15240"
    equations = "sec. 2, discriminative"
    sources = (
        "sec. 2, discriminative verifiers: binary cross-entropy; "
        "a task's labels weigh 1 together, which is ours"
    )
    examples = "labels"

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import step_label_loss

        right = inputs.right.to(inputs.rewards.dtype)
        return step_label_loss(inputs.rewards, right, right.new_ones(len(right)))
