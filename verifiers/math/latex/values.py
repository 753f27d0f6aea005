"""Numbers at a point: exact fractions where possible, else mpmath's at the working precision.

mpmath never executes text, and its exponents are unbounded, so that magnitudes are limited here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeAlias

from mpmath import mp

from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = [
    "MOST_BITS",
    "MOST_MAGNITUDE",
    "NoCase",
    "NotMeant",
    "Number",
    "Undefined",
    "Underflow",
    "approximate",
    "divide",
    "is_integer",
    "magnitude",
    "nearly_zero",
    "power_of",
    "root_of",
]

Number: TypeAlias = Any
"""A Fraction, mpf or mpc."""

MOST_BITS = 40_000
"""Of the numerator or denominator of an exact fraction; beyond it numbers become approximate."""
MOST_MAGNITUDE = 200_000
"""Binary digits in front of or behind the point of any number."""
_SCHOOL_ROOT = 9  # (-8)^{1/3} is real; (-1)^{5/97}, which a probe makes of (-1)^n, is nothing
_SLACK_BITS = 30  # of an approximate zero


class Underflow(TooLarge):
    """So close to zero that no exponent we allow can say it."""


class Undefined(Exception):
    """No value at this point: a division by zero, a root of a negative number among the real ones."""


class NotMeant(Undefined):
    """No value, and it says nothing.

    The notation is for whole numbers or positive bases, such as n! and (-1)^n at n = 1/3; or a
    number is too small to be told from 0.
    """


class NoCase(Undefined):
    """No value, since none of the cases holds."""


def approximate(value: Number) -> Number:
    """The same as an mpmath number."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def is_integer(value: Number) -> bool:
    """True for exact integers alone."""
    return isinstance(value, Fraction) and value.denominator == 1


def magnitude(value: Number) -> int:
    """About log2 of a number that is not zero."""
    if isinstance(value, Fraction):
        return value.numerator.bit_length() - value.denominator.bit_length()
    return int(mp.mag(value))


def nearly_zero(value: Number) -> bool:
    """True if rounding alone could have kept it from being zero."""
    if isinstance(value, Fraction):
        return value == 0
    return bool(value == 0 or magnitude(value) < _SLACK_BITS - mp.prec)


def divide(above: Number, below: Number) -> Number:
    """A quotient."""
    if nearly_zero(below):
        raise Undefined if below == 0 else NotMeant
    if isinstance(above, Fraction) and isinstance(below, Fraction):
        return above / below
    return approximate(above) / approximate(below)


def power_of(base: Number, exponent: Number, *, real: bool) -> Number:
    """base^exponent; (-8)^{1/3} is -2, as schools have it."""
    if isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            return _whole_power(base, int(exponent))
        if exponent.denominator <= _SCHOOL_ROOT:
            return _whole_power(root_of(base, exponent.denominator, real=real), exponent.numerator)
    if nearly_zero(base):
        raise Undefined
    base, exponent = approximate(base), approximate(exponent)
    if exponent:
        _bound(base, exponent)
    return mp.power(base, exponent)


def _whole_power(base: Number, exponent: int) -> Number:
    if nearly_zero(base):
        if exponent <= 0:
            raise Undefined
        return Fraction(0)
    if isinstance(base, Fraction):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * bits <= MOST_BITS:
            return Fraction(base**exponent)
    elif abs(exponent) == 1:
        return base if exponent == 1 else 1 / base
    if base in (1, -1):
        return base ** (exponent % 2)
    _bound(base, exponent)
    return mp.power(approximate(base), exponent)


def _bound(base: Number, exponent: Number) -> None:
    """The magnitude of a power has about as many bits as exponent and log2 of the base together."""
    size = magnitude(base)
    bits = max(abs(size), 1).bit_length() + (
        exponent.bit_length() if isinstance(exponent, int) else magnitude(exponent)
    )
    if bits > MOST_MAGNITUDE.bit_length():
        vanishing = not isinstance(exponent, mp.mpc) and (size > 0) is (exponent < 0)
        raise (Underflow if vanishing else TooLarge)(
            f"a power of more than {MOST_MAGNITUDE} binary digits"
        )


def root_of(value: Number, index: int, *, real: bool) -> Number:
    """The n-th root: the real one of a negative number if n is odd."""
    if nearly_zero(value):
        return Fraction(0)
    if index % 2 and not isinstance(value, mp.mpc) and value < 0:
        return -root_of(-value, index, real=real)
    if isinstance(value, Fraction) and value > 0 and value.numerator.bit_length() < 2000:
        above, below = _whole_root(value.numerator, index), _whole_root(value.denominator, index)
        if above and below:
            return Fraction(above, below)
    if real and not isinstance(value, mp.mpc) and value < 0:
        raise Undefined
    return mp.root(approximate(value), index) if index != 2 else mp.sqrt(approximate(value))


def _whole_root(value: int, index: int) -> int | None:
    """The integer root of a positive integer, if it has one."""
    root = math.isqrt(value) if index == 2 else int(mp.nint(mp.root(value, index)))
    return root if root**index == value else None
