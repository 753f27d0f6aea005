"""Rows on disk: reads and writes JSONL and Parquet; an output file is whole or absent.

A row that cannot be read is a `DataError` that names its line; other rows are not affected.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from rlvr.data.files import lock_file, publish, sync_file, sync_folder
from rlvr.data.formats import ENDINGS, ending_of, hub_rows, read_rows
from rlvr.data.lines import (
    CHECKSUM,
    MARK,
    Line,
    Row,
    checked_lines,
    crc_of_cells,
    json_lines,
    stamped,
    without_checksum,
)
from rlvr.data.named_sets import NAMED_SETS, require_supported
from rlvr.errors import DataError, UsageError

__all__ = [
    "Journal",
    "KeptLines",
    "as_dataset",
    "dataset_lines",
    "dump_row",
    "load_dataset",
    "read_whole",
    "rejected_row",
    "require_output",
    "usable",
]

_Made = TypeVar("_Made")


_GROUP_ROWS, _GROUP_LETTERS = 1024, 1 << 24  # of Parquet, which are in memory together
_TYPES = {str: "string", bool: "bool", int: "int64", float: "double", type(None): "null"}
_BUFFER = 1 << 18  # bytes; with the usual 8 KiB a tenth of the time goes into calls of the system


def _pack_value(name: str, value: object) -> object:
    """A value for a Parquet column.  A column has one type, so references, which may differ in
    type, become texts."""
    if isinstance(value, str):
        # A text that begins with the mark is marked too, so that it is read back as it was.
        is_plain = not value.startswith(MARK) and (value.isascii() or _is_utf8(value))
        return value if is_plain else MARK + _JSON.encode(value)
    if name == "id":
        return str(value)
    is_packed = isinstance(value, (dict, list)) or name == "reference"
    return MARK + _JSON.encode(value) if is_packed else value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_JSON = json.JSONEncoder()  # `json.dumps` would look at its arguments for each cell
_READABLE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def dump_row(row: Row) -> bytes:
    """One JSONL line: readable UTF-8, or escapes if the text has lone surrogates.

    Args:
        row: the columns.

    Raises:
        DataError: a value cannot be written as JSON.
    """
    try:
        text = _READABLE.encode(row)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {row.get('id')!r} cannot be written as JSON: {error}") from error
    try:
        return text.encode() + b"\n"
    # Lone surrogates are no UTF-8; as escapes they are JSON.
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def rejected_row(line: Line, why: str, place: int | None = None) -> bytes:
    """A row that could not be used, as a line of the file that keeps such rows.

    Args:
        line: as it was read.
        why: it could not be used.
        place: of the row among those of all files; None where there is one file.
    """
    entry: dict[str, object] = {} if place is None else {"place": place}
    entry |= {"line": line.number, "why": why, "row": line.row, "text": line.text}
    try:
        return dump_row(entry)
    except DataError:  # the row could not be used because it is no JSON
        return dump_row(entry | {"row": None, "text": repr(line.row)})


def require_output(path: Path, *, overwrite: bool, device: bool = False) -> None:
    """Refuse an output that cannot be written.

    Args:
        path: the file to be written.
        overwrite: whether it may exist.
        device: whether a device or a pipe will do, such as /dev/stdout.

    Raises:
        UsageError: its folder is missing, it is a folder or another thing than a file, or it exists
            and must not.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file to write")
    if path.exists() and not path.is_file() and not device:
        raise UsageError(f"{path} is no ordinary file; name another output")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists; name another output, or pass --overwrite")


class Journal:
    """An output file that is whole or absent: rows are appended to `PATH.partial`, and
    `finish` moves it into place.

    One run at a time writes it: a lock on the partial file is held until the output has its name.

    Args:
        path: the output, .jsonl or .parquet.
        resume: continue a run that was stopped; `done` then counts the rows that it wrote.
        overwrite: replace an output, or the rows of a stopped run.
        checksums: give every row a checksum, by which `read_rows` tells one that was damaged later.
        flush_s: hand rows to the system at most so long after they were written, once more rows
            come.  0 does it with each row; it then survives a kill of this process.

    Attributes:
        path: see above.
        partial: the file that is written to.
        done: rows of the stopped run that are kept.

    Raises:
        UsageError: the path cannot be written; another run writes it; or the output, or rows of a
            stopped run, exist and neither `resume` nor `overwrite` was given.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        resume: bool = False,
        overwrite: bool = False,
        checksums: bool = False,
        flush_s: float = 0.0,
    ) -> None:
        self._flush_s, self._flushed_at = flush_s, 0.0
        self.path = Path(path)
        self.partial = Path(f"{self.path}.partial")
        self._overwrite, self._checksums = overwrite, checksums
        # Before a file is made, and before the lock is waited for: this is the usual mistake.
        require_output(self.path, overwrite=overwrite)
        if self.path.suffix not in (".jsonl", ".parquet"):
            raise UsageError(f"{self.path}: the output must end in .jsonl or .parquet")
        self.done = 0
        self._file = self._claim_partial()
        try:
            # again: the run that had the lock may have ended now
            require_output(self.path, overwrite=overwrite)
            self._size = os.fstat(self._file.fileno()).st_size
            if self._size and not (resume or overwrite):
                raise UsageError(
                    f"{self.partial} is from a run that was stopped; pass --resume to go on, or "
                    f"--overwrite"
                )
            if resume:
                self._drop_torn_line()
                self.done = _count_lines(self.partial)
                first = next(_read_partial(self.partial), None)
                if first is not None and first.row is not None:
                    self._checksums = first.checked  # all rows of a file have one or none has
            else:
                self._cut(0)
        except BaseException:
            self._leave()
            raise

    def _claim_partial(self) -> IO[bytes]:
        """The partial file, open and locked.  The lock ends with this process, however that
        ends."""
        while True:
            # of either: another run is at work, as the lock will say
            with contextlib.suppress(FileNotFoundError):
                if self.partial.samefile(self.path):
                    # of a run that was killed while it gave the output its name
                    self.partial.unlink()
            # To append, so that a file that another run writes is not emptied before its lock is
            # seen.
            file = self.partial.open("ab", buffering=_BUFFER)
            try:
                lock_file(file)
            except BlockingIOError:
                file.close()
                raise UsageError(
                    f"{self.partial} is being written by another run; wait for it or stop it"
                ) from None
            except OSError:
                return file  # a file system that has no locks
            except BaseException:
                file.close()
                raise
            if self._is_ours(file):
                return file
            # the run that had the lock has moved this very file into place: it is an output now
            file.close()

    def _is_ours(self, file: IO[bytes]) -> bool:
        """Whether the name of the partial file still leads to this one."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.partial.stat())
        except FileNotFoundError:
            return False

    def rows(self) -> Iterator[Row]:
        """The rows of the stopped run, read from the disk one by one.

        Raises:
            UsageError: one of them is damaged.
        """
        for line in itertools.islice(_read_partial(self.partial), self.done):
            if line.row is None:
                raise self._damage_error(line.number, line.error)
            yield line.row

    def backwards(self) -> Iterator[Row]:
        """The rows of the stopped run from the last to the first; no more are read than are asked
        for.

        Raises:
            UsageError: one of them is damaged.
        """
        number, held = self.done, b""
        with self.partial.open("rb") as file:
            start = file.seek(0, os.SEEK_END)
            while number:
                # The newline before the last line; its own is left out of the search.
                cut = held.rfind(b"\n", 0, -1) + 1
                while not cut and start:
                    size = min(start, _BUFFER)
                    start = file.seek(start - size)
                    held = file.read(size) + held
                    cut = held.rfind(b"\n", 0, -1) + 1
                for line in json_lines([held[cut:]], str(self.partial)):
                    if line.row is None:
                        raise self._damage_error(number, line.error)
                    yield line.row
                number, held = number - 1, held[:cut]

    def kept(self) -> KeptLines:
        """The same as `rows`, as they were written."""
        return KeptLines(self.partial, self.done, self._damage_error)

    def _damage_error(self, number: int, why: str) -> UsageError:
        return UsageError(
            f"{self.partial}, line {number}: {why}; no run leaves this behind, so it cannot be "
            f"resumed: "
            "pass --overwrite to begin anew"
        )

    def _drop_torn_line(self) -> None:
        """Cut what follows the last newline: a killed run may have written half a line."""
        with self.partial.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            while size > 0:
                start = max(0, size - (1 << 16))
                file.seek(start)
                cut = file.read(size - start).rfind(b"\n")
                if cut >= 0:
                    size = start + cut + 1
                    break
                size = start
        self._cut(size)

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._size = size

    def write(self, row: Row | bytes) -> bytes:
        """Append one row.

        Args:
            row: the columns, or what `dump_row` makes of them.

        Returns:
            The line as it stands in the file.
        """
        line = row if isinstance(row, bytes) else dump_row(row)
        line = stamped(line) if self._checksums else line
        try:
            self._file.write(line)
            if (written_at := time.monotonic()) - self._flushed_at >= self._flush_s:
                self._file.flush()
                self._flushed_at = written_at
        except OSError as error:
            error.filename = str(self.partial)  # a write does not know the name of its file
            raise
        self._size += len(line)
        return line

    def drop(self, count: int) -> None:
        """Remove the last rows of the stopped run, so that they are scored again.

        Args:
            count: how many.
        """
        if not count:
            return
        self.done -= count
        with self.partial.open("rb") as file:
            self._cut(sum(map(len, itertools.islice(file, self.done))))

    def keep(self, wanted: Iterable[bool]) -> None:
        """Remove some rows of the stopped run, wherever they stand.

        Args:
            wanted: for each row, whether it stays.
        """
        kept_file = Path(f"{self.partial}.kept")
        file = kept_file.open("wb", buffering=_BUFFER)
        with contextlib.suppress(OSError):  # a file system that has no locks
            lock_file(file)
        self.done = 0
        with self.partial.open("rb") as lines:
            for line, stays in zip(lines, wanted, strict=True):
                if stays:
                    file.write(line)
                    self.done += 1
        sync_file(file)
        self._size = file.tell()
        # After it is on the disk: a crash of the machine leaves one file or the other, and both
        # are whole.
        kept_file.rename(self.partial)
        self._file.close()
        self._file = file

    def finish(self, notes: Mapping[str, str] | None = None) -> None:
        """Move the output into place, in one step.

        Args:
            notes: texts for the metadata of Parquet.

        Raises:
            UsageError: another program changed the partial file or made the output meanwhile;
                nothing was replaced.
            DataError: Parquet cannot hold the rows.
        """
        try:
            sync_file(self._file)
        except OSError as error:
            error.filename = str(self.partial)
            raise
        if not self._is_ours(self._file) or os.fstat(self._file.fileno()).st_size != self._size:
            raise UsageError(
                f"{self.partial} was replaced or changed by another program while this run wrote "
                f"it, so there is no "
                f"{self.path.name}; run the command again with --overwrite, and no other beside it"
            )
        # Parquet is made of the lines at the end: it cannot be appended to.
        if self.path.suffix == ".parquet":
            complete_file = Path(f"{self.path}.whole")
            try:
                _to_parquet(self.partial, complete_file, notes or {}, checksums=self._checksums)
                publish(complete_file, self.path, overwrite=self._overwrite)
            finally:
                complete_file.unlink(missing_ok=True)
            self.partial.unlink()
            sync_folder(self.path.parent)
        else:
            publish(self.partial, self.path, overwrite=self._overwrite)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            if self._is_ours(self._file) and not self.partial.stat().st_size:
                # a run that failed before its first row has nothing to resume
                self.partial.unlink()
        # what a full disk did not take has been reported by `write`
        with contextlib.suppress(OSError):
            self._file.close()


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _read_partial(partial: Path) -> Iterator[Line]:
    """The rows of a partial file."""
    with partial.open("rb") as file:
        yield from json_lines(file, str(partial))


def _to_parquet(source: Path, target: Path, notes: Mapping[str, str], *, checksums: bool) -> None:
    import pyarrow as pa

    marks = {**notes, MARK: "1"}
    try:
        # The first rows nearly always have the types of all, which one reading then writes.
        if not _write_groups(source, target, _types_of(_groups(source), 1), marks, checksums):
            types = _types_of(_groups(source), None)
            is_written = _write_groups(source, target, types, marks, checksums)
            assert is_written, "they are those of all"
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"Parquet cannot hold these rows ({error}); they stand in {source}, which is JSONL"
        ) from error


def _types_of(groups: Iterable[Sequence[Row]], most: int | None) -> dict[str, str]:
    """The type of each column.

    Raises:
        ArrowInvalid: a column has two that no third one holds.
    """
    import pyarrow as pa

    kinds = dict[tuple[str, type], None]()
    for rows in itertools.islice(groups, most):
        kinds |= dict.fromkeys((name, type(cell)) for row in rows for name, cell in row.items())
    schemas = [pa.schema([(name, _TYPES[kind])]) for name, kind in kinds]
    cells = pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
    return {field.name: str(field.type) for field in cells}


def _write_groups(
    source: Path, target: Path, types: Mapping[str, str], marks: Mapping[str, str], checksums: bool
) -> bool:
    """Whether the rows of a partial file, each group written as it is read, have these types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = pa.schema(list(types.items()))
    columns = cells.append(pa.field(CHECKSUM, pa.string())) if checksums else cells
    if checksums:
        marks = {**marks, CHECKSUM: str(_count_lines(source))}
    with target.open("wb") as file:
        with pq.ParquetWriter(file, columns.with_metadata(marks)) as writer:
            for rows in _groups(source):
                if not all(_fits(row, types) for row in rows):
                    return False
                arrays = [_column(rows, name, kind) for name, kind in types.items()]
                if checksums:
                    crcs = [{CHECKSUM: crc_of_cells(_as_read(row, types))} for row in rows]
                    arrays.append(_column(crcs, CHECKSUM, "string"))
                writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
        sync_file(file)
    return True


def _fits(row: Row, types: Mapping[str, str]) -> bool:
    for name, cell in row.items():
        kind = types.get(name)
        is_wider = kind == "double" and type(cell) is int
        if kind is None or not (cell is None or is_wider or kind == _TYPES[type(cell)]):
            return False
    return True


def _as_read(row: Row, types: Mapping[str, str]) -> Row:
    """The cells of a row as a reader of the file has them."""
    cells = {name: row.get(name) for name in types}
    for name, cell in cells.items():
        if type(cell) is int and types[name] == "double":
            cells[name] = float(cell)
    return cells


def _groups(source: Path) -> Iterator[list[Row]]:
    """The rows of a partial file as Parquet has them, as many at a time as are held in memory."""
    group, letters = list[Row](), 0
    for line in _read_partial(source):
        if line.row is None:
            raise DataError(f"{source}, line {line.number}: {line.error}")
        row = {name: _pack_value(name, value) for name, value in line.row.items()}
        group.append(row)
        letters += sum([len(cell) for cell in row.values() if type(cell) is str])
        if len(group) == _GROUP_ROWS or letters >= _GROUP_LETTERS:
            yield group
            group, letters = [], 0
    if group:
        yield group


def _column(rows: Sequence[Row], name: str, kind: str) -> Any:
    """A column of rows.  Not by `pyarrow.array`: that imports pandas, which takes 60 MiB."""
    import numpy as np
    import pyarrow as pa

    values = [row.get(name) for row in rows]
    if kind == "null":
        return pa.nulls(len(values))
    bits = partial(np.packbits, bitorder="little")
    buffers: list[Any] = [bits([value is not None for value in values])]
    if kind == "string":
        texts = [(value or "").encode() for value in values]
        ends = itertools.accumulate(map(len, texts), initial=0)
        buffers += [array("i", ends), b"".join(texts)]
    elif kind == "bool":
        buffers.append(bits([bool(value) for value in values]))
    else:
        if kind == "double" and any(type(v) is int and float(v) != v for v in values):
            raise pa.ArrowInvalid(f"the column {name!r} has whole numbers that no float holds")
        numbers = (0 if value is None else value for value in values)
        buffers.append(array("q" if kind == "int64" else "d", numbers))
    shared = [pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(pa.type_for_alias(kind), len(values), shared)


class KeptLines:
    """The lines of a stopped run, from the first to the last, one by one or many at once.

    Attributes:
        left: how many were not read yet.
        raw: the line that was read last, as it stands in the file.

    Args:
        partial: their file.
        count: how many there are.
        damaged: makes the error of a line, from its number and what is wrong with it.
    """

    def __init__(
        self, partial: Path, count: int, damaged: Callable[[int, str], UsageError]
    ) -> None:
        self.left, self.raw = count, b""
        self._file, self._damage_error = partial.open("rb", buffering=_BUFFER), damaged
        self._lines, self._skipped = checked_lines(self._file), 0

    def read(self) -> bytes:
        """The next line, without checksum and newline.

        Raises:
            UsageError: its checksum does not fit.
        """
        number, self.raw, damage, _ = next(self._lines, (0, b"", "it is not there", False))
        if damage:
            raise self._damage_error(number + self._skipped, damage)
        self.left -= 1
        return without_checksum(self.raw)

    def peek(self, count: int, size: int) -> bytes | None:
        """The next lines as they stand in the file, which can be read again; None if they are
        others.

        Args:
            count: number of lines.
            size: of all of them, in bytes.
        """
        if count > self.left:
            return None
        start = self._file.tell()
        lines = self._file.read(size)
        self._file.seek(start)
        return lines if len(lines) == size and lines.count(b"\n") == count else None

    def skip(self, count: int, size: int) -> None:
        """Pass over lines.  One must have been read before: it says whether the others have
        checksums.

        Args:
            count, size: see `peek`.
        """
        self._file.seek(size, os.SEEK_CUR)
        self.left -= count
        self._skipped += count

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_PART = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<start>\d+%?)?:(?P<stop>\d+%?)?\])?", re.ASCII)


def dataset_lines(source: str, split: str, *, name: str | None = None) -> Iterable[Line]:
    """Lines of a data set, with those that cannot be read: a local file as `read_rows` takes it, a
    folder, or a hub id.

    Args:
        source: a path if there is such a file or folder, else a name of `rlvr.data.named_sets`,
            else a hub id such as "openai/gsm8k".
        split: "train", "test" …; a single file serves for every split.  A part of a split is
            written as in `datasets`, in rows or percent: "train[:100]", "train[10%:]".  Percents
            round up, so that "train[:10%]" has a row if there is any, and "train[10%:]" the others.
            Rows that cannot be read count too.
        name: the configuration of a data set on the hub.

    Raises:
        DataError: there is no such data set.
        UsageError: it is a set that cannot be read safely.
    """
    local = _local(source, split)
    if local is not None:
        path, start, stop = local
        all_rows = list(read_rows(path))
        return all_rows[_place(start, len(all_rows)) : _place(stop, len(all_rows))]
    require_supported(source)
    if (named_set := NAMED_SETS.get(source)) is not None:
        source, split, name = named_set.hub, named_set.part(split), named_set.config or None
    revision = None if named_set is None else named_set.revision or None
    rows = hub_rows(source, split, name=name, revision=revision)
    return (Line(number, row) for number, row in enumerate(rows, start=1))


def load_dataset(source: str, split: str, *, name: str | None = None) -> Iterable[Row]:
    """Rows of a data set of which every row must be readable.

    Args:
        source, split, name: see `dataset_lines`.

    Raises:
        DataError: there is no such data set, or a row cannot be read.
    """
    lines, local = dataset_lines(source, split, name=name), _local(source, split)
    rows = (_readable(line, source if local is None else local[0]) for line in lines)
    return rows if local is None else list(rows)


def _local(source: str, split: str) -> tuple[Path, str, str] | None:
    """The file of a split, and the rows from and to which it is asked for; None for a data set on
    the hub."""
    path = Path(source)
    if not path.is_dir() and ending_of(path) not in ENDINGS:
        return None
    match = _PART.fullmatch(split)
    if match is None:
        raise DataError(
            f"split {split!r}: write a name, or a part of it as in 'train[:100]' or 'train[10%:]'"
        )
    if path.is_dir():
        endings = (
            ".jsonl",
            ".parquet",
            ".jsonl.gz",
            ".jsonl.zst",
            ".json",
            ".csv",
            ".tsv",
            ".arrow",
        )
        files = [path / f"{match['name']}{ending}" for ending in endings]
        path = next((file for file in files if file.is_file()), files[0])
    return path, match["start"] or "0", match["stop"] or "100%"


def _readable(line: Line, source: str | Path) -> Row:
    if line.row is None:
        raise DataError(f"{source}, line {line.number}: {line.error}")
    return line.row


def _place(text: str, count: int) -> int:
    """The row at which a part begins or ends, given as a number of rows or as a percentage, which
    rounds up."""
    return -(-count * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def as_dataset(rows: Iterable[Row]) -> Any:
    """Rows as a `datasets.Dataset`, for trainers that take one; its `to_parquet` and `to_json`
    write files.

    Args:
        rows: mappings of columns.
    """
    import datasets

    return datasets.Dataset.from_list([dict(row) for row in rows])


def read_whole(path: str | Path) -> Iterator[Row]:
    """The rows of a file of which every row must be readable.

    Args:
        path: the file, as `read_rows` takes it.

    Raises:
        DataError: there is no such file, or a row cannot be read.
    """
    for line in read_rows(path):
        yield _readable(line, path)


def usable(
    lines: Iterable[Line],
    use: Callable[[Row, int], _Made],
    where: str | Path,
    left_out: Callable[[Line, str], object] | None = None,
) -> Iterator[tuple[Line, _Made]]:
    """What is made of each row; one that cannot be read or used is left out.

    Args:
        lines: of a file, as `read_rows` gives them.
        use: makes something of a row and the number of its line; raises DataError for one that
            cannot be used.
        where: the lines come from.
        left_out: is told each line that is left out, and why; None if the first is an error.

    Yields:
        The line, and what is made of it.

    Raises:
        DataError: no row can be used; or, without `left_out`, one cannot.
    """
    first, any_used = None, False
    for line in lines:
        try:
            result = use(_readable(line, where), line.number)
        except DataError as error:
            if left_out is None:
                raise
            first = first or error
            left_out(line, line.error or str(error))
            continue
        any_used = True
        yield line, result
    if first is not None and not any_used:
        raise first
