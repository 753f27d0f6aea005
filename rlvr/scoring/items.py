"""Items to score, made from rows: the task that each row answers, or what is wrong with the row.

What an environment's `task` or `task_from` raises is a `DataError` of that row; other rows are not
affected.  Where a task has to be made of columns by the environment's own code, the worker that
judges does so first: columns are data of strangers.  Only what it could make is made here, too, for
those that want to see the task.
"""

from __future__ import annotations

import math
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from rlvr.data.columns import missing_hint
from rlvr.data.formats import read_rows
from rlvr.data.lines import Line, Row
from rlvr.environment import Environment
from rlvr.environment.reading import ReadLater, is_read_later, limited_reading
from rlvr.episode import EpisodeRecord
from rlvr.errors import DataError, RlvrError, UsageError, foreign_code
from rlvr.types import Completion, JsonDict, Task

__all__ = [
    "COLUMNS",
    "Ids",
    "Item",
    "ItemReader",
    "OF_THE_COMPLETION",
    "OnError",
    "RowTask",
    "Rows",
    "hash_id",
    "item_of",
    "task_of_row",
    "was_there",
]

OnError: TypeAlias = Callable[[int, DataError], None]
"""Called with the number of a row, counted from 1, and what is wrong with it."""

COLUMNS = frozenset(
    {
        "id",
        "completion",
        "length_tokens",
        "truncated",
        "episode",
        "task",
        "prompt",
        "reference",
        "meta",
    }
)
"""The columns that scoring reads where a row has a reference or names its task;
others are passed through."""

_WITHOUT_EPISODE = COLUMNS - {"episode"}
OF_THE_COMPLETION = frozenset({"completion", "episode", "truncated", "length_tokens"})
_OF_A_TASK = sorted(COLUMNS - OF_THE_COMPLETION)
_AS_IT_IS = frozenset((str, int, bool, type(None)))
_WHOLE = frozenset({"id", "length_tokens", "task"})


class RowTask(Task):
    """Stands for a task that was not made of its row yet: `meta` has the columns."""

    __slots__ = ()

    def __init__(self, columns: Row) -> None:
        super().__init__("row", "", None, columns)

    def __reduce__(self) -> tuple[type[RowTask], tuple[Row]]:
        return RowTask, (self.meta,)


def task_of_row(env: Environment, columns: Row) -> Task:
    """The task that an environment makes of the columns of a row, within the time that reading may
    take.

    Args:
        env: the environment.
        columns: without those that are missing.

    Raises:
        DataError: it makes none.
    """
    is_moved = "reference" in columns and is_read_later() and _moves_columns(type(env))
    try:
        # Moving columns runs no code of the environment.
        with nullcontext() if is_moved else limited_reading():  # of code that is not our own
            return env.task_of(columns)
    except RlvrError as error:
        is_without = not columns.keys() & {"reference", "task"}
        hint = missing_hint(columns, "reference") if is_without else ""
        raise DataError(f"{error}{hint}") from error
    except Exception as error:  # an environment's code, run on a row of any form
        raise DataError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Item:
    """One completion to score.

    Attributes:
        id: unique within the run; a number stays one, so that 1 is another id than "1".
        task: what the completion answers.
        completion: the text, with its length and whether it was truncated.
        row: the columns of the row that scoring does not use; they are passed through.
    """

    id: str | int
    task: Task
    completion: Completion
    row: Row = field(default_factory=dict)


Rows: TypeAlias = Iterable[Row | Item | Line] | str | Path
"""Mappings of columns, items, or a .jsonl or .parquet file."""


class ItemReader:
    """The items of rows with their numbers, counted from 1, up to the first row that ends the run.

    What ended the run is kept in `error`, so that items under way can be finished before it is
    raised.

    Args:
        env: the environment whose tasks the rows answer.
        rows: see `Scorer.stream`.
        on_error: called for a row that cannot be used; if None, such a row ends the run.

    Raises:
        UsageError: `rows` is a DataFrame or one mapping, not a sequence of rows.
    """

    def __init__(self, env: Environment, rows: Rows, on_error: OnError | None) -> None:
        if isinstance(rows, (str, Path)):
            rows = read_rows(rows)
        if type(rows).__name__ == "DataFrame":  # iterating over it gives the names of its columns
            raise UsageError('a DataFrame is no sequence of rows; give .to_dict("records") of it')
        if isinstance(rows, Mapping):
            raise UsageError("rows is one mapping; give a list of them, one for each completion")
        self.error: BaseException | None = None
        self._env, self._rows, self._on_error = env, rows, on_error
        self._seen = Ids()

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        with foreign_code() as errors:  # of a user's iterator
            for number, row in enumerate(self._rows, 1):
                if isinstance(row, Line):
                    # Rows of a file may have been left out before.
                    number = row.number  # errors name the line of the file
                try:
                    item = self._usable(row, number)
                except DataError as error:
                    self.refuse(number, error)
                else:
                    yield number, item
        self.error = next(iter(errors), None)  # raised when what is under way is finished

    def made(self, item: Item) -> Item:
        """The item with its task, when a worker could make that of the same columns.

        Args:
            item: with a `RowTask`.

        Raises:
            DataError: it cannot be made here.
        """
        with ReadLater():
            return replace(item, task=task_of_row(self._env, item.task.meta))

    def refuse(self, number: int, error: DataError) -> None:
        """Report a row that cannot be used.

        Args:
            number: of the row, counted from 1.
            error: why it cannot be used.

        Raises:
            DataError: no `on_error` was given.
        """
        if self._on_error is None:
            raise DataError(f"row {number}: {error}") from None
        self._on_error(number, error)

    def _usable(self, row: Row | Item | Line, number: int) -> Item:
        if isinstance(row, Line):
            if row.row is None:
                raise DataError(row.error)
            row = row.row
        item = (
            _with_length(self._env, row)
            if isinstance(row, Item)
            else item_of(self._env, row, number, read=False)
        )
        self._seen.add(item.id)
        return item


class Ids:
    """Ids that were there, as numbers of 64 bits in a table: 14 to 28 bytes for each, where
    a set takes 100 and more.

    Two different ids have the same number with a probability of 3e-8 among a million.
    """

    def __init__(self) -> None:
        # 512 bytes are 64 entries: a power of two, as the mask needs.
        self._table, self._count = array("Q", bytes(512)), 0

    def add(self, id: str | int) -> None:
        """Add an id.

        Args:
            id: a number is another id than its text.

        Raises:
            DataError: it was there before.
        """
        if not self.put(hash_id(id)):
            raise was_there(id)

    def put(self, number: int) -> bool:
        """Add an id by its number; False if it was there before.

        Args:
            number: see `hash_id`.
        """
        if not self._put(number):
            return False
        self._count += 1
        # With linear probing, at this load, a search for a new id passes 2.2 entries on average.
        if self._count > len(self._table) * 4 // 7:
            # Twice as large: 16 bytes for each entry of 8.
            before, self._table = self._table, array("Q", bytes(16 * len(self._table)))
            for number_before in before:
                if number_before:
                    self._put(number_before)
        return True

    def __contains__(self, number: int) -> bool:
        if not self._count:
            return False
        mask = len(self._table) - 1
        # Bits of a hash are spread evenly, so the low ones are a place.
        at = number & mask
        while entry := self._table[at]:
            if entry == number:
                return True
            at = (at + 1) & mask
        return False

    def _put(self, number: int) -> bool:
        table, mask = self._table, len(self._table) - 1
        at = number & mask
        while entry := table[at]:
            if entry == number:
                return False
            at = (at + 1) & mask
        table[at] = number
        return True


def hash_id(id: str | int) -> int:
    """The number of an id; never 0, and the same in every process.

    Args:
        id: a number is another id than its text.
    """
    # A quotation mark before texts: 1 and "1" are two ids.
    text = b"%d" % id if type(id) is int else b"'%b" % str(id).encode("utf-8", "surrogatepass")
    # 0 marks an empty entry.
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


def was_there(id: str | int) -> DataError:
    """The error of a row whose id another row has.

    Args:
        id: of both.
    """
    return DataError(f"the id {id!r} was there before; ids must be unique")


def item_of(env: Environment, row: Row, number: int, *, read: bool = True) -> Item:
    """The item that a scorer makes of a row.

    Args:
        env: the environment whose task the row answers.
        row: its columns, see `Scorer.stream`.
        number: of the row, counted from 1.  A row without an id gets `line:7`, which cannot collide
            with numeric ids.
        read: whether the row's reference is read here; else the worker that judges does so.

    Raises:
        DataError: the row cannot be used.
    """
    if type(row) is not dict and not isinstance(row, Mapping):
        raise DataError(f"a {type(row).__name__}, not a mapping of columns")
    fields: JsonDict = {}
    for name, value in row.items():
        if isinstance(value, float):
            if not _is_missing(name, value):
                fields[name] = _cell(name, value)
        elif value is not None:
            fields[name] = value
    episode = None
    if "episode" in fields and _is_record(fields["episode"]):
        episode = EpisodeRecord.from_dict(fields["episode"])
        fields.setdefault("completion", episode.answer)
    if "completion" not in fields:
        names = ", ".join(map(repr, fields)) or "none"
        hint = missing_hint(fields, "completion")
        raise DataError(f"no column 'completion'; it has {names}{hint}")
    if env.reward.group_level and "reference" in fields and "task" not in fields:
        raise DataError(
            f"no column 'task', and the reward {env.reward} compares the completions of one task"
        )
    try:
        completion = Completion(
            fields["completion"],
            fields.get("length_tokens"),
            fields.get("truncated", False),
            episode,
        )
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
    if not read and (columns := _columns_of_task(env, fields)) is not None:
        task: Task = RowTask(columns)
    else:
        with nullcontext() if read else ReadLater():
            task = task_of_row(env, fields)
    used = COLUMNS if episode is not None else _WITHOUT_EPISODE
    extra = {
        name: value if type(value) in _AS_IT_IS else _passed_on(value)
        for name, value in row.items()
        if name not in used
    }
    name = fields.get("id", f"line:{number}")
    # An int as it is: Parquet and JSON keep the type.
    return _with_length(
        env, Item(name if type(name) is int else str(name), task, completion, extra)
    )


def _columns_of_task(env: Environment, row: Row) -> Row | None:
    """The columns of which the environment's own code makes a task; None if it is a task of the
    data set, or needs no more than columns to be moved."""
    kind = type(env)
    if "task" in row and ("reference" not in row or kind.task_of is not Environment.task_of):
        return None
    if "reference" not in row:
        return {name: value for name, value in row.items() if name not in OF_THE_COMPLETION}
    if _moves_columns(kind):
        return None
    return {name: row[name] for name in _OF_A_TASK if name in row}


def _moves_columns(kind: type[Environment]) -> bool:
    """Whether its tasks of rows with a reference have the columns as they are."""
    return kind.task_of is Environment.task_of and kind.reference_of is Environment.reference_of


def _is_record(value: object) -> bool:
    """Whether a column is the record of an episode, and not one of the data set's own."""
    return isinstance(value, Mapping) and {"turns", "end"} <= value.keys()


def _passed_on(value: object) -> object:
    """A value that scoring does not use, as a record can hold it: NaN is null there, dates and
    decimals are their text, and bytes are base64."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_passed_on(item) for item in value]
    if isinstance(value, dict):
        return {name: _passed_on(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (Decimal, timedelta, UUID)) else value


def _is_missing(name: str, value: float) -> bool:
    """Parquet fills gaps with None, pandas with NaN."""
    return name in COLUMNS and value != value


def _cell(name: str, value: float) -> float:
    """Whole floats as ints: pandas stores a column of ints with a gap as floats."""
    return int(value) if name in _WHOLE and value.is_integer() else value


def _with_length(env: Environment, item: Item) -> Item:
    if env.reward.needs_length and item.completion.length_tokens is None:
        raise DataError(f"no length_tokens, which the reward {env.reward} reads")
    return item
