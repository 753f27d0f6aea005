r"""A process reward model (Math-Shepherd, arXiv:2312.08935).

loss: cross-entropy of σ(logit) at each step's last token
      with the share of right continuations                                              (eq. 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Judged

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["ProcessRewardModel"]


@dataclass(frozen=True, kw_only=True)
class ProcessRewardModel(Judged):
    """A head that scores the steps of completions, trained on counts of a file."""

    name = "process_reward_model"
    title = "Process reward model"
    paper = "arXiv:2312.08935"
    equations = "eq. 4"
    sources = "eq. 4 with soft labels; weights by the number of continuations are ours"
    examples = "steps"

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import step_label_loss

        return step_label_loss(inputs.logits, inputs.right, inputs.counts)
