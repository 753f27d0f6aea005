"""Faults while scoring: the output is that of a run without them, or the command says in one line why there is none."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rlvr
from rlvr.data.rows import Journal, read_whole
from tests.commands import refusal_of
from tests.environments import PLACE, right
from tests.json_lines import write_json_lines
from tests.processes import python, run_python

CLI = "import sys; from rlvr.cli import main; sys.exit(main())"
MINE = """
import rlvr

class Mine(rlvr.Environment):
    def task(self, index):
        return rlvr.Task(str(index), "?", reference=str(index))

    def verify(self, task, completion):
        {body}
        return rlvr.Verdict("correct" if completion == task.reference else "wrong", why="same")
"""


@pytest.fixture
def source(tmp_path) -> Path:
    rows = [{"task": n, "completion": str(n)} for n in range(12)]
    return write_json_lines(tmp_path / "in.jsonl", rows)


def mine(folder: Path, body: str = "pass") -> str:
    """An environment in a file of one's own."""
    (folder / "mine_for_faults.py").write_text(MINE.format(body=body))
    return f"{folder / 'mine_for_faults.py'}:Mine"


def score(folder: Path, env: str, source: Path, *flags: object) -> subprocess.CompletedProcess[str]:
    argv = ["score", env, source, "-o", folder / "out.jsonl", "--workers", 0, *flags]
    return run_python(CLI, *argv, cwd=folder)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise GeneratorExit", "worker-error: GeneratorExit"),
        ("class Odd(BaseException): pass\n        raise Odd('x')", "worker-error: Odd: x"),
        (
            "class Mute(Exception):\n            def __str__(self): raise ValueError\n        raise Mute",
            "worker-error: Mute: (its text cannot be had)",
        ),
        ("import sys; sys.exit(5)", "worker-error: SystemExit: 5"),
    ],
)
def test_whatever_a_verifier_raises_in_this_process_is_unscored(tmp_path, source, body, why):
    """As in a worker: `--workers 0` is for debuggers, and not another way to score."""
    done = score(tmp_path, mine(tmp_path, body), source)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert {row["why"] for row in read_whole(tmp_path / "out.jsonl")} == {why}


def test_an_edited_environment_is_not_gone_on_with(tmp_path, source):
    """Its first half would be of one program and its second of another, with exit code 0."""
    env = mine(tmp_path)
    assert score(tmp_path, env, source).returncode == 0
    whole = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "out.jsonl.partial").write_bytes(b"".join(whole[:5]))
    (tmp_path / "out.jsonl").unlink()
    mine(tmp_path, "completion += 'x'")
    done = score(tmp_path, env, source, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "differs from this run in code: mine_for_faults has another content" in done.stderr
    mine(tmp_path)
    assert score(tmp_path, env, source, "--resume").returncode == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b"".join(whole)


def test_a_replay_after_an_edit_says_so(tmp_path, source):
    """The verdicts may agree or not: the program is another one."""
    env = mine(tmp_path)
    assert score(tmp_path, env, source).returncode == 0
    mine(tmp_path, "completion = completion.strip()")
    argv = ["replay", str(tmp_path / "out.jsonl"), "--workers", "0", "--allow", env]
    done = run_python(CLI, *argv)
    assert done.returncode == 0
    assert "differs from this replay in code: mine_for_faults has another content" in done.stderr
    assert "12 verdicts replayed, 0 differ" in done.stdout


def test_a_helper_of_the_environment_counts_too(tmp_path, source):
    """The class is the same, and what it calls is not."""
    (tmp_path / "helper_for_faults.py").write_text("def right(a, b):\n    return a == b\n")
    env = mine(tmp_path, "from helper_for_faults import right")
    text = (tmp_path / "mine_for_faults.py").read_text()
    (tmp_path / "mine_for_faults.py").write_text("import helper_for_faults\n" + text)
    assert score(tmp_path, env, source).returncode == 0
    (tmp_path / "out.jsonl").rename(tmp_path / "out.jsonl.partial")
    (tmp_path / "helper_for_faults.py").write_text("def right(a, b):\n    return a != b\n")
    done = score(tmp_path, env, source, "--resume")
    assert "helper_for_faults has another content" in done.stderr


def test_a_package_that_was_upgraded_is_not_gone_on_with(tmp_path, source, monkeypatch):
    """Its version stands for all its files."""
    packages = tmp_path / "site-packages"
    info = packages / "judge_for_faults-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "judge_for_faults.py").write_text("def right(a, b):\n    return a == b\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: judge_for_faults\nVersion: 1.0\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    env = mine(tmp_path)
    text = (tmp_path / "mine_for_faults.py").read_text()
    (tmp_path / "mine_for_faults.py").write_text("from judge_for_faults import right\n" + text)
    assert score(tmp_path, env, source).returncode == 0
    (tmp_path / "out.jsonl").rename(tmp_path / "out.jsonl.partial")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: judge_for_faults\nVersion: 2\n")
    done = score(tmp_path, env, source, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert 'package judge_for_faults is "1.0" there and "2" here' in done.stderr


def test_a_clock_that_is_set_back_changes_nothing(say, tmp_path, monkeypatch):
    """Limits are measured by clocks that no one can set, and no file's date decides anything."""
    source = tmp_path / "in.jsonl"
    write_json_lines(source, right(*range(9)))
    argv = ["score", PLACE, source, "--workers", 0, "-o"]
    assert say(*argv, tmp_path / "whole.jsonl")[0] == 0
    whole = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "out.jsonl.partial").write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    os.utime(tmp_path / "out.jsonl.partial", (2**31, 2**31))
    backwards = iter(range(10**9, 0, -3600))
    monkeypatch.setattr("time.time", lambda: float(next(backwards)))
    assert say(*argv, tmp_path / "out.jsonl", "--resume")[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_a_stopped_run_with_a_key_of_another_name_is_named(tmp_path, source):
    """A KeyError of ours would say nothing to its reader; this is a file without checksums."""
    env = mine(tmp_path)
    assert score(tmp_path, env, source).returncode == 0
    rows = [dict(row) for row in read_whole(tmp_path / "out.jsonl")]
    (tmp_path / "out.jsonl").unlink()
    rows[2]["outcoMe"] = rows[2].pop("outcome")
    write_json_lines(tmp_path / "out.jsonl.partial", rows)
    done = score(tmp_path, env, source, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "row 'line:3' lacks outcome; no run leaves this behind" in done.stderr


@pytest.mark.parametrize(
    ("number", "way_out"), [(errno.ENOSPC, "free some"), (errno.EFBIG, "ulimit -f")]
)
def test_a_full_disk_names_the_file_and_the_rows_so_far_stay(
    say, tmp_path, monkeypatch, number, way_out
):
    """And the same command with --resume goes on from there, to the same bytes."""
    source = tmp_path / "in.jsonl"
    write_json_lines(source, right(*range(9)))
    argv = ["score", PLACE, source, "--workers", 0, "-o"]
    assert say(*argv, tmp_path / "whole.jsonl")[0] == 0
    write, count = Journal.write, []

    def full(self, *row):
        count.append(row)
        if len(count) == 5:
            self._file.close()
            self._file = open("/dev/full", "ab")  # noqa: PTH123, SIM115
            self._flush_s = 0.0
        try:
            return write(self, *row)
        except OSError as error:
            error.errno = number
            raise

    monkeypatch.setattr(Journal, "write", full)
    said = refusal_of(*say(*argv, tmp_path / "out.jsonl"))
    assert "out.jsonl.partial" in said
    assert way_out in said
    monkeypatch.undo()
    assert (tmp_path / "out.jsonl.partial").read_bytes().count(b"\n") == 4
    assert say(*argv, tmp_path / "out.jsonl", "--resume")[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_full_stdout_is_a_warning_where_the_output_is_whole(tmp_path, source):
    """What was asked for is in the file; with nothing but stdout, it would be lost, and that is exit code 2."""
    argv = ["score", mine(tmp_path), source, "-o", tmp_path / "out.jsonl", "--workers", 0]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", CLI, *map(str, argv)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.count("\n")) == (0, 1)
        assert "warning: the output is whole, but stdout is not: [Errno 28]" in done.stderr
        done = subprocess.run(
            [sys.executable, "-c", CLI, "envs"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "stdout: [Errno 28]" in done.stderr


def test_a_reader_that_has_seen_enough_gets_no_message(tmp_path):
    """`rlvr envs | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", CLI, "envs"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == ""


def test_ctrl_c_while_the_command_loads_is_one_line():
    """Python shows 25 lines of its import system otherwise."""
    program = (
        "import builtins, sys\nreal = __import__\n"
        "def slow(name, *rest):\n"
        "    if name.startswith('tyro'): raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = slow\n" + CLI
    )
    done = run_python(program, "envs")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_leaves_what_the_first_left(tmp_path, fifo, say):
    """An impatient user: the rows so far are there, and the run can be resumed."""
    rows = right(*range(20))
    rows[10]["completion"] += f"@gate {fifo.path}"
    source = tmp_path / "in.jsonl"
    write_json_lines(source, rows)
    argv = ["score", PLACE, source, "-o", tmp_path / "out.jsonl", "--workers", 1]
    with python(CLI, *argv) as process:
        fifo.pid()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    Path(f"{fifo.path}.open").touch()
    assert say(*argv, "--resume")[0] == 0
    assert [row["outcome"] for row in read_whole(tmp_path / "out.jsonl")] == ["correct"] * 20


@pytest.mark.parametrize("workers", [0, 1])
def test_a_detail_beyond_all_measure_is_unscored_with_and_without_workers(workers):
    """100 MB in every record would fill the disk."""

    class Verbose(rlvr.Environment):
        def task(self, index):
            return rlvr.Task(str(index), "?", reference="x")

        def verify(self, task, completion):
            return rlvr.Verdict(
                "wrong",
                why="same",
                detail={"text": "x" * (65 << 20 if completion == "long" else 1)},
            )

    rows = [{"task": 0, "completion": "long"}, {"task": 1, "completion": "short"}]
    long, short = rlvr.score(Verbose(), rows, workers=workers)
    assert (long.outcome, short.outcome) == ("unscored", "wrong")
    assert "the limit is 64 MiB" in long.score.verdict.why
