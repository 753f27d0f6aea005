"""Implicit reward models: r(y_t) = β log π_φ(y_t) / π_ref(y_t), a reward of each token
from labels of completions.

PRIME trains one on the verdicts of each batch (arXiv:2502.01456); every policy trained by DPO is
one (arXiv:2305.18290, eq. 5), as is one trained by the cross-entropy of completions with verdicts
(arXiv:2412.01981).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlvr.algo.preferences import gains, step_label_loss
from rlvr.train.credit import Batch
from rlvr.train.second_model import SecondModel

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["ImplicitRewards"]


class ImplicitRewards(SecondModel):
    """π_φ, which begins as the policy, gives each batch its rewards and
    learns from its verdicts then.

    Args:
        learner: as the run begins.
    """

    name = wants = "implicit"

    def __init__(self, learner: Learner) -> None:
        assert learner.algorithm.implicit is not None
        self.settings = learner.algorithm.implicit
        super().__init__(learner, learner.policy.copy_all(), self.settings.lr, times=2.0)

    def before(self, batch: Batch) -> Batch:
        assert batch.ref_logprobs is not None
        apart = self.learner.logprobs(batch.rows, self.model) - batch.ref_logprobs
        return replace(batch, implicit_rewards=self.settings.beta * apart)

    def micro_loss(self, micro: Batch, whole: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cross-entropy with the verdicts, a mean over completions."""
        assert micro.ref_logprobs is not None
        assert micro.outcomes is not None
        # Completions of the whole update on all ranks.
        n, outcomes = len(whole.rows), micro.outcomes
        logprobs = self.model.logprobs(micro.rows, self.learner.temperature)
        # A sum over tokens: the reward of a completion is the sum of those of its tokens.
        h = gains(logprobs, micro.ref_logprobs, micro.completion_mask, length="sum")
        rewards = self.settings.beta * h
        loss = step_label_loss(rewards, outcomes, torch.ones_like(outcomes)).sum() / n
        right = (rewards > 0) == (outcomes > 0.5)
        return loss, {"implicit_loss": loss, "implicit_accuracy": right.sum() / n}

    def after(self, batch: Batch) -> dict[str, float]:
        return {"implicit_lr": self.lr}
