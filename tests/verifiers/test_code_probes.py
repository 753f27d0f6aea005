"""What `rlvr check` finds out about the checkers and interactors that tasks bring."""

import pytest

import rlvr
from rlvr.sandbox import Program
from rlvr.testing import Severity, check
from rlvr.verifiers.code import CheckerProgram, CodeVerifier
from tests.json_lines import write_json_lines

INPUTS, OUTPUTS = ["1 2\n", "20 22\n"], ["3\n", "42\n"]
READS = "import sys\n_, out, answer = [open(name).read().split() for name in sys.argv[1:4]]\n"
OPEN, SHUT = "checker-accepts", "checker-rejects"
EXPECTED, DIES = (
    "the expected output: ",
    "the expected output: the checker fails, and on the expected",
)
CHECKERS = {
    "honest": (READS + "sys.exit(out != answer)", []),
    "accepts all": ("", [(OPEN, "nothing"), (OPEN, "noise"), (OPEN, "the input")]),
    "counts words": (READS + "sys.exit(len(out) > 2)", [(OPEN, "nothing"), (OPEN, "the input")]),
    "looks for the first word": (READS + "sys.exit(out[:1] != answer[:1])", []),
    "refuses all": ("import sys\nsys.exit(1)", [(SHUT, EXPECTED)]),
    "raises": ("1 / 0", [(SHUT, DIES)]),
}


@pytest.mark.parametrize("name", CHECKERS)
def test_a_checker_is_given_what_cannot_be_right(name: str):
    """A policy that finds one such output earns at every task with this checker."""
    source, expected = CHECKERS[name]
    reference = {"inputs": INPUTS, "outputs": OUTPUTS, "checker": {"source": source}}
    found = list(CodeVerifier().faults(reference))
    assert [hole for hole, _ in found] == [hole for hole, _ in expected]
    assert all(got.startswith(said) for (_, got), (_, said) in zip(found, expected, strict=True))


def test_the_setting_is_tried_like_a_references_checker():
    """And where outputs are compared there is nothing to try."""
    reference = {"inputs": INPUTS, "outputs": OUTPUTS}
    lenient = CheckerProgram(Program("python", "print(1)"), "prints")
    found = [hole for hole, _ in CodeVerifier(compare=lenient).faults(reference)]
    assert found == ["checker-accepts"] * 3
    assert list(CodeVerifier().faults(reference)) == []
    assert list(CodeVerifier().faults({"fn_name": "f", "inputs": [[1]], "outputs": [2]})) == []


GUESS = """
import sys
secret, low = int(open(sys.argv[1]).read()), 0
for line in sys.stdin:
    guess = int(line)
    if guess == secret: sys.exit(0)
    print("<" if guess > secret else ">", flush=True)
sys.exit(AT_THE_END)
"""
RIGHT = (
    "import sys\nlow, high = 0, 100\nwhile True:\n    m = (low + high) // 2\n    print(m, flush=True)\n"
    + (
        "    said = sys.stdin.readline().strip()\n    if not said: break\n"
        "    low, high = (low, m) if said == '<' else (m + 1, high)"
    )
)


@pytest.mark.parametrize(
    ("at_the_end", "solution", "expected"),
    [
        ("1", RIGHT, []),
        ("1", None, ["checker-untried"]),
        ("1", "print('no number')", ["checker-rejects"]),
        ("0", RIGHT, ["checker-accepts"]),
    ],
)
def test_an_interactor_is_given_programs(at_the_end, solution, expected):
    """`exit(0)` must not pass, and the reference's own solution must."""
    reference = {
        "inputs": ["37\n", "5\n"],
        "interactor": {"source": GUESS.replace("AT_THE_END", at_the_end)},
        **({"solution": {"source": solution}} if solution else {}),
    }
    found = list(CodeVerifier().faults(reference))
    assert [hole for hole, _ in found] == expected, found
    assert at_the_end == "1" or found == [("checker-accepts", "exit(0)")]


def test_a_check_reports_a_checker_that_accepts_anything(tmp_path):
    """As a hole, by its name, with the task that has it."""
    rows = [
        {
            "id": "a",
            "prompt": "Add.",
            "inputs": INPUTS,
            "outputs": OUTPUTS,
            "checker": {"source": ""},
        }
    ]
    data = tmp_path / "rows.jsonl"
    write_json_lines(data, rows)
    report = check(rlvr.make("code-stdio-v3", data=str(data)), only=("references",), tasks=1)
    holes = [found for found in report.findings if found.hole == "checker-accepts"]
    assert holes, report.findings
    assert all(found.severity is Severity.HOLE for found in holes)
