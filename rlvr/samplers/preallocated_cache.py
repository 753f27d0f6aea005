"""The keys and values of a batch whose rows come and go.  Axes: B rows, H heads, L
columns, D width of a head.

                origin     first                now
    buffer        │··········│···················│··········│   columns are steps of the whole batch
    row 0                    [prompt────][tokens]▲
    row 1                        [prompt][tokens]▲   it has just taken another row's place
    row 2                    ▒▒▒▒▒▒[prompt──────]▲

All rows end in the same column, so that a step writes one column and reads one block, whatever the
rows' ages.  A row that is finished leaves its place to the next one, whose prompt is written to the
left of the current column.  Columns before a row's first token are masked.  transformers' own layer
copies all keys and values at every step, which for a small model takes twice as long as the model
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

from rlvr.errors import UsageError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "Cache",
    "PreallocatedLayer",
    "Room",
    "admit",
    "attends_to_all",
    "cache_argument",
    "cache_for_prompts",
    "fit",
    "move",
    "preallocated_cache",
    "resized",
]

Cache: TypeAlias = Any
"""A `DynamicCache`; transformers has no types."""


@dataclass(slots=True)
class Room:
    """Size of the buffers and the part of them in use, the same for all layers.  Times
    count the steps of the batch.

    Attributes:
        rows: places in use.
        places: rows of the buffers.
        origin: time of the buffers' first column.
        columns: columns of the buffers.
        first: time of the first token that any row attends to.
        now: time of the next token.
    """

    rows: int = 0
    places: int = 0
    origin: int = 0
    columns: int = 0
    first: int = 0
    now: int = 0

    @property
    def used(self) -> slice:
        """The columns from the first token that any row attends to, up to the current one."""
        return slice(self.first - self.origin, self.now - self.origin)

    @property
    def width(self) -> int:
        """Number of columns in use."""
        return self.now - self.first


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Keys and values of a layer: `keys` and `values` [B, H, L, D] are views of wider buffers.

    A layer whose attention has a sliding window keeps all keys too: the model's mask leaves out
    those outside.

    Args:
        room: shared by all layers.
    """

    def __init__(self, room: Room) -> None:
        super().__init__()
        self._room = room
        self._buffers: list[Tensor] | None = None
        # Time of the column behind the last that was written.
        self._end = room.now

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the keys and values of one token of each row, and return those of all tokens.

        Under autocast, rotated keys are float32 and values bfloat16, and attention computes in
        bfloat16.  Keys are kept in the type of the values; otherwise the whole cache would be cast
        at every token.

        Args:
            key_states: of the new tokens, [B, H, 1, D].
            value_states: of the new tokens, [B, H, 1, D].
            args, kwargs: what transformers passes to other kinds of layers; not used.
        """
        room = self._room
        if self._buffers is None:
            self._allocate(key_states, value_states)
        assert self._buffers is not None
        start, column = room.first - room.origin, room.now - room.origin
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[: room.rows, :, column] = states[:, :, 0]
        self._end = room.now + 1
        self.keys, self.values = (
            buffer[: room.rows, :, start : column + 1] for buffer in self._buffers
        )
        return self.keys, self.values

    def get_seq_length(self, *args: Any) -> int:
        """L, the number of columns in use."""
        return max(self._end, self._room.now) - self._room.first

    def resize(self, old: Room) -> None:
        """Move what is in use to buffers of the room's new size.

        Args:
            old: the size and use before.
        """
        if self._buffers is None:
            return
        for i, buffer in enumerate(self._buffers):  # one by one, so that little is held twice
            self._buffers[i] = resized(buffer, old, self._room, column_axis=2)

    def move(self, places: Tensor, sources: Tensor, first: int) -> None:
        """Copy rows to other places.

        Args:
            places: where they go.
            sources: where they are, as many.
            first: time of the first token of any of them.
        """
        # Up to the current column, which is not written yet.
        columns = slice(first - self._room.origin, self._room.used.stop)
        for buffer in self._buffers or ():
            buffer[places, :, columns] = buffer[sources, :, columns]

    def admit(self, places: Tensor, read: DynamicLayer, index: Tensor, width: int) -> None:
        """Write prompts to the left of the current column.

        Args:
            places: the rows' places.
            read: the layer that has read the prompts.
            index: each row's prompt among these.
            width: columns that are copied, counted from the right; at least the longest of these
                prompts.
        """
        if self._buffers is None:
            self._allocate(read.keys, read.values)
        assert self._buffers is not None
        column = self._room.now - self._room.origin
        for buffer, states in zip(self._buffers, (read.keys, read.values), strict=True):
            # The last `width` columns: prompts are padded on the left and end in the same one.
            buffer[places, :, column - width : column] = states[index, :, -width:].to(buffer.dtype)

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        """Zeros, as masked columns must be finite."""
        room = self._room
        self.dtype, self.device, self.is_initialized = values.dtype, values.device, True
        shapes = [
            (room.places, states.shape[1], room.columns, states.shape[3])
            for states in (keys, values)
        ]
        self._buffers = [values.new_zeros(shape) for shape in shapes]


class _StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """States of a layer with convolutions or linear attention: one per row, without columns."""

    def __init__(self, number_of_states: int, room: Room) -> None:
        LinearAttentionLayer.__init__(self, number_of_states)
        self._room = room

    def admit(
        self, places: Tensor, read: LinearAttentionLayer | None, index: Tensor, width: int
    ) -> None:
        """Take over the states of prompts; zeros for prompts of which nothing was read.

        Args:
            places, read, index, width: as in `PreallocatedLayer.admit`.
        """
        for kind in ("conv_states", "recurrent_states"):
            for i in range(self.number_of_states):
                source = getattr(read, kind)[i] if read is not None else None
                self._widen(kind, i, source)
                if (state := getattr(self, kind)[i]) is not None:
                    # Rows whose prompt was not read begin with a state of 0.
                    state[places] = 0 if source is None else source[index]
        if read is not None:
            self.device, self.dtype = read.device, read.dtype
            self.conv_kernel_size, self.has_previous_state = (
                dict(read.conv_kernel_size),
                dict(read.has_previous_state),
            )

    def move(self, places: Tensor, sources: Tensor, first: int) -> None:
        """See `PreallocatedLayer.move`."""
        for states in (self.conv_states, self.recurrent_states):
            for state in states.values():
                if state is not None:
                    state[places] = state[sources]

    def fit(self) -> None:
        """Keep as many states as there are rows."""
        for states in (self.conv_states, self.recurrent_states):
            for i, state in states.items():
                if state is not None:
                    states[i] = state[: self._room.rows]

    def _widen(self, kind: str, i: int, like: Tensor | None) -> None:
        """Have a state for every row, those of new rows 0."""
        states, rows = getattr(self, kind), self._room.rows
        state = states[i]
        pattern = like if state is None else state
        if pattern is None or (state is not None and len(state) == rows):
            return
        # One for each row in use: states have no columns to leave free.
        states[i] = pattern.new_zeros(rows, *pattern.shape[1:])
        if state is not None:
            states[i][: len(state)] = state
        getattr(self, f"is_{kind}_initialized")[i] = True


class _StateAndKeysLayer(_StateLayer, PreallocatedLayer):
    """Both: convolutions or linear attention beside attention."""

    def __init__(self, number_of_states: int, room: Room) -> None:
        PreallocatedLayer.__init__(self, room)
        _StateLayer.__init__(self, number_of_states, room)

    def lazy_initialization(self, *args: object, **kwargs: object) -> None:
        """Of the states: the buffers are made by `update`."""
        LinearAttentionLayer.lazy_initialization(self, *args, **kwargs)

    def admit(self, places: Tensor, read: object, index: Tensor, width: int) -> None:
        """See `PreallocatedLayer.admit`."""
        _StateLayer.admit(self, places, read, index, width)
        if read is not None:
            PreallocatedLayer.admit(self, places, read, index, width)

    def move(self, places: Tensor, sources: Tensor, first: int) -> None:
        """See `PreallocatedLayer.move`."""
        _StateLayer.move(self, places, sources, first)
        PreallocatedLayer.move(self, places, sources, first)


_BOTH: Final = (LinearAttentionAndFullAttentionLayer, LinearAttentionAndSlidingWindowAttentionLayer)


def cache_argument(model: torch.nn.Module) -> str:
    """The argument of the model's `forward` that takes a cache: `cache` since transformers 5.24,
    before that and in models of others `past_key_values`; "" if it takes none.

    Args:
        model: of transformers.
    """
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), "")


def preallocated_cache(config: PretrainedConfig, room: Room) -> Cache:
    """The cache of a batch whose rows come and go.

    Args:
        config: of the model.
        room: shared by its layers.

    Raises:
        UsageError: the model keeps its state in a layer of another kind.
    """
    cache = DynamicCache(config=config)
    cache.layers = [_layer(layer, room) for layer in cache.layers]
    return cache


def _layer(layer: Any, room: Room) -> object:
    if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer):
        return PreallocatedLayer(room)
    if type(layer) is LinearAttentionLayer:
        return _StateLayer(layer.number_of_states, room)
    if type(layer) in _BOTH:
        return _StateAndKeysLayer(layer.number_of_states, room)
    # older releases, such as the one that vLLM asks for, have no such class
    if type(layer).__name__ == "DummyLayer":
        return layer
    raise UsageError(
        "the local sampler does not know layers that keep their state in a "
        f"{type(layer).__name__}; choose another model or sampler"
    )


class _PromptLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of prompts, which are read at once; their types are
    those of `PreallocatedLayer`."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        self.is_initialized, self.dtype, self.device = True, value_states.dtype, value_states.device
        # Prompts are read once, so nothing has to be joined to what is there.
        self.keys, self.values = key_states.to(value_states.dtype), value_states
        return self.keys, self.values


class _PromptStateAndKeysLayer(LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]
    update = _PromptLayer.update


def cache_for_prompts(config: PretrainedConfig) -> Cache:
    """The cache of a batch of prompts that are read once.  Layers with a sliding window keep all
    keys.

    Args:
        config: of the model.
    """
    cache = DynamicCache(config=config)
    for i, layer in enumerate(cache.layers):
        if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer):
            cache.layers[i] = _PromptLayer()
        elif type(layer) in _BOTH:
            cache.layers[i] = _PromptStateAndKeysLayer(layer.number_of_states)
    return cache


def attends_to_all(config: PretrainedConfig) -> bool:
    """True if each layer attends to all tokens before, with one key per token.

    Args:
        config: of the model.
    """
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def admit(
    cache: Cache,
    places: Sequence[int],
    read: Cache | None,
    index: Sequence[int],
    width: int,
    device: object,
) -> None:
    """Give rows the keys, values and states of their prompts, in all layers.

    Args:
        cache: of the batch.
        places: the rows' places.
        read: the cache that has read the prompts; None for prompts of which nothing was read.
        index: each row's prompt in it.
        width: columns that are copied, at least the longest of these prompts.
        device: of the model.
    """
    to, source = (
        torch.tensor(numbers, dtype=torch.int64, device=device) for numbers in (places, index)
    )
    for i, layer in enumerate(cache.layers):
        if isinstance(layer, _StateLayer) or (
            read is not None and isinstance(layer, PreallocatedLayer)
        ):
            layer.admit(to, None if read is None else read.layers[i], source, width)


def move(cache: Cache, places: Tensor, sources: Tensor, first: int) -> None:
    """Copy rows to other places, in all layers; all are read before one is written.

    Args:
        cache: of the batch.
        places: where they go.
        sources: where they are, as many.
        first: time of the first token of any of them.
    """
    for layer in cache.layers:
        if isinstance(layer, PreallocatedLayer | _StateLayer):
            layer.move(places, sources, first)


def fit(cache: Cache, old: Room | None = None) -> None:
    """Follow the room: its number of rows and, if `old` is given, its size.

    Args:
        cache: of the batch.
        old: the room before.
    """
    for layer in cache.layers:
        if old is not None and isinstance(layer, PreallocatedLayer):
            layer.resize(old)
        if isinstance(layer, _StateLayer):
            layer.fit()


def resized(tensor: Tensor, old: Room, new: Room, *, column_axis: int) -> Tensor:
    """The part of a buffer that is in use, in a buffer of another size.

    Args:
        tensor: [places, …, columns, …].
        old: its size and use.
        new: the size and use of the result; its columns hold those in use before.
        column_axis: the axis of the columns.
    """
    shape = list(tensor.shape)
    shape[0], shape[column_axis] = new.places, new.columns
    buffer = tensor.new_zeros(shape)
    rows, start = min(old.rows, new.places), max(old.first, new.first)
    # Only columns that both have, and rows that stay.
    if (width := old.now - start) > 0 and rows:
        part = tensor[:rows].narrow(column_axis, start - old.origin, width)
        buffer[:rows].narrow(column_axis, start - new.origin, width).copy_(part)
    return buffer
