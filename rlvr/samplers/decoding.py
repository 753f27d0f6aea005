"""Batched decoding with refill, one token per row and step.  Axes: B rows, T tokens sampled, L
columns of the cache, V.

waiting ─▶ read the prompt, once for all its requests ─▶ take a free row ─▶ step, step, …
  ─▶ finished: the row is free

A step runs the model on one token of each row and samples the next one.  A new row begins with the
last token of its prompt, so that it needs no step of its own.
"""

from __future__ import annotations

import heapq
import inspect
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlvr.errors import RlvrError
from rlvr.samplers.banded_attention import Band, attention_in_bands, supports_bands
from rlvr.samplers.packed_attention import is_torchs_own
from rlvr.samplers.preallocated_cache import (
    Cache,
    Room,
    admit,
    attends_to_all,
    cache_argument,
    cache_for_prompts,
    fit,
    move,
    preallocated_cache,
    resized,
)
from rlvr.samplers.protocol import Begun, Request, Sampling, TokenIds
from rlvr.samplers.token_sampling import sample_tokens, uniforms
from rlvr.samplers.tokenization import Tokenization

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["DecodeResult", "Decoding", "evaluation_mode", "possible_end_tokens"]

# fewest free columns of new buffers; they have at least half as many as are in use
_COLUMNS: Final = 64
# prompts that are read together, those of requests that still wait among them
_READ_AHEAD: Final = 16
# most tokens that are read together, padding included, unless one prompt is longer
_READ_TOKENS: Final = 16384
_MARGIN: Final = 32  # steps that a new row should have before memory is short again
# where bands of rows end: lengths are skewed, so few rows are long
_BANDS: Final = (0.125, 0.375, 1.0)
_FEWEST: Final = 32  # rows from which on bands save more than their calls cost


@dataclass(slots=True, eq=False)
class _Read:
    """Prompts that were read together.

    Attributes:
        cache: their keys, values and states.
        tokens: that it has room for, padding included.
        wanted: number of these prompts for which requests still wait.
    """

    cache: Cache
    tokens: int
    wanted: int


@dataclass(slots=True, eq=False)
class _Prompt:
    """A prompt and the number of requests that wait with it; `read` and
    `index` say where it was read."""

    ids: TokenIds
    waiting: int = 0
    read: _Read | None = None
    index: int = 0


@dataclass(slots=True, eq=False)
class _Rollout:
    """A request that is not finished.

    Attributes:
        request: what was asked for.
        prompt: what has to be read before it can go on: its context and, if it had to make room,
            its tokens so far.
        forced: tokens that are taken instead of sampled ones; end tokens among them end nothing.
        limit: most tokens.
        drawn: tokens, logprobs and model logprobs so far; only of one that had to make room, or was
            begun elsewhere.
        start: time of its prompt's first token.
        born: time at which its first token was sampled.
        place: row.
    """

    request: Request
    prompt: _Prompt
    forced: Sequence[int] | None
    limit: int
    drawn: tuple[list[int], list[float], list[float]] = field(default_factory=lambda: ([], [], []))
    start: int = 0
    born: int = 0
    place: int = -1


class DecodeResult(NamedTuple):
    """A finished rollout.

    Attributes:
        request: what was asked for.
        ended: False if it was cut off at its limit.
        completion_ids: its tokens, the end token included, shape [T].
        logprobs: as in `Sample`.
        model_logprobs: as in `Sample`.
        versions: of the weights, for each token, shape [T].
    """

    request: Request
    ended: bool
    completion_ids: list[int]
    logprobs: list[float]
    model_logprobs: list[float]
    versions: list[int]


class Decoding:
    """Samples the requests that it is given, `max_rows` at a time, in their order.

    Requests with the same context share its keys and values until the last of them has its row.
    Rows whose prompts have one length need no attention mask, until one of them is refilled.

    Keys and values take `max_tokens` tokens at most, free columns and prompts that wait included;
    only prompts that are being read come on top.  Rows are admitted while there is room; if the
    rows that are there outgrow it, the youngest makes room: it waits again, keeps the tokens that
    it has, and these are read anew with its prompt.

    Args:
        model: a causal language model of transformers.
        tokenization: its tokenizer and end tokens.
        sampling: of the first request; others may differ in all but the stop texts.
        end_tokens: [V] see `possible_end_tokens`.
        autocast: compute in this type; None for that of the weights.
        max_rows: most rows.
        max_tokens: most tokens in keys and values; at least the tokens of the longest request.

    Attributes:
        stop: stop texts of all requests.
        version: of the weights.
        steps: number of steps so far.
        tokens: number of tokens sampled so far.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenization: Tokenization,
        sampling: Sampling,
        end_tokens: Tensor,
        *,
        autocast: torch.dtype | None = None,
        max_rows: int = 256,
        max_tokens: int = 2**18,
        version: int = 0,
    ) -> None:
        self.stop, self.version = sampling.stop, version
        self._sampling, self._is_mixed = sampling, False
        self.steps = self.tokens = 0
        self._model, self._tokenization, self._end_tokens = model, tokenization, end_tokens
        self._autocast, self._max_rows, self._max_tokens = autocast, max_rows, max_tokens
        self._end_ids = tokenization.end_ids_with(sampling.stop)
        self._parameters = inspect.signature(model.forward).parameters
        self._cache_argument = cache_argument(model)
        # A mask of numbers that are added is what such attention
        # takes as it is; others make theirs of zeros and ones.
        plain = attends_to_all(model.config) and (
            is_torchs_own(model.config) or model.config._attn_implementation == "eager"
        )
        self._additive = plain and bool(getattr(model, "_supports_attention_backend", False))
        self._waiting: deque[_Rollout] = deque()
        self._prompts: dict[TokenIds, _Prompt] = {}
        self._reads: list[_Read] = []
        self._rows: list[_Rollout | None] = []
        self._unfinished = 0
        self._room = Room()
        self._cache = preallocated_cache(model.config, self._room)
        self._tensors: dict[str, Tensor] = {}  # all with a row per place
        self._padded, self._next_end = False, 0
        self._in_bands = self._additive and supports_bands(model)
        self._bands: list[Band] = []  # of the current rows

    def add(self, request: Request, forced: Sequence[int] | None = None) -> None:
        """Let a request wait for a row.

        Args:
            request: what is asked for.
            forced: tokens to take instead of sampled ones.  All requests have such, or none.
        """
        # From then on each step sorts rows by their settings.
        self._is_mixed |= request.sampling != self._sampling
        limit = request.limit if forced is None else len(forced)
        rollout = _Rollout(request, self._prompt(request.context), forced, limit)
        if (begun := request.begun) is not None:
            model_logprobs = (
                begun.logprobs if begun.model_logprobs is None else begun.model_logprobs
            )
            rollout.drawn = list(begun.completion_ids), list(begun.logprobs), list(model_logprobs)
            # It waits with prompt and tokens so far, which are read together.
            self._leave(rollout.prompt)
            rollout.prompt = self._prompt((*request.context, *begun.completion_ids))
        self._waiting.append(rollout)
        self._unfinished += 1

    def __len__(self) -> int:
        """Number of unfinished requests."""
        return self._unfinished

    def abort(self, ids: Collection[Hashable]) -> None:
        """Drop requests.

        Args:
            ids: of requests; those that are not here are ignored.
        """
        for rollout in self._waiting:
            if rollout.request.id in ids:
                self._leave(rollout.prompt)
        self._waiting = deque(rollout for rollout in self._waiting if rollout.request.id not in ids)
        self._rows = [None if r is None or r.request.id in ids else r for r in self._rows]
        self._unfinished = len(self._waiting) + len(self._live())

    def take_back(self, ids: Collection[Hashable] | None = None) -> list[Request]:
        """Drop requests, and return them with the tokens that they have: those with rows first, the
        oldest first.

        Args:
            ids: of requests; None for all.
        """
        live = sorted(
            (r for r in self._live() if ids is None or r.request.id in ids),
            key=lambda r: (r.born, r.place),
        )
        for rollout, tokens_so_far in zip(
            live, self._drawn_tokens(live) if live else [], strict=True
        ):
            rollout.drawn = tokens_so_far
        returned = [*live, *(r for r in self._waiting if ids is None or r.request.id in ids)]
        self.abort([rollout.request.id for rollout in returned])
        return [
            replace(
                r.request,
                begun=Begun(*r.drawn, self._versions(r.request, r.drawn[0]))
                if r.drawn[0]
                else None,
            )
            for r in returned
        ]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def advance(self, most: int) -> list[DecodeResult]:
        """Decode until a rollout is finished, but at most some steps; returns what is finished.

        Args:
            most: steps.

        Raises:
            RlvrError: the model's logits are not finite.
        """
        kind, until = self._model.device.type, self.steps + most
        with (
            evaluation_mode(self._model),
            torch.autocast(kind, self._autocast, enabled=self._autocast is not None),
        ):
            while self.steps < until and len(self):
                # Before new rows come: the columns of the oldest row may take the room.
                self._make_room()
                self._refill()
                self._draw(self._read_tokens())
                if ended := self._find_ended():
                    return self._results(ended)
        return []

    # ----------------------------------------------------------------------------- rows come and go

    def _prompt(self, ids: TokenIds) -> _Prompt:
        # By the tokens themselves: requests of a group share an entry.
        prompt = self._prompts.setdefault(ids, _Prompt(ids))
        prompt.waiting += 1
        return prompt

    def _leave(self, prompt: _Prompt) -> None:
        """Count a request that no longer waits with this prompt; free what no request waits for."""
        prompt.waiting -= 1
        if prompt.waiting:
            return
        del self._prompts[prompt.ids]
        if (read := prompt.read) is not None:
            read.wanted -= 1
            if not read.wanted and read in self._reads:
                self._reads.remove(read)

    def _live(self) -> list[_Rollout]:
        return [rollout for rollout in self._rows if rollout is not None]

    def _count_stored(self) -> int:
        """Tokens in the keys and values of prompts that wait."""
        return sum(read.tokens for read in self._reads)

    def _make_room(self) -> None:
        """Have the youngest rows wait again where all rows would outgrow `max_tokens` with the next
        token."""
        # Rows are columns of one tensor: each takes the width of the oldest one.
        # +1: the token of this step.
        if len(self._rows) * (self._room.width + 1) + self._count_stored() <= self._max_tokens:
            return
        # The youngest has the fewest tokens to read again.
        live = sorted(self._live(), key=lambda rollout: rollout.born)
        while live:
            width = self._room.now - min(rollout.start for rollout in live)
            if len(live) * (width + 1) + self._count_stored() <= self._max_tokens:
                break
            # The longest request fits by itself (`max_tokens` is at least its length), but not
            # beside prompts that wait.
            if len(live) == 1:
                self._forget_prompts()
                break
            self._evict(live.pop())

    def _forget_prompts(self) -> None:
        """Free the keys and values of prompts that wait; they are read anew."""
        self._reads.clear()
        for prompt in self._prompts.values():
            prompt.read = None

    def _evict(self, rollout: _Rollout) -> None:
        [rollout.drawn] = self._drawn_tokens([rollout])
        rollout.prompt = self._prompt((*rollout.request.context, *rollout.drawn[0]))
        self._rows[rollout.place] = None
        # In front, so that the order in which requests were made is kept.
        self._waiting.appendleft(rollout)

    def _refill(self) -> None:
        """Give free rows to requests that wait, and close up what remains free."""
        free = self._rows.count(None)
        chosen = self._choose_rows(len(self._rows) - free)
        if not free and not chosen:
            return
        self._read_prompts(chosen)
        places = self._rearrange(len(chosen))
        for place, rollout in zip(places, chosen, strict=True):
            rollout.place = place
            # its last token is read in the next step
            rollout.start = self._room.now - len(rollout.prompt.ids) + 1
            # Counted from its first token, evicted or not: its limit holds for all tokens.
            rollout.born = self._room.now - len(rollout.drawn[0])
            self._rows[place : place + 1] = [rollout]
        self._fit_buffers()
        self._fill(chosen)
        if self._room.places * self._room.columns + self._count_stored() > self._max_tokens:
            self._forget_prompts()
        live = self._live()
        self._padded = len({rollout.start for rollout in live}) > 1
        self._bands = (
            self._new_bands() if self._padded and self._in_bands and len(live) >= _FEWEST else []
        )
        self._next_end = min((rollout.born + rollout.limit for rollout in live), default=0)

    def _choose_rows(self, rows: int) -> list[_Rollout]:
        """The requests that get a row now, taken from those that wait."""
        chosen: list[_Rollout] = []
        if not self._waiting or rows >= self._max_rows:
            return chosen
        width = max((self._room.now - rollout.start for rollout in self._live()), default=0)
        stored, unread = self._count_stored(), set[int]()
        while self._waiting and rows < self._max_rows:
            prompt = self._waiting[0].prompt
            width = max(width, len(prompt.ids))
            if prompt.read is None and id(prompt) not in unread:
                unread.add(id(prompt))
                stored += len(prompt.ids)
            # The first row is always taken, or a long prompt would wait for ever.
            if rows and (rows + 1) * (width + _MARGIN) + stored > self._max_tokens:
                break
            chosen.append(self._waiting.popleft())
            rows += 1
        return chosen

    def _rearrange(self, new: int) -> list[int]:
        """Close the places of finished rows up to `new` of them, and return the places of as many
        new rows.

        The oldest rows stand first, band by band, and new ones last: a hole in a band is filled by
        the oldest row of the next one.
        """
        sources = [None if rollout is None else place for place, rollout in enumerate(self._rows)]
        ordered = self._in_bands and (new or self._padded) and len(sources) >= _FEWEST
        ends = [0, *_ends(len(sources))] if ordered else []
        for start, stop, end in zip(ends, ends[1:], ends[2:], strict=False):
            if holes := [place for place in range(start, stop) if sources[place] is None]:
                behind = [place for place in range(stop, end) if sources[place] is not None]
                oldest = heapq.nsmallest(
                    len(holes), behind, key=lambda place: self._row(place).start
                )
                for hole, place in zip(holes, oldest, strict=False):
                    sources[hole], sources[place] = place, None
        free = [place for place, source in enumerate(sources) if source is None]
        # Holes beyond the new rows are filled from the
        # back, so that the rows in use stand together.
        for hole in free[new:]:
            while sources and sources[-1] is None:
                sources.pop()
            if hole < len(sources):
                sources[hole] = sources.pop()
        self._move(
            [(place, source) for place, source in enumerate(sources) if source not in (None, place)]
        )
        self._rows = [None if source is None else self._row(source) for source in sources]
        for place, rollout in enumerate(self._rows):
            if rollout is not None:
                rollout.place = place
        self._room.rows = len(self._rows)
        return [*free[:new], *range(len(self._rows), len(self._rows) + new - len(free))]

    def _row(self, place: int) -> _Rollout:
        rollout = self._rows[place]
        assert rollout is not None
        return rollout

    def _move(self, moves: Sequence[tuple[int, Any]]) -> None:
        """Copy rows, each to a place from a source; all are read before one is written."""
        if not moves:
            return
        places, sources = (self._index(numbers) for numbers in zip(*moves, strict=True))
        # Rows of one length have the same mask and positions, wherever they stand.
        alike = () if self._padded else ("mask", "positions")
        for name, tensor in self._tensors.items():
            if name not in alike:
                tensor[places] = tensor[sources]
        # Columns before the first token of those that move hold nothing of theirs.
        first = min(self._row(source).start for _, source in moves)
        move(self._cache, places, sources, first)

    def _new_bands(self) -> list[Band]:
        """Bands of the rows as they stand, each with the first column of its oldest row."""
        starts = [rollout.start - self._room.first for rollout in self._live()]
        ends = [0, *_ends(len(starts))]
        return [Band(start, stop, min(starts[start:stop])) for start, stop in pairwise(ends)]

    def _fit_buffers(self) -> None:
        """Have a place for each row, and columns for each prompt and the next tokens."""
        room, rows = self._room, len(self._rows)
        first = min((rollout.start for rollout in self._live()), default=room.now)
        # A column must be free for the next token.
        if rows <= room.places and first >= room.origin and room.now < room.origin + room.columns:
            room.first, room.rows = first, rows
            fit(self._cache)
            return
        old, width = replace(room), room.now - first
        # Half as many again, so that growing copies each token a constant number of times.
        columns = width + max(_COLUMNS, width // 2)
        # Room for all that wait, or twice as many as before.
        places = min(
            self._max_rows, max(rows + len(self._waiting), 2 * room.places * (rows > room.places))
        )
        tokens_left = self._max_tokens - self._count_stored()
        places = places if places * columns <= tokens_left else rows
        # At least one column more, whatever the memory allows.
        columns = max(width + 1, min(columns, tokens_left // max(1, places)))
        room.origin = room.first = first
        room.rows, room.places, room.columns = rows, places, columns
        fit(self._cache, old)
        self._new_tensors(old)

    def _new_tensors(self, old: Room) -> None:
        """Tensors of the room's size, with what stood in the old ones."""
        room, device = self._room, self._model.device
        # Log-probabilities are kept more exactly than bfloat16 has them, and in tests as exactly
        # as the model computes them.
        real = torch.float64 if self._model.dtype == torch.float64 else torch.float32
        kinds = {
            "token": torch.int64,
            "positions": torch.int64,
            "ids": torch.int64,
            "logprobs": real,
            "own": real,
        }
        for name, dtype in kinds.items():
            columns = (room.columns,) * (name not in ("token", "positions"))
            tensor = torch.zeros(room.places, *columns, dtype=dtype, device=device)
            if name in self._tensors and columns:
                tensor = resized(self._tensors[name], old, room, column_axis=1)
            elif name in self._tensors:
                tensor[: min(old.rows, room.places)] = self._tensors[name][
                    : min(old.rows, room.places)
                ]
            self._tensors[name] = tensor
        # MPS has no float64; elsewhere float32 would be too coarse
        # for a cumulative sum over 150,000 tokens.
        random = torch.float32 if device.type == "mps" else torch.float64
        self._tensors["uniforms"] = torch.zeros(
            room.places, room.columns, dtype=random, device=device
        )
        shape = (room.places, 1, 1, room.columns) if self._additive else (room.places, room.columns)
        kind = self._model.dtype if self._additive else torch.int64
        self._tensors["mask"] = torch.zeros(shape, dtype=kind, device=device)
        self._write_masks_and_numbers([r for r in self._live() if r.place < old.rows])

    def _fill(self, chosen: Sequence[_Rollout]) -> None:
        """Write what new rows begin with."""
        if not chosen:
            return
        room, device = self._room, self._model.device
        reads: dict[int, list[_Rollout]] = {}
        # Prompts that were read together lie in one cache.
        for rollout in chosen:
            reads.setdefault(id(rollout.prompt.read), []).append(rollout)
        for together in reads.values():
            read = together[0].prompt.read
            admit(
                self._cache,
                [rollout.place for rollout in together],
                None if read is None else read.cache,
                [rollout.prompt.index for rollout in together],
                # Less its last token, which is read with the next step.
                max(len(rollout.prompt.ids) for rollout in together) - 1,
                device,
            )
        places = self._index([rollout.place for rollout in chosen])
        last = [(rollout.prompt.ids[-1], len(rollout.prompt.ids) - 1) for rollout in chosen]
        token, positions = torch.tensor(last, dtype=torch.int64, device=device).T
        self._tensors["token"][places], self._tensors["positions"][places] = token, positions
        self._write_masks_and_numbers(chosen)
        for rollout in chosen:
            for name, values in zip(("ids", "logprobs", "own"), rollout.drawn, strict=True):
                if values:
                    # Tokens of an evicted or begun row, in the columns in which they would stand.
                    columns = slice(rollout.born - room.origin, room.now - room.origin)
                    row = self._tensors[name][rollout.place]
                    row[columns] = torch.tensor(values, dtype=row.dtype, device=device)
            rollout.drawn = ([], [], [])
            self._leave(rollout.prompt)

    def _write_masks_and_numbers(self, rollouts: Sequence[_Rollout]) -> None:
        """Which columns rows attend to, and their random numbers for all further columns."""
        if not rollouts:
            return
        room, device = self._room, self._model.device
        places = self._index([rollout.place for rollout in rollouts])
        starts = self._index([rollout.start - room.origin for rollout in rollouts])
        hidden = torch.arange(room.columns, device=device) < starts[:, None]
        mask = self._tensors["mask"]
        if self._additive:
            # The least finite number: -inf would make a row of hidden columns NaN.
            never = torch.finfo(mask.dtype).min
            mask[places] = (hidden.to(mask.dtype) * never)[:, None, None, :]
        else:
            mask[places] = (~hidden).to(mask.dtype)
        born = np.array([rollout.born for rollout in rollouts], dtype=np.int64)
        # Number i of a row's stream is for its token i,
        # wherever the row stands and whenever it goes on.
        numbers = uniforms(
            [rollout.request.seed for rollout in rollouts],
            np.arange(room.now, room.origin + room.columns) - born[:, None],
        )
        random = self._tensors["uniforms"]
        random[places, room.now - room.origin :] = (
            torch.from_numpy(numbers).to(random.dtype).to(device)
        )

    def _index(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._model.device)

    # ------------------------------------------------------------------------------ the model reads

    def _read_prompts(self, chosen: Sequence[_Rollout]) -> None:
        """Read the prompts of new rows, all but their last tokens, and perhaps those of the next
        requests."""
        unread = {
            id(r.prompt): r.prompt
            for r in chosen
            if r.prompt.read is None and len(r.prompt.ids) > 1
        }
        if not unread:
            return
        longest = max(len(prompt.ids) for prompt in unread.values())
        free = (
            self._max_tokens
            - self._count_stored()
            - max(self._room.places, len(chosen)) * max(self._room.columns, longest)
        )
        # Further prompts are read along with them, as long as there is room beside the buffers.
        for rollout in self._waiting:
            prompt = rollout.prompt
            longest = max(longest, len(prompt.ids))
            if len(unread) >= _READ_AHEAD or (len(unread) + 1) * longest > min(_READ_TOKENS, free):
                break
            if prompt.read is None and len(prompt.ids) > 1:
                unread.setdefault(id(prompt), prompt)
        together: list[_Prompt] = []
        for prompt in sorted(
            unread.values(), key=lambda prompt: len(prompt.ids)
        ):  # for little padding
            if together and (len(together) + 1) * len(prompt.ids) > _READ_TOKENS:
                self._read(together)
                together = []
            together.append(prompt)
        self._read(together)

    def _read(self, prompts: Sequence[_Prompt]) -> None:
        length = max(len(prompt.ids) for prompt in prompts) - 1
        ids = np.zeros((len(prompts), length), dtype=np.int64)
        visible = np.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            # On the right: the last columns of all prompts are those before the current one.
            ids[row, length - len(prompt.ids) + 1 :] = prompt.ids[:-1]
            visible[row, length - len(prompt.ids) + 1 :] = 1
        device, cache = self._model.device, cache_for_prompts(self._model.config)
        mask = torch.from_numpy(visible).to(device)
        # Hidden columns have position 0, which nothing reads.
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        # Logits of a whole prompt would be V numbers for
        # each token; one is kept, which nothing reads.
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._parameters else {}
        self._forward(
            torch.from_numpy(ids).to(device),
            None if visible.all() else mask,
            positions,
            cache,
            **keep,
        )
        read = _Read(cache, ids.size, len(prompts))
        self._reads.append(read)
        for index, prompt in enumerate(prompts):
            prompt.read, prompt.index = read, index

    def _read_tokens(self) -> Tensor:
        """Run the model on the last token of each row; logits [B, V]."""
        room, rows = self._room, len(self._rows)
        if room.now == room.origin + room.columns:
            self._fit_buffers()
        columns = slice(room.used.start, room.used.stop + 1)
        # Rows of one length and without holes see every column.
        mask = self._tensors["mask"][:rows, ..., columns] if self._padded else None
        token, positions = (
            self._tensors["token"][:rows, None],
            self._tensors["positions"][:rows, None],
        )
        with attention_in_bands(self._model.config, self._bands):
            return self._forward(token, mask, positions, self._cache)

    def _forward(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache, **keep: object
    ) -> Tensor:
        """Logits after the last token, [rows, V]."""
        # Models without such an argument count positions themselves.
        if "position_ids" in self._parameters:
            keep["position_ids"] = positions
        keep[self._cache_argument] = cache
        out = self._model(input_ids=ids, attention_mask=mask, use_cache=True, **keep)
        logits: Tensor = out.logits[:, -1]
        return logits

    # --------------------------------------------------------------------------- tokens are sampled

    def _draw(self, logits: Tensor) -> None:
        """Sample a token per row, into the current column."""
        room, rows = self._room, len(self._rows)
        column = room.now - room.origin
        if (forced := self._forced_tokens()) is not None:
            token = forced
            wide = logits if logits.dtype == torch.float64 else logits.float()
            logprobs = model_logprobs = (
                wide.log_softmax(dim=-1).gather(1, token[:, None]).squeeze(1)
            )
        else:
            uniform = self._tensors["uniforms"][:rows, column]
            token, logprobs, model_logprobs = self._sample(logits, uniform)
        for name, values in (("ids", token), ("logprobs", logprobs), ("own", model_logprobs)):
            self._tensors[name][:rows, column] = values
        self._tensors["token"][:rows] = token
        self._tensors["positions"][:rows] += 1
        room.now += 1
        self.steps += 1
        self.tokens += rows

    def _sample(self, logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A token per row, with its log-probabilities, each as its request is sampled."""
        if not self._is_mixed:
            return sample_tokens(logits, uniform, self._sampling)
        places: dict[Sampling, list[int]] = {}
        for place in range(len(self._rows)):
            places.setdefault(self._row(place).request.sampling, []).append(place)
        parts = [
            sample_tokens(logits[at], uniform[at], sampling) for sampling, at in places.items()
        ]
        order = self._index([place for at in places.values() for place in at]).argsort()
        token, logprobs, model_logprobs = (
            torch.cat(values)[order] for values in zip(*parts, strict=True)
        )
        return token, logprobs, model_logprobs

    def _forced_tokens(self) -> Tensor | None:
        if self._row(0).forced is None:
            return None
        # The token of this step, counted from the row's first.
        return self._index([(r.forced or ())[self._room.now - r.born] for r in self._live()])

    def _find_ended(self) -> dict[int, bool]:
        """Places of finished rows → True if an end token or stop text ended them, False at their
        limit."""
        room = self._room
        token, model_logprobs = (
            self._tensors[name][: room.rows, room.now - 1 - room.origin] for name in ("ids", "own")
        )
        # One transfer from the device for all rows.
        marked = (self._end_tokens[token] | model_logprobs.isnan()).nonzero().flatten().tolist()
        ended: dict[int, bool] = {}
        # The step at which the first row reaches its limit is known.
        if room.now >= self._next_end:
            ended = {r.place: False for r in self._live() if room.now >= r.born + r.limit}
        for place in marked if self._row(0).forced is None else ():
            rollout = self._row(place)
            if model_logprobs[place].isnan():
                raise RlvrError(
                    f"the model's logits are not finite after {room.now - 1 - rollout.born} tokens "
                    f"of request "
                    f"{rollout.request.id}; look at the weights and at the learning rate"
                )
            if int(token[place]) in self._end_ids or self._stops(rollout):
                ended[place] = True
        return ended

    def _stops(self, rollout: _Rollout) -> bool:
        """True if the row ends with a stop text.  A character has at most four tokens; some more
        may be special."""
        if not self.stop:
            return False
        span = 4 * max(map(len, self.stop)) + 32
        first, end = (
            max(rollout.born, self._room.now - span) - self._room.origin,
            self._room.now - self._room.origin,
        )
        text = self._tokenization.decode(self._tensors["ids"][rollout.place, first:end].tolist())
        return any(stop in text for stop in self.stop)

    def _results(self, ended: dict[int, bool]) -> list[DecodeResult]:
        """The results of finished rows, whose places are free from now on."""
        rollouts = [self._row(place) for place in ended]
        results = []
        for rollout, values in zip(rollouts, self._drawn_tokens(rollouts), strict=True):
            versions = self._versions(rollout.request, values[0])
            results.append(DecodeResult(rollout.request, ended[rollout.place], *values, versions))
            self._rows[rollout.place] = None
        self._unfinished -= len(results)
        return results

    def _versions(self, request: Request, drawn: Sequence[int]) -> list[int]:
        """Of the weights, for each token drawn so far."""
        # Tokens of before were sampled by the weights that they name.
        before = [] if request.begun is None else list(request.begun.versions)
        return before + [self.version] * (len(drawn) - len(before))

    def _drawn_tokens(
        self, rollouts: Sequence[_Rollout]
    ) -> list[tuple[list[int], list[float], list[float]]]:
        """Tokens, logprobs and model logprobs of rows, so far."""
        room, index = self._room, self._index([rollout.place for rollout in rollouts])
        first = min(rollout.born for rollout in rollouts)
        columns = slice(first - room.origin, room.now - room.origin)
        ids, logprobs, model_logprobs = (
            self._tensors[name][index, columns].tolist() for name in ("ids", "logprobs", "own")
        )
        return [
            (
                ids[i][r.born - first :],
                logprobs[i][r.born - first :],
                model_logprobs[i][r.born - first :],
            )
            for i, r in enumerate(rollouts)
        ]


def _ends(rows: int) -> list[int]:
    """Where the bands of so many rows end."""
    return [int(rows * part) for part in _BANDS]


def possible_end_tokens(
    model: PreTrainedModel, tokenization: Tokenization, stop: Sequence[str]
) -> Tensor:
    """[V] True for tokens that may end a rollout: end tokens, and those that can complete a stop
    text.

    Only after one of these is the decoded text searched for stop texts.  A stop text may begin some
    tokens earlier, so a token is among them if its text begins with any later part of a stop text,
    or if it is not a whole character.

    Args:
        model: a causal language model of transformers.
        tokenization: its tokenizer and end tokens.
        stop: stop texts.
    """
    table = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    table[list(tokenization.end_ids_with(stop))] = True
    if stop:
        # A head may have more rows than the tokenizer has tokens.
        tokens = range(min(len(table), len(tokenization.tokenizer)))
        tails = tuple({text[i:] for text in stop for i in range(1, len(text))})
        pieces = tokenization.tokenizer.convert_ids_to_tokens(list(tokens))
        texts = tokenization.tokenizer.batch_decode(
            [[token] for token in tokens], clean_up_tokenization_spaces=False
        )
        for token, piece, text in zip(tokens, pieces, texts, strict=True):
            # A token that is decoded alone loses its space.
            bare = piece.startswith("▁") and not text.startswith(" ")
            text_shown = f" {text}" if bare else text
            table[token] |= (
                text_shown.startswith(tails)
                or "\ufffd" in text_shown
                or any(s in text_shown for s in stop)
            )
    return table.to(model.device)


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
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
