"""The index of a source: what its rows are counted and filtered by, in DuckDB; their
texts stay in the files.

Files are read once, from front to back, in a thread of their own: pages show what has been read so
far.  A file that grows is read on from where it ended.  Of a run's rollouts only the columns that
are counted are read.  Rows of other Parquet are unpacked into a JSONL file in a temporary folder,
so that every row is found by its byte offset.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import orjson

from rlvr.data.lines import Line, Row, json_lines, parquet
from rlvr.data.rollouts import is_rollouts, read_rollout_table, read_rollouts, rollouts_with
from rlvr.data.rows import dump_row
from rlvr.errors import DataError, MissingDependency, foreign_code
from rlvr.types import JsonDict
from rlvr.viewer.search import hits_in_lines, needles_of
from rlvr.workers.thread import DaemonThread

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = [
    "Index",
    "RowsFile",
    "dumped",
    "outcome_table",
    "parquet_columns",
    "score_parts",
    "short",
]

_BATCH = 4000  # rows that are added to the table at once
_BATCH_BYTES = 1 << 24  # or fewer, if they are long
_FILES_AT_ONCE = 8  # of rollouts; a page that waits for another step waits for these
_LONGEST_LINE = 1 << 26  # bytes; a longer line is a broken record
_EDGE = 4096  # bytes by which a file is known to be the one that was read
_SEARCHES = 32  # whose rows are kept
_SETTINGS: Final[JsonDict] = {
    "memory_limit": "200MB",
    "threads": 2,
    "enable_external_access": False,  # the database reads no file but its own
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_COLUMNS: Final = {
    "n": "BIGINT",
    "step": "BIGINT",
    "place": "BIGINT",
    "bytes": "BIGINT",
    "line": "BIGINT",
    "id": "VARCHAR",
    "task": "VARCHAR",
    "env": "VARCHAR",
    "outcome": "VARCHAR",
    "reason": "VARCHAR",
    "total": "DOUBLE",
    "advantage": "DOUBLE",
    "length": "BIGINT",
    "truncated": "BOOLEAN",
    "dropped": "VARCHAR",
    "error": "VARCHAR",
}
_PARTS: Final = {"n": "BIGINT", "name": "VARCHAR", "value": "DOUBLE"}
_LONGEST: Final = {
    "id": 200,
    "task": 500,
    "env": 200,
    "outcome": 50,
    "reason": 100,
    "dropped": 100,
    "name": 100,
}
"""Characters of a text that are kept in the tables."""

_STEP_BITS = 32  # a row's number is its step, and its place among the rows of that step
_MOST_STEPS = 1 << (63 - _STEP_BITS)  # for a number of 64 bits with a sign
_OF_ROLLOUTS: Final = (
    "task", "env", "outcome", "why", "score", "advantage", "length_tokens", "truncated", "dropped",
    "parts",
)  # fmt: skip


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
    failed: bool = False  # by an error after which it is not known which rows were stored
    head: bytes = b""  # the first bytes, as they were read
    tail: bytes = b""  # the last bytes before `done`
    version: int = 0  # how often it was read anew

    @property
    def texts(self) -> Path:
        """The JSONL file in which its rows are."""
        return self.spool or self.file.path

    def goes_on(self, file: BinaryIO, head: bytes) -> bool:
        """Whether a file of JSON lines still begins with what has been read of it.

        Args:
            file: it.
            head: its first bytes.
        """
        compared = min(self.done, len(self.head))
        if self.failed or self.spool or self.by_number or head[:compared] != self.head[:compared]:
            return False
        file.seek(self.done - len(self.tail))
        return file.read(len(self.tail)) == self.tail


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
        # it is imported with the first rows: the curves of a run do without
        if find_spec("duckdb") is None:
            raise MissingDependency("duckdb", "view")
        self._files, self._folder = files, folder
        self._opening = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._read: dict[int, _Read] = {}
        self._found: dict[
            str, dict[int, tuple[int, object, list[int]]]
        ] = {}  # text → step → (version, until, rows)
        self._finding = threading.Lock()  # of the texts in `_found`
        self._wanted = threading.Condition()
        self._first: int | None = None  # the step that a page waits for
        self._changed: dict[int, RowsFile] = {}  # files that are to be read
        self._busy = self._again = self._closed = False
        self._failed = ""  # why the files cannot be listed
        self._thread: DaemonThread | None = None

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
                self._thread = DaemonThread(self._work, name="view-index", owner="viewer")
            self._wanted.wait_for(lambda: not self._busy or self._has_read(first), wait_s)
            return not self._busy

    def close(self) -> None:
        """Stop reading."""
        with self._wanted:
            self._closed = True
        if self._thread is not None:
            self._thread.join()
        if self._database is not None:
            self._database.close()

    @property
    def errors(self) -> list[str]:
        """A line for each file that cannot be read."""
        return [
            error
            for error in (self._failed, *(read.error for read in list(self._read.values())))
            if error
        ]

    @property
    def progress(self) -> str:
        """How much has been read, for a page."""
        read = list(self._read.values())
        done = sum(file_read.done for file_read in read if not file_read.spool)
        size = sum(
            file_read.stamp[1]
            for file_read in read
            if file_read.stamp and not file_read.spool and not file_read.by_number
        )
        return f"{done / size:.0%}" if size else f"{len(read)} files"

    def query(
        self, sql: str, values: Sequence[Any] = (), other: pa.Table | None = None
    ) -> list[tuple[Any, ...]]:
        """Rows of a query over the tables `rows` and `parts`.

        Args:
            sql: the query.
            values: for its question marks.
            other: a further table, by that name.
        """
        with self._cursor() as cursor:
            if other is not None:
                cursor.register("other", other)
            return cursor.execute(sql, list(values)).fetchall()

    def rows(self, numbers: Sequence[int]) -> dict[int, Row | str]:
        """The whole rows by number, read from the files; the text of a line that is no row.

        Args:
            numbers: of the rows; those that do not exist are left out.
        """
        marks = ", ".join("?" * len(numbers))
        rows_read: dict[int, Row | str] = {}
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
            rows_read[n] = (
                line.row
                if line is not None and line.row is not None
                else raw.decode("utf-8", "replace")
            )
        for step, places in by_number.items():
            rows = read_rollouts(self._read[step].file.path, list(places))
            rows_read |= zip(places.values(), rows, strict=True)
        return rows_read

    def search(self, text: str, most: int) -> list[int]:
        """Numbers of the rows that contain a text, in any of their columns, upper and lower case
        told apart.

        What was found is kept, and a text that is looked for again is looked for only where files
        have grown.

        Args:
            text: what to look for.
            most: stop after this many.
        """
        with self._finding:
            cached = self._found.pop(text, {})
            self._found[text] = cached  # the latest is the last
            while len(self._found) > _SEARCHES:
                self._found.pop(next(iter(self._found)))
        numbers: list[int] = []
        for step in sorted(self._read):
            read = self._read[step]
            version = read.version
            place_now = read.stamp if read.by_number else read.stored
            of, until, rows = cached.get(step, (version, 0, []))
            # another file has its name
            if of != version or (read.by_number and until != place_now):
                until, rows = 0, []
            if until != place_now:
                with suppress(OSError, DataError):  # it is looked at again with the next search
                    rows = [*rows, *self._rows_with(step, read, text, until, place_now, most)]
                    cached[step] = (version, place_now, rows)
            numbers += rows
            if len(numbers) >= most:
                break
        return numbers[:most]

    def _rows_with(
        self, step: int, read: _Read, text: str, start: Any, end: Any, most: int
    ) -> list[int]:
        """The rows of a file that contain a text, between two bytes."""
        if read.by_number:
            return [(step << _STEP_BITS) + place for place in rollouts_with(read.file.path, text)]
        hits = hits_in_lines(read.texts, needles_of(text), start, end, most)
        sql = (
            "SELECT n FROM (SELECT unnest(?::BIGINT[]) AS hit) ASOF JOIN (SELECT n, place, bytes "
            "FROM rows WHERE step = ?) AS one ON hit >= place WHERE hit < place + bytes ORDER BY n"
        )
        return [n for (n,) in self.query(sql, [hits, step])] if hits else []

    def _has_read(self, step: int | None) -> bool:
        """Whether the rows of a run's step have been read and others have not: those need not be
        waited for."""
        if step is None or not self._changed:
            return False
        read = self._read.get(step)
        return read is not None and read.by_number and step not in self._changed

    def _work(self) -> None:
        while True:
            with self._wanted:
                if not self._again or self._closed:
                    # under the same lock, so that the next `update` starts another thread
                    self._busy = False
                    self._wanted.notify_all()
                    return
                self._again = False
            with foreign_code() as errors:  # a thread that ends would leave pages that say "whole"
                self._read_changed()
                self._failed = ""
            for error in errors:
                self._failed = _first_line_of(error)
                with self._wanted:
                    self._changed = {}

    def _read_changed(self) -> None:
        """Read what is new in all files."""
        with self._wanted:
            self._changed = self._changed_files()
            self._wanted.notify_all()
        while self._changed and not self._closed:
            awaited = [self._first] if self._first in self._changed else []
            steps = awaited or sorted(self._changed)[:_FILES_AT_ONCE]
            self._update_files([self._changed[step] for step in steps])
            with self._wanted:
                for step in steps:
                    del self._changed[step]
                self._wanted.notify_all()

    def _changed_files(self) -> dict[int, RowsFile]:
        """The files that are not as they were when they were read, by step."""
        changed: dict[int, RowsFile] = {}
        for file in self._files():
            read = self._read.get(file.step)
            stamp: tuple[int, ...] = ()
            with suppress(OSError):
                stamp = _stamp(file.path.stat())
            if read is None or read.stamp != stamp or read.file != file:
                changed[file.step] = file
        return changed

    def _update_files(self, files: Sequence[RowsFile]) -> None:
        """Read what is new in some files."""
        rollouts: list[tuple[_Read, tuple[int, ...], pa.Table]] = []
        for file in files:
            read = self._read.setdefault(file.step, _Read(file))
            read.file = file
            with self._error_is_kept(read):
                if (table := self._update_file(read)) is not None:
                    rollouts.append((read, *table))
        with foreign_code() as errors:
            self._store_rollouts(rollouts)
        for rollout_file in rollouts if errors else ():  # one of them is to blame
            with self._error_is_kept(rollout_file[0]):
                rollout_file[0].stamp = rollout_file[1]
                self._store_rollouts([rollout_file])

    @contextmanager
    def _error_is_kept(self, read: _Read) -> Iterator[None]:
        """What is wrong with a file is shown on the pages, and the others are read."""
        with foreign_code() as errors:  # a file of another program may hold anything
            yield
        for error in errors:
            text = _first_line_of(error)
            read.error = text if str(read.file.path) in text else f"{read.file.path}: {text}"
            read.failed |= not isinstance(error, OSError)
            if isinstance(error, FileNotFoundError) and read.stamp:
                self._forget(read, error=read.error)  # its rows cannot be opened any more

    def _update_file(self, read: _Read) -> tuple[tuple[int, ...], pa.Table] | None:
        """Read what is new in a file.  Of rollouts the stamp and the table, which are to be
        stored."""
        path = read.file.path
        with path.open("rb") as file:
            head = file.read(_EDGE)
            is_parquet = head.startswith(b"PAR1")
            stamp = _stamp(os.fstat(file.fileno()))
            if stamp == read.stamp:
                return None
            if read.stamp and (
                is_parquet
                or stamp[0] != read.stamp[0]
                or stamp[1] < read.stamp[1]
                or not read.goes_on(
                    file, head
                )  # a file that is cut and written anew keeps its inode
            ):
                self._forget(read)  # another file has its name
            # a damaged file is read again when it has changed
            before, read.stamp = read.stamp, stamp
            if read.file.step >= _MOST_STEPS:
                raise DataError(
                    f"{path}: step {read.file.step} is not shown; the viewer counts to "
                    f"{_MOST_STEPS - 1}"
                )
            if not is_parquet:
                read.head = head
                self._read_lines(read, file)
        if is_parquet and not _is_closed(path):
            raise DataError(
                f"{path}: is cut short, or still being written; it is read again when it has "
                f"changed"
            )
        if is_parquet and is_rollouts(path):
            table = read_rollout_table(path, _OF_ROLLOUTS)
            read.stamp, read.by_number = before, True
            return stamp, table
        if is_parquet:
            self._read_parquet(read)
        read.error = ""
        if read.rows and not read.readable:
            [(line, error)] = self.query(
                "SELECT line, error FROM rows WHERE step = ? LIMIT 1", [read.file.step]
            )
            read.error = f"{path}: none of its {read.rows} rows can be read (line {line}: {error})"
        return None

    def _forget(self, read: _Read, error: str = "") -> None:
        with self._cursor() as cursor:
            cursor.execute(
                "DELETE FROM parts WHERE n IN (SELECT n FROM rows WHERE step = ?)", [read.file.step]
            )
            cursor.execute("DELETE FROM rows WHERE step = ?", [read.file.step])
        read.stamp, read.done, read.stored, read.lines, read.rows, read.readable, read.error = (
            (),
            0,
            0,
            0,
            0,
            0,
            error,
        )
        read.spool, read.by_number, read.failed, read.head, read.tail = None, False, False, b"", b""
        read.version += 1

    def _read_lines(self, read: _Read, file: BinaryIO) -> None:
        with self._batch() as batch:
            for place, size, raw, line in _lines(file, read.done, read.lines):
                self._add(read, batch, line, place, size)
                tail = read.tail if place == read.done else b""  # an empty line is between
                read.tail = (tail + raw)[-_EDGE:] if len(raw) == size else b""
                read.done, read.lines = place + size, line.number
                if self._closed:
                    return
        read.stored = read.done

    def _read_parquet(self, read: _Read) -> None:
        """Unpack the rows into a JSONL file."""
        read.spool = self._folder / f"{read.file.step}.jsonl"
        place = 0
        with self._batch() as batch, read.spool.open("wb") as spool:
            for line in parquet(read.file.path):
                if line.row is not None:
                    _require_record(line.row, read.file.path)
                    with foreign_code() as errors:  # too deep to follow, or values that no JSON has
                        raw = dumped(line.row)
                    if errors:
                        why = f"cannot be unpacked: {_first_line_of(errors[0])}"
                        line = Line(line.number, None, why)
                if line.row is None:
                    raw = json.dumps(line.error).encode() + b"\n"
                spool.write(raw)
                spool.flush()
                self._add(read, batch, line, place, len(raw))
                place += len(raw)
                read.done = place
                if self._closed:
                    return
        read.stored = read.done

    def _store_rollouts(self, files: Sequence[tuple[_Read, tuple[int, ...], pa.Table]]) -> None:
        """The database takes columns as they are; Python would need many times as long for their
        rows."""
        import pyarrow as pa

        if not files:
            return
        tables = []
        for read, _, table in files:
            step = pa.array([read.file.step] * len(table), pa.int64())
            place = pa.array(range(len(table)), pa.int64())
            tables.append(table.append_column("step", step).append_column("place", place))
        with self._cursor() as cursor:
            cursor.register("rollouts", pa.concat_tables(tables))
            cursor.execute(f"BEGIN; {_ROWS_OF_ROLLOUTS}; {_PARTS_OF_ROLLOUTS}; COMMIT")
        for read, stamp, table in files:
            read.stamp, read.error, read.rows, read.readable = stamp, "", len(table), len(table)

    def _add(self, read: _Read, batch: _Batch, line: Line, place: int, size: int) -> None:
        if line.row is not None and not read.readable:
            _require_record(line.row, read.file.path)
        n = (read.file.step << _STEP_BITS) + read.rows
        row, error = line.row, line.error
        with foreign_code() as errors:  # such as brackets too deep to be made a text
            summary, parts = _summary(row or {}), score_parts(row or {})
        if errors:
            row, error = None, f"cannot be shown: {_first_line_of(errors[0])}"
            summary, parts = _summary({}), {}
        batch.rows.append(
            (
                n,
                read.file.step,
                place,
                size,
                line.number,
                *summary,
                short(error, 300) if error else None,
            )
        )
        batch.parts += [(n, name, value) for name, value in parts.items()]
        batch.bytes += size
        read.rows += 1
        read.readable += row is not None
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
        import pyarrow as pa

        kinds = {
            "VARCHAR": pa.string(),
            "DOUBLE": pa.float64(),
            "BIGINT": pa.int64(),
            "BOOLEAN": pa.bool_(),
        }
        with self._cursor() as cursor:
            for name, columns, rows in (
                ("rows", _COLUMNS, batch.rows),
                ("parts", _PARTS, batch.parts),
            ):
                if rows:
                    arrays = [
                        pa.array(values, kinds[kind])
                        for values, kind in zip(
                            zip(*rows, strict=True), columns.values(), strict=True
                        )
                    ]
                    cursor.register("batch", pa.table(arrays, names=list(columns)))
                    cursor.execute(f"INSERT INTO {name} SELECT * FROM batch")
                    cursor.unregister("batch")
        batch.rows, batch.parts, batch.bytes = [], [], 0

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of the database, which is made when it is first asked for."""
        import duckdb

        with self._opening:
            if self._database is None:
                self._database = duckdb.connect(
                    str(self._folder / "index.duckdb"), config=_SETTINGS
                )
                for name, columns in (("rows", _COLUMNS), ("parts", _PARTS)):
                    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
                    self._database.execute(f"CREATE TABLE {name} ({listed})")
            return self._database.cursor()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """By what a file is known to be as it was: its inode, its size, its time."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _keep_sql(column: str, name: str) -> str:
    """SQL for as much of a text as the tables keep, as `short` does it."""
    limit = _LONGEST[name]
    return (
        f"CASE WHEN length({column}) > {limit} THEN left({column}, {limit}) || '…' "
        f"ELSE coalesce({column}, '') END"
    )


def _is_closed(path: Path) -> bool:
    """Whether a Parquet file has its end, which is written last."""
    with path.open("rb") as file:
        return (
            file.seek(0, os.SEEK_END) > 8
            and file.seek(-4, os.SEEK_END) > 0
            and file.read(4) == b"PAR1"
        )


_NUMBER: Final = f"(step << {_STEP_BITS}) + place"
_ROWS_OF_ROLLOUTS: Final = f"""
    INSERT INTO rows SELECT {_NUMBER}, step, place, 0, place + 1, '', {_keep_sql("task", "task")},
        {_keep_sql("env", "env")},
    nullif({_keep_sql("outcome", "outcome")}, ''),
    {_keep_sql("split_part(why, ':', 1)", "reason")}, score, advantage,
    length_tokens, coalesce(truncated, false), {_keep_sql("dropped", "dropped")}, NULL FROM rollouts
"""
_PARTS_OF_ROLLOUTS: Final = f"""
    INSERT INTO parts SELECT n, {_keep_sql("part.key", "name")}, part.value
    FROM (SELECT {_NUMBER} AS n, unnest(map_entries(parts)) AS part FROM rollouts)
    WHERE part.value IS NOT NULL
"""


def _first_line_of(error: BaseException) -> str:
    """The first line of an error, with its kind where no message was written for users."""
    first = (str(error).splitlines() or [""])[0]
    return (
        first
        if first and isinstance(error, OSError | DataError)
        else f"{type(error).__name__}: {first}"
    )


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
            f"{path} holds no scored completions: its rows lack {' and '.join(sorted(missing))}, "
            f"and have "
            f"{short(', '.join(map(str, row)), 200)}; `rlvr score` makes a file that has them"
        )


def parquet_columns(path: Path) -> set[str]:
    """The names of a Parquet file's columns; none of a file that cannot be read.

    Args:
        path: the file.
    """
    import pyarrow.parquet as pq

    with suppress(OSError, ValueError):  # pyarrow's own errors are these
        return set(pq.read_schema(path).names)
    return set()


def outcome_table(rows: Sequence[tuple[object, ...]], *, by_id: bool) -> pa.Table:
    """A further table for `Index.query`, with the columns k, n, outcome and reason.

    Args:
        rows: its rows.
        by_id: whether k is a text; else it is a number.
    """
    import pyarrow as pa

    kinds = (pa.string() if by_id else pa.int64(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    return pa.table(arrays, names=["k", "n", "outcome", "reason"])


def score_parts(row: Row) -> dict[str, float]:
    """The parts of a row's score; none where they cannot be read.

    Args:
        row: a record, or a row of a run's rollouts.
    """
    parts = row.get("parts")
    if isinstance(parts, str):
        with suppress(ValueError, RecursionError):
            parts = json.loads(parts)
    if isinstance(parts, list) and all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in parts
    ):
        parts = dict(parts)  # a map of Parquet
    if not isinstance(parts, Mapping):
        return {}
    return {
        short(name, _LONGEST["name"]): value
        for name, part in parts.items()
        if (value := _number(part)) is not None
    }


def short(value: object, most: int) -> str:
    """A value as a text that DuckDB can hold, cut.

    Args:
        value: anything; None is the empty text.
        most: greatest number of characters.
    """
    text = value if type(value) is str else "" if value is None else str(value)
    if len(text) > most:
        text = f"{text[:most]}…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _summary(row: Row) -> tuple[object, ...]:
    """The columns from `id` to `dropped`."""
    get = row.get
    length, why = get("length_tokens"), get("why")
    if not isinstance(length, int):
        completion = get("completion")
        length = len(completion) if isinstance(completion, str) else None
    return (
        short(get("id"), _LONGEST["id"]),
        short(get("task"), _LONGEST["task"]),
        short(get("env"), _LONGEST["env"]),
        short(get("outcome"), _LONGEST["outcome"]) or None,
        short(str(why).partition(":")[0], _LONGEST["reason"]) if why else "",
        _number(row["total"] if "total" in row else get("score")),
        _number(get("advantage")),
        length if length is None or abs(length) < 1 << 62 else None,
        get("truncated") is True,
        short(get("dropped"), _LONGEST["dropped"]),
    )


def _number(value: object) -> float | None:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def dumped(row: Row) -> bytes:
    """A row as a line of JSON; what JSON cannot hold is written as text.

    Args:
        row: of any file.
    """
    try:
        return dump_row(row)
    except DataError:  # dates, bytes and other values of another tool's columns
        return json.dumps(row, default=str).encode() + b"\n"


def _lines(file: BinaryIO, start: int, number: int) -> Iterator[tuple[int, int, bytes, Line]]:
    """(place, size, bytes, line) of each whole line from a place on; numbers are counted on."""
    place, size, raw = 0, 0, b""
    if start:
        file.seek(start - 1)
        # the line before was read without its end, which is no line of its own
        number -= file.read(1) != b"\n"

    def raw_lines() -> Iterator[bytes]:
        nonlocal place, size, raw
        # `json_lines` asks for one line at a time
        for place, size, raw in _whole_lines(file, start):  # noqa: B007
            yield raw if size <= _LONGEST_LINE else b'"longer than 64 MiB"'

    for line in json_lines(raw_lines(), "", _loads):
        yield (
            place,
            size,
            raw,
            Line(number + line.number, line.row, line.error) if number or line.error else line,
        )


def _loads(raw: bytes) -> object:
    """JSON at twice the speed; what orjson refuses or rounds (NaN, lone surrogates, great ids) is
    read by json."""
    try:
        row = orjson.loads(raw)
    except ValueError:
        return json.loads(raw)
    return json.loads(raw) if isinstance(row, dict) and isinstance(row.get("id"), float) else row


def _whole_lines(file: BinaryIO, start: int) -> Iterator[tuple[int, int, bytes]]:
    """(place, size, line) of the lines from a place on, but for one at the end that is still being
    written."""
    place = start
    file.seek(start)
    while raw := file.readline(_LONGEST_LINE + 1):
        size = len(raw)
        if raw[-1] != 10 or size > _LONGEST_LINE:  # a line of usual length ends here
            end = raw
            while (
                size > _LONGEST_LINE
                and not end.endswith(b"\n")
                and (end := file.readline(_LONGEST_LINE))
            ):
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
