"""Where two formulas part: a point at which they have other values, for people who read a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from typing import Final

from mpmath import mp

from rlvr.verifiers.answers import bare
from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable, parse
from rlvr.verifiers.math.latex.budget import Budget, PairTooLarge, one_pair
from rlvr.verifiers.math.latex.matrices import Grid
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import free_symbols
from rlvr.verifiers.math.latex.values import Number, Undefined, approximate
from rlvr.verifiers.math.limits import exceeded, too_long
from rlvr.verifiers.math.points import Point, random_points
from rlvr.verifiers.math.probing import Pair

__all__ = ["DifferingPoint", "differing_point"]

_PLAIN: Final = tuple(map(Fraction, ("2", "3", "5", "1/2", "-1", "-2", "7", "10")))
_RANDOM: Final = 4  # points after the plain ones
_STEPS: Final = 1_500  # nodes visited at a point
_DIGITS: Final = 50
_SHOWN: Final = 10  # digits
_LONGEST: Final = 30  # characters of a fraction that is shown as it is


@dataclass(frozen=True, slots=True)
class DifferingPoint:
    """A point, and the values of both sides there.

    Attributes:
        point: values by the names of variables; empty for two constants.
        answer, reference: the values, to ten digits or as fractions.
    """

    point: dict[str, str]
    answer: str
    reference: str


def differing_point(answer: str, reference: str) -> DifferingPoint | None:
    r"""A point at which an answer and a reference differ; None where both are no formulas, or none
    was found.

        >>> differing_point("x^2 - 1", "(x-1)(x+2)")
        Difference(point={'x': '2'}, answer='3', reference='4')

    It explains a verdict and decides none.

    Args:
        answer, reference: formulas, in LaTeX or plain.
    """
    try:
        with one_pair():
            a, b = _tree(answer), _tree(reference)
            return None if a is None or b is None else _search(a, b)
    except (PairTooLarge, RecursionError):
        return None


def _tree(text: str) -> Node | None:
    plain = bare(text)
    if too_long(plain) or exceeded(folded := fold(plain)):
        return None
    try:
        return parse(folded)
    except (Unreadable, TooLarge):
        return None


def _search(a: Node, b: Node) -> DifferingPoint | None:
    names = sorted(free_symbols(a) | free_symbols(b))
    for point in chain(_plain_points(names), islice(random_points(names, a, b), _RANDOM)):
        pair = _pair(a, b, point)
        if pair is None or isinstance(pair.x, Grid) or isinstance(pair.y, Grid):
            continue
        if pair.differ():
            shown_point = {name: _show_number(value) for name, value in point.items()}
            return DifferingPoint(shown_point, _show_number(pair.x), _show_number(pair.y))
    return None


def _plain_points(names: Sequence[str]) -> Iterator[Point]:
    """Small numbers, another for each variable; one point without any for constants."""
    for turn in range(len(_PLAIN) if names else 1):
        yield {name: _PLAIN[(turn + i) % len(_PLAIN)] for i, name in enumerate(names)}


def _pair(a: Node, b: Node, point: Point) -> Pair | None:
    budget = Budget(_STEPS)
    try:
        with mp.workdps(_DIGITS):
            left, right = (Evaluation(point, real=True, budget=budget) for _ in range(2))
            x, y = left.value(a), right.value(b)
            return Pair(x, y, max(left.top, right.top), _DIGITS)
    except (Undefined, TooLarge, Unreadable, KeyError):
        return None


def _show_number(value: Number) -> str:
    exact = str(value) if isinstance(value, Fraction) else ""
    return exact if 0 < len(exact) <= _LONGEST else mp.nstr(approximate(value), _SHOWN)
