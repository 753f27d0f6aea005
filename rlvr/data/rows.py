"""Rows on disk: reads and writes JSONL and Parquet; an output file is whole or absent.

A row that cannot be read is a `DataError` that names its line; other rows are not affected.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from rlvr.data.files import publish, sync_file, sync_folder
from rlvr.errors import DataError, UsageError

__all__ = [
    "Journal",
    "Line",
    "Row",
    "as_dataset",
    "count_rows",
    "dump_row",
    "load_dataset",
    "read_rows",
    "read_whole",
    "require_output",
]

Row: TypeAlias = Mapping[str, Any]
"""The columns of a row by name."""

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


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


def read_rows(path: str | Path) -> Iterator[Line]:
    """Read a JSONL or Parquet file, one line at a time.

    Args:
        path: the file; gzipped JSONL ends in .jsonl.gz.

    Raises:
        DataError: there is no such file, it is a folder, or its name does not end in .jsonl, .jsonl.gz or .parquet.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a .jsonl or .parquet file")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if _is_jsonl(path):
        return _read_jsonl(path)
    raise DataError(
        f"{path}: rows are read from .jsonl or .parquet files, not from {path.suffix or 'a file without ending'}"
    )


def _is_jsonl(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson"))


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path) -> Generator[bytes, None, None]:
    with _opened(path) as file:
        try:
            yield from file
        except _DAMAGED as error:
            raise DataError(f"{path}: cannot be read as gzip: {error}") from error


def _read_jsonl(path: Path) -> Iterator[Line]:
    with_checksums: bool | None = None  # as in the first line: a run writes them on all or on none
    with contextlib.closing(_lines(path)) as lines:
        for number, raw in enumerate(lines, 1):
            if not raw.strip():
                continue
            intact = _is_intact(raw)
            if with_checksums is None:
                _refuse_array(path, raw)
                with_checksums = intact is not None
            try:
                if intact is False:
                    raise _Damaged(_NO_FIT)
                if (intact is None) is with_checksums:
                    raise _Damaged(_UNLIKE[with_checksums])
                row = json.loads(raw)
                if not isinstance(row, dict):
                    raise ValueError(f"a {type(row).__name__}, not an object")
            except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, or brackets too deep to follow
                why = str(error) if isinstance(error, _Damaged) else f"not a JSON object: {error}"
                yield Line(number, None, why, raw.decode("utf-8", "replace"))
            else:
                row.pop(_CHECKSUM, None)
                yield Line(number, row, checked=with_checksums)


class _Damaged(ValueError):
    """The line is not as it was written, whether or not it still is JSON."""


_NO_FIT = (
    "damaged or edited since it was written: its checksum does not fit (without rlvr_crc32 it is read as it stands)"
)
_UNLIKE = {
    True: "it has no checksum, and the lines before have: it is damaged, or of another file",
    False: "it has a checksum, and the lines before have none: they are damaged, or of another file",
}


def _refuse_array(path: Path, raw: bytes) -> None:
    """Raise one error for a file that is a JSON array, not one for each line; a line `[1, 2]` alone is a bad row."""
    if not raw.lstrip().startswith(b"["):
        return
    with contextlib.suppress(ValueError, RecursionError):
        if not any(isinstance(row, dict) for row in json.loads(raw)):
            return
    raise DataError(f"{path}: a JSON array; one object per line is needed")


def _read_parquet(path: Path) -> Iterator[Line]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            is_marked, count = _MARK.encode() in metadata, metadata.get(_CHECKSUM.encode())
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    checksum = row.pop(_CHECKSUM, None)
                    if (checksum or count) and (checksum != _crc_of_cells(row) or not is_marked):
                        yield Line(number, None, _NO_FIT)
                        continue
                    cells = {k: _unpacked(v) for k, v in row.items()} if is_marked else row
                    yield Line(number, cells, checked=checksum is not None)
            if count is not None and count != b"%d" % number:
                yield Line(number + 1, None, f"the file was written with {count[:20].decode('ascii', 'replace')} rows")
    except (pa.ArrowException, OSError, ValueError) as error:  # cut short, damaged, or texts that are not UTF-8
        raise DataError(f"{path}: cannot be read as Parquet after row {number}: {error}") from error


def count_rows(path: str | Path) -> int:
    """The number of lines that `read_rows` will give, for a progress bar; blank lines may be counted too.

    0 for a file that cannot be read; `read_rows` raises the error.

    Args:
        path: the file.
    """
    path = Path(path)
    if not path.is_file():
        return 0
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(path).num_rows)
        except (pa.ArrowException, OSError):
            return 0
    with contextlib.suppress(*_DAMAGED), _opened(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return 0


# In Parquet, nested values are written as JSON text, since their keys differ from row to row; so is text that is not
# UTF-8 (lone surrogates) or that begins with the mark.  A file with this mark in its metadata was written by rlvr.
_MARK = "json:"


def _packed(name: str, value: Any) -> Any:
    """A value for a Parquet column.  A column has one type, so references, which may differ in type, become texts."""
    if isinstance(value, str):
        return value if _is_utf8(value) and not value.startswith(_MARK) else _MARK + json.dumps(value)
    return _MARK + json.dumps(value) if isinstance(value, (dict, list)) or name == "reference" else value


def _unpacked(value: Any) -> Any:
    return json.loads(value[len(_MARK) :]) if isinstance(value, str) and value.startswith(_MARK) else value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dump_row(row: Row) -> bytes:
    """One JSONL line: readable UTF-8, or escapes if the text has lone surrogates.

    Args:
        row: the columns.

    Raises:
        DataError: a value cannot be written as JSON.
    """
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {row.get('id')!r} cannot be written as JSON: {error}") from error
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def require_output(path: Path, *, overwrite: bool, device: bool = False) -> None:
    """Refuse an output that cannot be written.

    Args:
        path: the file to be written.
        overwrite: whether it may exist.
        device: whether a device or a pipe will do, such as /dev/stdout.

    Raises:
        UsageError: its folder is missing, it is a folder or another thing than a file, or it exists and must not.
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
    """An output file that is whole or absent: rows are appended to `PATH.partial`, and `finish` moves it into place.

    One run at a time writes it: a lock on the partial file is held until the output has its name.

    Args:
        path: the output, .jsonl or .parquet.
        resume: continue a run that was stopped; `done` then counts the rows that it wrote.
        overwrite: replace an output, or the rows of a stopped run.
        checksums: give every row a checksum, by which `read_rows` tells one that was damaged later.

    Attributes:
        path: see above.
        partial: the file that is written to.
        done: rows of the stopped run that are kept.

    Raises:
        UsageError: the path cannot be written; another run writes it; or the output, or rows of a stopped run, exist
            and neither `resume` nor `overwrite` was given.
    """

    def __init__(
        self, path: str | Path, *, resume: bool = False, overwrite: bool = False, checksums: bool = False
    ) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        self._overwrite, self._checksums = overwrite, checksums
        require_output(self.path, overwrite=overwrite)
        if self.path.suffix not in (".jsonl", ".parquet"):
            raise UsageError(f"{self.path}: the output must end in .jsonl or .parquet")
        self.done = 0
        self._file = self._claimed()
        try:
            require_output(self.path, overwrite=overwrite)  # again: the run that had the lock may have ended now
            self._size = os.fstat(self._file.fileno()).st_size
            if self._size and not (resume or overwrite):
                raise UsageError(
                    f"{self.partial} is from a run that was stopped; pass --resume to go on, or --overwrite"
                )
            if resume:
                self._drop_torn_line()
                self.done = count_rows(self.partial) if self._size else 0
                first = next(_read_jsonl(self.partial), None)
                if first is not None and first.row is not None:
                    self._checksums = first.checked  # all rows of a file have one or none has
            else:
                self._cut(0)
        except BaseException:
            self._file.close()
            raise

    def _claimed(self) -> IO[bytes]:
        """The partial file, open and locked.  The lock ends with this process, however that ends."""
        while True:
            if self.partial.exists() and self.path.exists() and self.partial.samefile(self.path):
                self.partial.unlink()  # a run that was killed while it gave the output its name
            file = self.partial.open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise UsageError(f"{self.partial} is being written by another run; wait for it or stop it") from None
            except OSError:
                return file  # a file system that has no locks
            except BaseException:
                file.close()
                raise
            if self._is_ours(file):
                return file
            file.close()  # the run that had the lock has moved this very file into place: it is an output now

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
        for line in itertools.islice(_read_jsonl(self.partial), self.done):
            if line.row is None:
                raise UsageError(
                    f"{self.partial}, line {line.number}: {line.error}; no run leaves this behind, so it cannot be "
                    "resumed: pass --overwrite to begin anew"
                )
            yield line.row

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

    def write(self, row: Row) -> None:
        """Append one row; once written, it survives a kill of this process.

        Args:
            row: the columns.
        """
        line = _stamped(dump_row(row)) if self._checksums else dump_row(row)
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            error.filename = str(self.partial)  # a write does not know the name of its file
            raise
        self._size += len(line)

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

    def finish(self) -> None:
        """Move the output into place, in one step.

        Raises:
            UsageError: another program changed the partial file or made the output meanwhile; nothing was replaced.
            DataError: Parquet cannot hold the rows.
        """
        sync_file(self._file)
        if not self._is_ours(self._file) or os.fstat(self._file.fileno()).st_size != self._size:
            raise UsageError(
                f"{self.partial} was replaced or changed by another program while this run wrote it, so there is no "
                f"{self.path.name}; run the command again with --overwrite, and no other beside it"
            )
        if self.path.suffix == ".parquet":
            whole = self.path.with_name(self.path.name + ".whole")
            try:
                _to_parquet(self.partial, whole, checksums=self._checksums)
                publish(whole, self.path, overwrite=self._overwrite)
            finally:
                whole.unlink(missing_ok=True)
            self.partial.unlink()
            sync_folder(self.path.parent)
        else:
            publish(self.partial, self.path, overwrite=self._overwrite)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            if self._is_ours(self._file) and not self.partial.stat().st_size:
                self.partial.unlink()  # a run that failed before its first row has nothing to resume
        with contextlib.suppress(OSError):  # what a full disk did not take has been reported by `write`
            self._file.close()


# A checksum is the last key of a line, or a column of Parquet; it covers all that stands before it in the line, or the
# other cells of the row as they are read.
_CHECKSUM = "rlvr_crc32"
_STAMP = re.compile(rb', "rlvr_crc32": "([0-9a-f]{8})"\}')
_STAMP_BYTES = len(b', "rlvr_crc32": "00000000"}')


def _stamped(line: bytes) -> bytes:
    """A line of JSON with its checksum."""
    body = line[: line.rindex(b"}")]
    return b'%b, "rlvr_crc32": "%08x"}\n' % (body, zlib.crc32(body))


def _is_intact(raw: bytes) -> bool | None:
    """Whether a line still has its checksum; None if it has none."""
    raw = raw.rstrip(b"\r\n")
    found = _STAMP.fullmatch(raw[-_STAMP_BYTES:])
    return None if found is None else int(found[1], 16) == zlib.crc32(raw[:-_STAMP_BYTES])


def _crc_of_cells(row: Row) -> str:
    return f"{zlib.crc32(json.dumps(row, sort_keys=True, default=str).encode()):08x}"


def _to_parquet(source: Path, target: Path, *, checksums: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [line.row for line in _read_jsonl(source) if line.row is not None]
    try:
        table = pa.Table.from_pylist([{name: _packed(name, value) for name, value in row.items()} for row in rows])
        if checksums:
            table = table.append_column(_CHECKSUM, [[_crc_of_cells(row) for row in table.to_pylist()]])
        marks = {_MARK: "1"} | ({_CHECKSUM: str(len(rows))} if checksums else {})
        with target.open("wb") as file:
            pq.write_table(table.replace_schema_metadata(marks), file)
            sync_file(file)
    except pa.ArrowException as error:
        raise DataError(f"Parquet cannot hold these rows ({error}); they stand in {source}, which is JSONL") from error


_PART = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<start>\d+%?)?:(?P<stop>\d+%?)?\])?", re.ASCII)


def load_dataset(source: str, split: str, *, name: str | None = None) -> Iterable[Row]:
    """Rows of a data set: a local .jsonl, .jsonl.gz or .parquet file, a folder with one file per split, or a hub id.

    Args:
        source: a path if there is such a file or folder, else a hub id such as "openai/gsm8k".
        split: "train", "test" …; a single file serves for every split.  A part of a split is written as in `datasets`,
            in rows or percent: "train[:100]", "train[10%:]".  Percents round up, so that "train[:10%]" has a row if
            there is any, and "train[10%:]" the others.
        name: the configuration of a data set on the hub.

    Raises:
        DataError: there is no such data set, or a row cannot be read; tasks with rows left out would be other tasks.
    """
    path = Path(source)
    if path.is_dir() or _is_jsonl(path) or path.suffix == ".parquet":
        asked = _PART.fullmatch(split)
        if asked is None:
            raise DataError(f"split {split!r}: write a name, or a part of it as in 'train[:100]' or 'train[10%:]'")
        if path.is_dir():
            files = [path / f"{asked['name']}{ending}" for ending in (".jsonl", ".parquet", ".jsonl.gz")]
            path = next((file for file in files if file.is_file()), files[0])
        found = list(read_whole(path))
        return found[_place(asked["start"] or "0", len(found)) : _place(asked["stop"] or "100%", len(found))]
    try:
        import datasets

        rows: Iterable[Row] = datasets.load_dataset(source, name, split=split)
    except Exception as error:  # hub, network and data set errors share no root
        raise DataError(
            f"data set {source!r}, split {split!r}: {type(error).__name__}: {str(error)[:200]}; "
            "a local .jsonl or .parquet file with the same columns works too: data=PATH"
        ) from error
    return rows


def _place(text: str, count: int) -> int:
    """The row at which a part begins or ends, given as a number of rows or as a percentage, which rounds up."""
    return -(-count * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def as_dataset(rows: Iterable[Row]) -> Any:
    """Rows as a `datasets.Dataset`, for trainers that take one; its `to_parquet` and `to_json` write files.

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
        if line.row is None:
            raise DataError(f"{path}, line {line.number}: {line.error}")
        yield line.row
