"""The index of a source: what its rows are counted and filtered by, in DuckDB; their texts stay in the files.

Files are read once, from front to back, in a thread of their own: pages show what has been read so far.  A file that
grows is read on from where it ended.  Of a run's rollouts only the columns that are counted are read.  Rows of other
Parquet are unpacked into a JSONL file in a temporary folder, so that every row is found by its byte offset.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa

from rlvr.data.lines import Line, Row, json_lines, parquet
from rlvr.data.rollouts import is_rollouts, read_rollouts, rollout_columns, rollouts_with
from rlvr.data.rows import dump_row
from rlvr.errors import DataError
from rlvr.viewer.search import hits_in_lines, needles_of

__all__ = ["Index", "RowsFile", "outcome_table", "parts_of", "short"]

_BATCH = 4000  # rows that are added to the table at once
_BATCH_BYTES = 1 << 24  # or fewer, if they are long
_LONGEST_LINE = 1 << 26  # bytes; a longer line is a broken record
_AT_ONCE_S = 0.2
_SEARCHES = 32  # whose rows are kept
_SETTINGS: Final[dict[str, Any]] = {
    "memory_limit": "200MB",
    "threads": 2,
    "enable_external_access": False,  # the database reads no file but its own
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_COLUMNS: Final = {
    "n": pa.int64(),
    "step": pa.int64(),
    "place": pa.int64(),
    "bytes": pa.int64(),
    "line": pa.int64(),
    "id": pa.string(),
    "task": pa.string(),
    "env": pa.string(),
    "outcome": pa.string(),
    "reason": pa.string(),
    "total": pa.float64(),
    "advantage": pa.float64(),
    "length": pa.int64(),
    "truncated": pa.bool_(),
    "dropped": pa.string(),
    "error": pa.string(),
}
_PARTS: Final = {"n": pa.int64(), "name": pa.string(), "value": pa.float64()}
_OF_ROLLOUTS: Final = (
    "task", "env", "outcome", "why", "score", "advantage", "length_tokens", "truncated", "dropped",
)  # fmt: skip
_STEP_BITS = 32  # a row's number is its step, and its place among the rows of that step


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file of rows.

    Attributes:
        path: the file.
        step: of the run; 0 for a scored file.
    """

    path: Path
    step: int = 0


@dataclass(slots=True)
class _Read:
    """How far a file has been read."""

    file: RowsFile
    stamp: tuple[int, ...] = ()
    done: int = 0  # bytes, of JSONL
    stored: int = 0  # bytes whose rows are in the table
    lines: int = 0
    rows: int = 0
    readable: int = 0
    spool: Path | None = None
    by_number: bool = False  # a row's place is its number in a file of rollouts, and no byte offset
    error: str = ""

    @property
    def texts(self) -> Path:
        """The JSONL file in which its rows are."""
        return self.spool or self.file.path


@dataclass(slots=True)
class _Batch:
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    parts: list[tuple[int, str, float]] = field(default_factory=list)
    bytes: int = 0


class Index:
    """The rows of one or several files.

    Args:
        files: gives the files; called again to find new ones.
        folder: for temporary files; must exist as long as the index does.
    """

    def __init__(self, files: Callable[[], Sequence[RowsFile]], folder: Path) -> None:
        self._files, self._folder = files, folder
        self._database = duckdb.connect(str(folder / "index.duckdb"), config=_SETTINGS)
        for name, columns in (("rows", _COLUMNS), ("parts", _PARTS)):
            types = {pa.string(): "VARCHAR", pa.float64(): "DOUBLE", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}
            listed = ", ".join(f'"{column}" {types[kind]}' for column, kind in columns.items())
            self._database.execute(f"CREATE TABLE {name} ({listed})")
        self._read: dict[int, _Read] = {}
        self._found: dict[str, dict[int, tuple[Any, Any, list[int]]]] = {}  # text → step → (file, until, rows)
        self._wanted = threading.Condition()
        self._first: int | None = None  # the step that a page waits for
        self._busy = self._again = self._closed = False
        self._thread: threading.Thread | None = None

    def update(self, *, wait_s: float = 1.0, first: int | None = None) -> bool:
        """Read what is new in the files, in the background.

        Args:
            wait_s: seconds to wait for it.
            first: the step that is read before all others.

        Returns:
            Whether all has been read.
        """
        with self._wanted:
            self._first, self._again = first, True
            if not self._busy and not self._closed:
                self._busy = True
                self._thread = threading.Thread(target=self._work, name="rlvr-view-index", daemon=True)
                self._thread.start()
            self._wanted.wait_for(lambda: not self._busy or self._has_read(first), wait_s)
            # That nothing is new is known at once: a page of a run that is over should not renew itself.
            self._wanted.wait_for(lambda: not self._busy, min(wait_s, _AT_ONCE_S))
            return not self._busy

    def close(self) -> None:
        """Stop reading."""
        with self._wanted:
            self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._database.close()

    @property
    def errors(self) -> list[str]:
        """A line for each file that cannot be read."""
        return [read.error for read in list(self._read.values()) if read.error]

    @property
    def progress(self) -> str:
        """How much has been read, for a page."""
        read = list(self._read.values())
        done = sum(it.done for it in read if not it.spool)
        size = sum(it.stamp[1] for it in read if it.stamp and not it.spool and not it.by_number)
        return f"{done / size:.0%}" if size else f"{len(read)} files"

    def query(self, sql: str, values: Sequence[Any] = (), other: pa.Table | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query over the tables `rows` and `parts`.

        Args:
            sql: the query.
            values: for its question marks.
            other: a further table, by that name.
        """
        with self._database.cursor() as cursor:
            if other is not None:
                cursor.register("other", other)
            return cursor.execute(sql, list(values)).fetchall()

    def rows(self, numbers: Sequence[int]) -> dict[int, Row | str]:
        """The whole rows by number, read from the files; the text of a line that is no row.

        Args:
            numbers: of the rows; those that do not exist are left out.
        """
        marks = ", ".join("?" * len(numbers))
        found: dict[int, Row | str] = {}
        sql = f"SELECT n, step, place, bytes FROM rows WHERE n IN ({marks}) ORDER BY n"
        by_number: dict[int, dict[int, int]] = {}  # step → place → number
        for n, step, place, size in self.query(sql, numbers) if numbers else []:
            if self._read[step].by_number:
                by_number.setdefault(step, {})[place] = n
                continue
            with self._read[step].texts.open("rb") as file:
                file.seek(place)
                raw = file.read(min(size, _LONGEST_LINE))
            line = next(json_lines([raw], ""), None)
            found[n] = line.row if line is not None and line.row is not None else raw.decode("utf-8", "replace")
        for step, places in by_number.items():
            rows = read_rollouts(self._read[step].file.path, list(places))
            found |= zip(places.values(), rows, strict=True)
        return found

    def search(self, text: str, most: int) -> list[int]:
        """Numbers of the rows that contain a text, in any of their columns, upper and lower case told apart.

        What was found is kept, and a text that is looked for again is looked for only where files have grown.

        Args:
            text: what to look for.
            most: stop after this many.
        """
        known = self._found.pop(text, {})
        self._found[text] = known  # the latest is the last
        while len(self._found) > _SEARCHES:
            self._found.pop(next(iter(self._found)))
        found: list[int] = []
        for step in sorted(self._read):
            read = self._read[step]
            now = read.stamp if read.by_number else read.stored
            file, until, rows = known.get(step, ((), 0, []))
            if file != read.stamp[:1] or (read.by_number and until != now):  # another file has its name
                until, rows = 0, []
            if until != now:
                with suppress(OSError, DataError):
                    rows = [*rows, *self._rows_with(step, read, text, until, now, most)]
            known[step] = (read.stamp[:1], now, rows)
            found += rows
            if len(found) >= most:
                break
        return found[:most]

    def _rows_with(self, step: int, read: _Read, text: str, start: Any, end: Any, most: int) -> list[int]:
        """The rows of a file that contain a text, between two bytes."""
        if read.by_number:
            return [(step << _STEP_BITS) + place for place in rollouts_with(read.file.path, text)]
        hits = hits_in_lines(read.texts, needles_of(text), start, end, most)
        sql = (
            "SELECT n FROM (SELECT unnest(?::BIGINT[]) AS hit) ASOF JOIN (SELECT n, place, bytes FROM rows "
            "WHERE step = ?) AS one ON hit >= place WHERE hit < place + bytes ORDER BY n"
        )
        return [n for (n,) in self.query(sql, [hits, step])] if hits else []

    def _has_read(self, step: int | None) -> bool:
        return step is not None and step in self._read and bool(self._read[step].stamp)

    def _work(self) -> None:
        while True:
            with self._wanted:
                if not self._again or self._closed:
                    self._busy = False
                    self._wanted.notify_all()
                    return
                self._again = False
            waiting = {file.step: file for file in self._files()}
            while waiting and not self._closed:
                file = waiting.pop(self._first if self._first in waiting else min(waiting))
                self._update_file(self._read.setdefault(file.step, _Read(file)))
                with self._wanted:
                    self._wanted.notify_all()

    def _update_file(self, read: _Read) -> None:
        """Read what is new in a file; what is wrong with it is kept for the page."""
        stamp: tuple[int, ...] = ()
        try:
            with read.file.path.open("rb") as file:
                is_parquet = file.read(4) == b"PAR1"
                status = os.fstat(file.fileno())
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if stamp == read.stamp:
                return
            if read.stamp and (is_parquet or stamp[0] != read.stamp[0] or stamp[1] < read.stamp[1]):
                self._forget(read)  # another file has its name
            if is_parquet:
                self._read_parquet(read)
            else:
                self._read_lines(read, stamp)
            read.stamp, read.error = stamp, ""
            if read.rows and not read.readable:
                [(line, error)] = self.query("SELECT line, error FROM rows WHERE step = ? LIMIT 1", [read.file.step])
                read.error = f"{read.file.path}: none of its {read.rows} rows can be read (line {line}: {error})"
        except (OSError, DataError, duckdb.Error) as error:
            read.stamp = stamp  # it is read again when it has changed
            text = (str(error).splitlines() or [type(error).__name__])[0]
            read.error = text if str(read.file.path) in text else f"{read.file.path}: {text}"

    def _forget(self, read: _Read) -> None:
        with self._database.cursor() as cursor:
            cursor.execute("DELETE FROM parts WHERE n IN (SELECT n FROM rows WHERE step = ?)", [read.file.step])
            cursor.execute("DELETE FROM rows WHERE step = ?", [read.file.step])
        read.stamp, read.done, read.stored, read.lines, read.rows, read.readable, read.error = (), 0, 0, 0, 0, 0, ""
        read.spool, read.by_number = None, False

    def _read_lines(self, read: _Read, stamp: tuple[int, ...]) -> None:
        read.stamp = (stamp[0], stamp[1], 0)  # so that the page can say how much has been read
        with self._batch() as batch, read.file.path.open("rb") as file:
            for place, size, line in _lines(file, read.done, read.lines):
                self._add(read, batch, line, place, size)
                read.done, read.lines = place + size, line.number
                if self._closed:
                    return
        read.stored = read.done

    def _read_parquet(self, read: _Read) -> None:
        """Read the counted columns of rollouts; unpack the rows of other files into a JSONL file."""
        self._forget(read)
        if is_rollouts(read.file.path):
            self._read_rollouts(read)
            return
        read.spool = self._folder / f"{read.file.step}.jsonl"
        place = 0
        with self._batch() as batch, read.spool.open("wb") as spool:
            for line in parquet(read.file.path):
                if line.row is not None:
                    _require_record(line.row, read.file.path)
                raw = json.dumps(line.error).encode() + b"\n" if line.row is None else _dumped(line.row)
                spool.write(raw)
                spool.flush()
                self._add(read, batch, line, place, len(raw))
                place += len(raw)
                read.done = place
                if self._closed:
                    return
        read.stored = read.done

    def _read_rollouts(self, read: _Read) -> None:
        read.by_number = True
        columns = rollout_columns(read.file.path, [*_OF_ROLLOUTS, "parts"])
        first = read.file.step << _STEP_BITS
        with self._batch() as batch:
            for place, values in enumerate(zip(*columns.values(), strict=True)):
                row = dict(zip(columns, values, strict=True))
                batch.rows.append((first + place, read.file.step, place, 0, place + 1, *_summary(row), None))
                batch.parts += [(first + place, name, value) for name, value in parts_of(row).items()]
        read.rows = read.readable = len(columns["task"])

    def _add(self, read: _Read, batch: _Batch, line: Line, place: int, size: int) -> None:
        if line.row is not None and not read.readable:
            _require_record(line.row, read.file.path)
        n = (read.file.step << _STEP_BITS) + read.rows
        row = line.row or {}
        error = short(line.error, 300) if line.error else None
        batch.rows.append((n, read.file.step, place, size, line.number, *_summary(row), error))
        batch.parts += [(n, name, value) for name, value in parts_of(row).items()]
        batch.bytes += size
        read.rows += 1
        read.readable += line.row is not None
        if len(batch.rows) >= _BATCH or batch.bytes >= _BATCH_BYTES:
            self._store(batch)
            read.stored = place + size

    @contextmanager
    def _batch(self) -> Iterator[_Batch]:
        """Rows that are stored in the end, also where reading fails in the middle of a file."""
        batch = _Batch()
        try:
            yield batch
        finally:
            self._store(batch)

    def _store(self, batch: _Batch) -> None:
        with self._database.cursor() as cursor:
            for name, columns, rows in (("rows", _COLUMNS, batch.rows), ("parts", _PARTS, batch.parts)):
                if rows:
                    arrays = [
                        pa.array(values, kind)
                        for values, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
                    ]
                    cursor.register("batch", pa.table(arrays, names=list(columns)))
                    cursor.execute(f"INSERT INTO {name} SELECT * FROM batch")
                    cursor.unregister("batch")
        batch.rows, batch.parts, batch.bytes = [], [], 0


def _require_record(row: Row, path: Path) -> None:
    """Refuse rows that no command of rlvr wrote.

    Args:
        row: the first row of a file.
        path: the file.

    Raises:
        DataError: it lacks a completion or an outcome.
    """
    if missing := {"completion", "outcome"} - row.keys():
        raise DataError(
            f"{path} holds no scored completions: its rows lack {' and '.join(sorted(missing))}, and have "
            f"{short(', '.join(map(str, row)), 200)}; `rlvr score` makes a file that has them"
        )


def outcome_table(rows: Sequence[tuple[Any, ...]], *, by_id: bool) -> pa.Table:
    """A further table for `Index.query`, with the columns k, n, outcome and reason.

    Args:
        rows: its rows.
        by_id: whether k is a text; else it is a number.
    """
    kinds = (pa.string() if by_id else pa.int64(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    return pa.table(arrays, names=["k", "n", "outcome", "reason"])


def parts_of(row: Row) -> dict[str, float]:
    """The parts of a row's score; none where they cannot be read.

    Args:
        row: a record, or a row of a run's rollouts.
    """
    parts = row.get("parts")
    if isinstance(parts, str):
        with suppress(ValueError, RecursionError):
            parts = json.loads(parts)
    if isinstance(parts, list) and all(isinstance(it, tuple) and len(it) == 2 for it in parts):
        parts = dict(parts)  # a map of Parquet
    if not isinstance(parts, Mapping):
        return {}
    return {short(name, 100): value for name, it in parts.items() if (value := _number(it)) is not None}


def short(value: Any, most: int) -> str:
    """A value as a text that DuckDB can hold, cut.

    Args:
        value: anything; None is the empty text.
        most: greatest number of characters.
    """
    text = value if type(value) is str else "" if value is None else str(value)
    if len(text) > most:
        text = f"{text[:most]}…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _summary(row: Row) -> tuple[Any, ...]:
    """The columns from `id` to `dropped`."""
    get = row.get
    length, why = get("length_tokens"), get("why")
    if not isinstance(length, int):
        completion = get("completion")
        length = len(completion) if isinstance(completion, str) else None
    return (
        short(get("id"), 200),
        short(get("task"), 500),
        short(get("env"), 200),
        short(get("outcome"), 50) or None,
        short(str(why).partition(":")[0], 100) if why else "",
        _number(row["total"] if "total" in row else get("score")),
        _number(get("advantage")),
        length if length is None or abs(length) < 1 << 62 else None,
        get("truncated") is True,
        short(get("dropped"), 100),
    )


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _dumped(row: Row) -> bytes:
    try:
        return dump_row(row)
    except DataError:  # dates, bytes and other values of another tool's columns
        return json.dumps(row, default=str).encode() + b"\n"


def _lines(file: Any, start: int, number: int) -> Iterator[tuple[int, int, Line]]:
    """(place, size, line) of each whole line from a place on; numbers are counted on."""
    place = size = 0
    if start:
        file.seek(start - 1)
        number -= file.read(1) != b"\n"  # the line before was read without its end, which is no line of its own

    def raw_lines() -> Iterator[bytes]:
        nonlocal place, size
        for place, size, raw in _whole_lines(file, start):  # noqa: B007  `json_lines` asks for one line at a time
            yield raw if size <= _LONGEST_LINE else b'"longer than 64 MiB"'

    for line in json_lines(raw_lines(), "", _loads):
        yield place, size, Line(number + line.number, line.row, line.error) if number or line.error else line


def _loads(raw: bytes) -> Any:
    """JSON at twice the speed; what orjson refuses or rounds (NaN, lone surrogates, great ids) is read by json."""
    try:
        row = orjson.loads(raw)
    except ValueError:
        return json.loads(raw)
    return json.loads(raw) if isinstance(row, dict) and isinstance(row.get("id"), float) else row


def _whole_lines(file: Any, start: int) -> Iterator[tuple[int, int, bytes]]:
    """(place, size, line) of the lines from a place on, but for one at the end that is still being written."""
    place = start
    file.seek(start)
    while raw := file.readline(_LONGEST_LINE + 1):
        size = len(raw)
        if raw[-1] != 10 or size > _LONGEST_LINE:  # a line of usual length ends here
            end = raw
            while size > _LONGEST_LINE and not end.endswith(b"\n") and (end := file.readline(_LONGEST_LINE)):
                size += len(end)
            if not end.endswith(b"\n") and not (end is raw and _is_whole(raw)):
                return
        yield place, size, raw
        place += size


def _is_whole(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False
