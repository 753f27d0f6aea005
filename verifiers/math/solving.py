r"""Conditions on one real variable that are not solved: x^2 < 4, |x-1| \ge 3, \frac{x-1}{x+2} > 0.

Both sides are polynomials with rational coefficients, or quotients of them; the sign between the
roots decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from flint import arb

from rlvr.verifiers.math.latex.compile import ball
from rlvr.verifiers.math.latex.tree import (
    Node,
    Unreadable,
    free_symbols,
    minus,
)
from rlvr.verifiers.math.latex.values import Number

if TYPE_CHECKING:
    from sympy import Poly

__all__ = ["Stretch", "solution"]

Stretch = tuple[Number, bool, Number, bool]
"""Low end, whether it belongs to it, high end, whether it does."""

_MOST_DEGREE = 12
_SIGNS = {"<": (-1,), "le": (-1, 0), ">": (1,), "ge": (1, 0), "=": (0,), "ne": (-1, 1)}


def solution(left: Node, sign: str, right: Node) -> list[Stretch]:
    """The numbers for which `left sign right` holds, from left to right; stretches may touch.

    Raises:
        Unreadable: it is no such condition.
    """
    names = free_symbols(left) | free_symbols(right)
    if len(names) != 1 or sign not in _SIGNS:
        raise Unreadable("a condition that does not bound one variable")
    above, below = _quotient(minus(left, right))
    poles = _roots(below)
    zeros = [root for root in _roots(above) if root not in poles]
    return list(_stretches(above * below, sorted(zeros + poles), zeros, _SIGNS[sign]))


def _stretches(
    both: Poly, ends: Sequence[Any], zeros: Sequence[Any], signs: Sequence[int]
) -> Iterator[Stretch]:
    from sympy import sign

    numbers = [arb.neg_inf(), *map(ball, ends), arb.pos_inf()]
    for low, high, end in zip(numbers, numbers[1:], [*ends, None], strict=False):
        if sign(both.eval(_rational_between(low, high))) in signs:
            yield low, False, high, False
        if end in zeros and 0 in signs:
            yield high, True, high, True


def _rational_between(low: Number, high: Number) -> Any:
    from sympy import Rational

    if not low.is_finite() or not high.is_finite():
        end = low if low.is_finite() else high if high.is_finite() else arb(0)
        whole: Any = end.mid().floor().unique_fmpz()  # a midpoint is exact
        return Rational(int(whole) + (2 if end is low else -2))
    mantissa, exponent = ((low + high) / 2).mid().man_exp()
    return int(mantissa) * Rational(2) ** int(exponent)


def _quotient(node: Node) -> tuple[Poly, Poly]:
    """Numerator and denominator, not reduced: where the denominator is 0 there is no value."""
    from sympy import Poly, Rational
    from sympy.abc import x

    one = Poly(1, x, domain="QQ")
    if node.op == "num":
        return one * Rational(node.value.numerator, node.value.denominator), one
    if node.op == "sym":
        return Poly(x, x, domain="QQ"), one
    if node.op == "neg":
        above, below = _quotient(node.args[0])
        return -above, below
    if node.op == "div":
        (above, below), (divisor, under) = map(_quotient, node.args)
        if divisor.is_zero:
            raise Unreadable("a division by zero")
        # Also where the divisor itself has no value there is none.
        return _bound(above * under * under), _bound(below * divisor * under)
    parts = node.args
    if node.op == "pow" and parts[1].op == "num" and parts[1].value in range(_MOST_DEGREE + 1):
        parts = parts[:1] * int(parts[1].value)
    elif node.op not in ("add", "mul"):
        raise Unreadable("a condition on other than polynomials")
    fractions = [(one * int(node.op != "add"), one), *map(_quotient, parts)]
    return reduce(_add if node.op == "add" else _multiply, fractions)


def _add(a: tuple[Poly, Poly], b: tuple[Poly, Poly]) -> tuple[Poly, Poly]:
    return _bound(a[0] * b[1] + b[0] * a[1]), _bound(a[1] * b[1])


def _multiply(a: tuple[Poly, Poly], b: tuple[Poly, Poly]) -> tuple[Poly, Poly]:
    return _bound(a[0] * b[0]), _bound(a[1] * b[1])


def _bound(polynomial: Poly) -> Poly:
    if polynomial.degree() > _MOST_DEGREE:
        raise Unreadable(f"a condition of a degree over {_MOST_DEGREE}")
    return polynomial


def _roots(polynomial: Poly) -> list[Any]:
    """The real ones, each once, as exact numbers: each is isolated between two fractions."""
    return [] if polynomial.is_zero else list(dict.fromkeys(polynomial.real_roots()))
