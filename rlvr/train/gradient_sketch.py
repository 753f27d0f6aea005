"""A gradient in 4,096 numbers: a seeded linear sketch, whose dot products estimate those of whole gradients.

The gradient is laid out in rows of 65,521; number c of row r has the sign ρ_r σ_c and is added to
place c mod 4,096. Signs are bits of SHAKE-256, so anyone can draw them.  It is linear: sketches of
shards add up to that of the whole.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["PLACES", "ROW", "sketch", "sketch_of", "weights_digest"]

PLACES: Final = 4096
ROW: Final = 65_521
"""Prime, so that no shape of a layer repeats in step with it."""


@cache
def _signs(name: str, count: int) -> Tensor:
    bits = np.frombuffer(hashlib.shake_256(name.encode()).digest(-(-count // 8)), np.uint8)
    return torch.from_numpy(np.unpackbits(bits)[:count].astype(np.float32) * 2 - 1)


def sketch(model: nn.Module) -> NDArray[np.float64]:
    """The sketch of a model's gradient, or of this rank's shard of it.

    Args:
        model: after a backward pass; parameters without gradient count as 0.
    """
    start, parts = 0, []
    for parameter in model.parameters():
        if parameter.grad is not None:
            parts.append((start + _offset(parameter.grad), _local(parameter.grad)))
        start += parameter.numel()
    return sketch_of(parts, start)


def sketch_of(parts: list[tuple[int, Tensor]], size: int) -> NDArray[np.float64]:
    """The sketch of a flat vector.

    Args:
        parts: where a part begins, and its numbers; the rest is 0.
        size: of the vector.
    """
    rows = _signs("rlvr rows", -(-size // ROW) + 1)
    total = torch.zeros(ROW, dtype=torch.float64)
    for start, values in parts:
        flat = values.detach().reshape(-1).float()
        while len(flat) and start % ROW:  # up to the end of a row
            n = min(len(flat), ROW - start % ROW)
            column = start % ROW
            total[column : column + n] += (rows[start // ROW] * flat[:n]).cpu()
            flat, start = flat[n:], start + n
        full_rows = len(flat) // ROW
        if full_rows:
            signs = rows[start // ROW : start // ROW + full_rows].to(flat.device)
            total += (signs @ flat[: full_rows * ROW].view(full_rows, ROW)).double().cpu()
        remainder = flat[full_rows * ROW :]
        total[: len(remainder)] += (rows[start // ROW + full_rows] * remainder).cpu()
    signed = (total * _signs("rlvr columns", ROW)).numpy()
    places = np.arange(ROW) % PLACES
    return np.bincount(places, weights=signed, minlength=PLACES).astype(np.float64)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _offset(gradient: Tensor) -> int:
    """Where this rank's shard begins in the flat tensor, which is sharded by its first
    dimension."""
    if not isinstance(gradient, DTensor):
        return 0
    _, offsets = compute_local_shape_and_global_offset(
        gradient.shape, gradient.device_mesh, gradient.placements
    )
    return int(offsets[0]) * gradient[0].numel() if gradient.dim() else 0


def weights_digest(model: nn.Module) -> str:
    """A digest of a model's weights, by name, type and bytes.

    Args:
        model: whose weights are whole on this rank.
    """
    hasher = hashlib.blake2b(digest_size=16)
    for name, parameter in model.named_parameters():
        values = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        hasher.update(f"{name} {list(parameter.shape)} {parameter.dtype}".encode())
        hasher.update(values.numpy())
    return hasher.hexdigest()
