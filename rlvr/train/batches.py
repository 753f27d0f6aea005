"""Rows of different lengths as padded tensors.  Axes: B rows, L tokens of a row,
T tokens of a completion.

Rows are padded on the right.  In a causal model no token attends to later ones, so padding needs no
attention mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Tokenized
from rlvr.validate import require_whole

__all__ = [
    "Padded",
    "buckets",
    "pad",
    "places_of",
    "ragged_to_padded",
    "sizes_of",
]


@dataclass(frozen=True, slots=True)
class Padded:
    """A padded batch of rows.  N = number of completion tokens in all rows.

    Attributes:
        input_ids: prompt, completion, padding.  The completion's last token is left out, as it
            predicts nothing.
        sources: for each completion token, the index in the flattened `input_ids` at which it is
            predicted, which is one before its own.
        targets: the completion tokens, row after row.
        rows: the row of each completion token in [B, T].
        columns: the column of each completion token in [B, T].
        height: B.
        width: T, the longest completion.
    """

    input_ids: Int[Tensor, "B L"]
    sources: Int[Tensor, " N"]
    targets: Int[Tensor, " N"]
    rows: Int[Tensor, " N"]
    columns: Int[Tensor, " N"]
    height: int
    width: int


def pad(
    rows: Sequence[Tokenized], *, pad_id: int = 0, device: torch.device | str = "cpu"
) -> Padded:
    """Rows of any lengths as one batch.

    Args:
        rows: at least one, each with a prompt of at least one token.
        pad_id: the token that fills the rest of a row.
        device: of the tensors.

    Raises:
        UsageError: there are no rows, or one has no prompt.
    """
    prompts, completions = sizes_of(rows)
    # The last token of a completion is no input: it predicts nothing that is trained.
    lengths = prompts + np.maximum(completions - 1, 0)
    length = int(lengths.max())
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : prompts[i]] = row.prompt_ids
        ids[i, prompts[i] : lengths[i]] = row.completion_ids[:-1]
    # Logits that predict completion token 0 are at the
    # prompt's last token, hence `- 1` in `places_of`.
    starts = np.arange(len(rows)) * length
    places = places_of(rows, starts + prompts, completions, device)
    input_ids = torch.from_numpy(ids).to(device)
    return Padded(input_ids, *places, len(rows), int(completions.max()))


def sizes_of(rows: Sequence[Tokenized]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tokens of each row's prompt, and of its completion.

    Args:
        rows: at least one, each with a prompt of at least one token.

    Raises:
        UsageError: there are no rows, or one has no prompt.
    """
    if not rows:
        raise UsageError("there are no rows to lay out; give at least one")
    prompts = np.array([len(row.prompt_ids) for row in rows])
    if not prompts.all():
        raise UsageError(
            f"row {int(np.argmin(prompts))} has an empty prompt; begin it with a token such as "
            "<bos>"
        )
    return prompts, np.array([len(row.completion_ids) for row in rows])


def places_of(
    rows: Sequence[Tokenized],
    starts: NDArray[np.int64],
    completions: NDArray[np.int64],
    device: torch.device | str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each completion token: where its logits are, itself, its row, its place in that.

    Args:
        rows: as they are laid out.
        starts: where each row's completion begins in the flat batch.
        completions: tokens of each row's.
        device: of the tensors.
    """
    row_of = np.repeat(np.arange(len(rows)), completions)
    # 0, 1, 2 … within each row: a running number less the count of tokens in the rows before.
    column = np.arange(len(row_of)) - np.repeat(completions.cumsum() - completions, completions)
    targets = chain.from_iterable(row.completion_ids for row in rows)
    flat = np.fromiter(targets, np.int64, len(row_of))
    arrays = starts[row_of] + column - 1, flat, row_of, column
    sources, tokens, row, place = (torch.from_numpy(values).to(device) for values in arrays)
    return sources, tokens, row, place


def ragged_to_padded(
    values: Float[Tensor, " N"], padded: Padded, width: int | None = None
) -> Float[Tensor, "B T"]:
    """Values of completion tokens, each in its row and column; 0 elsewhere.  Differentiable.

    Args:
        values: one per completion token, in the order of `padded.targets`.
        padded: the batch that they belong to.
        width: T of the result, at least the longest completion; None for just that.
    """
    empty = values.new_zeros(padded.height, padded.width if width is None else width)
    # `index_put`, not assignment: the gradient flows back to `values`.
    return empty.index_put((padded.rows, padded.columns), values)


def buckets(
    lengths: Sequence[int], *, max_tokens: int, overhead_tokens: int = 256
) -> list[list[int]]:
    """Split rows into batches of similar length: the indices of the rows in each, longest first.

    Of all splits of the sorted rows it takes the one of least cost, where a batch of n rows costs
    n · (its longest row) + `overhead_tokens`.

    Args:
        lengths: tokens of each row, prompt and completion.
        max_tokens: most tokens of a batch, padding included.  A single row that is longer gets a
            batch of its own.
        overhead_tokens: the cost of starting a batch, in tokens: small on a CPU, 1000 or more on a
            GPU, which short batches leave idle.

    Raises:
        UsageError: `max_tokens` is below 1 or `overhead_tokens` below 0.
    """
    require_whole("max_tokens", max_tokens, 1)
    require_whole("overhead_tokens", overhead_tokens, 0)
    # Longest first, so the first row of a batch is the one that the others are padded
    # to. Stable: ties keep their order, and with it the sums of a resumed run.
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    sizes = np.asarray(lengths, dtype=np.int64)[order]
    n = len(sizes)
    # of the rows before this one, in the best split
    cost = np.full(n + 1, np.iinfo(np.int64).max, dtype=np.int64)
    start = np.zeros(n + 1, dtype=np.int64)  # where the last batch of that split begins
    cost[0] = 0
    for i, size in enumerate(sizes.tolist()):
        # Most rows that fit from here; a row that is too long alone gets a batch all the same.
        longest = min(n - i, max(1, max_tokens // size) if size else n)
        # Costs of the batches of 1, 2 … `longest` rows that begin at row i, in one numpy step.
        tried = cost[i] + overhead_tokens + size * np.arange(1, longest + 1)
        better = tried < cost[i + 1 : i + longest + 1]
        cost[i + 1 : i + longest + 1][better] = tried[better]
        start[i + 1 : i + longest + 1][better] = i
    cuts = [n]
    while cuts[-1] > 0:
        cuts.append(int(start[cuts[-1]]))
    return [order[a:b].tolist() for a, b in pairwise(reversed(cuts))]
