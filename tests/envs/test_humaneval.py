"""humaneval-v3, over rows of our own in the data set's shape; over the real ones where they are."""

import json
from pathlib import Path

import pytest

import rlvr
from rlvr.testing import check_environment
from rlvr.verifiers.code.asserts import split
from rlvr.verifiers.code.cases import read_cases
from tests.json_lines import write_json_lines

DOUBLE = {
    "task_id": "Own/0",
    "prompt": 'from typing import List\n\n\ndef double(xs: List[int]) -> List[int]:\n    """Each one twice."""\n',
    "entry_point": "double",
    "canonical_solution": "    return [2 * x for x in xs]\n",
    "test": "\n\nMETADATA = {'author': 'us'}\n\n\ndef check(candidate):\n"
    "    assert candidate([]) == []\n    assert candidate([1, 2]) == [2, 4]\n",
}
ROOT = {  # its tests use what the prompt defines beside the function, and draw at random
    "task_id": "Own/1",
    "prompt": "import math\n\n\ndef square(x: float) -> float:\n    return math.pow(x, 2)\n\n\n"
    'def root(x: float) -> float:\n    """So that square(root(x)) is x."""\n',
    "entry_point": "root",
    "canonical_solution": "    return math.sqrt(x)\n",
    "test": "def check(candidate):\n    from random import randint\n    for _ in range(5):\n"
    "        x = randint(0, 99)\n        assert abs(square(candidate(x)) - x) < 1e-9, x\n",
}


@pytest.fixture
def env(tmp_path: Path) -> rlvr.Environment:
    path = write_json_lines(tmp_path / "rows.jsonl", (DOUBLE, ROOT))
    return rlvr.make("humaneval-v3", data=str(path))


LEFT_OUT = ("hostile-code", "repeats", "episodes")  # tests/testing/test_check_ours.py has these


def test_it_keeps_the_contract(env):
    """The canonical solutions are correct, junk is not, here and in a worker."""
    check_environment(env, tasks=2, skip=LEFT_OUT)


def test_tasks_are_found_by_their_own_ids(env):
    """As rows of completions name them."""
    task = env.find("Own/1")
    assert task == env.task(1) == env.task_of({"task": "Own/1"})
    assert env.task_of(ROOT | {"completion": "…"}) == task
    assert env.find("Own/0").prompt.startswith("Complete this function.")
    assert DOUBLE["prompt"].rstrip() in env.find("Own/0").prompt


def test_a_sample_names_its_task_by_the_data_sets_own_id(env):
    """`task_id` and `completion` are all that samples.jsonl has, as the data set's authors write it."""
    assert env.task_of({"task_id": "Own/1", "completion": "    pass"}) == env.task(1)
    with pytest.raises(LookupError, match="Own/9"):
        env.task_of({"task_id": "Own/9", "completion": ""})


def test_without_an_instruction_the_prompt_is_bare(env):
    """A base model continues it, so not a character may be added."""
    bare = rlvr.make("humaneval-v3", data=env.data, instruction="")
    assert bare.task(0).prompt == DOUBLE["prompt"]


@pytest.mark.parametrize(
    "completion",
    [
        DOUBLE["canonical_solution"],
        DOUBLE["canonical_solution"] + "\n\nassert double([1]) == [3]\nprint('and so on",
        DOUBLE["prompt"] + DOUBLE["canonical_solution"],
        f"```python\n{DOUBLE['prompt']}{DOUBLE['canonical_solution']}```",
        f"Sure:\n```python\n{DOUBLE['canonical_solution']}```\n",
        "```python\ndef double(xs: List[int]) -> List[int]:\n    return [x + x for x in xs]\n```",
        "<think>Hm.</think>\n```python\ndouble = lambda xs: [x + x for x in xs]\n```",
    ],
)
def test_right_completions_in_every_form(env, completion: str):
    """The rest of the function, the whole of it, or its body."""
    verdict = env.verify(env.task(0), completion)
    assert verdict.correct, verdict.why


@pytest.mark.parametrize(
    ("completion", "why"),
    [
        ("    return xs\n", "WA: case 2: [1, 2], not [2, 4]"),
        ("    return (2 * x for x in xs)\n", "WA: case 1: "),
        ("    return [2 * y for x in xs]\n", "RE: case 2: NameError"),
        ("    return [2 * x for x in xs\n", "CE: case 1: "),
        ("    while True: pass\n", "TLE: case 1: over 0.5 CPU seconds or 1 wall seconds"),
        ("```python\nprint(1)\n```", "WA: case 1: None"),
        ("I would double each of them.", "no-program"),
    ],
)
def test_wrong_completions_say_why(env, completion: str, why: str):
    """The judge's verdict first: it is what is counted."""
    quick = rlvr.make("humaneval-v3", data=env.data, cpu_s=0.5)
    verdict = quick.verify(quick.task(0), completion)
    assert not verdict.correct
    assert verdict.why.startswith(why)


def test_the_tests_helpers_are_not_the_programs(env):
    """A program with a `square` of its own, which undoes nothing, would pass with it."""
    assert "def square" in env.task(1).reference["setup"]
    assert "def root" not in env.task(1).reference["setup"]
    forged = "```python\ndef square(x): return x\ndef root(x): return x\n```"
    assert not env.verify(env.task(1), forged).correct
    assert env.verify(env.task(1), "    return x ** 0.5\n").correct


def test_random_tests_come_out_the_same(env):
    """They are seeded, so the same completion fails at the same number."""
    said = {env.verify(env.task(1), "    return x / 2\n").why for _ in range(3)}
    assert len(said) == 1


def test_partial_credit_counts_asserts(env):
    """One of two."""
    partial = rlvr.make("humaneval-v3", data=env.data, partial=True)
    verdict = partial.verify(partial.task(0), "    return []\n")
    assert (verdict.value, verdict.detail) == (0.5, {"verdict": "WA", "passed": 1, "cases": 2})


def test_a_subclass_keeps_its_own_reward(env):
    """Options build the reward only where none is given."""

    class Own(type(env)):
        reward = rlvr.Correct(lambda completion, reference: True) + 0.1 * rlvr.Format(
            "```python ... ```"
        )

    assert Own(data=env.data).score(env.task(0), "```python\n?\n```").total == pytest.approx(1.1)


@pytest.mark.parametrize("missing", ["prompt", "test", "entry_point"])
def test_a_row_that_lacks_a_column_is_named(env, missing: str):
    """With the columns it has."""
    with pytest.raises(rlvr.DataError, match=f"Own/0: no text in column '{missing}'"):
        env.task_from({k: v for k, v in DOUBLE.items() if k != missing})
    with pytest.raises(rlvr.DataError, match="Own/0: the reference's test is empty"):
        env.task_from(DOUBLE | {"test": " "})


def test_a_reference_column_is_held_to_the_form(env):
    """Rows may bring the reference as a record has it."""
    task = env.task_of({"reference": env.task(0).reference, "completion": "…"})
    assert env.verify(task, DOUBLE["canonical_solution"]).correct
    with pytest.raises(rlvr.DataError, match="must be"):
        env.task_of({"reference": "def check(): …", "completion": "…"})


REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"


@pytest.mark.skipif(
    not REAL.exists(),
    reason="the data set is not here: benchmarks/code_labels.py says where it is from",
)
def test_most_real_tests_are_plain_asserts():
    """153 of 164 come down to calls; three need helpers from their prompts."""
    import gzip

    env = rlvr.make("humaneval-v3")
    with gzip.open(REAL, "rt") as file:
        tasks = [env.task_from(json.loads(line)) for line in file]
    assert sum(split(read_cases(task.reference).cases) is not None for task in tasks) == 159
    assert sum("def " in task.reference.get("setup", "") for task in tasks) == 3
