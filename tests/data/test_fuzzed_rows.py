"""Rows of data sets are from strangers: each makes a task or is refused, in little time, whatever its columns hold."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlvr
from rlvr.errors import DataError
from rlvr.scoring.items import task_of_row
from tests.mutated import mutated

CPU_S = 2.0
ROWS = {
    "math-v4": {"problem": "1+1?", "solution": "So it is \\boxed{2}.", "answer": "2"},
    "gsm8k-v4": {"question": "1+1?", "answer": "So.\n#### 2"},
    "mcq-v4": {"question": "1+1?", "choices": ["2", "3", "4"], "answer": 0},
    "science-v4": {"question": "How long?", "answer": "9.8 m/s^2"},
    "chem-v4": {"question": "Which?", "answer": "2 H2 + O2 -> 2 H2O"},
    "qa-v4": {"question": "Which?", "answer": ["Eiffel tower", "tower"]},
    "sudoku-v4": {
        "puzzle": "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    },
    "kk-v4": {"quiz": "Who?", "names": ["Ann", "Bob"], "solution": [True, False]},
    "zebra-v4": {
        "puzzle": "Who?",
        "solution": {"header": ["House", "Name"], "rows": [["1", "Ann"], ["2", "Bob"]]},
    },
    "countdown-v4": {"nums": [6, 4, 2], "target": 24},
    "sql-v4": {
        "schema": "CREATE TABLE t(a);",
        "query": "SELECT a FROM t",
        "question": "All?",
        "fillings": [{"t": [[1], [2]]}, {"t": [[3]]}],
    },
    "json-v4": {
        "prompt": "Write it.",
        "schema": '{"properties": {"a": {"type": "integer"}}}',
        "values": '{"/a": 1}',
    },
    "function-call-v4": {
        "query": "Call it.",
        "tools": '[{"name": "f", "parameters": {"a": {"type": "int", "description": ""}}}]',
        "answers": '[{"name": "f", "arguments": {"a": 1}}]',
    },
    "ifeval-v4": {
        "prompt": "Write.",
        "instruction_id_list": ["punctuation:no_comma", "keywords:existence"],
        "kwargs": [{}, {"keywords": ["tree"]}],
    },
    "mbpp-v3": {"text": "Two.", "code": "def f(): return 2", "test_list": ["assert f() == 2"]},
    "humaneval-v3": {
        "task_id": "x/0",
        "prompt": "def two():\n",
        "canonical_solution": "    return 2\n",
        "test": "def check(candidate):\n    assert candidate() == 2\n",
        "entry_point": "two",
    },
    "code-stdio-v3": {
        "description": "Add.",
        "public_tests": {"input": ["1 1"], "output": ["2"]},
        "private_tests": {"input": ["1 2"], "output": ["3"]},
    },
}


def made(env, row):
    """The task of a row, or why there is none, within its time."""
    began = time.process_time()
    try:
        task = task_of_row(env, row)
        env.read_task(task)
    except DataError as error:
        task = error
    took = time.process_time() - began
    assert took < CPU_S, f"{took:.1f} CPU s: {row!r:.300}"
    return task


@pytest.mark.parametrize("name", ROWS)
def test_the_rows_that_are_changed_are_good(name):
    """Otherwise only refusals would be tried."""
    assert isinstance(made(rlvr.make(name, data="none.jsonl"), ROWS[name]), rlvr.Task)


@pytest.mark.parametrize("name", ROWS)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_row_makes_a_task_or_is_refused(name, data):
    """No other error, which would end a run, and no endless one, which would end a service."""
    row = data.draw(mutated(ROWS[name]).filter(lambda one: isinstance(one, dict)))
    assert isinstance(made(rlvr.make(name, data="none.jsonl"), row), rlvr.Task | DataError)
