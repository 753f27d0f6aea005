"""What `rlvr check` finds in verifiers: the properties of `rlvr.testing.verifiers`."""

import itertools
import json
from dataclasses import dataclass

import pytest

import rlvr
from rlvr.testing import check
from rlvr.testing.findings import Findings
from rlvr.testing.rewritings import REWRITINGS
from rlvr.testing.verifiers import LONG_TEXTS, check_verifier, strange_references
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.named import PLACES, make_verifier

BUNDLED = (
    "chem-v4 countdown-v4 function-call-v4 game24-v4 iftrain-v4 json-v4 kk-v4 qa-v4 science-v4 sql-v4 "
    "sudoku-v4 zebra-v4"
).split()


@dataclass(frozen=True)
class OneOf(BaseVerifier[Answer, frozenset[str]]):
    """The answer is one of the reference's words."""

    version = 1
    form = Form(bare=True)

    def read(self, reference):
        if not isinstance(reference, list) or not reference:
            raise rlvr.DataError(f"the reference is {reference!r}; it must be a list of words")
        return frozenset(word.casefold() for word in reference)

    def judge(self, answer, reference):
        right = answer.text.casefold() in reference
        return rlvr.Verdict("correct" if right else "wrong", why="compared", answer=answer.text)

    def example(self, reference):
        return f"<answer>{reference[0]}</answer>"


class Within(OneOf):
    """Takes a right word anywhere in the answer."""

    def judge(self, answer, reference):
        right = any(word in answer.text.casefold() for word in reference)
        return rlvr.Verdict("correct" if right else "wrong", why="within")


class Bare(OneOf):
    """Looks at the text alone, and so takes no box."""

    def extract(self, text, task):
        return Answer(text.removeprefix("<answer>").removesuffix("</answer>").strip())


class Careless(OneOf):
    """Fails at references of another form with an error of its own."""

    def read(self, reference):
        if not reference:
            raise AssertionError("no words")
        return frozenset(word.casefold() for word in reference)


class Quadratic(OneOf):
    """Looks at each pair of characters, of which there are 9 million in a long answer."""

    form = Form(bare=True, longest=1_000_000)

    def judge(self, answer, reference):
        pairs = itertools.product(answer.text[:3000], repeat=2)
        sum(1 for _ in pairs)
        return super().judge(answer, reference)


ROWS = [
    {"prompt": "A colour?", "reference": ["red", "blue"]},
    {"prompt": "A town?", "reference": ["Paris"]},
    {"prompt": "A pet?", "reference": ["cat"]},
]


@pytest.mark.parametrize(
    ("verifier", "holes"),
    [
        (OneOf(), set()),
        (Within(), {"alternatives"}),
        (Bare(), {"rewritten"}),
        (Careless(), {"reference-raises"}),
        (Quadratic(), {"long-text"}),
    ],
)
def test_each_breach_is_found_with_its_text(
    verifier: BaseVerifier, holes: set[str], monkeypatch: pytest.MonkeyPatch
):
    """Each class breaks one property, and one none."""
    monkeypatch.setattr("rlvr.testing.verifiers.LONG_TEXTS", ("a",))
    monkeypatch.setattr("rlvr.testing.verifiers._CPU_S", 0.1)  # of a second or two
    env = rlvr.Environment.from_rows(ROWS, verifier=verifier)
    report = check(env, only=("verifier",), budget_s=60)
    assert set(report.holes) == holes
    assert all(finding.completion for finding in report.findings)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_verifiers_have_the_properties(
    name: str, whole: bool, monkeypatch: pytest.MonkeyPatch
):
    """Usual wrappings, hedges, references of strangers, and texts of a megabyte.

    Not whole, a verifier has a sixth of these texts, and the next verifier has others.
    """
    if not whole:
        part = LONG_TEXTS[BUNDLED.index(name) % 6 :: 6]
        monkeypatch.setattr("rlvr.testing.verifiers.LONG_TEXTS", part)
    env, found = rlvr.make(name), Findings()
    check_verifier(env, list(itertools.islice(env.tasks(), 3)), found)
    assert not found.listed()


def test_strange_references_change_every_part():
    """A reference is wrong at one place as often as it is of another type altogether."""
    changed = [json.dumps(one, default=repr) for one in strange_references({"a": ["x", {"b": 1}]})]
    for text in (
        "{}",
        '{"a": null}',
        '{"a": ["x", null]}',
        '{"a": ["x", {"b": []}]}',
        '{"a": ["x", {}]}',
    ):
        assert text in changed


def test_rewritings_say_the_same_or_nothing():
    """An answer that cannot be written so is passed over instead of being written wrongly."""
    assert REWRITINGS["box"]("a}") is None
    assert REWRITINGS["marker"]("a\nb") is None
    assert REWRITINGS["phrase"]("Dr. Who") is None
    assert REWRITINGS["wide digits"]("x 12") == "<answer>x １２</answer>"


@pytest.mark.parametrize("name", [name for name in PLACES if name not in ("code", "judge")])
def test_a_reference_that_is_read_can_be_answered(name: str):
    """What `read` takes never fails while an answer is judged, and its example is CORRECT."""
    verifier = make_verifier(name)
    for reference in strange_references(verifier.reference_example):
        try:
            verifier.read(reference)
        except rlvr.DataError:
            continue
        verifier.verify("<answer>quartz willow</answer>", reference)
        example = verifier.example(reference)
        assert example is None or verifier.verify(example, reference).correct, reference
