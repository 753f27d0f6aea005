"""A row that cannot be used stops no command: it is left out, shown by reason, and kept if there is a file for it."""

import json
from pathlib import Path

import pytest

from rlvr.cli import main
from tests.json_lines import read_json_lines

TASK = {"prompt": "What is one plus two?", "reference": "3"}
RIGHT = TASK | {"task": "a", "completion": "3", "outcome": "correct"}
WRONG = RIGHT | {"completion": "4", "outcome": "wrong"}
BROKEN = [
    "not json\n",
    "[1, 2]\n",
    '{"prompt": NaN\n',
    json.dumps({"reference": "3"}) + "\n",
    json.dumps(RIGHT | {"prompt": 17}) + "\n",
]
COMMANDS = {"filter": [TASK], "pairs": [RIGHT, WRONG]}


def file_of(folder: Path, rows: list[dict], broken: list[str]) -> str:
    """Whole rows with a broken one before each, and one at the end."""
    lines = [json.dumps(row) + "\n" for row in rows]
    mixed = [*broken[: len(lines)], *lines, *broken[len(lines) :]]
    (folder / "in.jsonl").write_text("".join(mixed), encoding="utf-8")
    return str(folder / "in.jsonl")


@pytest.mark.parametrize("command", COMMANDS)
def test_broken_rows_change_nothing_for_the_others(command: str, tmp_path: Path, capsys):
    """The output is that of the whole rows alone."""
    outputs = []
    for name, broken in (("whole", []), ("mixed", BROKEN)):
        folder = tmp_path / name
        folder.mkdir()
        source = file_of(folder, COMMANDS[command], broken)
        assert main([command, source, "-o", str(folder / "out.jsonl")]) == 0
        rows = read_json_lines(folder / "out.jsonl")
        outputs.append([{k: v for k, v in row.items() if k != "id"} for row in rows])
    assert outputs[0] == outputs[1] != []
    assert f"{len(BROKEN)} rows left out" in capsys.readouterr().err


def test_filter_keeps_what_it_left_out(tmp_path: Path):
    """With line, reason and text, beside the tasks that a rule dropped."""
    source = file_of(tmp_path, [TASK, TASK], BROKEN)
    assert main(["filter", source, "-o", str(tmp_path / "out.jsonl")]) == 0
    kept = (tmp_path / "out.jsonl.dropped.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in kept]
    assert sorted(row["line"] for row in rows if "line" in row) == [1, 2, 5, 6, 7]
    assert [row["why"].partition(":")[0] for row in rows if "line" not in row] == ["duplicate"]
    assert "not json\n" in [row.get("text") for row in rows]


@pytest.mark.parametrize("command", COMMANDS)
def test_strict_stops_at_the_first(command: str, tmp_path: Path, capsys):
    source = file_of(tmp_path, COMMANDS[command], BROKEN)
    assert main([command, source, "-o", str(tmp_path / "out.jsonl"), "--strict"]) == 2
    assert "line 1: not a JSON object" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_without_a_usable_row_is_an_error(command: str, tmp_path: Path, capsys):
    """It says what the first one lacks."""
    source = file_of(tmp_path, [], BROKEN)
    assert main([command, source, "-o", str(tmp_path / "out.jsonl")]) == 2
    assert "line 1: not a JSON object" in capsys.readouterr().err
