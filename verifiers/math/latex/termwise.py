r"""Definite integrals term by term: of sums of c x^n e^{zx}, in one letter or several.

Such a sum remains one when it is multiplied by another, and when it is integrated between ends that
are linear in its other letters.  Sines and cosines are such sums; with x = e^s so are powers of x,
its roots and logarithms, and x^n e^{-ax^2} is one with x = \sqrt u.  Coefficients are balls, which
hold their values for certain.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

from flint import acb

from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.tree import INFINITY, MINUS_INFINITY, Node, free_symbols, has
from rlvr.verifiers.math.latex.values import Undefined, as_number

__all__ = ["Unsuited", "integral_of_terms"]

_Terms: TypeAlias = list[tuple[acb, dict[str, Fraction | int], dict[str, acb]]]
"""Of each term c, and of its letters n, which may be half a whole number, and z."""
_End: TypeAlias = _Terms | float
_MOST_TERMS = 200  # of a product; the quadrature takes less time for more
_MOST_POWER = 60
_I, _HALF = acb(0, 1), Fraction(1, 2)


class Unsuited(Exception):
    """The integrand has a part that is beyond a method."""


class _Beyond(Unsuited):
    """It is so with any substitution."""


def integral_of_terms(node: Node, constant: Callable[[Node], acb], budget: Budget) -> acb:
    """The value of an integral between two ends.

    Args:
        node: the integral.
        constant: the value of a part without letters of integration.
        budget: pays for the products of terms.

    Raises:
        Unsuited: it is no integral of such terms.
        TooLarge, PairTooLarge: the budget does not suffice.
        Undefined: it diverges.
    """
    return _value(_Integrand(constant, budget).terms(node))


class _Integrand:
    """What the letters of integration stand for, as terms."""

    def __init__(self, constant: Callable[[Node], acb], budget: Budget) -> None:
        self.constant, self.budget = constant, budget
        self.letters: dict[str, _Terms] = {}

    def terms(self, node: Node) -> _Terms:
        if free_symbols(node).isdisjoint(self.letters) and not has(node, "int"):
            return _number(self.constant(node))
        self.budget.spend(1)
        rule = _RULES.get(node.op)
        if rule is None:
            raise _Beyond
        return rule(self, node)

    def times(self, a: _Terms, b: _Terms) -> _Terms:
        if len(a) * len(b) > _MOST_TERMS:
            raise _Beyond
        self.budget.spend(1 + len(a) * len(b))
        products = [
            (c * d, _add_letters(p, q), _add_letters(y, z)) for c, p, y in a for d, q, z in b
        ]
        # of x + y multiplied by itself again and again hardly a term would be new
        alike = defaultdict[frozenset[tuple[str, Fraction | int]], acb](acb)
        for c, powers, rates in products:
            if not rates:
                alike[frozenset(powers.items())] += c
        polynomial: _Terms = [(c, dict(key), {}) for key, c in alike.items()]
        return polynomial + [term for term in products if term[2]]

    def _product(self, node: Node) -> _Terms:
        return reduce(self.times, map(self.terms, node.args))

    def _quotient(self, node: Node) -> _Terms:
        above, below = map(self.terms, node.args)
        return self.times(above, _power_of_one(below, acb(-1)))

    def _power(self, node: Node) -> _Terms:
        base, exponent = node.args
        if not free_symbols(exponent).isdisjoint(self.letters):
            return _exponential(_scale(self.terms(exponent), _positive(self.constant(base)).log()))
        power = exponent.value if exponent.op == "num" else None
        if power is not None and power.denominator == 1 and 0 <= power <= _MOST_POWER:
            return self._times_itself(self.terms(base), int(power))
        return _power_of_one(self.terms(base), self.constant(exponent))

    def _times_itself(self, terms: _Terms, times: int) -> _Terms:
        return reduce(self.times, [terms] * times, _number(acb(1)))

    def _root(self, node: Node) -> _Terms:
        return _power_of_one(self.terms(node.args[0]), 1 / self.constant(node.args[1]))

    def _call(self, node: Node) -> _Terms:
        inside = self.terms(node.args[0])
        if node.value == "ln":
            size, rates = _one_exponential(inside)
            return _number(_positive(size).log()) + [(z, {x: 1}, {}) for x, z in rates.items()]
        if node.value not in _EXPONENTIALS:
            raise _Beyond
        return [
            (c * size, powers, rates)
            for size, rate in _EXPONENTIALS[node.value]
            for c, powers, rates in _exponential(_scale(inside, rate))
        ]

    def _integral(self, node: Node) -> _Terms:
        body, *ends = node.args
        outer = dict(self.letters)
        low, high = map(self._end, ends)
        for method in (self._between, self._over_logarithms, self._over_squares):
            try:
                return method(body, node.value, low, high)
            except _Beyond:
                raise
            except Unsuited:
                continue
            finally:
                self.letters = dict(outer)
        raise Unsuited

    def _end(self, node: Node) -> _End:
        infinite = {INFINITY: math.inf, MINUS_INFINITY: -math.inf}
        return infinite[node] if node in infinite else self.terms(node)

    def _between(self, body: Node, name: str, low: _End, high: _End) -> _Terms:
        self.letters[name] = [(acb(1), {name: 1}, {})]
        return self._difference(self.terms(body), name, low, high)

    def _over_logarithms(self, body: Node, name: str, low: _End, high: _End) -> _Terms:
        """With x = e^s, dx = e^s ds."""
        self.letters[name] = [(acb(1), {}, {name: acb(1)})]
        terms = self.times(self.terms(body), self.letters[name])
        return self._difference(terms, name, _log_end(low), _log_end(high))

    def _over_squares(self, body: Node, name: str, low: _End, high: _End) -> _Terms:
        r"""With x = \pm\sqrt u, of x^n e^{-ax^2} over half of the line or all of it."""
        if high != math.inf or (isinstance(low, list) and _value(low) != 0):
            raise Unsuited
        total: _Terms = []
        for sign in (1, -1) if isinstance(low, float) else (1,):
            self.letters[name] = [(acb(sign), {name: _HALF}, {})]
            terms = self.times(self.terms(body), [(acb(0.5), {name: -_HALF}, {})])
            _require_falling(terms, name, 1)
            for c, powers, rates in terms:
                power = as_number(powers.get(name, 0) + Fraction(1))
                size = acb(power).gamma() / (-rates[name]) ** power
                total.append((c * size, _without(powers, name), _without(rates, name)))
        return total

    def _difference(self, terms: _Terms, name: str, low: _End, high: _End) -> _Terms:
        below = _scale(self._antiderivative(terms, name, low), acb(-1))
        return self._antiderivative(terms, name, high) + below

    def _antiderivative(self, terms: _Terms, name: str, end: _End) -> _Terms:
        if isinstance(end, float):
            _require_falling(terms, name, 1 if end > 0 else -1)
            return []
        total: _Terms = []
        for c, powers, rates in terms:
            power, rate = int(powers.get(name, 0)), rates.get(name)
            factors: _Terms = [(c, _without(powers, name), _without(rates, name))]
            if rate is None:
                inner = _scale(self._times_itself(end, power + 1), acb(1) / (power + 1))
            else:
                factors, inner = self.times(factors, _exponential(_scale(end, rate))), []
                for k in range(power + 1):
                    size = (-1) ** k * math.perm(power, k) / rate ** (k + 1)
                    inner += _scale(self._times_itself(end, power - k), size)
            total += self.times(factors, inner)
        return total


def _require_falling(terms: _Terms, name: str, sign: int) -> None:
    """Each goes to 0 at this end of the line, as x^n e^{-x} does."""
    growing = [
        (c, powers.get(name, 0), rates.get(name, acb(0)))
        for c, powers, rates in terms
        if not rates.get(name, acb(0)).real * sign < 0
    ]
    # of different growth they cannot cancel, as e^x does in cosh x - sinh x
    is_alike = any(
        power == other and rate.overlaps(other_rate)
        for (_, power, rate), (_, other, other_rate) in itertools.combinations(growing, 2)
    )
    if is_alike or any(c.contains(0) or not rate.real * sign >= 0 for c, _, rate in growing):
        raise Unsuited
    if growing:
        raise Undefined


def _number(value: acb) -> _Terms:
    return [(value, {}, {})]


def _value(terms: _Terms) -> acb:
    if any(powers or rates for _, powers, rates in terms):
        raise Unsuited
    return sum((c for c, _, _ in terms), acb(0))


def _scale(terms: _Terms, by: acb) -> _Terms:
    return [(c * by, powers, rates) for c, powers, rates in terms]


def _add_letters(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    total = one | {name: one.get(name, 0) + value for name, value in other.items()}
    return {name: value for name, value in total.items() if value != 0}


def _without(letters: dict[str, Any], name: str) -> dict[str, Any]:
    return {letter: value for letter, value in letters.items() if letter != name}


def _positive(value: acb) -> acb:
    if not (value.imag == 0 and value.real > 0):
        raise Unsuited
    return value


def _exponential(exponent: _Terms) -> _Terms:
    r"""e^{ax + by + c}."""
    size, rates = acb(0), dict[str, acb]()
    for c, powers, inner in exponent:
        if inner or (powers and [*powers.values()] != [1]):
            raise Unsuited
        if powers:
            rates = _add_letters(rates, dict.fromkeys(powers, c))
        else:
            size += c
    return [(size.exp(), {}, rates)]


def _one_exponential(terms: _Terms) -> tuple[acb, dict[str, acb]]:
    [(c, powers, rates), *more] = terms or _number(acb(0))
    if more or powers or any(rate.imag != 0 for rate in rates.values()):
        raise Unsuited
    return c, rates


def _power_of_one(terms: _Terms, exponent: acb) -> _Terms:
    """A real power of one exponential alone, which is positive; the inverse of any other than 0."""
    c, rates = _one_exponential(terms)
    size = 1 / c if exponent == -1 else _positive(c) ** exponent
    return [(size, {}, {name: rate * exponent for name, rate in rates.items()})]


def _log_end(end: _End) -> _End:
    if isinstance(end, float):
        if end < 0:
            raise Unsuited
        return end
    value = _value(end)
    return -math.inf if value == 0 else _number(_positive(value).log())


_RULES: dict[str, Callable[[_Integrand, Node], _Terms]] = {
    "sym": lambda at, node: at.letters[node.value],
    "add": lambda at, node: [term for arg in node.args for term in at.terms(arg)],
    "neg": lambda at, node: _scale(at.terms(node.args[0]), acb(-1)),
    "mul": _Integrand._product,
    "div": _Integrand._quotient,
    "pow": _Integrand._power,
    "root": _Integrand._root,
    "call": _Integrand._call,
    "int": _Integrand._integral,
}
_EXPONENTIALS = {
    "sin": ((-_I / 2, _I), (_I / 2, -_I)),
    "cos": ((acb(0.5), _I), (acb(0.5), -_I)),
    "sinh": ((acb(0.5), acb(1)), (acb(-0.5), acb(-1))),
    "cosh": ((acb(0.5), acb(1)), (acb(0.5), acb(-1))),
}
