"""Relations that are true or false at a point: the conditions of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlvr.verifiers.math.latex.tree import Node, Unreadable
from rlvr.verifiers.math.latex.values import sign_of

if TYPE_CHECKING:
    from rlvr.verifiers.math.latex.numeric import Evaluation

__all__ = ["holds"]


def holds(condition: Node, evaluation: Evaluation) -> bool:
    """Is a relation true here?

    Raises:
        Unreadable: it is no relation of numbers.
    """
    if condition.op == "list":
        return all(holds(item, evaluation) for item in condition.args)
    if condition.op != "rel" or not set(condition.value) <= _TESTS.keys():
        raise Unreadable("a condition that is no relation")
    sides = [evaluation.number(side) for side in condition.args]
    # In a chain a < b < c each sign is between two neighbours, and all must hold.
    for left, sign, right in zip(sides, condition.value, sides[1:], strict=False):
        if not _TESTS[sign](sign_of(left - right)):
            return False
    return True


_TESTS: dict[str, Callable[[int], bool]] = {
    "=": lambda side: side == 0,
    "ne": lambda side: side != 0,
    "<": lambda side: side < 0,
    ">": lambda side: side > 0,
    "le": lambda side: side <= 0,
    "ge": lambda side: side >= 0,
}
