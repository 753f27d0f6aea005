"""References: cases as plain JSON."""

import json

import pytest

from rlvr.errors import DataError
from rlvr.sandbox import TestSuite
from rlvr.verifiers.code.cases import CallCase, StdioCase, checked_cases, read_cases
from rlvr.verifiers.code.equality import JSON


def test_inputs_and_outputs_are_standard_input_and_output():
    """As texts; in some rows of APPS, as lists of lines."""
    found = read_cases({"inputs": ["1\n", ["1", "2"]], "outputs": ["2\n", ["3", ""]]})
    assert found.cases == [StdioCase("1\n", "2\n"), StdioCase("1\n2", "3\n")]
    assert (found.entry_point, found.prompt) == (None, None)


def test_a_function_name_makes_them_calls():
    """Each input is the list of its arguments; JSON has no tuples, and so a tuple will do for a list."""
    found = read_cases({"fn_name": "f", "inputs": [[1, [2]], [3, []]], "outputs": [[1, 2], [3]]})
    assert [(c.name, c.args, c.expected) for c in found.cases] == [
        ("f", (1, [2]), [1, 2]),
        ("f", (3, []), [3]),
    ]
    assert found.entry_point == "f"
    assert found.cases[0].holds((1, 2))
    assert not found.cases[1].holds(3)


def test_arguments_may_be_lines_of_json():
    """As in LiveCodeBench: an argument a line, and the value as JSON too."""
    found = read_cases({"fn_name": "f", "inputs": ['"a b"\n[1, 2]\n'], "outputs": ["true"]})
    assert (found.cases[0].args, found.cases[0].expected) == (("a b", [1, 2]), True)


def test_values_that_are_all_wrapped_may_be_unwrapped():
    """APPS has [[3]] where the function returns 3; only where every row of the task looks like that."""
    wrapped = read_cases({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[3], [[4]]]}).cases
    assert wrapped[0].holds(3)
    assert wrapped[0].holds([3])
    assert wrapped[1].holds([4])
    plain = read_cases({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[3], [4, 5]]}).cases
    assert not plain[0].holds(3)


def test_a_suite_brings_its_style():
    """And whatever else stands beside it."""
    reference = {
        "test": "def check(c): assert c(1) == 1",
        "style": "check",
        "entry_point": "f",
        "setup": "import math",
        "prompt": "def f",
    }
    found = read_cases(reference)
    assert found.cases == TestSuite(
        "check", reference["test"], setup="import math", entry_point="f"
    )
    assert (found.entry_point, found.prompt) == ("f", "def f")
    assert read_cases({"test": "assert f(1)"}).cases == TestSuite("asserts", "assert f(1)")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (None, "must be"),
        ([], "must be"),
        ({}, "has nothing"),
        ({"inputs": ["1"]}, "has 'inputs'"),
        ({"inputs": [], "outputs": []}, "no cases"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"inputs": "1", "outputs": "1"}, "must be a list"),
        ({"inputs": [1], "outputs": ["1"]}, "an input is int 1"),
        ({"inputs": ["1"], "outputs": [None]}, "an output is NoneType"),
        ({"inputs": [[1]], "outputs": ["1"]}, "an input is list"),
        ({"fn_name": "f", "inputs": [{"a": 1}], "outputs": [1]}, "list of its arguments"),
        ({"fn_name": "f", "inputs": ["[1"], "outputs": ["1"]}, "no JSON"),
        ({"fn_name": 3, "inputs": [[1]], "outputs": [1]}, "fn_name is int 3"),
        ({"test": ""}, "empty"),
        ({"test": " \n"}, "empty"),
        ({"test": 3}, "test is int 3"),
        (
            {"test": "assert f()", "style": "doctest"},
            "must be one of check, asserts, unittest, pytest",
        ),
        ({"test": "def check(c): pass", "style": "check"}, "needs an entry_point"),
        ({"test": "assert f()", "setup": ["import x"]}, "setup is list"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_reason(reference, said: str):
    """Where the data is read, and not at each completion."""
    with pytest.raises(DataError, match=said):
        read_cases(reference)


@pytest.mark.parametrize(
    "cases", [[], (), None, "cases", {}, [1], [StdioCase(), CallCase("f")], b"", 3]
)
def test_no_cases_are_refused(cases):
    """All of none would pass."""
    with pytest.raises(DataError, match="cases"):
        checked_cases(cases)


def test_rules_look_at_values_as_asserts_do():
    """`is True` is not `== True`, and a bare assert takes what is true."""
    assert CallCase("f", rule="is", expected=True).holds(True)
    assert not CallCase("f", rule="is", expected=True).holds(1)
    assert CallCase("f", rule="equal", expected=True).holds(1)
    assert CallCase("f", rule="true").holds([0])
    assert not CallCase("f", rule="true").holds([])
    assert CallCase("f", rule="false").holds("")
    assert not CallCase("f", rule="false").holds("0")
    assert CallCase("f", rule="is", expected=None).holds(None)
    assert not CallCase("f", rule="false", expected=None).holds("x")


def test_an_iterator_is_a_list_only_by_leniency():
    """`assert f() == [1]` does not hold for a generator, and `assert f()` does, even if it is empty."""
    assert not CallCase("f", expected=[1]).holds([1], listed=True)
    assert CallCase("f", expected=[1], equality=JSON).holds([1], listed=True)
    assert CallCase("f", rule="true").holds([], listed=True)
    assert not CallCase("f", rule="false").holds([], listed=True)


def test_a_reference_comes_back_from_a_record():
    """Records are JSON: whatever `read_cases` takes can be written down and read again."""
    reference = {"fn_name": "f", "inputs": [[1, [2, None]]], "outputs": [{"a": 1.5}]}
    assert read_cases(json.loads(json.dumps(reference))) == read_cases(reference)
