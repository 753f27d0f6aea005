"""A resumed run passes over whole blocks of rows, and what it writes is what a run writes that reads every row."""

import json
from pathlib import Path

import pytest

import rlvr.cli.score as command
from rlvr.data.lines import stamped
from tests.commands import refusal_of
from tests.environments import right

FILES = ("a.jsonl", "b.csv", "c.jsonl")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("rlvr.scoring.blocks._LINES", 4)


@pytest.fixture
def parsed(monkeypatch):
    """The numbers of the rows from which an item was made, one by one."""
    numbers = []
    whole = command.item_of

    def counting(env, row, number, **how):
        numbers.append(number)
        return whole(env, row, number, **how)

    monkeypatch.setattr(command, "item_of", counting)
    return numbers


def rows_of(*numbers: int) -> list[dict]:
    return [{"id": n, "reference": n, "completion": str(n - n % 2), "mine": "ß"} for n in numbers]


def stop_after(monkeypatch, count: int) -> None:
    """Interrupt the next run before it writes its record number `count` + 1."""
    whole, written = command._RemainingRows.write, []

    def write(self, scored):
        if len(written) == count:
            monkeypatch.setattr(command._RemainingRows, "write", whole)
            raise KeyboardInterrupt
        written.append(scored)
        whole(self, scored)

    monkeypatch.setattr(command._RemainingRows, "write", write)


def lines_of(rows: list) -> str:
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def left_by(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("out*")}


@pytest.mark.parametrize("stops", [(1,), (30,), (7, 8), (13, 1, 9), (38,), (26, 9)], ids=str)
def test_any_stops_end_in_the_same_files(say, tmp_path, monkeypatch, stops):
    """Several files, one of them a table; empty lines, torn rows, two ids twice, tasks of the environment, a list."""
    first = rows_of(*range(14))
    first[4:4] = ["\n", "{torn\n", "\n"]
    last = [
        *rows_of(*range(20, 30)),
        "[]\n",
        *rows_of(2, 21),
        *right(1, 2),
        *rows_of(*range(30, 40)),
    ]
    last[5]["completion"] = ["24", "25", "26"]
    (tmp_path / "a.jsonl").write_text(lines_of(first))
    (tmp_path / "b.csv").write_text("id,reference,completion\nx,1,1\ny,2,3\nz\n")
    (tmp_path / "c.jsonl").write_text(lines_of(last))
    files = [tmp_path / name for name in FILES]
    argv = ["score", "tests.environments:Trials", *files, "--workers", 0, "-o"]
    assert say(*argv, tmp_path / "out.jsonl")[0] == 1
    summary, whole = say.out, left_by(tmp_path)
    for path in tmp_path.glob("out*"):
        path.unlink()
    for number, count in enumerate(stops):
        stop_after(monkeypatch, count)
        assert say(*argv, tmp_path / "out.jsonl", *(["--resume"] if number else []))[0] == 130
    assert say(*argv, tmp_path / "out.jsonl", "--resume")[0] == 1
    assert left_by(tmp_path) == whole  # and no other file
    assert (
        say.out.partition("scored in")[0].splitlines()[:-1]
        == summary.partition("scored in")[0].splitlines()[:-1]
    )


@pytest.fixture
def stopped(score, tmp_path, monkeypatch, parsed):
    """A run over 30 rows that was stopped after 25; its rows, and the output of the whole."""
    rows = rows_of(*range(30))
    score(rows)
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    stop_after(monkeypatch, 25)
    assert score(rows)[0] == 130
    parsed.clear()
    return rows, whole


def test_finished_rows_are_not_read_again(score, stopped, tmp_path, parsed):
    """But the first, by which one knows whether there are checksums, and those of the block in which it stopped."""
    rows, whole = stopped
    code, said, _ = score(rows, "--resume")
    assert (code, (tmp_path / "out.jsonl").read_bytes()) == (0, whole)
    assert "30 completions" in said
    assert "5 scored in" in said
    assert parsed == [1, *range(22, 31)]
    assert not (tmp_path / "out.jsonl.partial.blocks").exists()


def test_a_row_that_has_the_id_of_one_that_was_passed_over_is_left_out(score, stopped):
    rows, _ = stopped
    code, said, out = score([*rows, *rows_of(3)], "--resume")
    assert (code, len(out)) == (1, 30)
    assert "line 31: the id 3 was there before" in said


@pytest.mark.parametrize("row", [0, 1, 6, 20, 24])
def test_an_input_that_was_changed_is_found_in_every_block(score, stopped, row):
    rows, _ = stopped
    rows[row]["completion"] += " "
    code, said, out = score(rows, "--resume")
    assert (code, out) == (2, [])
    assert f"line {row + 1}, row {row}, stands where the stopped run had row {row}" in said


@pytest.mark.parametrize("row", [0, 1, 6, 20, 24])
def test_a_damaged_record_is_found_in_every_block(score, stopped, tmp_path, row):
    rows, _ = stopped
    partial = tmp_path / "out.jsonl.partial"
    lines = partial.read_bytes().splitlines(keepends=True)
    lines[row] = lines[row].replace(b'"outcome": "', b'"outcome": "x', 1)
    partial.write_bytes(b"".join(lines))
    code, said, out = score(rows, "--resume")
    assert (code, out) == (2, [])
    assert f"line {row + 1}: damaged" in said or (
        row == 0 and "line 2: it has a checksum" in said
    ), said


@pytest.mark.parametrize(
    "damage",
    ["a bit", "cut", "empty", "another run", "no blocks", "swapped", "nonsense", "other keys"],
)
def test_the_file_of_blocks_decides_nothing(score, stopped, tmp_path, damage):
    """Whatever became of it, the run goes on to the same bytes."""
    rows, whole = stopped
    path = tmp_path / "out.jsonl.partial.blocks"
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    middle = len(text) // 2
    path.write_bytes(
        {
            "a bit": text[:middle] + bytes([text[middle] ^ 1]) + text[middle + 1 :],
            "cut": text[:middle],
            "empty": b"",
            "another run": b"".join([lines[0].replace(b'"run": "', b'"run": "x'), *lines[1:]]),
            "no blocks": lines[0],
            "swapped": b"".join([lines[0], lines[1], lines[3], lines[2], *lines[4:]]),
            "nonsense": lines[0] + b"\0" * 100,
            "other keys": b"".join([*lines[:2], stamped(b'{"lines": 3}\n'), *lines[2:]]),
        }[damage]
    )
    code, _, _ = score(rows, "--resume")
    assert (code, (tmp_path / "out.jsonl").read_bytes()) == (0, whole)


def test_records_that_were_lost_are_made_again(score, stopped, tmp_path, monkeypatch):
    """The system kept the file of blocks and lost the end of the other; and the next resume is right as well."""
    rows, whole = stopped
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(b"".join(partial.read_bytes().splitlines(keepends=True)[:10]))
    stop_after(monkeypatch, 12)
    assert score(rows, "--resume")[0] == 130
    assert score(rows, "--resume")[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    "change",
    [["--completion-column", "mine"], ["--option", "split=test"]],
    ids=["columns", "options"],
)
def test_blocks_of_a_run_with_other_options_are_not_used(score, stopped, change):
    rows, _ = stopped
    assert "pass --overwrite to begin anew" in refusal_of(*score(rows, "--resume", *change))


def test_tasks_of_the_environment_are_asked_for_again(score, tmp_path, monkeypatch, parsed):
    """Its data may have changed since, which no digest of a row's line would show."""
    rows = right(*range(20))
    stop_after(monkeypatch, 15)
    assert score(rows)[0] == 130
    parsed.clear()
    assert score(rows, "--resume")[0] == 0
    assert parsed == list(range(1, 21))


def test_a_run_that_begins_anew_forgets_the_old_blocks(score, stopped, tmp_path, monkeypatch):
    _, _ = stopped
    rows = rows_of(*range(40, 70))
    stop_after(monkeypatch, 11)
    assert score(rows, "--overwrite")[0] == 130
    code, _, out = score(rows, "--resume")
    assert (code, [row["id"] for row in out]) == (0, list(range(40, 70)))


def test_the_last_rows_are_read_from_the_end(tmp_path, monkeypatch):
    """Whatever the size of what is read at once."""
    from rlvr.data.rows import Journal

    rows = [{"id": i, "text": "x" * (i % 7)} for i in range(30)]
    with Journal(tmp_path / "a.jsonl", checksums=True) as journal:
        for row in rows:
            journal.write(row)
    for size in (2, 10, 64, 1 << 18):
        monkeypatch.setattr("rlvr.data.rows._BUFFER", size)
        with Journal(tmp_path / "a.jsonl", resume=True) as journal:
            assert list(journal.backwards()) == rows[::-1]
