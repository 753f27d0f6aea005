r"""Static limits, checked on the text before anything is parsed: the same text gives the same verdict anywhere.

The size of a number is bounded without computing it: that `9^{9^{9}}` has 369 million digits
follows from its exponents.  The bound is an upper one: sums count as products, and letters as 2.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

__all__ = ["LIMITS", "LONG_NUMBERS", "Limits", "exceeded", "may_grow", "names_more", "too_long"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What an answer may hold.

    Attributes:
        chars: characters in all.
        depth: brackets inside brackets.
        digits: digits in a row; Python itself refuses to read more than 4,300.
        magnitude: decimal digits of a number that is named without being written out, such as
            `2^{100}`.
        magnitudes: the same of all items of a list together.
        cells: separators of lists and matrices.
        terms: plus and minus signs.
    """

    chars: int = 4096
    depth: int = 40
    digits: int = 1000
    magnitude: int = 20_000
    magnitudes: int = 60_000
    cells: int = 1000
    terms: int = 400


LIMITS = Limits()
LONG_NUMBERS = Limits(chars=300, terms=40, magnitude=2**62, magnitudes=2**62)
"""For a reference that names a longer number, and for the answers to it.  Such texts are short, since a few powers of
this size are worked out exactly and any larger ones not at all."""

_HARMLESS = re.compile(
    r"[0-9 .,+\-/$%a-df-zA-DF-Z]{0,60}"
)  # no bracket, power or exponent in so short a text
_FEW = min(
    LIMITS.depth, LIMITS.digits, LIMITS.cells, LONG_NUMBERS.terms
)  # characters: a text so short has no more of any
_DIGITS = re.compile(rf"\d{{{LIMITS.digits + 1}}}")
_GROWING = re.compile(r"[!^]|\d[eE][+-]?\d|\\binom")
_TOKEN = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\\[a-zA-Z]+|\S", re.DOTALL)
_OPEN, _CLOSE, _SEPARATORS = frozenset("([{"), frozenset(")]}"), frozenset(",;&")
_HUGE = (
    1e6  # decimal digits: any number this long is over every limit, so the arithmetic stops there
)


def too_long(text: str, limits: Limits = LIMITS) -> str | None:
    """The one limit that comes even before folding."""
    return f"{len(text)} characters, over {limits.chars}" if len(text) > limits.chars else None


def exceeded(text: str, limits: Limits = LIMITS) -> str | None:
    """Which limit a folded text breaks, in words; None if it breaks none.

    Args:
        text: a folded text.
        limits: what it may hold.
    """
    if _HARMLESS.fullmatch(text):
        return None
    return (_exceeds_counts(text, limits) if len(text) > _FEW else None) or _exceeds_names(
        text, limits
    )


def _exceeds_counts(text: str, limits: Limits) -> str | None:
    if (depth := _depth(text)) > limits.depth:
        return f"brackets {depth} deep, over {limits.depth}"
    if _DIGITS.search(text):
        return f"more than {limits.digits} digits in a row"
    cells = text.count(",") + text.count(";") + text.count("&") + text.count(r"\\")
    if cells > limits.cells:
        return f"{cells} separators, over {limits.cells}"
    terms = text.count("+") + text.count("-") + text.count(r"\pm")
    if terms > limits.terms:
        return f"{terms} signs, over {limits.terms}"
    return None


def _exceeds_names(text: str, limits: Limits) -> str | None:
    if _GROWING.search(text):
        heaviest, total = _Weigher(text).weigh()
        if heaviest > limits.magnitude:
            return f"names a number of more than {limits.magnitude} digits"
        if total > limits.magnitudes:
            return f"names numbers of more than {limits.magnitudes} digits in all"
    return None


def may_grow(text: str) -> bool:
    """False where no power, factorial or binomial names a number that is longer than its text.

    Args:
        text: a folded text.
    """
    return bool(_GROWING.search(text))


def names_more(text: str, digits: int) -> bool:
    """True if a folded text may name a number of more decimal digits than that.

    Args:
        text: a folded text whose depth is within the limits.
        digits: how many.
    """
    return bool(_GROWING.search(text)) and _Weigher(text).weigh()[0] > digits


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in text:
        if sign in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
        elif sign in _CLOSE:
            depth -= 1
    return deepest


class _Weigher:
    """An upper bound on the decimal digits of what a text names.  Depth has been checked, so recursion is shallow."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._exponents = 0  # how many exponents we are in

    def weigh(self) -> tuple[float, float]:
        """Of the heaviest item, and of all."""
        heaviest = total = 0.0
        while self._at < len(self._tokens):
            weight = self._product()
            heaviest, total = max(heaviest, weight), total + weight
            self._at += 1  # a separator, or a bracket that nothing opened
        return heaviest, total

    def _product(self) -> float:
        """Up to the next separator or closing bracket; inside brackets separators do not end
        anything."""
        weight = 0.0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token in _CLOSE or token in _SEPARATORS:
                break
            weight = min(weight + self._power(), _HUGE)
        return weight

    def _power(self) -> float:
        weight = self._atom()
        while self._next() in ("!", "^"):
            self._at += 1
            if self._tokens[self._at - 1] == "!":
                self._at += self._next() == "!"  # n!! is less than n!
                weight = _factorial(weight)
            else:
                while self._next() in ("-", "+"):
                    self._at += 1
                self._exponents += 1
                exponent = self._power() if self._exponents <= LIMITS.depth else _HUGE
                weight = min(weight * 10 ** min(exponent, 7), _HUGE)  # 2^3^4 is read from the right
                self._exponents -= 1
        return weight

    def _atom(self) -> float:
        token = self._next()
        self._at += 1
        if token in _OPEN:
            return self._group()
        if token == r"\binom":
            self._exponents += 1
            above = self._atom() if self._exponents <= LIMITS.depth else _HUGE
            self._exponents -= 1
            return min(10 ** min(above, 7) * math.log10(2), _HUGE)  # C(n, k) <= 2^n
        if token[:1].isdecimal():
            return _log_of_literal(token, exponent=self._exponents > 0)
        return math.log10(2) if token.isalpha() else 0.0

    def _group(self) -> float:
        heaviest = self._product()
        while self._next() in _SEPARATORS:
            self._at += 1
            heaviest = max(heaviest, self._product())
        self._at += 1
        return heaviest

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""


def _log_of_literal(number: str, *, exponent: bool) -> float:
    """log10 of a literal; at least that of 2, so that a product of the terms bounds their sum.

    Of a decimal all digits count, since they end up in its numerator or denominator; in an exponent
    its size does.
    """
    mantissa, _, power = number.lower().partition("e")
    integer_part, point, places = mantissa.partition(".")
    weight = (
        math.log10(max(2, int(integer_part) + len(point)))
        if len(integer_part) < 16
        else float(len(integer_part))
    )
    if point and not exponent:
        weight = max(weight, float(len(integer_part) + len(places)))
    return weight + (min(abs(int(power[:9])), _HUGE) if power else 0.0)


def _factorial(weight: float) -> float:
    """n! has fewer than n log10(n) digits, where log10(n) is the weight."""
    return min(10 ** min(weight, 7) * max(weight, 1.0), _HUGE)
