r"""Sets of real numbers as pieces: unions, intersections and differences.
Open and closed ends differ.

(1, 2) \cup [2, 3) == (1, 3)        \mathbb{R} \setminus \{0\} == (-\infty, 0) \cup (0, \infty)

The reader is the same for ends of every kind: exact ones here, and balls in realsets.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import chain
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rlvr.verifiers.math.arithmetic import NotArithmetic, UndefinedNumber, value_of
from rlvr.verifiers.math.forms import Form
from rlvr.verifiers.math.latex.tree import (
    INFINITY,
    MINUS_INFINITY,
    Node,
    TooLarge,
    Unreadable,
)
from rlvr.verifiers.math.statement import as_tree, inside_of

__all__ = ["Exact", "Ordered", "Piece", "Regions", "common", "outside", "pieces", "unite"]

_INFINITE = {INFINITY: math.inf, MINUS_INFINITY: -math.inf}
_SETS = frozenset("tuple set numbers union intersection minus".split())
_KINDS = frozenset(("()", "(]", "[)", "[]"))
_MOST = 1_000  # pieces of two sets together; no answer has so many


class Ordered(Protocol):
    """What can be an end of a piece."""

    def __lt__(self, other: Any, /) -> bool: ...


_End = TypeVar("_End", bound=Ordered)
Piece: TypeAlias = tuple[_End, _End]
"""Its low and its high end.

An end is a number and the side of it that is meant: [2 begins just before 2 and (2 just behind it,
while 2] ends just behind 2 and 2) just before it.  So the first of two ends is the lower one, open
or closed, and a piece is empty where its ends are the same.
"""

Exact: TypeAlias = tuple[Fraction | float, int]
"""An end that is known exactly: the number, which is a float only where it is infinite;
-1 for just before it, or 1."""


def unite(parts: Iterable[Piece[_End]]) -> list[Piece[_End]]:
    """From left to right, with what touches made one: (1, 2) and [2, 3) do, (1, 2) and (2, 3) do
    not."""
    joined: list[Piece[_End]] = []
    for low, high in sorted(parts, key=lambda piece: piece[0]):
        if joined and not joined[-1][1] < low:  # it begins before the last one has ended, or there
            start, stop = joined.pop()
            low, high = start, max(stop, high)
        joined.append((low, high))
    return joined


def common(left: Iterable[Piece[_End]], right: Iterable[Piece[_End]]) -> list[Piece[_End]]:
    """What is in both, from left to right; each side's pieces must be disjoint."""
    mine, theirs = (sorted(side, key=lambda piece: piece[0]) for side in (left, right))
    if len(mine) + len(theirs) > _MOST:
        raise TooLarge("sets of too many pieces")
    shared, at, beside = [], 0, 0
    while at < len(mine) and beside < len(theirs):
        (low, high), (other_low, other_high) = mine[at], theirs[beside]
        start, stop = max(low, other_low), min(high, other_high)
        if start < stop:
            shared.append((start, stop))
        # the piece that ends first meets no other one
        if high < other_high:
            at += 1
        else:
            beside += 1
    return shared


def outside(parts: Iterable[Piece[_End]], least: _End, most: _End) -> list[Piece[_End]]:
    """The rest of the real line, which lies between two ends at infinity; the pieces must be as
    `united` makes them."""
    ends = [least, *chain.from_iterable(parts), most]
    return [gap for gap in zip(ends[::2], ends[1::2], strict=True) if gap[0] < gap[1]]


@dataclass(frozen=True, slots=True)
class Regions(Generic[_End]):
    """Reads the tree of a set of real numbers into its pieces, from left to right.

    Attributes:
        end: makes the end at an expression, on the side of it that is meant.
        least, most: both ends of the real line.
        conditions: readers of further nodes.
    """

    end: Callable[[Node, int], _End]
    least: _End
    most: _End
    conditions: Mapping[str, Callable[[Node], list[Piece[_End]]]] = field(default_factory=dict)

    def pieces(self, node: Node) -> list[Piece[_End]]:
        """The disjoint pieces of a set.

        Args:
            node: its tree.

        Raises:
            Unreadable: it is none.
        """
        if node.op in self.conditions:
            return self.conditions[node.op](node)
        if node.op == "tuple" and len(node.args) == 2 and node.value in _KINDS:
            return self.between(*node.args, node.value)
        if node.op == "set":
            # A point is the closed interval from it to itself.
            return unite(chain.from_iterable(self.between(item, item, "[]") for item in node.args))
        if node.op == "numbers" and node.value in ("R", "empty"):
            return [(self.least, self.most)] if node.value == "R" else []
        if node.op not in ("union", "intersection", "minus"):
            raise Unreadable(f"{node.op} where a set is due")
        parts = [self.pieces(arg) for arg in node.args]
        if node.op == "union":
            return unite(chain.from_iterable(parts))
        if node.op == "minus":  # A \ B \ C is A without both
            return self.without(parts[0], unite(chain.from_iterable(parts[1:])))
        while len(parts) > 1:  # two by two, since each sweep takes as long as its pieces are many
            parts = [reduce(common, parts[at : at + 2]) for at in range(0, len(parts), 2)]
        return parts[0]

    def between(self, low: Node, high: Node, brackets: str) -> list[Piece[_End]]:
        """The piece of one interval.

        Args:
            low, high: its ends.
            brackets: both of them, such as `[)`.

        Raises:
            Unreadable: it does not rise.  `(3,1)` is a point, and not the empty set.
        """
        start = self.end(low, 1 if brackets[0] == "(" else -1)
        stop = self.end(high, 1 if brackets[1] == "]" else -1)
        # Ends know their side, so that (1, 1) and (3, 1] do not rise.
        if not start < stop:
            raise Unreadable("an interval that does not rise")
        return [(start, stop)]

    def without(
        self, parts: Iterable[Piece[_End]], gone: Iterable[Piece[_End]]
    ) -> list[Piece[_End]]:
        """A set without another one.

        Args:
            parts: the pieces of the first.
            gone: those of the second.
        """
        return common(parts, outside(gone, self.least, self.most))


# -------------------------------------------------------------------------------------------- forms


def _exact_end(node: Node, side: int) -> Exact:
    return _INFINITE[node] if node in _INFINITE else value_of(node), side


# The real line begins just behind -∞ and ends just before ∞.
_EXACT: Regions[Exact] = Regions(_exact_end, (-math.inf, 1), (math.inf, -1))


def pieces(form: Form) -> list[Piece[Exact]] | None:
    """The disjoint pieces from left to right; None if an end is not an exact number, or it is no
    such set."""
    tree = inside_of(as_tree(form), "named", "bounds")
    try:
        return _EXACT.pieces(tree if tree.op in _SETS else Node("set", (tree,)))
    except (Unreadable, TooLarge, NotArithmetic, UndefinedNumber):
        return None
