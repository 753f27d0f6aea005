"""code-stdio-v3: each convention of the data sets, over rows of our own."""

import base64
import json
import pickle
import zlib
from pathlib import Path

import pytest

import rlvr
from rlvr.envs.code_dialects import dialect_of
from rlvr.testing import check_environment
from rlvr.verifiers.code import CodeVerifier
from tests.json_lines import write_json_lines

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
    "input_output": json.dumps(
        {"fn_name": "add", "inputs": [[1, 2], [5, 5]], "outputs": [[3], [10]]}
    ),
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


def make(tmp_path: Path, rows: list[dict], **options) -> rlvr.Environment:
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    return rlvr.make("code-stdio-v3", data=str(path), **options)


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
    assert [task.id for task in env.tasks()] == [f"code-stdio-v3/train/{i}" for i in range(4)]
    assert env.task(0).meta["difficulty"] == "introductory"


def test_the_prompt_says_what_to_write(tmp_path):
    """The starter code and the function's name, where there are any."""
    env = make(tmp_path, ROWS)
    assert (
        env.task(0).prompt
        == "Add two numbers.\n\nAnswer with a whole program in a ```python block."
    )
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
        (
            1,
            "class Solution:\n    def add(self, a: Optional[int], b: int) -> int: return a + b",
            "AC",
        ),
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
        rlvr.make("code-stdio-v3", compare="float")


def test_other_languages_read_standard_input_too(tmp_path):
    """Functions are Python's alone."""
    env = make(tmp_path, [PLAIN], language="bash")
    assert env.verify(env.task(0), "```bash\nread a b; echo $((a + b))\n```").correct
    assert "```bash block" in env.task(0).prompt
    assert env.example(env.task(0)) is None
    with pytest.raises(rlvr.DataError, match="takes Python"):
        make(tmp_path, [CALLS], language="bash").task(0)


SUM = "a, b = map(int, input().split())\nprint(a + b)"
PACKED = base64.b64encode(
    zlib.compress(
        pickle.dumps(json.dumps([{"input": INPUTS[1], "output": OUTPUTS[1], "testtype": "stdin"}]))
    )
).decode()
LIVE = {
    "question_content": "Add two numbers.",
    "starter_code": "",
    "public_test_cases": json.dumps(
        [{"input": INPUTS[0], "output": OUTPUTS[0], "testtype": "stdin"}]
    ),
    "private_test_cases": PACKED,
    "metadata": "{}",
}
LIVE_CALLS = LIVE | {
    "starter_code": "class Solution:\n    def add(self, a: int, b: List[int]) -> int:\n        ",
    "public_test_cases": json.dumps(
        [{"input": "1\n[2, 3]", "output": "6", "testtype": "functional"}]
    ),
    "private_test_cases": "[]",
    "metadata": json.dumps({"func_name": "add"}),
}
TACO = APPS | {"time_limit": "2.0 seconds", "memory_limit": "256.0 megabytes", "name": "sum"}
FORCES = {
    "title": "Sum",
    "description": "Add two numbers.",
    "input_format": "Two numbers.",
    "output_format": "One.",
    "note": None,
    "examples": [{"input": "1 2", "output": "3"}],
    "official_tests": [{"input": i, "output": o} for i, o in zip(INPUTS, OUTPUTS, strict=True)],
    "input_mode": "stdio",
    "interaction_format": None,
    "time_limit": 1.0,
    "memory_limit": 256.0,
    "generated_checker": None,
}
NEAR = """
import sys
given, right, said = (open(name).read().split() for name in sys.argv[1:4])
print(1 if abs(int(said[0]) - int(right[0])) <= 1 and len(given) == 2 else 0)
"""
IN_DIALECTS = {
    "plain": PLAIN,
    "apps": APPS,
    "taco": TACO,
    "codecontests": CONTESTS
    | {"time_limit": {"seconds": 1, "nanos": 500_000_000}, "memory_limit_bytes": 256_000_000},
    "livecodebench": LIVE,
    "codeforces": FORCES,
}


@pytest.mark.parametrize("name", IN_DIALECTS)
def test_each_dialect_is_read_by_name_and_by_its_columns(tmp_path, name: str):
    """To the same tests, and programs are held to them."""
    assert dialect_of(IN_DIALECTS[name]) == name
    for dialect in ("auto", name):
        env = make(tmp_path, [IN_DIALECTS[name]], dialect=dialect)
        task = env.task(0)
        assert (task.reference["inputs"], task.reference["outputs"]) == (INPUTS, OUTPUTS)
        assert "Add two numbers." in task.prompt
    assert env.verify(task, f"```python\n{SUM}\n```").correct
    assert env.verify(task, "```python\nprint(3)\n```").why.startswith("WA: case 2")


@pytest.mark.parametrize(
    ("name", "options", "limits"),
    [
        ("apps", {}, (None, None)),
        ("taco", {}, (6.0, 288)),
        ("codecontests", {}, (4.5, 277)),
        ("codeforces", {}, (3.0, 288)),
        ("codeforces", {"language": "cpp"}, (1.0, 288)),
        ("codeforces", {"time_factor": 2.5}, (2.5, 288)),
        ("codeforces", {"row_limits": False}, (None, None)),
    ],
)
def test_limits_are_the_row_s(tmp_path, name: str, options: dict, limits: tuple):
    """Seconds times what a language is slower than C++; memory and the interpreter's share."""
    reference = make(tmp_path, [IN_DIALECTS[name]], **options).task(0).reference
    assert (reference.get("cpu_s"), reference.get("memory_mib")) == limits


def test_a_row_s_limit_decides(tmp_path):
    """Where the option would have given five seconds."""
    env = make(tmp_path, [FORCES | {"time_limit": 0.1}], time_factor=2.0)
    assert env.verify(env.task(0), "```python\nwhile True: pass\n```").why == (
        "TLE: case 1: over 0.2 CPU seconds or 1.4 wall seconds"
    )


def test_a_row_s_checker_decides(tmp_path):
    """With the paths in its own order, and 1 or 0 as its last word."""
    env = make(tmp_path, [FORCES | {"generated_checker": NEAR}])
    task = env.task(0)
    assert env.verify(
        task, "```python\na, b = map(int, input().split())\nprint(a + b + 1)\n```"
    ).correct
    assert (
        env.verify(
            task, "```python\na, b = map(int, input().split())\nprint(a + b + 2)\n```"
        ).reason
        == "WA"
    )
    assert env.verify(task, "```python\nprint('x')\n```").why.startswith(
        "WA: case 1: the checker cannot read it"
    )
    broken = make(tmp_path, [FORCES | {"generated_checker": "print('what?')"}])
    with pytest.raises(rlvr.Unscored):
        CodeVerifier().verify(f"```python\n{SUM}\n```", broken.task(0).reference)


def test_functions_of_livecodebench_have_an_argument_on_each_line(tmp_path):
    """In JSON, as their expected values."""
    env = make(tmp_path, [LIVE_CALLS])
    right = "class Solution:\n    def add(self, a: int, b: List[int]) -> int:\n        return a + sum(b)"
    assert env.verify(env.task(0), f"```python\n{right}\n```").correct
    assert env.verify(env.task(0), "```python\ndef add(a, b): return 5\n```").reason == "WA"


ASKING = """
import sys
secret = int(open(sys.argv[1]).read().split()[0])
print("higher" if int(input()) < secret else "lower", flush=True)
sys.exit(int(input()) != secret)
"""


@pytest.mark.parametrize("row", [PLAIN, FORCES | {"interaction_format": "Guess, and guess again."}])
def test_interactive_rows_bring_an_interactor(tmp_path, row):
    """The tests' inputs are its own: the program has to ask."""
    env = make(tmp_path, [row | {"interactor": ASKING}])
    assert env.task(0).reference["interactor"] == {"source": ASKING}
    right = "print(3, flush=True)\nprint(1 if input() == 'lower' else 5)"
    assert env.verify(env.task(0), f"```python\n{right}\n```").correct
    assert env.verify(env.task(0), f"```python\n{PROGRAM}\n```").reason == "ILE"
    alone = {name: value for name, value in PLAIN.items() if name != "outputs"} | {
        "interactor": ASKING
    }
    assert make(tmp_path, [alone]).task(0).reference.keys() == {"inputs", "interactor"}


class Bomb:
    def __reduce__(self):
        return print, ("called",)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            FORCES | {"interaction_format": "You may ask."},
            "no program can be judged on it: it is interactive, and has no",
        ),
        (FORCES | {"input_mode": "file"}, "it reads or writes a file by name"),
        (CONTESTS | {"input_file": "in.txt"}, "it reads or writes a file by name"),
        (LIVE | {"private_test_cases": "!"}, "'private_test_cases' cannot be unpacked"),
        (
            LIVE
            | {
                "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode()
            },
            "asks for",
        ),
        (LIVE | {"metadata": json.dumps({"func_name": "f"})}, "do not fit the function's name"),
        (LIVE | {"public_test_cases": "[1]"}, "a test is no object"),
        (PLAIN | {"checker": {"source": 5}}, "the reference's checker is"),
        (PLAIN | {"checker": {"source": "", "how": 1}}, "one is unknown"),
        (PLAIN | {"interactor": {"source": "", "how": 1}}, "one is unknown"),
        (PLAIN | {"interactor": 5}, "the reference's interactor is int 5"),
        (
            PLAIN | {"interactor": "1", "checker": {"source": "1"}},
            "both 'interactor' and 'checker'",
        ),
        (PLAIN | {"checker": {"source": "1", "protocol": "x"}}, "the checker's protocol is 'x'"),
        (PLAIN | {"cpu_s": -1}, "the reference's cpu_s is"),
        (PLAIN | {"memory_mib": 0.5}, "the reference's memory_mib is"),
    ],
)
def test_rows_that_cannot_be_judged_say_why(tmp_path, row: dict, said: str):
    """And are left out of a data set where that is the row's nature, not a mistake in it."""
    with pytest.raises(rlvr.UsageError, match=said):
        make(tmp_path, [PLAIN]).task_from(row)
    if "no program" in said or "by name" in said:
        assert [task.id for task in make(tmp_path, [row, PLAIN]).tasks()] == [
            "code-stdio-v3/train/1"
        ]


def test_a_row_of_another_dialect_is_named(tmp_path):
    """The option holds for every row."""
    with pytest.raises(rlvr.DataError, match="no tests among its columns"):
        make(tmp_path, [APPS], dialect="plain").task(0)
    with pytest.raises(
        rlvr.UsageError, match="dialect is 'leetcode'; it must be one of 'auto', 'plain'"
    ):
        make(tmp_path, [APPS], dialect="leetcode")


def test_a_report_has_every_test(tmp_path):
    """Switched on by name, since times differ from run to run."""
    env = make(tmp_path, [PLAIN], report=True)
    verdict = env.verify(env.task(0), "```python\nprint(3)\n```")
    assert (verdict.value, verdict.detail["passed"]) == (0.0, 1)
    first, second = verdict.detail["tests"]
    assert {**first, "cpu_s": 0, "memory_mib": 0} == {
        "index": 1, "name": "case 1", "ending": "AC", "why": "",
        "cpu_s": 0, "memory_mib": 0, "expected": "3\n", "got": "3\n",
    }  # fmt: skip
    assert first["cpu_s"] > 0
    assert first["memory_mib"] > 0
    assert (second["ending"], second["why"], second["expected"]) == (
        "WA",
        "line 1: '3', not '10'",
        "10\n",
    )
    json.dumps(verdict.detail)
    assert (
        "tests"
        not in make(tmp_path, [PLAIN]).verify(env.task(0), "```python\nprint(3)\n```").detail
    )
    calls = make(tmp_path, [CALLS], report=True)
    tests = calls.verify(calls.task(0), "```python\ndef add(a, b): return 3\n```").detail["tests"]
    assert [(test["ending"], test["cpu_s"], test["got"]) for test in tests] == [
        ("AC", None, ""),
        ("WA", None, "3"),
    ]


def test_rows_without_tests_are_left_out(tmp_path):
    """APPS has some; the others keep their numbers."""
    env = make(tmp_path, [APPS | {"input_output": ""}, APPS | {"input_output": None}, APPS])
    assert [task.id for task in env.tasks()] == ["code-stdio-v3/train/2"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "?"}, "no tests among its columns 'question'"),
        (APPS | {"input_output": "{"}, "is no JSON"),
        (APPS | {"question": 3}, "must be a text"),
        (PLAIN | {"outputs": ["3\n"]}, "2 inputs and 1 outputs"),
        (PLAIN | {"inputs": [], "outputs": []}, "no cases"),
        (PLAIN | {"inputs": "12", "outputs": "34"}, "row: 'inputs' is str '12'; it must be a list"),
        (
            {"question": "?", "public_tests": {"input": "1", "output": "2"}},
            "'input' is str '1'; it must be a list",
        ),
        (PLAIN | {"outputs": ["", "\n"]}, "a program that does nothing would pass"),
    ],
)
def test_bad_rows_are_named(tmp_path, row: dict, said: str):
    """With what is the matter."""
    with pytest.raises(rlvr.DataError, match=said):
        make(tmp_path, [PLAIN]).task_from(row)
