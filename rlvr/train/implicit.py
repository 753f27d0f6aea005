"""Implicit reward models: r(y_t) = β log π_φ(y_t) / π_ref(y_t), a reward of each token from labels of completions.

PRIME trains one on the verdicts of each batch (arXiv:2502.01456); every policy trained by DPO is
one (arXiv:2305.18290, eq. 5), as is one trained by the cross-entropy of completions with verdicts
(arXiv:2412.01981).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rlvr.algo.preferences import gains, step_label_loss
from rlvr.train.credit import Batch
from rlvr.train.second_model import SecondModel

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["ImplicitRewards"]


class ImplicitRewards(SecondModel):
    """π_φ, which begins as the policy, gives each batch its rewards and learns from its verdicts then.

    Args:
        learner: as the run begins.
    """

    name = "implicit"

    def __init__(self, learner: Learner) -> None:
        assert learner.algorithm.implicit is not None
        self.settings = learner.algorithm.implicit
        lr = self.settings.lr or 2 * learner.config.lr
        super().__init__(learner, learner.policy.copied(), lr)

    @classmethod
    def of(cls, learner: Learner) -> ImplicitRewards | None:
        return None if learner.algorithm.implicit is None else cls(learner)

    def before(self, batch: Batch) -> Batch:
        assert batch.ref_logprobs is not None
        apart = self.learner.logprobs(batch.rows, self.model) - batch.ref_logprobs
        return replace(batch, implicit_rewards=self.settings.beta * apart)

    def learns(self, mini: Batch) -> bool:
        return bool(mini.completion_mask.any())

    def backward(self, mini: Batch) -> dict[str, float]:
        """Add the gradient of the cross-entropy with the verdicts, the mean over an update's
        completions; clip it.

        Args:
            mini: with `ref_logprobs` and `outcomes`.
        """
        rows = mini.completion_mask.any(dim=1).nonzero().flatten().tolist()
        temperature, device = self.learner.config.temperature, self.model.device
        sums = torch.zeros(2, device=device)
        for indices, counts in self.model.plan([mini.rows[i] for i in rows]):
            micro = mini.part([rows[i] for i in indices])
            assert micro.ref_logprobs is not None
            assert micro.outcomes is not None
            outcomes = micro.outcomes.to(device)
            logprobs = self.model.logprobs(micro.rows, temperature)
            ref, mask = micro.ref_logprobs.to(device), micro.completion_mask.to(device)
            rewards = self.settings.beta * gains(logprobs, ref, mask, length="sum")
            losses = step_label_loss(rewards, outcomes, torch.ones_like(outcomes))
            (losses.sum() / len(rows) * counts).backward()
            right = (rewards > 0) == (outcomes > 0.5)
            sums += torch.stack([losses.detach().sum(), right.sum()]) / len(rows) * counts
        numbers = self.learner.ranks.sum(sums).tolist()
        metrics = dict(zip(("implicit_loss", "implicit_accuracy"), numbers, strict=True))
        return metrics | {"implicit_grad_norm": self.clip_gradient()}

    def after(self, batch: Batch) -> dict[str, float]:
        return {"implicit_lr": self.lr}
