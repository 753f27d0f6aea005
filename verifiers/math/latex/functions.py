"""Named functions of numbers: exact for integers, with mpmath for other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from mpmath import mp

from rlvr.verifiers.math.latex.tree import TooLarge
from rlvr.verifiers.math.latex.values import (
    NotMeant,
    Number,
    Undefined,
    approximate,
    divide,
    is_integer,
    nearly_zero,
)
from rlvr.verifiers.math.words import pairs

__all__ = ["FUNCTIONS", "double_factorial", "factorial", "logarithm", "remainder"]

_MOST_FACTORIAL = 3000


def factorial(n: Number) -> Number:
    """n!, and gamma(n + 1) where n is no integer."""
    if is_integer(n):
        if n < 0:
            raise NotMeant
        if n > _MOST_FACTORIAL:
            raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
        return Fraction(math.factorial(int(n)))
    return _gamma(approximate(n) + 1)


def double_factorial(n: Number) -> Number:
    """n!! of an integer."""
    if not is_integer(n) or n < -1:
        raise NotMeant
    if n > _MOST_FACTORIAL:
        raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
    return Fraction(math.prod(range(int(n), 0, -2)))


def logarithm(value: Number, base: Number) -> Number:
    """To a base other than 1."""
    return divide(_log(value), _log(base))


def remainder(a: Number, b: Number) -> Number:
    """Between 0 and b; of whole numbers alone."""
    if not (is_integer(a) and is_integer(b)):
        raise NotMeant
    return a - b * _floor(divide(a, b))


def _log(value: Number) -> Number:
    if nearly_zero(value):
        raise Undefined if value == 0 else NotMeant
    return Fraction(0) if value == 1 else mp.log(approximate(value))


def _gamma(x: Number) -> Number:
    if abs(x) > _MOST_FACTORIAL:
        raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
    try:
        return mp.gamma(x)
    except ValueError:  # a pole
        raise NotMeant from None


def _binomial(n: Number, k: Number) -> Number:
    if is_integer(n) and is_integer(k) and n >= 0:
        if n > 10 * _MOST_FACTORIAL:
            raise TooLarge("a binomial coefficient")
        return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)
    return divide(
        _gamma(approximate(n) + 1), _gamma(approximate(k) + 1) * _gamma(approximate(n - k) + 1)
    )


def _permutations(n: Number, k: Number) -> Number:
    return divide(factorial(n), factorial(n - k))


def _integers(combine: Callable[..., int]) -> Callable[..., Number]:
    def function(*values: Number) -> Number:
        if not all(map(is_integer, values)):
            raise NotMeant
        return Fraction(combine(*map(int, values)))

    return function


def _floor(x: Number) -> Number:
    """A number that is an integer but for rounding is that integer."""
    if isinstance(x, Fraction):
        return Fraction(math.floor(x))
    if isinstance(x, mp.mpc):
        raise Undefined
    nearest = mp.nint(x)
    return Fraction(int(nearest if nearly_zero(x - nearest) else mp.floor(x)))


def _real(x: Number) -> Number:
    if isinstance(x, mp.mpc):
        raise Undefined
    return x


def _extreme(choose: Callable[..., Number]) -> Callable[..., Number]:
    return lambda *values: choose(values, key=lambda x: approximate(_real(x)))


def _sign(x: Number) -> Number:
    return Fraction(0) if nearly_zero(x) else Fraction(1 if _real(x) > 0 else -1)


def _numeric(function: Callable[[Number], Number]) -> Callable[[Number], Number]:
    def at(x: Number) -> Number:
        try:
            value = function(approximate(x))
        except (ValueError, ZeroDivisionError):  # a pole
            raise Undefined from None
        if not mp.isfinite(value):  # so is arctan of i
            raise Undefined
        return value

    return at


def _reciprocal(function: Callable[[Number], Number]) -> Callable[[Number], Number]:
    return lambda x: divide(Fraction(1), function(approximate(x)))


def _quotient(
    above: Callable[[Number], Number], below: Callable[[Number], Number]
) -> Callable[[Number], Number]:
    return lambda x: divide(above(approximate(x)), below(approximate(x)))


def _inverse_of_reciprocal(function: Callable[[Number], Number]) -> Callable[[Number], Number]:
    return lambda x: function(approximate(divide(Fraction(1), x)))


_OF_MPMATH = pairs(
    "sin sin cos cos arcsin asin arccos acos arctan atan sinh sinh cosh cosh tanh tanh arcsinh asinh "
    "arccosh acosh arctanh atanh arg arg"
)
FUNCTIONS: dict[str, Callable[..., Number]] = {
    **{name: _numeric(getattr(mp, function)) for name, function in _OF_MPMATH.items()},
    "tan": _quotient(mp.sin, mp.cos),
    "cot": _quotient(mp.cos, mp.sin),
    "coth": _quotient(mp.cosh, mp.sinh),
    "sec": _reciprocal(mp.cos),
    "csc": _reciprocal(mp.sin),
    "sech": _reciprocal(mp.cosh),
    "csch": _reciprocal(mp.sinh),
    "arccot": _numeric(lambda x: mp.pi / 2 - mp.atan(x)),  # in (0, pi), as calculus books have it
    "arcsec": _inverse_of_reciprocal(mp.acos),
    "arccsc": _inverse_of_reciprocal(mp.asin),
    "ln": _log,
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "max": _extreme(max),
    "min": _extreme(min),
    "floor": _floor,
    "ceil": lambda x: -_floor(-x),
    "abs": abs,
    "sgn": _sign,
    "Re": lambda z: z.real if isinstance(z, mp.mpc) else z,
    "Im": lambda z: z.imag if isinstance(z, mp.mpc) else Fraction(0),
    "binom": _binomial,
    "perm": _permutations,
    "gamma": lambda x: factorial(x - 1),
}
"""By the names that the parser gives them; `log` and `det` are not plain functions and have rules of their own."""
