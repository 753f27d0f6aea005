"""Models too big for one device: made without weights, of which each rank reads its rows
from files of safetensors.

config.json ─▶ layers on the meta device ─▶ `Policy.shard`
  ─▶ `WeightFiles.fill`: this rank's rows of each tensor
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import GenerationConfig

from rlvr.errors import UsageError
from rlvr.train.checkpoint import crc32_of
from rlvr.train.loading import model_of_config
from rlvr.train.ranks import Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["WeightFiles", "empty_of_folder", "small_twin"]

_DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_AT_ONCE: Final = 16 * 2**20  # bytes that are read before they are copied to their place
# Vocabulary of the model of one layer that stands for one without weights: enough for the special
# tokens, and made in milliseconds.
_PROBED_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: `start` is of its first byte in the file."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int


class WeightFiles:
    """The tensors of a folder's safetensors, of which rows are read without the rest.

    The files are read and not mapped: pages of a map count as this process's memory.

    Args:
        places: by the tensors' names.
    """

    def __init__(self, places: dict[str, _Place]) -> None:
        self._places = places

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Those of a folder that transformers reads: of `model.safetensors`, else of the files that
        its index names.

        Args:
            folder: of a saved model.

        Raises:
            ValueError, KeyError, OSError: its files are not whole, or of a kind that is not known
                here.
        """
        places: dict[str, _Place] = {}
        for path, its_names in _files_of(folder).items():
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            size = path.stat().st_size - 8 - length
            # Offsets count from the end of the header; the largest one has to be the file's end.
            if max((entry["data_offsets"][1] for entry in header.values()), default=0) != size:
                raise ValueError(f"{path} is cut short")
            for name in header.keys() if its_names is None else its_names:
                entry = header[name]
                start = 8 + length + entry["data_offsets"][0]
                places[name] = _Place(path, _DTYPES[entry["dtype"]], tuple(entry["shape"]), start)
        return cls(places)

    def has(self, model: nn.Module) -> bool:
        """Whether all weights of a model are there under their own names, in their shapes.

        Args:
            model: perhaps on the meta device.
        """
        parameters = dict(model.named_parameters())
        # Also under the second name of tied weights.
        every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        # A buffer that is saved may hold values which no small model has.
        has_buffers = bool(model.state_dict().keys() - every)
        return not has_buffers and all(
            name in self._places and self._places[name].shape == tuple(p.shape)
            for name, p in parameters.items()
        )

    def fill(self, model: nn.Module, ranks: Ranks) -> None:
        """Give the shares of a sharded model their values.  All ranks make this call.

        Args:
            model: whose parameters are shards over the ranks.
            ranks: these.

        Raises:
            UsageError: a weight is not finite.
        """
        bad = []
        with torch.no_grad():
            for name, share in model.named_parameters():
                self._read(self._places[name], share)
                local = share.to_local() if isinstance(share, DTensor) else share
                # A sum first: no tensor of booleans for every weight.
                if local.numel() and not local.sum(dtype=torch.float32).isfinite():
                    bad += [name] if not local.isfinite().all() else []
        # Of all ranks: each sees its own rows.
        if broken := sorted(
            {name for names_of_rank in ranks.from_all(bad) for name in names_of_rank}
        ):
            raise UsageError(
                f"the weights of {broken[0]} are not finite: the file is damaged, or the model "
                "diverged when it was trained; give another one"
            )

    def _read(self, place: _Place, share: Tensor) -> None:
        """Read a share's rows, some at once."""
        local, first, columns = share.detach(), 0, tuple[slice, ...]()
        if isinstance(share, DTensor):
            shape, offset = compute_local_shape_and_global_offset(
                share.shape, share.device_mesh, share.placements
            )
            local, first = share.detach().to_local(), offset[0]
            # Rows by seeking, columns after reading: rows follow one another in the file.
            columns = tuple(slice(o, o + n) for o, n in zip(offset[1:], shape[1:], strict=True))
        if not local.numel():
            return
        row = prod(place.shape[1:]) * place.dtype.itemsize
        with place.file.open("rb") as file:
            file.seek(place.start + first * row)
            # In parts, so that a layer's bytes are not in memory twice.
            for part in local.split(max(1, _AT_ONCE // max(1, row))):
                rows = _read_part(file, place.dtype, (len(part), *place.shape[1:]))
                part.copy_(rows[:, *columns])

    def summary(self) -> str:
        """A checksum of each file."""
        files = sorted({place.file for place in self._places.values()})
        return " ".join(f"{file.name} {crc32_of(file):08x}" for file in files)


def _files_of(folder: Path) -> Mapping[Path, list[str] | None]:
    """The files of a folder's weights, each with the names to read from it; None for all."""
    single_file = folder / "model.safetensors"
    if single_file.is_file():
        return {single_file: None}
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    names: dict[Path, list[str]] = defaultdict(list)
    for name, file in index["weight_map"].items():
        names[folder / file].append(name)
    return dict(names)


def _read_part(file: BinaryIO, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    raw = bytearray(prod(shape) * dtype.itemsize)
    if file.readinto(raw) != len(raw):  # type: ignore[attr-defined]  # a buffered file has it
        raise UsageError(f"{file.name} was cut short while it was read")
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def empty_of_folder(
    folder: Path, *, dtype: torch.dtype, attention: str | None
) -> tuple[PreTrainedModel, WeightFiles] | None:
    """A folder's model without weights, and its files; None where weights have to be converted as
    they are loaded.

    Args:
        folder: of a saved model.
        dtype: type of the weights.
        attention: implementation of attention; None for the default.
    """
    chosen = {} if attention is None else {"attn_implementation": attention}
    model = model_of_config(folder, dtype=dtype, **chosen)
    if model is None:
        return None
    try:
        files = WeightFiles.of(folder)
        if (folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        _give_buffers(model, small_twin(model))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError):
        return None  # loading it whole says what is wrong, if anything is
    return (model.eval(), files) if files.has(model) else None


def _give_buffers(model: nn.Module, twin: nn.Module) -> None:
    """Give buffers, such as the frequencies of positions, the values of a small model's; these know
    no weights."""
    values = dict(twin.named_buffers())
    for name, buffer in list(model.named_buffers()):
        # It follows from the model's size, so the small
        # one has no such values: weights are loaded whole.
        if values[name].shape != buffer.shape:
            raise ValueError(f"{name} depends on the model's size")
        place, _, last = name.rpartition(".")
        model.get_submodule(place)._buffers[last] = values[name]
    for module in model.modules():
        # Tensors that a module keeps outside of both would stay on the meta device.
        if any(isinstance(buffer, Tensor) and buffer.is_meta for buffer in vars(module).values()):
            raise ValueError("a tensor is neither a weight nor a buffer")


def small_twin(model: PreTrainedModel) -> PreTrainedModel:
    """A model of the same kind with one layer and few tokens, to be tried where the model has no
    weights.

    Args:
        model: of transformers.
    """
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    text.vocab_size, text.num_hidden_layers = _PROBED_TOKENS, 1
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:1]
    # Ids beyond the small vocabulary would be refused.
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(text, name, None)
    return type(model)(config).to(model.dtype).eval()
