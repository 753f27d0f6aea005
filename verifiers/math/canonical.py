r"""One form for expressions that differ only in how they are written: order, brackets, signs, +0, 1·, fractions.

    x - 2 + 0,  1(-2 + x),  -(2 - x)  →  the same         \frac{2\pi}{3}, \frac23\pi  →  the same
    (x-1)(x+2), x^2+x-2               →  two forms, since a product of sums is not carried out
    3^5, 9^{5/2}                      →  two forms, since no power or root of a number is worked out

A sum is a mapping from what its terms consist of to their rational coefficients, so like terms meet in one entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from rlvr.verifiers.math.latex.tree import Node

__all__ = ["Factors", "Linear", "canonical", "factors_of", "linear", "loosened"]

Factors: TypeAlias = tuple[tuple[Any, Any], ...]
"""What a term consists of but for its coefficient: (base, exponent) of each factor, in a fixed order; () for a number.

An exponent is a Fraction, or the canonical form of one with letters.
"""

Linear: TypeAlias = dict[Factors, Fraction]
"""The terms of a sum: their coefficients."""

_UNORDERED = frozenset(("set", "list", "union", "intersection"))
_SIDES = frozenset(("=", "ne"))
_TURNED = {"<": ">", ">": "<", "le": "ge", "ge": "le"}


@lru_cache(maxsize=8192)
def canonical(node: Node) -> Any:
    """The form as a value that can be compared and hashed.

    Args:
        node: the tree, see `latex/tree.py`.
    """
    if node.op == "rel":
        return _relation(node)
    args = [canonical(arg) for arg in node.args] if node.op not in _ARITHMETIC else []
    if node.op in _UNORDERED:
        return (node.op, tuple(sorted(args, key=repr)))
    if node.op not in _ARITHMETIC:
        return (node.op, repr(node.value), tuple(args))
    terms = linear(node)
    if len(terms) == 1:
        [(factors, coefficient)] = terms.items()
        if coefficient == 1 and len(factors) == 1 and factors[0][1] == 1:
            return factors[0][0]
    return _sum(terms)


def loosened(node: Node) -> Any:
    """A looser form: numbers are multiplied into sums, 2(x + 1) is 2x + 2, and an equation is one up to a factor.

    Args:
        node: the tree.
    """
    if node.op == "rel" and node.value == ("=",):
        left, right = node.args
        gap = _added((linear(left, spread=True), linear(Node("neg", (right,)), spread=True)))
        terms = sorted(((factors, value) for factors, value in gap.items() if value), key=repr)
        return ("equation", tuple((factors, value / terms[0][1]) for factors, value in terms))
    return _sum(linear(node, spread=True)) if node.op in _ARITHMETIC else canonical(node)


def linear(node: Node, *, spread: bool = False) -> Linear:
    """The terms of an expression, like ones together.  Terms that cancel stay with the coefficient 0.

    Args:
        node: the tree.
        spread: multiply a number into the sum beside it, as it is done with -1 anyway.
    """
    match node.op:
        case "num":
            return {(): node.value}
        case "neg":
            return {
                factors: -coefficient
                for factors, coefficient in linear(node.args[0], spread=spread).items()
            }
        case "add":
            return _added(linear(arg, spread=spread) for arg in node.args)
        case "mul" | "div" | "pow" | "root":
            coefficient, factors = factors_of(node)
            lone: Any = factors[0][0] if len(factors) == 1 and factors[0][1] == 1 else None
            if _is_sum(lone) and (spread or coefficient in (1, -1)):
                return {term: coefficient * value for term, value in lone[1]}  # -(a - b) is b - a
            return {factors: coefficient}
    return {((canonical(node), Fraction(1)),): Fraction(1)}


def factors_of(node: Node) -> tuple[Fraction, Factors]:
    """The coefficient and the other factors of a product, like ones together.

    Args:
        node: the tree.
    """
    coefficient = Fraction(1)
    powers: dict[Any, Any] = {}
    for factor, exponent in _factors(node, Fraction(1)):
        number, base = _split(factor)
        if exponent in (1, -1) and (number or exponent == 1):
            coefficient *= number if exponent == 1 else 1 / number
        elif number == -1 and exponent.denominator == 1:
            coefficient *= -1 if exponent.numerator % 2 else 1
        elif number != 1:  # 3^5 is not worked out
            powers[("num", number)] = powers.get(("num", number), 0) + exponent
        for inner, power in base:
            powers[inner] = _times(power, exponent, powers.get(inner))
    powers = {base: exponent for base, exponent in powers.items() if exponent != 0}
    return coefficient, tuple(sorted(powers.items(), key=repr))


def _factors(node: Node, exponent: Fraction) -> Iterable[tuple[Node, Fraction]]:
    """The factors of products, quotients, and powers with numbers as exponents."""
    if node.op == "mul":
        for arg in node.args:
            yield from _factors(arg, exponent)
    elif node.op == "div":
        yield from _factors(node.args[0], exponent)
        yield from _factors(node.args[1], -exponent)
    elif node.op == "neg" and exponent.denominator == 1:
        yield Node("num", value=Fraction(-1 if exponent.numerator % 2 else 1)), Fraction(1)
        yield from _factors(node.args[0], exponent)
    elif node.op in ("pow", "root") and (power := _number(node.args[1])):
        power = power if node.op == "pow" else 1 / power
        inner = node.args[0]
        if inner.op in ("num", "sym", "const") or exponent.denominator == power.denominator == 1:
            yield from _factors(inner, exponent * power)
        else:
            yield Node("pow", (inner, Node("num", value=power))), exponent
    else:
        yield node, exponent


def _split(node: Node) -> tuple[Fraction, Factors]:
    """What one factor is: a number, or a base with its exponent."""
    if node.op == "num":
        return node.value, ()
    if node.op in ("pow", "root"):
        power = _number(node.args[1])
        if power is None:
            return Fraction(1), (
                ((node.op, canonical(node.args[0]), canonical(node.args[1])), Fraction(1)),
            )
        inner = canonical(node.args[0])
        return Fraction(1), ((inner, power if node.op == "pow" else 1 / power),)
    if node.op == "add":
        terms = {factors: value for factors, value in linear(node).items() if value}
        if len(terms) < 2:
            [(factors, value)] = terms.items() or [((), Fraction(0))]
            return value, factors
        sign = 1 if min(terms.items(), key=repr)[1] > 0 else -1
        return Fraction(sign), (
            (_sum({factors: sign * value for factors, value in terms.items()}), Fraction(1)),
        )
    return Fraction(1), ((canonical(node), Fraction(1)),)


def _times(power: Any, exponent: Fraction, before: Any) -> Any:
    return power * exponent + (before or 0)


def _number(node: Node) -> Fraction | None:
    """The value of a written exponent other than 0."""
    if node.op == "num":
        return node.value or None
    if node.op == "neg":
        value = _number(node.args[0])
        return -value if value else None
    if node.op == "div":
        above, below = _number(node.args[0]), _number(node.args[1])
        return above / below if above and below else None
    return None


def _added(parts: Iterable[Linear]) -> Linear:
    whole: Linear = {}
    for part in parts:
        for factors, coefficient in part.items():
            whole[factors] = whole.get(factors, Fraction(0)) + coefficient
    return whole


def _sum(terms: Linear) -> Any:
    return ("terms", tuple(sorted(((f, value) for f, value in terms.items() if value), key=repr)))


def _is_sum(base: Any) -> bool:
    return isinstance(base, tuple) and base[:1] == ("terms",)


def _relation(node: Node) -> Any:
    """2 = x as x = 2, and x > 2 as 2 < x; both sides as they are written."""
    sides, signs = tuple(canonical(arg) for arg in node.args), node.value
    if set(signs) <= _SIDES:
        return ("rel", signs, tuple(sorted(sides, key=repr)))
    if signs[0] in (">", "ge"):
        return ("rel", tuple(_TURNED.get(sign, sign) for sign in signs[::-1]), sides[::-1])
    return ("rel", signs, sides)


_ARITHMETIC = frozenset(("num", "neg", "add", "mul", "div", "pow", "root"))
