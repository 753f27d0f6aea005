"""Scoring files as people have them: by column, by layout, by a verifier alone, from pipes and many files."""

import io
import json
import sys
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr.data.rows import read_whole
from tests.commands import refusal_of
from tests.json_lines import write_json_lines

BOXED = "\\boxed{4}"
FACTORY = """
import rlvr

MANY = [{"id": n, "question": "2 + 2?", "gold": "4"} for n in range(20_000)]

def same(completion, reference):
    return completion == reference

Made = rlvr.Environment.from_rows(MANY, prompt="question", reference="gold", verifier=same)

def factory():
    return Made

def broken():
    return MANY

def judge(completion, reference):
    return completion.strip() == reference
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_doors.py").write_text(FACTORY)
    yield str(tmp_path / "own_doors.py")
    sys.modules.pop("own_doors", None)


def outcomes(path) -> dict:
    return {row["id"]: row["outcome"] for row in read_whole(path)}


def test_a_verifier_alone_scores_a_table(say, tmp_path):
    """No environment, the columns as they are called there."""
    (tmp_path / "a.csv").write_text(f"name,gold,said\nx,4,{BOXED}\ny,5,{BOXED}\n")
    flags = [
        "--reference-column",
        "gold",
        "--completion-column",
        "said",
        "--id-column",
        "name",
        "--workers",
        0,
    ]
    code, said = say(
        "score", "--verifier", "math", tmp_path / "a.csv", "-o", tmp_path / "out.jsonl", *flags
    )
    assert code == 0, said
    assert outcomes(tmp_path / "out.jsonl") == {"x": "correct", "y": "wrong"}
    assert say("replay", tmp_path / "out.jsonl", "--workers", 0) == (
        0,
        "2 verdicts replayed, 0 differ\n",
    )


def test_bare_answers_and_lists_of_them(say, tmp_path):
    """Each answer of a list is a completion of the same task."""
    rows = [{"id": "q", "reference": "4", "completion": ["4", "5", BOXED]}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    argv = [
        "score",
        "--verifier",
        "math",
        "--bare",
        tmp_path / "a.json",
        "-o",
        tmp_path / "out.jsonl",
        "--workers",
        0,
    ]
    assert say(*argv)[0] == 0
    assert outcomes(tmp_path / "out.jsonl") == {"q/0": "correct", "q/1": "wrong", "q/2": "correct"}
    assert {row["task"] for row in read_whole(tmp_path / "out.jsonl")} == {"q"}


def test_several_files_are_one_input(say, tmp_path, monkeypatch):
    """By a pattern; rows without an id are named by file and row, and a stopped run goes on in the right one."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        row = {"reference": "4", "completion": BOXED}
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n")
    argv = ["score", "--verifier", "math", "[ab].jsonl", "-o", "out/whole.jsonl", "--workers", 0]
    (tmp_path / "out").mkdir()
    assert say(*argv)[0] == 0
    whole = (tmp_path / "out" / "whole.jsonl").read_bytes()
    assert list(outcomes(tmp_path / "out" / "whole.jsonl")) == [
        "a.jsonl:1",
        "a.jsonl:2",
        "b.jsonl:1",
        "b.jsonl:2",
    ]
    (tmp_path / "out" / "whole.jsonl").unlink()
    (tmp_path / "out" / "whole.jsonl.partial").write_bytes(
        b"".join(whole.splitlines(keepends=True)[:3])
    )
    assert say(*argv, "--resume")[0] == 0
    assert (tmp_path / "out" / "whole.jsonl").read_bytes() == whole


def test_pipes_both_ways(say, tmp_path, monkeypatch):
    """JSON lines on stdout and nothing else there."""
    content = json.dumps({"reference": "4", "completion": BOXED}).encode() + b"\n{\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    code, _ = say("score", "--verifier", "math", "-", "-o", "-", "--workers", 0)
    [line] = say.out.splitlines()
    assert (code, json.loads(line)["outcome"]) == (1, "correct")
    assert "-, line 2" in say.err
    assert "1 rows left out\n" in say.err
    assert "what went to stdout cannot be resumed" in refusal_of(
        *say("score", "--verifier", "math", "-", "-o", "-", "--resume")
    )


def test_a_peek_shows_how_rows_are_read(say, tmp_path):
    """Nothing is scored, and no output is needed."""
    rows = [
        {"gts": "4", "input": "2 + 2?", "output": BOXED, "score": 1.0, "step": 1},
        {"input": "no output"},
    ]
    write_json_lines(tmp_path / "a.jsonl", rows)
    code, said = say(
        "score", "--verifier", "math", "--like", "verl", tmp_path / "a.jsonl", "--peek"
    )
    assert code == 0
    for words in (
        'reference  "4"',
        f"completion {BOXED}",
        "prompt     2 + 2?",
        "passed on  score, step",
        "cannot be used",
    ):
        assert words in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("name", ["Made", "factory"])
def test_an_environment_that_is_an_object_can_be_named(say, tmp_path, own, name):
    """As `from_rows` makes one; its records replay."""
    (tmp_path / "a.jsonl").write_text(
        '{"task": 7, "completion": "4"}\n{"reference": "5", "completion": "4"}\n'
    )
    assert say("score", f"{own}:{name}", "a.jsonl", "-o", "out.jsonl", "--workers", 0)[0] == 0
    assert list(outcomes("out.jsonl").values()) == ["correct", "wrong"]
    assert say("replay", "out.jsonl", "--workers", 0, "--allow", f"{own}:{name}") == (
        0,
        "2 verdicts replayed, 0 differ\n",
    )
    assert "is an environment as it is and has no option 'split'" in refusal_of(
        *say("score", f"{own}:{name}", "a.jsonl", "-o", "b.jsonl", "--option", "split=test")
    )


@pytest.mark.parametrize(
    ("name", "why"), [("MANY", "is list [{'id': 0"), ("broken", "which gave list [{'id'")]
)
def test_an_error_about_an_object_is_short(say, tmp_path, own, name, why):
    """Not with a megabyte of its rows."""
    (tmp_path / "a.jsonl").write_text('{"reference": "4", "completion": "4"}\n')
    said = refusal_of(*say("score", f"{own}:{name}", "a.jsonl", "-o", "out.jsonl"))
    assert why in said
    assert len(said) < 600


def test_a_function_of_ones_own_is_a_verifier(say, tmp_path, own):
    (tmp_path / "a.jsonl").write_text('{"reference": "4", "completion": " 4"}\n')
    assert (
        say("score", "--verifier", f"{own}:judge", "a.jsonl", "-o", "out.jsonl", "--workers", 0)[0]
        == 0
    )
    assert list(outcomes("out.jsonl").values()) == ["correct"]
    assert "no verifier 'maths'; there is math, gsm8k, text, code" in refusal_of(
        *say("score", "--verifier", "maths", "a.jsonl", "-o", "b.jsonl")
    )


def test_errors_name_the_option_that_maps_a_column(say, tmp_path):
    """Data sets call the answer many things."""
    write_json_lines(tmp_path / "a.jsonl", [{"problem": "?", "target": "4", "completion": BOXED}])
    assert "--reference-column target takes it from there" in refusal_of(
        *say("score", "math-v4", tmp_path / "a.jsonl", "-o", tmp_path / "out.jsonl")
    )


def test_a_file_that_changes_while_it_is_read_is_named(say, tmp_path, monkeypatch):
    """The scores stay, and the exit code says that something needs attention."""
    path = write_json_lines(tmp_path / "a.jsonl", [{"reference": "4", "completion": BOXED}])
    finish = "rlvr.data.rows.Journal.finish"
    from rlvr.data.rows import Journal

    whole = Journal.finish

    def late(self, notes):
        path.write_text("{}\n{}\n")
        whole(self, notes)

    monkeypatch.setattr(finish, late)
    code, said = say(
        "score", "--verifier", "math", path, "-o", tmp_path / "out.jsonl", "--workers", 0
    )
    assert code == 1
    assert f"{path} was changed while it was read" in said


def test_a_column_that_is_sometimes_a_text_and_sometimes_a_list(say, tmp_path):
    """Each row is read as what it holds; one that holds no text is named, and the rest goes on."""
    said = [
        BOXED,
        [BOXED, "5"],
        4,
        [4, "x"],
        [{"role": "assistant", "content": BOXED}],
        [],
        {"content": None},
        BOXED,
    ]
    rows = [
        {"id": str(n), "reference": ["4"] if n == 4 else "4", "completion": text}
        for n, text in enumerate(said)
    ]
    write_json_lines(tmp_path / "in.jsonl", rows)
    argv = [
        "score",
        "--verifier",
        "math",
        tmp_path / "in.jsonl",
        "-o",
        tmp_path / "out.jsonl",
        "--workers",
        0,
    ]
    code, out = say(*argv)
    assert code == 1
    assert list(outcomes(tmp_path / "out.jsonl")) == ["0", "1/0", "1/1", "4", "7"]
    assert [
        line.partition("in.jsonl, ")[2].partition(":")[0]
        for line in out.splitlines()
        if "left out:" in line
    ] == [f"line {n}" for n in (3, 4, 6, 7)]


def test_what_other_tools_put_into_parquet_is_passed_on(say, tmp_path):
    """No column that nothing asks for costs its row: bytes, decimals, durations, days and categories."""
    columns = {
        "said": [BOXED],
        "gold": [Decimal("4.0")],
        "image": [b"\x00\xff"],
        "price": [Decimal("1.50")],
        "took": [timedelta(seconds=3)],
        "when": [datetime(2026, 1, 1)],
        "nested": [{"raw": [b"x"], "n": float("nan")}],
        "kind": pa.array(["a"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    argv = [
        "score",
        "--verifier",
        "math",
        "--reference-column",
        "gold",
        "--completion-column",
        "said",
    ]
    code, out = say(*argv, tmp_path / "in.parquet", "-o", tmp_path / "out.jsonl", "--workers", 0)
    assert code == 0, out
    [row] = read_whole(tmp_path / "out.jsonl")
    assert (row["outcome"], row["reference"]) == ("correct", "4.0")
    passed = {
        "image": "AP8=",
        "price": "1.50",
        "took": "0:00:03",
        "when": "2026-01-01T00:00:00",
        "kind": "a",
    }
    assert row["row"] == passed | {"nested": {"raw": ["eA=="], "n": None}}


def test_numbers_and_texts_are_different_ids(say, tmp_path):
    """And what no record can hold is passed on as null or as text, where nothing depends on it."""
    rows = '{"id": 1, "x": NaN, %s}\n{"id": "1", %s}\n{"id": 1, %s}\n'.replace(
        "%s", '"reference": "4", "completion": "4"'
    )
    (tmp_path / "a.jsonl").write_text(rows)
    argv = ["score", "--verifier", "math", "--bare", tmp_path / "a.jsonl", "--workers", 0, "-o"]
    code, said = say(*argv, tmp_path / "out.jsonl")
    assert code == 1
    assert "line 3: the id 1 was there before" in said
    assert [(row["id"], row["row"]) for row in read_whole(tmp_path / "out.jsonl")] == [
        (1, {"x": None}),
        ("1", {}),
    ]
    assert say(*argv, tmp_path / "out.parquet")[0] == 1
    assert [row["id"] for row in read_whole(tmp_path / "out.parquet")] == ["1", "1"]
