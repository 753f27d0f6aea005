"""Files of one training step: rows, log-probabilities, advantages and gradients, from
which anyone recomputes it.

The layout is safetensors', with the step's head as JSON in the metadata;
docs/reference/step_files.md lists the arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlvr.data.files import open_input, write_whole
from rlvr.errors import DataError
from rlvr.types import JsonObject

__all__ = ["STEP_VERSION", "StepArray", "StepFile", "is_step", "read_step", "spans", "write_step"]

StepArray: TypeAlias = NDArray[Any]
"""An array of a step file: float32, int32 or bool, as its name says."""

STEP_VERSION: Final = 1
"""Of the layout; a reader refuses newer ones."""
# The length is the file's own claim: what is no step file is refused before it is read.
_MOST_HEAD_BYTES = 64 << 20
_DTYPES: Final = {
    "BOOL": np.dtype("?"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
_OF_ROWS = "group score scored truncated owner bootstrap row_weights margins".split()
_OF_TOKENS = (
    "token_ids mask used kept behaviour_logprobs old_logprobs ref_logprobs teacher_logprobs values "
    "implicit_rewards advantages returns"
).split()
_OF_UPDATES = (
    "logprobs weights entropies entropy_weights divergences divergence_weights selected"
).split()
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys("mask used kept scored truncated selected".split(), "b"),
    **dict.fromkeys(
        (
            "token_ids offsets prompt_ids prompt_offsets group owner turns prefixes rows computed "
            "value_rows"
        ).split(),
        "i",
    ),
}
"""Arrays of flags and of whole numbers; the others of the layout have fractions."""
_NO_HEAD = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
"""What reading a text as JSON of a head raises; 1e999 is no whole number."""

_NEEDED = ("token_ids", "offsets", "mask", "group", "score", "scored", "behaviour_logprobs")


@dataclass(frozen=True, slots=True)
class StepFile:
    """One training step.

    Attributes:
        head: settings, counts and metrics, as JSON has them.
        arrays: by name, flat over rows or tokens.
    """

    head: JsonObject
    arrays: Mapping[str, StepArray]

    @property
    def updates(self) -> list[JsonObject]:
        """The head of each optimiser step."""
        return list(self.head.get("updates", []))


def write_step(path: Path, step: StepFile) -> None:
    """Write a step; the file is whole or absent.

    Args:
        path: of the file; its folder is made.
        step: what is written.

    Raises:
        DataError: an array has no place in a step file, or its shape does not fit the others.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(step.arrays.items())}
    for name, array in arrays.items():
        if array.dtype not in _NAMES:
            raise DataError(f"{name} has the type {array.dtype}; use one of {', '.join(_DTYPES)}")
    _require_shapes(str(path), arrays, len(step.updates))
    head = json.dumps({**step.head, "version": STEP_VERSION}, allow_nan=True)
    body = b"".join(array.tobytes() for array in arrays.values())
    listed: dict[str, object] = {"__metadata__": {"step": head, "digest": _digest(head, body)}}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        listed[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(listed).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, len(text).to_bytes(8, "little") + text + body)


def read_step(path: Path) -> StepFile:
    """Read a step file; nothing in it is executed or unpickled.

    Args:
        path: of the file.

    Raises:
        DataError: it is truncated, altered, of a newer version, or no step file.
    """
    with open_input(path) as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
        if length > min(_MOST_HEAD_BYTES, size - 8):
            raise DataError(
                f"{path} says that its head has {length} bytes, and it has {size}; it is "
                f"truncated, or no step file"
            )
        text, body = file.read(length), file.read()
    try:
        listed = json.loads(text)
        head_text = listed.pop("__metadata__")["step"]
        digest = _digest(head_text, body)
        recorded = json.loads(text)["__metadata__"].get("digest", digest)
        head = json.loads(head_text)
        version = int(head["version"])
    except _NO_HEAD as error:
        raise DataError(
            f"{path} has no head of a step file: {type(error).__name__}; "
            "give what `rlvr train --step-files` or another trainer's recorder wrote"
        ) from None
    if version > STEP_VERSION:
        raise DataError(
            f"{path} has version {version}, and this rlvr reads up to {STEP_VERSION}; install a "
            f"newer one"
        )
    arrays = _arrays(path, listed, body)
    if digest != recorded:
        raise DataError(f"{path} was altered or is truncated: its digest does not fit its contents")
    updates = head.get("updates", [])
    if not isinstance(updates, list) or not all(isinstance(update, dict) for update in updates):
        raise DataError(f"{path}: updates of the head must be a list of objects")
    _require_shapes(str(path), arrays, len(updates))
    return StepFile(head, arrays)


def is_step(path: Path) -> bool:
    """Whether a file has the head of a step file; a model's weights are safetensors, too.

    Args:
        path: of the file.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= _MOST_HEAD_BYTES else b""
    try:
        return "step" in json.loads(text)["__metadata__"]
    except _NO_HEAD:
        return False


def _digest(head: str, body: bytes) -> str:
    return hashlib.blake2b(head.encode() + b"\0" + body, digest_size=16).hexdigest()


def _arrays(path: Path, listed: JsonObject, body: bytes) -> dict[str, StepArray]:
    """Views of the body, which together cover it once."""
    arrays, spans = {}, []
    for name, entry in listed.items():
        try:
            dtype, shape = _DTYPES[entry["dtype"]], [int(n) for n in entry["shape"]]
            start, stop = (int(n) for n in entry["data_offsets"])
        except _NO_HEAD:
            raise DataError(
                f"{path}: {name} needs dtype ({', '.join(_DTYPES)}), shape and data_offsets"
            ) from None
        if min(shape, default=0) < 0 or stop - start != math.prod(shape) * dtype.itemsize:
            raise DataError(f"{path}: {name} has shape {shape} and bytes {start} to {stop}")
        spans.append((start, stop, name, dtype, shape))
    end = 0
    for start, stop, name, dtype, shape in sorted(spans, key=lambda span: span[:3]):
        if start != end or stop > len(body):
            raise DataError(
                f"{path}: {name} begins at byte {start}, ends at {stop} and should begin at {end} "
                f"of {len(body)}; it is truncated, or its arrays overlap or leave a gap"
            )
        end = stop
        arrays[name] = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
    if end != len(body):
        raise DataError(f"{path} has {len(body) - end} bytes beyond its arrays")
    return arrays


def _require_shapes(path: str, arrays: Mapping[str, StepArray], updates: int) -> None:
    """Refuse arrays that do not fit each other."""
    for name in _NEEDED:
        if name not in arrays:
            raise DataError(f"{path} has no array {name}, which every step file needs")
    for name, array in arrays.items():
        kind = _KINDS.get(name.rpartition(".")[2], "f")
        if array.dtype.kind != kind:
            rule = {"b": "BOOL", "i": "I32 or I64", "f": "F32 or F64"}[kind]
            raise DataError(f"{path}: {name} has the type {array.dtype}; it must be {rule}")
    offsets = arrays["offsets"]
    tokens = _last_offset(path, "offsets", offsets)
    rows = len(offsets) - 1
    for name, size in [*((n, rows) for n in _OF_ROWS), *((n, tokens) for n in _OF_TOKENS)]:
        if name in arrays and arrays[name].shape != (size,):
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}; it must be ({size},)")
    if "prompt_ids" in arrays:
        _require_size(path, "prompt_offsets", arrays, rows + 1)
        _require_size(
            path,
            "prompt_ids",
            arrays,
            _last_offset(path, "prompt_offsets", arrays["prompt_offsets"]),
        )
    _require_indices(path, "owner", arrays, rows)
    parts = arrays.get("score_parts")
    if parts is not None and (parts.ndim != 2 or len(parts) != rows):
        raise DataError(f"{path}: score_parts has shape {parts.shape}; it must be ({rows}, K)")
    labels = arrays.get("step_labels")
    if labels is not None and (labels.ndim != 2 or labels.shape[1] != 4):
        raise DataError(f"{path}: step_labels has shape {labels.shape}; it must be (N, 4)")
    sketches = arrays.get("row_sketches")
    if sketches is not None and (sketches.ndim != 2 or len(sketches) != rows):
        raise DataError(f"{path}: row_sketches has shape {sketches.shape}; it must be ({rows}, K)")
    for name, values in (("turns", "turn_rewards"), ("prefixes", "prefix_values")):
        if name in arrays:
            _require_size(path, values, arrays, len(arrays[name]))
    for name, width in (("turns", 3), ("prefixes", 2)):
        if name in arrays and (arrays[name].ndim != 2 or arrays[name].shape[1] != width):
            raise DataError(
                f"{path}: {name} has shape {arrays[name].shape}; it must be (N, {width})"
            )
    lengths = np.diff(offsets)
    for number in range(updates):
        prefix = f"update{number}."
        for name in ("rows", "computed"):
            if prefix + name not in arrays:
                raise DataError(f"{path} has no array {prefix}{name}")
            _require_indices(path, prefix + name, arrays, rows)
        width = int(lengths[arrays[prefix + "computed"]].sum())
        for name in _OF_UPDATES:
            if prefix + name in arrays:
                _require_size(path, prefix + name, arrays, width)
        if prefix + "value_rows" in arrays:
            _require_indices(path, prefix + "value_rows", arrays, rows)
            valued = int(lengths[arrays[prefix + "value_rows"]].sum())
            for name in ("values", "value_weights"):
                _require_size(path, prefix + name, arrays, valued)
        outputs = _outputs_of(arrays, arrays[prefix + "computed"])
        for name in ("outputs", "output_weights"):
            if prefix + name in arrays:
                _require_size(path, prefix + name, arrays, outputs)


def _outputs_of(arrays: Mapping[str, StepArray], computed: StepArray) -> int:
    """How many numbers a head gives for these rows: one for each, or one for each of its steps."""
    labels = arrays.get("step_labels")
    if labels is None:
        return len(computed)
    steps = [int((labels[:, 0] == row).sum()) for row in computed.tolist()]
    return sum(count or 1 for count in steps)


def _last_offset(path: str, name: str, offsets: StepArray) -> int:
    is_valid = offsets.ndim == 1 and offsets.dtype.kind == "i" and len(offsets) > 0
    # Differences of far offsets would wrap around.
    if not is_valid or offsets[0] or (offsets[1:] < offsets[:-1]).any():
        raise DataError(f"{path}: {name} must begin at 0 and never decrease")
    return int(offsets[-1])


def _require_size(path: str, name: str, arrays: Mapping[str, StepArray], size: int) -> None:
    if name not in arrays or arrays[name].shape != (size,):
        shape = arrays[name].shape if name in arrays else "none"
        raise DataError(f"{path}: {name} has shape {shape}; it must be ({size},)")


def _require_indices(path: str, name: str, arrays: Mapping[str, StepArray], rows: int) -> None:
    numbers = arrays.get(name)
    if numbers is None:
        return
    if (
        numbers.ndim != 1
        or numbers.dtype.kind != "i"
        or (numbers < 0).any()
        or (numbers >= rows).any()
    ):
        raise DataError(f"{path}: {name} must be row numbers from 0 to {rows - 1}")


def spans(offsets: StepArray) -> list[slice]:
    """The part of a flat array that each row has.

    Args:
        offsets: where each row begins, and the end.
    """
    return [slice(int(a), int(b)) for a, b in pairwise(offsets)]
