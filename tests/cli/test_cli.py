"""The command: what it writes, what it says, and how it exits."""

import dataclasses
import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tyro

import rlvr
from rlvr.cli import envs, main, replay
from rlvr.cli.arguments import with_one_env
from rlvr.cli.commands import COMMANDS
from rlvr.data.rows import dump_row, read_whole
from rlvr.scoring.tally import Tally
from tests.commands import refusal_of
from tests.environments import PLACE, Trials, right
from tests.json_lines import read_json_lines, write_json_lines
from tests.processes import run_python

# ------------------------------------------------------------------------------------------ help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    """The first thing that is tried."""
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert f"Example: rlvr {name}" in said
    assert not any(line.count("Example: ") > 1 for line in said.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_can_be_given_to_it(name):
    """An example that is refused is worse than none."""
    examples = [
        line
        for line in inspect.getdoc(COMMANDS[name].load()).splitlines()
        if line.startswith("Example: ")
    ]
    assert examples
    for example in examples:
        rlvr_, command, *args = shlex.split(example.removeprefix("Example: "))
        assert (rlvr_, command) == ("rlvr", name)
        tyro.cli(COMMANDS[name].load(), args=args)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_explained(name, capsys):
    """By the name it has in the docs: ENV, FILE, --wall-s."""
    with pytest.raises(SystemExit):
        main([name, "--help"])
    said = capsys.readouterr().out
    for field in dataclasses.fields(COMMANDS[name].load()):
        if field.name in ("settings", "numbers", "limits"):  # the flags of another class
            continue
        positional = {
            "action": "{verify,diff,show,vectors}",
            "env": "ENV",
            "file": "FILE",
            "files": "FILE",
            "folder": "RUN",
            "name": "NAME",
            "other": "[FILE]",
            "path": "PATH",
            "paths": "PATH",
            "run_folder": "RUN",
            "what": "ENV|OUT",
        }.get(field.name)
        assert f"--{field.name.replace('_', '-')} " in said or (
            positional and f" {positional} " in said
        )


@pytest.mark.parametrize(
    ("argv", "read"),
    [
        ("train --env a:1 --steps 2 --env=b:2", "train --env|a:1 b:2|--steps 2"),
        ("train math_prorl --env a:1 --env b:2,x=1", "train math_prorl --env|a:1 b:2,x=1"),
        ("eval --model m --env a:1 --env b:2", "eval --model m|a:1 b:2"),
        ("eval a --model m", "eval a --model m"),
        ("score a rows --env b", "score a rows --env b"),
    ],
)
def test_several_environments_are_a_mixture(argv, read):
    """`--env ENV:WEIGHT` may be repeated, in training and evaluation."""
    expected = [
        piece
        for part in read.split("|")
        for piece in ([part] if part[1:2] == ":" else part.split())
    ]
    assert with_one_env(argv.split()) == expected


def test_an_environment_of_a_mixture_has_a_weight(capsys):
    """Else it could be any; one error, and no run."""
    assert main("train --model m --run r --env arithmetic-v1:1 --env gsm8k-v4".split()) == 2
    assert "--env gsm8k-v4 beside others: give each its weight" in capsys.readouterr().err
    assert main("eval --model m --env arithmetic-v1:1 --env arithmetic-v9:1".split()) == 2
    assert "of this name there is arithmetic-v1" in capsys.readouterr().err


def test_all_commands_are_listed(say):
    """Each with its line of help, and how to go on."""
    code, said = say("--help")
    assert code == 0
    for name, listed in COMMANDS.items():
        assert f"{name} " in said
        assert listed.help in said
    assert "`rlvr COMMAND --help`" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_its_line_in_the_list(name):
    """The list is written out, so that no command is imported for it; it has to say the same."""
    paragraph = inspect.getdoc(COMMANDS[name].load()).partition("\n\n")[0]
    assert paragraph.split() == COMMANDS[name].help.split()


def test_only_the_command_that_is_called_is_imported():
    """The list and the version need no command, and one command no other: each may need what is not installed."""
    code = """if True:
        import sys
        from rlvr.cli import main
        def loaded():
            return sorted(name for name in sys.modules if name.startswith("rlvr.cli."))
        main(["--help"]), main(["--version"])
        assert loaded() == ["rlvr.cli.commands", "rlvr.cli.entry"], loaded()
        assert "tyro" not in sys.modules
        main(["algorithms"])
        assert loaded() == ["rlvr.cli." + name for name in "algorithms arguments commands entry".split()]
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        ([], "rlvr: name a command: score, join, "),
        (["scroe"], "rlvr: there is no command 'scroe'; did you mean 'score'?  "),
        (["evaluate"], "did you mean 'eval'?"),
        (
            ["--versoin"],
            "rlvr: there is no flag before the command '--versoin'; did you mean '--version'?",
        ),
        (["xyz"], "rlvr: there is no command 'xyz'; there are score, join, "),
        (["[red]"], "there is no command '[red]'; "),
    ],
)
def test_what_is_no_command_gets_one_line(say, argv, answer):
    """With the name that was probably meant, or all of them."""
    said = refusal_of(*say(*argv))
    assert answer in said
    assert "`rlvr --help`" in said


@pytest.mark.parametrize("argv", [["score"], ["score", "x"], ["replay"], ["envs", "--frobnicate"]])
def test_what_cannot_be_understood_exits_with_2(argv, capsys):
    """As every command line does."""
    try:
        code = main(argv)
    except SystemExit as stop:  # of the parser
        code = stop.code
    assert code == 2
    assert capsys.readouterr().err


def test_the_installed_command_runs():
    """The entry point leads to `main`, and its code is the process's."""
    command = Path(sys.executable).with_name("rlvr")
    done = subprocess.run([command, "replay", "none.jsonl"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "rlvr: none.jsonl: no such file\n",
    )


# ------------------------------------------------------------------------------------------ score


def test_a_file_is_scored(score):
    """Code 0: all well. The table says how many of what, and the mean: 2 of 4 are right."""
    code, said, out = score(
        [*right(1, 2), {"task": 3, "completion": "?"}, {"task": 4, "completion": " ", "mine": 1}]
    )
    assert code == 0
    assert [row["outcome"] for row in out] == ["correct", "correct", "wrong", "unparsed"]
    assert [row["id"] for row in out] == ["line:1", "line:2", "line:3", "line:4"]
    assert out[3]["row"] == {"mine": 1}
    for words in (
        "4 completions",
        "50.0%",
        "25.0%",
        "compared",
        "silent",
        "+0.5000",
        "4 scored in",
        "written to",
    ):
        assert words in said


def test_workers_and_file_formats_make_no_difference(score, tmp_path):
    """JSONL or Parquet, in or out, with two workers or none: the same records."""
    rows = [*right(1, 2), {"task": 3, "completion": "ß\x00", "id": "three", "length_tokens": 7}]
    _, _, expected = score(rows)
    pq.write_table(pa.Table.from_pylist([*rows[2:], *rows[:2]]), tmp_path / "in.parquet")
    for source in (tmp_path / "in.jsonl", tmp_path / "in.parquet"):
        for out in ("new.jsonl", "new.parquet"):
            code, _, got = score(source, "--workers", 2, "--overwrite", out=out)
            assert code == 0
            assert sorted(row["task"] for row in got) == [row["task"] for row in expected]
            if source.suffix == ".jsonl":
                assert got == expected


HARD = {
    "empty": "",
    "NUL": "1\x00",
    "surrogate": "1\ud800",
    "1 MB": "1" * 1_000_000,
    "CRLF": "1\r\n",
}


def test_hard_completions_are_scored_and_recorded_as_they_are(score):
    """Each is a verdict with a reason, and comes back from the record unchanged."""
    code, _, out = score(
        [{"task": 1, "completion": text, "id": name} for name, text in HARD.items()]
    )
    assert code == 0
    assert {row["id"]: row["completion"] for row in out} == HARD
    assert [row["outcome"] for row in out] == ["unparsed", "wrong", "wrong", "wrong", "correct"]


def test_rows_that_cannot_be_used_are_left_out_by_line_and_kept(score, tmp_path):
    """Code 1: something needs a look. Blank lines count as lines; the rows are in a file of their own."""
    bad = [
        "\n",
        "{torn\n",
        '["no object"]\n',
        {"task": 1},
        {"task": 1, "completion": 5},
        {"task": "one", "completion": "1"},
        {"task": 1, "completion": "1", "id": "2"},
        {"task": 1, "completion": "1", "reference": [float("nan")]},
    ]
    code, said, out = score(
        [{"task": 1, "completion": "1", "id": "2"}, *bad, {"task": 2, "completion": "2"}]
    )
    assert code == 1
    assert [row["id"] for row in out] == ["2", "line:10"]
    for line, why in [
        (3, "not a JSON object: Expecting property name"),
        (4, "not a JSON object: a list, not an object"),
        (5, "no column 'completion'; it has 'task'"),
        (6, "the completion is int 5; it must be a string"),
        (7, "has no task 'one'"),
        (8, "the id '2' was there before; ids must be unique"),
        (9, "cannot be written as JSON: Out of range float values are not JSON compliant"),
    ]:
        assert f"in.jsonl, line {line}: " in said
        assert why in said
    assert "7 rows left out; all of them are in " in said
    kept = read_json_lines(tmp_path / "out.jsonl.rejected.jsonl")
    assert [row["line"] for row in kept] == [3, 4, 5, 6, 7, 8, 9]
    assert kept[0]["text"] == "{torn\n"
    assert kept[2]["row"] == {"task": 1}
    assert "nan" in kept[6]["text"]


def test_many_bad_rows_do_not_fill_the_screen(score):
    """They are counted by reason, with one row of each; all are in the file."""
    rows = [
        *["{\n"] * 50,
        *({"task": n, "completion": n} for n in range(7)),
        {"task": 3},
        *right(1),
    ]
    code, said, _ = score(rows)
    assert code == 1
    lines = [line.partition("in.jsonl, ")[2] for line in said.splitlines() if "left out:" in line]
    assert [line.partition(":")[0] for line in lines] == ["line 1", "line 51", "line 58"]
    assert [line.partition("(and ")[2] for line in lines] == [
        "49 more for this reason)",
        "6 more for this reason)",
        "",
    ]
    assert "58 rows left out" in said


def test_strict_stops_at_the_first_bad_row(score, tmp_path):
    """Code 2, one line; what was scored before it can be gone on with."""
    code, said, out = score([*right(1), "{\n", *right(2)], "--strict")
    assert (code, out) == (2, [])
    assert said.startswith(f"rlvr: {tmp_path / 'in.jsonl'}, line 2: not a JSON object")
    assert said.endswith("fix the row, and --resume goes on from there\n")
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["completion"] == "1"
    assert said.count("\n") == 1


def test_rows_we_failed_at_need_a_look(score):
    """Code 1, and the share of what was scored is not diluted: 1 of 1."""
    code, said, out = score([*right(1), {"task": 2, "completion": "2@raise"}])
    assert code == 1
    assert [row["total"] for row in out] == [1.0, None]
    assert "mean of 1" in said
    assert "+1.0000" in said
    assert "worker-error" in said


@pytest.mark.parametrize("out", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "in.jsonl: it has no rows; nothing was written\n"),
        (["{\n", {"task": 1}], "in.jsonl: none of its 2 rows can be used, as "),
        (["[{},\n", "{}]\n"], "in.jsonl: none of its 2 rows can be used, as "),
    ],
    ids=["empty", "unusable", "an array"],
)
def test_a_file_without_a_usable_row_gives_no_output(score, tmp_path, rows, why, out):
    """Code 2 and one line: an empty output would be taken for a result."""
    assert why in refusal_of(*score(rows, out=out))
    assert not list(tmp_path.glob(f"{out}*")) or (tmp_path / f"{out}.rejected.jsonl").exists()
    assert not (tmp_path / out).exists()


@pytest.mark.parametrize("command", ["score", "audit"])
def test_a_pipe_loses_no_row_to_the_look_at_what_it_holds(say, tmp_path, command):
    """`rlvr score ENV <(zcat …)`: the first 8 KiB were read, thrown away, and missing."""
    rows = [{**right(number % 9)[0], "label": True} for number in range(500)]
    path = write_json_lines(tmp_path / "in.jsonl", rows)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pipe = f"/dev/fd/{process.stdout.fileno()}"
        code, said = say(command, PLACE, pipe, "-o", tmp_path / "out.jsonl", "--workers", 0)
    assert code == 0, said
    assert "500" in said


def test_options_reach_the_environment(score):
    """Texts where the default is one, JSON otherwise, and where the default does not tell, what it looks like."""
    flags = ["word=7", "size=7", "pair=[3, 4]", "data=path/to.jsonl"]
    flags = [part for flag in flags for part in ("--option", flag)]
    code, _, [row] = score(right(1), *flags, env="tests.environments:Configured")
    assert code == 0
    assert row["config"] == {"word": "7", "size": 7, "pair": [3, 4], "data": "path/to.jsonl"}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--option", "word"], "--option word: write NAME=VALUE, such as --option split=test"),
        (["--option", "size=big"], "--option size=big: 'big' is not a value like 1"),
        (
            ["--option", "wrod=x"],
            "has no option 'wrod'; its options are split, word, size, pair, data; did you mean 'word'?",
        ),
        (["--option", "size=NaN"], "size is float nan; it must be a whole number"),
        (
            ["--workers", "-1"],
            "workers is -1; it must be a whole number from 0 to 1024; 0 to score in this process",
        ),
        (["--wall-s", "0"], "wall_s is 0.0; it must be a number of seconds above 0"),
        (
            ["--memory-mib", "0", "--workers", "1"],
            "memory_mib is 0; it must be a whole number of at least 1",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_setting_that_cannot_work_is_one_line(score, tmp_path, flags, why):
    """The value, the rule and the fix; and no trace of an output."""
    said = refusal_of(*score(right(1), *flags, env="tests.environments:Configured"))
    assert said.startswith("rlvr: ")
    assert why in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("env", "file", "out", "why"),
    [
        ("gsm9k-v1", "in.jsonl", "out.jsonl", "no environment 'gsm9k-v1'"),
        (
            "tests.environments:Gone",
            "in.jsonl",
            "out.jsonl",
            "no environment at 'tests.environments:Gone'",
        ),
        (PLACE, "none.jsonl", "out.jsonl", "none.jsonl: no such file"),
        (PLACE, "bad.parquet", "out.jsonl", "bad.parquet: cannot be read as Parquet"),
        (PLACE, "in.jsonl", "out.csv", "the output must end in .jsonl or .parquet"),
        (PLACE, "in.jsonl", "none/out.jsonl", "there is no folder"),
        (PLACE, "in.jsonl", "in.jsonl", "is the input and would be overwritten"),
        (PLACE, "out.jsonl.rejected.jsonl", "out.jsonl", "is the input and would be overwritten"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(say, tmp_path, env, file, out, why):
    """And what stands in the folder is as it was."""
    for name in ("in.jsonl", "bad.parquet", "out.jsonl.rejected.jsonl"):
        (tmp_path / name).write_text('{"task": 1, "completion": "1"}\n')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert why in refusal_of(
        *say("score", env, tmp_path / file, "-o", tmp_path / out, "--overwrite", "--workers", 0)
    )
    if file != "bad.parquet":  # found while reading
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (
            ["score", PLACE, "folder", "-o", "out.jsonl"],
            "folder: the folder holds no file that ends in .jsonl",
        ),
        (["score", PLACE, "in.jsonl", "-o", "folder"], "folder is a folder; name a file to write"),
        (
            ["score", "folder:Trials", "in.jsonl", "-o", "out.jsonl"],
            "no environment at 'folder:Trials'",
        ),
        (["score", PLACE, "in.jsonl", "-o", ""], ". is a folder; name a file to write"),
        (["filter", "in.jsonl", "-o", "/"], "/ is a folder; name a file to write"),
        (["strength", PLACE, "-o", ""], ". is a folder; name a file to write"),
        (["replay", ""], ". is a folder; give a .jsonl or .parquet file"),
        (["join", "", "-o", "out.jsonl"], ".: there is no such file; name the outputs of"),
        (["replay", "folder"], "folder is a folder; give a .jsonl or .parquet file"),
        (["audit", PLACE, "folder"], "folder is a folder; give a .jsonl or .parquet file"),
        (["audit", PLACE, "in.jsonl", "-o", "folder"], "folder is a folder; name a file to write"),
        (
            ["filter", "folder", "-o", "out.jsonl"],
            "folder is a folder; give a .jsonl or .parquet file",
        ),
        (["filter", "in.jsonl", "-o", "folder"], "folder is a folder; name a file to write"),
        (
            ["filter", "in.jsonl", "-o", "out.jsonl", "--tests", "folder"],
            "folder is a folder; give a .jsonl",
        ),
        (["plot", "in.jsonl"], "in.jsonl is a file; give the folder of a run"),
        (
            ["train", "--env", PLACE, "--model", "none", "--run", "in.jsonl"],
            "in.jsonl is a file; give --run a folder",
        ),
        (["plot", "folder", "-o", "folder"], "folder is a folder; name a file to write"),
        (
            ["eval", PLACE, "--model", "none", "-o", "folder"],
            "folder is a folder; name a file to write",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_folder_for_a_file_is_one_line(say, tmp_path, monkeypatch, argv, why):
    """And a file for a folder: the path and what is expected there."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.jsonl").write_text('{"task": 1, "completion": "1"}\n')
    monkeypatch.chdir(tmp_path)
    assert why in refusal_of(*say(*argv))


def test_an_error_of_the_disk_is_one_line(score, monkeypatch):
    """Code 2, not Python's 1, which would say "done, but have a look"."""

    def full(self, row):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlvr.cli.score.Journal.write", full)
    code, said, _ = score(right(1))
    assert (code, said) == (
        2,
        "rlvr: [Errno 28] No space left on device (the disk is full; free some of it)\n",
    )


def test_an_environment_that_workers_cannot_rebuild_is_one_line(score, tmp_path):
    """Not a file full of UNSCORED."""
    (tmp_path / "homesick.py").write_text(
        "import os, rlvr\nHOME = os.getpid()\n"
        "class Homesick(rlvr.Environment):\n"
        "    def __setstate__(self, state):\n        raise RuntimeError('only at home')\n"
        "    def task(self, index):\n        return rlvr.Task(str(index), '?')\n"
        "    def verify(self, task, completion):\n        return True\n"
    )
    code, said, _ = score(right(1), "--workers", 1, env=f"{tmp_path / 'homesick.py'}:Homesick")
    assert (code, said) == (2, "rlvr: RuntimeError: only at home\n")


def test_a_reason_full_of_markup_is_shown_as_it_is(capsys):
    """A verifier may put a model's text there: brackets that look like colours, terminal commands, a megabyte."""
    from rich.console import Console

    tally = Tally()
    for why in ("[/bold] [red]x", "\x1b[2J\x07clear", "long " * 200_000, "", "text: [/x]"):
        verdict = rlvr.Verdict(rlvr.Outcome.WRONG, why=why)
        item = rlvr.Item("a", Trials().task(1), rlvr.Completion(""))
        tally.add(rlvr.Scored(item, rlvr.Score(0.0, {"[/part]": 0.0}, verdict)))
    tally.show(Console(width=200))
    said = capsys.readouterr().out
    for words in (
        "[/bold] [red]x",
        "�[2J�clear",
        "long long",
        "…",
        "(no reason given)",
        "[/part]",
        "5 completions",
    ):
        assert words in said
    assert "\x1b[2J" not in said
    assert len(said) < 10_000


# ------------------------------------------------------------------------------ a bad row in a file


def test_bad_rows_in_the_middle_of_a_file_cost_only_themselves(score):
    """A hang, 10 GB, SIGKILL, sys.exit, an exception: exactly those five are UNSCORED."""
    rows = right(*range(60))
    for i, action in enumerate(["hang", "hoard", "kill", "exit", "raise"], 30):
        rows[i]["completion"] += f"@{action}"
    code, said, out = score(rows, "--workers", 2, "--wall-s", 1)
    assert code == 1
    assert [row["id"] for row in out] == [f"line:{i}" for i in range(1, 61)]
    assert [row["id"] for row in out if row["outcome"] != "correct"] == [
        f"line:{i}" for i in range(31, 36)
    ]
    assert [row["why"].partition(":")[0] for row in out[30:35]] == [
        "worker-timeout",
        "worker-error",
        "worker-died",
        "worker-error",
        "worker-error",
    ]
    assert "55" in said
    assert "91.7%" in said  # 55 of 60


# ------------------------------------------------------------------------------------------ replay


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_replay_that_agrees_exits_with_0(score, say, tmp_path, ending):
    """The UNSCORED row is passed over."""
    rows = [*right(1), {"task": 2, "completion": "\ud800"}, {"task": 3, "completion": "3@raise"}]
    score(rows, out=f"out.{ending}")
    code, said = say("replay", tmp_path / f"out.{ending}", "--workers", 1, "--allow", PLACE)
    assert (code, said) == (0, "2 verdicts replayed, 0 differ; 1 unscored records passed over\n")


def edit(path, before, after):
    """Change a file of scores as its owner may: without the checksums."""
    text = "".join(dump_row(row).decode() for row in read_whole(path))
    path.write_text(text.replace(before, after))


def test_a_replay_that_does_not_agree_exits_with_1(score, say, tmp_path):
    """And names record, field and values."""
    score(right(1, 2))
    path = tmp_path / "out.jsonl"
    edit(path, '"answer": "2"', '"answer": "[/red]"')
    code, said = say("replay", path, "--workers", 0, "--allow", PLACE)
    note, *found = said.splitlines()
    assert "out.jsonl has no checksums" in note
    assert (code, found) == (
        1,
        ["line:2: answer was '[/red]', is now '2'", "2 verdicts replayed, 1 differ"],
    )


def test_many_differences_do_not_fill_the_screen(score, say, tmp_path):
    """20 records are shown, all are counted."""
    score(right(*range(50)))
    path = tmp_path / "out.jsonl"
    edit(path, '"value": 1.0', '"value": 0.5')
    code, said = say("replay", path, "--workers", 0, "--allow", PLACE)
    assert code == 1
    assert said.count("value was 0.5, is now 1.0") == 20
    assert "50 verdicts replayed, 50 differ" in said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"id": "a"}\n', "record 'a' is not one that `rlvr score` wrote: it lacks answer"),
        ("{\n", "line 1: not a JSON object"),
        (None, "no such file"),
    ],
)
def test_a_replay_of_what_is_no_record_exits_with_2(say, tmp_path, content, why):
    """One line, as everywhere."""
    path = tmp_path / "out.jsonl"
    if content is not None:
        path.write_text(content)
    assert why in refusal_of(*say("replay", path, "--workers", 0, "--allow", PLACE))


def test_a_replay_that_is_interrupted_exits_with_130(say, tmp_path, monkeypatch):
    """It has nothing to resume, and does not say so."""

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "replay", interrupted)
    (tmp_path / "out.jsonl").touch()
    assert say("replay", tmp_path / "out.jsonl", "--allow", PLACE) == (130, "interrupted\n")


# ------------------------------------------------------------------------------------------ envs


def test_environments_are_listed_with_their_options(say, monkeypatch):
    """All that are registered, those of plugins too."""
    monkeypatch.setattr(envs, "environment_ids", lambda: ["tests.environments:Configured"])
    code, said = say("envs")
    assert code == 0
    assert "tests.environments:Configured" in said
    assert "An option of every kind" in said
    code, said = say("envs", "tests.environments:Configured")
    assert code == 0
    for words in ("word", "'tea'", "size", "data", "None"):
        assert words in said


def test_a_plugin_that_cannot_be_loaded_does_not_hide_the_others(say, monkeypatch):
    """Code 1; whatever it raises is in its line."""

    class Blank(Trials):
        """ """

    def load(name):
        if name == "broken-v1":
            raise RuntimeError("[/no] such module")
        return Blank

    monkeypatch.setattr(envs, "environment_ids", lambda: ["blank-v1", "broken-v1"])
    monkeypatch.setattr(envs, "load", load)
    code, said = say("envs")
    assert code == 1
    assert "blank-v1" in said
    assert "cannot be loaded: [/no] such module" in said


def test_a_bug_is_shown_whole_and_exits_with_3(say, monkeypatch):
    """Not with 1, which says that the work is done."""
    monkeypatch.setattr("rlvr.cli.envs.environment_ids", lambda: 1 / 0)
    code, text = say("envs")
    assert code == 3
    assert "ZeroDivisionError: division by zero" in text


# ------------------------------------------------------------------------------------------ streams


def test_reports_go_to_stdout_and_complaints_to_stderr(score, say, tmp_path, monkeypatch):
    """So that `rlvr envs > list` holds the list, and a log of errors the errors."""
    score([*right(1), {"task": 2}])
    assert "1 completions" in say.out
    assert "written to" in say.out
    assert "left out: " in say.err
    assert "left out" not in say.out
    say("replay", tmp_path / "out.jsonl", "--workers", 0, "--allow", PLACE)
    assert (say.out, say.err) == ("1 verdicts replayed, 0 differ\n", "")
    monkeypatch.setattr(envs, "environment_ids", lambda: [PLACE])
    for command in ("envs", "--version"):
        say(command)
        assert say.out
        assert not say.err
    say("replay", tmp_path / "none.jsonl", "--allow", PLACE)
    assert (say.out, say.err.count("\n")) == ("", 1)


def test_the_module_is_the_command():
    """For who has no scripts on the path."""
    done = subprocess.run(
        [sys.executable, "-m", "rlvr", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "rlvr", "")


def test_why_everything_is_unscored_is_said_in_full(score):
    """The table has the reason's first word alone; equal texts are said once."""
    code, said, _ = score([{"task": i, "completion": f"{i}@raise"} for i in range(3)])
    assert code == 1
    assert said.count("unscored: worker-error: RuntimeError: as asked\n") == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "0 verdicts replayed, 0 differ\n"),
        (["1@raise"], "0 verdicts replayed, 0 differ; 1 unscored records"),
    ],
)
def test_a_replay_of_no_verdict_exits_with_1(score, say, tmp_path, rows, said):
    """Nothing was shown by it."""
    (tmp_path / "out.jsonl").touch()
    score([{"task": 1, "completion": text} for text in rows], "--overwrite")
    code, text = say("replay", tmp_path / "out.jsonl", "--workers", 0, "--allow", PLACE)
    assert code == 1
    assert text.startswith(said)


def test_an_environment_that_ends_python_is_no_success(say, tmp_path):
    """`sys.exit()` in code of a user is a bug of it, whatever its code: 0 would read as done."""
    file = tmp_path / "leaves.py"
    file.write_text(
        "import rlvr\n\n\nclass Leaves(rlvr.Environment):\n    def task(self, index):\n"
        "        raise SystemExit(0)\n\n    def verify(self, task, completion): ...\n"
    )
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"task": 0, "completion": "x"}\n')
    for command in (("score", rows, "-o", out, "--workers", 0), ("check", "--tasks", 1)):
        code, said = say(command[0], f"{file}:Leaves", *command[1:])
        assert (code, "SystemExit: 0" in said) == (3, True), (command, said)
        assert not out.exists()


def test_a_closed_stdout_takes_nothing_and_ends_no_command(monkeypatch, tmp_path, capsys):
    """`rlvr … >&-`, as some services start programs: Python then has none."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": 1, "completion": "1"}\n')
    monkeypatch.setattr("sys.stdout", None)
    assert main(["--version"]) == 0
    assert main(["score", PLACE, str(rows), "-o", "-", "--workers", "0"]) == 2
    assert "-o - writes to stdout, which is closed; give -o a file" in capsys.readouterr().err
