"""Packing: the rows of a micro-batch side by side in one long row, without padding.

Axes: B rows, L tokens of all rows, N completion tokens.

`position_ids` begin again at 0 with each row.  The rows are kept apart by that alone: "sdpa" and
flash attention cost what the rows would cost alone (see `rlvr.samplers.packed_attention`); "eager"
gets a mask of L x L, which is right too, and for long micro-batches much slower than padding.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.batches import Padded, pad, places_of, sizes_of
from rlvr.validate import require_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Packed", "pack", "packed_hidden_states", "packs", "require_packing"]


@dataclass(frozen=True, slots=True)
class Packed(Padded):
    """A micro-batch in one row: `input_ids` are [1, L], and all else is as in `Padded`.

    Attributes:
        position_ids: 0, 1, 2 … anew for each row.
    """

    position_ids: Int[Tensor, "1 L"]


def pack(rows: Sequence[Tokenized], *, device: torch.device | str = "cpu") -> Packed:
    """Rows of any lengths in one.

    Args:
        rows: at least one, each with a prompt of at least one token.
        device: of the tensors.

    Raises:
        UsageError: there are no rows, or one has no prompt.
    """
    prompts, completions = sizes_of(rows)
    lengths = prompts + np.maximum(completions - 1, 0)  # a completion's last token predicts nothing
    starts = lengths.cumsum() - lengths
    parts = (
        part
        for row in rows
        for part in (row.prompt_ids, row.completion_ids[: len(row.completion_ids) - 1])
    )
    ids = np.fromiter(chain.from_iterable(parts), np.int64, int(lengths.sum()))
    # Positions begin again at 0: these alone keep the rows of a pack apart.
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    input_ids, position_ids = (
        torch.from_numpy(values[None]).to(device) for values in (ids, positions)
    )
    places = places_of(rows, starts + prompts, completions, device)
    return Packed(input_ids, *places, len(rows), int(completions.max()), position_ids)


def packs(lengths: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Split rows into packs: the indices of the rows in each.

    The longest row first, each into the first pack with room for it (first fit decreasing: at most
    11/9 of the fewest possible, plus 2/3; Dósa 2007).

    Args:
        lengths: tokens of each row, prompt and completion.
        max_tokens: most tokens of a pack.  A single row that is longer gets a pack of its own.

    Raises:
        UsageError: `max_tokens` is below 1.
    """
    require_whole("max_tokens", max_tokens, 1)
    all_packs: list[list[int]] = []
    # Tokens for which each pack has room; places behind the last pack are not used yet.
    room = np.zeros(len(lengths), dtype=np.int64)
    # The same rows in the same packs on every rank, so ties keep their order.
    for i in np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist():
        fitting = np.flatnonzero(room[: len(all_packs)] >= lengths[i])
        at = int(fitting[0]) if len(fitting) else len(all_packs)
        if at == len(all_packs):
            all_packs.append([])
            # A row longer than the limit gets a pack of its size, with no room left.
            room[at] = max(max_tokens, lengths[i])
        all_packs[at].append(i)
        room[at] -= lengths[i]
    return all_packs


@torch.no_grad()  # type: ignore[untyped-decorator]
def require_packing(model: PreTrainedModel) -> None:
    """Refuse a model that mixes the rows of a pack: tries on a few rows whether each is as it is
    alone.

    Args:
        model: a causal language model of transformers.

    Raises:
        UsageError: the model takes no positions, or the hidden states of packed rows are others.
    """
    takes_positions = "position_ids" in inspect.signature(model.base_model.forward).parameters
    vocabulary = model.config.get_text_config().vocab_size
    rows = [
        TokenRow([i % vocabulary for i in range(first, first + n)], [5 % vocabulary])
        # Three rows: one of one token between two longer ones, with tokens that differ.
        for first, n in ((1, 5), (7, 1), (3, 6))
    ]
    packed = pack(rows, device=model.device)
    if takes_positions:
        states = packed_hidden_states(model, packed)[0]
        packed_states = [states[start : start + n] for start, n in ((0, 5), (5, 1), (6, 6))]
        alone = [
            model.base_model(input_ids=pad([row], device=model.device).input_ids, use_cache=False)
            for row in rows
        ]
        differences = [
            (a - b.last_hidden_state[0]).abs().max()
            for a, b in zip(packed_states, alone, strict=True)
        ]
        # √ε of the largest state: far above rounding, far below what another row's tokens change.
        rounding = torch.finfo(states.dtype).eps ** 0.5 * states.abs().max()
        # NaN is not `<=`, so it is refused as well.
        if max(differences) <= rounding:
            return
    raise UsageError(
        f"packing is on, and {type(model).__name__} with attention "
        f"{model.config._attn_implementation!r} does not keep the rows of a pack apart, so that "
        "each would read those before it; switch packing off, or choose another attention, such as "
        "'sdpa' or 'flash_attention_2'"
    )


def packed_hidden_states(model: PreTrainedModel, packed: Packed) -> Float[Tensor, "1 L H"]:
    """The last hidden states of a pack.

    Args:
        model: a causal language model of transformers.
        packed: the micro-batch.
    """
    # No mask and no cache: only then does transformers look for positions that begin anew.
    states: Tensor = model.base_model(
        input_ids=packed.input_ids, position_ids=packed.position_ids, use_cache=False
    ).last_hidden_state
    return states
