"""The exact comparison: what is certainly equal, certainly different, and what it leaves to others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UsageError
from rlvr.verifiers.math import COMPETITION, GSM8K, HENDRYCKS, LENIENT_NUMERIC, MathPolicy
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.units import UNKNOWN
from rlvr.verifiers.math.verifier import compare_bare

SAME = {
    "integers": [
        "5",
        "+5",
        "5.",
        "5.0",
        "05",
        r"\frac{10}{2}",
        "10/2",
        "2+3",
        r"5\!",
        "$5$",
        r"\(5\)",
        "{5}",
        "(5)",
        "５",
    ],
    "fractions": [
        r"\frac{1}{2}",
        r"\dfrac12",
        r"\tfrac{1}2",
        r"\frac 12",
        "1/2",
        "0.5",
        ".5",
        "0.50",
        "½",
        "2^{-1}",
    ],
    "negative": ["-3", "−3", "- 3", "–3", r"-\frac{6}{2}", r"\frac{-6}{2}", "-(3)"],
    "mixed": [r"1\frac{4}{5}", r"1 \frac45", "1 4/5", "9/5", "1.8", "1⅘"],
    "thousands": ["10080", "10,080", r"10,\!080", "10{,}080", r"10\,080", "10 080", "10080.00"],
    "repeating": [
        r"\frac{1}{6}",
        r"0.1\overline{6}",
        r"0.1\bar6",
        "0.1(6)",
        "0.1666...",
        r"0.1666\dots",
    ],
    "scientific": [
        "6.02e3",
        "6.02E+3",
        r"6.02\times 10^{3}",
        r"6.02 \cdot 10^3",
        "6.02×10³",
        "6020",
    ],
    "powers": ["2^{100}", "1267650600228229401496703205376", "2**100", r"2^{99}\cdot 2"],
    "factorial": ["5!", "120", r"5 \times 4!"],
    "double factorial": ["7!!", "105"],
    "percent": [r"12.5\%", r"\frac18", "0.125", "12.5 percent"],
    "ordinal": [r"12^{\text{th}}", "12th", "12"],
    "big words": ["1.8 billion", "1800000000", "1800 million", r"\$1.8\text{ billion}"],
    "base": ["1011_2", "1011_{2}"],
    "multiples of pi": [r"\frac{2\pi}{3}", r"\frac23\pi", r"2\pi/3", "2π/3", r"\frac{4\pi}{6}"],
    "assignment": ["x = 5", "x=5", "5", "x = 2 + 3 = 5"],
    "choice": ["(B)", r"\text{(B)}", "B", r"\textbf{(B)}\ 12", "b", "B.", "B) 12", "Option B"],
    "choice by its text": [r"\textbf{(B)}\ 12", "12"],
    "word": [r"\text{Monday}", "Monday", "monday", r"\textbf{Monday}."],
    "words": [r"\text{line segment and circle}", "circle, line segment"],
    "article": ["ellipse", "an ellipse", r"\text{The ellipse}"],
    "hyphen": ["north-east", "north east"],
    "yes": [r"\text{yes}", "Yes", "YES."],
    "number words": ["twenty-one", "21", "twenty one", r"\text{Twenty-one}"],
    "hundred": ["one hundred", "100", "hundred"],
    "fraction words": ["two thirds", r"\frac23"],
    "ordinal words": ["third", "3rd", "3"],
    "said": [r"\text{The answer is }5", "5"],
    "ratio": ["5:8", "5 : 8", "10:16", "5 to 8", r"\frac58"],
    "letters": [r"3\sqrt{13}", r"3 \sqrt {13}", r"3\sqrt{ 13 }"],
    "superscript": ["x²", "x^2", "x^{2}"],
    "functions": ["f(n) = 2n + 7", "f(m) = 2m + 7", "2n+7"],
    "fraction of anything": [r"\frac\pi4", r"\frac{\pi}{4}", r"\frac{\pi}4"],
    "about": [r"\frac{1}{3} \approx 0.33", r"\frac13"],
}


@pytest.mark.parametrize("family", SAME)
def test_every_spelling_of_one_answer_is_the_same_answer(family):
    """The first spelling is held against all others, either way round."""
    first, *others = SAME[family]
    for other in others:
        assert compare_bare(first, other) is True, (first, other)
        assert compare_bare(other, first) is True, (other, first)


DIFFERENT = [
    ("5", "6", "numbers"),
    ("0.33", "1/3", "rounding is not equality"),
    ("1234567890123456789", "1234567890123456788", "no float is involved"),
    (r"10^{50}", r"10^{50}+1", "nor here"),
    ("100!", "100!+1", "nor here"),
    (r"\frac{1}{10^{9}}", "0", "tiny is not zero"),
    ("1,234", "1.234", "a comma is no point"),
    ("12", "1, 2", "a list is no number"),
    ("12", "11, 12", "a list that contains the reference"),
    ("12", "11 or 12", "a hedge in words"),
    ("2", r"\pm 2", "two answers for one"),
    ("5", r"\{5, 6\}", "a set that contains the reference"),
    ("1011_2", "1011", "a base is not cosmetic"),
    (r"\frac{2\pi}{3}", r"\frac23", "π is no unit that may be left out"),
    (r"\pi", "3", "nor is it rational"),
    ("0.5", r"0.5\%", "a sign that matters"),
    ("(1, 2, 3)", "(1, 2, 3]", "brackets that do not match"),
    ("B", "C", "another choice"),
    ("B", "A or B", "a hedge between choices"),
    (r"\textbf{(B)}\ 12", r"\textbf{(B)}\ 13", "the letter does not excuse the value"),
    ("50%", "50 cm", "a percent sign is no unit"),
    ("0", "0 = 0", "a tautology"),
    ("x = 3", "x = x", "a tautology with a name"),
    ("3", "1 = 2 = 3", "a chain whose sides differ"),
    ("3", "2 = 3", "a falsehood"),
    ("0", r"\frac{0}{0}", "no value"),
    ("2", r"2^{-1}", "sign of an exponent"),
    ("2000", "2 million", "big words multiply"),
]


def test_what_is_certainly_different_is_said_to_be():
    """Either way round: no verdict depends on which side is trusted."""
    for reference, answer, why in DIFFERENT:
        assert compare_bare(answer, reference) is False, (reference, answer, why)
        assert compare_bare(reference, answer) is False, (reference, answer, why)


UNDECIDED = [
    (r"\sqrt{4}", "2", "needs algebra"),
    ("x + 1", "1 + x", "needs algebra"),
    ("east", "seat", "words that share letters"),
    ("ellipse", "oval", "words that may mean the same"),
    ("no", "false", "words of two questions"),
    ("p - q", "p q", "a minus is no hyphen"),
    (r"x - 1\%", "x - 1", "a percent sign on what is no constant"),
    ("(C)^2", "C", "letters that are no choice"),
    ("12", "1 2", "two numbers side by side"),
    ("12", r"1\,2", "a thin space groups three digits or none"),
    ("5", "5ab", "letters that are no unit"),
    ("B", "Paris", "the text of an option"),
    (r"\infty", "no bound", "a sign and words"),
]


def test_it_knows_what_it_does_not_know():
    """None is an answer: the symbolic engine decides, or, without it, the verdict is WRONG."""
    assert [row for row in UNDECIDED if compare_bare(row[1], row[0]) is not None] == []


POLICIES = [
    # (policy, reference, answer, with it, without it)
    (MathPolicy(percent="fraction"), "50", r"50\%", False, True),
    (MathPolicy(percent="fraction"), r"50\%", "0.5", True, True),
    (MathPolicy(percent="ignore"), "0.5", r"50\%", False, True),
    (MathPolicy(percent="ignore"), "50", r"50\%", True, True),
    (MathPolicy(units="ignore"), r"5\text{ m}", "5 cm", True, False),
    (MathPolicy(units="required"), r"5\text{ m}", "5", False, True),
    (MathPolicy(convert_units=False), r"5\text{ cm}", "50 mm", False, True),
    (MathPolicy(bases="value"), "52_8", "42", True, False),
    (MathPolicy(bases="value"), "52_8", "52_{8}", True, True),
    (MathPolicy(ratios="distinct"), "5:8", r"\frac58", False, True),
    (MathPolicy(ratios="distinct"), "5:8", "10:16", True, True),
    (MathPolicy(rounding="exact"), "0.458", r"\frac{27}{59}", False, True),
    (MathPolicy(rounding="reference"), "0.33", r"\frac13", True, False),
    (MathPolicy(rounding="reference"), "0.33", "0.333", True, False),
    (MathPolicy(rounding="reference"), "0.33", "0.3", False, False),
    (MathPolicy(rounding="reference"), "-2.5", r"-\frac{251}{100}", True, False),
    (MathPolicy(rounding="reference"), r"41.4\%", r"41.42\%", True, False),
    (MathPolicy(tolerance=0.01), "100", "101", True, False),
    (MathPolicy(tolerance=0.01), "100", "101.5", False, False),
    (MathPolicy(tolerance=0.01), "-100", "-99", True, False),
    (MathPolicy(tolerance=0.01), r"\$100", "99.5 dollars", True, False),
    (MathPolicy(tolerance=0.5, tolerance_is="absolute"), "100", "100.5", True, False),
    (MathPolicy(tolerance=0.5, tolerance_is="absolute"), "100", "101", False, False),
    (MathPolicy(tolerance=0.5, tolerance_is="absolute"), "(1, 2)", "(1.5, 2)", True, False),
    (MathPolicy(order="any"), "(1, 2)", "(2, 1)", True, False),
    (MathPolicy(order="any"), "(1, 2)", "(1, 1)", False, False),
    (MathPolicy(order="any"), "(1, 2]", "(2, 1]", False, False),
    (MathPolicy(case="match"), r"\text{Paris}", "paris", None, True),
    (MathPolicy(case="match"), r"\text{Paris}", "Paris", True, True),
    (MathPolicy(ordered_lists=True), "1, 2", "2, 1", False, True),
    (MathPolicy(ordered_lists=True), r"\{1, 2\}", r"\{2, 1\}", True, True),
    (MathPolicy(equation_as_value=False), "5", "x = 5", False, True),
    (MathPolicy(equation_as_value=False), "x = 5", "x = 5.0", True, True),
    (GSM8K, "1080", "$1,080", True, True),
    (GSM8K, "25", "25%", True, True),
    (GSM8K, "3 hours", "3 apples", True, None),
    (HENDRYCKS, "2625_7", "999", False, False),
    (LENIENT_NUMERIC, "9.81", r"9.812\text{ m/s}", True, False),
    (LENIENT_NUMERIC, "9.81", "9.8", False, False),
]


def test_every_setting_of_the_policy_matters():
    """Each row says what the setting changes against the default."""
    for policy, reference, answer, expected, by_default in POLICIES:
        assert compare_bare(answer, reference, policy) is expected, (policy, reference, answer)
        assert compare_bare(answer, reference, COMPETITION) is by_default, (reference, answer)


ROUNDED = [
    # (reference, answer, expected, reason)
    ("0.458", r"\frac{27}{59}", True, "0.45763 rounds to it"),
    ("41.495", r"\frac{2904644}{70000}", True, "41.49491… rounds to it"),
    (
        "41.494",
        r"\frac{2904644}{70000}",
        False,
        "and begins with this, which is cut off and half a unit too far away",
    ),
    ("3.14", r"\frac{22}{7}", True, "3.1428… rounds to it"),
    ("3.142", r"\frac{22}{7}", False, "and to 3.143, not to this"),
    (r"41.4\%", r"\frac{29}{70}", True, "41.43 % does, and a percent sign moves the point"),
    ("0.458", "0.45763", False, "a longer decimal has been rounded too"),
    ("0.458", "0.46", False, "and a shorter one says less"),
    ("0.33", r"\frac13", False, "two digits are met by chance"),
    ("12.5", r"\frac{137}{11}", False, "12.4545…, but halves, quarters and eighths are exact"),
    ("0.458", r"\frac{229}{500}", True, "the same number"),
    ("0.458", r"\frac{2289}{5000}", False, "a decimal written as a fraction"),
    (r"\frac13", "0.333", False, "only the reference may have been rounded"),
]


def test_only_a_reference_may_have_been_rounded():
    """By default, and only if it shows three digits; this is the one comparison that has a direction."""
    for reference, answer, expected, why in ROUNDED:
        assert compare_bare(answer, reference) is expected, (reference, answer, why)


def test_a_misspelt_setting_is_refused():
    """Strings are easy to get wrong, and a setting that no code reads would be a silent default."""
    with pytest.raises(UsageError, match=r"MathPolicy\.percent is 'ignored'; it must be one of"):
        replace(COMPETITION, percent="ignored")
    for tolerance in (-1, float("nan"), float("inf"), True, "1%"):
        with pytest.raises(UsageError, match=r"MathPolicy\.tolerance is"):
            MathPolicy(tolerance=tolerance)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"MathPolicy\.unboxed is 1"):
        MathPolicy(unboxed=1)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- properties

NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map(
        lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"
    ),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map(lambda f: f"{f[0]}/{f[1]}"),
    st.decimals(-1000, 1000, places=3).map(str),
)
EXACT = MathPolicy(rounding="exact")  # rounding has a direction, equality has none
ATOMS = st.one_of(
    NUMBERS,
    st.sampled_from(
        [
            "x",
            r"\pi",
            r"\sqrt{2}",
            "2x+1",
            "B",
            r"\text{even}",
            r"\infty",
            "5 cm",
            "30^\\circ",
            "3:30 pm",
        ]
    ),
)
ANSWERS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(
            lambda xs: r"\left(" + ", ".join(xs) + r"\right)"
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda xs: r"\{" + ", ".join(xs) + r"\}"),
        st.lists(inner, min_size=2, max_size=3).map(", ".join),
        inner.map("x = {}".format),
        inner.map("x < {}".format),
        inner.map(r"{}, k \in \mathbb{{Z}}".format),
    ),
    max_leaves=5,
)
COMMANDS = (
    r" \cap \setminus \mathbb{R} \text{or} \overline{3} \dots \mp \pi x: 3:30 July am hours where for integer half "
    r"\{ \} \\ \frac \frac{1}{2} \sqrt \pm \cup \infty \left( \right) \text{cm} \text{and} \$ \% ^\circ \le \in \approx"
    r" \begin{pmatrix} \end{pmatrix} \boxed{ _8 1,234 km or even f(x) million"
)
SIGNS = '0159+-*/^!()[]{},;=:.<>|&$%" \nxyeB\x00\ud800½²√−°'
SOUP = st.lists(st.sampled_from([*SIGNS, *COMMANDS.split()]), max_size=10).map("".join)


@given(ANSWERS)
def test_everything_equals_itself(answer):
    """Reflexive, whatever it is made of."""
    assert compare_bare(answer, answer) is True


@given(ANSWERS, ANSWERS)
def test_equality_has_no_direction(a, b):
    """Symmetric: who is trusted does not change what is equal."""
    assert compare_bare(a, b, EXACT) is compare_bare(b, a, EXACT)


@given(SOUP, SOUP)
def test_no_text_breaks_the_comparison(a, b):
    """Any two texts get an answer, the same both ways unless one has words behind a number that no
    table has: an answer's are refused (`unknown-words`), a reference's are not."""
    there, back = compare_bare(a, b, EXACT), compare_bare(b, a, EXACT)
    assert there is back or any(getattr(read(text), "unit", "")[:1] == UNKNOWN for text in (a, b))
    assert compare_bare(a, a) is not False


@given(ANSWERS, ANSWERS)
def test_spacing_and_sized_brackets_do_not_matter(a, b):
    r"""Spaces around signs, and \left \right, change nothing."""
    spaced = (
        a.replace(",", " , ").replace("{", "{ ").replace(r"\left(", "(").replace(r"\right)", ")")
    )
    assert compare_bare(spaced, b) is compare_bare(a, b)


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(1, 50))
def test_fractions_compare_as_fractions(above, below, factor):
    """Unreduced is equal; off by one is not."""
    assert (
        compare_bare(rf"\frac{{{above * factor}}}{{{below * factor}}}", f"{above}/{below}") is True
    )
    assert compare_bare(rf"\frac{{{above + 1}}}{{{below}}}", f"{above}/{below}") is False


@given(st.integers(0, 10**15))
def test_thousands_separators_are_cosmetic(number):
    """Python's own grouping, and LaTeX's."""
    assert compare_bare(f"{number:,}", str(number)) is True
    assert compare_bare(f"{number:,}".replace(",", "{,}"), str(number)) is True
