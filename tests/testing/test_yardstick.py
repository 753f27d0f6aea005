"""The yardstick: its rows and their labels, rlvr on them, and graders that fail."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

import rlvr
from rlvr.testing import graders, yardstick
from rlvr.testing.graders import grader
from rlvr.testing.yardstick import YardstickRow, load_yardstick, measure_yardstick
from tests.commands import refusal_of
from tests.testing.yardstick_labels import RULES, second_label

FOLDER = Path(yardstick.__file__).parent / "yardsticks"
FIELDS = [
    json.loads(line)
    for line in (FOLDER / "math.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]
ROWS = load_yardstick()
MAIN = [row for row in ROWS if row.debatable is None]
SETTINGS = ("bases", "case", "form", "order", "percent", "ratios", "rounding", "units")


# ----------------------------------------------------------------------------------------- the rows


def test_there_are_many_rows_and_few_of_each_template():
    """A template with many rows would count one ability many times."""
    assert len(MAIN) >= 600
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert max(Counter(row.id.rpartition("/")[0] for row in ROWS).values()) <= 10
    assert len({row.family for row in ROWS}) >= 30


def test_no_row_stands_twice():
    """A row that counts twice would weigh twice."""
    texts = Counter((row.task, row.reference, row.completion) for row in ROWS)
    assert {text for text, n in texts.items() if n > 1} == set()


def test_labels_are_balanced():
    """A grader that always says the same is half right."""
    right = sum(row.label for row in MAIN) / len(MAIN)
    assert 0.4 <= right <= 0.6
    assert {row.family for row in MAIN if row.label} == {
        row.family for row in MAIN if not row.label
    }


def test_debatable_rows_are_few_and_name_their_setting():
    """They are measured and counted apart."""
    assert {row.debatable for row in ROWS} - {None} <= set(SETTINGS)
    assert len(ROWS) - len(MAIN) <= len(ROWS) / 20


def test_rows_have_no_other_fields_than_the_readme_says():
    """A misspelt field would be left out silently."""
    known = {
        "id",
        "family",
        "task",
        "reference",
        "answer",
        "completion",
        "label",
        "reason",
        "debatable",
    }
    known |= {"reference_value", "answer_value", "at", "rule"}
    for fields in FIELDS:
        assert set(fields) <= known, fields["id"]
        assert ("answer" in fields) is not ("completion" in fields), fields["id"]
        assert fields["reason"].strip(), fields["id"]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {name for name in known if f"`{name}`" not in readme} == set()
    assert {fields["rule"] for fields in FIELDS if "rule" in fields} == set(RULES)


def test_a_license_is_named():
    """The rows may be copied into other projects."""
    assert "CC0 1.0" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8))]
)
def test_labels_follow_from_the_values(part: int):
    """SymPy compares what both sides mean; an eighth of the rows each time."""
    assert [
        fields["id"] for fields in FIELDS[part::8] if second_label(fields) is not fields["label"]
    ] == []


def test_a_wrong_label_would_be_found():
    """A value that does not fit the answer, and a rule that does not fit the values."""
    [row] = [fields for fields in FIELDS if fields["id"] == "fractions/spellings/1"]
    assert second_label(row)
    assert not second_label(row | {"answer_value": "12/7"})
    for rule, answer in [("unfinished", "7/12"), ("restated", "7/12"), ("hedge", "1/2")]:
        with pytest.raises(AssertionError):
            second_label(row | {"rule": rule, "answer_value": answer, "task": "What is $x$?"})


# ------------------------------------------------------------------------------------- rlvr on them


def test_rlvr_agrees_with_every_label_but_those_listed():
    """The list names the rows at which it differs, each with the reason; a row that is right by now leaves it."""
    lines = (
        Path(__file__)
        .with_name("yardstick_differences.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    listed = {name: why for name, _, why in (line.partition(": ") for line in lines)}
    assert all(listed.values())
    grade = grader("rlvr")
    found = {
        row.id for row in MAIN if grade(row.completion, row.reference, row.task)[0] is not row.label
    }
    assert found == set(listed)


# ------------------------------------------------------------------------------------------ graders

GRADER = """
import os, time
import rlvr

def same(completion, reference):
    return completion == "\\\\boxed{" + reference + "}"

def failing(completion, reference):
    if "raise" in completion:
        raise ValueError("a bug")
    if "hang" in completion:
        time.sleep(60)
    if "die" in completion:
        os._exit(3)
    return 1.0 if "right" in completion else 0

def with_task(completion, reference, *, task):
    return task.prompt == "ask"

class Verifier:
    def verify(self, completion, reference, task=None):
        return rlvr.Verdict("correct" if task and task.prompt == "ask" else "wrong", why="task: looked at")

def nothing_useful(completion, reference):
    return "yes"

number = 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A file with graders, under a name that no other test's module has."""
    file = tmp_path / f"graders_{abs(hash(request.node.name))}.py"
    file.write_text(GRADER)
    monkeypatch.syspath_prepend(tmp_path)
    return str(file)


def row(
    answer: str, *, label: bool = True, family: str = "a", task: str | None = None
) -> YardstickRow:
    return YardstickRow(
        f"{family}/{answer}", family, task, "1", answer, None, label, "because", None
    )


def test_a_grader_that_fails_is_bounded_and_counted(place: str):
    """It raises, hangs and dies; what comes after is graded all the same."""
    rows = [
        row("raise"),
        row("hang"),
        row("die", label=False),
        row("right"),
        row("right too", label=False),
        row("no"),
    ]
    report = measure_yardstick([f"{place}:failing"], rows=rows, wall_s=1.0, workers=1)
    counts = report.counts(f"{place}:failing")
    assert (counts.raised, counts.stopped) == (1, 2)
    assert (counts.accepted_wrong, counts.wrong) == (1, 2)
    assert (counts.rejected_right, counts.right) == (3, 4)
    assert [grade.failure for grade in report.grades[f"{place}:failing"]] == [
        "raised",
        "stopped",
        "stopped",
        "",
        "",
        "",
    ]
    assert "a bug" in report.grades[f"{place}:failing"][0].why
    assert 1.0 <= report.grades[f"{place}:failing"][1].seconds < 20


def test_what_a_grader_may_be(place: str):
    """Functions with and without `task`, and classes with `verify`; truth values, scores and verdicts."""
    assert grader(f"{place}:same")("\\boxed{1}", "1", None) == (True, "")
    assert grader(f"{place}:with_task")("x", "1", "ask") == (True, "")
    assert grader(f"{place}:Verifier")("x", "1", "ask") == (True, "task")
    assert grader(f"{place}:Verifier")("x", "1", None) == (False, "task")
    with pytest.raises(TypeError, match="a grader gives true or false, a score or a Verdict"):
        grader(f"{place}:nothing_useful")("x", "1", None)


@pytest.mark.parametrize(
    ("said", "accepted"), [(None, False), (1, True), (0.5, False), (0.75, True), (0, False)]
)
def test_scores_above_a_half_are_accepted(said: object, accepted: bool):
    """Trainers pay 1 and 0, and some a half for the format."""
    assert graders._grade(said) == (accepted, "")


@pytest.mark.parametrize("said", [float("nan"), rlvr.Verdict("unscored", why="no worker")])
def test_what_is_no_grade_is_an_error(said: object):
    """It is counted as raised, never as a verdict."""
    with pytest.raises(ValueError, match=r"nan|UNSCORED"):
        graders._grade(said)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mathverify", "there is no grader 'mathverify'; choose of rlvr, math-verify"),
        ("none.py:grade", "there is no file"),
        ("no_such_module:grade", "No module named 'no_such_module'"),
        ("rlvr.types:grade", "has no attribute 'grade'"),
        ("FILE:number", "3 is no function of"),
    ],
)
def test_a_grader_that_does_not_exist_is_refused(place: str, name: str, message: str):
    """Before a worker is started."""
    with pytest.raises(rlvr.UsageError, match=message):
        measure_yardstick([name.replace("FILE", place)], rows=[row("x")])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    """With the command that installs it."""
    monkeypatch.setitem(
        graders.GRADERS, "theirs", (lambda: None, {"no_such_package": "no-such-package"})
    )
    with pytest.raises(rlvr.UsageError, match="pip install no-such-package"):
        measure_yardstick(["theirs"], rows=[row("x")])


def test_a_report_takes_turns_among_families():
    """The first rows that it shows are of different families."""
    rows = [
        row("a", label=False),
        row("b", label=False),
        row("c", label=False, family="b"),
        row("d", family="b"),
    ]
    wrong = yardstick.YardstickGrade(accepted=True, failure="", why="", seconds=0.5)
    report = yardstick.YardstickReport("math", rows, {"g": [wrong] * 4})
    assert [found.id for found, _ in report.false_grades(label=False)] == ["a/a", "b/c", "a/b"]
    assert list(report.false_grades(label=True)) == []
    assert report.counts("g").seconds == 2.0
    assert report.as_dict()["graders"]["g"]["families"]["b"]["accepted_wrong"] == 1
    assert (
        dataclasses.asdict(report.counts("g", family="a"))
        == report.counts("g", family="a").as_dict()
    )


# -------------------------------------------------------------------------------------- the command


def test_the_command_measures_a_grader(say, place: str, tmp_path: Path):
    """Of equal texts it accepts no wrong one; JSON goes to a file and to stdout alike."""
    out = tmp_path / "report.json"
    code, said = say(
        "audit", "--yardstick", "math", "--verifier", f"{place}:same", "--workers", 1, "-o", out
    )
    assert code == 0
    assert f"math: {sum(row.label for row in MAIN)} right and" in said
    assert "accepted though wrong: 0\n" in said
    assert "intervals" in said
    code, _ = say(
        "audit",
        "--yardstick",
        "math",
        "--verifier",
        f"{place}:same",
        "--json",
        "--family",
        "intervals",
        "--workers",
        1,
    )
    first, second = json.loads(out.read_text()), json.loads(say.out)
    theirs = [it["id"] for it in first["false"] if it["id"].startswith("intervals/")]
    assert [it["id"] for it in second["false"]] == theirs
    assert second["rows"] == sum(row.family == "intervals" for row in ROWS)
    assert first["graders"][f"{place}:same"]["total"]["accepted_wrong"] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "takes ENV and FILE, or --yardstick math"),
        (("gsm8k-v1",), "takes ENV and FILE, or --yardstick math"),
        (("gsm8k-v1", "--yardstick", "math"), "--yardstick takes no ENV"),
        (("--yardstick", "maths"), "did you mean 'math'"),
        (("--yardstick", "math", "--verifier", "vermi"), "there is no grader 'vermi'"),
        (("--yardstick", "math", "--workers", "0"), "workers is 0"),
        (("--yardstick", "math", "--family", "interval"), "did you mean 'intervals'"),
    ],
)
def test_the_command_refuses_what_it_cannot_measure(say, flags: tuple[str, ...], message: str):
    """One line says why."""
    assert message in refusal_of(*say("audit", *flags))
