r"""Solves quadratic inequalities in one variable, whose coefficients are fractions.

x^2 < 4  →  (-2, 2)        x^2 \ge 2  →  (-\infty, -\sqrt{2}] \cup [\sqrt{2}, \infty)
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.arithmetic import NotArithmetic, Undefined, rational
from rlvr.verifiers.math.cut import cuts, separator

__all__ = ["solution"]

_RELATION = separator(r"\\(?:le|ge)(?![a-zA-Z])|<|>")
_LETTER = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])")

_POINTS = (0, 1, -1, 2, -3, 5)
_LONGEST = 200  # characters


@lru_cache(maxsize=256)
def solution(text: str) -> str | None:
    """All solutions as a text; None if it is no such inequality, or has none or all numbers as solutions.

    Args:
        text: a folded relation.
    """
    sides, signs = cuts(text, _RELATION)
    letters = {*_LETTER.findall(text)}
    if len(text) > _LONGEST or len(sides) != 2 or not all(sides) or len(letters) != 1:
        return None
    gap = _polynomial(f"({sides[0]})-({sides[1]})", *letters)
    if gap is None or gap[2] == 0:
        return None
    c, b, a = gap
    below = (signs[0] in ("<", r"\le")) is (a > 0)  # between the roots, or outside of them
    room = b * b - 4 * a * c
    if room <= 0:
        return None
    low, high = _roots(-b / (2 * a), room / (4 * a * a))
    open_, close = ("(", ")") if signs[0] in ("<", ">") else ("[", "]")
    if below:
        return f"{open_}{low},{high}{close}"
    return rf"(-\infty,{low}{close}\cup{open_}{high},\infty)"


def _polynomial(text: str, letter: str) -> tuple[Fraction, Fraction, Fraction] | None:
    """Its coefficients from the constant up, if it is a polynomial of degree 2 or less: six of its values say so."""
    named = re.compile(rf"(?<![\\a-zA-Z]){letter}(?![a-zA-Z])")
    try:
        at = {x: rational(named.sub(f"({x})", text)) for x in _POINTS}
    except (NotArithmetic, Undefined):
        return None
    c, a = at[0], (at[1] + at[-1]) / 2 - at[0]
    b = at[1] - c - a
    return (c, b, a) if all(value == a * x * x + b * x + c for x, value in at.items()) else None


def _roots(middle: Fraction, square: Fraction) -> tuple[str, str]:
    """The two numbers at the distance sqrt(square) from the middle, the smaller one first."""
    above, below = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if above * above == square.numerator and below * below == square.denominator:
        distance = Fraction(above, below)
        return str(middle - distance), str(middle + distance)
    root = rf"\sqrt{{{square}}}"
    return f"{middle}-{root}" if middle else f"-{root}", f"{middle}+{root}" if middle else root
