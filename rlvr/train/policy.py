"""The model that is trained, and what it thinks of completions.  Axes: B rows, T completion tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from rlvr.errors import UsageError
from rlvr.samplers.decoding import evaluating
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Tokenized
from rlvr.samplers.tokenization import Codec, end_ids
from rlvr.train.batches import Padded, buckets, pad, ragged_to_padded
from rlvr.train.logprobs import Logits, token_logprobs
from rlvr.train.prompt_sharing import can_share, shared_states, worth_sharing

__all__ = ["Policy"]


class Policy:
    """A causal language model of transformers with its tokenizer.

    Dropout and the jitter of routers are switched off for good: with them, the weights that sampled would disagree
    with themselves.

    Args:
        model: on its device, in the type that its weights are trained in.
        tokenizer: of transformers.
        chat: text prompts become a user message (see `Codec`).
        autocast: compute in this type, such as torch.bfloat16 over float32 weights; None computes in theirs.
        gradient_checkpointing: recompute the layers in backward: a third more time, far less memory.
        max_tokens: of a micro-batch, padding included.
        overhead_tokens: what starting a micro-batch costs, in tokens (see `buckets`).

    Raises:
        UsageError: the model makes its logits in a way that the blockwise head does not know.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        chat: bool = False,
        autocast: torch.dtype | None = None,
        gradient_checkpointing: bool = False,
        max_tokens: int = 16384,
        overhead_tokens: int = 256,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.codec = Codec(tokenizer, end_ids(model, tokenizer), chat=chat)
        self.autocast, self.max_tokens, self.overhead_tokens = autocast, max_tokens, overhead_tokens
        _silence(model)
        self._logits = _how_logits_are_made(model)
        if gradient_checkpointing:
            newer = hasattr(model, "activation_checkpointing_enable")  # where it is there, the older name warns
            enable = model.activation_checkpointing_enable if newer else model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        self._shares_prompts = not gradient_checkpointing and can_share(model)  # its layers keep no cache otherwise
        model.train(gradient_checkpointing)  # layers checkpoint in training mode alone; nothing else differs in it

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        attention: str | None = None,
        **options: Any,
    ) -> Self:
        """From a folder that `save` or `save_pretrained` wrote, or a model id of the hub.

        Args:
            name: folder or id.
            dtype: of the weights.  Train in float32, with `autocast` for speed: in bfloat16 small steps are lost.
            device: where the model goes.
            attention: transformers' name of an implementation, such as "sdpa" or "flash_attention_2".
            options: see `Policy`.

        Raises:
            UsageError: no such model.
        """
        if (path := Path(name)).is_dir() and not (path / "config.json").is_file():
            raise UsageError(f"{path} has no config.json; give the folder of a saved transformers model, or a hub id")
        chosen = {} if attention is None else {"attn_implementation": attention}
        try:
            with _without_bars() if path.is_dir() else nullcontext():  # a download keeps them
                tokenizer = AutoTokenizer.from_pretrained(name)
                model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **chosen)
        except OSError as error:  # transformers says so in ten lines, of which the first names what is missing
            why = str(error).strip().splitlines()[0]
            raise UsageError(
                f"cannot load the model {str(name)!r}, neither a folder here nor from the hub: {why}"
            ) from error
        return cls(model.to(device), tokenizer, **options)

    def save(self, folder: str | Path) -> None:
        """Weights, configs and tokenizer, as `load` and every other user of transformers read them."""
        with _without_bars():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    def sampler(self, **options: Any) -> LocalSampler:
        """Draws from these very weights, computing as the policy does; for the options see `LocalSampler`."""
        return LocalSampler(self.model, self.codec, **{"autocast": self.autocast, **options})

    def micro_batches(self, rows: Sequence[Tokenized]) -> list[list[int]]:
        """Indices of the rows in each micro-batch, within the token budget and with little padding."""
        lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
        return buckets(lengths, max_tokens=self.max_tokens, overhead_tokens=self.overhead_tokens)

    @overload
    def logprobs(
        self, rows: Sequence[Tokenized], temperature: float = 1.0, *, with_entropy: Literal[False] = False
    ) -> Float[Tensor, "B T"]: ...

    @overload
    def logprobs(
        self, rows: Sequence[Tokenized], temperature: float = 1.0, *, with_entropy: Literal[True]
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]: ...

    def logprobs(
        self, rows: Sequence[Tokenized], temperature: float = 1.0, *, with_entropy: bool = False
    ) -> Float[Tensor, "B T"] | tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probabilities of the completions' tokens under softmax(logits / temperature), in rows' order.

        T is the longest completion; behind the end of a shorter one stand zeros.  Rows go through the model in
        micro-batches.  With gradients on, all of them are kept until backward: to hold one at a time, call this for
        each of `micro_batches` and go backward in between.

        Args:
            rows: rollouts or samples.
            temperature: that the completions were drawn at.
            with_entropy: return (logprobs, entropy in nats at each token) instead; both carry gradients.

        Raises:
            UsageError: no rows, or a row without a prompt.
        """
        if not rows:
            raise UsageError("there are no rows to score; give at least one")
        T = max(len(row.completion_ids) for row in rows)
        parts = self.micro_batches(rows)
        found = [self._of_batch([rows[i] for i in part], T, temperature, with_entropy) for part in parts]
        place = torch.tensor([i for part in parts for i in part], device=self.device).argsort()
        logprobs, *entropy = (torch.cat(values)[place] for values in zip(*found, strict=True))
        return (logprobs, entropy[0]) if with_entropy else logprobs

    def _of_batch(self, rows: Sequence[Tokenized], width: int, temperature: float, with_entropy: bool) -> list[Tensor]:
        """[rows, width] of one micro-batch: logprobs, and entropies if asked for."""
        padded = pad(rows, device=self.device)
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            head = self.model.get_output_embeddings()
            logprobs, entropy = token_logprobs(
                self._states(rows, padded),
                head.weight,
                padded.targets,
                bias=getattr(head, "bias", None),
                logits=self._logits,
                temperature=temperature,
                with_entropy=with_entropy,
            )
        return [ragged_to_padded(values, padded, width) for values in (logprobs, entropy) if values is not None]

    def _states(self, rows: Sequence[Tokenized], padded: Padded) -> Float[Tensor, "N H"]:
        """The last hidden states that predict the completions' tokens."""
        if self._shares_prompts and worth_sharing(rows):
            return shared_states(self.model, rows, padded)
        states: Tensor = self.model.base_model(input_ids=padded.input_ids, use_cache=False).last_hidden_state
        return states.flatten(0, 1).index_select(0, padded.sources)


@contextmanager
def _without_bars() -> Iterator[None]:
    """transformers shows a bar for every file it reads or writes, in the midst of a run's own lines."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _silence(model: nn.Module) -> None:
    """Modules of dropout, and the rates of dropout and jitter that layers keep as plain numbers."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("dropout" in name or "jitter" in name):
                setattr(module, name, 0.0)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _how_logits_are_made(model: Any) -> Logits:
    """What stands between the head and the logits, found by trying what the config names on a few tokens.

    What the head says is made large for it, so that a cap shows even where a fresh model's logits are near 0.  A model
    that does anything else, now or in a later version of transformers, is refused rather than misread.
    """
    config = model.config.get_text_config()
    head = model.get_output_embeddings()
    ids = torch.arange(4, device=model.device).remainder(config.vocab_size).unsqueeze(0)
    with evaluating(model):
        states = getattr(model.base_model(input_ids=ids, use_cache=False), "last_hidden_state", None)
        if head is not None and states is not None:
            factor = 100.0 / float(head(states).abs().max().clamp(min=1e-6))
            hook = head.register_forward_hook(lambda _, inputs, out: out * factor)
            wanted, plain = model(input_ids=ids, use_cache=False).logits.float(), head(states).float()
            hook.remove()
            rounding = 8 * torch.finfo(states.dtype).eps * plain.abs().max()
            for candidate in _candidates(config):
                made = candidate.apply_(plain.clone())
                if made.shape == wanted.shape and (made - wanted).abs().max() <= rounding:
                    return candidate
    raise UsageError(
        f"{type(model).__name__} makes its logits from the last hidden states in a way that rlvr does not know, so "
        "their log-probabilities would be wrong; use a model with a linear head, scaled or soft-capped at most"
    )


def _candidates(config: Any) -> list[Logits]:
    """Plain; Gemma's cap; the factors of Cohere and Falcon-H1 and the divisor of Granite."""
    cap = getattr(config, "final_logit_softcapping", None)
    factors = [getattr(config, name, None) for name in ("logit_scale", "lm_head_multiplier")]
    divisor = getattr(config, "logits_scaling", None)
    scales = [1.0, *(float(f) for f in factors if f), *([1.0 / divisor] if divisor else [])]
    return [Logits(scale, softcap) for softcap in ([cap, None] if cap else [None]) for scale in scales]
