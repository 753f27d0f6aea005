"""Several things at once: lists, tuples, sets, intervals, inequalities, labels, parameters, matrices, signs."""

from __future__ import annotations

import pytest

from rlvr.verifiers.math.normal import compare_bare

LISTS = [
    # (reference, answer, expected, reason)
    ("1, 2, 3", "3,1,2", True, "a list without brackets has no order"),
    ("1, 2, 3", r"1 \text{ and } 2 \text{ and } 3", True, "joined by words"),
    ("1, 2", "1 or 2", True, "or, as solutions are given"),
    ("1, 2, 3", "1; 2; 3", True, "semicolons"),
    ("3,4", "3.4", False, "a decimal comma, never"),
    ("12", "11, 12", False, "a list that contains the reference"),
    ("12", "11 or 12", False, "a hedge in words"),
    ("1, 1, 2", "1, 2, 2", False, "items are counted"),
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
    ("(1, 2)", "(2, 1)", False, "tuples are ordered"),
    ("(1, 2)", r"\{1, 2\}", False, "a set is none"),
    ("(1, 2)", "(1, 2, 3)", False, "length"),
    (r"(\pm 1, \pm 2)", "(1,2), (1,-2), (-1,2), (-1,-2)", True, "signs name four points"),
    ("1:2:3", "2:4:6", True, "ratios of three are proportional"),
    ("1:2:3", "3:2:1", False, "and ordered"),
]

SETS = [
    (r"\{1, 2\}", r"\left\{2,1\right\}", True, "no order"),
    (r"\{1, 1, 2\}", r"\{1, 2\}", True, "no repetition"),
    (r"\{1, 2\}", "2, 1", True, "a list of its members"),
    ("5", r"\{5\}", True, "the set of solutions for its only one"),
    ("5", r"\{5, 6\}", False, "a set that contains the reference"),
    (r"\emptyset", "no solution", True, "by word"),
    (r"\emptyset", r"\{\}", True, "by braces"),
    (r"\emptyset", "0", False, "zero is no set"),
    (r"\emptyset", "(3,1)", False, "a point whose numbers fall is none"),
    ("(2,-1)", "no solution", False, "nor is none such a point"),
    ("(0,0)", r"\text{no real solutions}", False, "nor one on the diagonal"),
    (r"(\sqrt5,1)", r"\emptyset", False, "nor one of roots"),
    (r"\{1, 2\}", r"\{\}", False, "nothing matches everything only vacuously"),
]

INTERVALS = [
    (r"(-\infty, 2]", r"x \le 2", True, "an inequality"),
    ("(-∞, 2]", "x ≤ 2", True, "in Unicode"),
    (r"(-\infty, 2]", "x < 2", False, "open and closed ends"),
    ("(1, 3)", "1 < x < 3", True, "between two"),
    ("(1, 3]", r"3 \ge x > 1", True, "from the other side"),
    ("1 < x < 3", r"1 \le x \le 3", False, "open and closed ends"),
    ("x > 2", "2 < x", True, "turned round"),
    ("x > 2", "y > 2", False, "another name"),
    ("x > 2", r"x \ge 2", False, "open and closed ends"),
    ("(1, 2)", "(1, 2]", False, "half open"),
    (r"x \in (3, 4]", "(3, 4]", True, "element of"),
    (r"\{x \mid x > 2\}", r"(2, \infty)", True, "set-builder"),
    (r"\{x \in \mathbb{R} : -2<x<3\}", "(-2, 3)", True, "set-builder with its domain"),
    (r"(-\sqrt2, \sqrt2)", r"-\sqrt2 < x < \sqrt2", True, "ends that read the same"),
    (r"(-\infty, \infty)", r"\mathbb{R}", True, "the whole line"),
    (r"(-\infty, \infty)", "all real numbers", True, "in words"),
    (r"(0, \infty)", r"(0, 5)", False, "infinity is no number"),
    (r"(0, \infty)", r"(0, -\infty)", False, "and has a sign"),
]

UNIONS = [
    (r"(0, 9) \cup (9, 36)", "1e999", False, "a number that is no float"),
    (r"(0,9) \cup (9,36)", r"(9,36) \cup (0,9)", True, "any order"),
    (r"(1,2) \cup [2,3)", "(1,3)", True, "what touches is one"),
    (r"(1,2) \cup (2,3)", "(1,3)", False, "a point is missing"),
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
    (r"(1,2) \cup (3,4)", "(1,4)", False, "a gap"),
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
    (r"\pm 2", "2, -2", True, "two values"),
    (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2", True, "in an expression"),
    (r"\pm 1 \pm 2", "3, -1, 1, -3", True, "two signs are independent"),
    (r"\pm 1 \mp 2", "-1, 1", True, "unless the second is turned"),
    ("2", r"\pm 2", False, "two answers for one"),
]


@pytest.mark.parametrize(
    ("reference", "answer", "expected", "why"),
    [*LISTS, *TUPLES, *SETS, *INTERVALS, *UNIONS, *NAMES, *PARAMETERS, *MATRICES, *SIGNS],
)
def test_several_things_are_compared_as_what_they_are(reference, answer, expected, why):
    """Both ways round: no verdict depends on which side is trusted."""
    assert compare_bare(answer, reference) is expected, why
    assert compare_bare(reference, answer) is expected, why
