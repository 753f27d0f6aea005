r"""Sets of real numbers with exact ends: unions, intersections and differences.  Open and closed ends differ.

(1, 2) \cup [2, 3) == (1, 3)        \mathbb{R} \setminus \{0\} == (-\infty, 0) \cup (0, \infty)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from rlvr.verifiers.math.forms import Form, Named, Quantity, Sequence

__all__ = ["Piece", "pieces"]

_INFINITE = {r"\infty": math.inf, r"+\infty": math.inf, r"-\infty": -math.inf}
_KINDS = frozenset(("()", "(]", "[)", "[]"))
_MOST = 64  # pieces; nobody writes more, and intersections are quadratic


class Piece(NamedTuple):
    """Ends and whether each belongs to it, ordered so that sorting puts a closed low end first."""

    low: Fraction | float
    low_open: bool
    high: Fraction | float
    high_closed: bool


def pieces(form: Form) -> tuple[Piece, ...] | None:
    """The disjoint pieces from left to right; None if an end is not an exact number, or it is no such set."""
    found = _pieces(form)
    return None if found is None or len(found) > _MOST else _joined(found)


def _pieces(form: Form) -> list[Piece] | None:
    if isinstance(form, Named):
        return _pieces(form.body)
    if isinstance(form, Quantity):
        point = _end(form)
        # Not math.isfinite: it makes a float of it, and 10^999 is none.
        return [Piece(point, False, point, True)] if isinstance(point, Fraction) else None
    if not isinstance(form, Sequence):
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
        common = list(_joined(sets[0]))
        for other in sets[1:]:
            common = _common(common, _joined(other) if form.kind == "meet" else _outside(_joined(other)))
        return common
    return None


def _interval(form: Sequence) -> list[Piece] | None:
    ends = [_end(item) for item in form.items]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] > ends[1]:
        return None
    piece = Piece(ends[0], form.kind[0] == "(", ends[1], form.kind[1] == "]")
    return [piece] if _filled(piece) else []


def _end(form: Form) -> Fraction | float | None:
    if not isinstance(form, Quantity) or form.unit or form.percent:
        return None
    return _INFINITE.get(form.core.replace(" ", "")) if form.value is None else Fraction(form.value)


def _filled(piece: Piece) -> bool:
    return piece.low < piece.high or (piece.low == piece.high and not piece.low_open and piece.high_closed)


def _joined(parts: Iterable[Piece]) -> tuple[Piece, ...]:
    """Sorted, with what touches made one: (1, 2) and [2, 3) do, (1, 2) and (2, 3) do not."""
    joined: list[Piece] = []
    for piece in sorted(parts):
        last = joined[-1] if joined else None
        if last and (last.high > piece.low or (last.high == piece.low and (last.high_closed or not piece.low_open))):
            high, closed = max((last.high, last.high_closed), (piece.high, piece.high_closed))
            joined[-1] = Piece(last.low, last.low_open, high, closed)
        else:
            joined.append(piece)
    return tuple(joined)


def _common(left: Iterable[Piece], right: Iterable[Piece]) -> list[Piece]:
    others = list(right)
    both = (
        Piece(*max((a.low, a.low_open), (b.low, b.low_open)), *min((a.high, a.high_closed), (b.high, b.high_closed)))
        for a in left
        for b in others
    )
    return [piece for piece in both if _filled(piece)]


def _outside(parts: tuple[Piece, ...]) -> list[Piece]:
    """The rest of the real line."""
    rest: list[Piece] = []
    start: Fraction | float = -math.inf
    low_open = True
    for piece in parts:
        rest.append(Piece(start, low_open, piece.low, piece.low_open))
        start, low_open = piece.high, piece.high_closed
    rest.append(Piece(start, low_open, math.inf, False))
    return [piece for piece in rest if _filled(piece)]
