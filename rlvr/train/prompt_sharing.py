"""Prompt sharing in training: each distinct prompt goes through the model once
for all its completions.

Axes: U distinct prompts of at most P tokens, B rows, T tokens of the longest completion, N
completion tokens in all.

Keys and values of the prompts stay in the autograd graph, and each row uses those of its prompt, so
the gradient is the same as if each row had its own copy.  Attention then needs an explicit mask.
That costs little on a CPU; on a GPU it would keep fused attention kernels from skipping masked
blocks, so prompts are not shared there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from rlvr.samplers.preallocated_cache import cache_argument
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.batches import Padded, pad

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "SharedPrompts",
    "hidden_states_sharing_prompts",
    "shared_prompts",
    "supports_prompt_sharing",
    "worth_sharing_prompts",
]

# least share of tokens saved; below it, the second pass through the layers costs more
_SAVED: Final = 0.1
# most numbers in the mask: for long completions it would be larger than what is saved
_MASK: Final = 2**22


def worth_sharing_prompts(rows: Sequence[Tokenized]) -> bool:
    """True if sharing prompts saves enough tokens, and the mask is small enough.

    Args:
        rows: of one micro-batch.
    """
    prompts = {tuple(row.prompt_ids) for row in rows}
    P, T = max(map(len, prompts)), max(len(row.completion_ids) for row in rows)
    # As padded: distinct prompts once, and each completion without its last token.
    together = len(prompts) * P + len(rows) * (T - 1)
    apart = len(rows) * max(len(row.prompt_ids) + len(row.completion_ids) - 1 for row in rows)
    # The mask has rows · T · (P + T) numbers.
    return together <= (1 - _SAVED) * apart and len(rows) * T * (P + T) <= _MASK


@dataclass(frozen=True, slots=True)
class SharedPrompts(Padded):
    """A padded micro-batch, and how it goes through the model with each distinct prompt once.

    Attributes:
        prompts: the distinct prompts, padded on the right.
        prompt_of: the prompt of each row.
        inputs: the completions without their last tokens, padded; None if each has one token at
            most.
        visible: the attention mask of `inputs`.
        positions: the positions of `inputs`.
        states: for each completion token, the index of the state that predicts it, among those of
            all prompts and then of all inputs.
    """

    prompts: Int[Tensor, "U P"]
    prompt_of: Int[Tensor, " B"]
    inputs: Int[Tensor, "B S"] | None
    visible: Bool[Tensor, "_ 1 S K"] | None
    positions: Int[Tensor, "B S"] | None
    states: Int[Tensor, " N"]


def shared_prompts(rows: Sequence[Tokenized], padded: Padded) -> SharedPrompts:
    """Lay a micro-batch out with each distinct prompt once.

    Args:
        rows: of one micro-batch.
        padded: the same rows, padded.
    """
    number: dict[tuple[int, ...], int] = {}
    of = np.array([number.setdefault(tuple(row.prompt_ids), len(number)) for row in rows])
    device, T = padded.input_ids.device, padded.width
    prompts, lengths = _side_by_side(list(number))
    P, inputs, visible, positions = prompts.shape[1], None, None, None
    if T > 1:
        inputs = _side_by_side([row.completion_ids[: T - 1] for row in rows], T - 1)[0].to(device)
        prompt_lengths = lengths[of].to(device)
        visible, positions = (
            _visible(prompt_lengths, P, T - 1),
            prompt_lengths[:, None] + torch.arange(T - 1, device=device),
        )
    prompt_of = torch.from_numpy(of).to(device)
    prompt = prompt_of[padded.rows]
    # a completion's first token is predicted by its prompt
    # Prompts are right-padded, so the last token's place is its length - 1.
    first = prompt * P + lengths.to(device)[prompt] - 1
    # Behind all states of prompts; token c of a row is predicted by input c - 1.
    later = len(number) * P + padded.rows * (T - 1) + padded.columns - 1
    return SharedPrompts(
        **{field.name: getattr(padded, field.name) for field in fields(Padded)},
        prompts=prompts.to(device),
        prompt_of=prompt_of,
        inputs=inputs,
        visible=visible,
        positions=positions,
        states=torch.where(padded.columns == 0, first, later),
    )


def hidden_states_sharing_prompts(
    model: PreTrainedModel, batch: SharedPrompts
) -> Float[Tensor, "N H"]:
    """The last hidden states from which the completions' tokens are predicted, in the order of
    `batch.targets`.

    Args:
        model: one for which `supports_prompt_sharing` is True.
        batch: the micro-batch.
    """
    cache = DynamicCache(config=model.config)
    states = _read(model, cache, batch.prompts).flatten(0, 1)
    if batch.inputs is not None:
        for layer in cache.layers:
            # Repeated for each row by index, which autograd sums up over rows in the backward pass.
            layer.keys = layer.keys.index_select(0, batch.prompt_of)
            layer.values = layer.values.index_select(0, batch.prompt_of)
        places = {"attention_mask": batch.visible, "position_ids": batch.positions}
        states = torch.cat([states, _read(model, cache, batch.inputs, **places).flatten(0, 1)])
    return states.index_select(0, batch.states)


def _read(
    model: PreTrainedModel, cache: object, ids: Int[Tensor, "B L"], **places: Tensor | None
) -> Float[Tensor, "B L H"]:
    base = model.base_model
    kept = {cache_argument(base): cache}
    states: Tensor = base(input_ids=ids, use_cache=True, **kept, **places).last_hidden_state
    return states


def _side_by_side(
    ids: Sequence[Sequence[int]], width: int | None = None
) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
    """Rows padded on the right, and their lengths."""
    lengths = [len(row) for row in ids]
    padded_ids = np.zeros((len(ids), max(lengths) if width is None else width), dtype=np.int64)
    for i, row in enumerate(ids):
        padded_ids[i, : len(row)] = row
    return torch.from_numpy(padded_ids), torch.tensor(lengths)


def _visible(seen: Int[Tensor, " B"], most: int, steps: int) -> Bool[Tensor, "B 1 T K"]:
    """The attention mask of completion tokens: True for the tokens of the prompt and for the
    completion so far.

    It has a single row if all prompts have the same length.

    Args:
        seen: length of each row's prompt.
        most: length to which prompts are padded.
        steps: T, completion tokens.
    """
    # All alike: one row of the mask is broadcast, which costs a B-th.
    rows = seen[:1] if bool((seen == seen[0]).all()) else seen
    prompt = torch.arange(most, device=seen.device) < rows[:, None]
    causal = torch.ones(steps, steps, dtype=torch.bool, device=seen.device).tril()
    return torch.cat(
        [prompt[:, None, :].expand(-1, steps, -1), causal.expand(len(rows), -1, -1)], dim=2
    )[:, None]


@torch.no_grad()  # type: ignore[untyped-decorator]
def supports_prompt_sharing(model: PreTrainedModel, tried: PreTrainedModel | None = None) -> bool:
    """True if this model gives the same hidden states with and without shared prompts, up to
    rounding.

    Tried on a few rows, and only for models on a CPU that keep one key per token and layer, that
    use an attention mask as it is given, and whose weights are precise enough to tell rounding from
    a difference.

    Args:
        model: a causal language model of transformers.
        tried: the model that is tried instead, such as a small one of the same kind where this one
            has no weights yet; None for itself.
    """
    layers = DynamicCache(config=model.config).layers
    # A sliding window or a chunked layer keeps fewer keys, and would need another mask.
    plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
    model = model if tried is None else tried
    if model.device.type != "cpu" or model.dtype not in (torch.float32, torch.float64):
        return False
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return False
    if not plain or not getattr(model, "_supports_attention_backend", False):
        return False
    vocabulary = model.config.get_text_config().vocab_size
    # Two prompts of other lengths, each with completions of other lengths.
    prompts = [[1 % vocabulary, 2 % vocabulary, 3 % vocabulary], [4 % vocabulary]]
    rows = [
        TokenRow(prompt, [5 % vocabulary, 6 % vocabulary, 7 % vocabulary][:n])
        for prompt in prompts
        for n in (3, 2)
    ]
    padded = pad(rows, device=model.device)
    apart = model.base_model(input_ids=padded.input_ids, use_cache=False).last_hidden_state.flatten(
        0, 1
    )
    apart = apart.index_select(0, padded.sources)
    # √ε of the largest state: far above rounding, far below what a wrong mask changes.
    rounding = torch.finfo(model.dtype).eps ** 0.5 * apart.abs().max()
    return bool(
        (apart - hidden_states_sharing_prompts(model, shared_prompts(rows, padded))).abs().max()
        <= rounding
    )
