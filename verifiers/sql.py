"""SQL queries, judged by what they give on several fillings of a database.

A query is right if it gives the rows of the reference query on every filling, so that constants and
queries that are right by chance fail.  It runs in SQLite, in memory, under an authoriser that lets
it read the database's tables and do nothing else, with limits on steps, CPU time, rows and lengths.

A reference comes from a data file, so its schema is bounded in the same way before its first
statement runs: it may make tables, indices and views and insert rows, within a number of steps, a
size of the database and of each value.
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
from typing import Any, ClassVar, Final, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.types import JsonDict, JsonObject, Outcome, Task, Verdict
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.stated import withdraws

__all__ = ["SQLVerifier", "tables_of"]

_Rows: TypeAlias = list[tuple[Any, ...]]

# of rows that a query gives back: a cross join of a few rows has millions
_RESULT_BYTES: Final = 2_000_000
_STEPS_BETWEEN: Final = 100  # of SQLite's machine, between two looks at the budget
_QUESTIONS: Final = 100_000  # to the authoriser, for a database: views multiply without a step
_REFERENCE_BYTES: Final = 16 << 20  # of a whole reference as JSON
# characters; each filling runs the whole schema again
_SCHEMA_BYTES: Final = 1_000_000
_PAGES: Final = 16_384  # of 4 KiB each: a database in memory has 64 MiB at most
_VALUE_BYTES: Final = 5_000
_LIMITS: Final = {
    # Bytes of a value: one operation, such as instr(), takes up to their square, and a table that a
    # query makes on its way gets one every few steps.
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
# reading only, within a query: neither PRAGMA nor ATTACH, nor any change
_ALLOWED: Final = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_MAKING: Final = _ALLOWED | {
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_CREATE_INDEX,
    sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,  # of sqlite_master alone, as CREATE does
    sqlite3.SQLITE_REINDEX,  # of the index that is made
}
_UNREPEATABLE: Final = {
    "random", "randomblob", "current_date", "current_time", "current_timestamp", "load_extension",
    "zeroblob", "changes", "total_changes", "last_insert_rowid", "sqlite_version",
    "sqlite_source_id", "fts3_tokenizer",
}  # fmt: skip
# ASCII letters only: SQLite folds no others
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STATEMENT: Final = re.compile(
    # Quoted parts and comments run to the end where they are not closed, so that no place is read
    # twice.
    r"""(?: '(?:[^']|'')*+'? | "(?:[^"]|"")*+"? | `[^`]*+`? | \[[^\]]*+\]?
          | --[^\n]*+ | /\*(?:.*?\*/|.*) | [^;'"`\[/-]++ | [^;] )++""",
    re.DOTALL | re.VERBOSE,
)
# What dumps have around their tables; it does nothing to an empty database, and is not run.
_PROLOGUE: Final = re.compile(
    r"(?:\s|--[^\n]*\n)*+(?:BEGIN\b|COMMIT\b|END\b|PRAGMA\s+foreign_keys\b|"
    r"DROP\s+TABLE\s+IF\s+EXISTS\b)",
    re.IGNORECASE,
)
_PARTS: Final = re.compile(r"\n[ \t]*\n|(?<=:)\n")
# "The query is:" and "This query counts the names."; "Or SELECT 2." is a second query
_PROSE: Final = re.compile(
    r"(?![^;]*\b(?i:select\b|values\s*\())\s*[A-Z][a-z]++\b[^;]*(?<=[A-Za-z)])[.:!]\s*"
)
_NO_SQL: Final = ("syntax error", "incomplete input", "unrecognized token")
_DATE_FUNCTIONS: Final = frozenset(
    "date time datetime julianday unixepoch strftime timediff".split()
)
_DATED: Final = re.compile(
    rf"\b(?:{'|'.join(_DATE_FUNCTIONS)})\b[\"'`\]]?\s*(?:\(|/\*|--)", re.IGNORECASE
)
# what in them is another value at another time, or on a machine in another zone
_CLOCK: Final = frozenset(("now", "subsec", "subsecond", "localtime", "utc"))
# for "%.400000000c" SQLite adds one letter after the other, within one step of its machine
_LONG_PRECISION: Final = re.compile(r"\d{5}|e\+|inf")
# in these a bracket or "order by" is text: they are passed over
_QUOTED: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL
)


class _Refused(Exception):
    """A query went over its budget or could not be run."""


@dataclass(frozen=True)
class SQLVerifier(BaseVerifier[Answer, "_Known"]):
    """Runs a query and compares its rows with those of the reference query.

    The reference is a mapping:

        schema    the CREATE TABLE statements
        fillings  a list; each maps a table to its rows, `{"pets": [[1, "Rex"], …]}`; if it is
                  missing, the rows that the schema inserts are one.  To a single one, two are
                  added: every other row, and the rest.
        query     the reference query
        ordered   whether the order of the rows counts; if it is missing, it does where the query
                  has an outer ORDER BY

    The rows are compared as a multiset, or as a list if the order counts; columns by their place,
    not their name. Numbers are equal within 1e-9 of their size.  Rows that tie in the ORDER BY may
    come in any order by SQL's rules, and here only in that of the reference: ask for an order that
    is total.

    Args:
        steps: greatest number of steps of SQLite's virtual machine for a query on one filling.
        cpu_s: greatest CPU time of a query on one filling, in seconds; for operations that take
            long themselves.
        rows: greatest number of rows of a result.
    """

    steps: int = 500_000
    cpu_s: float = 5.0
    rows: int = 5_000
    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(
        fences=frozenset(("sql", "sqlite", "sqlite3", "")),
        bare=True,
        begins=r"(?i)\s*\(?\s*(?:select|with|values|--|/\*)",
        lines=True,
        longest=10_000,
    )
    reference_form: ClassVar[str] = "a mapping of schema, query, and perhaps fillings and ordered"
    reference_example: ClassVar[object] = {
        "schema": "CREATE TABLE t (a INTEGER);",
        "fillings": [{"t": [[1], [2]]}, {"t": [[3]]}],
        "query": "SELECT a FROM t",
    }

    def extract(self, text: str, task: Task | None) -> Answer | Verdict:
        """The query: marked, in a fenced block, or alone or among paragraphs of prose.

        Args:
            text: the completion.
            task: what it answers.
        """
        answer = super().extract(text, task)
        if isinstance(answer, Verdict) or answer.method != "bare":
            return answer
        paragraphs = _PARTS.split(answer.text)
        prose = [part for part in paragraphs if _PROSE.fullmatch(part)]
        queries = [part for part in paragraphs if not _PROSE.fullmatch(part)]
        if not queries or withdraws(" ".join(prose)):
            return answer
        return answer._replace(text="\n\n".join(queries))

    def read(self, reference: object) -> _Known:
        """The fillings, and the rows of the reference query on each.

        Args:
            reference: see the class.

        Raises:
            DataError: the schema, a filling or the query is wrong; or the query gives the same rows
                on every filling, so that a constant would be right.
        """
        return _prepare_reference(_as_text(reference), self)

    def judge(self, answer: Answer, reference: _Known) -> Verdict:
        """The verdict on a query.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        query, prepared = answer.text, reference
        query_shown = query[:200]
        for number, (script, expected) in enumerate(
            zip(prepared.scripts, prepared.results, strict=True), 1
        ):
            try:
                rows = self._run(script, query)
            except _Refused as refused:
                why = str(refused)
                if any(said in why for said in _NO_SQL):
                    why = f"no-query: {why.partition(': ')[2]}"
                    return Verdict(Outcome.UNPARSED, why=why, answer=query_shown)
                return Verdict(Outcome.WRONG, why=why, answer=query_shown)
            if not _same(rows, expected, prepared.ordered):
                why = (
                    f"other-rows: {len(rows)} rows where {len(expected)} are right, "
                    f"filling {number}"
                )
                if _same(rows, expected, ordered=False):
                    why = f"other-order: in filling {number}"
                return Verdict(Outcome.WRONG, why=why, answer=query_shown)
        return Verdict(Outcome.CORRECT, why="same-rows", answer=query_shown)

    def rows_on(
        self, schema: str, filling: Mapping[str, object], queries: Sequence[str]
    ) -> list[_Rows | None]:
        """The rows of queries on one filling; None for each that fails or goes over its limits.

        Args:
            schema, filling: as in a reference.
            queries: each one SELECT.

        Raises:
            DataError: the database cannot be made.
        """
        database = _open()
        try:
            self._fill(database, _script(_without_prologue(schema), filling))
            return [self._rows_or_none(database, query) for query in queries]
        finally:
            database.close()

    def _rows_or_none(self, database: sqlite3.Connection, query: str) -> _Rows | None:
        try:
            return self._rows_of(database, query)
        except _Refused:
            return None

    def agree(self, rows: _Rows, others: _Rows, reference: Mapping[str, object]) -> bool:
        """Whether the rows of two queries count as the same.

        Args:
            rows, others: from `rows_on`.
            reference: says whether their order counts.
        """
        ordered = reference.get("ordered")
        is_ordered = _has_outer_order(reference["query"]) if ordered is None else bool(ordered)
        return _same(rows, others, is_ordered)

    def example(self, reference: Any) -> str:
        return f"```sql\n{reference['query']}\n```"

    def _run(self, script: _Script, query: str, *, is_new: bool = False) -> _Rows:
        """The rows of a query on one filling.

        Args:
            script: the filling.
            query: one SELECT.
            is_new: whether the script never ran: then it runs statement by statement within limits.
                One that kept to them does so each time, as no function in it may give other values.
        """
        database = _open()
        try:
            if is_new:
                self._fill(database, script)
            else:
                # it ran under its budget as the reference was read
                _bind_dates(database, script.schema)
                database.executescript(script.schema)
                for table, rows in script.tables:
                    for row in rows:
                        database.execute(_insertion(table, row), row)
            return self._rows_of(database, query)
        finally:
            database.close()

    def _rows_of(self, database: sqlite3.Connection, query: str) -> _Rows:
        database.set_authorizer(None)  # which filled it
        database.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            database.setlimit(limit, value)
        _bind_dates(database, query)
        budget = _Budget(self, _ALLOWED)
        budget.bind(database)
        try:
            cursor = database.execute(query)
            if cursor.description is None:
                raise _Refused("no-query: it gives no rows")
            rows, left_bytes = [], _RESULT_BYTES
            for row in itertools.islice(cursor, self.rows + 1):
                rows.append(row)
                left_bytes -= sum(
                    8 if isinstance(cell, (int, float)) or cell is None else len(cell)
                    for cell in row
                )
                if left_bytes < 0:
                    raise _Refused(f"too-large: more than {_RESULT_BYTES:,} bytes")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, UnicodeError) as error:
            text = str(error)
            # SQLite reports what the budget stops as an interruption or a refusal
            if budget.spent:
                raise _Refused(f"budget: more than {budget}") from None
            reason = "refused" if "authoriz" in text or "prohibited" in text else "error"
            if "user-defined" in text:
                text = "a function of it depends on the time or place, or has a long precision"
            raise _Refused(f"{reason}: {text[:200]}") from None
        if len(rows) > self.rows:
            raise _Refused(f"too-many-rows: more than {self.rows:,}")
        return rows

    def _fill(self, database: sqlite3.Connection, script: _Script) -> None:
        """Make the tables and their rows, with no more rights and time than they need.

        Raises:
            DataError: they cannot be made so.
        """
        # a filling that grows, as by a recursive insertion, stops here rather than in the memory of
        # the process
        database.execute(f"PRAGMA max_page_count = {_PAGES}")
        # ATTACH would open files of this machine
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        _bind_dates(database, script.schema)
        budget = _Budget(self, _MAKING)
        budget.bind(database)
        try:
            for statement in _STATEMENT.findall(script.schema):
                # A long statement holds long values; without functions none of them is worked on.
                budget.functions = len(statement) <= _VALUE_BYTES
                database.setlimit(
                    sqlite3.SQLITE_LIMIT_LENGTH, max(_VALUE_BYTES, 4 * len(statement))
                )
                # counted by hand: a thousand short statements end before the progress handler is
                # called once
                budget.count(_STEPS_BETWEEN)
                database.execute(statement)
            budget.functions = True
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
            for table, rows in script.tables:
                for row in rows:
                    database.execute(_insertion(table, row), row)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, _Refused) as error:
            why = f"more than {budget}" if budget.spent else str(error)[:300]
            raise DataError(
                f"the database cannot be made from its schema and rows: {why}; a schema makes "
                f"tables, "
                "indices and views and inserts rows, and nothing else"
            ) from None


def _open() -> sqlite3.Connection:
    """An empty database in memory."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("PRAGMA temp_store = MEMORY")  # sorting makes no file
    for name in ("printf", "format"):
        database.create_function(name, -1, _Bounded("printf"), deterministic=True)
    return database


class _Bounded:
    """A function of SQLite without some of its arguments: of `printf` precisions of five digits, of
    those of dates what depends on the time and place.

    Args:
        name: of the function.
    """

    _database: sqlite3.Connection | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *values: Any) -> Any:
        if self._is_refused(values):
            raise ValueError(values)
        if self._database is None:
            self._database = sqlite3.connect(":memory:")
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
        places = ", ".join("?" * len(values))
        return self._database.execute(f"SELECT {self._name}({places})", values).fetchone()[0]

    def _is_refused(self, values: Sequence[object]) -> bool:
        if self._name in _DATE_FUNCTIONS:  # without a date they take that of today
            words = {str(value).strip().casefold() for value in values}
            return len(values) < 1 + (self._name == "strftime") or not words.isdisjoint(_CLOCK)
        pattern = str(values[0]) if values else ""
        # "*" takes the precision from a value
        arguments = " ".join(map(str, values)) if "*" in pattern else pattern
        return _LONG_PRECISION.search(arguments) is not None


def _bind_dates(database: sqlite3.Connection, text: str) -> None:
    """Bound the functions of dates, if statements have some: their values would not repeat."""
    for name in _DATE_FUNCTIONS if _DATED.search(text) else ():
        database.create_function(name, -1, _Bounded(name), deterministic=True)


class _Budget:
    """What a connection may do: kinds of actions, steps of SQLite's machine, CPU time.

    Args:
        verifier: has the limits.
        actions: codes of the authoriser that are allowed.

    Attributes:
        functions: whether functions may be called.
        spent: whether the steps or the time are used up.
    """

    def __init__(self, verifier: SQLVerifier, actions: set[int]) -> None:
        self._steps, self._cpu_s, self._actions = verifier.steps, verifier.cpu_s, actions
        # time of this thread, not of the clock: another worker's load must not change a verdict
        self._left, self._until = verifier.steps, time.thread_time() + verifier.cpu_s
        self._questions = _QUESTIONS
        self.functions = True
        self.spent = False

    def __str__(self) -> str:
        return f"{self._steps:,} steps or {self._cpu_s:g} s"

    def bind(self, database: sqlite3.Connection) -> None:
        """Make the connection ask here."""
        database.set_authorizer(self._authorise)
        database.set_progress_handler(lambda: self._is_over(_STEPS_BETWEEN), _STEPS_BETWEEN)

    def count(self, steps: int) -> None:
        """Count steps.

        Raises:
            _Refused: there are none left.
        """
        if self._is_over(steps):
            raise _Refused(f"budget: more than {self}")

    def _is_over(self, steps: int) -> bool:
        # the count of steps decides first, since it is the same on each machine; time is a second
        # bound
        self._left -= steps
        self.spent = self.spent or self._left < 0 or time.thread_time() > self._until
        return self.spent

    def _authorise(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        """The database's own tables, and functions whose values repeat."""
        is_known = action in self._actions
        name = (first or "").lower()
        if action == sqlite3.SQLITE_READ:
            # CREATE reads and writes sqlite_master itself; so may a schema that is allowed to
            # CREATE.
            # SQLite's own tables hold the text of the schema and the layout of the pages, and no
            # data
            is_known = not name.startswith(("sqlite_", "pragma_", "dbstat")) or (
                self._actions is _MAKING and name == "sqlite_master"
            )
        elif action == sqlite3.SQLITE_UPDATE:
            is_known = is_known and name == "sqlite_master"
        elif action == sqlite3.SQLITE_FUNCTION:
            is_known = self.functions and (second or "").lower() not in _UNREPEATABLE
        # views of views multiply: each name that is compiled is a question, before the first step
        self._questions -= 1
        self.spent = self.spent or self._questions < 0
        return sqlite3.SQLITE_OK if is_known and not self.spent else sqlite3.SQLITE_DENY


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


def _as_text(reference: object) -> str:
    """A key for the cache."""
    if not isinstance(reference, Mapping):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a mapping with schema and query"
        )
    for name in ("schema", "query"):
        if not reference.get(name):
            raise DataError(f"the reference has no {name!r}; it must have schema and query")
    try:
        text = json.dumps(reference, sort_keys=True, default=dict)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"the reference is no JSON: {error}") from error
    if len(text) > _REFERENCE_BYTES:
        raise DataError(
            f"the reference has {len(text):,} letters; the limit is {_REFERENCE_BYTES:,}"
        )
    return text


def _prepare_reference(text: str, verifier: SQLVerifier) -> _Known:
    reference = json.loads(text)
    schema, query = reference["schema"], reference["query"]
    for name, text in (("schema", schema), ("query", query)):
        if not isinstance(text, str):
            raise DataError(f"{name} is {brief(text)}; it must be a text")
    if len(schema) > _SCHEMA_BYTES:
        raise DataError(f"the schema has {len(schema):,} letters; the limit is {_SCHEMA_BYTES:,}")
    ordered = reference.get("ordered")
    if ordered not in (None, True, False):
        raise DataError(f"ordered is {brief(ordered)}; it must be true or false")
    schema = _without_prologue(schema)
    if reference.get("fillings") is None:
        schema, fillings = _read_insertions(verifier, schema)
    else:
        fillings = reference["fillings"]
    if (
        not fillings
        or not isinstance(fillings, list)
        or not all(isinstance(filling, dict) for filling in fillings)
    ):
        raise DataError(
            f"fillings is {brief(fillings)}; it must be a list of mappings from a table to its rows"
        )
    # one filling alone is answered by a constant: each half of its rows is a second and a third one
    if len(fillings) == 1:
        halves = ({table: rows[at::2] for table, rows in fillings[0].items()} for at in (0, 1))
        fillings = [*fillings, *halves]
    scripts = tuple(_script(schema, filling) for filling in fillings)
    try:
        # run at once: what cannot be run must fail as a reference, and not at the first answer
        results = tuple(verifier._run(script, query, is_new=True) for script in scripts)
    except _Refused as refused:
        raise DataError(f"the reference query {brief(query)} cannot be run: {refused}") from None
    ordered = _has_outer_order(query) if ordered is None else bool(ordered)
    # on equal results "SELECT 3" would be paid
    if all(_same(rows, results[0], ordered) for rows in results):
        raise DataError(
            f"the reference query {brief(query)} gives the same rows on every filling, so that a "
            "constant would be right; give fillings on which they differ"
        )
    return _Known(scripts, results, ordered)


def tables_of(schema: str) -> str:
    """The statements of a schema that make tables, indices and views, without the rows that it
    inserts.

    Args:
        schema: statements.
    """
    statements = (statement.strip() for statement in _STATEMENT.findall(schema))
    return "\n".join(f"{text};" for text in statements if text[:6].upper() == "CREATE")


def _read_insertions(verifier: SQLVerifier, schema: str) -> tuple[str, list[JsonDict]]:
    """A schema without rows, and the one filling that a schema inserts.

    Raises:
        DataError: it cannot be made, see `SQLVerifier._fill`; or the name of a table has other
            signs than letters.
    """
    database = _open()
    try:
        verifier._fill(database, _Script(schema, ()))
        # the rows are read by this module's own queries, which the authoriser would refuse
        database.set_authorizer(None)
        database.set_progress_handler(None, 0)
        objects = database.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
        tables = [
            name for name, kind, _ in objects if kind == "table" and not name.startswith("sqlite_")
        ]
        # names go into queries as they are
        if odd := [name for name in tables if not _NAME.fullmatch(name)]:
            raise DataError(f"the table {odd[0]!r}: names have letters, digits and _ alone")
        rows = {
            name: [list(row) for row in database.execute(f'SELECT * FROM "{name}"')]
            for name in tables
        }
    finally:
        database.close()
    statements = (text for name, _, text in objects if text and not name.startswith("sqlite_"))
    return ";\n".join(statements), [rows]


def _script(schema: str, filling: JsonObject) -> _Script:
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
        for row in rows:
            for cell in row:
                if not (cell is None or isinstance(cell, (int, float, str))):
                    raise DataError(
                        f"table {table!r} has the value {brief(cell)}; give texts, numbers or null"
                    )
    return _Script(
        schema, tuple((table, tuple(map(tuple, rows))) for table, rows in filling.items())
    )


def _without_prologue(schema: str) -> str:
    statements = _STATEMENT.findall(schema)
    return "\n;".join(text for text in statements if text.strip() and not _PROLOGUE.match(text))


def _insertion(table: str, row: Sequence[object]) -> str:
    return f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})'


@lru_cache(maxsize=256)
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
        # the quick way, without sorting: equal cells of equal kinds
        if Counter(map(_type_cells, found)) == Counter(map(_type_cells, wanted)):
            return True
        # floats that differ in the last digits are sorted alike and compared with a tolerance
        found, wanted = sorted(found, key=_sortable), sorted(wanted, key=_sortable)
    return all(all(map(_equal, a, b)) for a, b in zip(found, wanted, strict=True))


def _type_cells(row: tuple[object, ...]) -> tuple[object, ...]:
    # 1 and 1.0 are one value here, as they are in SQL; a number and a text never
    return tuple((isinstance(cell, (int, float)), cell) for cell in row)


def _sortable(row: tuple[object, ...]) -> tuple[object, ...]:
    """None before numbers before texts before bytes; numbers by their first nine digits."""
    return tuple(
        # nine digits, about as `_equal` compares, so that equal floats sort to the same place
        (1, float(f"{cell:.9g}"), "") if isinstance(cell, float) or _is_small(cell)
        else (0, 0.0, "") if cell is None else (2, 0.0, repr(cell))
        for cell in row
    )  # fmt: skip


def _is_small(cell: object) -> bool:
    # above 2**53 floats skip whole numbers, and different ones would sort as one
    return isinstance(cell, int) and abs(cell) < 2**53


def _equal(a: object, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        # two whole numbers are compared exactly: a tolerance would take ids for each other
        return a == b or (
            (isinstance(a, float) or isinstance(b, float)) and math.isclose(a, b, rel_tol=1e-9)
        )
    return type(a) is type(b) and bool(a == b)
