"""Environments out of rows, and rows of completions that say which task they answer."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import rlvr
import rlvr.testing
from rlvr import Correct, Environment, Task, Verdict
from tests.rewards.parts import refusal


class Words(Environment):
    """A finite set."""

    def tasks(self) -> Iterable[Task]:
        return [Task(f"words/{word}", f"Say {word}.", reference=word) for word in "abc"]

    def verify(self, task: Task, completion: str) -> Verdict:
        return Verdict("correct" if completion == task.reference else "wrong")


ROWS = [
    {"id": "x", "question": "1 + 1?", "answer": "2", "level": 1},
    {"question": "2 + 2?", "answer": "4", "level": 2},
]


def same(completion: str, reference: Any) -> bool:
    """A plain function as verifier."""
    return completion == reference


def from_rows(rows: Any = ROWS, **changes: Any) -> rlvr.RowsEnv:
    return Environment.from_rows(
        rows, **({"prompt": "question", "reference": "answer", "verifier": same} | changes)
    )


def test_rows_are_an_environment():
    """Columns by name; the others are kept as meta; ids from the rows, or made."""
    env = from_rows(id="quiz-v1")
    assert [task.id for task in env.tasks()] == ["x", "quiz-v1/train/1"]
    assert (env.task(1).prompt, env.task(1).reference, env.task(1).meta) == (
        "2 + 2?",
        "4",
        {"level": 2},
    )
    assert env.score(env.task(1), "4").verdict.why == "said-true"
    assert (env.size, env.id, rlvr.RowsEnv.id) == (2, "quiz-v1", "rows-v0")


def test_columns_may_be_functions_of_the_row():
    """Chat messages, a reference that has to be cut out."""
    env = from_rows(
        prompt=lambda row: [{"role": "user", "content": row["question"]}],
        reference=lambda row: int(row["answer"]),
    )
    assert env.task(0).prompt == [{"role": "user", "content": "1 + 1?"}]
    assert env.task(0).reference == 2
    assert env.task(0).meta == ROWS[0]


def test_rows_may_pass_only_once():
    """A generator is kept; going through it twice would find nothing."""
    env = from_rows(row for row in ROWS)
    assert [len(list(env.tasks())), len(list(env.tasks())), env.size] == [2, 2, 2]


def test_rows_may_be_a_file_or_a_data_set(tmp_path: Path):
    """A path, and anything that yields mappings."""
    import datasets

    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    assert from_rows(tmp_path / "rows.jsonl").task(0).reference == "2"
    assert (
        from_rows(datasets.Dataset.from_list([{"id": None, **row} for row in ROWS])).task(1).id
        == "rows-v0/train/1"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verifier": None}, "from_rows: give either verifier=… or reward=…"),
        ({"reward": Correct(same)}, "from_rows: give either verifier=… or reward=…"),
        ({"verifier": rlvr.Verifier}, "is no verifier"),
        (
            {"prompt": None},
            "from_rows: prompt is NoneType None; give a column's name, or a function of the row",
        ),
        ({"reference": 1}, "from_rows: reference is int 1"),
    ],
)
def test_from_rows_says_what_it_takes(changes: dict, message: str):
    """Before any row is looked at."""
    assert message in refusal(lambda: from_rows(**changes))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROWS[0], {"question": "?"}], "row 1 has no column 'answer'; it has 'question'"),
        ([{"q": 1}], "row 0 has no column 'question'; it has 'q'"),
        (["1 + 1?"], "row 0 is str '1 + 1?'; it must be a mapping of columns"),
        ({"question": ["1 + 1?"]}, "row 0 is str 'question'; it must be a mapping of columns"),
        ([ROWS[0], ROWS[0]], "rows-v0: two tasks have the id 'x'; ids must be unique"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(rows: Any, message: str):
    """By its number, with the columns it has."""
    assert message in refusal(lambda: from_rows(rows).size)


def test_a_whole_reward_instead_of_a_verifier():
    """The verifier stands in it."""
    env = from_rows(verifier=None, reward=Correct(same) - 0.5)
    assert env.score(env.task(0), "2").total == 0.5


def test_rows_stay_at_home():
    """A worker is sent the tasks it needs one by one."""
    env = from_rows([{"question": "?" * 1000, "answer": "2"}])
    assert env.size == 1
    assert len(pickle.dumps(env.without_tasks())) < 1000
    assert env.size == 1


# ------------------------------------------------------------------------------ rows of completions


def test_a_row_says_which_task_it_answers():
    """An index or an id; or the reference itself, which then counts; or the data set's own columns."""
    env = Words()
    assert env.task_of({"task": 1}) == env.task_of({"task": "words/b"}) == env.task(1)
    assert env.task_of({"reference": "r", "prompt": "p", "task": "t"}) == Task("t", "p", "r")
    assert env.task_of({"reference": "r"}) == Task("row", "", "r")
    with pytest.raises(
        rlvr.DataError, match="neither 'task' nor 'reference' among its columns 'question'"
    ):
        env.task_of({"question": "?"})


def test_rows_of_completions_may_have_the_environments_own_columns():
    """The task is made of them as it was for the data set, without what belongs to the completion."""
    env = from_rows()
    rows = [
        {
            "id": "a",
            "question": "1 + 1?",
            "answer": "2",
            "level": 1,
            "completion": "2",
            "length_tokens": 1,
        },
        {"question": "1 + 1?", "answer": "2", "completion": "3"},
        {"question": "1 + 1?", "completion": "3"},
    ]
    assert env.task_of(rows[0]) == Task("row", "1 + 1?", "2", {"level": 1})
    refused = []
    scored = list(
        rlvr.score(env, rows, workers=0, on_error=lambda number, error: refused.append(str(error)))
    )
    assert [s.score.total for s in scored] == [1.0, 0.0]
    assert len(refused) == 1
    assert "the row has no column 'answer'; it has 'question'" in refused[0]


def test_siblings_with_ids_of_their_own_are_one_group():
    """Or each would be compared with itself alone."""
    env = from_rows(verifier=None, reward=Correct(same) + rlvr.RelativeLength())
    rows = [{**ROWS[1], "id": f"c{n}", "completion": "4", "length_tokens": n} for n in (10, 20)]
    assert [s.score.total for s in rlvr.score(env, rows, workers=0)] == [1.5, 0.5]


@pytest.mark.parametrize(
    ("example", "text"),
    [
        (None, "\\boxed{2}"),
        ("answer", "2"),
        ("level", 1),
        (lambda task: f"It is {task.reference}.", "It is 2."),
    ],
)
def test_an_example_may_be_a_column_or_a_function_of_the_task(example: Any, text: Any):
    """A verifier that wants no box can be checked too."""
    env = from_rows(example=example)
    assert env.example(env.task(0)) == text


def test_an_environment_out_of_rows_can_be_checked():
    """Here the bare reference is the right completion."""
    rlvr.testing.check_environment(from_rows(example="answer"))
    assert (
        "from_rows: example is int 5; give a column's name, or a function of the task"
        in refusal(lambda: from_rows(example=5))
    )
    env = from_rows(example="solution")
    assert "task 'x' has no column 'solution'; it has 'id', 'level'" in refusal(
        lambda: env.example(env.task(0))
    )


class Solutions(Words):
    """The reference column may hold a whole solution."""

    def reference_of(self, value: Any) -> Any:
        if not isinstance(value, str) or "=" not in value:
            raise rlvr.DataError(f"the reference is {value!r}; it must have a '='")
        return value.rpartition("=")[2].strip()


def test_the_environment_reads_a_rows_reference():
    """Or refuses it, as the fault of that row."""
    assert Solutions().task_of({"reference": "1 + 1 = 2"}).reference == "2"
    with pytest.raises(rlvr.DataError, match="the reference is '2'; it must have a '='"):
        Solutions().task_of({"reference": "2"})
