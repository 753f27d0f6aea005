"""Named functions of numbers: exact for integers, with Arb's balls for other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from flint import acb, arb, fmpq

from rlvr.verifiers.math.latex.tree import TooLarge
from rlvr.verifiers.math.latex.values import (
    MOST_MAGNITUDE,
    NotMeant,
    Number,
    Rough,
    Undefined,
    divide,
    is_integer,
    sign_of,
    vanishes,
)
from rlvr.verifiers.math.words import pairs

__all__ = ["FUNCTIONS", "double_factorial", "factorial", "logarithm", "modulo"]

# 3000! has 9,131 digits.
_MOST_FACTORIAL = 3000


def factorial(n: Number) -> Number:
    """n!, and gamma(n + 1) where n is no integer."""
    if is_integer(n):
        # n! is not meant for negative n: such a point says nothing against an identity.
        if n < 0:
            raise NotMeant
        if n > _MOST_FACTORIAL:
            raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
        return fmpq(math.factorial(int(n)))
    return _gamma(n + 1)


def double_factorial(n: Number) -> Number:
    """n!! of an integer."""
    # (-1)!! = 1 by convention, as formulas with (2n-1)!! need at n = 0.
    if not is_integer(n) or n < -1:
        raise NotMeant
    if n > _MOST_FACTORIAL:
        raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
    return fmpq(math.prod(range(int(n), 0, -2)))


def logarithm(value: Number, base: Number) -> Number:
    """To a base other than 1."""
    return divide(_log(value), _log(base))


def modulo(a: Number, b: Number) -> Number:
    """Between 0 and b; of whole numbers alone."""
    if not (is_integer(a) and is_integer(b)):
        raise NotMeant
    # a - b·floor(a/b): the sign of b, as number theory has it, also for negative a.
    return a - b * _floor(divide(a, b))


def _log(value: Number) -> Number:
    if vanishes(value):
        # Exactly 0 has no logarithm; a ball around 0 only says that it is too small to tell.
        raise Undefined if value == 0 else NotMeant
    if value == 1:
        return fmpq(0)
    return arb(value).log() if not isinstance(value, acb) and value > 0 else acb(value).log()


def _gamma(x: Number) -> Number:
    # `not <=` instead of `>`: a ball that straddles the limit, or is not finite, is refused as
    # well.
    if not abs(x) <= _MOST_FACTORIAL:
        raise TooLarge(f"a factorial of more than {_MOST_FACTORIAL}")
    value = (x if isinstance(x, acb) else arb(x)).gamma()
    if not value.is_finite():  # a pole
        raise NotMeant
    return value


def _binomial(n: Number, k: Number) -> Number:
    # For n < 0 gamma(n + 1) has a pole, and the coefficient no value.
    if is_integer(n) and is_integer(k) and n >= 0:
        # C(30000, 15000) has 9,029 digits, about as many as 3000!.
        if n > 10 * _MOST_FACTORIAL:
            raise TooLarge("a binomial coefficient")
        return fmpq(math.comb(int(n), int(k)) if k >= 0 else 0)
    return divide(_gamma(n + 1), _gamma(k + 1) * _gamma(n - k + 1))


def _permutations(n: Number, k: Number) -> Number:
    return divide(factorial(n), factorial(n - k))


def _integers(combine: Callable[..., int]) -> Callable[..., Number]:
    def function(*values: Number) -> Number:
        if not all(map(is_integer, values)):
            raise NotMeant
        return fmpq(combine(*map(int, values)))

    return function


def _floor(x: Number) -> Number:
    """A number that is taken for an integer is that integer."""
    if isinstance(x, fmpq):
        return fmpq(x.floor())
    if isinstance(x, acb):
        raise Undefined
    # The nearest integer n to the middle; then floor is n, or n - 1 where x is below n.
    nearest = (x.mid() + fmpq(1, 2)).floor().unique_fmpz()
    if nearest is None:
        raise Rough
    return fmpq(nearest - (sign_of(x - nearest) < 0))


def _extreme(wanted: int) -> Callable[..., Number]:
    def function(first: Number, *others: Number) -> Number:
        for other in others:
            if sign_of(other - first) == wanted:
                first = other
        return first

    return function


def _of_balls(name: str) -> Callable[[Number], Number]:
    """A function of Arb's; of a real number a complex value where it has no real one."""

    def function(x: Number) -> Number:
        # sinh x has about 1.44 |x| binary digits.
        if abs(x) > MOST_MAGNITUDE and name in _GROWING:
            raise TooLarge(f"a number of more than {MOST_MAGNITUDE} binary digits")
        value = getattr(x if isinstance(x, acb) else arb(x), name)()
        # The real function has no value there (arcsin 2): the complex one is asked.
        return value if value.is_finite() else _finite(getattr(acb(x), name)())

    return function


def _finite(value: Number) -> Number:
    if not value.is_finite():  # a pole; so is arctan of i
        raise Undefined
    return value


def _inverse_of_reciprocal(function: Callable[[Number], Number]) -> Callable[[Number], Number]:
    return lambda x: function(divide(fmpq(1), x))


_GROWING = frozenset(("sinh", "cosh", "sech", "csch"))
_BALLS = {
    name: _of_balls(of_flint)
    for name, of_flint in pairs(
        "sin sin cos cos tan tan cot cot sec sec csc csc arcsin asin arccos acos arctan atan "
        "sinh sinh cosh cosh tanh tanh coth coth sech sech csch csch arcsinh asinh arccosh acosh "
        "arctanh atanh"
    ).items()
}
FUNCTIONS: dict[str, Callable[..., Number]] = {
    **_BALLS,
    "arg": lambda z: acb(z).arg(),
    "arccot": lambda x: arb.pi() / 2 - _BALLS["arctan"](x),  # in (0, pi), as calculus books have it
    "arcsec": _inverse_of_reciprocal(_BALLS["arccos"]),
    "arccsc": _inverse_of_reciprocal(_BALLS["arcsin"]),
    "ln": _log,
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "max": _extreme(1),
    "min": _extreme(-1),
    "floor": _floor,
    "ceil": lambda x: -_floor(-x),
    "abs": abs,
    "sgn": lambda x: fmpq(sign_of(x)),
    "Re": lambda z: z.real if isinstance(z, acb) else z,
    "Im": lambda z: z.imag if isinstance(z, acb) else fmpq(0),
    "binom": _binomial,
    "perm": _permutations,
    "gamma": lambda x: factorial(x - 1),
}
"""By the names that the parser gives them;
`log` and `det` are not plain functions and have rules of their own."""
