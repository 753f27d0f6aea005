"""The sampler in the trainer's process, for any causal language model of transformers.

The keys and values of a prompt are computed once for all its rollouts, and a finished rollout leaves the batch at once.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from rlvr.errors import UsageError
from rlvr.samplers.decoding import DecodeRequest, DecodeResult, Decoding, possible_end_tokens
from rlvr.samplers.protocol import Context, Sample, Sampling, Tokenized, cut_at_stop, is_token_ids
from rlvr.samplers.tokenization import Tokenization
from rlvr.types import Prompt
from rlvr.validate import require_whole

__all__ = ["LocalSampler"]


class LocalSampler:
    """A `Sampler` over a transformers model in this process.

    A rollout ends with an end token (of the model's generation config, or the tokenizer's), with a stop text, or at
    its limit; at its limit it is truncated.  `completion_ids` include the end token and the tokens of the stop text,
    as the policy sampled them and learns from them; `text` has neither, as in vLLM.  If a verifier needs a closing
    tag, do not use that tag as a stop text.

    If weights are synced while `generate` runs, its rollouts come from mixed weights and carry the older version.

    Args:
        model: shared with the trainer, unless `dtype` is given.
        tokenization: prompts to tokens, and the tokens that end a completion.
        dtype: keep a copy of the weights in this type, which only `sync` changes; None to share the trainer's.  Faster
            if the trainer's are float32 and the device prefers bfloat16; logprobs then differ from the trainer's by
            rounding, for which there is `rlvr.algo.corrections`.
        autocast: compute in this type, as the trainer does; None for that of the weights.
        max_rows: most rollouts sampled in parallel; their keys and values take memory.
        version: of the weights.

    Raises:
        UsageError: `max_rows` is below 1, or the model has no `past_key_values`.
    """

    def __init__(
        self,
        model: Any,
        tokenization: Tokenization,
        *,
        dtype: torch.dtype | None = None,
        autocast: torch.dtype | None = None,
        max_rows: int = 256,
        version: int = 0,
    ) -> None:
        require_whole("max_rows", max_rows, 1)
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            raise UsageError(
                f"{type(model).__name__} does not keep its state in past_key_values, as models with attention do, so "
                "the local sampler cannot use it; choose another model or sampler"
            )
        self.model = model if dtype is None else _copied(model, dtype)
        self.tokenization, self.autocast, self.max_rows, self.version = tokenization, autocast, max_rows, version
        self._shared = dtype is None
        self._end_tokens: dict[tuple[str, ...], Tensor] = {}  # by stop texts

    def generate(
        self,
        prompts: Sequence[Context],
        n: int,
        sampling: Sampling,
        seeds: Sequence[Sequence[int]],
        *,
        limits: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int, Sample]]:
        """See `Sampler.generate`.  Rollouts are sampled in batches of `max_rows`, and yielded as they finish.

        A rollout depends only on its prompt and its seed, up to the last bit of the logits: see
        `rlvr.samplers.token_sampling`.

        Raises:
            UsageError: a prompt with its limit is longer than the model's positions.
            RlvrError: the model's logits are not finite.
        """
        ids = [list(prompt) if is_token_ids(prompt) else self.encode(cast(Prompt, prompt)) for prompt in prompts]
        most = [sampling.max_tokens if limits is None else min(limits[p], sampling.max_tokens) for p in range(len(ids))]
        self._require_room(ids, most)
        by_length = sorted(range(len(ids)), key=lambda p: len(ids[p]))  # for little padding
        requests = [DecodeRequest(p, g, ids[p], most[p], seeds[p][g]) for p in by_length for g in range(n)]
        version = self.version
        for start in range(0, len(requests), self.max_rows):
            decoding = self._decoding(requests[start : start + self.max_rows], sampling)
            while decoding.requests:
                for result in decoding.advance():
                    yield result.request.prompt, result.request.rollout, self._sample(result, sampling.stop, version)

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> list[int]:
        """See `Tokenization.encode`."""
        return self.tokenization.encode(prompt, after)

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Tokenization.decode`."""
        return self.tokenization.decode(completion_ids)

    def sync(self, state: Mapping[str, Tensor] | None, version: int) -> None:
        """Use new weights.

        Args:
            state: None if the weights are shared with the trainer, and so are new already; otherwise a state dict,
                which is copied.
            version: of the new weights.

        Raises:
            UsageError: this sampler has a copy of the weights, and `state` is None.
        """
        if state is not None:
            self.model.load_state_dict(state)
        elif not self._shared:
            raise UsageError("this sampler has a copy of the weights; call sync(policy.model.state_dict(), version)")
        self.version = version

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, one list per row.

        They are computed as in generation, token by token with the cache.  The canary compares them with those of
        `Policy.logprobs`.

        Args:
            rows: prompts and completions.
        """
        found: list[list[float]] = [[] for _ in rows]
        requests = [
            DecodeRequest(i, 0, row.prompt_ids, len(row.completion_ids), 0, forced=row.completion_ids)
            for i, row in enumerate(rows)
            if len(row.completion_ids)
        ]
        decoding = self._decoding(requests, Sampling(max_tokens=1))
        while decoding.requests:
            for result in decoding.advance():
                found[result.request.prompt] = result.model_logprobs
        return found

    def _decoding(self, requests: Sequence[DecodeRequest], sampling: Sampling) -> Decoding:
        if sampling.stop not in self._end_tokens:
            self._end_tokens[sampling.stop] = possible_end_tokens(self.model, self.tokenization, sampling.stop)
        end_tokens = self._end_tokens[sampling.stop]
        return Decoding(self.model, self.tokenization, requests, sampling, end_tokens, self.autocast)

    def _sample(self, result: DecodeResult, stop: Sequence[str], version: int) -> Sample:
        return Sample(
            cut_at_stop(self.decode(result.completion_ids), stop),
            result.request.prompt_ids,
            result.completion_ids,
            result.logprobs,
            result.model_logprobs,
            truncated=not result.ended,
            weights_version=version,
        )

    @property
    def positions(self) -> int | None:
        """The most tokens of prompt and completion together; None if the model's config does not say."""
        found: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found

    def _require_room(self, ids: Sequence[Sequence[int]], most: Sequence[int]) -> None:
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
    """A copy of the model with its weights in this type; buffers, such as rotary frequencies, keep theirs."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    for parameter in twin.parameters():
        parameter.data = parameter.data.to(dtype)
    return twin
