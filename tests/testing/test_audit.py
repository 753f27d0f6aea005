"""Verdicts against labels: matrix, rates, slices, cases, two environments; and the page that shows them."""

import io
import json
from html.parser import HTMLParser

import pytest
from rich.console import Console

import rlvr
from rlvr import viewer
from rlvr.testing.audit import Rate, _with_columns, audit, label_of
from tests.environments import Trials


def page(found) -> str:
    """The audit as one page."""
    return viewer.report_page(found.as_dict()).decode()


class Lenient(Trials):
    """Takes the answer wherever it stands."""

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        right = str(task.reference) in completion
        return rlvr.Verdict("correct" if right else "wrong", why="found" if right else "absent")


def row(task: int, completion: str, label: object, **more: object) -> dict:
    return {"task": task, "completion": completion, "label": label, **more}


ROWS = [
    row(1, "1", True, model="a"),
    row(2, "2", "correct", model="a"),
    row(3, "3", 0, model="a"),  # a false positive, by this label
    row(4, "5", "wrong", model="b"),
    row(5, "it is 5", 1, model="b"),  # a false negative
    row(6, " ", False, model="b"),
    row(7, "7@raise", True, model="b"),  # we fail at it
]


def test_the_matrix_is_counted():
    """By hand: 2 right and accepted, 1 wrong and accepted, 1 right and refused, 2 wrong and refused, 1 unscored."""
    found = audit(Trials(), ROWS, workers=0)
    it = found.total
    assert (
        it.true_positive,
        it.false_positive,
        it.false_negative,
        it.true_negative,
        it.unscored,
    ) == (2, 1, 1, 2, 1)
    assert it.rates == {
        "false positives": Rate(1, 3),
        "false negatives": Rate(1, 3),
        "agreement": Rate(4, 6),
    }
    assert [(case.kind, case.task[-1]) for case in found.cases] == [
        ("false negative", "5"),
        ("false positive", "3"),
        ("unscored", "7"),
    ]
    assert found.reasons["false negative"] == {"compared": 1}
    assert not found.left_out


def test_a_rate_has_wilsons_interval():
    """1 of 10, 95 %: [0.0179, 0.4042], the textbook's; of nothing there is no rate."""
    low, high = Rate(1, 10).interval
    assert (round(low, 4), round(high, 4)) == (0.0179, 0.4042)
    assert (Rate(0, 0).value, Rate(0, 0).interval, str(Rate(0, 0))) == (
        None,
        None,
        "no completions",
    )


def test_slices_sum_to_the_whole():
    """Each value of the column has a matrix of its own."""
    found = audit(Trials(), ROWS, by=("model",), workers=0)
    a, b = found.slices["model"]["a"], found.slices["model"]["b"]
    assert (a.true_positive, a.false_positive, a.scored, a.unscored) == (2, 1, 3, 0)
    assert (b.false_negative, b.true_negative, b.scored, b.unscored) == (1, 2, 3, 1)


def test_a_reward_model_is_measured_against_the_labels():
    """By hand: task 1 has 1½ of its 2 pairs in order, task 2 none of 1, task 3 only right ones.  Of all 8, 2½."""
    scores = {"a": 0.9, "b": 0.5, "c": 0.5, "d": 0.2, "e": 0.8, "f": 0.1}
    rows = [
        row(1, "a", 1),
        row(1, "b", 0),
        row(1, "c", 1),
        row(2, "d", 1),
        row(2, "e", 0),
        row(3, "f", 1),
    ]
    asked = []

    def model(prompts, completions):
        asked.append(len(prompts))
        return [scores[one] for one in completions]

    found = audit(Trials(), rows, reward_model=model, workers=0)
    assert found.ranking.of_tasks == [0.75, 0.0]
    assert found.ranking.of_all == pytest.approx(2.5 / 8)
    assert asked == [6]
    known = found.as_dict()["reward_model"]
    assert known["mean_right"] == pytest.approx(1.7 / 4)
    assert known["within_tasks"]["value"] == pytest.approx(0.375)
    out = io.StringIO()
    found.show(Console(file=out, width=300))
    assert "the reward model: right before wrong in 0.375 [" in out.getvalue()
    one_sided = audit(Trials(), rows[3:4], reward_model=model, workers=0)
    assert str(one_sided.ranking) == "no task has both a right and a wrong completion"


def test_two_environments_are_compared():
    """Lenient accepts "it is 5" too; what either could not score is in no count."""
    found = audit(Trials(), ROWS, against=Lenient(), workers=0).disagreement
    assert (found.both, found.only_first, found.only_second, found.neither) == (3, 0, 1, 2)
    assert found.rate == Rate(1, 6)
    [case] = found.cases
    assert (case.kind, case.completion) == ("only the second", "it is 5")
    assert case.why == "compared: with 5; the second: found"


def test_reasons_take_turns_among_the_cases():
    """Nine wordy ones and one silent one: with room for two, both kinds are seen."""
    rows = [row(1, f"it is {i}", True) for i in range(9)] + [row(1, "", True)]
    found = audit(Trials(), rows, worst=2, workers=0)
    assert [case.why.partition(":")[0] for case in found.cases] == ["compared", "silent"]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (True, True),
        (1, True),
        (1.0, True),
        ("Correct", True),
        ("false", False),
        (0, False),
        ("0", False),
    ],
)
def test_labels_are_read(value: object, label: bool):
    """As data sets write them."""
    assert label_of(value) is label


@pytest.mark.parametrize("value", [None, 2, 0.5, "maybe", float("nan"), ["correct"]])
def test_what_is_no_label_is_refused(value: object):
    """A half is no truth value."""
    with pytest.raises(rlvr.DataError, match="it must be true or false, 1 or 0, correct or wrong"):
        label_of(value)


def test_rows_without_a_label_are_left_out_and_named():
    """They are counted, never guessed; if none is left, that is the error."""
    bad = [row(1, "1", "maybe"), {"task": 1, "completion": "1"}, {"task": 1, "label": True}]
    found = audit(Trials(), [*ROWS, *bad], workers=0)
    assert len(found.left_out) == 3
    assert found.total.scored == 6
    with pytest.raises(rlvr.DataError, match="no row could be used: row"):
        audit(Trials(), bad, workers=0)


def test_a_column_that_cannot_slice_is_refused():
    """None has a value, or there are too many of them."""
    with pytest.raises(rlvr.UsageError, match="no row has a value in column 'modle'"):
        audit(Trials(), ROWS, by=("modle",), workers=0)
    many = [row(1, "1", True, seed=i) for i in range(51)]
    with pytest.raises(
        rlvr.UsageError, match="column 'seed' has more than 50 values; slice by another"
    ):
        audit(Trials(), many, by=("seed",), workers=0)


class Counted(Trials):
    """Counts what it verifies, fails where it is told to, and quotes the completion in its reason."""

    calls = 0

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        type(self).calls += 1
        if completion == "shrug":
            return rlvr.Verdict("unscored", why="shrug")
        return rlvr.Verdict("wrong", why=f"{completion!r} is not it")

    def find(self, task: str | int) -> rlvr.Task:
        if task == 2:
            raise LookupError("no task 2")
        return super().find(task)


def test_a_mistyped_column_is_found_before_anything_is_scored():
    """An hour of scoring should not end in a typing error; an iterator loses no row by that look."""
    Counted.calls = 0
    for given in ({"label": "lable"}, {"by": ("modle",)}):
        with pytest.raises(
            rlvr.UsageError, match=r"no row has a (label|value) in column '(lable|modle)'"
        ):
            audit(Counted(), iter(ROWS), workers=0, **given)
    assert Counted.calls == 0
    found = audit(Trials(), iter(ROWS), by=("task",), against=Lenient(), workers=0)
    assert (found.total.scored, found.disagreement.rate, len(found.slices["task"])) == (
        6,
        Rate(1, 6),
        7,
    )


def test_what_the_second_environment_fails_at_is_counted():
    """By hand: of three rows it refuses one and shrugs at another, so that one is left to compare."""
    rows = [row(1, "1", True), row(2, "2", True), row(3, "shrug", False)]
    found = audit(Trials(), rows, against=Counted(), workers=0)
    other = found.disagreement
    assert (other.unscored, other.left_out, other.rate) == (
        1,
        ["row 2: LookupError: no task 2"],
        Rate(1, 1),
    )
    assert (found.whole, audit(Trials(), rows, workers=0).whole) == (False, True)


def test_a_reason_that_quotes_is_no_page_of_its_own():
    """Of 1100 different reasons the commonest are kept, and a cell is cut; the count is whole."""
    rows = [row(1, f"it is {i}", True) for i in range(1100)] + [row(1, "x" * 100_000, True)]
    found = audit(Counted(), rows, worst=3, workers=0)
    reasons = found.reasons["false negative"]
    assert (len(reasons), sum(reasons.values()), len(found.cases)) == (21, 1101, 3)
    assert len(page(audit(Counted(), rows[-1:], workers=0))) < 20_000
    with pytest.raises(rlvr.UsageError, match="worst is -1"):
        audit(Counted(), rows, worst=-1, workers=0)


def test_what_is_shown_is_inert_on_a_terminal():
    """No escape sequence, no markup, no emoji by name."""
    out = io.StringIO()
    rows = [row(1, "2", True, kind="\x1b[2J[red]:smile:"), row(1, "\x1b]0;x\x07", True, kind="a")]
    audit(Counted(), rows, by=("kind",), workers=0).show(Console(file=out, width=200))
    assert "\x1b" not in out.getvalue()
    assert "[red]:smile:" in out.getvalue()


class Tags(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.seen.append((tag, dict(attrs)))


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></details><img src=x onerror=alert(1)>",
    '"><iframe src="https://evil.example"></iframe>',
    "<style>@import url(//evil.example)</style>",
    "\x00\x1b[2J\ud800",
    "{title} {0} &lt;script&gt;",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_completion_is_inert_on_the_page(text: str):
    """Wherever a text from outside stands: no tag of its own, no resource from outside, no script."""
    rows = [
        row(1, text, True, **{"model<b>": text, "id": f"{text}1"}),
        row(2, "2", True, **{"model<b>": "plain"}),
    ]
    shown = page(audit(Trials(), rows, by=("model<b>",), against=Lenient(), workers=0))
    tags = Tags(shown).seen
    known = set(
        "html head meta title style body main section h1 h2 table caption tr th td p details summary pre".split()
    )
    assert {tag for tag, _ in tags} <= known
    assert sum(tag == "style" for tag, _ in tags) == 1
    assert not {name for _, attrs in tags for name in attrs} - {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "scope",
        "aria-label",
    }
    assert "default-src 'none'" in shown
    assert "\x1b" not in shown
    assert "\x00" not in shown


def test_the_page_and_the_json_hold_all_of_it():
    """The same numbers; a page of another's folder can be read without the run."""
    found = audit(Trials(), ROWS, by=("model",), against=Lenient(), workers=0)
    read = json.loads(json.dumps(found.as_dict()))
    assert read["total"]["rates"]["agreement"]["k"] == 4
    assert read["slices"]["model"]["a"]["false_positive"] == 1
    assert read["disagreement"]["rate"]["n"] == 6
    shown = page(found)
    for words in (
        "33.33%",
        "it is 5",
        "compared",
        "by a failure of ours: 1",
        "they differ in 16.67%",
    ):
        assert words in shown


def test_no_more_rows_are_held_than_name_the_columns():
    """A hundred were, which may have 32 MiB each."""
    taken = []

    def rows():
        for number in range(200):
            taken.append(number)
            yield {"task": 1, "completion": "1", "right": True, "by": None if number < 3 else "x"}

    _with_columns(rows(), "right", ["by", "task"])
    assert len(taken) == 4


def test_a_case_keeps_the_beginning_of_a_long_text():
    """Twenty of 8 MiB took 586 MiB on their way to a page."""
    rows = [{"task": 1, "completion": "x" * 300_000, "label": True}]
    [case] = audit(Trials(), rows, workers=0).cases
    assert case.completion == "x" * 100_000 + "…"
