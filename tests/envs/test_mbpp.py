"""mbpp-v3, over rows of our own in the data set's shape."""

from pathlib import Path

import pytest

import rlvr
from rlvr.testing import check_environment
from tests.json_lines import write_json_lines

ADD = {
    "task_id": 1,
    "text": "Write a function to add two numbers.",
    "code": "def add(a, b):\r\n    return a + b",
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"],
    "challenge_test_list": ["assert add(10**20, 1) == 10**20 + 1"],
}
SUM = {  # a builtin's name, and a module that the tests do not import
    "task_id": 2,
    "text": "Write a function to sum a list, and say how large it is.",
    "code": "import sys\ndef sum(xs):\n    t = 0\n    for x in xs: t += x\n    return t",
    "test_setup_code": "",
    "test_list": ["assert sum([1, 2]) == 3", "assert sum([sys.maxsize]) == sys.maxsize"],
    "challenge_test_list": [],
}
TREE = {  # the setup uses a class of the program
    "task_id": 3,
    "text": "Write a function to find the height of a tree of Nodes.",
    "code": "class Node:\n    def __init__(self, v): self.v, self.left, self.right = v, None, None\n"
    "def height(n): return 0 if n is None else 1 + max(height(n.left), height(n.right))",
    "test_setup_code": "root = Node(1)\r\nroot.left = Node(2)\r\nroot.left.right = Node(3)",
    "test_list": ["assert (height(root)) == 3", "assert (height(root.left)) == 2"],
    "challenge_test_list": [],
}


@pytest.fixture
def env(tmp_path: Path) -> rlvr.Environment:
    path = write_json_lines(tmp_path / "rows.jsonl", (ADD, SUM, TREE))
    return rlvr.make("mbpp-v3", data=str(path))


LEFT_OUT = ("hostile-code", "repeats", "episodes")  # tests/testing/test_check_ours.py has these


def test_it_keeps_the_contract(env):
    """The reference solutions are correct, junk is not, here and in a worker."""
    check_environment(env, tasks=2, skip=LEFT_OUT)


def test_tasks_are_found_by_their_own_ids(env):
    """The number in the data set, with its name before it."""
    assert [task.id for task in env.tasks()] == ["MBPP/1", "MBPP/2", "MBPP/3"]
    assert env.task_of(ADD | {"completion": "…"}) == env.find("MBPP/1")


def test_a_sample_names_its_task_by_the_data_sets_own_number(env):
    """Not by its place, which is one less."""
    assert env.task_of({"task_id": 2, "completion": ""}).id == env.task(1).id == "MBPP/2"


def test_the_prompt_shows_as_many_asserts_as_asked(env):
    """One by default, which names the function: what is shown can be learnt by heart."""
    assert [test in env.task(0).prompt for test in ADD["test_list"]] == [True, False, False]
    every = rlvr.make("mbpp-v3", data=env.data, shown=3)
    assert all(test in every.task(0).prompt for test in ADD["test_list"])
    none = rlvr.make("mbpp-v3", data=env.data, shown=0)
    assert "assert" not in none.task(0).prompt
    with pytest.raises(rlvr.UsageError, match="at least 0"):
        rlvr.make("mbpp-v3", shown=-1)


@pytest.mark.parametrize(
    ("index", "program", "why"),
    [
        (0, "def add(a, b): return 3", "WA: case 2: 3, not 0"),
        (0, "def plus(a, b): return a + b", "RE: case 1: NameError"),
        (0, "class Solution:\n    def add(self, a, b): return a + b", "AC"),
        (1, "def sum(xs): return 3", "WA: "),
        (
            1,
            "class sys: maxsize = 3\ndef sum(xs): return 3",
            "WA: ",
        ),  # the tests have a sys of their own
        (2, TREE["code"].replace("1 + max", "max"), "WA: "),
        (2, "def height(n): return 3", "RE: "),
    ],
)
def test_programs_are_held_to_the_tests(env, index: int, program: str, why: str):
    """Also where the program has to bring a class that the tests use."""
    assert env.verify(env.task(index), f"```python\n{program}\n```").why.startswith(why)


def test_the_challenge_tests_count_if_asked(env):
    """Right for small numbers alone."""
    program = "```python\ndef add(a, b): return int(float(a) + float(b))\n```"
    assert env.verify(env.task(0), program).correct
    harder = rlvr.make("mbpp-v3", data=env.data, challenge=True)
    assert not harder.verify(harder.task(0), program).correct


def test_rows_in_humanevals_shape_will_do(env):
    """Some files of results have them so, with `check` called at the end."""
    row = {
        "task_id": "MBPP/1", "prompt": "def add(a, b):\n    '''Add.'''\n", "entry_point": "add",
        "test": "\ndef check(candidate):\n    assert add(1, 2) == 3\ncheck(add)\n",
    }  # fmt: skip
    task = env.task_of(row | {"completion": "…"})
    assert task.id == "MBPP/1"
    assert env.verify(task, "def add(a, b):\n    return a + b\n").correct
    assert not env.verify(task, "def add(a, b):\n    return a - b\n").correct


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"test_list": []}, "MBPP/1: no tests in column 'test_list'"),
        ({"test_list": None}, "no tests"),
        ({"test_list": [1]}, "must be a list of texts"),
        ({"test_list": 1}, "must be a list of texts"),
        ({"test_list": [" "]}, "MBPP/1: the reference's test is empty"),
        ({"test_list": ["assert ("]}, "its tests cannot be read"),
        ({"text": 3}, "must be a text"),
    ],
)
def test_bad_rows_are_named(env, change: dict, said: str):
    """With what is the matter."""
    with pytest.raises(rlvr.DataError, match=said):
        env.task_from(ADD | change)


def test_the_sanitized_subset_has_its_own_columns(env):
    """`prompt` for `text`, and `test_imports`."""
    row = {
        "task_id": 4, "prompt": "Pi.", "code": "import math\ndef pi(): return math.pi",
        "test_imports": ["import math"], "test_list": ["assert math.isclose(pi(), math.pi)"],
    }  # fmt: skip
    task = env.task_from(row)
    assert task.reference["setup"] == "import math"
    assert env.verify(task, env.example(task)).correct
    assert not env.verify(
        task, "```python\nclass math: isclose = lambda *a: True\ndef pi(): return 3\n```"
    ).correct
