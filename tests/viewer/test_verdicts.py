"""What a verdict rests on: formulas as they were read and where they differ, and the case that a program failed."""

from pathlib import Path

import pytest

from rlvr.viewer.verdicts import failed_case
from tests.json_lines import write_json_lines
from tests.viewer.made import record

MATH = {"verifier": "math-verifier-v5", "outcome": "wrong", "why": "symbolic-different"}
CODE = {
    "verifier": "code-verifier-v3",
    "outcome": "wrong",
    "why": "WA: case 2: line 1: '3', not '<4>'",
    "reference": {"inputs": ["1\n", "<2>\n"], "outputs": ["2\n", "<4>\n"]},
}


def page(browse, tmp_path: Path, **row) -> str:
    return browse(write_json_lines(tmp_path / "a.jsonl", [record(0, **row)])).get("/0/row/0").text


def test_both_sides_and_a_point_are_shown(browse, tmp_path):
    said = page(browse, tmp_path, **MATH, answer=r"\frac{x}{2}", reference="x/3")
    assert "the expression x/3" in said
    assert "at x = 2: 1 against 2/3" in said


def test_a_right_answer_has_no_difference(browse, tmp_path):
    said = page(browse, tmp_path, **MATH | {"outcome": "correct"}, answer="1/2", reference="0.5")
    assert "the number 1/2" in said
    assert "they differ" not in said


def test_the_failed_case_is_shown_as_text(browse, tmp_path):
    """Input and output stand in the reference; nothing in them is code of the page."""
    said = page(browse, tmp_path, **CODE)
    assert "case 2 failed" in said
    assert "&lt;2&gt;" in said
    assert "<4>" not in said


@pytest.mark.parametrize(
    "changes",
    [
        {"why": "WA: case 9: x"},
        {"why": "WA: case 0: x"},
        {"why": 7},
        {"reference": None},
        {"reference": {"inputs": "ab", "outputs": 3}},
        {"detail": {"tests": "none"}},
        {"detail": {"tests": [1, 2]}},
        {"detail": [], "reference": []},
        {"verifier": None},
    ],
)
def test_records_of_any_form_are_shown(changes, browse, tmp_path):
    row = CODE | changes
    failed_case(row)
    assert "row 1" in page(browse, tmp_path, **row)
    assert "row 1" in page(browse, tmp_path, **MATH | {"answer": changes, "reference": changes})


def test_a_report_of_cases_says_what_came(browse, tmp_path):
    tests = [{}, {"expected": "4\n", "got": "3\n"}]
    found = failed_case(CODE | {"detail": {"tests": tests}})
    assert found is not None
    assert (found["expected"], found["got"], found["input"]) == ("4\n", "3\n", "&lt;2&gt;\n")
