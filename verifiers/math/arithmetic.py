r"""Exact values of closed rational expressions: `3 \cdot 4`, `2^{100}+1`, `1\frac{4}{5}`, `\frac12`, `100!`.

A recursive descent over folded text with `fractions.Fraction`; never a float.  A text that is not rational
arithmetic raises `NotArithmetic`; other modules read it.  The limits of `limits.py` must have been checked before; the
bits of each power are bounded here once more.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

__all__ = ["NotArithmetic", "Undefined", "pi_multiple", "rational"]


class NotArithmetic(Exception):
    """The text holds something other than rational arithmetic, or something that can be read in two ways."""


class Undefined(Exception):
    """The text is arithmetic and has no value: 0/0."""


_VOCABULARY = re.compile(r"(?:[\d\s+\-*/^!(){}.,]|\\frac(?![a-zA-Z])|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z])|\\div)+")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+")
_TIMES = {"*": 1, r"\cdot": 1, r"\times": 1, "/": -1, r"\div": -1}
_OPERATOR = re.compile(r"\*|/|\\cdot|\\times|\\div")
_POWER_BEFORE = re.compile(r"\d+ ?\^ ?(?:\d+ |\{ ?\d+ ?\} ?)[1-9]")
_MIXED = re.compile(r"(\d+) (\d+)/(\d+)")
_REPEATING = re.compile(r"([+-]?) ?(\d*)\.(\d*)(?:\\(?:overline|bar|dot|overbar) ?\{? ?(\d+) ?\}?|\((\d+)\))")
_GOES_ON = re.compile(r"([+-]?) ?(\d*)\.(\d+) ?\\dots")
_LONGEST_PERIOD = 6
_MOST_BITS = 150_000  # of one power or factorial; the static limits stop an honest text long before


def rational(text: str) -> Fraction:
    """The exact value.

    Raises:
        NotArithmetic: see there.
        Undefined: see there.
    """
    if (endless := _repeating(text)) is not None:
        return endless
    if not _VOCABULARY.fullmatch(text):
        raise NotArithmetic
    if mixed := _MIXED.fullmatch(text.lstrip("- ")):
        value = _mixed(*map(int, mixed.groups()))
        return -value if text[0] == "-" else value
    reader = _Reader(text)
    value = reader.sum()
    if reader.at < len(text):
        raise NotArithmetic
    return value


def pi_multiple(text: str) -> Fraction | None:
    r"""How many times π: 2/3 for `\frac{2\pi}{3}`; None if it is no rational multiple, or holds several π.

    One π in an arithmetic expression is a variable.  Of all such expressions only r·x is 0, r and 2r at 0, 1 and 2.
    """
    if text.count(r"\pi") != 1:
        return None
    try:
        at = [rational(text.replace(r"\pi", f"({x})")) for x in (0, 1, 2)]
    except (NotArithmetic, Undefined):
        return None
    return at[1] if at[0] == 0 and at[2] == 2 * at[1] else None


class _Reader:
    """One text and how far it has been read.  Every method skips the spaces after what it took."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._skip()

    def sum(self) -> Fraction:
        value = self._signed()
        while self._peek() in ("+", "-"):
            minus = self._take() == "-"
            term = self.product()
            value = value - term if minus else value + term
        return value

    def _signed(self) -> Fraction:
        """-2^2 is -4: a leading sign holds for the whole product."""
        if self._peek() in ("+", "-"):
            return -self.product() if self._take() == "-" else self.product()
        return self.product()

    def product(self) -> Fraction:
        start = self.at
        value = self.power()
        while True:
            if operator := _OPERATOR.match(self.text, self.at):
                self._move(operator.end())
                start = self.at
                value = _times(value, self._factor(), _TIMES[operator[0]])
            elif self._peek() in ("(", "{", "\\") or _POWER_BEFORE.fullmatch(self.text, start, self.at + 1):
                start = self.at
                value = _times(value, self.power(), 1)  # 2(3), 2^6 3^5; two bare numbers side by side never get here
            else:
                return value

    def _factor(self) -> Fraction:
        if self._peek() in ("+", "-"):
            return -self.power() if self._take() == "-" else self.power()
        return self.power()

    def power(self) -> Fraction:
        base = self.atom()
        if self._peek() == "!":
            step = self._marks()
            base = _factorial(base, step)
        if self._peek() != "^":
            return base
        self._take()
        minus = self._peek() == "-" and self._take() == "-"
        return _raise(base, -self.atom() if minus else self.atom())

    def _marks(self) -> int:
        """How many `!` stand side by side: n!! is a product of every second number, not a factorial of one."""
        at = self.at
        while self._peek() == "!":
            self._take()
        if self.text[at : self.at].rstrip() not in ("!", "!!"):
            raise NotArithmetic
        return self.text[at : self.at].count("!")

    def atom(self) -> Fraction:
        opening = self._peek()
        if opening in ("(", "{"):
            return self._group()
        if self.text.startswith(r"\frac", self.at):
            self._move(self.at + 5)
            return self._fraction()
        return self._number()

    def _group(self) -> Fraction:
        closing = {"(": ")", "{": "}"}[self._take()]
        value = self.sum()
        if self._peek() != closing:
            raise NotArithmetic
        self._take()
        return value

    def _fraction(self) -> Fraction:
        return _times(self._argument(), self._argument(), -1)

    def _argument(self) -> Fraction:
        r"""Of \frac: a group or, as in `\frac12`, one digit."""
        if self._peek() == "{":
            return self._group()
        if not self._peek().isdecimal():
            raise NotArithmetic
        return Fraction(int(self._take()))

    def _number(self) -> Fraction:
        literal = _NUMBER.match(self.text, self.at)
        if literal is None:
            raise NotArithmetic
        self._move(literal.end())
        value = Fraction(literal[0].replace(",", "").rstrip("."))
        if self._peek().isdecimal() or self._peek() == ",":
            raise NotArithmetic  # "1 2" is neither 12 nor 2
        if self.text.startswith(r"\frac", self.at):
            part = self.atom()
            if value.denominator != 1 or not 0 < part < 1:
                raise NotArithmetic  # is 2\frac{3}{2} a product or a mixed number?
            value += part
        return value

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        sign = self.text[self.at]
        self._move(self.at + 1)
        return sign

    def _move(self, at: int) -> None:
        self.at = at
        self._skip()

    def _skip(self) -> None:
        while self.text.startswith(" ", self.at):
            self.at += 1


def _mixed(whole: int, numerator: int, denominator: int) -> Fraction:
    if not 0 < numerator < denominator:
        raise NotArithmetic
    return whole + Fraction(numerator, denominator)


def _repeating(text: str) -> Fraction | None:
    r"""`0.1\overline{6}`, `0.1(6)`, and `0.1666\dots` where the period stands there three times."""
    if found := _REPEATING.fullmatch(text):
        sign, whole, places, period = *found.groups()[:3], found[4] or found[5]
    elif found := _GOES_ON.fullmatch(text):
        sign, whole, places = found.groups()
        period = next((p for n in range(1, _LONGEST_PERIOD + 1) if places.endswith(3 * (p := places[-n:]))), "")
        if not period:
            raise NotArithmetic
    else:
        return None
    shift = 10 ** len(places)
    value = Fraction(int(whole + places or "0"), shift) + Fraction(int(period), shift * (10 ** len(period) - 1))
    return -value if sign == "-" else value


def _times(value: Fraction, factor: Fraction, sign: int) -> Fraction:
    if value.numerator.bit_length() + factor.numerator.bit_length() > 4 * _MOST_BITS:
        raise NotArithmetic
    if sign > 0:
        return value * factor
    if factor == 0:
        raise Undefined
    return value / factor


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > _MOST_BITS:
        raise NotArithmetic
    if base == 0 and exponent <= 0:
        raise Undefined
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction, step: int) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= _MOST_BITS // 15:
        raise NotArithmetic
    return Fraction(math.factorial(int(value)) if step == 1 else math.prod(range(int(value), 0, -2)))
