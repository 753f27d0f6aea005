"""Attention of a decode step in bands of rows, each over its longest row's columns alone.
Axes: B rows, L columns.

    band 0  [······························]      few rows, the longest
    band 1                 [···············]
    band 2                         [·······]      most rows

All rows of a batch end in the same column, so the youngest need the last columns only.  A step
reads all keys and values that it computes on: without bands, a batch of skewed lengths would mostly
read columns that are masked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.samplers.packed_attention import is_torchs_own

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PretrainedConfig, PreTrainedModel

__all__ = ["Band", "attention_in_bands", "supports_bands"]

_NAME: Final = "rlvr_bands"
_current = threading.local()  # one batch may be sampled in each thread


class Band(NamedTuple):
    """Rows that stand together.

    Attributes:
        start: the first row.
        stop: the row after the last one.
        first: the first column that one of them attends to.
    """

    start: int
    stop: int
    first: int


def supports_bands(model: PreTrainedModel) -> bool:
    """True if the model's attention is PyTorch's, called by its name in the model's config.

    Args:
        model: a causal language model of transformers.
    """
    # A model's module may hold a table of its own, in which ours is not registered.
    attention_functions = getattr(
        sys.modules.get(type(model).__module__), "ALL_ATTENTION_FUNCTIONS", None
    )
    return is_torchs_own(model.config) and attention_functions is ALL_ATTENTION_FUNCTIONS


@contextmanager
def attention_in_bands(config: PretrainedConfig, bands: Sequence[Band]) -> Iterator[None]:
    """Compute the attention of decode steps in bands, meanwhile.

    Args:
        config: of the model.
        bands: all rows, in their order; none for attention as it is.
    """
    if not bands:
        yield
        return
    # The model looks the attention up by this name at each call.
    before, config._attn_implementation = config._attn_implementation, _NAME
    _current.bands = bands
    try:
        yield
    finally:
        config._attn_implementation = before


def _attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    **options: object,
) -> tuple[Tensor, None]:
    """What transformers calls: queries [B, H, 1, D], keys and values [B, H, L, D], mask [B, 1, 1,
    L]."""
    # A band's rows share the first column that one of them
    # needs; masks hide what a younger row must not see.
    outputs = [
        sdpa_attention_forward(
            module,
            query[start:stop],
            key[start:stop, :, first:],
            value[start:stop, :, first:],
            attention_mask[start:stop, ..., first:],
            **options,
        )[0]
        for start, stop, first in _current.bands
    ]
    return torch.cat(outputs), None


ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
