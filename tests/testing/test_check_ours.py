"""The bundled environments pass their own check, hostile programs included."""

import json
import tomllib
from pathlib import Path

import pytest

import rlvr
import rlvr.testing
from rlvr.testing import check
from tests.json_lines import write_json_lines

GSM8K = [
    {
        "question": "Tom has 3 bags of 12 marbles. How many marbles?",
        "answer": "3 times 12.\n#### 36",
    },
    {"question": "A book of 1,250 pages, 250 read. How many are left?", "answer": "#### 1,000"},
    {"question": "Half of nothing is how much?", "answer": "#### 0"},
    {"question": "It was 5 degrees and fell by 9. How cold is it?", "answer": "#### -4"},
]
MATH = [
    {"problem": "Reduce 12/16.", "answer": "\\frac{3}{4}"},
    {"problem": "Solve x^2 = 2.", "answer": "\\pm\\sqrt{2}"},
    {"problem": "Where is 1/x defined?", "answer": "(-\\infty,0)\\cup(0,\\infty)"},
    {"problem": "Which of A, B, C?", "answer": "\\text{(C)}"},
    {"problem": "Name the tallest.", "answer": "\\text{Evelyn}"},
]
DOUBLE = {
    "task_id": "Own/0",
    "prompt": 'def double(n):\n    """Twice n."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n",
    "entry_point": "double",
}
ADD = {
    "task_id": 1,
    "text": "Write a function to add two numbers.",
    "code": "def add(a, b):\n    return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, -5) == -5"],
}
NEXT = {
    "question": "Read a number and print the next one.",
    "input_output": json.dumps({"inputs": ["1\n", "41\n"], "outputs": ["2\n", "42\n"]}),
    "solutions": json.dumps(["print(int(input()) + 1)"]),
}

_LIGHTHOUSE = (
    "The lighthouse stands on a narrow rock above the harbour. Its keeper climbs two hundred steps every evening and "
    "lights the great lantern before the fishing boats come home. Sailors trust that warm beam more than any chart."
)
_GARDEN = (
    "<<A garden in March>>\nMy grandmother plants beans as soon as frost has left the ground. Rabbits watch from "
    "behind the shed while sparrows steal half of the seeds. By summer nobody remembers how bare the beds looked."
)
INSTRUCTED = [
    {
        "key": 1,
        "prompt": "Describe a lighthouse. Use the words 'keeper' and 'harbour'. No commas.",
        "instruction_id_list": ["punctuation:no_comma", "keywords:existence"],
        "kwargs": [{}, {"keywords": ["keeper", "harbour"]}],
        "example": _LIGHTHOUSE,
    },
    {
        "key": 2,
        "prompt": "Write about a garden, with a title in double angular brackets and the word 'beans'.",
        "instruction_id_list": ["detectable_format:title", "keywords:existence"],
        "kwargs": [{"num_words": None}, {"keywords": ["beans"]}],
        "example": _GARDEN,
    },
]
BENCHED = [
    {
        "key": "1",
        "prompt": "Describe a lighthouse at night. Include the word 'lantern' in the second sentence.",
        "instruction_id_list": ["sentence:keyword"],
        "kwargs": [{"word": "lantern", "N": 2.0}],
        "example": _LIGHTHOUSE,
    },
    {
        "key": "2",
        "prompt": "Write about a garden. Mention at least 2 of these names: Emma, Liam, Noah, Mia.",
        "instruction_id_list": ["count:person_names"],
        "kwargs": [{"N": 2}],
        "example": f"Emma and Noah read this aloud.\n{_GARDEN}",
    },
]

CHOICES = [
    {
        "question": "Which organelle makes proteins?",
        "options": ["nucleus", "ribosome", "membrane"],
        "answer": "B",
    },
    {"question": "Which number is prime?", "options": ["21", "27", "29", "33"], "answer": "C"},
    {
        "question": "Which planet is the largest?",
        "options": ["Jupiter", "Mars", "Venus", "Earth"],
        "answer": "A",
    },
]

OURS = {
    "arithmetic-v1": (None, {"difficulty": 4}),
    "chem-v4": (None, {}),
    "function-call-v4": (None, {}),
    "json-v4": (None, {}),
    "mixture-v1": (None, {"envs": [["arithmetic-v1", 1.0], ["qa-v4", 1.0]]}),
    "qa-v4": (None, {}),
    "sql-v4": (None, {}),
    "gsm8k-v4": (GSM8K, {}),
    "math-v4": (MATH, {}),
    "humaneval-v3": ([DOUBLE], {"cpu_s": 1.0}),
    "mbpp-v3": ([ADD], {"cpu_s": 1.0}),
    "code-drills-v1": (None, {"level": 2}),
    "code-stdio-v3": ([NEXT], {"cpu_s": 1.0}),
    "countdown-v4": (None, {}),
    "game24-v4": (None, {}),
    "ifbench-v4": (BENCHED, {}),
    "ifeval-v4": (INSTRUCTED, {}),
    "iftrain-v4": (None, {}),
    "kk-v4": (None, {}),
    "mcq-v4": (CHOICES, {}),
    "rows-v4": (MATH, {"prompt": "problem", "reference": "answer"}),
    "science-v4": (None, {}),
    "sudoku-v4": (None, {}),
    "zebra-v4": (None, {}),
}


TOOLS = (
    "bash-v1",
    "desk-v2",
    "guess-v1",
    "python-tool-math-v4",
    "search-v4",
    "swe-lite-v1",
    "wordle-v1",
)
"""Their examples are played in tests/envs/test_tool_envs.py every day."""

WHOLE_TEXTS = (
    "ifbench-v4",
    "ifeval-v4",
    "iftrain-v4",
    "function-call-v4",
    "json-v4",
    "sql-v4",
    "sudoku-v4",
    "zebra-v4",
)
"""Their answers are whole texts or data, so that a hedge between two of them is no hedge."""


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        pytest.param("mbpp-v3", ("repeats", "episodes"), id="mbpp-v3, in part"),
        *(
            pytest.param(name, (), id=name, marks=[pytest.mark.slow] * (name != "arithmetic-v1"))
            for name in OURS
        ),
    ],
)
def test_a_bundled_environment_passes_its_check(
    name: str, left_out: tuple[str, ...], tmp_path: Path
):
    """What authors are asked for holds for ours."""
    rows, options = OURS[name]
    if rows is not None:
        path = tmp_path / "rows.jsonl"
        write_json_lines(path, rows)
        options = options | {"data": str(path)}
    report = check(rlvr.make(name, **options), tasks=5, skip=left_out)
    assert report.clean, "\n".join(map(str, report.findings))
    left_out = [it.what for it in report.findings if it.hole in ("not-checked", "no-example")]
    fine = (
        "took more than",
        *["no short answer"] * (name in WHOLE_TEXTS),
    )  # a loaded machine is slow now and then
    assert not [what for what in left_out if not any(words in what for words in fine)]
    assert report.completions > 70


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLS)
def test_a_bundled_environment_with_tools_passes_its_check(name: str):
    """The same for episodes; each probe runs in a session of its own."""
    report = check(rlvr.make(name), tasks=3)
    assert report.clean, "\n".join(map(str, report.findings))
    assert report.tasks == 3


def test_every_bundled_environment_is_checked():
    """A new one has to be added here."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    elsewhere = {"reasoning-gym-v4"}  # tests/interop/test_reasoning_gym.py
    assert {*OURS, *TOOLS} | elsewhere == set(project["project"]["entry-points"]["rlvr.envs"])


def test_what_rlvr_envs_shows_was_found_by_a_check():
    """`python -m benchmarks.checked_environments` writes it; one that does not pass is to be mended, not recorded."""
    recorded = json.loads((Path(rlvr.testing.__file__).parent / "checked.json").read_text())
    assert set(recorded) <= {*OURS, *TOOLS}  # one that is not recorded is shown as not checked
    assert not [name for name, found in recorded.items() if found["holes"] or found["warnings"]]
    assert min(found["completions"] for name, found in recorded.items() if name in OURS) > 70
    assert min(found["tasks"] for name, found in recorded.items() if name in TOOLS) >= 3
