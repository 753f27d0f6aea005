"""Names that somebody else chose: shown as they are, and harmless on a terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from rlvr.cli import main
from rlvr.cli.commands import COMMANDS
from rlvr.console import PlainConsole, Plainly, label_text
from rlvr.text import one_line

NAME = "a:fire:[red]b[/]\nc\u202ed\udcff\x1b[31m"
"""A picture, markup, a line break, a mark that turns the text round, a byte that is no UTF-8, a colour."""

FORBIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\ud800-\udfff\x1b\U0001f525]")

ROWS = [
    '{"task": "arithmetic-v1/train/0", "completion": "5", "index": 0, "sample": 0, "label": true}\n',
]

ARGUMENTS = {
    "score": [
        ["NAME", "ROWS"],
        ["arithmetic-v1", "NAME"],
        ["arithmetic-v1", "NAME:train"],
        ["arithmetic-v1", "ROWS", "-o", "NONE/NAME"],
        ["arithmetic-v1", "ROWS", "-o", "OUT", "--option", "NAME=1"],
        ["arithmetic-v1", "ROWS", "-o", "OUT", "--option", "operations=NAME"],
        ["arithmetic-v1", "ROWS", "-o", "OUT", "--sandbox", "NAME"],
        ["arithmetic-v1", "ROWS", "-o", "OUT", "--scorer", "NAME"],
        ["arithmetic-v1", "ROWS", "-o", "OUT", "--completion-column", "NAME"],
        ["ROWS", "-o", "OUT", "--verifier", "NAME"],
    ],
    "join": [["NAME", "-o", "OUT"]],
    "replay": [["NAME"]],
    "check": [["NAME"], ["arithmetic-v1", "--option", "NAME=1"]],
    "strength": [["NAME", "-o", "OUT"]],
    "init": [["NAME"], ["good-name", "--folder", "NAME"]],
    "audit": [
        ["NAME", "ROWS"],
        ["arithmetic-v1", "NAME"],
        ["arithmetic-v1", "ROWS", "--label", "NAME"],
        ["arithmetic-v1", "ROWS", "--by", "NAME"],
        ["--yardstick", "NAME"],
    ],
    "filter": [
        ["NAME", "-o", "OUT", "--max-rate", "0.5"],
        ["ROWS", "-o", "OUT", "--tests", "NAME"],
        ["ROWS", "-o", "OUT", "--tokenizer", "NAME", "--max-tokens", "9"],
    ],
    "pairs": [["NAME", "-o", "OUT"]],
    "process-labels": [["NAME", "--model", "m", "-o", "OUT"]],
    "train": [
        ["NAME"],
        ["--config", "NAME"],
        ["--env", "NAME", "--model", "m", "--run", "OUT"],
        ["--env", "arithmetic-v1", "--model", "NAME", "--run", "OUT"],
        ["--env", "arithmetic-v1", "--model", "m", "--run", "OUT", "--algorithm", "NAME"],
    ],
    "eval": [["NAME", "--model", "m"], ["arithmetic-v1", "--model", "NAME"]],
    "compare": [["NAME", "ROWS"], ["NAME=NAME", "ROWS"]],
    "plot": [["NAME"]],
    "view": [["NAME", "--export", "page.html"], ["NAME:train", "--export", "page.html"]],
    "serve": [["NAME"], ["arithmetic-v1", "--keys", "NAME"], ["--reward-model", "NAME"]],
    "envs": [],
    "verifiers": [],
    "recipes": [["NAME"], ["NAME.toml"]],
    "rewards": [],
    "identity": [["NAME"]],
    "algorithms": [["NAME"], ["NAME.py:Mine"]],
    "step": [["verify", "NAME"]],
    "whatif": [["NAME", "--verifier", "math"]],
    "referee": [["NAME"]],
    "doctor": [],
}
"""By command, one list for each argument that is a name; `envs`, `verifiers`, `rewards` and `doctor` take none."""


def test_the_table_holds_all_commands():
    """A new command gets its rows here."""
    assert ARGUMENTS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", [name for name, rows in ARGUMENTS.items() if rows])
def test_an_error_names_exactly_what_was_asked_for(command, say, tmp_path, monkeypatch):
    """On one line, with what is not printable escaped; and it is no traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(ROWS))
    words = {"ROWS": "rows.jsonl", "OUT": "out.jsonl"}
    for row in ARGUMENTS[command]:
        argv = [words.get(word, word).replace("NAME", NAME) for word in row]
        try:
            code, said = say(command, *argv)
        except SystemExit as refused:  # of the parser
            code, said = refused.code, ""
        done = row[0] == "good-name"  # made where it was asked for
        assert code in ((0,) if done else (1, 2)), (row, said)
        assert not FORBIDDEN.search(said), (row, said)
        named = any(text in said for text in (one_line(NAME), repr(NAME)[1:-1]))
        assert named, (row, said)


def test_tables_lines_and_labels_show_a_name_as_it_is():
    """On our own console, and on a caller's that reads markup."""
    table = Table("name", title=NAME)
    table.add_row(NAME)
    for console in (
        PlainConsole(file=io.StringIO(), width=200),
        Console(file=io.StringIO(), width=200),
    ):
        console.print(Plainly(table))
        console.print(Plainly(NAME), soft_wrap=True)
        console.print(label_text("note:", NAME), soft_wrap=True)
        shown = console.file.getvalue()
        assert shown.count(":fire:[red]b[/]") == 4
        assert not FORBIDDEN.search(shown)
        assert f"note: {one_line(NAME)}\n" in shown


def test_a_terminal_that_is_no_unicode_gets_escapes(say, monkeypatch, tmp_path):
    """An encoding that lacks a letter of a name ends no command."""
    import sys

    from rlvr.cli import main

    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", written)
    path = tmp_path / "größe.jsonl"
    path.write_text(ROWS[0])
    assert main(["score", "arithmetic-v1", str(path), "--peek"]) == 0
    assert rb"gr\xf6\xdfe.jsonl" in written.buffer.getvalue()


def test_no_other_console_is_made():
    """One that reads markup would need every text escaped, at each place."""
    root = Path(__file__).parents[2]
    sources = [path for room in ("rlvr", "recipes") for path in (root / room).rglob("*.py")]
    other = re.compile(r"\bConsole\((?!Console)|rich\.markup|Text\.from_markup")
    found = [path.name for path in sources if other.search(path.read_text())]
    assert sources
    assert found == []


@pytest.mark.parametrize(
    "argv",
    [
        "compare LOOP ROWS",
        "view LOOP --export OUT.html",
        "score arithmetic-v1 LOOP -o OUT.jsonl",
        "audit arithmetic-v1 LOOP -o OUT.json",
        "filter LOOP -o OUT.jsonl",
        "replay LOOP",
        "step show LOOP",
    ],
)
def test_a_link_that_leads_in_a_circle_is_one_line(argv, tmp_path, capsys):
    """Python before 3.13 has an error of its own for it, which was shown with its traceback."""
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "rows.jsonl").write_text("".join(ROWS))
    for name, path in (("LOOP", "loop.jsonl"), ("ROWS", "rows.jsonl"), ("OUT", "out")):
        argv = argv.replace(name, str(tmp_path / path))
    assert main(argv.split()) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop.jsonl", "rows.jsonl"]
