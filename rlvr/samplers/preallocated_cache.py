"""Keys and values of rollouts that grow by a token a step and drop out one by one.  Axes: B rows, H heads, L tokens, D.

transformers' own layer copies everything it holds at every step, twice the work of the model itself where that is
small.  Ours writes the new token into room kept free behind the others, and fills the hole of a row that is done
with the last row.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

__all__ = ["RoomyLayer", "drop_rows", "is_roomy", "repeat_rows", "roomy_cache"]

_ROOM: Final = 64  # tokens, at least; then half as much again


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """A layer of full attention.  `keys` and `values` [B, H, L, D] are views into wider buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._rows = self._filled = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append [B, H, new, D].

        Under autocast rotated keys come in float32 and values in bfloat16, in which attention takes both: keys are
        kept so, or the whole cache would be cast again at every token.
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
        self._look()
        return self.keys, self.values

    def get_seq_length(self, *args: Any) -> int:
        """L."""
        return self._filled

    def repeat(self, index: Tensor) -> None:
        """Row i becomes what row `index[i]` was."""
        self._buffers = _wider(self.keys[index], self._filled), _wider(self.values[index], self._filled)
        self._rows = len(index)
        self._look()

    def drop(self, holes: Tensor, last: Tensor, rows: int) -> None:
        """Keep so many rows, the rows at `last` moved into the holes."""
        assert self._buffers is not None
        for buffer in self._buffers if len(holes) else ():
            buffer[holes, :, : self._filled] = buffer[last, :, : self._filled]
        self._rows = rows
        self._look()

    def _look(self) -> None:
        assert self._buffers is not None
        self.keys, self.values = (buffer[: self._rows, :, : self._filled] for buffer in self._buffers)


def _wider(states: Tensor, length: int) -> Tensor:
    """The same, with room behind."""
    rows, heads, filled, depth = states.shape
    buffer = states.new_empty(rows, heads, max(length + _ROOM, length * 3 // 2), depth)
    buffer[:, :, :filled] = states
    return buffer


def roomy_cache(config: Any) -> Any:
    """The cache that a model of this config needs, with its layers of full attention made roomy."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def is_roomy(cache: Any) -> bool:
    """True if each layer attends to all that came before, and keeps one key per token."""
    return all(isinstance(layer, RoomyLayer) for layer in cache.layers)


def repeat_rows(cache: Any, index: Tensor) -> None:
    """Row i becomes what row `index[i]` was."""
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            layer.repeat(index)
        else:
            layer.reorder_cache(index)  # what beam search uses: every kind of layer has it, with all its states


def drop_rows(cache: Any, holes: Tensor, last: Tensor, rows: int) -> None:
    """Keep so many rows, the rows at `last` moved into the holes."""
    order = None
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            layer.drop(holes, last, rows)
            continue
        if order is None:
            order = torch.arange(rows, device=holes.device)
            order[holes] = last
        layer.reorder_cache(order)
