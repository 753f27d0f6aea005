"""Several things at once: lists, tuples, sets, intervals, inequalities, labels, parameters, matrices, signs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlvr.verifiers.math.verifier import compare_bare

LISTS = [
    # (reference, answer, expected, reason)
    ("1, 2, 3", r"1 \text{ and } 2 \text{ and } 3", True, "joined by words"),
    ("1, 2", "1 or 2", True, "or, as solutions are given"),
    ("3,4", "3.4", False, "a decimal comma, never"),
    ("12", "11, 12", False, "a list that contains the reference"),
    ("12", "11 or 12", False, "a hedge in words"),
    ("(1,2), (3,4)", "(3,4), (1,2)", True, "points in any order"),
    ("(1,2), (3,4)", "(1,3), (2,4)", False, "other points"),
    ("1234", "1,234", True, "a thousands separator"),
    ("1, 234", "1,234", True, "or a list, if the other side is one"),
]

TUPLES = [
    ("(1, 2)", r"\left(1,2\right)", True, "sized brackets"),
    ("(1, 2)", r"\langle 1, 2 \rangle", True, "a vector"),
    ("(1, 2)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", True, "a column"),
    ("(2, 3)", "2, 3", True, "without its brackets"),
    ("(1, 2)", r"\{1, 2\}", False, "a set is none"),
    (r"(\pm 1, \pm 2)", "(1,2), (1,-2), (-1,2), (-1,-2)", True, "signs name four points"),
]

SETS = [
    (r"\emptyset", "no solution", True, "by word"),
    (r"\emptyset", r"\{\}", True, "by braces"),
    (r"\emptyset", "0", False, "zero is no set"),
    (r"\emptyset", "(3,1)", False, "a point whose numbers fall is none"),
    ("(2,-1)", "no solution", False, "nor is none such a point"),
    ("(0,0)", r"\text{no real solutions}", False, "nor one on the diagonal"),
    (r"(\sqrt5,1)", r"\emptyset", False, "nor one of roots"),
    (r"\{1, 2\}", r"\{\}", False, "nothing matches everything only vacuously"),
    (r"\{\emptyset, \{a\}\}", r"\{a, \emptyset\}", False, "an element is not its set"),
    (r"\{\emptyset, \{a\}\}", r"\emptyset, \{a\}", True, "sets as members"),
]

INTERVALS = [
    (r"(-\infty, 2]", r"x \le 2", True, "an inequality"),
    ("(-∞, 2]", "x ≤ 2", True, "in Unicode"),
    ("x > 2", "2 < x", True, "turned round"),
    ("x > 2", "y > 2", False, "another name"),
    ("x > 2", r"x \ge 2", False, "open and closed ends"),
    (r"x \in (3, 4]", "(3, 4]", True, "element of"),
    (r"\{x \mid x > 2\}", r"(2, \infty)", True, "set-builder"),
    (r"\{x \in \mathbb{R} : -2<x<3\}", "(-2, 3)", True, "set-builder with its domain"),
    (r"(-\sqrt2, \sqrt2)", r"-\sqrt2 < x < \sqrt2", True, "ends that read the same"),
    (r"(-\infty, \infty)", r"\mathbb{R}", True, "the whole line"),
    (r"(-\infty, \infty)", "all real numbers", True, "in words"),
    (r"(0, \infty)", r"(0, 5)", False, "infinity is no number"),
    (r"(0, \infty)", r"(0, -\infty)", False, "and has a sign"),
    ("(2, 1)", "2 < x < 1", False, "what holds nothing is no pair"),
]

UNIONS = [
    (r"(0, 9) \cup (9, 36)", "1e999", False, "a number that is no float"),
    (r"(-\infty,1) \cup (3,\infty)", r"x<1 \text{ or } x>3", True, "inequalities joined by or"),
    (r"(-\infty,1) \cup (3,\infty)", r"x<1 \lor x>3", True, "the sign for it"),
    ("(1,3)", r"x > 1 \text{ and } x < 3", True, "joined by and: what both allow"),
    ("(1,3)", r"x > 1 \text{ or } x < 3", False, "and is not or"),
    (r"x<1 \text{ or } x>2", r"x<1 \text{ and } x>2", False, "nothing satisfies both"),
    (r"(-\infty,1) \cup (2,\infty)", "x<1, x>2", True, "a comma means what can be meant"),
    ("(1,2) \\cup (2,\\infty)", r"x > 1, x \ne 2", True, "with one point left out"),
    (r"x \neq 0", r"(-\infty,0) \cup (0,\infty)", True, "unequal"),
    (r"\mathbb{R} \setminus \{0\}", r"x \ne 0", True, "a difference of sets"),
    (
        r"\mathbb{R} \setminus \{1,2\}",
        r"(-\infty,1) \cup (1,2) \cup (2,\infty)",
        True,
        "two points left out",
    ),
    (r"a \le -2 \text{ or } a = 1", r"(-\infty,-2] \cup \{1\}", True, "and a single point"),
    (r"a \le -2 \text{ or } a = 1", r"(-\infty,-2] \cup \{2\}", False, "another point"),
]

NAMES = [
    ("x = 5", "5", True, "a value for an equation"),
    ("x = 5", "y = 5", False, "another name"),
    ("5", "x = 2 + 3 = 5", True, "a chain that holds"),
    ("w=16, d=3", "d=3, w=16", True, "labels bind, in any order"),
    ("w=16, d=3", "w=3, d=16", False, "labels bind"),
    ("16, 3", "w=16, d=3", True, "labels on one side, in order"),
    ("1, 10", "y=10, x=1", False, "letters keep the order of their values"),
    ("1, 10", "Maximum = 10, Minimum = 1", True, "words have none"),
    ("7, 18", "Paul: 18, Quinn: 7", True, "nor have people"),
    ("Maximum: 3, Minimum: 1", "Minimum: 1, Maximum: 3", True, "word labels bind"),
    ("(x, y) = (1, 2)", "x = 1, y = 2", True, "a tuple of names"),
    ("(x, y) = (1, 2)", "y = 2, x = 1", True, "in any order"),
    ("(1, 2)", "(x, y) = (1, 2)", True, "named once"),
    ("f(n)=n, g(n)=1", "(f(n), g(n)) = (n, 1)", True, "functions too"),
    ("x = 1, 2", "x = 1, x = 2", True, "one name for several values"),
    ("1, 2", r"x = 1 \text{ or } x = 2", True, "or none"),
    ("f(x)=-1, f(x)=x+1", "f(x)=-1, g(x)=x+1", False, "every name counts"),
    ("f(x)=-1, f(x)=x+1", "-1, x+1", True, "unless none is given"),
    ("p = q", "q = p", True, "an equation turned round"),
    (r"\{x \mid x>0\}", r"\{t : t>0\}", True, "the letter of a set-builder is bound"),
    (r"f^{-1}(x) = 2x", "2x", True, "an inverse function"),
    ("f(n) = 2n + 7", "f(m) = 2m + 7", True, "a bound variable"),
    ("f(n) = 2n + 7", "2n+7", True, "an equation as a value"),
]

PARAMETERS = [
    (r"k\pi, k \in \mathbb{Z}", r"n\pi, n \in \mathbb{Z}", True, "another letter, declared"),
    (r"k\pi", r"n\pi \text{ where } n \text{ is an integer}", True, "declared on one side"),
    (r"k\pi, k \in \mathbb{Z}", r"n\pi, n \in \mathbb{N}", False, "another range"),
    (r"k\pi", r"k\pi, k \in \mathbb{R}", False, "counted by whole numbers, unless it is said"),
    ("kx", r"kx, k \in \mathbb{R}", True, "a constant"),
    (r"k\pi, k \in \mathbb{Z}", r"k\pi \text{ for any integer } k", True, "in words"),
    (
        "(-32 + 3x, 64 - 5x)",
        r"(-32+3t, 64-5t) \text{ for some integer } t",
        True,
        "throughout a tuple",
    ),
    (
        "(-32 + 3x, 64 - 5x)",
        r"(-32+3t, 64-5s) \text{ for some integer } t",
        None,
        "one letter for one",
    ),
    ("f(x) = x", r"f(x) = x \text{ for all } x \in \mathbb{R}", True, "what a function is given"),
    (
        "f(x)=x, f(x)=-x",
        r"f(x)=x \text{ and } f(x)=-x \text{ for all real } x",
        True,
        "at the end of a list",
    ),
]

MATRICES = [
    (
        r"\begin{pmatrix} \frac12 & 2 \end{pmatrix}",
        r"\begin{bmatrix} 0.5 & 2 \end{bmatrix}",
        True,
        "brackets",
    ),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}",
        False,
        "cells",
    ),
    (
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
        False,
        "column and row",
    ),
]

SIGNS = [
    (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2", True, "in an expression"),
    (r"\pm 1 \pm 2", "3, -1, 1, -3", True, "two signs are independent"),
    (r"\pm 1 \mp 2", "-1, 1", True, "unless the second is turned"),
]


@pytest.mark.parametrize(
    ("reference", "answer", "expected", "why"),
    [*LISTS, *TUPLES, *SETS, *INTERVALS, *UNIONS, *NAMES, *PARAMETERS, *MATRICES, *SIGNS],
)
def test_several_things_are_compared_as_what_they_are(reference, answer, expected, why):
    """Both ways round: no verdict depends on which side is trusted."""
    assert compare_bare(answer, reference) is expected, why
    assert compare_bare(reference, answer) is expected, why


DIGITS = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(DIGITS, st.data())
def test_a_list_is_its_items_counted(items, data):
    """In any order, with any of the usual separators."""
    others = data.draw(st.permutations(items) | DIGITS)
    text = data.draw(st.sampled_from((", ", "; ", r" \text{ and } "))).join(map(str, others))
    answer = compare_bare(text, ", ".join(map(str, items)))
    assert bool(answer) == (Counter(items) == Counter(others))


@given(DIGITS, st.data())
def test_a_set_is_its_members(items, data):
    """In any order, and however often."""
    others = data.draw(st.permutations(items * 2) | DIGITS)
    one, other = (rf"\{{{', '.join(map(str, numbers))}\}}" for numbers in (items, others))
    assert bool(compare_bare(other, one)) == (set(items) == set(others))
    if len(items) == 1:
        assert compare_bare(str(items[0]), one)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.data())
def test_tuples_and_ratios_are_in_order(items, data):
    """A tuple is its members in their order; a ratio is one up to a factor, by cross-multiplication."""
    others = data.draw(st.permutations(items) | st.lists(st.integers(1, 8), min_size=2, max_size=3))
    one, other = (f"({', '.join(map(str, numbers))})" for numbers in (items, others))
    assert bool(compare_bare(other, one)) == (items == others)
    factor = data.draw(st.integers(1, 3))
    scaled = [factor * number for number in others]
    assume(len(scaled) < 3 or min(scaled[1:]) < 10)  # 3:12:12 is a time of day
    same = len(items) == len(others) and all(
        items[i] * scaled[j] == items[j] * scaled[i] for i in range(len(items)) for j in range(i)
    )
    one, other = (":".join(map(str, numbers)) for numbers in (items, scaled))
    assert bool(compare_bare(other, one)) == same


PIECES = st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans(), st.booleans())
"""Of an interval: begin, length, whether each end is in it."""


def interval(piece) -> str:
    begin, length, left, right = piece
    return f"{'[' if left else '('}{begin}, {begin + length}{']' if right else ')'}"


def inequality(piece) -> str:
    begin, length, left, right = piece
    below, above = (r"\le" if closed else "<" for closed in (left, right))
    return f"{begin} {below} x {above} {begin + length}"


def covered(pieces) -> list[bool]:
    """Which whole and half numbers lie in the union: they tell all unions of such pieces apart."""
    return [
        any(
            begin < x < begin + length or (x == begin and left) or (x == begin + length and right)
            for begin, length, left, right in pieces
        )
        for x in (Fraction(n, 2) for n in range(18))
    ]


@given(PIECES, PIECES)
def test_an_interval_is_the_inequality_of_its_ends(one, other):
    """Each end is open or closed."""
    assert compare_bare(inequality(one), interval(one))
    assert compare_bare(interval(one), inequality(one))
    assert bool(compare_bare(inequality(other), interval(one))) == (one == other)


@given(st.lists(PIECES, min_size=1, max_size=3), st.data())
def test_unions_are_the_points_they_cover(pieces, data):
    """Cut at a point that stays on one side or is lost, in any order: what touches is one, a gap is a gap."""
    others = []
    for begin, length, left, right in pieces:
        if length > 1:
            at = data.draw(st.integers(1, length - 1))
            ends = data.draw(st.sampled_from(((True, False), (False, True), (False, False))))
            others += [(begin, at, left, ends[0]), (begin + at, length - at, ends[1], right)]
        else:
            others.append((begin, length, left, right))
    others = data.draw(st.permutations(others))
    one = r" \cup ".join(map(interval, pieces))
    other = r" \cup ".join(map(interval, others))
    assert bool(compare_bare(other, one)) == (covered(pieces) == covered(others))


@given(st.integers(-5, 5), st.integers(1, 5), st.integers(-5, 5), st.integers(1, 5))
def test_a_sign_of_two_stands_for_both_values(centre, span, other, width):
    """a ± b and the two numbers that it names."""
    text = rf"{centre} \pm {span}"
    values = f"{other - width}, {other + width}"
    assert bool(compare_bare(values, text)) == ((centre, span) == (other, width))
    assert compare_bare(f"{centre + span}, {centre - span}", text)
    assert not compare_bare(str(centre + span), text)
