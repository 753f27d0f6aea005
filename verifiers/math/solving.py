r"""Conditions on one real variable that are not solved: x^2 < 4, |x-1| \ge 3, \frac{x-1}{x+2} > 0.

Both sides are polynomials with rational coefficients, or quotients of them; the sign between the
roots decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from flint import arb, ctx, fmpq, fmpq_poly

from rlvr.verifiers.math.latex.budget import spend_of_pair
from rlvr.verifiers.math.latex.tree import (
    Node,
    Unreadable,
    free_symbols,
    minus,
)
from rlvr.verifiers.math.latex.values import PRECISION, Number, as_number

__all__ = ["Stretch", "solution"]

Stretch = tuple[Number, bool, Number, bool]
"""Low end, whether it belongs to it, high end, whether it does."""

_Poly: TypeAlias = Any
"""An fmpq_poly: exact, in one variable."""

_Quotient: TypeAlias = tuple[_Poly, _Poly]
"""Numerator and denominator."""

_MOST_DEGREE = 12
_MOST_BITS = 500  # of a coefficient; longer ones can hold roots that take seconds to tell apart
_SIGNS = {"<": (-1,), "le": (-1, 0), ">": (1,), "ge": (1, 0), "=": (0,), "ne": (-1, 1)}


def solution(left: Node, sign: str, right: Node) -> list[Stretch]:
    """The numbers for which `left sign right` holds, from left to right; stretches may touch.

    Raises:
        Unreadable: it is no such condition.
        PairTooLarge: no steps are left for it.
    """
    names = free_symbols(left) | free_symbols(right)
    if len(names) != 1 or sign not in _SIGNS:
        raise Unreadable("a condition that does not bound one variable")
    above, below = _quotient(minus(left, right))
    # What is also a zero of the denominator is no zero.
    zeros = _roots(_without_factors(above, below))
    ends = sorted([*zeros, *_roots(below)], key=lambda root: root.mid())
    return list(_stretches(above * below, ends, zeros, _SIGNS[sign]))


def _stretches(
    # `both`: numerator times denominator, which has the sign of their quotient.
    both: _Poly,
    ends: Sequence[arb],
    zeros: Sequence[arb],
    signs: Sequence[int],
) -> Iterator[Stretch]:
    numbers = [arb.neg_inf(), *ends, arb.pos_inf()]
    for low, high in pairwise(numbers):
        value = both(_rational_between(low, high))
        if (value > 0) - (value < 0) in signs:
            yield low, False, high, False
        # The zero itself belongs to it where 0 is among the signs; a pole never does.
        if 0 in signs and any(high is zero for zero in zeros):
            yield high, True, high, True


def _rational_between(low: arb, high: arb) -> fmpq:
    if not low.is_finite() or not high.is_finite():
        end = low if low.is_finite() else high if high.is_finite() else arb(0)
        whole: Any = end.mid().floor().unique_fmpz()  # a midpoint is exact
        # The floor may lie up to 1 below the end.
        return fmpq(whole + (2 if end is low else -2))
    mantissa, exponent = ((low + high) / 2).mid().man_exp()
    return mantissa * fmpq(2) ** int(exponent)


def _quotient(node: Node) -> _Quotient:
    """Not reduced: where the denominator is 0 there is no value."""
    one: _Poly = fmpq_poly([1])
    if node.op == "num":
        return one * as_number(node.value), one
    if node.op == "sym":
        return fmpq_poly([0, 1]), one
    if node.op == "neg":
        above, below = _quotient(node.args[0])
        return -above, below
    if node.op == "div":
        (above, below), (divisor, under) = map(_quotient, node.args)
        if divisor == 0:
            raise Unreadable("a division by zero")
        # Also where the divisor itself has no value there is none.
        return _bound(above * under * under), _bound(below * divisor * under)
    parts = node.args
    if node.op == "pow" and parts[1].op == "num" and parts[1].value in range(_MOST_DEGREE + 1):
        parts = parts[:1] * int(parts[1].value)
    elif node.op not in ("add", "mul"):
        raise Unreadable("a condition on other than polynomials")
    is_sum = node.op == "add"
    above, below = one * int(not is_sum), one
    for factor, under in list(map(_quotient, parts)):
        above = _bound(above * under + factor * below if is_sum else above * factor)
        below = _bound(below * under)
    return above, below


def _bound(polynomial: _Poly) -> _Poly:
    if polynomial.degree() > _MOST_DEGREE:
        raise Unreadable(f"a condition of a degree over {_MOST_DEGREE}")
    return polynomial


def _without_factors(polynomial: _Poly, other: _Poly) -> _Poly:
    """What is left of it without the roots that it shares with another."""
    if polynomial == 0:
        return polynomial
    while (shared := polynomial.gcd(other)).degree() > 0:
        polynomial = polynomial // shared
    return polynomial


def _roots(polynomial: _Poly) -> list[arb]:
    """The real ones, each once: balls that are apart.

    Raises:
        Unreadable: its coefficients are too long.
    """
    if polynomial == 0:
        return []
    whole = polynomial.numer()
    bits = max(int(coefficient).bit_length() for coefficient in whole.coeffs())
    if bits > _MOST_BITS:
        raise Unreadable(f"a condition with coefficients of more than {_MOST_BITS} bits")
    steps = whole.degree() ** 2 * (_STEPS_OF_ROOTS + bits**2 // _BITS_A_STEP)
    spend_of_pair(steps * ctx.prec // PRECISION)
    # Balls of real roots have an imaginary part of exactly 0.
    return [root.real for root, _ in whole.complex_roots() if root.imag == 0]


_STEPS_OF_ROOTS = 5  # by the square of the degree, and with each so many bits, squared, one more
_BITS_A_STEP = 4_000
