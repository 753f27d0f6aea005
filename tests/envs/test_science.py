"""science-v4 and chem-v4: procedural, from rows, and each task in one split."""

from itertools import islice
from pathlib import Path

import pytest

import rlvr
from tests.json_lines import write_json_lines

ROWS = {
    "science-v4": (
        {"question": "How fast?", "answer": "5 m/s"},
        "5.0 m/s",
        {"question": "q", "answer": "5 glorps"},
    ),
    "chem-v4": (
        {"question": "Burn it.", "answer": "C + O2 -> CO2"},
        "C + O2 -> CO2",
        {"question": "q", "answer": "->"},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_examples_are_right_and_splits_are_apart(name: str):
    """An unbalanced or empty formula would show here."""
    seen = {}
    for split in ("train", "test"):
        env = rlvr.make(name, split=split)
        tasks = list(islice(env.tasks(), 40))
        assert tasks[:3] == [env.task(index) for index in range(3)]
        for task in tasks:
            assert env.score(task, env.example(task)).total == 1
            assert env.score(task, task.prompt).total == 0
        seen[split] = {task.prompt for task in tasks}
    assert not seen["train"] & seen["test"]


@pytest.mark.parametrize("name", ROWS)
def test_rows_take_the_place_of_problems(name: str, tmp_path: Path):
    """By index too, which a generator would answer with a problem of its own."""
    row, answer, bad = ROWS[name]
    write_json_lines(tmp_path / "rows.jsonl", [row])
    env = rlvr.make(name, data=str(tmp_path / "rows.jsonl"))
    assert env.size == 1
    assert env.task(0) == next(iter(env.tasks()))
    assert env.score(env.task(0), f"<answer>{answer}</answer>").total == 1
    with pytest.raises(rlvr.DataError, match=r"^row: "):
        env.task_from(bad)
    with pytest.raises(rlvr.DataError, match="row: needs 'question' and 'answer'"):
        env.task_from({"text": "x"})


def test_each_kind_of_chemistry_can_be_asked_alone():
    """For a curriculum."""
    for ask, sign in (("equation", "->"), ("mass", "g/mol")):
        env = rlvr.make("chem-v4", ask=ask)
        assert all(sign in task.reference for task in islice(env.tasks(), 10))
