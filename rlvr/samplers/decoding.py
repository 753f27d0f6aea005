"""Rollouts that grow side by side, a token each per step.  Axes: B rows still growing, T tokens drawn, L tokens seen.

Row i of every tensor belongs to `slots[i]`.  When a row is finished the last row takes its place, in the tensors and
in the cache, so a step costs what the rows cost that are still growing.
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
from rlvr.samplers.preallocated_cache import drop_rows, is_roomy, repeat_rows, roomy_cache
from rlvr.samplers.protocol import Sampling
from rlvr.samplers.token_sampling import choose, uniforms
from rlvr.samplers.tokenization import Codec

__all__ = ["Decoding", "Drawn", "Slot", "end_events", "evaluating"]

_BLOCK: Final = 256  # steps for which random numbers are made, and columns added, at a time


@dataclass(frozen=True, slots=True)
class Slot:
    """A rollout to be drawn.

    Attributes:
        prompt: whose rollout, and the key by which prompts are read once.
        rollout: which of the prompt's.
        prompt_ids: what it continues.
        limit: the most tokens, at least 1.
        seed: fixes its random numbers.
        forced: tokens to be taken instead of drawn, `limit` of them; end tokens among them end nothing.
    """

    prompt: int
    rollout: int
    prompt_ids: Sequence[int]
    limit: int
    seed: int
    forced: Sequence[int] | None = None


class Drawn(NamedTuple):
    """A finished rollout; `ended` is False if it was cut off at its limit.  Logprobs as in `Sample`."""

    slot: Slot
    ended: bool
    completion_ids: list[int]
    logprobs: list[float]
    model_logprobs: list[float]


class Decoding:
    """Draws rollouts side by side.

    Prompts are padded on the left; those of one length need no mask.  All slots are forced, or none is.

    Args:
        model: a causal language model of transformers.
        codec: tells the text of a rollout, where there are stop texts.
        slots: those of one prompt stand together.
        sampling: its limit is not looked at.
        events: see `end_events`.
        autocast: compute in this type.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        slots: Sequence[Slot],
        sampling: Sampling,
        events: Tensor,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.slots = list(slots)
        self._model, self._codec, self._sampling, self._events = model, codec, sampling, events
        self._autocast = autocast
        self._ends = codec.ends_of(sampling.stop)
        self._takes = inspect.signature(model.forward).parameters
        self._step, self._due = 0, min((slot.limit for slot in slots), default=0)  # when the next limit is reached
        self._rows: dict[str, Tensor] = {}  # every tensor with a row per slot
        self._logits: Tensor | None = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def advance(self) -> list[Drawn]:
        """Go on until some rollouts are finished, at least one; they have left `slots` then.

        Raises:
            RlvrError: the model's logits are not finite.
        """
        kind = self._model.device.type
        with evaluating(self._model), torch.autocast(kind, self._autocast, enabled=self._autocast is not None):
            if self._logits is None:
                self._read_prompts()
            while True:
                self._draw()
                if ended := self._ended():
                    drawn = self._taken_out(ended)
                    if self.slots:
                        self._read_token()
                    return drawn
                self._read_token()

    def _read_prompts(self) -> None:
        """Each prompt once; then a row per slot."""
        prompts = {slot.prompt: slot.prompt_ids for slot in self.slots}
        row_of = {prompt: i for i, prompt in enumerate(prompts)}
        length = max(map(len, prompts.values()))
        ids = np.zeros((len(prompts), length), dtype=np.int64)
        seen = np.zeros_like(ids)
        for row, prompt_ids in zip(range(len(ids)), prompts.values(), strict=True):
            ids[row, length - len(prompt_ids) :] = prompt_ids
            seen[row, length - len(prompt_ids) :] = 1
        device = self._model.device
        mask = torch.from_numpy(seen).to(device)
        self._cache, self._length, self._padded = roomy_cache(self._model.config), length, not seen.all()
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        logits = self._forward(torch.from_numpy(ids).to(device), mask if self._padded else None, positions, **keep)
        index = torch.tensor([row_of[slot.prompt] for slot in self.slots], device=device)
        repeat_rows(self._cache, index)
        self._logits = logits[index]
        self._rows["positions"] = positions[index, -1:]
        if self._padded:
            self._rows["mask"] = self._mask_for_steps(mask[index])
        if self.slots[0].forced is not None:
            width = max(slot.limit for slot in self.slots)
            forced = [[*(slot.forced or ()), *[0] * (width - slot.limit)] for slot in self.slots]
            self._rows["forced"] = torch.tensor(forced, device=device)

    def _mask_for_steps(self, mask: Tensor) -> Tensor:
        """The mask with columns for all steps to come, made once.

        Where each layer sees all tokens it is as attention wants it, [B, 1, 1, L] and additive: transformers would
        otherwise make that from [B, L] at every step, which takes as long as a layer.
        """
        steps = max(slot.limit for slot in self.slots)
        mask = torch.cat([mask, mask.new_ones(len(mask), steps)], dim=1)
        plain = self._model.config._attn_implementation in ("sdpa", "eager")
        if not (plain and is_roomy(self._cache) and getattr(self._model, "_supports_attention_backend", False)):
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
        if "position_ids" in self._takes:
            keep["position_ids"] = positions
        out = self._model(input_ids=ids, attention_mask=mask, past_key_values=self._cache, use_cache=True, **keep)
        logits: Tensor = out.logits[:, -1]
        return logits

    def _draw(self) -> None:
        """A token per row, into the column of this step."""
        assert self._logits is not None
        step = self._step
        if step % _BLOCK == 0:
            self._make_room()
        if "forced" in self._rows:
            token = self._rows["forced"][:, step]
            wide = self._logits if self._logits.dtype == torch.float64 else self._logits.float()
            drawn = own = wide.log_softmax(dim=-1).gather(1, token[:, None]).squeeze(1)
        else:
            token, drawn, own = choose(self._logits, self._rows["uniforms"][:, step % _BLOCK], self._sampling)
        self._rows["token"], self._rows["own"] = token, own
        for name, values in (("ids", token), ("logprobs", drawn), ("model_logprobs", own)):
            self._rows[name][:, step] = values
        self._step += 1

    def _make_room(self) -> None:
        """Columns and random numbers for the steps until the next block."""
        assert self._logits is not None
        rows, device = len(self.slots), self._logits.device
        real = torch.float64 if self._logits.dtype == torch.float64 else torch.float32
        for name, dtype in (("ids", torch.int64), ("logprobs", real), ("model_logprobs", real)):
            more = torch.zeros(rows, _BLOCK, dtype=dtype, device=device)
            self._rows[name] = torch.cat([self._rows[name], more], dim=1) if self._step else more
        numbers = torch.from_numpy(uniforms([slot.seed for slot in self.slots], self._step, self._step + _BLOCK))
        self._rows["uniforms"] = (numbers.float() if device.type == "mps" else numbers).to(device)

    def _ended(self) -> dict[int, bool]:
        """Rows that are finished → whether they ended by themselves."""
        token, own = self._rows["token"], self._rows["own"]
        marked = (self._events[token] | own.isnan()).nonzero().flatten().tolist()
        ended: dict[int, bool] = {}
        if self._step >= self._due:
            ended = {row: False for row, slot in enumerate(self.slots) if self._step >= slot.limit}
        for row in marked if "forced" not in self._rows else ():
            if self._rows["own"][row].isnan():
                raise RlvrError(
                    f"the model's logits are not finite after {self._step - 1} tokens of prompt "
                    f"{self.slots[row].prompt}; look at the weights and at the learning rate"
                )
            if int(token[row]) in self._ends or self._stops(row):
                ended[row] = True
        return ended

    def _stops(self, row: int) -> bool:
        """Is there a stop text at the end?  A character is at most four tokens; some more may be special ones."""
        span = 4 * max(map(len, self._sampling.stop)) + 32
        text = self._codec.decode(self._rows["ids"][row, max(0, self._step - span) : self._step].tolist())
        return any(stop in text for stop in self._sampling.stop)

    def _taken_out(self, ended: dict[int, bool]) -> list[Drawn]:
        """The finished rows as lists; their places are filled from the end."""
        index = torch.tensor(list(ended), device=self._rows["ids"].device)
        names = ("ids", "logprobs", "model_logprobs")
        values = zip(*(self._rows[name][index, : self._step].tolist() for name in names), strict=True)
        drawn = [Drawn(self.slots[row], ended[row], *lists) for row, lists in zip(ended, values, strict=True)]
        left = len(self.slots) - len(ended)
        holes = [row for row in ended if row < left]
        last = [row for row in range(left, len(self.slots)) if row not in ended]
        for hole, row in zip(holes, last, strict=True):
            self.slots[hole] = self.slots[row]
        del self.slots[left:]
        self._due = min((slot.limit for slot in self.slots), default=0)
        to, source = (torch.tensor(rows, dtype=torch.int64, device=index.device) for rows in (holes, last))
        for name, tensor in self._rows.items():
            if holes:
                tensor[to] = tensor[source]
            self._rows[name] = tensor[:left]
        if left:
            drop_rows(self._cache, to, source, left)
        return drawn


def end_events(model: Any, codec: Codec, stop: Sequence[str]) -> Tensor:
    """[V] True for tokens after which a rollout may be over: end tokens, and those that can complete a stop text.

    The latter are few, and only at them is a text looked at.  A stop text may begin tokens earlier, so a token counts
    if its text begins with any later part of a stop text; one that is no whole character always counts.
    """
    table = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    table[list(codec.ends_of(stop))] = True
    if stop:
        tokens = range(min(len(table), len(codec.tokenizer)))
        tails = tuple({text[i:] for text in stop for i in range(1, len(text))})
        pieces = codec.tokenizer.convert_ids_to_tokens(list(tokens))
        texts = codec.tokenizer.batch_decode([[token] for token in tokens], clean_up_tokenization_spaces=False)
        for token, piece, text in zip(tokens, pieces, texts, strict=True):
            bare = piece.startswith("▁") and not text.startswith(" ")  # alone it loses its space
            said = f" {text}" if bare else text
            table[token] |= said.startswith(tails) or "\ufffd" in said or any(s in said for s in stop)
    return table.to(model.device)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in evaluation mode, and as it was afterwards."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
