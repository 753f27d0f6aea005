"""The whole path: completion and reference in, verdict and reason out."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import DataError, UsageError
from rlvr.types import Outcome, Verifier
from rlvr.verifiers.math import GSM8K, MathPolicy, MathVerifier

VERIFIER = MathVerifier()
C, W, U = Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSED

VERDICTS = [
    # (completion, reference, outcome, reason)
    (r"Hence \boxed{\frac{1}{2}}.", "0.5", C, "same-number"),
    (r"Hence \boxed{\frac{2}{4}}.", "1/2", W, "unfinished"),
    (r"Hence \boxed{3\sqrt{13}}.", r"3 \sqrt{13}", C, "same-text"),
    (r"Hence \boxed{2, 1}.", r"\{1, 2\}", C, "same-items"),
    (r"Hence \boxed{\text{(B)}}.", "B", C, "same-choice"),
    (r"Hence \boxed{\text{even}}.", r"\text{Even}", C, "same-text"),
    (r"Hence \boxed{(x+1)^2}.", "x^2+2x+1", C, "symbolic-equal"),
    (r"Hence \boxed{1\frac12} or \boxed{\frac32}.", "1.5", C, "same-number"),
    (r"First \boxed{4}. But wait. \boxed{5}", "5", C, "same-number"),
    (r"The answer is $\frac{1}{2}$.", "0.5", C, "same-number"),
    (r"Hence \boxed{6}.", "5", W, "different-number"),
    (r"Hence \boxed{\text{odd}}.", r"\text{even}", W, "different-text"),
    (r"Hence \boxed{\text{seat}}.", r"\text{east}", W, "different-text"),
    (r"Hence \boxed{seat}.", "east", W, "different-text"),
    (r"Hence \boxed{C}.", "B", W, "different-choice"),
    (r"Hence \boxed{5\text{ m}}.", r"5\text{ s}", W, "different-unit"),
    (r"Hence \boxed{5\text{ m}}.", r"5\text{ cm}", W, "different-number"),
    (r"Hence \boxed{x < 1 \text{ or } x > 3}.", r"(3,\infty) \cup (-\infty,1)", C, "same-set"),
    (r"Hence \boxed{x < 1}.", r"(-\infty,1) \cup (3,\infty)", W, "different-set"),
    (r"Hence \boxed{3:30}.", "3:45", W, "different-time"),
    (r"$x=\boxed{3}$, $y=\boxed{4}$", "3, 4", C, "same-items"),
    (r"$x=\boxed{3}$, $y=\boxed{4}$", "(3, 4)", C, "same-items"),
    (r"\boxed{3} and \boxed{4}", r"\{4, 3\}", C, "same-items"),
    (r"$y=\boxed{3}$, $x=\boxed{4}$", "x=3, y=4", W, "different-items"),
    (r"\boxed{3}, \boxed{4}, \boxed{5}", "3, 4", W, "hedged"),
    (r"Hence \boxed{p \vdash q}.", r"q \vdash p", W, "different-text"),
    (r"Hence \boxed{\sqrt{2}}}.", r"\sqrt{2}", C, "same-text"),
    (r"Hence \boxed{12 \text{ pears}}.", r"12 \text{ apples}", W, "different-unit"),
    (r"Hence \boxed{[1,2]}.", "(1,2)", W, "different-ends"),
    (r"Hence \boxed{\sqrt3}.", r"\sqrt2", W, "symbolic-different"),
    (r"Hence \boxed{11}, \boxed{12} or \boxed{13}.", "12", W, "hedged"),
    (r"Hence \boxed{1=2=3}.", "3", W, "chain"),
    (r"\boxed{e, f, g}", "e<f<g", C, "same-items"),
    (r"\boxed{\text{b, a, c}}", "b<a<c", C, "same-items"),
    (r"\boxed{A, a, b}", "a<A<b", W, "different-items"),
    (r"Hence \boxed{x=x}.", "x=3", W, "tautology"),
    (r"Hence \boxed{\frac{0}{0}}.", "0", W, "undefined"),
    (r"Hence \boxed{9^{9^{9}}}.", "5", W, "limit"),
    (r"Hence \boxed{" + "1" * 5000 + "}.", "5", W, "limit"),
    (r"Hence \boxed{\frac{}.", r"\sqrt{2}", W, "unreadable"),
    (r"Hence \boxed{,}.", "5", W, "unreadable"),
    (r"Hence \boxed{}. The answer is 5.", "5", U, "empty-box"),
    ("Hence \\boxed{5\n\nand", "5", U, "unclosed-box"),
    ("I do not know.", "5", U, "no-answer"),
    ("", "5", U, "no-answer"),
    (r"<think>\boxed{5}</think> I give up.", "5", U, "no-answer"),
    (r"<think>\boxed{5}", "5", U, "no-answer"),
]


def test_every_reason_has_its_case():
    """Reasons are counted and compared between runs, so they are part of the contract."""
    for row in VERDICTS:
        completion, reference, outcome, reason = row
        verdict = VERIFIER.verify(completion, reference)
        assert (verdict.outcome, verdict.reason) == (outcome, reason), (row, verdict.why)
        assert verdict.value == (outcome is C), row


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        (5, "5.0", "6"),
        (-3, "−3", "3"),
        (Fraction(1, 3), r"\frac13", "0.33"),
        (0.5, r"\frac12", "0.51"),
        (1e23, "10^{23}", "10^{22}"),
        (Decimal("1.50"), "1.5", "1.05"),
        (Decimal("1E+3"), "1000", "100"),
        (np.float64(8.0), "8", "9"),
        (np.float32(0.1), r"\frac{1}{10}", "0.11"),
        (np.int64(8), "8", "9"),
        (r"$\frac{1}{2}$", "0.5", "2"),
        (r"\boxed{5}", "5", "6"),
    ],
)
def test_references_may_be_numbers(reference, right, wrong):
    """Datasets hold integers as often as LaTeX."""
    assert VERIFIER.verify(rf"\boxed{{{right}}}", reference).correct
    assert not VERIFIER.verify(rf"\boxed{{{wrong}}}", reference).correct


IMPOSSIBLE = {
    "none": None,
    "bool": True,
    "dict": {"answer": "5"},
    "empty list": [],
    "list": ["5", None],
    "empty": "",
    "blank": "  ",
    "nan": float("nan"),
    "infinite": float("inf"),
    "decimal nan": Decimal("nan"),
    "too long to print": 10**5000,
    "chain": "1=2=3",
    "tautology": "x=x",
    "undefined": r"\frac00",
    "unbalanced": r"\frac{1}{2",
    "brackets": "(1, 2, 3]",
}


@pytest.mark.parametrize("reference", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_reference_that_cannot_be_right_is_named(reference):
    """Whatever the completion, so that a bad row shows at once and never as a wrong answer."""
    for completion in (r"\boxed{5}", "", r"\boxed{x=x}"):
        with pytest.raises(DataError, match="the reference"):
            VERIFIER.verify(completion, reference)


LONG_NUMBERS = [
    # (reference, answer, right, reason)
    ("2024^{4046}", "2024^{4046}", True, "13,376 digits, worked out exactly"),
    ("2024^{4046}", r"(2^3 \cdot 11 \cdot 23)^{4046}", True, "the same number"),
    ("2024^{4046}", "2024^{4045} \\cdot 2024", True, "the same number"),
    ("2024^{4046}", "2024^{4047}", False, "another"),
    ("2024^{4046}", "2024", False, "another"),
    ("9^{9^{9}}", "9^{9^9}", True, "369 million digits: the same text"),
    ("9^{9^{9}}", "9^{9^{8}}", False, "another text"),
    ("9^{9^{9}}", "5", False, "another text"),
    ("10^{20000}", "1e20000", True, "as powers of ten are written"),
]


@pytest.mark.parametrize(("reference", "answer", "right", "why"), LONG_NUMBERS)
def test_a_reference_may_name_a_number_too_long_to_write(reference, answer, right, why):
    """It is compared as an expression; an answer names such a number only where the reference does."""
    assert VERIFIER.compare(answer, reference).correct is right, why
    assert VERIFIER.compare(answer, "5").correct is (answer == "5")


def test_several_references_are_alternatives():
    """Any of them is right; an answer that none of them has gets the reason of the first."""
    assert VERIFIER.verify(r"\boxed{0.5}", ["x = 3", "1/2"]).correct
    assert VERIFIER.verify(r"\boxed{2\sin x\cos x}", ("1", r"\sin 2x")).why == "symbolic-equal"
    assert VERIFIER.compare("4", [3, 5]).why == "different-number"
    assert VERIFIER.doubt(["p \\to q \\to", "1"]) is not None
    pairs = [(r"\boxed{1}", ["1", "2"]), (r"\boxed{x+1}", ["2", "1+x"]), (r"\boxed{3}", "4")]
    assert [verdict.correct for verdict in VERIFIER.verify_many(pairs)] == [True, True, False]


def test_what_is_no_text_is_refused():
    """A typed error for the caller's mistakes."""
    with pytest.raises(UsageError, match="must be a string"):
        VERIFIER.verify(None, "5")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="markers"):
        MathVerifier(markers="####")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="markers"):
        MathVerifier(markers=("",))


def test_a_bare_answer_needs_no_box():
    """Labelled pairs hold answers; who still has a box around one may leave it there."""
    assert VERIFIER.compare("1/2", "0.5").why == "same-number"
    assert VERIFIER.compare("**5**", "5").correct
    assert VERIFIER.compare(r"so \boxed{5}", "5").correct
    assert VERIFIER.compare("(1+x)^2", "x^2+2x+1").why == "symbolic-equal"
    assert VERIFIER.compare("11 or 12", "12").outcome is W


def test_many_are_judged_as_one_by_one():
    """One call to the worker for all that the normal form leaves open."""
    pairs = [(completion, reference) for completion, reference, _, _ in MIXED]
    assert VERIFIER.verify_many(pairs) == [VERIFIER.verify(*pair) for pair in pairs]
    assert VERIFIER.verify_many([]) == []


@pytest.mark.parametrize(
    ("reference", "understood"),
    [("5", True), (r"x^2+\sqrt{2}", True), (r"\text{east}", True), (r"p \vdash q", False)],
)
def test_a_reference_can_be_checked_when_data_is_loaded(reference, understood):
    """What no engine understands is equal to its own text alone, and the report says so."""
    assert (VERIFIER.doubt(reference) is None) is understood
    assert VERIFIER.compare(reference, reference).correct


def test_policies_that_concern_the_whole_completion():
    """The settings that `compare` cannot see."""
    hedge = r"\boxed{11} or \boxed{12}"
    assert not VERIFIER.verify(hedge, "12").correct
    assert MathVerifier(MathPolicy(several_boxes="last")).verify(hedge, "12").correct
    stated = "The answer is 5."
    assert VERIFIER.verify(stated, "5").correct
    assert MathVerifier(MathPolicy(unboxed=False)).verify(stated, "5").reason == "unboxed"
    assert MathVerifier(MathPolicy(unboxed=False), markers=("A:",)).verify("A: 5", "5").correct


def test_without_an_engine_what_is_undecided_is_wrong():
    """GSM8K answers are numbers; no worker is worth starting for the rest."""
    verdict = MathVerifier(GSM8K).verify(r"\boxed{\sqrt{4}}", "2")
    assert (verdict.outcome, verdict.reason) == (W, "undecided")
    assert MathVerifier(GSM8K).verify(r"\boxed{b, a, c}", "b<a<c").correct


@pytest.mark.parametrize(
    ("line", "reference", "correct"),
    [
        ("A: 18", "18", True),
        ("A: $1,080", "1080", True),
        ("A: 1080.00 dollars", "1,080", True),
        ("A: 25%", "25", True),
        ("A: 4 and 14", "18", False),
        ("A: -1.8 billion", "2", False),
        ("A: 10.83333333", "11", False),
        ("A: Janet", "18", False),
    ],
)
def test_grade_school_answers_after_a_marker(line, reference, correct):
    """The dataset's own convention: the last line holds the number."""
    completion = f"She sells 9 * 2 = 18 and A: is not at a line's start here.\n{line}"
    assert MathVerifier(GSM8K, markers=("A:",)).verify(completion, reference).correct is correct


def test_it_is_a_verifier_and_travels():
    """Frozen, hashable, picklable, with a versioned id."""
    verifier = MathVerifier(GSM8K, markers=["A:"])  # type: ignore[arg-type]  # a list is made a tuple
    assert isinstance(verifier, Verifier)
    assert verifier.id == "math-verifier-v5"
    assert pickle.loads(pickle.dumps(verifier)) == verifier
    assert hash(verifier) == hash(MathVerifier(GSM8K, markers=("A:",)))


MIXED = [
    (completion, reference, outcome, reason)
    for completion, reference, outcome, reason in VERDICTS
    if len(completion) < 99
]


def _all_verdicts() -> list[tuple[Outcome, str]]:
    return [(v.outcome, v.reason) for c, r, _, _ in MIXED for v in [VERIFIER.verify(c, r)]]


def test_threads_and_asyncio_see_what_the_main_thread_sees():
    """Peers use signals, which work in one thread only: elsewhere they raise, or never end, or score 0."""
    expected = [(outcome, reason) for _, _, outcome, reason in MIXED]
    assert _all_verdicts() == expected
    with ThreadPoolExecutor(32) as threads:
        assert all(got == expected for got in threads.map(lambda _: _all_verdicts(), range(32)))

    async def in_a_loop() -> list[list[tuple[Outcome, str]]]:
        return [
            _all_verdicts(),
            *await asyncio.gather(*(asyncio.to_thread(_all_verdicts) for _ in range(8))),
        ]

    assert all(got == expected for got in asyncio.run(in_a_loop()))


NASTY = [
    "\ud800",
    "\x00",
    "\\",
    "{" * 10**6,
    "\\boxed{" * 10**5,
    "\\boxed{" + "9" * 10**6 + "}",
    "\\boxed{\ud800\x00}",
]


@pytest.mark.parametrize("completion", NASTY, ids=range(len(NASTY)))
def test_any_text_gets_a_verdict(completion):
    """Lone surrogates, NUL, a megabyte: never an exception."""
    assert VERIFIER.verify(completion, "5").outcome in (W, U)


@given(st.text(max_size=60))
def test_random_text_is_never_right(text):
    """The reference is a number that no such text names."""
    assert not MathVerifier(GSM8K).verify(rf"\boxed{{{text}}}", "123456789123456789").correct


def test_importing_it_is_light():
    """`import rlvr.verifiers.math` runs in every scoring process; SymPy belongs to the worker."""
    program = (
        "import sys; import rlvr.verifiers.math; "
        "print([m for m in ('sympy', 'math_verify', 'latex2sympy2_extended', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
