"""Decisions on pairs of parts, and the decision on a whole that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlvr.verifiers.math.forms import Form

__all__ = ["Decision", "Leaf", "UNDECIDED", "all_of", "any_of", "match_counted", "match_items"]


@dataclass(frozen=True, slots=True)
class Decision:
    """`equal` is None where it cannot be decided; `reason` is short and stable."""

    equal: bool | None
    reason: str


Leaf: TypeAlias = Callable[[Form, Form], bool]
"""Understands expressions: (answer's form, reference's form) → equal."""

UNDECIDED: Final = Decision(None, "undecided")
"""The one `None` that the symbolic engine may be able to resolve."""


def match_items(
    left: tuple[Form, ...], right: tuple[Form, ...], decide: Callable[[Form, Form], Decision]
) -> Decision:
    """Every item has its like on the other side.  Equality is transitive, so the first like will
    do."""
    table, undecided = _table(left, right, decide)
    return undecided if table is None else all_of(map(any_of, [*table, *zip(*table, strict=True)]))


def match_counted(
    left: tuple[Form, ...], right: tuple[Form, ...], decide: Callable[[Form, Form], Decision]
) -> Decision:
    """The same for lists, where each item must also occur equally often: 1, 1, 2 is not 1, 2, 2."""
    table, decision = _table(left, right, decide)
    if table is None:
        return decision
    decision = all_of(map(any_of, [*table, *zip(*table, strict=True)]))
    return (
        Decision(False, "different-items")
        if decision.equal and not _same_counts(table)
        else decision
    )


def _table(
    left: tuple[Form, ...], right: tuple[Form, ...], decide: Callable[[Form, Form], Decision]
) -> tuple[list[list[Decision]] | None, Decision]:
    if not left or not right:
        return None, Decision(False, "different-length") if left or right else Decision(
            True, "same-items"
        )
    table: list[list[Decision]] = []
    for item in left:
        table.append([decide(item, candidate) for candidate in right])
        if any_of(table[-1]).equal is False:
            return None, Decision(False, "different-items")
    return table, UNDECIDED


def any_of(found: Iterable[Decision]) -> Decision:
    """One is enough."""
    decisions = list(found)
    for verdict in (True, None):
        for decision in decisions:
            if decision.equal is verdict and (verdict or decision.reason == "undecided"):
                return decision
    return Decision(None if any(d.equal is None for d in decisions) else False, "different-items")


def all_of(found: Iterable[Decision]) -> Decision:
    """`undecided` only where the symbolic engine could help; not where, say, two words differ."""
    decisions = list(found)
    if any(decision.equal is False for decision in decisions):
        return Decision(False, "different-items")
    unsure = [decision for decision in decisions if decision.equal is None]
    if not unsure:
        return Decision(True, "same-items")
    hopeless = any(decision.reason != "undecided" for decision in unsure)
    return Decision(None, "different-items") if hopeless else UNDECIDED


def _same_counts(table: list[list[Decision]]) -> bool:
    """Nothing is undecided here."""
    rows = [[bool(decision.equal) for decision in row] for row in table]
    columns = list(zip(*rows, strict=True))
    return all(sum(row) == sum(columns[j]) for row in rows for j, same in enumerate(row) if same)
