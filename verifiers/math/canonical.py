r"""Expressions that differ only in how they are written,
and terms and factors that consist of the same.

spelling    x - 2 + 0,  1(-2 + x),  -(2 - x)  are the same;
            2x + 2 and 2(x + 1),  6x/9 and 2x/3  are not
balance     3x + 6y = 12,  x + 2y - 4 = 0  are the same
linear      the terms of a sum: what each consists of, and its rational coefficient
factors_of  the factors of a product, like ones together
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from rlvr.verifiers.math.latex.tree import TURNED, Node, minus, num
from rlvr.verifiers.math.units import measure

__all__ = ["Factors", "Linear", "balance", "factors_of", "linear", "spelling", "written_value"]

Factors: TypeAlias = tuple[tuple[Any, Any], ...]
"""What a term consists of but for its coefficient: (base, exponent) of each factor,
in a fixed order; () for a number.

An exponent is a Fraction, or the canonical form of one with letters.
"""

Linear: TypeAlias = dict[Factors, Fraction]
"""The terms of a sum: their coefficients."""

_UNORDERED = frozenset(("set", "list", "union", "intersection"))
_SIDES = frozenset(("=", "ne"))


@lru_cache(maxsize=8192)
def spelling(node: Node) -> Any:
    """How it is written but for order, brackets, signs, neutral elements and names of units;
    nothing is multiplied out.

    Args:
        node: the tree.
    """
    sign, body = _split_sign(node)
    return body if sign > 0 else ("neg", body)


def balance(equation: Node) -> Any:
    """An equation with all terms on one side, up to a factor: 2x = 4 is x - 2 = 0.

    Args:
        equation: a relation; any but an equation between two sides is only spelled.
    """
    if equation.value != ("=",):
        return spelling(equation)
    # Spread, so that 3(x + 2y) = 12 and 3x + 6y = 12 become the same terms.
    left, right = equation.args
    gap = linear(minus(left, right), spread=True)
    terms = sorted((term for term in gap.items() if term[1]), key=repr)
    return ("equation", tuple((factors, value / terms[0][1]) for factors, value in terms))


def _split_sign(node: Node) -> tuple[int, Any]:
    """Its sign and the rest; of a sum the sign that its first term has."""
    if node.op == "neg":
        sign, body = _split_sign(node.args[0])
        return -sign, body
    if node.op == "num":
        return (-1 if node.value < 0 else 1), ("num", abs(Fraction(node.value)))
    if node.op == "add" and node.value != "mixed":
        return _spelled_sum(node)
    if node.op in ("mul", "div", "pow", "root"):
        return _spelled_product(node)
    if node.op == "rel":
        return 1, _relation(node)
    args = tuple(map(spelling, node.args))
    if node.op == "unit":
        # By measure, so that `km` and `kilometer` are one spelling.
        return 1, ("unit", measure(node.value) or node.value, args)
    if node.op in _UNORDERED:
        # The order of members says nothing; repr orders what cannot be compared.
        args = tuple(sorted(args, key=repr))
    return 1, (node.op, repr(node.value), args)


def _spelled_sum(node: Node) -> tuple[int, Any]:
    # A term of 0 says nothing: x + 0 is spelled as x.
    terms = sorted((term for term in _terms(node, 1) if term[1] != _ZERO), key=_body_first)
    if len(terms) < 2:
        return terms[0] if terms else (1, _ZERO)
    lead = terms[0][0]
    # The first term's sign is taken out, so that b - a is -(a - b).
    return lead, ("sum", tuple((sign * lead, body) for sign, body in terms))


def _body_first(term: tuple[int, Any]) -> tuple[str, int]:
    return repr(term[1]), -term[0]


def _terms(node: Node, sign: int) -> Iterable[tuple[int, Any]]:
    for arg in node.args:
        inner, turned = arg, sign
        while inner.op == "neg":
            inner, turned = inner.args[0], -turned
        if inner.op == "add" and inner.value != "mixed":
            yield from _terms(inner, turned)
        else:
            own_sign, body = _split_sign(inner)
            yield turned * own_sign, body


def _spelled_product(node: Node) -> tuple[int, Any]:
    """Each number for itself, and like factors together: (x-1)(x-1) is (x-1)^2."""
    sign = 1
    numbers: list[tuple[Any, Fraction]] = []
    powers: dict[Any, Fraction] = {}
    for factor, exponent in _factors(node, Fraction(1)):
        own_sign, body = _base(factor)
        # (-x)^3 is -(x^3), and (-x)^2 is x^2: an odd power carries the sign out.
        if own_sign < 0 and exponent.denominator == 1:
            sign = -sign if exponent.numerator % 2 else sign
        elif own_sign < 0:
            body = ("neg", body)
        # Numbers are not multiplied: 2·3 is no spelling of 6.
        if body[0] == "num" and body != _ONE:
            numbers.append((body, exponent))
        elif body != _ONE:
            powers[body] = powers.get(body, Fraction(0)) + exponent
    factors = sorted((*numbers, *powers.items()), key=repr)
    if len(factors) == 1 and factors[0][1] == 1:
        return sign, factors[0][0]
    return sign, ("product", tuple(factors)) if factors else _ONE


def _base(factor: Node) -> tuple[int, Any]:
    """A power with letters in its exponent is a base of its own."""
    if factor.op not in ("pow", "root"):
        return _split_sign(factor)
    return 1, (factor.op, *map(spelling, factor.args))


_ZERO, _ONE = ("num", Fraction(0)), ("num", Fraction(1))


def linear(node: Node, *, spread: bool = False) -> Linear:
    """The terms of an expression, like ones together.  Terms that cancel stay with the coefficient
    0.

    Args:
        node: the tree.
        spread: multiply a number into the sum beside it, as it is done with -1 anyway.
    """
    match node.op:
        case "num":
            # A number has no factors beside its coefficient, hence ().
            return {(): node.value}
        case "neg":
            terms = linear(node.args[0], spread=spread)
            return {factors: -coefficient for factors, coefficient in terms.items()}
        case "add":
            return _add_linear(linear(arg, spread=spread) for arg in node.args)
        case "mul" | "div" | "pow" | "root":
            coefficient, factors = factors_of(node)
            lone: Any = factors[0][0] if len(factors) == 1 and factors[0][1] == 1 else None
            # 2(x + 1) stays a product, and so is no spelling of 2x + 2, unless it is to be spread.
            if _is_sum(lone) and (spread or coefficient in (1, -1)):
                return {term: coefficient * value for term, value in lone[1]}  # -(a - b) is b - a
            return {factors: coefficient}
    return {((spelling(node), Fraction(1)),): Fraction(1)}


@lru_cache(maxsize=512)  # deep fractions ask for each part once for every level above it
def factors_of(node: Node) -> tuple[Fraction, Factors]:
    """The coefficient and the other factors of a product, like ones together.

    Args:
        node: the tree.
    """
    coefficient = Fraction(1)
    powers: dict[Any, Any] = {}
    for factor, exponent in _factors(node, Fraction(1)):
        number, base = _split(factor)
        # A number to the power 1 or -1 is a coefficient.
        if exponent in (1, -1) and (number or exponent == 1):
            coefficient *= number if exponent == 1 else 1 / number
        elif number == -1 and exponent.denominator == 1:
            coefficient *= -1 if exponent.numerator % 2 else 1
        elif number != 1:  # 3^5 is not worked out
            powers[("num", number)] = powers.get(("num", number), 0) + exponent
        for inner, power in base:
            powers[inner] = power * exponent + powers.get(inner, 0)
    return coefficient, tuple(sorted((item for item in powers.items() if item[1] != 0), key=repr))


def _factors(node: Node, exponent: Fraction) -> Iterable[tuple[Node, Fraction]]:
    """The factors of products, quotients, and powers with numbers as exponents."""
    if node.op == "mul":
        for arg in node.args:
            yield from _factors(arg, exponent)
    elif node.op == "div":
        yield from _factors(node.args[0], exponent)
        yield from _factors(node.args[1], -exponent)
    elif node.op == "neg" and exponent.denominator == 1:
        yield num(-1 if exponent.numerator % 2 else 1), Fraction(1)
        yield from _factors(node.args[0], exponent)
    elif node.op in ("pow", "root") and (power := written_value(node.args[1])):
        power = power if node.op == "pow" else 1 / power
        inner = node.args[0]
        # (x^2)^{1/2} is |x| and not x, so exponents are multiplied only where all are whole, or the
        # base is a single sign.
        if inner.op in ("num", "sym", "const") or exponent.denominator == power.denominator == 1:
            yield from _factors(inner, exponent * power)
        else:
            yield Node("pow", (inner, num(power))), exponent
    else:
        yield node, exponent


def _split(node: Node) -> tuple[Fraction, Factors]:
    """What one factor is: a number, or a base with its exponent."""
    if node.op == "num":
        return node.value, ()
    if node.op in ("pow", "root"):
        power = written_value(node.args[1])
        if not power:
            return Fraction(1), (((node.op, *map(spelling, node.args)), Fraction(1)),)
        power = power if node.op == "pow" else 1 / power
        return Fraction(1), ((spelling(node.args[0]), power),)
    # 2x + 2x is a number times x after all; of a real sum the sign of its first term is taken out.
    if node.op == "add":
        terms = {factors: value for factors, value in linear(node).items() if value}
        if len(terms) < 2:
            [(factors, value)] = terms.items() or [((), Fraction(0))]
            return value, factors
        sign = Fraction(1 if min(terms.items(), key=repr)[1] > 0 else -1)
        turned = {factors: sign * value for factors, value in terms.items()}
        return sign, ((_sum(turned), Fraction(1)),)
    return Fraction(1), ((spelling(node), Fraction(1)),)


def written_value(node: Node) -> Fraction | None:
    """The value of what is written out, but for scientific notation.

    Args:
        node: the tree.
    """
    if node.op == "num":
        return Fraction(node.value)
    if node.op == "neg":
        inner = written_value(node.args[0])
        return None if inner is None else -inner
    if node.op == "div":
        above, below = map(written_value, node.args)
        return above / below if above is not None and below else None
    if node.op == "add" and node.value == "mixed":
        return sum((written_value(arg) or Fraction(0) for arg in node.args), Fraction(0))
    return None


def _add_linear(parts: Iterable[Linear]) -> Linear:
    total: Linear = {}
    for part in parts:
        for factors, coefficient in part.items():
            total[factors] = total.get(factors, Fraction(0)) + coefficient
    return total


def _sum(terms: Linear) -> Any:
    return ("terms", tuple(sorted((term for term in terms.items() if term[1]), key=repr)))


def _is_sum(base: Any) -> bool:
    return isinstance(base, tuple) and base[:1] == ("terms",)


def _relation(node: Node) -> Any:
    """2 = x as x = 2, and x > 2 as 2 < x; both sides as they are written."""
    sides, signs = tuple(map(spelling, node.args)), node.value
    if set(signs) <= _SIDES:
        return ("rel", signs, tuple(sorted(sides, key=repr)))
    if signs[0] in (">", "ge"):
        return ("rel", tuple(TURNED.get(sign, sign) for sign in signs[::-1]), sides[::-1])
    return ("rel", signs, sides)
