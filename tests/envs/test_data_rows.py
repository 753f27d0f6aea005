"""Rows of public data sets under the environments that also draw tasks of their own."""

from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.errors import DataWarning
from tests.json_lines import write_json_lines

CREATE = "CREATE TABLE pets (name TEXT); INSERT INTO pets VALUES ('Rex'), ('Ida'), ('Tom');"
ZEBRA = {"header": ["House", "Name"], "rows": [["1", "Ann"], ["2", "Bob"]]}
ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("countdown-v4", {"nums": [44, 19, 35], "target": 98}, r"\\boxed{44+19+35}", r"\\boxed{98}"),
    (
        "sudoku-v4",
        {"puzzle": "1...4..1.1..3..."},
        "1234\n4321\n2143\n3412",
        "1234\n4321\n2143\n3411",
    ),
    ("zebra-v4", {"puzzle": "Two houses.", "solution": ZEBRA}, "Ann\nBob", "Bob\nAnn"),
    ("json-v4", {"prompt": "One.", "completion": '{"a": 1}'}, '{"a": 1}', '{"a": 2}'),
    ("json-v4", {"prompt": "One.", "values": {"/a": 1}}, '{"a": 1}', '{"b": 1}'),
    (
        "sql-v4",
        {"sql_prompt": "How many pets?", "sql_context": CREATE, "sql": "SELECT COUNT(*) FROM pets"},
        "SELECT COUNT(name) FROM pets",
        "SELECT 3",
    ),
    ("qa-v4", {"prompt": "Capital of France?", "reference": "Paris"}, "Paris", "Lyon"),
]


def _env(name: str, path: Path, *rows: dict[str, Any]) -> Any:
    write_json_lines(path, rows)
    return rlvr.make(name, data=str(path), split="all")


@pytest.mark.parametrize(("name", "row", "right", "wrong"), ROWS)
def test_a_row_of_a_data_set_is_a_task(
    name: str, row: dict[str, Any], right: str, wrong: str, tmp_path: Path
):
    """A right answer to it is paid and a wrong one is not; a row of nothing of it is left out."""
    env = _env(name, tmp_path / "rows.jsonl", *[row] * 30, {"other": 1})
    with pytest.warns(DataWarning, match="1 of 31 rows"):
        assert env.size == 30
    task = env.task(29)
    assert task.id == f"{name}/all/29"
    tagged = (
        f"<answer>\n{text}\n</answer>" if "boxed" not in text else text for text in (right, wrong)
    )
    assert [env.score(task, text).verdict.correct for text in tagged] == [True, False]


def test_rows_that_the_schema_inserts_are_not_shown(tmp_path: Path):
    """The model would write them down instead of a query."""
    env = _env("sql-v4", tmp_path / "rows.jsonl", ROWS[5][1])
    assert "CREATE TABLE pets" in env.task(0).prompt
    assert "Rex" not in env.task(0).prompt


def test_a_hidden_solution_is_left_out(tmp_path: Path):
    """ZebraLogicBench hides its solutions behind `___`, which any answer would be compared with."""
    hidden = {"header": ["House", "Name"], "rows": [["1", "___"], ["2", "___"]]}
    env = _env("zebra-v4", tmp_path / "rows.jsonl", {"puzzle": "x", "solution": hidden})
    with pytest.raises(rlvr.DataError, match="hidden"):
        env.task(0)


def test_two_rows_with_one_key_are_one_task(tmp_path: Path):
    """Ids are unique; the second row is left out and counted, instead of stopping the run."""
    row = {"id": "x", "query": "q", "tools": '[{"name": "f"}]'}
    row["answers"] = '[{"name": "f", "arguments": {}}]'
    rows = [{**row, "id": str(number)} for number in range(29)]
    env = _env("function-call-v4", tmp_path / "rows.jsonl", *rows, rows[3])
    with pytest.warns(DataWarning, match="another row has the id '3' too"):
        assert env.size == 29
