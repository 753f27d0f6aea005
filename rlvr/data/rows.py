"""Rows on disk: JSONL and Parquet in, JSONL and Parquet out, and nothing half-written.

A row that cannot be read is a `DataError` that names its line; the other rows are not harmed by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from rlvr.errors import DataError, UsageError

__all__ = ["Journal", "Line", "Row", "as_dataset", "count_rows", "dump_row", "load_dataset", "read_rows", "read_whole"]

Row: TypeAlias = Mapping[str, Any]
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its number, counted from 1, and its row, or why there is none."""

    number: int
    row: Row | None
    error: str = ""
    text: str = ""  # what stood there, if it could not be read


def read_rows(path: str | Path) -> Iterator[Line]:
    """Read a JSONL or Parquet file, one line at a time.

    Raises:
        DataError: there is no such file, or its ending is neither .jsonl (or .jsonl.gz) nor .parquet.
    """
    path = Path(path)
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
    first = True
    with contextlib.closing(_lines(path)) as lines:
        for number, raw in enumerate(lines, 1):
            if not raw.strip():
                continue
            if first:
                _refuse_array(path, raw)
                first = False
            try:
                row = json.loads(raw)
                if not isinstance(row, dict):
                    raise ValueError(f"a {type(row).__name__}, not an object")
            except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, or brackets too deep to follow
                yield Line(number, None, f"not a JSON object: {error}", raw.decode("utf-8", "replace"))
            else:
                yield Line(number, row)


def _refuse_array(path: Path, raw: bytes) -> None:
    """One error instead of one for each of its lines; a mere `[1, 2]` is a bad row like any other."""
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
            ours = _MARK.encode() in (file.schema_arrow.metadata or {})
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield Line(number, {k: _unpacked(v) for k, v in row.items()} if ours else row)
    except (pa.ArrowException, OSError, ValueError) as error:  # cut short, damaged, or texts that are not UTF-8
        raise DataError(f"{path}: cannot be read as Parquet after row {number}: {error}") from error


def count_rows(path: str | Path) -> int:
    """How many lines `read_rows` will give, for a progress bar; blank ones may be counted too.

    0 for a file that cannot be read: `read_rows` is the one to say so.
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


# In Parquet a record keeps what it nests as JSON text, since the keys inside differ from row to row, and also text
# that is not UTF-8 (lone surrogates) or that could be mistaken for it.  A file with this mark was written by us.
_MARK = "json:"


def _packed(name: str, value: Any) -> Any:
    """A column has one type: references may be texts here and numbers there, so they are texts all."""
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
    """One JSONL line.  Readable UTF-8 where the text allows it; lone surrogates survive as escapes.

    Raises:
        DataError: a value has no place in JSON.
    """
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {row.get('id')!r} cannot be written as JSON: {error}") from error
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode() + b"\n"


class Journal:
    """Output that is whole or absent: rows are appended to `PATH.partial`, and `finish` moves it into place.

    A run that was stopped is continued with `resume=True`: `done` then holds the rows that are already there.

    Raises:
        UsageError: the output exists, or a stopped run's rows do, and the caller chose neither way.
    """

    def __init__(self, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        if self.path.suffix not in (".jsonl", ".parquet"):
            raise UsageError(f"{self.path}: the output must end in .jsonl or .parquet")
        if not self.path.parent.is_dir():
            raise UsageError(f"{self.path}: there is no folder {self.path.parent}")
        if self.path.exists() and not overwrite:
            raise UsageError(f"{self.path} exists; name another output, or pass --overwrite")
        if self.partial.exists() and not (resume or overwrite):
            raise UsageError(f"{self.partial} is from a run that was stopped; pass --resume to go on, or --overwrite")
        self.done: list[Row] = []
        self._file: IO[bytes] = self.partial.open("ab")
        try:
            self._lock()
            if resume:
                self._drop_torn_line()
                self._read_done()
            else:
                self._file.truncate(0)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """Two runs would mix their rows.  A lock ends with its process, however that ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.partial} is being written by another run; wait for it or stop it") from None
        except OSError:
            return  # a file system that has no locks

    def _read_done(self) -> None:
        for line in _read_jsonl(self.partial):
            if line.row is None:
                raise UsageError(
                    f"{self.partial}, line {line.number}: {line.error}; no run leaves this behind, so it cannot be "
                    "resumed: pass --overwrite to begin anew"
                )
            self.done.append(line.row)

    def _drop_torn_line(self) -> None:
        """A killed run may have written half a line; what follows the last newline goes."""
        with self.partial.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            while size > 0:
                start = max(0, size - (1 << 16))
                file.seek(start)
                cut = file.read(size - start).rfind(b"\n")
                if cut >= 0:
                    size = start + cut + 1
                    break
                size = start
            file.truncate(size)

    def write(self, row: Row) -> None:
        """Append one row; it survives a kill of this process from here on."""
        self._file.write(dump_row(row))
        self._file.flush()

    def drop(self, count: int) -> None:
        """Take back the last rows of the stopped run, to score them again."""
        kept = self.partial.read_bytes().splitlines(keepends=True)[: len(self.done) - count]
        self._file.truncate(sum(map(len, kept)))
        del self.done[len(self.done) - count :]

    def finish(self) -> None:
        """Put the output in place, in one step."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self.path.suffix == ".parquet":
            whole = self.path.with_name(self.path.name + ".whole")
            try:
                _to_parquet(self.partial, whole)
                whole.replace(self.path)
            finally:
                whole.unlink(missing_ok=True)
            self.partial.unlink()
        else:
            self.partial.replace(self.path)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()
        if self.partial.exists() and not self.partial.stat().st_size:
            self.partial.unlink()  # a run that failed before its first row has nothing to resume


def _to_parquet(source: Path, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [line.row for line in _read_jsonl(source) if line.row is not None]
    try:
        table = pa.Table.from_pylist([{name: _packed(name, value) for name, value in row.items()} for row in rows])
        pq.write_table(table.replace_schema_metadata({_MARK: "1"}), target)
    except pa.ArrowException as error:
        raise DataError(f"Parquet cannot hold these rows ({error}); they stand in {source}, which is JSONL") from error


_PART = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<start>\d+%?)?:(?P<stop>\d+%?)?\])?", re.ASCII)


def load_dataset(source: str, split: str, *, name: str | None = None) -> Iterable[Row]:
    """Rows of a data set: a local .jsonl, .jsonl.gz or .parquet file, a folder with one per split, or a hub id.

    Args:
        source: a path if there is such a file or folder, else a hub id such as "openai/gsm8k".
        split: "train", "test" …; a single file is taken for whatever split is asked for.  A part of one is written as
            `datasets` has it, in rows or percent: "train[:100]", "train[10%:]".  Percents round up, so that
            "train[:10%]" has a row if there is any, and "train[10%:]" the others.
        name: the hub data set's configuration.

    Raises:
        DataError: nothing there, or a row that cannot be read; an environment with holes would be another one.
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
    """Where among so many rows a part begins or ends: a number of them, or a percentage, rounded up."""
    return -(-count * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def as_dataset(rows: Iterable[Row]) -> Any:
    """Rows as a `datasets.Dataset`, for whoever trains on one; its `to_parquet` and `to_json` write files."""
    import datasets

    return datasets.Dataset.from_list([dict(row) for row in rows])


def read_whole(path: str | Path) -> Iterator[Row]:
    """The rows of a file that must not have holes.

    Raises:
        DataError: there is no such file, or a row that cannot be read.
    """
    for line in read_rows(path):
        if line.row is None:
            raise DataError(f"{path}, line {line.number}: {line.error}")
        yield line.row
