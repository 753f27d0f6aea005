"""code-stdio-v2: each convention of the data sets, over rows of our own."""

import json
from pathlib import Path

import pytest

import rlvr
from rlvr.testing import check_environment

INPUTS, OUTPUTS = ["1 2\n", "5 5\n"], ["3\n", "10\n"]
PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"
APPS = {
    "question": "Add two numbers.",
    "input_output": json.dumps({"inputs": INPUTS, "outputs": OUTPUTS}),
    "solutions": json.dumps([PROGRAM]),
    "starter_code": "",
    "difficulty": "introductory",
}
CALLS = {
    "question": "Add two numbers.",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [5, 5]], "outputs": [[3], [10]]}),
    "solutions": json.dumps(["class Solution:\n    def add(self, a, b):\n        return a + b"]),
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
}
CONTESTS = {
    "description": "Add two numbers.",
    "public_tests": {"input": INPUTS[:1], "output": OUTPUTS[:1]},
    "private_tests": {"input": INPUTS[1:], "output": OUTPUTS[1:]},
    "generated_tests": {"input": [], "output": []},
    "solutions": {"language": [2, 3], "solution": ["int main(){}", PROGRAM]},
    "difficulty": 7,
}
PLAIN = {"prompt": "Add two numbers.", "inputs": INPUTS, "outputs": OUTPUTS, "solutions": [PROGRAM]}
ROWS = [APPS, CALLS, CONTESTS, PLAIN]


def make(tmp_path: Path, rows: list[dict], **options) -> rlvr.SingleTurnEnv:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rlvr.make("code-stdio-v2", data=str(path), **options)


def test_it_keeps_the_contract(tmp_path):
    """The rows' own solutions are correct, junk is not, here and in a worker."""
    left_out = ("hostile-code", "repeats", "episodes")  # tests/testing/test_check_ours.py has these
    check_environment(make(tmp_path, ROWS), tasks=2, skip=(*left_out, "duplicate-tasks"))


def test_every_convention_gives_the_same_cases(tmp_path):
    """Inputs and outputs, wherever they stand."""
    env = make(tmp_path, ROWS)
    wanted = {"inputs": INPUTS, "outputs": OUTPUTS}
    assert [env.task(i).reference for i in (0, 2, 3)] == [wanted] * 3
    assert env.task(1).reference["fn_name"] == "add"
    assert [task.id for task in env.tasks()] == [f"code-stdio-v2/train/{i}" for i in range(4)]
    assert env.task(0).meta["difficulty"] == "introductory"


def test_the_prompt_says_what_to_write(tmp_path):
    """The starter code and the function's name, where there are any."""
    env = make(tmp_path, ROWS)
    assert env.task(0).prompt == "Add two numbers.\n\nAnswer with a whole program in a ```python block."
    assert "class Solution:" in env.task(1).prompt
    assert "called add" in env.task(1).prompt


@pytest.mark.parametrize(
    ("index", "program", "why"),
    [
        (0, "print(3)", "WA: case 2: line 1: '3', not '10'"),
        (0, "a, b = map(int, input().split())\nprint(a + b, '\\n')", "AC"),
        (0, "def add(a, b): return a + b", "WA: case 1: line 1: nothing, not '3'"),
        (1, "def add(a, b): return a + b", "AC"),
        (1, "class Solution:\n    def add(self, a, b): return 3", "WA: case 2: 3, not [10]"),
        (1, "print(3)", "RE: case 1: NameError"),
        (1, "class Solution:\n    def add(self, a: Optional[int], b: int) -> int: return a + b", "AC"),
    ],
)
def test_programs_are_held_to_the_cases(tmp_path, index: int, program: str, why: str):
    """A function will do for a method of `class Solution`."""
    env = make(tmp_path, ROWS)
    assert env.verify(env.task(index), f"```python\n{program}\n```").why.startswith(why)


def test_partial_credit_is_the_fraction_of_cases(tmp_path):
    """One of two."""
    env = make(tmp_path, ROWS, partial=True)
    assert env.verify(env.task(0), "```python\nprint(3)\n```").value == 0.5


def test_comparators_are_chosen_by_name(tmp_path):
    """And a name that is none is refused when the environment is made."""
    row = PLAIN | {"inputs": ["1"], "outputs": ["0.3333333333"]}
    env = make(tmp_path, [row], compare="floats")
    assert env.verify(env.task(0), "```python\nprint(1 / 3)\n```").correct
    with pytest.raises(rlvr.UsageError, match="compare is"):
        rlvr.make("code-stdio-v2", compare="float")


def test_other_languages_read_standard_input_too(tmp_path):
    """Functions are Python's alone."""
    env = make(tmp_path, [PLAIN], language="bash")
    assert env.verify(env.task(0), "```bash\nread a b; echo $((a + b))\n```").correct
    assert "```bash block" in env.task(0).prompt
    assert env.example(env.task(0)) is None
    with pytest.raises(rlvr.DataError, match="takes Python"):
        make(tmp_path, [CALLS], language="bash").task(0)


def test_rows_without_tests_are_left_out(tmp_path):
    """APPS has some; the others keep their numbers."""
    env = make(tmp_path, [APPS | {"input_output": ""}, APPS | {"input_output": None}, APPS])
    assert [task.id for task in env.tasks()] == ["code-stdio-v2/train/2"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "?"}, "no tests among its columns 'question'"),
        (APPS | {"input_output": "{"}, "is no JSON"),
        (APPS | {"question": 3}, "must be a text"),
        (PLAIN | {"outputs": ["3\n"]}, "2 inputs and 1 outputs"),
        (PLAIN | {"inputs": [], "outputs": []}, "no cases"),
        (PLAIN | {"inputs": "12", "outputs": "34"}, "row: 'inputs' is str '12'; it must be a list"),
        ({"question": "?", "public_tests": {"input": "1", "output": "2"}}, "'input' is str '1'; it must be a list"),
        (PLAIN | {"outputs": ["", "\n"]}, "a program that does nothing would pass"),
    ],
)
def test_bad_rows_are_named(tmp_path, row: dict, said: str):
    """With what is the matter."""
    with pytest.raises(rlvr.DataError, match=said):
        make(tmp_path, [PLAIN]).task_from(row)
