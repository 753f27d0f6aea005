"""What TRL's GRPOTrainer computes while it trains, kept without a change of it: for the referee and for recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["watch"]


def watch(trainer: Any, on_update: Callable[[list[tuple[Any, Any]]], None]) -> None:
    """Call a function before each optimiser step with what each micro-batch's loss read, and its
    log-probabilities.

    These have kept their gradient, ∂loss / ∂log-probability.

    Args:
        trainer: before `train`.
        on_update: gets (inputs, log-probabilities) of each micro-batch.
    """
    from transformers import TrainerCallback

    seen: list[tuple[Any, Any]] = []
    inputs: list[Any] = [None]
    loss, logprobs = trainer._compute_loss, trainer._get_per_token_logps_and_entropies

    def compute_loss(model: Any, given: Any) -> Any:
        inputs[0] = given
        return loss(model, given)

    def compute_logprobs(*args: Any, **more: Any) -> Any:
        computed = logprobs(*args, **more)
        if computed[0].requires_grad:
            computed[0].retain_grad()
            seen.append((inputs[0], computed[0]))
        return computed

    class Cut(TrainerCallback):  # type: ignore[misc]  # of a package that may be absent
        def on_pre_optimizer_step(self, *args: Any, **more: Any) -> None:
            update, seen[:] = list(seen), []
            if update:
                on_update(update)

    trainer._compute_loss = compute_loss
    trainer._get_per_token_logps_and_entropies = compute_logprobs
    trainer.add_callback(Cut())
