"""The procedural puzzles and multiple choice: solvable, in one split alone, and shuffled by the task."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.verifiers.logic_solvers import sudoku_solutions
from tests.json_lines import write_json_lines

PUZZLES: list[tuple[str, dict[str, Any]]] = [
    ("countdown-v4", {"difficulty": 1}),
    ("countdown-v4", {"difficulty": 5}),
    ("game24-v4", {}),
    ("kk-v4", {"people": 2}),
    ("kk-v4", {"people": 6}),
    ("sudoku-v4", {"difficulty": 5}),
    ("sudoku-v4", {"rows": 9}),
    ("zebra-v4", {"houses": 3, "attributes": 2}),
    ("zebra-v4", {"houses": 4, "attributes": 3}),
]


@pytest.mark.parametrize(("name", "options"), PUZZLES)
def test_every_puzzle_has_its_solution(name: str, options: dict[str, Any]):
    """The example is right, another task's is not, and the same task comes out again."""
    env = rlvr.make(name, **options)
    tasks = list(islice(env.tasks(), 4))
    assert tasks == list(islice(rlvr.make(name, **options).tasks(), 4))
    for task in tasks:
        assert env.score(task, env.example(task)).verdict.correct
        others = [other for other in tasks if other.reference != task.reference]
        assert (
            sum(env.score(task, env.example(other)).verdict.correct for other in others)
            <= len(others) // 2
        )
        json.dumps([task.reference, dict(task.meta)])


@pytest.mark.parametrize(("name", "options"), PUZZLES[:6])
def test_no_puzzle_is_in_two_splits(name: str, options: dict[str, Any]):
    """A hash of the puzzle itself decides, so that a test puzzle is never trained on, however few there are."""
    seen = {
        split: {task.prompt for task in islice(rlvr.make(name, split=split, **options).tasks(), 15)}
        for split in ("train", "test", "validation")
    }
    assert (
        not seen["train"] & seen["test"]
        | seen["train"] & seen["validation"]
        | seen["test"] & seen["validation"]
    )
    with pytest.raises(rlvr.UsageError, match="split is 'dev'"):
        rlvr.make(name, split="dev", **options)


def test_difficulty_empties_cells():
    """A quarter to sixty percent of the cells, as long as one solution is left."""
    empty = []
    for difficulty in (1, 5):
        task = rlvr.make("sudoku-v4", difficulty=difficulty).task(0)
        assert len(sudoku_solutions(task.reference, most=2)) == 1
        empty.append(sum(row.count(0) for row in task.reference))
    assert empty[0] == 8
    assert 14 <= empty[1] <= 21


def test_rows_of_knights_and_knaves(tmp_path: Path):
    """The columns of K-and-K/knights-and-knaves."""
    row = {
        "quiz": "Zoey says: Amelia lies.",
        "names": ["Zoey", "Amelia"],
        "solution": [True, False],
    }
    write_json_lines(tmp_path / "kk.jsonl", [row])
    env = rlvr.make("kk-v4", data=str(tmp_path / "kk.jsonl"))
    task = next(iter(env.tasks()))
    assert task.reference == {"Zoey": "knight", "Amelia": "knave"}
    assert env.score(task, env.example(task)).total == 1
    with pytest.raises(rlvr.DataError, match=r"row: needs 'quiz', 'names' and a 'solution'"):
        env.task_from({"quiz": "x"})


QUESTION = {"question": "Which is prime?", "options": ["4", "7", "9", "15"], "answer": "B"}


def test_options_are_shuffled_by_the_task_and_the_answer_moves_with_them():
    """Gold by text: over twelve tasks the right letter takes several values, and is right each time."""
    env = rlvr.make("mcq-v4", data="none")
    letters = set()
    for index in range(12):
        row = QUESTION | {"question": f"Which of these is prime? ({index})"}
        task = env.task_from(row)
        assert task == env.task_from(row)
        assert task.reference["answer"] == "7"
        assert task.meta["guess_rate"] == 0.25
        assert env.score(task, env.example(task)).total == 1
        letters.add(env.example(task))
    assert len(letters) == 4


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        (QUESTION, "7"),
        (QUESTION | {"answer": 2}, "9"),
        (QUESTION | {"answer": "15"}, "15"),
        (
            {
                "question": "q",
                "choices": {"text": ["x", "y"], "label": ["1", "2"]},
                "answerKey": "2",
            },
            "y",
        ),
        (
            {
                "Question": "q",
                "Correct Answer": "r",
                "Incorrect Answer 1": "s",
                "Incorrect Answer 2": "t",
            },
            "r",
        ),
        ({"question": "q", "correct_answer": "r", "distractor1": "s", "support": "no option"}, "r"),
    ],
)
def test_the_columns_of_known_data_sets(row: dict[str, Any], answer: str):
    """MMLU-Pro, ARC, GPQA and SciQ."""
    assert rlvr.make("mcq-v4", data="none").task_from(row).reference["answer"] == answer


def test_options_that_point_at_others_keep_their_order():
    """ "All of the above" is only right where it stands."""
    row = {"question": "q", "options": ["a1", "b1", "All of the above"], "answer": "C"}
    for index in range(5):
        assert (
            rlvr.make("mcq-v4", data="none").task_from(row, str(index)).reference["options"][2]
            == "All of the above"
        )


def test_an_answer_that_is_no_option_names_the_row():
    """One clear error, with the row and the rule."""
    with pytest.raises(rlvr.DataError, match=r"row: the answer .* is none of the options"):
        rlvr.make("mcq-v4", data="none").task_from(QUESTION | {"answer": "E"})
    with pytest.raises(rlvr.DataError, match=r"row: no list in column 'options'"):
        rlvr.make("mcq-v4", data="none").task_from({"question": "q"})
