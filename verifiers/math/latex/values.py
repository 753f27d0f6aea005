"""Numbers at a point: exact fractions where possible,
else balls that hold the true value for certain.

A ball is a number with a bound of its error, from Arb by way of python-flint: real (`arb`) or
complex (`acb`), at the working precision `flint.ctx.prec`.  Arb allocates by the precision and not
by the numbers, whose magnitudes are limited here.

A step goes one way or another: a quotient has a value or none, |u| is u or -u.  It is decided where
the ball of u does not hold 0.  Where it does, and is narrower than the third part of the working
precision can say, u is taken for 0; a wider one raises `Rough`, and `decided` starts again with
twice the precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias, TypeGuard, TypeVar

from flint import acb, arb, ctx, fmpq, fmpz

from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = [
    "MOST_BITS",
    "MOST_MAGNITUDE",
    "MOST_PRECISION",
    "NoCase",
    "NotMeant",
    "Number",
    "PRECISION",
    "Rough",
    "Undefined",
    "Underflow",
    "as_number",
    "decided",
    "divide",
    "is_exact",
    "is_integer",
    "magnitude",
    "power_of",
    "root_of",
    "sign_of",
    "vanishes",
]

Number: TypeAlias = Any
"""An fmpq, which is exact, an arb or an acb."""

PRECISION, MOST_PRECISION = 480, 13_400
"""Bits that a comparison starts with (zero is then what is less than 10^-48),
and that it may rise to."""
MOST_BITS = 40_000
"""Of the numerator or denominator of an exact fraction; beyond it numbers become balls."""
MOST_MAGNITUDE = 200_000
"""Binary digits in front of or behind the point of any number."""
_SCHOOL_ROOT = 9  # (-8)^{1/3} is real; (-1)^{5/97}, which a probe makes of (-1)^n, is nothing
_PART = 3  # of the precision that zero takes

_T = TypeVar("_T")


class Underflow(TooLarge):
    """So close to zero that no exponent we allow can say it."""


class Rough(TooLarge):
    """A ball holds 0 and is too wide to be taken for it."""

    def __init__(self) -> None:
        super().__init__(f"a comparison to more than {MOST_PRECISION} bits")


class Undefined(Exception):
    """No value at this point: a division by zero, a root of a negative number among the real
    ones."""


class NotMeant(Undefined):
    """No value, and it says nothing.

    The notation is for whole numbers or positive bases, such as n! and (-1)^n at n = 1/3; or a
    number is too small to be told from 0.
    """


class NoCase(Undefined):
    """No value, since none of the cases holds."""


def decided(compute: Callable[[], _T], bits: int = PRECISION) -> _T:
    """What is computed, at the lowest precision from `bits` on at which no step is rough.

    Raises:
        Rough: there is none within the limit.
    """
    while True:
        try:
            with ctx.workprec(bits):
                return compute()
        except Rough:
            # Doubling: the last try costs more than all before it together, so starting low costs
            # little.
            bits *= 2
            if bits > MOST_PRECISION:
                raise


def as_number(value: Fraction | int) -> Number:
    """An exact number."""
    return fmpq(value.numerator, value.denominator)


def is_exact(value: Number) -> TypeGuard[fmpq]:
    """True for fractions."""
    return isinstance(value, fmpq)


def is_integer(value: Number) -> bool:
    """True for exact integers alone."""
    return isinstance(value, fmpq) and value.denominator == 1


def magnitude(value: Number) -> int:
    """About log2 of a number that is not zero."""
    if isinstance(value, fmpq):
        return int(value.numerator.bit_length()) - int(value.denominator.bit_length())
    if isinstance(value, acb):
        value = abs(value)
    mantissa, exponent = value.abs_upper().man_exp()
    return int(exponent) + int(mantissa.bit_length())


def vanishes(value: Number) -> bool:
    """Is it zero, or taken for it?

    Raises:
        Rough: its ball holds 0, and is too wide to be taken for it.
    """
    if isinstance(value, fmpq):
        return bool(value == 0)
    if not value.contains(0):
        return False
    # Wider than a third of the precision: it could be a small number that is not 0.
    if value.rel_one_accuracy_bits() < ctx.prec // _PART:
        raise Rough
    return True


def sign_of(value: Number) -> int:
    """1, 0 or -1.

    Raises:
        Rough: see `vanishes`.
        Undefined: of a complex number.
    """
    if isinstance(value, acb):
        raise Undefined
    # `0 * vanishes(...)` is 0, and raises where the ball is too wide to say so.
    return 1 if value > 0 else -1 if value < 0 else 0 * vanishes(value)


def divide(above: Number, below: Number) -> Number:
    """A quotient."""
    if vanishes(below):
        # Exactly 0 below is a division by zero; a ball taken for 0 only says that it cannot be
        # told.
        raise Undefined if below == 0 else NotMeant
    return above / below


def power_of(base: Number, exponent: Number, *, real: bool) -> Number:
    """base^exponent; (-8)^{1/3} is -2, as schools have it."""
    if isinstance(exponent, fmpq):
        if exponent.denominator == 1:
            return _whole_power(base, int(exponent))
        # 2/3 in lowest terms: the root first, which exists for odd roots of negative numbers.
        if exponent.denominator <= _SCHOOL_ROOT:
            root = root_of(base, int(exponent.denominator), real=real)
            return _whole_power(root, int(exponent.numerator))
    if vanishes(base):
        raise Undefined
    if not vanishes(exponent):
        _bound(base, exponent)
    return _ball(base) ** exponent


def _whole_power(base: Number, exponent: int) -> Number:
    if vanishes(base):
        # 0^0 has no value: as a limit it may be anything.
        if exponent <= 0:
            raise Undefined
        return fmpq(0)
    if isinstance(base, fmpq):
        # Exact as long as the result is short; else a ball, which costs the same for every
        # exponent.
        if abs(exponent) * base.height_bits() <= MOST_BITS:
            return base**exponent
        # (-1)^{10^9} stays exact whatever its length.
        if base in (1, -1):
            return base ** (exponent % 2)
    _bound(base, exponent)
    return (base if isinstance(base, acb) else arb(base)) ** exponent


def _ball(value: Number) -> Number:
    """With a power and a root also where it is negative."""
    return arb(value) if not isinstance(value, acb) and value > 0 else acb(value)


def _bound(base: Number, exponent: Number) -> None:
    """The magnitude of a power has about as many bits as exponent and log2 of the base together."""
    size = magnitude(base)
    bits = max(abs(size), 1).bit_length() + (
        exponent.bit_length() if isinstance(exponent, int) else magnitude(exponent)
    )
    if bits > MOST_MAGNITUDE.bit_length():
        # A small base and a positive exponent, or a large one and a negative: it goes to 0.
        vanishing = not isinstance(exponent, acb) and (size > 0) is (exponent < 0)
        raise (Underflow if vanishing else TooLarge)(
            f"a power of more than {MOST_MAGNITUDE} binary digits"
        )


def root_of(value: Number, index: int, *, real: bool) -> Number:
    """The n-th root: the real one of a negative number if n is odd."""
    if vanishes(value):
        return fmpq(0)
    negative = not isinstance(value, acb) and value < 0
    if negative and index % 2:
        return -root_of(-value, index, real=real)
    if negative and real:
        raise Undefined
    if isinstance(value, fmpq) and not negative and value.height_bits() < 2000:
        above, below = (
            _whole_root(int(part), index) for part in (value.numerator, value.denominator)
        )
        if above and below:
            return fmpq(above, below)
    return _ball(value).root(index)


def _whole_root(value: int, index: int) -> int | None:
    """The integer root of a positive integer, if it has one."""
    root = math.isqrt(value) if index == 2 else int(fmpz(value).root(index))
    return root if root**index == value else None
