"""SQL queries, judged by what they give on several fillings of a database.

A query is right if it gives the rows of the reference query on every filling, so that constants and queries that are
right by chance fail.  It runs in SQLite, in memory, under an authoriser that lets it read the database's tables and do
nothing else, with limits on steps, CPU time, rows and lengths.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.blocks import sole_answer

__all__ = ["SQLVerifier"]

_Rows: TypeAlias = list[tuple[Any, ...]]

_RESULT_BYTES: Final = 2_000_000
_STEPS_BETWEEN: Final = 100  # of SQLite's machine, between two looks at the budget
_LIMITS: Final = {
    # Bytes of a value: one operation, such as instr(), takes up to their square, and a table that a query makes on its
    # way gets one every few steps.
    sqlite3.SQLITE_LIMIT_LENGTH: 5_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
_ALLOWED: Final = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_UNREPEATABLE: Final = {
    "random", "randomblob", "current_date", "current_time", "current_timestamp", "load_extension", "zeroblob",
    "changes", "total_changes", "last_insert_rowid", "sqlite_version", "sqlite_source_id", "fts3_tokenizer",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL
)


class _Refused(Exception):
    """A query went over its budget or could not be run."""


@dataclass(frozen=True)
class SQLVerifier:
    """Runs a query and compares its rows with those of the reference query.

    The reference is a mapping:

        schema    the CREATE TABLE statements
        fillings  a list; each maps a table to its rows, `{"pets": [[1, "Rex"], …]}`.  To a single one, one with every
                  other row is added.
        query     the reference query
        ordered   whether the order of the rows counts; if it is missing, it does where the query has an outer ORDER BY

    The rows are compared as a multiset, or as a list if the order counts; columns by their place, not their name.
    Numbers are equal within 1e-9 of their size.  Rows that tie in the ORDER BY may come in any order by SQL's rules,
    and here only in that of the reference: ask for an order that is total.

    Args:
        steps: greatest number of steps of SQLite's virtual machine for a query on one filling.
        cpu_s: greatest CPU time of a query on one filling, in seconds; for operations that take long themselves.
        rows: greatest number of rows of a result.
    """

    steps: int = 500_000
    cpu_s: float = 5.0
    rows: int = 5_000
    id: str = "sql-verifier-v1"

    def verify(self, completion: str, reference: Any) -> Verdict:
        """The verdict on a completion: the query stands alone, or in one fenced block.

        Args:
            completion: its text.
            reference: see the class.

        Raises:
            DataError: the reference cannot be used.
        """
        query = sole_answer(completion, {"sql", "sqlite", "sqlite3", ""}, most=10_000)
        if isinstance(query, Verdict):
            return query
        known = _prepared(_as_text(reference), self)
        shown = query[:200]
        for number, (script, wanted) in enumerate(
            zip(known.scripts, known.results, strict=True), 1
        ):
            try:
                found = self._run(script, query)
            except _Refused as refused:
                return Verdict(Outcome.WRONG, why=str(refused), answer=shown)
            if not _same(found, wanted, known.ordered):
                why = (
                    f"other-rows: {len(found)} rows where {len(wanted)} are right, filling {number}"
                )
                if _same(found, wanted, ordered=False):
                    why = f"other-order: in filling {number}"
                return Verdict(Outcome.WRONG, why=why, answer=shown)
        return Verdict(Outcome.CORRECT, why="same-rows", answer=shown)

    def check(self, reference: Any) -> None:
        """Refuse a reference that cannot be used, or by which a constant would be right.

        Args:
            reference: see the class.

        Raises:
            DataError: the schema, a filling or the query is wrong; or the query gives the same rows on every filling.
        """
        _prepared(_as_text(reference), self)

    def _run(self, script: _Script, query: str) -> _Rows:
        """The rows of a query on one filling."""
        with_database = sqlite3.connect(":memory:", isolation_level=None)
        try:
            _fill(with_database, script)
            return self._rows_of(with_database, query)
        finally:
            with_database.close()

    def _rows_of(self, database: sqlite3.Connection, query: str) -> _Rows:
        for limit, most in _LIMITS.items():
            database.setlimit(limit, most)
        database.execute("PRAGMA query_only = ON")
        database.set_authorizer(_authorise)
        left, until = [self.steps // _STEPS_BETWEEN], time.thread_time() + self.cpu_s

        def is_over() -> bool:
            left[0] -= 1
            return left[0] < 0 or time.thread_time() > until

        database.set_progress_handler(is_over, _STEPS_BETWEEN)
        try:
            cursor = database.execute(query)
            if cursor.description is None:
                raise _Refused("no-query: it gives no rows")
            found, left_bytes = [], _RESULT_BYTES
            for row in itertools.islice(cursor, self.rows + 1):
                found.append(row)
                left_bytes -= sum(
                    8 if isinstance(cell, (int, float)) or cell is None else len(cell)
                    for cell in row
                )
                if left_bytes < 0:
                    raise _Refused(f"too-large: more than {_RESULT_BYTES:,} bytes")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, UnicodeError) as error:
            text = str(error)
            if "interrupted" in text:
                raise _Refused(
                    f"budget: more than {self.steps:,} steps or {self.cpu_s:g} s"
                ) from None
            reason = "refused" if "authoriz" in text or "prohibited" in text else "error"
            raise _Refused(f"{reason}: {text[:200]}") from None
        if len(found) > self.rows:
            raise _Refused(f"too-many-rows: more than {self.rows:,}")
        return found


@dataclass(frozen=True)
class _Script:
    """A database: its schema and the rows of each table."""

    schema: str
    tables: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]


@dataclass(frozen=True)
class _Known:
    scripts: tuple[_Script, ...]
    results: tuple[_Rows, ...]
    ordered: bool


def _authorise(action: int, first: str | None, second: str | None, *_: Any) -> int:
    """Reading the database's own tables, and functions whose values repeat."""
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first or "").lower().startswith(
        ("sqlite_", "pragma_", "dbstat")
    ):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _UNREPEATABLE:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _as_text(reference: Any) -> str:
    """A key for the cache."""
    if not isinstance(reference, Mapping):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a mapping with schema, fillings and query"
        )
    for name in ("schema", "fillings", "query"):
        if not reference.get(name):
            raise DataError(
                f"the reference has no {name!r}; it must have schema, fillings and query"
            )
    try:
        return json.dumps(reference, sort_keys=True, default=dict)
    except (TypeError, ValueError) as error:
        raise DataError(f"the reference is no JSON: {error}") from error


@lru_cache(maxsize=256)
def _prepared(text: str, verifier: SQLVerifier) -> _Known:
    reference = json.loads(text)
    schema, query = str(reference["schema"]), str(reference["query"])
    fillings = reference["fillings"]
    if not isinstance(fillings, list) or not all(isinstance(one, dict) for one in fillings):
        raise DataError(
            f"fillings is {brief(fillings)}; it must be a list of mappings from a table to its rows"
        )
    if len(fillings) == 1:
        fillings = [*fillings, {table: rows[::2] for table, rows in fillings[0].items()}]
    scripts = tuple(_script(schema, filling) for filling in fillings)
    try:
        results = tuple(verifier._run(script, query) for script in scripts)
    except _Refused as refused:
        raise DataError(f"the reference query {brief(query)} cannot be run: {refused}") from None
    ordered = reference.get("ordered")
    ordered = _has_outer_order(query) if ordered is None else bool(ordered)
    if all(_same(found, results[0], ordered) for found in results):
        raise DataError(
            f"the reference query {brief(query)} gives the same rows on every filling, so that a constant would be "
            "right; give fillings on which they differ"
        )
    return _Known(scripts, results, ordered)


def _script(schema: str, filling: Mapping[str, Any]) -> _Script:
    for table, rows in filling.items():
        if not _NAME.fullmatch(table):
            raise DataError(
                f"a filling has the table {table!r}; names have letters, digits and _ alone"
            )
        if (
            not isinstance(rows, Sequence)
            or isinstance(rows, str)
            or not all(isinstance(row, list) for row in rows)
        ):
            raise DataError(f"the rows of table {table!r} are {brief(rows)}; give a list of lists")
    return _Script(
        schema, tuple((table, tuple(map(tuple, rows))) for table, rows in filling.items())
    )


def _fill(database: sqlite3.Connection, script: _Script) -> None:
    """Make the tables and their rows."""
    try:
        database.executescript(script.schema)
        for table, rows in script.tables:
            for row in rows:
                database.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
        raise DataError(f"the database cannot be made from its schema and rows: {error}") from error


def _has_outer_order(query: str) -> bool:
    """True if there is an ORDER BY outside of brackets and quotes."""
    depth, words = 0, []
    for piece in re.findall(r"[()]|\w+", _QUOTED.sub(" ", query)):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if not depth:
            words.append(piece.lower())
    return any(pair == ("order", "by") for pair in itertools.pairwise(words))


def _same(found: _Rows, wanted: _Rows, ordered: bool) -> bool:
    if len(found) != len(wanted) or (wanted and len(found[0]) != len(wanted[0])):
        return False
    if not ordered:
        if Counter(map(_typed, found)) == Counter(map(_typed, wanted)):
            return True
        found, wanted = sorted(found, key=_sortable), sorted(wanted, key=_sortable)
    return all(all(map(_equal, a, b)) for a, b in zip(found, wanted, strict=True))


def _typed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((isinstance(cell, (int, float)), cell) for cell in row)


def _sortable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """None before numbers before texts before bytes; numbers by their first nine digits."""
    return tuple(
        (1, float(f"{cell:.9g}"), "") if isinstance(cell, float) or _is_small(cell)
        else (0, 0.0, "") if cell is None else (2, 0.0, repr(cell))
        for cell in row
    )  # fmt: skip


def _is_small(cell: Any) -> bool:
    return isinstance(cell, int) and abs(cell) < 2**53


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (
            (isinstance(a, float) or isinstance(b, float)) and math.isclose(a, b, rel_tol=1e-9)
        )
    return type(a) is type(b) and bool(a == b)
