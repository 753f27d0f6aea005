"""Relations that are true or false at a point: the conditions of cases."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from mpmath import mp

from rlvr.verifiers.math.latex.tree import Node, Unreadable
from rlvr.verifiers.math.latex.values import Number, Undefined, approximate, nearly_zero

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
    for left, sign, right in zip(sides, condition.value, sides[1:], strict=False):
        gap = approximate(left) - approximate(right)
        if isinstance(gap, mp.mpc):
            raise Undefined
        if not _TESTS[sign](Fraction(0) if nearly_zero(gap) else gap):
            return False
    return True


_TESTS: dict[str, Callable[[Number], bool]] = {
    "=": lambda gap: gap == 0,
    "ne": lambda gap: gap != 0,
    "<": lambda gap: gap < 0,
    ">": lambda gap: gap > 0,
    "le": lambda gap: gap <= 0,
    "ge": lambda gap: gap >= 0,
}
