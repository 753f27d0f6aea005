"""A key-value cache with preallocated room.  Axes: B rows, H heads, L tokens, D width of a head.

transformers' own layer copies all keys and values at every step, which for a small model takes twice as long as the
model itself.  This one writes the new token into free room behind the others, and when a row is finished, it moves
the last row into its place.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

__all__ = ["PreallocatedLayer", "drop_rows", "is_preallocated", "preallocated_cache", "repeat_rows"]

_ROOM: Final = 64  # least room for new tokens; a buffer that is full grows by at least half


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Keys and values of a layer with full attention: `keys` and `values` [B, H, L, D] are views of wider buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._rows = self._filled = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all of them.

        Under autocast, rotated keys are float32 and values bfloat16, and attention computes in bfloat16.  Keys are
        kept in the type of the values; otherwise the whole cache would be cast at every token.

        Args:
            key_states: of the new tokens, [B, H, new, D].
            value_states: of the new tokens, [B, H, new, D].
            args, kwargs: what transformers passes to other kinds of layers; not used.
        """
        key_states = key_states.to(value_states.dtype)
        start, stop = self._filled, self._filled + key_states.shape[2]
        if self._buffers is None:
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self._rows = key_states.shape[0]
            self._buffers = _wider(key_states, stop), _wider(value_states, stop)
        else:
            if stop > self._buffers[0].shape[2]:
                self._buffers = _wider(self.keys, stop), _wider(self.values, stop)
            for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
                buffer[: self._rows, :, start:stop] = states
        self._filled = stop
        self._update_views()
        return self.keys, self.values

    def get_seq_length(self, *args: Any) -> int:
        """L, the number of tokens in the cache."""
        return self._filled

    def repeat(self, index: Tensor) -> None:
        """Make row i a copy of the old row `index[i]`.

        Args:
            index: rows, of any length.
        """
        self._buffers = _wider(self.keys[index], self._filled), _wider(self.values[index], self._filled)
        self._rows = len(index)
        self._update_views()

    def drop(self, holes: Tensor, last: Tensor, rows: int) -> None:
        """Move the rows `last` into the places `holes`, then keep the first `rows` rows.

        Args:
            holes: places of finished rows.
            last: rows that move there, as many.
            rows: number of rows that are left.
        """
        assert self._buffers is not None
        for buffer in self._buffers if len(holes) else ():
            buffer[holes, :, : self._filled] = buffer[last, :, : self._filled]
        self._rows = rows
        self._update_views()

    def _update_views(self) -> None:
        assert self._buffers is not None
        self.keys, self.values = (buffer[: self._rows, :, : self._filled] for buffer in self._buffers)


def _wider(states: Tensor, length: int) -> Tensor:
    """The same in a wider buffer, with room behind."""
    rows, heads, filled, depth = states.shape
    buffer = states.new_empty(rows, heads, max(length + _ROOM, length * 3 // 2), depth)
    buffer[:, :, :filled] = states
    return buffer


def preallocated_cache(config: Any) -> Any:
    """The cache for a model, with a `PreallocatedLayer` for each layer of full attention.

    Args:
        config: of the model.
    """
    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def is_preallocated(cache: Any) -> bool:
    """True if all layers are `PreallocatedLayer`: each attends to all tokens before, with one key per token.

    Args:
        cache: as `preallocated_cache` makes it.
    """
    return all(isinstance(layer, PreallocatedLayer) for layer in cache.layers)


def repeat_rows(cache: Any, index: Tensor) -> None:
    """Make row i a copy of the old row `index[i]`, in all layers.

    Args:
        cache: as `preallocated_cache` makes it.
        index: rows, of any length.
    """
    for layer in cache.layers:
        if isinstance(layer, PreallocatedLayer):
            layer.repeat(index)
        else:
            layer.reorder_cache(index)  # used by beam search, so every kind of layer has it, for all its states


def drop_rows(cache: Any, holes: Tensor, last: Tensor, rows: int) -> None:
    """Move the rows `last` into the places `holes`, then keep the first `rows` rows, in all layers.

    Args:
        cache: as `preallocated_cache` makes it.
        holes: places of finished rows.
        last: rows that move there, as many.
        rows: number of rows that are left.
    """
    order = None
    for layer in cache.layers:
        if isinstance(layer, PreallocatedLayer):
            layer.drop(holes, last, rows)
            continue
        if order is None:
            order = torch.arange(rows, device=holes.device)
            order[holes] = last
        layer.reorder_cache(order)
