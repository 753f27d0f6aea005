"""References of SQL tasks come from data files: whatever they say, no file is written and nothing takes long."""

import contextlib
import json
import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import DataError
from rlvr.types import Outcome
from rlvr.verifiers import sql as module
from rlvr.verifiers.sql import SQLVerifier

RIGHT = "```sql\nSELECT a FROM t\n```"
REST = {"fillings": [{"t": [[1], [2]]}, {"t": [[3]]}], "query": "SELECT a FROM t"}
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
LAUGHS = "CREATE TABLE t(a); CREATE VIEW v0 AS SELECT * FROM t;" + "".join(
    f"CREATE VIEW v{i + 1} AS SELECT DISTINCT x.* FROM v{i} x, v{i} y LIMIT 5;" for i in range(24)
)


def judged(**change):
    return SQLVerifier().verify(RIGHT, {"schema": "CREATE TABLE t(a)", **REST, **change})


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '{}' AS o; CREATE TABLE o.x(a)",
        "VACUUM INTO '{}'",
        "/* a comment */ VACUUM INTO '{}'",
        "PRAGMA temp_store_directory = '{}'",
        "PRAGMA journal_mode = WAL",
        "SELECT writefile('{}', 'x')",
        "SELECT load_extension('{}')",
        "CREATE VIRTUAL TABLE z USING fts5(a)",
        "CREATE TRIGGER q AFTER INSERT ON t BEGIN INSERT INTO t VALUES (1); END",
        "CREATE TEMP TABLE z(a)",
        "DELETE FROM t",
        "INSERT INTO sqlite_master VALUES ('table', 'z', 'z', 1, 'CREATE TABLE z(a)')",
    ],
)
def test_a_schema_makes_tables_and_nothing_else(tmp_path, statement):
    """ATTACH and VACUUM INTO wrote any file of the user, such as ~/.ssh/authorized_keys."""
    schema = f"CREATE TABLE t(a); {statement.format(tmp_path / 'owned')};"
    with pytest.raises(DataError, match="cannot be made"):
        judged(schema=schema)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "schema",
    [
        f"CREATE TABLE t(a); CREATE TABLE z AS {ENDLESS} SELECT max(x) FROM c",
        f"CREATE TABLE t(a); CREATE TABLE z(b); INSERT INTO z {ENDLESS} SELECT x FROM c",
        f"CREATE TABLE t(a); {ENDLESS} SELECT max(x) FROM c",
        "CREATE TABLE t(a, b AS (hex(zeroblob(100000000))))",
        LAUGHS,
        "CREATE TABLE t(a); " + "CREATE TABLE IF NOT EXISTS z(b);" * 20_000,
        "/*" * 400_000,
        "[" * 400_000,
        "'" * 400_001,
        "CREATE TABLE t(a);" + "-- \n" * 200_000 + "x",
    ],
    ids=lambda schema: schema[:30] + schema[-20:],
)
def test_a_schema_costs_a_bounded_time(schema):
    """A schema without end kept the process that read it for ever; limits are steps and sizes."""
    start = time.process_time()
    with pytest.raises(DataError):
        judged(schema=schema, query="SELECT a FROM v24" if schema is LAUGHS else "SELECT a FROM t")
    assert time.process_time() - start < 10  # 1 s and less on an idle machine


def test_a_database_has_a_greatest_size(monkeypatch):
    """One insert that doubles a table fills the memory in thirty statements."""
    monkeypatch.setattr(module, "_PAGES", 100)
    rows = "CREATE TABLE t(a); CREATE TABLE z(b); INSERT INTO z VALUES (hex(hex('%s')));" % (
        "x" * 900
    )
    with pytest.raises(DataError, match="full"):
        judged(schema=rows + "INSERT INTO z SELECT b FROM z;" * 9)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": ["x"]},
        {"schema": "CREATE TABLE t(a)\0"},
        {"query": {"a": 1}},
        {"fillings": [{"t": [[{"a": 1}]]}, {"t": [[3]]}]},
        {"fillings": [{"t": [[10**30]]}, {"t": [[3]]}]},
        {"fillings": [{"t": [["\ud800"]]}, {"t": [[3]]}]},
        {"fillings": [{"t": [["x" * 6_000]]}, {"t": [[3]]}]},
        {"fillings": [{"t": [["x" * (17 << 20)]]}, {"t": [[3]]}]},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_a_reference_of_other_types_is_a_data_error(change):
    """TypeError and OverflowError looked like bugs of ours and stopped the run."""
    with pytest.raises(DataError):
        judged(**change)


@pytest.mark.parametrize(
    "schema",
    [
        "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(a);\nCOMMIT;",
        "-- a dump\nDROP TABLE IF EXISTS t; CREATE TABLE t(a TEXT CHECK (length(a) < 9));",
        'CREATE TABLE IF NOT EXISTS "t" (a /* ; */, UNIQUE (a)); CREATE INDEX i ON t(a);',
        "CREATE TABLE s(x); INSERT INTO s VALUES ('it''s; one'), (2); "
        "CREATE VIEW v AS SELECT x FROM s; CREATE TABLE t(a DEFAULT 'a;b')",
        "CREATE TABLE t(a); CREATE TABLE long({});".format(", ".join(f"column_{i} TEXT" for i in range(900))),
    ],
)  # fmt: skip
def test_what_honest_schemas_hold_is_taken(schema):
    """Dumps, comments, quoted semicolons, indices, views and wide tables."""
    assert judged(schema=schema).outcome is Outcome.CORRECT


def test_sorting_leaves_no_temporary_file(monkeypatch):
    """Sorting a large result spilled into a file of the folder for temporary files."""
    made = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        module.sqlite3, "connect", lambda *a, **k: made.append(connect(*a, **k)) or made[-1]
    )
    seen = []
    run = SQLVerifier._rows_of
    monkeypatch.setattr(
        SQLVerifier,
        "_rows_of",
        lambda self, database, query: (
            seen.append(_temp_store(database)) or run(self, database, query)
        ),
    )
    assert judged(schema="CREATE TABLE t(a, b DEFAULT 2)", query="SELECT a FROM t", fillings=[
        {"t": [[1, 1], [2, 1]]}, {"t": [[3, 1]]},
    ]).outcome is Outcome.CORRECT  # fmt: skip
    assert set(seen) == {2}  # MEMORY


def _temp_store(database):
    database.set_authorizer(None)
    return database.execute("PRAGMA temp_store").fetchone()[0]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "CREATE TABLE t(a)", "SELECT a FROM t", "t", ";", "'", "\ud800", "\0"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
references = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.just("CREATE TABLE t(a)") | values,
        "fillings": st.just(REST["fillings"])
        | st.lists(st.dictionaries(st.sampled_from(["t", "u", "T"]), values, max_size=2), max_size=3),
        "query": st.just("SELECT a FROM t") | values,
        "ordered": values,
    },
)  # fmt: skip


@given(references | values)
def test_any_reference_gives_a_verdict_or_a_data_error(reference):
    """Types, nesting and texts that a data file can hold."""
    with contextlib.suppress(DataError):
        assert SQLVerifier().verify(RIGHT, reference).outcome in set(Outcome) - {Outcome.UNSCORED}


@pytest.mark.parametrize(
    "clock",
    [
        *("date('now')", "DATE ('n' || 'ow')", "date/**/('now')", '"time"()', "strftime('%Y')"),
        *("datetime('2020-01-01', 'localtime')", "(SELECT d FROM v)"),
    ],
)
def test_what_depends_on_the_time_is_refused(clock):
    """A score is to replay for ever, on any machine: a reference is an error, an answer is wrong."""
    schema = "CREATE TABLE t(a); CREATE VIEW v AS SELECT datetime('now') AS d"
    with pytest.raises(DataError, match="on the time"):
        judged(schema=schema, query=f"SELECT a, {clock} FROM t")
    answer = f"```sql\nSELECT a FROM t WHERE {clock} > ''\n```"
    assert SQLVerifier().verify(answer, {"schema": schema, **REST}).reason == "error"


def test_dates_of_the_rows_are_computed_as_ever():
    """Only what names no date, or the clock's, is refused."""
    query = "SELECT a, date('2020-01-31', '+1 day'), strftime('%Y', '2021-05-05') FROM t"
    assert (
        SQLVerifier().verify(query, {"schema": "CREATE TABLE t(a)", **REST, "query": query}).correct
    )
