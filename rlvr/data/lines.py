"""One row of a file, and the two formats that rlvr itself writes: JSON lines and
Parquet, with checksums.

A row that cannot be read is a `Line` with its error; other rows are not affected.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rlvr.data.limits import ROW_LIMITS, RowLimits, batch_rows
from rlvr.errors import DataError

__all__ = [
    "CHECKSUM",
    "Line",
    "LongLine",
    "MARK",
    "Row",
    "checked_lines",
    "crc_of_cells",
    "json_lines",
    "parquet",
    "parquet_note",
    "stamped",
    "without_checksum",
]

Row: TypeAlias = Mapping[str, Any]
"""The columns of a row by name."""

# A checksum is the last key of a line, or a column of Parquet; it covers all that stands before it
# in the line, or the other cells of the row as they are read.
CHECKSUM = "rlvr_crc32"
_STAMP = re.compile(rb', "rlvr_crc32": "([0-9a-f]{8})"\}')
_SHOWN_BYTES = 200  # of a row that is too large
_STAMP_BYTES = len(b', "rlvr_crc32": "00000000"}')


# In Parquet, nested values are written as JSON text, since their keys differ from row to row; so is
# text that is not UTF-8 (lone surrogates) or that begins with the mark.  A file with this mark in
# its metadata was written by rlvr.
MARK = "json:"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    Attributes:
        number: counted from 1.
        row: its columns; None if it could not be read.
        error: why it could not be read.
        text: the line itself, if it could not be read.
        checked: whether its checksum was there and right.
    """

    number: int
    row: Row | None
    error: str = ""
    text: str = ""
    checked: bool = False


class LongLine(bytes):
    """The beginning and the size of a line that has more than a row may.

    Attributes:
        why: what it has too much of.
    """

    why = ""

    @classmethod
    def of(cls, line: bytes, size: int, limits: RowLimits) -> LongLine:
        """What is kept of a line.

        Args:
            line: its beginning.
            size: of the whole line, in bytes.
            limits: of a row.
        """
        long = cls(b"%b ... %d bytes\n" % (line[:_SHOWN_BYTES], size))
        long.why = limits.why
        return long


def json_lines(
    lines: Iterable[bytes], name: str, loads: Callable[[bytes], object] = json.loads
) -> Iterator[Line]:
    """The rows of JSON lines; their checksums are verified where they have some.

    Args:
        lines: the lines.
        name: of the file.
        loads: reads the JSON of a line; raises ValueError where it is none.
    """
    for number, raw, damage, checked in checked_lines(lines):
        if isinstance(raw, LongLine):
            damage = raw.why
        if damage:
            yield Line(number, None, damage, raw.decode("utf-8", "replace"))
            continue
        try:
            row = loads(raw)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}, not an object")
        except (
            ValueError,
            RecursionError,
        ) as error:  # bad JSON, bad UTF-8, or brackets too deep to follow
            yield Line(number, None, f"not a JSON object: {error}", raw.decode("utf-8", "replace"))
        else:
            row.pop(CHECKSUM, None)
            yield Line(number, row, checked=checked)


def checked_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes, str, bool]]:
    """(number from 1, line, what is wrong with it or "", whether it has a checksum) of each line
    that is not empty.

    Args:
        lines: lines of JSON.
    """
    with_checksums: bool | None = None  # as in the first line: a run writes them on all or on none
    for number, raw in enumerate(lines, 1):
        if not raw or raw.isspace():
            continue
        intact = _is_intact(raw)
        if with_checksums is None:
            with_checksums = intact is not None
        damage = (
            _NO_FIT
            if intact is False
            else _UNLIKE[with_checksums]
            if (intact is None) is with_checksums
            else ""
        )
        yield number, raw, damage, with_checksums


def without_checksum(raw: bytes) -> bytes:
    """A line of JSON as it was before it got a checksum, without the newline.

    Args:
        raw: the line.
    """
    raw = raw.rstrip(b"\r\n")
    return raw[:-_STAMP_BYTES] + b"}" if _STAMP.fullmatch(raw[-_STAMP_BYTES:]) else raw


def stamped(line: bytes) -> bytes:
    """A line of JSON with its checksum.

    Args:
        line: an object, with the newline.
    """
    body = line[: line.rindex(b"}")]
    return b'%b, "rlvr_crc32": "%08x"}\n' % (body, zlib.crc32(body))


_NO_FIT = (
    "damaged or edited since it was written: its checksum does not fit (without rlvr_crc32 it is "
    "read as it stands)"
)
_UNLIKE = {
    True: "it has no checksum, and the lines before have: it is damaged, or of another file",
    False: (
        "it has a checksum, and the lines before have none: they are damaged, or of another file"
    ),
}


def parquet(path: Path, limits: RowLimits = ROW_LIMITS) -> Iterator[Line]:
    """The rows of a Parquet file; their checksums are verified where they have some.

    Args:
        path: the file.
        limits: of a row; a page of the file is in memory whole.

    Raises:
        DataError: it is cut short or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            is_marked, count = MARK.encode() in metadata, metadata.get(CHECKSUM.encode())
            for batch in _batches(file, limits):
                if isinstance(batch, int):  # rows of a group that is too large to be unpacked
                    yield from (Line(number + n, None, limits.why) for n in range(1, batch + 1))
                    number += batch
                    continue
                for row in batch_rows(batch, limits):
                    number += 1
                    if row is None:
                        yield Line(number, None, limits.why)
                        continue
                    checksum = row.pop(CHECKSUM, None)
                    if (checksum or count) and (checksum != crc_of_cells(row) or not is_marked):
                        yield Line(number, None, _NO_FIT)
                        continue
                    cells = {k: _unpacked_cell(v) for k, v in row.items()} if is_marked else row
                    yield Line(number, cells, checked=checksum is not None)
            if count is not None and count != b"%d" % number:
                yield Line(
                    number + 1,
                    None,
                    f"the file was written with {count[:20].decode('ascii', 'replace')} rows",
                )
    except (
        pa.ArrowException,
        OSError,
        ValueError,
    ) as error:  # cut short, damaged, or texts that are not UTF-8
        raise DataError(
            f"{path}: cannot be read as Parquet after row {number}: {error}; write or copy it anew"
        ) from error


# Whichever is reached first: short rows go in thousands, and long ones do not pile up.
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 1024


def _batches(file: Any, limits: RowLimits) -> Iterator[object]:
    """Batches of rows that are small in memory, as far as the sizes of the groups of rows say.

    Yields:
        A `pyarrow.RecordBatch`, or the number of rows of a group in which an average row is too
        large.
    """
    for place in range(file.num_row_groups):
        group = file.metadata.row_group(place)
        row_bytes = group.total_byte_size // max(1, group.num_rows)
        if row_bytes > limits.size_bytes:
            yield group.num_rows
            continue
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes)))
        yield from file.iter_batches(batch_size=rows, row_groups=[place])


def parquet_note(path: Path, name: str) -> str | None:
    """What stands under a name in a Parquet file's metadata; None if nothing does.

    Args:
        path: the file.
        name: the key.

    Raises:
        DataError: it is cut short or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        note = (pq.read_schema(path).metadata or {}).get(name.encode())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    return None if note is None else note.decode("utf-8", "replace")


def _unpacked_cell(value: object) -> object:
    return (
        json.loads(value[len(MARK) :])
        if isinstance(value, str) and value.startswith(MARK)
        else value
    )


def _is_intact(raw: bytes) -> bool | None:
    """Whether a line still has its checksum; None if it has none.

    Args:
        raw: the line.
    """
    end = len(raw)
    while end and raw[end - 1] in b"\r\n":
        end -= 1
    stamp = _STAMP.fullmatch(raw[max(0, end - _STAMP_BYTES) : end])
    # A view, since a copy of the line would cost as much as the checksum.
    return (
        None
        if stamp is None
        else int(stamp[1], 16) == zlib.crc32(memoryview(raw)[: end - _STAMP_BYTES])
    )


_CELLS = json.JSONEncoder(sort_keys=True, default=str)


def crc_of_cells(row: Row) -> str:
    """The checksum of a row of Parquet.

    Args:
        row: its cells, without the checksum.
    """
    return f"{zlib.crc32(_CELLS.encode(row).encode()):08x}"
