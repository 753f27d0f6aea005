"""The sampler inside the trainer's own process: any causal language model of transformers.

A prompt is read once for all its rollouts, and a rollout that is finished leaves the batch at once.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from rlvr.errors import UsageError
from rlvr.samplers.decoding import Decoding, Drawn, Slot, end_events
from rlvr.samplers.protocol import Context, Sample, Sampling, Tokenized, cut, is_token_ids
from rlvr.samplers.tokenization import Codec
from rlvr.types import Prompt

__all__ = ["LocalSampler"]


class LocalSampler:
    """A `Sampler` over a transformers model in this process.

    A rollout ends with an end token (of the model's generation config, or the tokenizer's), with a stop text, or at
    its limit; only then is it truncated.  `completion_ids` keep the end token and the tokens of the stop text, for the
    policy drew them and learns from them; `text` has neither, as with vLLM.  A verifier that wants to see a closing
    tag must not have it as stop text.

    Weights that are synced while `generate` runs make rollouts of mixed weights, which carry the older version.

    Args:
        model: shared with the trainer, unless there is a `dtype`.
        codec: prompts to tokens, and which tokens end a completion.
        dtype: keep a copy of the weights in this type, which only `sync` changes.  Faster where the trainer's are
            float32 and the device prefers bfloat16; logprobs then differ from the trainer's by rounding, which
            `rlvr.algo.corrections` is for.
        autocast: compute in this type, as the trainer does.
        max_rows: rollouts that are drawn side by side.  Their keys and values are what takes the memory.
        version: of the weights.

    Raises:
        UsageError: `max_rows` below 1, or a model without `past_key_values`.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        *,
        dtype: torch.dtype | None = None,
        autocast: torch.dtype | None = None,
        max_rows: int = 256,
        version: int = 0,
    ) -> None:
        if max_rows < 1:
            raise UsageError(f"max_rows is {max_rows}; it must be at least 1")
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            raise UsageError(
                f"{type(model).__name__} keeps its state in its own way, not in past_key_values as attention does; the "
                "local sampler cannot draw from it, so use another backend"
            )
        self.model = model if dtype is None else _copied(model, dtype)
        self.codec, self.autocast, self.max_rows, self.version = codec, autocast, max_rows, version
        self._shared = dtype is None
        self._events: dict[tuple[str, ...], Tensor] = {}

    def generate(
        self,
        prompts: Sequence[Context],
        n: int,
        sampling: Sampling,
        seeds: Sequence[Sequence[int]],
        *,
        limits: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int, Sample]]:
        """See `Sampler.generate`.  Rollouts come out as they finish, `max_rows` after `max_rows`.

        A rollout depends on its prompt and seed alone, up to the last bit of the logits: see `samplers.token_sampling`.

        Raises:
            UsageError: a prompt and its limit are longer than the model's positions.
            RlvrError: the model's logits are not finite.
        """
        ids = [list(prompt) if is_token_ids(prompt) else self.encode(cast(Prompt, prompt)) for prompt in prompts]
        most = [sampling.max_tokens if limits is None else min(limits[p], sampling.max_tokens) for p in range(len(ids))]
        self._refuse(ids, most)
        by_length = sorted(range(len(ids)), key=lambda p: len(ids[p]))  # side by side with little padding
        slots = [Slot(p, g, ids[p], most[p], seeds[p][g]) for p in by_length for g in range(n)]
        version = self.version
        for start in range(0, len(slots), self.max_rows):
            decoding = self._decoding(slots[start : start + self.max_rows], sampling)
            while decoding.slots:
                for drawn in decoding.advance():
                    yield drawn.slot.prompt, drawn.slot.rollout, self._sample(drawn, sampling.stop, version)

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> list[int]:
        """See `Codec.encode`."""
        return self.codec.encode(prompt, after)

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Codec.decode`."""
        return self.codec.decode(completion_ids)

    def sync(self, state: Mapping[str, Tensor] | None, version: int) -> None:
        """The weights are `version` from now on.

        Args:
            state: None where the trainer's own module is sampled from, whose weights are new already.  Otherwise a
                state dict, which is copied in.
            version: of the new weights.

        Raises:
            UsageError: this sampler has weights of its own, and there is no state.
        """
        if state is not None:
            self.model.load_state_dict(state)
        elif not self._shared:
            raise UsageError("this sampler has weights of its own: say sync(policy.model.state_dict(), version)")
        self.version = version

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own logprobs of given completions, got as in generation: token by token, with the cache.

        For the canary: they must equal those of `Policy.logprobs`.
        """
        found: list[list[float]] = [[] for _ in rows]
        slots = [Slot(i, 0, r.prompt_ids, len(r.completion_ids), 0, r.completion_ids) for i, r in enumerate(rows)]
        decoding = self._decoding([slot for slot in slots if slot.limit], Sampling(max_tokens=1))
        while decoding.slots:
            for drawn in decoding.advance():
                found[drawn.slot.prompt] = drawn.model_logprobs
        return found

    def _decoding(self, slots: Sequence[Slot], sampling: Sampling) -> Decoding:
        if sampling.stop not in self._events:
            self._events[sampling.stop] = end_events(self.model, self.codec, sampling.stop)
        return Decoding(self.model, self.codec, slots, sampling, self._events[sampling.stop], self.autocast)

    def _sample(self, drawn: Drawn, stop: Sequence[str], version: int) -> Sample:
        return Sample(
            cut(self.decode(drawn.completion_ids), stop),
            drawn.slot.prompt_ids,
            drawn.completion_ids,
            drawn.logprobs,
            drawn.model_logprobs,
            truncated=not drawn.ended,
            weights_version=version,
        )

    @property
    def positions(self) -> int | None:
        """The most tokens that prompt and completion may have together; None where the model names none."""
        found: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found

    def _refuse(self, ids: Sequence[Sequence[int]], most: Sequence[int]) -> None:
        positions = self.positions
        for p, (prompt_ids, limit) in enumerate(zip(ids, most, strict=True)):
            if limit < 1 or not prompt_ids:
                raise UsageError(f"prompt {p} has {len(prompt_ids)} tokens and limit {limit}; each must be at least 1")
            if positions is not None and len(prompt_ids) >= positions:
                raise UsageError(
                    f"prompt {p} has {len(prompt_ids)} tokens and the model {positions} positions: no room is left for "
                    "a completion, so shorten the prompt, or choose a model with more"
                )
            if positions is not None and len(prompt_ids) + limit > positions:
                raise UsageError(
                    f"prompt {p} has {len(prompt_ids)} tokens and may get {limit} more, and the model has {positions} "
                    f"positions; set max_tokens to {positions - len(prompt_ids)} or less, or shorten the prompt"
                )


def _copied(model: Any, dtype: torch.dtype) -> Any:
    """The model again with its weights in this type; buffers, such as rotary frequencies, keep theirs."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    for parameter in twin.parameters():
        parameter.data = parameter.data.to(dtype)
    return twin
