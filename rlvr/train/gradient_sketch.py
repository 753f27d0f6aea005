"""A gradient in 4,096 numbers: a seeded linear sketch, whose dot products estimate
those of whole gradients.

The gradient is laid out in rows of 65,521; number c of row r has the sign ρ_r σ_c and is added to
place c mod 4,096. Signs are bits of SHAKE-256, so anyone can draw them.  It is linear: sketches of
shards add up to that of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["DIGEST_KIND", "PLACES", "ROW", "sketch", "sketch_of", "weights_digest"]

DIGEST_KIND: Final = "words:"
"""Begins the digests of weights; files of earlier releases have another kind, without it."""
# The cosine of two sketches is that of the gradients within about 1 / √4096, or 1.6 %.
PLACES: Final = 4096
ROW: Final = 65_521
"""Prime, so that no shape of a layer repeats in step with it."""


@cache
def _signs(name: str, count: int) -> Tensor:
    bits = np.frombuffer(hashlib.shake_256(name.encode()).digest(-(-count // 8)), np.uint8)
    return torch.from_numpy(np.unpackbits(bits)[:count].astype(np.float32) * 2 - 1)


def sketch(model: nn.Module) -> NDArray[np.float64]:
    """The sketch of a model's gradient, or of this rank's part: those of all ranks add up to it.

    On shards all ranks call it together.

    Args:
        model: after a backward pass; parameters without gradient count as 0.
    """
    return sketch_of(_parts(model), sum(p.numel() for p in model.parameters()))


def sketch_of(parts: Iterable[tuple[int, Tensor]], size: int) -> NDArray[np.float64]:
    """The sketch of a flat vector.

    Args:
        parts: where a part begins, and its numbers; the rest is 0.
        size: of the vector.
    """
    # One sign for each row of the flat vector; one row more, as its last one may be begun only.
    signs = _signs("rlvr rows", -(-size // ROW) + 1)
    rows, total = signs, torch.zeros(ROW)
    for start, values in parts:
        rows, total = rows.to(values.device), total.to(values.device)
        # float32 on the device; the final sum over places is float64.
        flat = values.detach().reshape(-1).to(torch.float32)
        row, column = divmod(start, ROW)
        if column:  # up to the end of a row
            flat, first = flat[ROW - column :], flat[: ROW - column]
            total[column : column + len(first)].add_(first, alpha=float(signs[row]))
            row += 1
        full_rows = len(flat) // ROW
        end = full_rows * ROW
        if full_rows:
            total.addmv_(flat[:end].view(full_rows, ROW).t(), rows[row : row + full_rows])
        if end < len(flat):
            total[: len(flat) - end].add_(flat[end:], alpha=float(signs[row + full_rows]))
    # Columns' signs once at the end, which is the same as at every row.
    signed = total.double().cpu().numpy() * _signs("rlvr columns", ROW).numpy()
    places = np.arange(ROW) % PLACES
    return np.bincount(places, weights=signed, minlength=PLACES).astype(np.float64)


def _parts(model: nn.Module) -> Iterator[tuple[int, Tensor]]:
    """Where a part of this rank begins in the flat gradient, and its numbers; one at a time."""
    start = 0
    for parameter in model.parameters():
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            mesh = gradient.device_mesh
            if mesh.ndim > 1:  # parts of rows, or the same on several ranks: the first has it whole
                full_gradient = gradient.full_tensor()
                if not any(mesh.get_coordinate() or ()):
                    yield start, full_gradient
            else:
                _, offsets = compute_local_shape_and_global_offset(
                    gradient.shape, mesh, gradient.placements
                )
                # Shards are along dimension 0, so a shard's
                # numbers follow each other in the flat gradient.
                begin = int(offsets[0]) * gradient[0].numel() if gradient.dim() else 0
                yield start + begin, gradient.to_local()
        elif gradient is not None:
            yield start, gradient
        start += parameter.numel()


def weights_digest(model: nn.Module) -> str:
    """A digest of a model's weights, by name, type and bytes, that tells models apart.

    It is computed at the speed of memory, and no proof against forgery: of each row of 1,024 words
    of 32 bits the sum with fixed factors, modulo 2**64, is what BLAKE2b reads, and the remaining
    bytes of a tensor as they are.

    Args:
        model: whose weights are whole on this rank.
    """
    hasher = hashlib.blake2b(digest_size=16)
    factors = _factors()
    row_bytes = 4 * len(factors)
    for name, parameter in model.named_parameters():
        # Bytes, since numpy has no bfloat16.
        values = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        whole_size = len(values) // row_bytes * row_bytes
        words = values[:whole_size].view("<u4").reshape(-1, len(factors))
        hasher.update(f"{name} {list(parameter.shape)} {parameter.dtype}".encode())
        hasher.update(np.einsum("rc,c->r", words, factors).astype("<u8"))
        hasher.update(values[whole_size:])
    return DIGEST_KIND + hasher.hexdigest()


@cache
def _factors() -> NDArray[np.uint64]:
    return np.frombuffer(hashlib.shake_256(b"rlvr words").digest(8 * 1024), "<u8").astype(np.uint64)
