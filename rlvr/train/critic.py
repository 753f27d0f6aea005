"""The critic: a scalar head that estimates, before each token, the sum of the rewards to come.

values once per batch ─▶ advantages and returns
  ─▶ per mini-batch: ½ (V - R)², clipped, mean over tokens ─▶ AdamW

The backbone is the critic's own, a copy of the policy as it began, or the policy's
(`Critic.backbone`).  A shared one shares weights, not the pass: the layers are run once for the
log-probabilities and once for the values.  The head is float32 and begins at 0, so that the first
advantages are the returns.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rlvr.algo.aggregation import token_mean
from rlvr.algo.terms import explained_variance, value_loss
from rlvr.errors import UsageError
from rlvr.samplers.protocol import TokenRow
from rlvr.train.batches import Padded
from rlvr.train.credit import Batch
from rlvr.train.policy import Compare, Policy, RootModule
from rlvr.train.second_model import SecondModel
from rlvr.types import Rollout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["CriticLearner", "ValueModule"]


class ValueModule(RootModule):
    """A number per completion token, of the text before it: the root module of
    critics and of reward models.

    Args:
        policy: whose layers it has.
        model: a copy of them; None for these layers.
    """

    def __init__(self, policy: Policy, model: PreTrainedModel | None = None) -> None:
        model = policy.model if model is None else model
        super().__init__(model, policy.root.logits)
        width = model.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1, dtype=torch.float32, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.learns_layers = True

    def numbers(
        self,
        batch: Padded,
        temperature: float,
        with_entropy: bool,
        compare: Compare | None,
    ) -> tuple[Float[Tensor, " N"], None]:
        """The numbers of a micro-batch.

        Args:
            batch: padded, packed, or with shared prompts.
            temperature, with_entropy, compare: not used; as `RootModule` has them.
        """
        # Also switched off by `learns_layers`: a critic that
        # shares layers leaves them alone while the policy is held.
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learns_layers):
            states = self.states(batch)
        # bfloat16 has 8 bits, too few to regress on
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1), None


class CriticLearner(SecondModel):
    """The critic with its optimiser; the first `warmup` training steps leave the policy alone.

    Args:
        learner: as the run begins.

    Raises:
        UsageError: it shares the policy's layers, and these are sharded over several ranks.
    """

    name = wants = "critic"

    def __init__(self, learner: Learner) -> None:
        assert learner.algorithm.critic is not None
        self.settings, policy = learner.algorithm.critic, learner.policy
        self._own = self.settings.backbone == "own"
        if not self._own and learner.ranks.world > 1:
            raise UsageError(
                "critic_backbone is 'shared', and one module shards the layers; on several ranks "
                "the critic has its own: leave critic_backbone out"
            )
        # A shallow copy shares every weight; only the root, with its head, is another.
        model = policy.copy_all() if self._own else copy.copy(policy)
        model.root = self._root = ValueModule(policy, model.model)
        super().__init__(
            learner,
            model,
            self.settings.lr,
            schedule=self.settings.schedule,
            head=self._root.head,
            learns_layers=self._own,
        )

    @property
    def holds_policy(self) -> bool:
        """True in the steps in which only the critic learns."""
        return self.steps < self.settings.warmup

    def before(self, batch: Batch) -> Batch:
        values, after = self.values(batch.rows)
        return replace(batch, values=values, bootstrap=after)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def values(self, rows: Sequence[Rollout]) -> tuple[Float[Tensor, "B T"], Float[Tensor, " B"]]:
        """The value before each token, and after the last one of truncated rows if the critic has
        `bootstrap`; 0 otherwise, as the score is all that a row gets.

        Args:
            rows: B rollouts.
        """
        # One token more, whatever it is, so that the state after the last one is before another.
        longer = [TokenRow(row.prompt_ids, [*row.completion_ids, 0]) for row in rows]
        numbers = self.model.logprobs(longer).float().cpu()
        # [B]; row i's value after its last token is at column lengths[i] of the longer row.
        lengths = torch.tensor([len(row.completion_ids) for row in rows])
        after = numbers.gather(1, lengths[:, None]).squeeze(1)
        goes_on = torch.tensor([row.truncated and self.settings.bootstrap for row in rows])
        inside = torch.arange(numbers.shape[1] - 1) < lengths[:, None]
        return torch.where(inside, numbers[:, :-1], 0.0), torch.where(goes_on, after, 0.0)

    def backward(self, mini: Batch) -> dict[str, float]:
        self._root.learns_layers = self._own or not self.holds_policy
        return super().backward(mini)

    def micro_loss(self, micro: Batch, whole: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The value loss, a mean over trained tokens."""
        assert micro.values is not None
        assert micro.returns is not None
        # Tokens of the whole update on all ranks, not of this micro-batch.
        mask, tokens = micro.completion_mask, int(whole.completion_mask.sum())
        values, clip = self.model.logprobs(micro.rows), self.settings.value_clip
        losses, clipped = value_loss(values, micro.values, micro.returns, mask, clip=clip)
        loss = token_mean(losses, mask, tokens=tokens)
        for part in self.learner.parts:
            part.see_values(micro.rows, values)
        # With layers of its own the loss needs no factor, as AdamW ignores its scale; with shared
        # ones it weighs the critic against the policy.
        factor = 1.0 if self._own else self.settings.coefficient
        return factor * loss, {"value_loss": loss, "value_clipped": clipped / tokens}

    def after(self, batch: Batch) -> dict[str, float]:
        assert batch.values is not None
        assert batch.returns is not None
        self.steps += 1
        explained = explained_variance(batch.values, batch.returns, batch.completion_mask)
        return {"explained_variance": explained, "critic_lr": self.lr}
