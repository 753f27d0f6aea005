"""Attention over packed rows, each over itself alone.  Axes: L tokens of all rows, H
heads, D sizes of a head.

    row 0  [····]
    row 1        [·········]
    row 2                   [··]        no L x L mask, and nothing computed between rows

In half precision on a GPU it is one kernel, PyTorch's own flash attention over rows of many lengths
(`torch.nn.attention.varlen`, from 2.11 on); everywhere else each row is computed by itself.  What
is not packed is computed as under "sdpa".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.torch_version import TorchVersion
from torch.utils.weak import WeakIdKeyDictionary
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PretrainedConfig, PreTrainedModel

__all__ = ["PACKED", "attend_by", "is_torchs_own", "use_packed_attention"]

PACKED: Final = "rlvr_packed"
_HAS_KERNEL: Final = TorchVersion(torch.__version__) >= (2, 11)  # with windows, which 2.10 lacks
_starts: Any = WeakIdKeyDictionary()  # of the rows, by positions: all layers ask for the same
_ways: Any = WeakIdKeyDictionary()  # to attend, by positions

_Attend = Callable[[Tensor, Tensor, Tensor, float | None, int | None], Tensor]


def attend_by(position_ids: Tensor, attend: _Attend) -> None:
    """Have the tokens with these positions attend in another way, as where
    other ranks have keys too.

    Args:
        position_ids: [1, L], as the model gets them.
        attend: of queries [1, H, L, D], keys, values, the scale and the window: [1, L, H, D].  It
            must not hold the positions: it lives as long as they do.
    """
    _ways[position_ids] = attend


def is_torchs_own(config: PretrainedConfig) -> bool:
    """True if a model's attention is `scaled_dot_product_attention` of PyTorch.

    Args:
        config: of a model of transformers.
    """
    return config._attn_implementation in ("sdpa", PACKED)


def use_packed_attention(model: PreTrainedModel) -> None:
    """Let a model of "sdpa" attention compute packed rows each by itself; others stay as they are.

    Args:
        model: a causal language model of transformers.
    """
    in_chunks = getattr(model.config.get_text_config(), "attention_chunk_size", None)
    if model.config._attn_implementation == "sdpa" and in_chunks is None:
        model.set_attn_implementation(PACKED)


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    **options: object,
) -> Tensor | None:
    """None for one unpadded row, in which packed rows may lie, and what
    "sdpa" gets for all else."""
    if batch_size == 1 and q_length == kv_length and attention_mask is None:
        return None
    return sdpa_mask(batch_size, q_length, kv_length, attention_mask=attention_mask, **options)


def _attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """What transformers calls: queries [B, H, L, D], keys and values
    with as many heads or fewer."""
    # Where ranks read rows together the positions say how; looked up by identity.
    if position_ids is not None and position_ids in _ways:
        return _ways[position_ids](query, key, value, scaling, sliding_window), None
    length = query.shape[2]
    # Padded rows and decode steps are as they were.
    if attention_mask is not None or len(query) > 1 or length != key.shape[2]:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return output, None
    starts = (
        torch.zeros(1, dtype=torch.int32, device=query.device)
        if position_ids is None
        else _starts_of(position_ids)
    )
    # Starts of rows and the end of the last: n + 1 numbers, as the kernel takes them.
    ends = torch.nn.functional.pad(starts, (0, 1), value=length)
    if _HAS_KERNEL and query.is_cuda and value.dtype in (torch.float16, torch.bfloat16):
        output = _in_one_kernel(query, key, value, ends, scaling, sliding_window)
    else:
        output = _row_by_row(query, key, value, ends.tolist(), scaling, sliding_window)
    return output, None


def _starts_of(position_ids: Tensor) -> Tensor:
    """Where rows begin, [rows] in int32: the first token, and each whose position is 0."""
    if position_ids not in _starts:
        is_first = position_ids[0] == 0
        is_first[0] = True
        _starts[position_ids] = is_first.nonzero().flatten().int()
    starts: Tensor = _starts[position_ids]
    return starts


def _in_one_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: Tensor,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    longest = int(ends.diff().max())
    groups = query.shape[1] // key.shape[1]  # torch 2.11 wants as many keys as queries
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    # [L, H, D] in half precision: rotated queries may be float32 under autocast.
    query, key, value = (x[0].transpose(0, 1).to(value.dtype) for x in (query, key, value))
    output: Tensor = varlen_attn(
        query,
        key,
        value,
        ends,
        ends,
        longest,
        longest,
        scale=scaling,
        # `window` keys with its own: `window - 1` to the left, none to the right.
        window_size=(-1 if window is None else window - 1, 0),
    )
    return output[None]


def _row_by_row(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: list[int],
    scaling: float | None,
    window: int | None,
) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    outputs = []
    for start, end in pairwise(ends):
        q, k, v = (x[:, :, start:end] for x in (query, key, value))
        band = None
        # A row that is shorter than the window sees all before it.
        if window is not None and window < end - start:
            ones = torch.ones(end - start, end - start, dtype=torch.bool, device=query.device)
            band = ones.tril().triu(1 - window)
        outputs.append(
            # `is_causal` lets the kernel skip half; with a mask it must be off.
            scaled_dot_product_attention(
                q, k, v, attn_mask=band, is_causal=band is None, scale=scaling
            )
        )
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


ALL_ATTENTION_FUNCTIONS.register(PACKED, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(PACKED, _mask)
