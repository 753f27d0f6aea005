"""What one row may take: held while it is read, so that a row of a stranger fills no memory.

A longer row is found where it is still bytes, a JSON text or Arrow's columns, and is left out
before Python has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["JsonSkim", "ROW_LIMITS", "RowLimits", "batch_rows", "is_too_large"]


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Of one row.

    Attributes:
        size_bytes: as it stands in the file, unpacked.  A service takes no longer request.
        values: texts, numbers, lists and objects; a million take 100 MiB, in a text of as little as
            2 MB.
        depth: lists and objects in each other; Python cannot copy or send what is 1000 deep.
    """

    size_bytes: int = 32 << 20
    values: int = 1_000_000
    depth: int = 200

    @property
    def why(self) -> str:
        """What is said of a row that has more."""
        return (
            f"it has more than {self.size_bytes >> 20} MiB (--row-mib), {self.values:,} values, or "
            f"lists and objects "
            f"{self.depth} deep in each other; write it as several rows"
        )


ROW_LIMITS: Final = RowLimits()

_SIGN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_TEXT_END = re.compile(r'["\\]')


class JsonSkim:
    """Follows one JSON value through a text that comes in parts, without making it.

    Attributes:
        values, depth: of the value so far; commas count, as there is a value behind each.
    """

    def __init__(self) -> None:
        self.values, self.depth = 1, 0
        # What a part leaves open for the next: brackets, a text, a backslash at its end.
        self._open, self._in_text, self._is_escaped = 0, False, False

    def end(self, part: str, at: int = 0) -> int | None:
        """The place behind the value; None if it goes on in the next part.

        Args:
            part: the next part of the text.
            at: where the value begins or goes on in it.
        """
        while True:
            if self._in_text:
                at = self._behind_text(part, at)
            sign = _SIGN.search(part, at)
            if sign is None or self._in_text:
                return None
            at, mark = sign.end(), sign[0]
            if mark == '"':
                self._in_text = True
            elif mark in "[{":
                self._open += 1
                self.values += 1
                self.depth = max(self.depth, self._open)
            elif mark in "]}":
                self._open -= 1
                # Below 0, the bracket closes what holds this value, which ended just before it.
                if self._open <= 0:
                    return at if self._open == 0 else sign.start()
            elif mark == ",":
                if not self._open:
                    return sign.start()
                self.values += 1

    def _behind_text(self, part: str, at: int) -> int:
        at += self._is_escaped
        self._is_escaped = False
        while (sign := _TEXT_END.search(part, at)) is not None:
            if sign[0] == '"':
                self._in_text = False
                return sign.end()
            at = sign.end() + 1
        self._is_escaped = at > len(part)
        return len(part)


def is_too_large(line: bytes, limits: RowLimits) -> bool:
    """Whether a line of JSON has too much in it; commas in texts count as values, too.

    Args:
        line: the whole line.
        limits: of a row.
    """
    if len(line) > limits.size_bytes:
        return True
    # An upper bound: brackets in texts count too.
    opened = line.count(b"[") + line.count(b"{")
    if opened + line.count(b",") > limits.values:
        return True
    if opened <= limits.depth:
        return False
    skim = JsonSkim()
    skim.end(line.decode("utf-8", "replace"))
    return skim.depth > limits.depth


def batch_rows(batch: Any, limits: RowLimits) -> Iterator[dict[str, object] | None]:
    """The rows of a batch of Arrow; None for one that has too much in it, which Python never has.

    Args:
        batch: a `pyarrow.RecordBatch`.
        limits: of a row.
    """
    import pyarrow as pa

    # The type alone says how deep its values are.
    if any(_depth(field.type) >= limits.depth for field in batch.schema):
        yield from [None] * batch.num_rows
        return
    # A dictionary is counted once and copied for each row that names it, so its rows are looked at
    # one by one.
    has_dictionary = any(pa.types.is_dictionary(column.type) for column in batch.columns)
    if not has_dictionary and _is_small(batch, limits):
        yield from batch.to_pylist()
        return
    for place in range(batch.num_rows):
        row = batch.slice(place, 1)
        columns = [
            column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for column in row.columns
        ]
        row = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        yield row.to_pylist()[0] if _is_small(row, limits) else None


def _is_small(batch: Any, limits: RowLimits) -> bool:
    return batch.nbytes <= limits.size_bytes and sum(map(_values, batch.columns)) <= limits.values


def _values(array: Any) -> int:
    """How many values Python would have of an array; lists of nulls take no bytes."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_struct(kind):
        return len(array) + sum(_values(array.field(place)) for place in range(kind.num_fields))
    if pa.types.is_map(kind) and len(array):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        parts = (array.keys, array.items)
        return len(array) + sum(_values(part.slice(first, last - first)) for part in parts)
    if pa.types.is_nested(kind) and hasattr(array, "flatten"):
        return len(array) + _values(array.flatten())
    return len(array)


def _depth(kind: Any) -> int:
    return 1 + max((_depth(kind.field(n).type) for n in range(kind.num_fields)), default=0)
