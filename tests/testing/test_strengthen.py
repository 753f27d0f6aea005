"""`rlvr strength --strengthen`: cases in the data set's own columns, right work kept, a manifest."""

import hashlib
import json

import pytest

import rlvr
from rlvr.cli.entry import main
from rlvr.testing.strengthen import Mending, SourceRows, write_strengthened
from tests.json_lines import read_json_lines, write_json_lines

ABOVE = {
    "task_id": "above",
    "prompt": 'def above(items: list, limit: int):\n    """How many items are greater than the limit."""\n',
    "canonical_solution": "    return sum(1 for item in items if item > limit)\n",
    "test": "def check(candidate):\n    assert candidate([1, 5, 9], 3) == 2\n    assert candidate([4, 8], 2) == 2\n"
    "    assert candidate([7, 7, 1], 2) == 2\n",
    "entry_point": "above",
    "author": "own",
}
TWICE = {
    "task_id": "twice",
    "prompt": 'def twice(n: int):\n    """Twice the number."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n    assert candidate(-4) == -8\n",
    "entry_point": "twice",
}
SLIP = "```python\ndef above(items, limit):\n    return sum(item >= limit for item in items)\n```"


def _command(tmp_path, completions, data="rows.jsonl", works=1):
    written = write_json_lines(tmp_path / "written.jsonl", completions)
    args = ["strength", "humaneval-v3", "--option", f"data={tmp_path / data}", "--every"]
    args += ["--works", str(works), "--workers", "0", "--completions", str(written), "--overwrite"]
    args += ["-o", str(tmp_path / "report.json"), "--strengthen", str(tmp_path / "more.jsonl")]
    return main(args)


def test_the_copy_refutes_what_was_paid_and_is_the_same_elsewhere(tmp_path, capsys):
    """One row gets one assert; prompt, other columns and the other row stay; measured again, nothing is paid."""
    write_json_lines(tmp_path / "rows.jsonl", [ABOVE, TWICE])
    slip = {"task_id": "above", "completion": SLIP}
    assert _command(tmp_path, [slip]) == 1
    first, second = read_json_lines(tmp_path / "more.jsonl")
    assert second == TWICE
    assert {name: first[name] for name in ABOVE if name != "test"} == {
        name: value for name, value in ABOVE.items() if name != "test"
    }
    assert first["test"].startswith(ABOVE["test"])
    assert first["test"].count("assert") == 4
    manifest = json.loads((tmp_path / "more.manifest.json").read_text())
    [entry] = manifest["tasks"]
    assert (entry["task"], entry["row"], entry["why"]) == ("above", 0, "")
    assert [case["operator"] for case in entry["cases"]] == ["model"]
    assert manifest["sha256"] == hashlib.sha256((tmp_path / "more.jsonl").read_bytes()).hexdigest()
    assert "1 cases added to 1 of 1 weak tasks" in capsys.readouterr().out
    (tmp_path / "more.jsonl").rename(tmp_path / "next.jsonl")
    assert _command(tmp_path, [slip], "next.jsonl") == 0


def test_a_case_that_a_completion_labelled_right_fails_is_dropped(tmp_path, capsys):
    """Somebody says that >= is right too: the task stays as it is, and the manifest says why."""
    write_json_lines(tmp_path / "rows.jsonl", [ABOVE])
    paid = {"task_id": "above", "completion": SLIP}
    right = {"task_id": "above", "completion": SLIP.replace("item >=", "x >=").replace("item", "x")}
    assert _command(tmp_path, [paid, right | {"label": "correct"}]) == 1
    assert json.loads((tmp_path / "more.jsonl").read_text()) == ABOVE
    [entry] = json.loads((tmp_path / "more.manifest.json").read_text())["tasks"]
    assert entry["why"] == "right work fails it"
    assert "above is left: right work fails it" in capsys.readouterr().out


def _parsed(value):
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


@pytest.mark.parametrize(
    ("env_id", "row", "more", "column"),
    [
        (
            "mbpp-v3",
            {"task_id": 7, "text": "Twice.", "code": "def f(n): return 2 * n", "test_list": ["assert f(1) == 2"]},
            lambda old: {**old, "test": old["test"] + "\nassert f(3) == 6"},
            {"test_list": ["assert f(1) == 2", "assert f(3) == 6"]},
        ),
        (
            "code-stdio-v3",
            {"question": "Twice.", "input_output": json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [2]})},
            lambda old: {**old, "inputs": [[1], [3]], "outputs": [2, 6]},
            {"input_output": {"fn_name": "f", "inputs": [[1], [3]], "outputs": [2, 6]}},
        ),
        (
            "sql-v4",
            {"question": "All.", "schema": "CREATE TABLE t (a INTEGER);", "query": "SELECT a FROM t",
             "fillings": [{"t": [[1]]}, {"t": [[2]]}]},
            lambda old: {**old, "fillings": [*old["fillings"], {"t": [[3]]}]},
            {"fillings": [{"t": [[1]]}, {"t": [[2]]}, {"t": [[3]]}]},
        ),
    ],
)  # fmt: skip
def test_cases_stand_in_the_columns_that_the_data_set_has(tmp_path, env_id, row, more, column):
    """Lists of asserts, inputs and outputs in one JSON text, fillings: each row reads as the new reference."""
    env = rlvr.make(env_id, data=str(write_json_lines(tmp_path / "rows.jsonl", [row])))
    task = env.task(0)
    case = {"operator": "own", "given": "3", "expected": "6", "got": "7"}
    done = Mending(more(task.reference), [case])
    record = {"task": task.id, "state": "weak", "mended": done.as_dict()}
    report = {"env": env_id, "config": {}, "seed": 0, "works": 1, "digest": "", "tasks": [record]}
    write_strengthened(SourceRows(env), report, tmp_path / "more.jsonl")
    written = json.loads((tmp_path / "more.jsonl").read_text())
    assert {name: _parsed(value) for name, value in written.items()} == row | column
    [after] = rlvr.make(env_id, data=str(tmp_path / "more.jsonl")).tasks()
    assert after.reference == more(task.reference)
    assert after.prompt == task.prompt


def test_a_row_without_a_column_for_cases_is_left_with_the_reason(tmp_path):
    """A reference that no column holds cannot be changed by changing the row."""
    env = rlvr.make("mbpp-v3", data=str(write_json_lines(tmp_path / "rows.jsonl", [
        {"task_id": 7, "text": "Twice.", "test_list": ["assert f(1) == 2"]}])))  # fmt: skip
    done = Mending({"test": "something else"}, [{"operator": "own"}])
    record = {"task": "MBPP/7", "state": "weak", "mended": done.as_dict()}
    report = {"env": "", "config": {}, "seed": 0, "works": 1, "digest": "", "tasks": [record]}
    lines = write_strengthened(SourceRows(env), report, tmp_path / "more.jsonl")
    assert "no column for more cases" in lines[-1]


def test_drawn_tasks_have_no_data_to_strengthen(tmp_path, capsys):
    """The refusal comes before anything is measured."""
    args = [
        "strength",
        "sql-v4",
        "-o",
        str(tmp_path / "r.json"),
        "--strengthen",
        str(tmp_path / "m.jsonl"),
    ]
    assert main(args) == 2
    assert "draws its tasks" in capsys.readouterr().err
    assert not (tmp_path / "r.json.part").exists()
