"""Decisions on pairs of parts, and the decision on a whole that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import Form, Items, Quantity
from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = [
    "Decision",
    "Leaf",
    "UNDECIDED",
    "all_of",
    "any_of",
    "judged",
    "match_counted",
    "match_items",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """`equal` is None where it cannot be decided; `reason` is short and stable."""

    equal: bool | None
    reason: str


def judged(equal: bool, what: str) -> Decision:
    """`same-…` or `different-…`.

    Args:
        equal: whether both are the same.
        what: the last word of the reason.
    """
    return Decision(equal, f"{'same' if equal else 'different'}-{what}")


Leaf: TypeAlias = Callable[[Form, Form], bool]
"""Understands expressions: (answer's form, reference's form) → equal."""

UNDECIDED: Final = Decision(None, "undecided")
"""The one `None` that the symbolic engine may be able to resolve."""


def match_items(
    left: tuple[Form, ...], right: tuple[Form, ...], decide: Callable[[Form, Form], Decision]
) -> Decision:
    """Every item has its like on the other side.  Equality is transitive, so the first like will
    do.

    Raises:
        TooLarge: too many pairs of items that are written differently.
    """
    if not left or not right:
        return _SAME_ITEMS if left == right else _DIFFERENT_LENGTH
    # What is spelled alike on both sides is settled, and only the rest is compared.
    mine, others = (frozenset(map(_spelling, items)) for items in (left, right))
    new_left = tuple(item for item in left if _spelling(item) not in others)
    new_right = tuple(item for item in right if _spelling(item) not in mine)
    known: dict[tuple[int, int], Decision] = {}

    def decide_once(item: Form, candidate: Form) -> Decision:
        pair = id(item), id(candidate)
        if pair not in known:
            known[pair] = decide(item, candidate)
        return known[pair]

    rows = _table(new_left, right, decide_once)
    # The answer's form stands first wherever a pair is decided.
    columns = _table(new_right, left, lambda item, candidate: decide_once(candidate, item))
    if rows is None or columns is None:
        return _DIFFERENT_ITEMS
    return all_of(map(any_of, rows + columns))


def match_counted(
    left: tuple[Form, ...], right: tuple[Form, ...], decide: Callable[[Form, Form], Decision]
) -> Decision:
    """The same for lists, where each item must also occur equally often: 1, 1, 2 is not 1, 2, 2.

    Raises:
        TooLarge: see `match_items`.
    """
    if not left or not right:
        return _SAME_ITEMS if left == right else _DIFFERENT_LENGTH
    new_left, new_right = _without_alike(left, right), _without_alike(right, left)
    if not new_left or not new_right:
        return _SAME_ITEMS if new_left == new_right else _DIFFERENT_ITEMS
    table = _table(new_left, new_right, decide)
    if table is None:
        return _DIFFERENT_ITEMS
    decision = all_of(map(any_of, [*table, *zip(*table, strict=True)]))
    return _DIFFERENT_ITEMS if decision.equal and not _same_counts(table) else decision


_SAME_ITEMS, _DIFFERENT_ITEMS = judged(True, "items"), judged(False, "items")
_DIFFERENT_LENGTH = judged(False, "length")
_MOST_PAIRS = 2_500  # of items that are written differently
_IN_ORDER = frozenset("() [] (] [) matrix row : range".split())


def _spelling(item: Form) -> Hashable:
    """Items with the same are equal: an exact number with its unit, or a text."""
    if isinstance(item, Quantity) and item.value is not None:
        return item.value, item.unit, item.percent
    return squeeze(item.text) or item


def _without_alike(items: tuple[Form, ...], others: tuple[Form, ...]) -> tuple[Form, ...]:
    """The items that are left when each has met one of the others that is written as it is."""
    spare = Counter(map(_spelling, others))
    rest = []
    for item in items:
        spelling = _spelling(item)
        if spare[spelling]:
            spare[spelling] -= 1
        else:
            rest.append(item)
    return tuple(rest)


def _table(
    items: tuple[Form, ...],
    candidates: tuple[Form, ...],
    decide: Callable[[Form, Form], Decision],
) -> list[list[Decision]] | None:
    """The decisions on all pairs; None as soon as an item has no like."""
    table: list[list[Decision]] = []
    spare = max(_MOST_PAIRS, len(candidates))
    for item in items:
        spare -= sum(_pairs(item, candidate) for candidate in candidates)
        if spare < 0:
            raise TooLarge(f"more than {_MOST_PAIRS} pairs of items")
        table.append([decide(item, candidate) for candidate in candidates])
        if any_of(table[-1]).equal is False:
            return None
    return table


def _pairs(item: Form, candidate: Form) -> int:
    """How many pairs of single things are compared at most, in sets of sets and lists of tuples."""
    if not isinstance(item, Items) or not isinstance(candidate, Items):
        return 1
    if item.kind in _IN_ORDER:
        return sum(map(_pairs, item.items, candidate.items))
    return sum(_pairs(a, b) for a in item.items for b in candidate.items)


def any_of(found: Iterable[Decision]) -> Decision:
    """One is enough."""
    decisions = list(found)
    # A true pair wins over an undecided one, and of undecided ones that which the engine can
    # settle.
    for verdict in (True, None):
        for decision in decisions:
            if decision.equal is verdict and (verdict or decision.reason == "undecided"):
                return decision
    return Decision(None if any(d.equal is None for d in decisions) else False, "different-items")


def all_of(found: Iterable[Decision]) -> Decision:
    """`undecided` only where the symbolic engine could help; not where, say, two words differ."""
    decisions = list(found)
    if any(decision.equal is False for decision in decisions):
        return _DIFFERENT_ITEMS
    unsure = [decision for decision in decisions if decision.equal is None]
    if not unsure:
        return _SAME_ITEMS
    # Where the engine cannot help with a part, it is not asked about the whole.
    hopeless = any(decision.reason != "undecided" for decision in unsure)
    return Decision(None, "different-items") if hopeless else UNDECIDED


def _same_counts(table: list[list[Decision]]) -> bool:
    """Nothing is undecided here."""
    rows = [[bool(decision.equal) for decision in row] for row in table]
    columns = list(zip(*rows, strict=True))
    # An item must occur as often as its likes: of 1, 1, 2 and 1, 2, 2 the 1 on the left has one
    # like on the right, and that has two on the left.
    return all(sum(row) == sum(columns[j]) for row in rows for j, same in enumerate(row) if same)
