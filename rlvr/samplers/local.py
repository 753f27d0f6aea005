"""The sampler in the trainer's process, for any causal language model of transformers.

The keys and values of a prompt are computed once for all its rollouts, and the next request takes a
finished rollout's place in the batch at once.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from rlvr.errors import UsageError
from rlvr.samplers.decoding import DecodeResult, Decoding, possible_end_tokens
from rlvr.samplers.preallocated_cache import Room, cache_argument, preallocated_cache
from rlvr.samplers.protocol import (
    MAX_TOKENS_IN_FLIGHT,
    Begun,
    Request,
    Sample,
    Sampling,
    Tokenized,
    cut_at_stop,
)
from rlvr.samplers.tokenization import Tokenization, TokenSampler
from rlvr.validate import require_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LocalSampler"]

_STEPS: Final = 16  # most decode steps of one poll


class LocalSampler(TokenSampler):
    """A `Sampler` over a transformers model in this process.

    A rollout ends with an end token (of the model's generation config, or the tokenizer's), with a
    stop text, or at its limit; at its limit it is truncated.  `completion_ids` include the end
    token and the tokens of the stop text, as the policy sampled them and learns from them; `text`
    has neither, as in vLLM.  If a verifier needs a closing tag, do not use that tag as a stop text.

    Requests begin in the order in which they are submitted, those with other settings than the ones
    that run after these.  If weights are synced meanwhile, unfinished rollouts go on with the new
    ones: their keys and values of the old ones are dropped, and their tokens so far are read anew
    (as in AReaL, arXiv:2505.24298, section 4).

    Args:
        model: shared with the trainer, unless `dtype` is given.
        tokenization: prompts to tokens, and the tokens that end a completion.
        dtype: keep a copy of the weights in this type, which only `sync` changes; None to share the
            trainer's.  Faster if the trainer's are float32 and the device prefers bfloat16;
            logprobs then differ from the trainer's by rounding, for which there is
            `rlvr.algo.corrections`.
        autocast: compute in this type, as the trainer does; None for that of the weights.
        max_rows: most rollouts sampled in parallel.
        max_tokens_in_flight: most tokens whose keys and values are kept: rows × the longest of
            them, prompts that wait included.  With long rollouts there are fewer rows than
            `max_rows`.
        version: of the weights.

    Attributes:
        steps: decode steps so far, see `Sampler`.
        tokens: sampled so far, see `Sampler`.
        poll_steps: most decode steps of one poll.

    Raises:
        UsageError: a number is below 1; or the model keeps its state in a way that this sampler
            does not know.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenization: Tokenization,
        *,
        dtype: torch.dtype | None = None,
        autocast: torch.dtype | None = None,
        max_rows: int = 256,
        max_tokens_in_flight: int = MAX_TOKENS_IN_FLIGHT,
        version: int = 0,
    ) -> None:
        require_whole("max_rows", max_rows, 1)
        require_whole("max_tokens_in_flight", max_tokens_in_flight, 1)
        if not cache_argument(model):
            raise UsageError(
                f"{type(model).__name__} takes neither cache nor past_key_values, as models with "
                "attention do, so the local sampler cannot use it; choose another model or sampler"
            )
        preallocated_cache(model.config, Room())  # refuses layers that it does not know
        self.model = model if dtype is None else _copy_model(model, dtype)
        self.tokenization, self.autocast, self.version = tokenization, autocast, version
        self.max_rows, self.max_tokens_in_flight = max_rows, max_tokens_in_flight
        self.steps = self.tokens = 0
        self.poll_steps = _STEPS
        self._shared = dtype is None
        self._waiting: deque[Request] = deque()  # those that the decoding below does not have yet
        # None while there is nothing to do: it holds much memory
        self._decoding: Decoding | None = None
        self._end_tokens: dict[tuple[str, ...], Tensor] = {}  # by stop texts

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`.

        A rollout depends only on its context and its seed, up to the last bit of the logits: see
        `rlvr.samplers.token_sampling`.

        Args:
            request: what is asked for.

        Raises:
            UsageError: context and limit together are longer than the model's positions, or than
                `max_tokens_in_flight`.
        """
        self._require_room(request)
        self._waiting.append(request)

    def poll(self) -> list[tuple[Hashable, Sample]]:
        """See `Sampler.poll`.  Decodes until a rollout is finished, but at most `poll_steps` steps.

        Raises:
            RlvrError: the model's logits are not finite.
        """
        if self._decoding is None and self._waiting:
            self._decoding = self._new_decoding(self._waiting[0].sampling)
        decoding = self._decoding
        if decoding is None:
            return []
        # Requests with other stop texts wait: end tokens are looked up by these.
        while self._waiting and self._waiting[0].sampling.stop == decoding.stop:
            decoding.add(self._waiting.popleft())
        before, tokens = decoding.steps, decoding.tokens
        # Up to the next multiple: what is finished after how many
        # steps then depends on requests alone, not on when polls came.
        results = decoding.advance(self.poll_steps - decoding.steps % self.poll_steps)
        self.steps += decoding.steps - before
        self.tokens += decoding.tokens - tokens
        if not len(decoding):
            self._decoding = None
        return [(result.request.id, self._sample(result)) for result in results]

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        dropped = set(ids)
        self._waiting = deque(request for request in self._waiting if request.id not in dropped)
        if self._decoding is not None:
            self._decoding.abort(dropped)
            self._decoding = self._decoding if len(self._decoding) else None

    def take_back(self, ids: Iterable[Hashable]) -> dict[Hashable, Begun]:
        """Drop requests and return the tokens that they have, see `Sampler`.

        Args:
            ids: of requests.
        """
        dropped = set(ids)
        returned = [request for request in self._waiting if request.id in dropped]
        if self._decoding is not None:
            returned += self._decoding.take_back(dropped)
        self.abort(dropped)
        return {request.id: request.begun for request in returned if request.begun is not None}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Use new weights: copy them, unless they are the trainer's and shared, and so are here
        already.

        Args:
            weights: see `Sampler.sync`.
            version: of the new weights.

        Raises:
            UsageError: they are not the model's, or not all; or this sampler shares the trainer's,
                and these are others.
        """
        own_weights = self.model.state_dict()
        # By place in memory: tied weights are one, and come
        # once. Reversed, so that the first name stays.
        missing = {value.data_ptr(): name for name, value in reversed(own_weights.items())}
        for bucket in weights:
            for name, value in bucket.items():
                if name not in own_weights or own_weights[name].shape != value.shape:
                    raise UsageError(
                        f"{name!r} is not one of the model's weights, or of another shape"
                    )
                # A shared sampler has nothing to copy, but
                # must notice the weights of another model.
                if self._shared and own_weights[name].data_ptr() != value.data_ptr():
                    raise UsageError(
                        f"this sampler shares the trainer's weights, and {name!r} is not among "
                        "those given; give the weights of the same model, or make a sampler with "
                        "its own: policy.sampler(dtype=torch.float32)"
                    )
                if not self._shared:
                    own_weights[name].copy_(value)
                missing.pop(own_weights[name].data_ptr(), None)
        if missing:
            raise UsageError(f"the weights lack {min(missing.values())!r}; give all of the model's")
        self.version = version
        if self._decoding is not None:
            # In front and in their order: what had a row goes on first.
            self._waiting.extendleft(reversed(self._decoding.take_back()))
            self._decoding = None

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, one list per row.

        They are computed as in generation, token by token with the cache.  The canary compares them
        with those of `Policy.logprobs`.

        Args:
            rows: prompts and completions.
        """
        by_row: list[list[float]] = [[] for _ in rows]
        sampling = Sampling(max_tokens=1)
        decoding = self._new_decoding(sampling)
        for i, row in enumerate(rows):
            if len(row.completion_ids):
                request = Request(i, tuple(row.prompt_ids), sampling, seed=0, limit=1, rollout=i)
                decoding.add(request, forced=row.completion_ids)
        while len(decoding):
            for result in decoding.advance(_STEPS):
                by_row[result.request.rollout] = result.model_logprobs
        return by_row

    def _new_decoding(self, sampling: Sampling) -> Decoding:
        if sampling.stop not in self._end_tokens:
            self._end_tokens[sampling.stop] = possible_end_tokens(
                self.model, self.tokenization, sampling.stop
            )
        return Decoding(
            self.model,
            self.tokenization,
            sampling,
            self._end_tokens[sampling.stop],
            autocast=self.autocast,
            max_rows=self.max_rows,
            max_tokens=self.max_tokens_in_flight,
            version=self.version,
        )

    def _sample(self, result: DecodeResult) -> Sample:
        request = result.request
        text = cut_at_stop(self.decode(result.completion_ids), request.sampling.stop)
        return Sample(
            self.beginning(request.context) + text,
            list(request.context),
            result.completion_ids,
            result.logprobs,
            truncated=not result.ended,
            weights_version=min(result.versions),
            model_logprobs=result.model_logprobs,
            token_versions=result.versions if len(set(result.versions)) > 1 else None,
        )

    @property
    def positions(self) -> int | None:
        """The most tokens of prompt and completion together; None if the model's config does not
        say."""
        positions_of_model: int | None = getattr(
            self.model.config.get_text_config(), "max_position_embeddings", None
        )
        return positions_of_model

    def _require_room(self, request: Request) -> None:
        length, limit, positions = len(request.context), request.limit, self.positions
        if limit < 1 or not length:
            raise UsageError(
                f"request {request.id} has {length} tokens and limit {limit}; each must be at "
                f"least 1"
            )
        if positions is not None and length >= positions:
            raise UsageError(
                f"request {request.id} has {length} tokens and the model {positions} positions: no "
                "room is left for a completion, so shorten the prompt, or choose a model with more"
            )
        if positions is not None and length + limit > positions:
            raise UsageError(
                f"request {request.id} has {length} tokens and may get {limit} more, and the model "
                f"has {positions} positions; set max_tokens to {positions - length} or less, or "
                "shorten the prompt"
            )
        if length + limit > self.max_tokens_in_flight:
            raise UsageError(
                f"request {request.id} has {length} tokens and may get {limit} more, and "
                f"max_tokens_in_flight is "
                f"{self.max_tokens_in_flight}; raise it, lower max_tokens, or shorten the prompt"
            )


def _copy_model(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy of the model with its weights in this type; buffers, such as rotary frequencies, keep
    theirs."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    for parameter in twin.parameters():
        parameter.data = parameter.data.to(dtype)
    return twin
