"""Where two formulas part: a point at which they have other values, for people who read a
verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from flint import arb, fmpq

from rlvr.verifiers.answers import bare
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable
from rlvr.verifiers.math.latex.budget import Budget, PairTooLarge, one_pair
from rlvr.verifiers.math.latex.matrices import Grid, is_grid
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import free_symbols
from rlvr.verifiers.math.latex.values import Number, Undefined, decided, is_exact
from rlvr.verifiers.math.points import Point, random_points
from rlvr.verifiers.math.probing import agree
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.statement import tree_or_none

__all__ = ["DifferingPoint", "differing_point"]

# Small numbers first, as a reader checks them by head.
_PLAIN: Final = (*map(fmpq, (2, 3, 5)), fmpq(1, 2), *map(fmpq, (-1, -2, 7, 10)))
_RANDOM: Final = 4  # points after the plain ones
_STEPS: Final = 1_500  # nodes visited at a point
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
    try:
        return tree_or_none(read(bare(text)))
    except TooLarge:
        return None


def _search(a: Node, b: Node) -> DifferingPoint | None:
    names = sorted(free_symbols(a) | free_symbols(b))
    # A few points of the comparison follow for formulas that agree at all small numbers.
    for point in chain(_plain_points(names), islice(random_points(names, a, b), _RANDOM)):
        values = _different_values(a, b, point)
        if values is not None and not any(map(is_grid, values)):
            shown_point = {name: _show_number(value) for name, value in point.items()}
            return DifferingPoint(shown_point, *map(_show_number, values))
    return None


def _plain_points(names: Sequence[str]) -> Iterator[Point]:
    """Small numbers, another for each variable; one point without any for constants."""
    for turn in range(len(_PLAIN) if names else 1):
        # Shifted by one for each name, so that no two letters have the same value.
        yield {name: _PLAIN[(turn + i) % len(_PLAIN)] for i, name in enumerate(names)}


def _different_values(a: Node, b: Node, point: Point) -> tuple[Number | Grid, Number | Grid] | None:
    budget = Budget(_STEPS)

    def compare() -> tuple[Number | Grid, Number | Grid] | None:
        x, y = (Evaluation(point, real=True, budget=budget).value(side) for side in (a, b))
        return None if agree(x, y) else (x, y)

    try:
        return decided(compare)
    except (Undefined, TooLarge, Unreadable, KeyError):
        return None


def _show_number(value: Number) -> str:
    exact = str(value) if is_exact(value) else ""
    return exact if 0 < len(exact) <= _LONGEST else arb(value).str(_SHOWN, radius=False)
