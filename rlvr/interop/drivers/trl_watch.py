"""What TRL's GRPOTrainer computes while it trains, kept without a change of it: for the
referee and for recorders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn
    from trl import GRPOTrainer

__all__ = ["Update", "watch_updates"]

Update: TypeAlias = "list[tuple[Mapping[str, Tensor], Tensor]]"
"""(inputs, log-probabilities) of each micro-batch of an optimiser step."""


def watch_updates(trainer: GRPOTrainer, on_update: Callable[[Update], None]) -> None:
    """Call a function before each optimiser step with what each micro-batch's loss read, and its
    log-probabilities.

    These have kept their gradient, ∂loss / ∂log-probability.

    Args:
        trainer: before `train`.
        on_update: gets (inputs, log-probabilities) of each micro-batch.
    """
    from transformers import TrainerCallback

    micro_batches: Update = []
    inputs: list[Mapping[str, Tensor]] = [{}]
    loss, logprobs = trainer._compute_loss, trainer._get_per_token_logps_and_entropies

    def compute_loss(model: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        inputs[0] = given
        return loss(model, given)

    def compute_logprobs(*args: object, **more: object) -> tuple[Tensor, ...]:
        computed = logprobs(*args, **more)
        if computed[0].requires_grad:
            computed[0].retain_grad()
            micro_batches.append((inputs[0], computed[0]))
        return computed

    class Cut(TrainerCallback):  # type: ignore[misc]  # of a package that may be absent
        def on_pre_optimizer_step(self, *args: object, **more: object) -> None:
            update, micro_batches[:] = list(micro_batches), []
            if update:
                on_update(update)

    trainer._compute_loss = compute_loss
    trainer._get_per_token_logps_and_entropies = compute_logprobs
    trainer.add_callback(Cut())
