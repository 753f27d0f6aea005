"""Promises of `rlvr score` about memory, files and recovery (docs/promises.md), by /proc and the disk."""

import gzip
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.json_lines import write_json_lines
from tests.outside.watching import ECHO, files_under, peak_of, rlvr, tree
from tests.processes import PATIENCE_S, ended

ROWS = int(os.environ.get("RLVR_OUTSIDE_ROWS", "1000000"))
"""How many rows a large file has."""

MOST_MIB = 150.0
A_MIB = b"a" * (1 << 20)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    return tmp_path


def scored(folder: Path, name: str, out: str) -> tuple[int, float, str]:
    """(exit code, peak MiB of the main process, what it said)."""
    process = rlvr("score", "echo.py:Echo", name, "-o", out, "--workers", "2", cwd=folder)
    with peak_of(process) as peak:
        said, _ = process.communicate()
    return process.returncode, peak[0], said


def ids_of(path: Path) -> list:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def write_rows(path: Path, count: int) -> None:
    with path.open("w") as file:
        for i in range(count):
            row = {"id": i, "reference": str(i), "completion": str(i - (i % 3 == 0))}
            file.write(json.dumps(row) + "\n")


def long_row(folder: Path) -> str:
    with gzip.open(folder / "long.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(b'{"id": "long", "reference": "1", "completion": "')
        for _ in range(400):
            file.write(A_MIB)
        file.write(b'"}\n{"id": "b", "reference": "1", "completion": "1"}\n')
    return "long.jsonl.gz"


def wide_row(folder: Path) -> str:
    with (folder / "wide.jsonl").open("w") as file:
        file.write('{"id": "wide", "reference": "1", "completion": "1", "junk": [')
        file.write("[]," * 8_000_000 + "[]]}\n")
        file.write('{"id": "b", "reference": "1", "completion": "1"}\n')
    return "wide.jsonl"


@pytest.mark.parametrize("make", [long_row, wide_row])
def test_a_row_beyond_the_limit_costs_itself_alone(folder, make):
    """400 MiB in a few kilobytes of gzip took 2.1 GiB, and 8 million empty lists 1.3."""
    code, peak, said = scored(folder, make(folder), "out.jsonl")
    print(f"{make.__name__}: {peak:.0f} MiB")
    assert code == 1, said
    assert ids_of(folder / "out.jsonl") == ["b"]
    assert peak <= MOST_MIB


@pytest.mark.parametrize("out", ["out.jsonl", "out.parquet"])
def test_memory_does_not_grow_with_rows(folder, out):
    """A million rows; Parquet was written from memory and took 839 MiB for 100,000; pyarrow itself takes 55."""
    write_rows(folder / "in.jsonl", ROWS)
    code, peak, said = scored(folder, "in.jsonl", out)
    print(f"{ROWS:,} rows to {out}: {peak:.0f} MiB")
    assert code == 0, said
    assert peak <= MOST_MIB


def test_a_run_killed_anywhere_ends_as_one_that_was_not(folder):
    """SIGKILL at random moments, each time gone on with by --resume: the same bytes in the end."""
    write_rows(folder / "in.jsonl", 30_000)
    code, _, said = scored(folder, "in.jsonl", "once.jsonl")
    assert code == 0, said
    chance, kills = random.Random(1), 0
    argv = "score echo.py:Echo in.jsonl -o out.jsonl --workers 2 --resume".split()
    while not (folder / "out.jsonl").exists():
        process = rlvr(*argv, cwd=folder)
        before = size_of(folder / "out.jsonl.partial")
        more = chance.randint(0, 600_000) if kills < 5 else 1 << 40
        while process.poll() is None and size_of(folder / "out.jsonl.partial") < before + more:
            time.sleep(0.005)
        kills += process.poll() is None
        process.kill()
        process.communicate()
    print(f"{kills} kills")
    assert kills >= 3
    assert (folder / "out.jsonl").read_bytes() == (folder / "once.jsonl").read_bytes()


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_nothing_outlives_a_run_that_is_killed(folder):
    """Workers end with the command, however that ends, also while a reference is read without end."""
    rows = [{"id": i, "reference": "endless", "completion": "x"} for i in range(20)]
    write_json_lines(folder / "in.jsonl", rows)
    process = rlvr(
        "score", "echo.py:Echo", "in.jsonl", "-o", "out.jsonl", "--workers", "2", cwd=folder
    )
    while len(pids := tree(process.pid)) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert all(ended(pid) for pid in pids)


SQL = "CREATE TABLE t(a); "
FILLINGS = {"fillings": [{"t": [[1], [2]]}, {"t": [[3]]}], "query": "SELECT a FROM t"}


def test_references_write_no_file(tmp_path):
    """A schema that attaches, exports or keeps its temporary tables on disk is left out with its reason."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    target = home / "keys"
    schemas = [
        f"ATTACH DATABASE '{target}' AS o; CREATE TABLE o.x(a); {SQL}",
        f"{SQL}VACUUM INTO '{target}';",
        f"PRAGMA temp_store_directory='{home}'; {SQL}",
        f"{SQL}CREATE TABLE z AS SELECT writefile('{target}', 'x');",
        f"{SQL}SELECT load_extension('{target}');",
    ]
    rows = [
        {"id": i, "reference": {"schema": schema, **FILLINGS}, "completion": "SELECT a FROM t"}
        for i, schema in enumerate([*schemas, SQL])
    ]
    write_json_lines(work / "in.jsonl", rows)
    argv = "score sql-v4 in.jsonl -o out.jsonl --workers 1".split()
    process = rlvr(*argv, cwd=work, HOME=str(home), TMPDIR=str(home))
    said, _ = process.communicate()
    assert process.returncode == 1, said
    assert ids_of(work / "out.jsonl") == [len(schemas)]
    assert not files_under(home)
    assert {name.partition(".")[0] for name in files_under(work)} == {"in", "out"}
