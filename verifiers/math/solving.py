r"""Conditions on one real variable that are not solved: x^2 < 4, |x-1| \ge 3, \frac{x-1}{x+2} > 0.

Both sides are polynomials with rational coefficients, or quotients of them; the sign between the
roots decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

from mpmath import mp

from rlvr.verifiers.math.latex.tree import Node, Unreadable, free_symbols
from rlvr.verifiers.math.latex.values import Number, approximate

__all__ = ["Polynomial", "Stretch", "solution"]

Polynomial = tuple[Fraction, ...]
"""Coefficients, the constant first, without zeros at the end."""
Stretch = tuple[Number, bool, Number, bool]
"""Low end, whether it belongs to it, high end, whether it does."""

_MOST_DEGREE = 12
_STEPS, _EXTRA_DIGITS = 200, 60
_SIGNS = {"<": (-1,), "le": (-1, 0), ">": (1,), "ge": (1, 0), "=": (0,), "ne": (-1, 1)}


def solution(left: Node, sign: str, right: Node) -> list[Stretch]:
    """The numbers for which `left sign right` holds, from left to right; stretches may touch.

    Raises:
        Unreadable: it is no such condition.
    """
    names = free_symbols(left) | free_symbols(right)
    if len(names) != 1 or sign not in _SIGNS:
        raise Unreadable("a condition that does not bound one variable")
    above, below = _quotient(Node("add", (left, Node("neg", (right,)))))
    poles = _roots(below)
    zeros = (
        [root for root in _roots(above) if not any(_meet(root, pole) for pole in poles)]
        if above
        else []
    )
    ends = sorted([*zeros, *poles], key=approximate)
    return list(_stretches(above, below, ends, zeros, _SIGNS[sign]))


def _stretches(
    above: Polynomial,
    below: Polynomial,
    ends: Sequence[Number],
    zeros: Sequence[Number],
    signs: Sequence[int],
) -> Iterator[Stretch]:
    for low, high in itertools.pairwise([mp.ninf, *ends, mp.inf]):
        x = _within(low, high)
        value = _at(above, x) * _at(below, x)
        if (value > 0) - (value < 0) in signs:
            yield low, False, high, False
        if high in zeros and 0 in signs:
            yield high, True, high, True


def _within(low: Number, high: Number) -> Fraction:
    if mp.isinf(low) and mp.isinf(high):
        return Fraction(0)
    middle = high - 1 if mp.isinf(low) else low + 1 if mp.isinf(high) else (low + high) / 2
    return Fraction(int(mp.nint(middle * 2**200)), 2**200)


def _meet(x: Number, y: Number) -> bool:
    return bool(abs(x - y) < mp.mpf(10) ** -30 * (1 + abs(x)))


# ------------------------------------------------------------------------------------------------------- polynomials


def _quotient(node: Node) -> tuple[Polynomial, Polynomial]:
    """Numerator and denominator, not reduced: where the denominator is 0 there is no value."""
    if node.op == "num":
        return _plain((Fraction(node.value),)), (Fraction(1),)
    if node.op == "sym":
        return (Fraction(0), Fraction(1)), (Fraction(1),)
    if node.op == "neg":
        above, below = _quotient(node.args[0])
        return tuple(-c for c in above), below
    if node.op == "div":
        (above, below), (divisor, under) = map(_quotient, node.args)
        if not divisor:
            raise Unreadable("a division by zero")
        # Also where the divisor itself has no value there is none.
        return _product(above, _product(under, under)), _product(_product(below, divisor), under)
    if (
        node.op == "pow"
        and node.args[1].op == "num"
        and node.args[1].value in range(_MOST_DEGREE + 1)
    ):
        return _combine_fractions([_quotient(node.args[0])] * int(node.args[1].value), add=False)
    if node.op not in ("add", "mul"):
        raise Unreadable("a condition on other than polynomials")
    return _combine_fractions(list(map(_quotient, node.args)), add=node.op == "add")


def _combine_fractions(
    parts: Sequence[tuple[Polynomial, Polynomial]], *, add: bool
) -> tuple[Polynomial, Polynomial]:
    above, below = _plain((Fraction(int(not add)),)), _plain((Fraction(1),))
    for x, y in parts:
        above = _sum(_product(above, y), _product(x, below)) if add else _product(above, x)
        below = _product(below, y)
    return above, below


def _plain(coefficients: Sequence[Fraction]) -> Polynomial:
    trimmed = list(coefficients)
    while trimmed and trimmed[-1] == 0:
        trimmed.pop()
    if len(trimmed) > _MOST_DEGREE + 1:
        raise Unreadable(f"a condition of a degree over {_MOST_DEGREE}")
    return tuple(trimmed)


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    return _plain([x + y for x, y in itertools.zip_longest(a, b, fillvalue=Fraction(0))])


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    out = [Fraction(0)] * max(len(a) + len(b) - 1, 0)
    for (i, x), (j, y) in itertools.product(enumerate(a), enumerate(b)):
        out[i + j] += x * y
    return _plain(out)


def _at(polynomial: Polynomial, x: Fraction) -> Fraction:
    value = Fraction(0)
    for coefficient in reversed(polynomial):
        value = value * x + coefficient
    return value


def _roots(polynomial: Polynomial) -> list[Number]:
    """The real ones, each once: of the part without repeated factors, where they can be told
    apart."""
    simple = _divide_polynomials(polynomial, _common(polynomial, _derivative(polynomial)))[0]
    if len(simple) < 2:
        return []
    try:
        roots = mp.polyroots(
            [approximate(c) for c in reversed(simple)], maxsteps=_STEPS, extraprec=4 * _EXTRA_DIGITS
        )
    except mp.NoConvergence:
        raise Unreadable("a condition whose ends were not found") from None
    return sorted(mp.re(root) for root in roots if abs(mp.im(root)) < mp.mpf(10) ** -40)


def _derivative(polynomial: Polynomial) -> Polynomial:
    return _plain([n * c for n, c in enumerate(polynomial)][1:])


def _common(a: Polynomial, b: Polynomial) -> Polynomial:
    while b:
        a, b = b, _divide_polynomials(a, b)[1]
    return a


def _divide_polynomials(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder."""
    remainder, quotient = list(a), [Fraction(0)] * max(len(a) - len(b) + 1, 0)
    for shift in range(len(a) - len(b), -1, -1):
        factor = quotient[shift] = remainder[shift + len(b) - 1] / b[-1]
        for i, coefficient in enumerate(b):
            remainder[shift + i] -= factor * coefficient
    return _plain(quotient), _plain(remainder[: len(b) - 1] if b else remainder)
