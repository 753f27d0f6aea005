"""Settings of the update: learning rate, adapter, precision and memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from rlvr.errors import UsageError
from rlvr.train.config.readers import given
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ONE,
    POSITIVE,
    ZERO,
    Reader,
    Settings,
    TextList,
    one_of,
    or_none,
    setting,
    texts,
    two_numbers,
)
from rlvr.validate import require_number

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import ResolvedConfig

__all__ = ["OptimiserSettings"]

_Schedule = Literal["constant", "linear", "cosine"]
_Precision = Literal["fp32", "bf16"]
_Offload = Literal["cpu"]


_LORA: Final = given("lora_rank", "a LoRA adapter (--lora-rank)")
_SHARDS: Final = Reader(
    "algorithms whose weights are sharded, so of all but trust regions",
    lambda _, algorithm: algorithm.trust_region is None,
)


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings(Settings):
    """What is trained, and how a gradient becomes a step.

    Attributes:
        lr: Learning rate of AdamW.
        warmup_steps: Optimiser steps over which the learning rate rises from 0.
        schedule: Learning rate after the warm-up: constant, or falling to 0 at the last step
            (linear, cosine).
        betas: Decay rates of AdamW's running means of the gradient and of its square.
        weight_decay: Weight decay of AdamW.
        grad_clip: Largest norm of a gradient; longer ones are scaled down to it.
        lora_rank: Rank of a LoRA adapter, which is then trained instead of the weights.  None:
            train all weights.
        lora_alpha: The adapter's products are scaled by this over the rank.  None: twice the rank.
        lora_targets: Endings of the names of the layers that get an adapter, such as q_proj v_proj.
            None given: all linear layers but the head.
        precision: fp32, or bf16: compute in bfloat16 with float32 weights; with LoRA, the frozen
            weights are bfloat16.
        attention: Implementation of attention in transformers, such as sdpa, eager or
            flash_attention_2.  None: the model's default.
        packing: Put the rows of a micro-batch side by side instead of padding them, so that
            lengths that differ cost nothing; not together with prompts read once.
        gradient_checkpointing: Recompute layers in the backward pass: slower, but needs less
            memory.
        micro_tokens: Most tokens of a micro-batch, padding included.  Lower it if memory runs out
            in the update.
        tensor_parallel: Processes of torchrun that compute each layer together, each with some of
            its heads; it divides them, and rows are shared out over the rest.
        context_parallel: Processes of torchrun that read the same rows together, each some of their
            tokens, for rows too long for one device; it divides them, and rows, side by side as
            with packing, are shared out over the rest.
        device: Device of the model, such as cpu or cuda.  auto: a GPU if there is one.
        offload: cpu: shards of weights, gradients and optimiser rest in the machine's memory, and
            the optimiser's step is made there; a GPU holds a layer at a time.  For several
            processes on GPUs.
    """

    about = "learning rate, LoRA, precision, memory"

    lr: float = setting(1e-6, POSITIVE, usual=True)
    warmup_steps: int = setting(0, ZERO)
    schedule: _Schedule = setting("constant", one_of(_Schedule))
    betas: tuple[float, float] = setting(
        (0.9, 0.999), two_numbers("(0.9, 0.999)", rising=False, least=0, below=1)
    )
    weight_decay: float = setting(0.0, partial(require_number, least=0))
    grad_clip: float = setting(1.0, POSITIVE)
    lora_rank: int | None = setting(None, OPTIONAL_ONE, usual=True)
    lora_alpha: float | None = setting(None, or_none(POSITIVE), reader=_LORA)
    lora_targets: TextList = setting((), texts, reader=_LORA)
    precision: _Precision = setting("fp32", one_of(_Precision))
    attention: str | None = setting(None, may_change=True)
    packing: bool = setting(False, may_change=True)
    gradient_checkpointing: bool = setting(False, may_change=True)
    micro_tokens: int = setting(16384, ONE, may_change=True)
    tensor_parallel: int = setting(1, ONE, may_change=True)
    context_parallel: int = setting(1, ONE, may_change=True)
    device: str = setting("auto", may_change=True)
    offload: _Offload | None = setting(
        None, one_of(_Offload, or_none=True), reader=_SHARDS, may_change=True
    )

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse precisions, adapters and recomputation where what is trained cannot have them.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        if (config.attention or "").startswith("flash_attention") and config.precision != "bf16":
            raise UsageError(
                f"attention is {config.attention!r}, which computes in half precision only, and "
                f"precision is {config.precision!r}; set precision to 'bf16'"
            )
        if config.algorithm.mixing is not None and config.lora_rank is not None:
            raise UsageError(
                "mixing with lora_rank: a share of an adapter is not that share of the weights it "
                "stands for; train all weights, or use a reset"
            )
        undivided = "a LoRA adapter" if config.lora_rank is not None else ""
        undivided = "a trust region" if config.algorithm.trust_region is not None else undivided
        if config.tensor_parallel > 1 and undivided:
            raise UsageError(
                f"tensor_parallel is {config.tensor_parallel}, and {undivided} needs whole layers; "
                "leave tensor_parallel out: several processes share the weights without it too"
            )
        if config.tensor_parallel > 1 and config.offload is not None:
            raise UsageError(
                f"tensor_parallel is {config.tensor_parallel}, and offload is {config.offload!r}, "
                "which has not been tried together; give one of them"
            )
        if config.context_parallel > 1 and (
            config.tensor_parallel > 1 or undivided.endswith("region")
        ):
            conflict = undivided if undivided.endswith("region") else "tensor_parallel"
            raise UsageError(
                f"context_parallel is {config.context_parallel}, and beside {conflict} rows are "
                "not divided; give one of them"
            )
        if config.algorithm.trust_region is None:
            return
        if config.precision != "fp32":
            raise UsageError(
                f"precision is {config.precision!r}, in which the conjugate gradients of a trust "
                "region do not converge; set precision to 'fp32', or choose 'ppo_kl'"
            )
        if config.gradient_checkpointing:
            raise UsageError(
                "gradient_checkpointing with a trust region: layers that are computed again have "
                "no second derivatives; lower micro_tokens instead"
            )
