"""Rows too long for one device: ranks that read a pack together, each some of its tokens.

Axes: C ranks of a context group, L tokens of the pack, l = L / C of them on each rank, N completion
tokens, n of them on this rank.

    rank 0  [chunk 0]                              [chunk 3]
    rank 1           [chunk 1]           [chunk 2]

Of 2 C chunks a rank has one from either end: late tokens see many others and early ones few, so all
ranks have as much attention to compute.  In attention keys and values of all ranks are gathered;
the rest of a layer, and the head, see a rank's own tokens alone (Llama 3, arXiv:2407.21783, section
3.3.2).  What comes out, a number of each completion token, is on every rank of the group.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from rlvr.errors import RlvrError, UsageError
from rlvr.samplers.packed_attention import PACKED, attend_by
from rlvr.train.packing import Packed

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx
    from torch.distributed import ProcessGroup
    from transformers import PreTrainedModel

__all__ = ["ContextGroup", "PackShare", "require_context"]

_NEWER: Final = hasattr(dist, "all_gather_single")  # torch 2.13 warns of the older names
_all_gather: Any = dist.all_gather_single if _NEWER else dist.all_gather_into_tensor
_reduce_scatter: Any = dist.reduce_scatter_single if _NEWER else dist.reduce_scatter_tensor


def require_context(model: PreTrainedModel, packing: bool, size: int) -> None:
    """Refuse a model whose rows so many ranks cannot read together.

    Args:
        model: of transformers.
        packing: whether its rows lie side by side.
        size: ranks of a context group; 1 for none.

    Raises:
        UsageError: its rows are padded, or its attention is not PyTorch's own.
    """
    kind = model.config._attn_implementation
    if size == 1 or (packing and kind == PACKED):
        return
    if not packing:
        why, remedy = "packing is off", "switch packing on"
    elif kind == "sdpa":
        why, remedy = "this model attends in chunks, which they cannot", "leave it out"
    else:
        why, remedy = f"attention is {kind!r}", "leave attention out, for 'sdpa'"
    raise UsageError(
        f"context_parallel is {size}: ranks share rows that lie side by side, and {why}; {remedy}"
    )


@dataclass(frozen=True, slots=True)
class PackShare(Packed):
    """A rank's tokens of a pack; `sources` count these tokens.

    Attributes:
        own: the places of its completion tokens among those of the pack.
        total: N.
    """

    own: Tensor
    total: int


class ContextGroup:
    """The ranks that read packs together.

    Args:
        mesh: of the group, one-dimensional.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self._group, self._size, self._rank = mesh.get_group(), mesh.size(), mesh.get_local_rank()
        self._attention: _Attention | None = None  # of the last share

    def share(self, pack: Packed) -> PackShare:
        """This rank's tokens of a pack.

        Args:
            pack: the same one on every rank.
        """
        length = pack.input_ids.shape[1]
        # ⌈L / 2C⌉: rounded up, so that all ranks have equally
        # many tokens, as a gather of equal parts needs.
        chunk = -(-length // (2 * self._size))
        filling = 2 * self._size * chunk - length
        filler = torch.arange(filling, device=pack.position_ids.device)[None]  # a row of its own
        positions = torch.cat([pack.position_ids, filler], dim=1)
        # Position 0 begins a row; the filler is the last one.
        starts = (positions[0] == 0).nonzero().flatten().tolist()
        # A rank's two chunks, in the flat pack: its own
        # from the front, and its mirror image from the end.
        begins = [number * chunk for number in (self._rank, 2 * self._size - 1 - self._rank)]
        ids = pad(pack.input_ids, (0, filling))
        input_ids, position_ids = (
            torch.cat([all_of[:, begin : begin + chunk] for begin in begins], dim=1)
            for all_of in (ids, positions)
        )
        first, second = (pack.sources - begin for begin in begins)
        is_first, is_second = ((at >= 0) & (at < chunk) for at in (first, second))
        # Places, in the pack, of the completion tokens whose logits this rank computes.
        kept_positions = (is_first | is_second).nonzero().flatten()
        attention = _Attention(self._group, self._size, chunk, begins, [*starts, len(positions[0])])
        # Found again by the positions' tensor, which every layer of the model passes on.
        attend_by(position_ids, attention)
        self._attention = attention
        named = {field.name: getattr(pack, field.name) for field in fields(Packed)}
        named |= {name: named[name][kept_positions] for name in ("targets", "rows", "columns")}
        # The second chunk lies right after the first in this rank's tokens.
        sources = torch.where(is_first, first, second + chunk)[kept_positions]
        named |= {"input_ids": input_ids, "position_ids": position_ids, "sources": sources}
        return PackShare(**named, own=kept_positions, total=len(pack.targets))

    def join(self, values: Tensor, share: PackShare) -> Tensor:
        """[N] of all ranks' tokens, in the pack's order; the gradient is that of this rank's own.

        Args:
            values: [n], of the share's.
            share: this rank's tokens.

        Raises:
            RlvrError: the model has attended in its own way, each rank to its own tokens.
        """
        if self._attention is not None and not self._attention.was_called:
            raise RlvrError(
                "the model's attention did not get the positions that it was given, so each rank "
                "read its own tokens alone; leave context_parallel out"
            )
        joined: Tensor = _Joined.apply(values, share.own, share.total, self._group)
        return joined


class _Attention:
    """Attention of this rank's queries over the keys of all ranks."""

    def __init__(
        self, group: ProcessGroup, size: int, chunk: int, begins: list[int], ends: list[int]
    ) -> None:
        self._group, self._size, self._chunk = group, size, chunk
        self._begins, self._rows, self.was_called = begins, list(pairwise(ends)), False

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Queries [1, H, l, D]; keys and values with as many heads or
        fewer.  Returns [1, l, H, D]."""
        self.was_called = True
        groups = query.shape[1] // key.shape[1]
        # Gathered before they are repeated: with few key heads that is a fraction of the traffic.
        key, value = (self._of_all(x).repeat_interleave(groups, dim=1) for x in (key, value))
        outputs = []
        for begin, queries in zip(self._begins, query.split(self._chunk, dim=2), strict=True):
            for start, end in self._rows:
                first, last = max(begin, start), min(begin + self._chunk, end)
                if first < last:
                    # The first key that the earliest query of this piece sees.
                    low = start if window is None else max(start, first + 1 - window)
                    q = queries[:, :, first - begin : last - begin]
                    visible = _mask_of(last - first, first - low, window, q.device)
                    k, v = key[:, :, low:last], value[:, :, low:last]
                    outputs.append(
                        scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scaling)
                    )
        return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()

    def _of_all(self, own: Tensor) -> Tensor:
        """[1, h, L, D] of all ranks' [1, h, l, D], in the pack's order."""
        gathered: Tensor = _Gathered.apply(own[0], self._group, self._size)
        # Gathered is [C, h, 2 chunk, D]. Front chunks are in order of rank, back ones in reverse.
        front, back = gathered.split(self._chunk, dim=2)
        return torch.cat([front, back.flip(0)]).transpose(0, 1).flatten(1, 2)[None]


def _mask_of(queries: int, before: int, window: int | None, device: torch.device) -> Tensor:
    """Which keys a query sees, of `before` and its own: [queries, before + queries], or the rule
    of it that kernels know."""
    if window is None:
        return causal_lower_right(queries, before + queries)
    ones = torch.ones(queries, before + queries, dtype=torch.bool, device=device)
    # Query i, at place before + i, sees keys up to its own and no more than `window` of them.
    return ones.tril(before).triu(before + 1 - window)


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    """[C, …] of all ranks; a rank's gradient is the sum of what all ranks have for its part."""

    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, group: ProcessGroup, size: int) -> Tensor:
        ctx.group = group
        gathered = own.new_empty(size * len(own), *own.shape[1:])
        _all_gather(gathered, own.contiguous(), group=group)
        return gathered.unflatten(0, (size, len(own)))

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        own_gradient = gradient.new_empty(gradient.shape[1:])
        _reduce_scatter(own_gradient, gradient.flatten(0, 1).contiguous(), group=ctx.group)
        return own_gradient, None, None


class _Joined(torch.autograd.Function):  # type: ignore[misc]
    """Each rank computes the same loss of the joined values, so its gradient is whole already."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, values: Tensor, own: Tensor, total: int, group: ProcessGroup
    ) -> Tensor:
        ctx.save_for_backward(own)
        joined = values.new_zeros(total).index_put((own,), values)
        dist.all_reduce(joined, group=group)  # 0 + x is exact
        return joined

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (indices,) = ctx.saved_tensors
        return gradient[indices], None, None, None
