"""A run that was stopped goes on where it stopped, to the same bytes, or says why it cannot."""

import json
import signal
from pathlib import Path

import pytest

from tests.commands import refusal_of
from tests.environments import PLACE, right
from tests.processes import children, ended, python

CLI = "import sys; from rlvr.cli import main; sys.exit(main())"


@pytest.fixture
def stopped(tmp_path, fifo):
    """A run that hangs at its 40th row of 60, after three that cannot be used; it is ended by a signal."""
    rows = right(*range(60))
    rows[40]["completion"] += f"@gate {fifo.path}"
    lines = [json.dumps(row | {"mine": "ß\ud800"}) + "\n" for row in rows]
    lines[10], lines[20], lines[50] = (
        "{torn\n",
        lines[3].replace("{", '{"id": "line:4", ', 1),
        "[]\n",
    )
    source = tmp_path / "in.jsonl"
    source.write_text("".join(lines))
    argv = ["score", PLACE, source, "-o", tmp_path / "out.jsonl", "--workers", 2]

    def stop(number: signal.Signals, *flags: str) -> tuple[int, str]:
        with python(CLI, *argv, *flags) as process:
            stuck = fifo.pid()
            workers = children(process.pid)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
        assert stuck in workers
        assert all(map(ended, workers)), "an orphan"
        Path(f"{fifo.path}.open").touch()  # from now on the row passes
        return process.returncode, said

    stop.argv = argv
    return stop


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name.startswith("out.jsonl")
    }


def uninterrupted(say, stopped, tmp_path) -> dict[str, bytes]:
    """What the same run gives without a stop."""
    (tmp_path / "whole").mkdir()
    argv = [
        tmp_path / "whole" / arg.name if arg == tmp_path / "out.jsonl" else arg
        for arg in stopped.argv
    ]
    assert say(*argv)[0] == 1
    return files(tmp_path / "whole")


def test_a_killed_run_is_resumed_to_the_same_bytes(say, stopped, tmp_path):
    """kill -9 in mid-run, and half a line more: the output, and the rows left out, are those of a run never stopped."""
    code, _ = stopped(signal.SIGKILL)
    assert code == -signal.SIGKILL
    partial = tmp_path / "out.jsonl.partial"
    assert not (tmp_path / "out.jsonl").exists()
    scored = len(partial.read_bytes().splitlines())
    assert scored < 40
    partial.write_bytes(partial.read_bytes() + b'{"id": "to')
    code, said = say(*stopped.argv, "--resume")
    assert code == 1
    assert "57 completions" in said  # 60 less three
    assert f"{57 - scored} scored in" in said
    assert files(tmp_path) == uninterrupted(say, stopped, tmp_path)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_at_once_and_says_how_to_go_on(say, stopped, tmp_path):
    """Code 130, no traceback, no orphan; the rows so far are kept."""
    code, said = stopped(signal.SIGINT)
    assert (code, said) == (130, "interrupted; `--resume` goes on where it stopped\n")
    assert say(*stopped.argv, "--resume")[0] == 1
    assert files(tmp_path) == uninterrupted(say, stopped, tmp_path)


def test_a_stopped_run_is_not_overwritten_unasked(say, stopped, tmp_path):
    """It may have cost a night; --overwrite begins anew."""
    stopped(signal.SIGKILL)
    before = files(tmp_path)
    assert "is from a run that was stopped; pass --resume to go on, or --overwrite" in refusal_of(
        *say(*stopped.argv)
    )
    assert files(tmp_path) == before
    code, said = say(*stopped.argv, "--overwrite")
    assert code == 1
    assert "57 scored in" in said


@pytest.fixture
def half(score, tmp_path):
    """Five rows, of which a stopped run has scored three."""
    rows = [row | {"mine": 1} for row in right(1, 2, 3, 4, 5)]
    score(rows)
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.jsonl.partial").write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    return rows, whole


def test_a_resumed_run_scores_only_what_is_left(score, half, tmp_path):
    """Two of five."""
    rows, whole = half
    code, said, _ = score(rows, "--resume")
    assert (code, (tmp_path / "out.jsonl").read_bytes()) == (0, whole)
    assert "5 completions" in said
    assert "2 scored in" in said


def test_a_whole_run_is_resumed_by_finishing_it(score, half, tmp_path):
    """It was stopped between its last row and its end."""
    rows, whole = half
    (tmp_path / "out.jsonl.partial").write_bytes(whole)
    assert score(rows, "--resume")[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            lambda rows: rows[1].update(completion="3"),
            "line 2, row 'line:2', stands where the stopped run had row 'line:2'",
        ),
        (
            lambda rows: rows[1].update(task=3),
            "line 2, row 'line:2', stands where the stopped run had row 'line:2'",
        ),
        (
            lambda rows: rows[1].update(mine=2),
            "line 2, row 'line:2', stands where the stopped run had row 'line:2'",
        ),
        (
            lambda rows: rows[1].update(id="two"),
            "line 2, row 'two', stands where the stopped run had row 'line:2'",
        ),
        (lambda rows: rows[1].update(length_tokens=3), "line 2, row 'line:2', stands where"),
        (
            lambda rows: rows.insert(0, {"task": 9, "completion": "9", "id": "new"}),
            "line 1, row 'new', stands where",
        ),
        (
            lambda rows: rows.pop(0),
            "line 1, row 'line:1', stands where the stopped run had row 'line:1'",
        ),
        (
            lambda rows: rows.__delitem__(slice(2, None)),
            "its end stands where the stopped run had row 'line:3'",
        ),
        (lambda rows: rows.clear(), "its end stands where the stopped run had row 'line:1'"),
    ],
    ids=["completion", "task", "column", "id", "length", "inserted", "removed", "shorter", "empty"],
)
def test_another_input_is_not_mixed_in(score, half, tmp_path, change, where):
    """Half of the output would be of one file, half of another, without an error."""
    rows, _ = half
    before = (tmp_path / "out.jsonl.partial").read_bytes()
    change(rows)
    code, said, out = score(rows, "--resume")
    assert (code, out) == (2, [])
    assert where in said
    assert "pass --overwrite to begin anew" in said
    assert (tmp_path / "out.jsonl.partial").read_bytes() == before


def test_a_longer_input_is_gone_on_with(score, half):
    """Rows that were appended meanwhile are scored as well."""
    rows, _ = half
    code, _, out = score([*rows, *right(6)], "--resume")
    assert (code, len(out)) == (0, 6)


def test_other_options_are_not_mixed_in(score, half):
    """Another environment, another split: another run."""
    rows, _ = half
    for flags, env, what in (
        (
            ["--option", "split=test"],
            PLACE,
            "scored with config {}, this run has {'split': 'test'}",
        ),
        (
            [],
            "tests.environments:Configured",
            'differs from this run in settings: env is "Trials" there and "Configured" here',
        ),
    ):
        said = refusal_of(*score(rows, "--resume", *flags, env=env))
        assert what in said
        assert "pass --overwrite to begin anew" in said


def test_options_that_are_tuples_do_not_hinder_a_resume(score, tmp_path):
    """In the record they are lists."""
    flags = ["--option", "pair=[3, 4]"]
    score(right(1, 2), *flags, env="tests.environments:Configured")
    (tmp_path / "out.jsonl").rename(tmp_path / "out.jsonl.partial")
    code, said, out = score(right(1, 2, 3), *flags, "--resume", env="tests.environments:Configured")
    assert (code, len(out)) == (0, 3), said


@pytest.mark.parametrize("kept", range(7))
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_run_stopped_inside_a_group_scores_that_group_whole(score, tmp_path, ending, kept):
    """Two tasks of three lengths each: the rest of a group alone would be compared with other siblings."""
    rows = [
        {
            "task": task,
            "reference": 7,
            "completion": "7",
            "length_tokens": length,
            "id": f"{task}{length}",
        }
        for task in "ab"
        for length in (10, 20, 40)
    ]
    env, out = "tests.environments:Siblings", f"out.{ending}"
    assert score(rows, env=env)[0] == 0
    journal = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
    score(rows, "--overwrite", env=env, out=out)
    whole = (tmp_path / out).read_bytes()
    (tmp_path / out).unlink()
    (tmp_path / f"{out}.partial").write_bytes(b"".join(journal[:kept]))
    code, _, _ = score(rows, "--resume", env=env, out=out)
    assert (code, (tmp_path / out).read_bytes()) == (0, whole)
