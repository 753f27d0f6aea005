r"""Sets of real numbers as pieces: unions, intersections and differences.  Open and closed ends differ.

(1, 2) \cup [2, 3) == (1, 3)        \mathbb{R} \setminus \{0\} == (-\infty, 0) \cup (0, \infty)

The algebra is the same for ends of every kind; `pieces` reads forms with exact ends, and
realsets.py trees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

from rlvr.verifiers.math.forms import Form, Items, Named, Quantity

__all__ = ["Exact", "Ordered", "Piece", "common", "outside", "pieces", "unite"]

_INFINITE = {r"\infty": math.inf, r"+\infty": math.inf, r"-\infty": -math.inf}
_KINDS = frozenset(("()", "(]", "[)", "[]"))
_MOST = 64  # pieces; no answer has more, and intersections are quadratic


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
"""An end that is known exactly: the number, which is a float only where it is infinite; -1 for just before it, or 1."""

_LEAST, _HIGHEST = (-math.inf, 1), (math.inf, -1)


def unite(parts: Iterable[Piece[_End]]) -> list[Piece[_End]]:
    """From left to right, with what touches made one: (1, 2) and [2, 3) do, (1, 2) and (2, 3) do
    not."""
    joined: list[Piece[_End]] = []
    for low, high in sorted(parts, key=lambda piece: piece[0]):
        if (
            joined and not joined[-1][1] < low
        ):  # it begins before the last one has ended, or just there
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def common(left: Iterable[Piece[_End]], right: Iterable[Piece[_End]]) -> list[Piece[_End]]:
    """What is in both, from left to right; each side's pieces must be disjoint."""
    right_pieces = list(right)
    overlaps = ((max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right_pieces)
    return sorted((piece for piece in overlaps if piece[0] < piece[1]), key=lambda piece: piece[0])


def outside(parts: Iterable[Piece[_End]], least: _End, most: _End) -> list[Piece[_End]]:
    """The rest of the real line, which lies between two ends at infinity; the pieces must be as
    `united` makes them."""
    gaps, start = [], least
    for low, high in parts:
        gaps.append((start, low))
        start = high
    gaps.append((start, most))
    return [piece for piece in gaps if piece[0] < piece[1]]


# ------------------------------------------------------------------------------------------------------------- forms


def pieces(form: Form) -> list[Piece[Exact]] | None:
    """The disjoint pieces from left to right; None if an end is not an exact number, or it is no
    such set."""
    parts = _pieces(form)
    return None if parts is None or len(parts) > _MOST else unite(parts)


def _pieces(form: Form) -> list[Piece[Exact]] | None:
    if isinstance(form, Named):
        return _pieces(form.body)
    if isinstance(form, Quantity):
        point = _end(form)
        # Not math.isfinite: it makes a float of it, and 10^999 is none.
        return [((point, -1), (point, 1))] if isinstance(point, Fraction) else None
    if not isinstance(form, Items):
        return None
    if form.kind in _KINDS:
        return _interval(form)
    parts = [_pieces(item) for item in form.items]
    sets = [part for part in parts if part is not None]
    if len(sets) < len(parts) or sum(map(len, sets)) > _MOST:
        return None
    if form.kind in ("union", "set"):
        return [piece for part in sets for piece in part]
    if form.kind in ("meet", "minus"):
        joined = unite(sets[0])
        for more_parts in map(unite, sets[1:]):
            joined = common(
                joined, more_parts if form.kind == "meet" else outside(more_parts, _LEAST, _HIGHEST)
            )
        return joined
    return None


def _interval(form: Items) -> list[Piece[Exact]] | None:
    ends = [_end(item) for item in form.items]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] > ends[1]:
        return None
    low, high = (
        (ends[0], 1 if form.kind[0] == "(" else -1),
        (ends[1], 1 if form.kind[1] == "]" else -1),
    )
    return [(low, high)] if low < high else []


def _end(form: Form) -> Fraction | float | None:
    if not isinstance(form, Quantity) or form.unit or form.percent:
        return None
    return _INFINITE.get(form.core.replace(" ", "")) if form.value is None else Fraction(form.value)
