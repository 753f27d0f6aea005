"""What a tree comes to at a point: exactly where it can, undefined where it is, and never beyond a limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from flint import ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import TooLarge, parse
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.values import Undefined

EXACT = [
    (r"\sqrt{\frac{9}{4}}", fmpq(3, 2)),
    ("27^{2/3}", 9),
    ("(-8)^{1/3}", -2),
    ("7!!", 105),
    (r"5+4\bmod 3", 0),
    (r"\ln 1", 0),
    ("50\\%", fmpq(1, 2)),
]


@pytest.mark.parametrize(("text", "value"), EXACT)
def test_rational_values_are_exact(text, value):
    """A Fraction comes out, not a number near it."""
    got = Evaluation({}, real=True).value(parse(fold(text)))
    assert isinstance(got, fmpq)
    assert got == value


def value_of(text: str) -> fmpq:
    return Evaluation({}, real=True).value(parse(fold(text)))


PRINTED = {
    "+": r"\left({}+{}\right)",
    "-": r"({}-{})",
    "*": r"({}\cdot {})",
    "/": r"\frac{{{}}}{{{}}}",
}
NUMBERS = st.integers(-9, 9).map(lambda n: (f"({n})" if n < 0 else str(n), Fraction(n)))


def print_node(children: st.SearchStrategy) -> st.SearchStrategy:
    """An operation on two expressions: its LaTeX, and what Python's fractions make of it."""

    def combine(sign: str, a: tuple, b: tuple) -> tuple[str, Fraction | None]:
        (left, x), (right, y) = a, b
        undefined = x is None or y is None or (sign == "/" and y == 0)
        results = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y}
        return PRINTED[sign].format(left, right), None if undefined else results[sign]()

    return st.builds(combine, st.sampled_from(list(PRINTED)), children, children)


@given(st.recursive(NUMBERS, print_node, max_leaves=8))
def test_the_four_operations_are_those_of_fractions(expression: tuple[str, Fraction | None]):
    """What was printed is read back; a division by 0 anywhere has no value."""
    text, expected = expression
    if expected is None:
        with pytest.raises(Undefined):
            value_of(text)
    else:
        assert value_of(text) == fmpq(expected.numerator, expected.denominator)


FUNCTIONS: dict[
    str, Callable[[int, int], Fraction | int | None]
] = {  # a from -12 to 12, b from 1 to 12
    r"\lfloor \frac{%d}{%d}\rfloor": lambda a, b: a // b,
    r"\lceil \frac{%d}{%d}\rceil": lambda a, b: -(-a // b),
    r"(%d)\bmod %d": lambda a, b: a % b,
    r"\gcd(%d,%d)": math.gcd,
    r"\operatorname{lcm}(%d,%d)": math.lcm,
    r"\max(%d,%d)": max,
    r"\min(%d,%d)": min,
    r"|{%d}|+%d": lambda a, b: abs(a) + b,
    r"(%d)^{%d}": pow,
    r"\binom{12}{%d}+0\cdot%d": lambda a, b: math.comb(12, a) if a >= 0 else None,
    r"\sum_{k=%d}^{%d}k^2": lambda a, b: (
        sum(k * k for k in range(a, b + 1)) if a <= b + 1 else None
    ),
    r"\prod_{k=%d}^{%d}(k+1)": lambda a, b: math.prod(range(a + 1, b + 2)) if a <= b + 1 else None,
    r"\frac{(%d)^2}{%d!}": lambda a, b: Fraction(a * a, math.factorial(b)),
}


@given(st.sampled_from(list(FUNCTIONS)), st.integers(-12, 12), st.integers(1, 12))
def test_functions_of_whole_numbers_are_those_of_python(form: str, a: int, b: int):
    """Rounding, remainders and divisors of negative numbers too."""
    expected = FUNCTIONS[form](a, b)
    if expected is not None:
        expected = Fraction(expected)
        assert value_of(form % (a, b)) == fmpq(expected.numerator, expected.denominator)


@settings(max_examples=30)
@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-5, 5), min_size=n, max_size=n), min_size=n, max_size=n
        )
    )
)
def test_a_determinant_is_the_sum_over_permutations(rows: list[list[int]]):
    """Leibniz' formula, its signs from the inversions."""
    total = 0
    for order in itertools.permutations(range(len(rows))):
        inversions = sum(a > b for a, b in itertools.combinations(order, 2))
        total += (-1) ** inversions * math.prod(row[i] for row, i in zip(rows, order, strict=True))
    cells = r"\\".join("&".join(map(str, row)) for row in rows)
    assert value_of(rf"\begin{{vmatrix}}{cells}\end{{vmatrix}}") == total
    assert value_of(rf"\det\begin{{pmatrix}}{cells}\end{{pmatrix}}") == total


APPROXIMATE = [
    (r"\sin 30^\circ", 0.5),
    (r"\cos\pi", -1.0),
    (r"\arctan 1", 0.7853981633974483),
    (r"\sinh 1", 1.1752011936438014),
    (r"\log_2 10", 3.321928094887362),
    (r"e^2", 7.38905609893065),
    (r"\sqrt[3]{10}", 2.154434690031884),
    (r"\int_0^1 e^x\,dx", 1.718281828459045),
    (r"\sum_{k=0}^\infty\frac{1}{k!}", 2.718281828459045),
    (r"\lim_{x\to0}\frac{1-\cos x}{x^2}", 0.5),
]


@pytest.mark.parametrize(("text", "value"), APPROXIMATE)
def test_other_values_are_as_good_as_the_precision(text, value):
    """Held against what a pocket calculator says."""
    with ctx.workdps(30):
        assert abs(Evaluation({}, real=True).value(parse(fold(text))) - value) < 1e-14


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{1}{0}",
        r"\frac{1}{\sqrt2-\sqrt2}",
        r"\sqrt{-1}",
        r"\ln(-1)",
        r"\arcsin 2",
        "0^0",
        "0^{-1}",
        "(-1)!",
        r"\tan\frac\pi2",
        r"\gcd(1,\frac12)",
        r"\infty-\infty",
        r"\sum_{k=1}^{\frac12}k",
        r"\begin{pmatrix}1&2\\2&4\end{pmatrix}^{-1}",
        r"\begin{pmatrix}1&2\end{pmatrix}+1",
        r"\int_{-1}^1\frac{dx}{x^2}",
        "i",
    ],
)
def test_what_has_no_real_value_is_undefined(text):
    """Poles, roots of negative numbers, and an antiderivative that jumps between the limits."""
    with pytest.raises(Undefined), ctx.workdps(30):
        Evaluation({}, real=True).value(parse(fold(text)))


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^9}",
        "(9^9)!",
        "3001!",
        r"\binom{10^9}{2}",
        r"e^{e^{e^{10}}}",
        r"\sum_{k=1}^{10^9}1",
        r"\sum_{a=1}^{999}\sum_{b=1}^{999}1",
        r"\lim_{x\to0}(" + "+".join(f"x^{{{n}}}" for n in range(99)) + ")",
        r"2^{10^{10}}",
    ],
)
def test_no_value_is_too_large_to_refuse(text):
    """Limits come before the work, not after it."""
    with pytest.raises(TooLarge):
        Evaluation({}, real=True).value(parse(fold(text)))


def test_a_point_gives_variables_their_values():
    """x = 2/3, n = 4."""
    at = Evaluation({"x": fmpq(2, 3), "n": fmpq(4)}, real=True)
    assert at.value(parse("n!x^2")) == fmpq(32, 3)
    assert at.value(parse(r"\sum_{k=1}^{n}kx")) == fmpq(20, 3)
