"""The rows of CSV and TSV: short ones as `csv` reads them, long ones in pieces, since `csv` takes
four bytes for each character and a call for each line."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from io import BufferedIOBase
from typing import cast

from rlvr.data.limits import RowLimits

__all__ = ["table_rows"]

_SHORT_BYTES = 1 << 18  # of a row that `csv` is given
_BLOCK = 1 << 16
_QUOTED = re.compile(rb'[^"]*+(?:""[^"]*+)*+')  # a cell's text up to its last quotation mark


class _LongRow(Exception):
    """A row is too long for `csv`."""


def table_rows(
    file: BufferedIOBase, delimiter: str, limits: RowLimits
) -> Iterator[list[str] | None]:
    """The cells of each row; none of an empty line.

    Args:
        file: its text is UTF-8.
        delimiter: between cells.
        limits: of a row.

    Yields:
        The cells; None for a row that has more bytes or cells than it may.

    Raises:
        csv.Error: a quoted cell does not end, or something stands behind its end.
        UnicodeDecodeError: the text is not UTF-8.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _SHORT_BYTES))
    lines = _Lines(file, min(_SHORT_BYTES, limits.size_bytes))
    while True:
        lines.begin_row()
        try:
            for cells in csv.reader(lines, delimiter=delimiter, strict=True):
                yield cells
                # This row is complete, so the next line begins another.
                lines.begin_row()
            return
        except _LongRow:
            yield lines.long_row(delimiter, limits)


class _Lines:
    """The lines of a table.

    Args:
        file: it is read from here to its end.
        most: bytes that the lines of one row may have; with more of them they raise _LongRow.
    """

    def __init__(self, file: BufferedIOBase, most: int) -> None:
        self._file, self._most = file, most
        self._lines, self._tail = iter(list[bytes]()), b""  # read; the tail may go on
        self._is_first = True
        self._row, self._size = list[bytes](), 0
        self._held, self._at = b"", 0  # of a long row, and where it goes on in there

    def begin_row(self) -> None:
        """The next line begins a row."""
        self._row.clear()
        self._size = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines, b"") or self._read_line()
        if not line:
            raise StopIteration
        self._row.append(line)
        self._size += len(line)
        if self._size > self._most:
            raise _LongRow
        return line.decode()

    def _read_line(self) -> bytes:
        """The next line, of those that are read now; empty at the end of the file."""
        while True:
            block = self._file.read1(_BLOCK)
            self._keep(self._tail + block, is_end=not block)
            line = next(self._lines, b"")
            # Too long also without a byte-order mark.
            if not line and len(self._tail) > self._most + len(codecs.BOM_UTF8):
                line, self._tail = self._tail, b""
            if line and self._is_first:
                self._is_first = False
                line = line.removeprefix(codecs.BOM_UTF8)
            if line or not block:
                return line

    def _keep(self, text: bytes, *, is_end: bool) -> None:
        lines = text.splitlines(keepends=True)
        # "\r" may be the first half of a line's end.
        goes_on = bool(lines) and not is_end and not lines[-1].endswith(b"\n")
        self._tail = lines.pop() if goes_on else b""
        self._lines = iter(lines)

    def long_row(self, delimiter: str, limits: RowLimits) -> list[str] | None:
        """The cells of the row that was begun, as `csv` would read them; None if it has more bytes
        or cells than it may."""
        self._held, self._at = b"".join([*self._row, *self._lines, self._tail]), 0
        comma = re.escape(delimiter.encode())
        plain = re.compile(rb"[^%b\r\n]*+" % comma)
        # Only behind a delimiter does a quotation mark begin a cell, in which lines may end.
        passed = re.compile(
            rb'(?:[^%b\r\n]++|%b(?=[^"])|%b"[^"]*+(?:""[^"]*+)*+"(?=[^"]))*+' % ((comma,) * 3)
        )
        cells, size, fits = list[str](), 0, True
        while True:
            is_quoted, pieces = self._take(b'"'), list[bytes]()
            for piece in self._pieces(_QUOTED if is_quoted else plain if fits else passed):
                size += len(piece)
                fits = fits and size <= limits.size_bytes and len(cells) < limits.values
                if fits:
                    pieces.append(piece)
                else:
                    pieces.clear()
                    cells.clear()
            is_closed = is_quoted and self._take(b'"')
            if is_quoted and fits and not is_closed:
                raise csv.Error("unexpected end of data")
            if fits:
                cell = b"".join(pieces)
                pieces.clear()
                cells.append((cell.replace(b'""', b'"') if is_quoted else cell).decode())
            size += 1 + 2 * is_quoted
            if self._take(delimiter.encode()):
                continue
            if self._take_line_end():
                break
            if fits:
                raise csv.Error(f"{delimiter!r} expected after '\"'")
        self._keep(self._held[self._at :], is_end=False)
        self._held = b""
        return cells if fits else None

    def _pieces(self, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
        """What matches from here on."""
        while True:
            end = cast("re.Match[bytes]", pattern.match(self._held, self._at)).end()
            yield self._held[self._at : end]
            self._at = end
            # The last byte may be half of two quotation marks, or decide what stood before it.
            if end < len(self._held) - 1 or not self._more():
                return

    def _take(self, sign: bytes) -> bool:
        """Whether this comes next; it is behind then."""
        if self._at == len(self._held):
            self._more()
        is_next = self._held.startswith(sign, self._at)
        self._at += is_next
        return is_next

    def _take_line_end(self) -> bool:
        signs = [self._take(b"\r"), self._take(b"\n")]
        return any(signs) or self._at == len(self._held)

    def _more(self) -> bool:
        """Whether there is more, which is held from then on."""
        block = self._file.read1(_BLOCK)
        self._held, self._at = self._held[self._at :] + block, 0
        return bool(block)
