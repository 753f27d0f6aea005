"""Batched decoding, one token per row and step.  Axes: B unfinished rows, T tokens sampled, L tokens in the cache, V.

Row i of every tensor belongs to `requests[i]`.  When a row is finished, the last row takes its place in the tensors and
in the cache, so that a step computes unfinished rows only.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlvr.errors import RlvrError
from rlvr.samplers.preallocated_cache import drop_rows, is_preallocated, preallocated_cache, repeat_rows
from rlvr.samplers.protocol import Sampling
from rlvr.samplers.token_sampling import sample_tokens, uniforms
from rlvr.samplers.tokenization import Tokenization

__all__ = ["DecodeRequest", "DecodeResult", "Decoding", "evaluation_mode", "possible_end_tokens"]

_BLOCK: Final = 256  # steps for which random numbers and columns are made at a time


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A rollout to be sampled.

    Attributes:
        prompt: index of the prompt; requests with the same index share their prompt's keys and values.
        rollout: index among the rollouts of the prompt.
        prompt_ids: the tokens to continue.
        limit: most tokens of the completion, at least 1.
        seed: determines its random numbers.
        forced: tokens that are taken instead of sampled ones, `limit` of them; end tokens among them end nothing.
    """

    prompt: int
    rollout: int
    prompt_ids: Sequence[int]
    limit: int
    seed: int
    forced: Sequence[int] | None = None


class DecodeResult(NamedTuple):
    """A finished rollout.

    Attributes:
        request: what was asked for.
        ended: False if it was cut off at its limit.
        completion_ids: its tokens, the end token included, shape [T].
        logprobs: as in `Sample`.
        model_logprobs: as in `Sample`.
    """

    request: DecodeRequest
    ended: bool
    completion_ids: list[int]
    logprobs: list[float]
    model_logprobs: list[float]


class Decoding:
    """Samples a batch of rollouts.

    Prompts are padded on the left; prompts of one length need no attention mask.  Either all requests are forced, or
    none.

    Args:
        model: a causal language model of transformers.
        tokenization: its tokenizer and end tokens.
        requests: the rollouts; those of one prompt stand together.
        sampling: temperature, top-k, top-p, min-p and stop texts; its `max_tokens` is not used.
        end_tokens: [V] see `possible_end_tokens`.
        autocast: compute in this type; None for that of the weights.

    Attributes:
        requests: the unfinished ones.
    """

    def __init__(
        self,
        model: Any,
        tokenization: Tokenization,
        requests: Sequence[DecodeRequest],
        sampling: Sampling,
        end_tokens: Tensor,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.requests = list(requests)
        self._model, self._tokenization, self._sampling, self._end_tokens = model, tokenization, sampling, end_tokens
        self._autocast = autocast
        self._end_ids = tokenization.end_ids_with(sampling.stop)
        self._parameters = inspect.signature(model.forward).parameters
        self._step, self._next_limit = 0, min((request.limit for request in requests), default=0)
        self._rows: dict[str, Tensor] = {}  # all tensors with a row per request
        self._logits: Tensor | None = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def advance(self) -> list[DecodeResult]:
        """Decode until at least one rollout is finished; returns those, which are then no longer in `requests`.

        Raises:
            RlvrError: the model's logits are not finite.
        """
        kind = self._model.device.type
        with evaluation_mode(self._model), torch.autocast(kind, self._autocast, enabled=self._autocast is not None):
            if self._logits is None:
                self._read_prompts()
            while True:
                self._draw()
                if ended := self._ended():
                    results = self._remove(ended)
                    if self.requests:
                        self._read_token()
                    return results
                self._read_token()

    def _read_prompts(self) -> None:
        """Run the model on each prompt once; then make a row per request."""
        prompts = {request.prompt: request.prompt_ids for request in self.requests}
        row_of = {prompt: i for i, prompt in enumerate(prompts)}
        length = max(map(len, prompts.values()))
        ids = np.zeros((len(prompts), length), dtype=np.int64)
        seen = np.zeros_like(ids)
        for row, prompt_ids in zip(range(len(ids)), prompts.values(), strict=True):
            ids[row, length - len(prompt_ids) :] = prompt_ids
            seen[row, length - len(prompt_ids) :] = 1
        device = self._model.device
        mask = torch.from_numpy(seen).to(device)
        self._cache, self._length, self._padded = preallocated_cache(self._model.config), length, not seen.all()
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._parameters else {}
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        logits = self._forward(torch.from_numpy(ids).to(device), mask if self._padded else None, positions, **keep)
        index = torch.tensor([row_of[request.prompt] for request in self.requests], device=device)
        repeat_rows(self._cache, index)
        self._logits = logits[index]
        self._rows["positions"] = positions[index, -1:]
        if self._padded:
            self._rows["mask"] = self._mask_for_steps(mask[index])
        if self.requests[0].forced is not None:
            width = max(request.limit for request in self.requests)
            forced = [[*(request.forced or ()), *[0] * (width - request.limit)] for request in self.requests]
            self._rows["forced"] = torch.tensor(forced, device=device)

    def _mask_for_steps(self, mask: Tensor) -> Tensor:
        """The attention mask with columns for all further steps.

        If each layer attends to all tokens, it has the form that attention uses, [B, 1, 1, L] and additive:
        transformers would otherwise make that from [B, L] at every step, which takes as long as a layer.
        """
        steps = max(request.limit for request in self.requests)
        mask = torch.cat([mask, mask.new_ones(len(mask), steps)], dim=1)
        plain = self._model.config._attn_implementation in ("sdpa", "eager")
        if not (plain and is_preallocated(self._cache) and getattr(self._model, "_supports_attention_backend", False)):
            return mask
        never = torch.finfo(self._model.dtype).min
        additive = torch.zeros(mask.shape, dtype=self._model.dtype, device=mask.device)
        return additive.masked_fill_(mask == 0, never)[:, None, None, :]

    def _read_token(self) -> None:
        self._length += 1
        mask = self._rows["mask"][..., : self._length] if self._padded else None
        self._rows["positions"] += 1
        self._logits = self._forward(self._rows["token"][:, None], mask, self._rows["positions"])

    def _forward(self, ids: Tensor, mask: Tensor | None, positions: Tensor, **keep: Any) -> Tensor:
        """Logits after the last token, [rows, V]."""
        if "position_ids" in self._parameters:
            keep["position_ids"] = positions
        out = self._model(input_ids=ids, attention_mask=mask, past_key_values=self._cache, use_cache=True, **keep)
        logits: Tensor = out.logits[:, -1]
        return logits

    def _draw(self) -> None:
        """Sample a token per row, into the column of this step."""
        assert self._logits is not None
        step = self._step
        if step % _BLOCK == 0:
            self._make_room()
        if "forced" in self._rows:
            token = self._rows["forced"][:, step]
            wide = self._logits if self._logits.dtype == torch.float64 else self._logits.float()
            logprobs = own = wide.log_softmax(dim=-1).gather(1, token[:, None]).squeeze(1)
        else:
            token, logprobs, own = sample_tokens(self._logits, self._rows["uniforms"][:, step % _BLOCK], self._sampling)
        self._rows["token"], self._rows["own"] = token, own
        for name, values in (("ids", token), ("logprobs", logprobs), ("model_logprobs", own)):
            self._rows[name][:, step] = values
        self._step += 1

    def _make_room(self) -> None:
        """Add columns and random numbers for the next block of steps."""
        assert self._logits is not None
        rows, device = len(self.requests), self._logits.device
        real = torch.float64 if self._logits.dtype == torch.float64 else torch.float32
        for name, dtype in (("ids", torch.int64), ("logprobs", real), ("model_logprobs", real)):
            more = torch.zeros(rows, _BLOCK, dtype=dtype, device=device)
            self._rows[name] = torch.cat([self._rows[name], more], dim=1) if self._step else more
        seeds = [request.seed for request in self.requests]
        numbers = torch.from_numpy(uniforms(seeds, self._step, self._step + _BLOCK))
        self._rows["uniforms"] = (numbers.float() if device.type == "mps" else numbers).to(device)

    def _ended(self) -> dict[int, bool]:
        """Finished rows → True if an end token or stop text ended them, False at their limit."""
        token, own = self._rows["token"], self._rows["own"]
        marked = (self._end_tokens[token] | own.isnan()).nonzero().flatten().tolist()
        ended: dict[int, bool] = {}
        if self._step >= self._next_limit:
            ended = {row: False for row, request in enumerate(self.requests) if self._step >= request.limit}
        for row in marked if "forced" not in self._rows else ():
            if self._rows["own"][row].isnan():
                raise RlvrError(
                    f"the model's logits are not finite after {self._step - 1} tokens of prompt "
                    f"{self.requests[row].prompt}; look at the weights and at the learning rate"
                )
            if int(token[row]) in self._end_ids or self._stops(row):
                ended[row] = True
        return ended

    def _stops(self, row: int) -> bool:
        """True if the row ends with a stop text.  A character has at most four tokens; some more may be special."""
        span = 4 * max(map(len, self._sampling.stop)) + 32
        text = self._tokenization.decode(self._rows["ids"][row, max(0, self._step - span) : self._step].tolist())
        return any(stop in text for stop in self._sampling.stop)

    def _remove(self, ended: dict[int, bool]) -> list[DecodeResult]:
        """The results of finished rows, whose places are filled with the last rows."""
        index = torch.tensor(list(ended), device=self._rows["ids"].device)
        names = ("ids", "logprobs", "model_logprobs")
        values = zip(*(self._rows[name][index, : self._step].tolist() for name in names), strict=True)
        results = [
            DecodeResult(self.requests[row], ended[row], *lists) for row, lists in zip(ended, values, strict=True)
        ]
        left = len(self.requests) - len(ended)
        holes = [row for row in ended if row < left]
        last = [row for row in range(left, len(self.requests)) if row not in ended]
        for hole, row in zip(holes, last, strict=True):
            self.requests[hole] = self.requests[row]
        del self.requests[left:]
        self._next_limit = min((request.limit for request in self.requests), default=0)
        to, source = (torch.tensor(rows, dtype=torch.int64, device=index.device) for rows in (holes, last))
        for name, tensor in self._rows.items():
            if holes:
                tensor[to] = tensor[source]
            self._rows[name] = tensor[:left]
        if left:
            drop_rows(self._cache, to, source, left)
        return results


def possible_end_tokens(model: Any, tokenization: Tokenization, stop: Sequence[str]) -> Tensor:
    """[V] True for tokens that may end a rollout: end tokens, and those that can complete a stop text.

    Only after one of these is the decoded text searched for stop texts.  A stop text may begin some tokens earlier, so
    a token is among them if its text begins with any later part of a stop text, or if it is not a whole character.

    Args:
        model: a causal language model of transformers.
        tokenization: its tokenizer and end tokens.
        stop: stop texts.
    """
    table = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    table[list(tokenization.end_ids_with(stop))] = True
    if stop:
        tokens = range(min(len(table), len(tokenization.tokenizer)))
        tails = tuple({text[i:] for text in stop for i in range(1, len(text))})
        pieces = tokenization.tokenizer.convert_ids_to_tokens(list(tokens))
        texts = tokenization.tokenizer.batch_decode([[token] for token in tokens], clean_up_tokenization_spaces=False)
        for token, piece, text in zip(tokens, pieces, texts, strict=True):
            bare = piece.startswith("▁") and not text.startswith(" ")  # decoded alone, it loses its space
            shown = f" {text}" if bare else text
            table[token] |= shown.startswith(tails) or "\ufffd" in shown or any(s in shown for s in stop)
    return table.to(model.device)


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put the model into evaluation mode, and afterwards back into training mode if it was in that.

    Args:
        model: a torch module.
    """
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
