"""What a tree comes to at a point: exactly where it can, undefined where it is, and never beyond a limit."""

from __future__ import annotations

import pytest
from flint import ctx, fmpq

from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import TooLarge, parse
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.values import Undefined

EXACT = [
    ("2^{10}-24", 1000),
    (r"\frac{1}{3}+\frac16", fmpq(1, 2)),
    (r"\sqrt{\frac{9}{4}}", fmpq(3, 2)),
    ("27^{2/3}", 9),
    ("(-8)^{1/3}", -2),
    ("10!/8!", 90),
    (r"\binom{10}{3}", 120),
    ("7!!", 105),
    (r"\lfloor -2.5\rfloor", -3),
    (r"\lceil -2.5\rceil", -2),
    (r"-7\bmod 3", 2),
    (r"5+4\bmod 3", 0),
    (r"\gcd(84,36)", 12),
    (r"\max(\frac12,\frac13)", fmpq(1, 2)),
    (r"|{-3}|", 3),
    (r"\sum_{k=1}^{100}k", 5050),
    (r"\prod_{k=1}^5 k", 120),
    (r"\det\begin{pmatrix}2&1&0\\1&3&1\\0&1&4\end{pmatrix}", 18),
    (r"\begin{vmatrix}0&1\\1&0\end{vmatrix}", -1),
    (r"\ln 1", 0),
    ("50\\%", fmpq(1, 2)),
]


@pytest.mark.parametrize(("text", "value"), EXACT)
def test_rational_values_are_exact(text, value):
    """A Fraction comes out, not a number near it."""
    got = Evaluation({}, real=True).value(parse(fold(text)))
    assert isinstance(got, fmpq)
    assert got == value


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
