"""A model that learns beside the policy, with an optimiser of its own: a critic, or
an implicit reward model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rlvr.errors import DataError
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart
from rlvr.train.policy import Policy
from rlvr.train.schedule import LrClock, scheduled_rate
from rlvr.types import StateDict

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["SecondModel"]


class SecondModel(LearnerPart):
    """Its model, in shards where the policy is; its optimiser, schedule and state.

    Args:
        learner: as the run begins; its policy's micro-batching, precision and adapter are the
            model's too.
        model: the model, not yet sharded.
        lr: learning rate without schedule; None for `times` the policy's.
        times: see `lr`.
        schedule: of the learning rate; None for the policy's.
        head: a part of the model's root that is trained, too; None for none.
        learns_layers: whether the model's layers are trained here; False for the policy's own.

    Attributes:
        model: see above.
        parameters: what is trained.
        updates: optimiser steps so far.
        steps: training steps so far.
    """

    def __init__(
        self,
        learner: Learner,
        model: Policy,
        lr: float | None,
        *,
        times: float = 1.0,
        schedule: str | None = None,
        head: nn.Module | None = None,
        learns_layers: bool = True,
    ) -> None:
        super().__init__(learner)
        self.model, self._lr, self._times, self._head = model, lr, times, head
        self._schedule = schedule
        self._clock = LrClock(self._total_updates, learner.config.warmup_steps)
        self.updates = self.steps = 0
        # Before the optimiser: AdamW's means then lie like the shards.
        model.shard(learner.ranks)
        weights = model.model.parameters() if learns_layers else []
        self._layers = [p for p in weights if p.requires_grad]
        # The head's parameters last, as the state of a checkpoint has them.
        self.parameters = [*self._layers, *([] if head is None else head.parameters())]
        config = learner.config
        self.optimizer = torch.optim.AdamW(
            self.parameters, self.lr, betas=config.betas, weight_decay=config.weight_decay
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update."""
        config = self.learner.config  # of this stage
        lr = self._lr or self._times * config.lr
        return scheduled_rate(lr, self._schedule or config.schedule, self._clock, self.updates)

    def begin_schedule(self, left: int, **others: Any) -> None:
        self._clock = self._clock.begin_again(self.updates, left, **others)

    @property
    def _total_updates(self) -> int:
        return self.learner.config.total_updates

    def clip_gradient(self) -> float:
        """Clip the gradient as the policy's is clipped; returns its norm before."""
        clip = self.learner.config.grad_clip
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, clip))

    def learns(self, mini: Batch) -> bool:
        return bool(mini.completion_mask.any())

    def backward(self, mini: Batch) -> dict[str, float]:
        """Add the gradient of an update's loss, and clip it as the policy's is clipped.

        Args:
            mini: with what the loss reads.
        """
        # Rows without a trained token have no loss, and do not count in plans.
        rows = mini.completion_mask.any(dim=1).nonzero().flatten().tolist()
        batch, sums = mini.part(rows), dict[str, Tensor]()
        for indices, counts in self.model.plan(batch.rows):
            loss, logged = self.micro_loss(batch.part(indices).on(self.model.device), batch)
            # A pass that does not count: shards are gathered by it all the same.
            (loss * counts).backward()
            for name, value in logged.items():
                sums[name] = sums.get(name, 0.0) + value.detach() * counts
        numbers = self.learner.ranks.sum(torch.stack(list(sums.values()))).tolist()
        norm = {f"{self.name}_grad_norm": self.clip_gradient()}
        return dict(zip(sums, numbers, strict=True)) | norm

    def micro_loss(self, micro: Batch, whole: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's share of the loss, with its gradient, and of what is logged.

        Args:
            micro: on the model's device.
            whole: the rows of the update that are trained on, for the denominators.
        """
        raise NotImplementedError

    def step(self) -> None:
        """Make an optimiser step."""
        # By the part's own count: it may have made updates while the policy was held.
        self.optimizer.param_groups[0]["lr"] = self.lr
        self.optimizer.step()
        self.updates += 1

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> StateDict:
        return {
            "layers": [p.detach() for p in self._layers],
            "head": {} if self._head is None else self._head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counts": [self.updates, self.steps],
            # Beyond the settings' number, which a resumed run may change.
            "clock": {**asdict(self._clock), "left": self._clock.left - self._total_updates},
        }

    def load(self, state: StateDict) -> None:
        """Continue from what `state` returned.

        Args:
            state: what it returned.

        Raises:
            DataError: it is of a model with other layers.
        """
        if len(state["layers"]) != len(self._layers):
            raise DataError(
                f"this checkpoint's {self.name} has another backbone; give a new folder"
            )
        ranks = self.learner.ranks
        with torch.no_grad():
            # Copied into the layers: the optimiser and the root hold these tensors.
            for mine, saved_layer in zip(self._layers, state["layers"], strict=True):
                mine.copy_(ranks.spread(saved_layer, mine))
        if self._head is not None:
            self._head.load_state_dict(ranks.spread(state["head"], self._head.state_dict()))
        ranks.load_optimizer(self.optimizer, state["optimizer"], self.parameters)
        self.updates, self.steps = state["counts"]
        if clock := state.get("clock"):  # not in checkpoints of before
            self._clock = LrClock(**{**clock, "left": clock["left"] + self._total_updates})
