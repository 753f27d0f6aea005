r"""Sets of real numbers as intervals: (-\infty, 2] \cup \{3\}, x \ne 0, \mathbb{R} \setminus \{1\}

A condition that is not solved, such as x^2 < 4, may be the reference (`solving.py`); an answer has
to be solved.

A set is a sorted list of pieces that neither meet nor touch; what can be written in two ways is
written in one. Ends are numbers.  An interval between expressions with variables is compared end by
end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TypeAlias

from flint import arb

from rlvr.verifiers.math import intervals, probing
from rlvr.verifiers.math.intervals import Regions, common, unite
from rlvr.verifiers.math.latex.numeric import constant
from rlvr.verifiers.math.latex.tree import (
    INFINITY,
    MINUS_INFINITY,
    TURNED,
    Node,
    Unreadable,
    free_symbols,
    walk,
)
from rlvr.verifiers.math.latex.values import Number, decided, is_exact, sign_of, vanishes
from rlvr.verifiers.math.solving import solution

__all__ = ["End", "Piece", "is_condition", "is_set", "same_set"]

_KINDS = frozenset("rel union intersection minus builder numbers".split())


@dataclass(frozen=True, slots=True)
class End:
    """One end of a piece: its expression, its value (infinite at the outside)
    and which side of it is meant.

    `side` is -1 just before the number, 1 just behind it: [2 begins at (2, -1), (2 begins at (2,
    1).
    """

    node: Node | None
    value: Number
    side: int

    def __lt__(self, other: End) -> bool:
        if self.meets(other):
            return self.side < other.side
        return bool(self.value < other.value)

    def meets(self, other: End) -> bool:
        """The same number, or taken for it."""
        # Of infinite balls no difference can be taken.
        if _is_finite(self.value) and _is_finite(other.value):
            return vanishes(self.value - other.value)
        return bool(self.value == other.value)


def _is_finite(value: Number) -> bool:
    return is_exact(value) or bool(value.is_finite())


Piece: TypeAlias = intervals.Piece[End]


def is_set(node: Node) -> bool:
    """True for what can be nothing but a set; a pair in brackets may be one."""
    return node.op in _KINDS or (node.op == "list" and any(item.op == "rel" for item in node.args))


def same_set(a: Node, b: Node) -> bool:
    """Do both sets hold the same numbers?

    Raises:
        Unreadable: one is no set of real numbers that we can work out.
        Undefined: an end has no value.
    """
    # x^2 < 4 is the question: as an answer it would be paid for repeating it.
    if any(map(is_condition, walk(a))):
        raise Unreadable("a condition that is not solved")
    if free_symbols(_bounds(a)) or free_symbols(_bounds(b)):
        return _same_between_variables(a, b)
    # Where the ends lie first, by values; then those that meet are compared as expressions.
    ends = decided(lambda: _common_ends(_REGIONS.pieces(a), _REGIONS.pieces(b)))
    return ends is not None and all(
        x.node is None or y.node is None or probing.equal(x.node, y.node) for x, y in ends
    )


def _common_ends(left: list[Piece], right: list[Piece]) -> list[Piece] | None:
    if len(left) != len(right):
        return None
    ends = [pair for p, q in zip(left, right, strict=True) for pair in zip(p, q, strict=True)]
    return ends if all(x.side == y.side and x.meets(y) for x, y in ends) else None


def is_condition(node: Node) -> bool:
    """A condition on one variable that stands on no side alone."""
    if node.op != "rel" or not set(node.value) <= TURNED.keys() or len(free_symbols(node)) != 1:
        return False
    return not any(side.op == "sym" for side in node.args)


def _bounds(node: Node) -> Node:
    """The set without the variable of its conditions."""
    if is_condition(node):
        return Node("list")
    if node.op == "rel":
        return Node("list", tuple(side for side in node.args if side.op != "sym"))
    if node.op == "builder":
        return _bounds(node.args[0])
    return node.map(_bounds)


def _same_between_variables(a: Node, b: Node) -> bool:
    left, right = _interval(a), _interval(b)
    pairs = zip(left.args, right.args, strict=True)
    return left.value == right.value and all(
        # Infinite ends have no value to compare.
        x == y if INFINITY in (x, y) or MINUS_INFINITY in (x, y) else probing.equal(x, y)
        for x, y in pairs
    )


def _interval(node: Node) -> Node:
    """One interval as its ends in brackets."""
    node = node.args[0] if node.op == "builder" else node
    if node.op == "rel" and len(node.args) < 4:
        sides, signs = node.args, node.value
        at = 0 if len(sides) == 2 and sides[0].op == "sym" else 1  # the variable's place
        signs = (*(TURNED.get(sign, "") for sign in signs[:at]), *signs[at:])
        # a < x and x < b: each says one end.
        halves = [
            _HALVES[sign](side)
            for sign, side in zip(signs, sides[:at] + sides[at + 1 :], strict=True)
            if sides[at].op == "sym" and sign in _RAYS
        ]
        halves.sort(key=lambda half: half.args[0] == MINUS_INFINITY)
        if len(halves) == len(signs) == len({half.args[0] == MINUS_INFINITY for half in halves}):
            low, high = halves[0], halves[-1]
            brackets = low.value[0] + high.value[1]
            return Node("tuple", (low.args[0], high.args[1]), brackets)
    if node.op == "tuple" and len(node.args) == 2 and len(node.value) == 2:
        return node
    raise Unreadable("a set whose ends are expressions, and which is no interval")


# ------------------------------------------------------------------------------------------- pieces


def _end(node: Node, side: int) -> End:
    if node in (INFINITY, MINUS_INFINITY):
        return End(None, arb.pos_inf() if node == INFINITY else arb.neg_inf(), side)
    return End(node, constant(node), side)


def _conditions(node: Node) -> list[Piece]:
    """x > 1, x < 3 are one interval; x < 1, x > 3, which no x fulfils at once, are two."""
    sides = [side for item in node.args if item.op == "rel" for side in item.args]
    if len({side.value for side in sides if side.op == "sym"}) > 1:
        raise Unreadable("conditions on more than one variable")
    first, others = node.args[0], Node("set", node.args[1:])
    if not any(map(is_set, node.args)):
        return _REGIONS.pieces(Node("set", node.args))  # 2, 3
    if first.op == "rel" and first.value == ("=",) and not any(map(is_set, others.args)):
        return unite([*_REGIONS.pieces(first), *_REGIONS.pieces(others)])  # x = 2, 3
    parts = list(map(_REGIONS.pieces, node.args))
    overlap = reduce(common, parts)
    return overlap if overlap and node.value == "and" else unite(chain.from_iterable(parts))


def _condition(node: Node) -> list[Piece]:
    """A chain around one variable, link by link."""
    variables = [side for side in node.args if side.op == "sym"]
    if len(variables) != 1 and not is_condition(node):
        raise Unreadable("a condition that does not bound one variable")
    links = zip(node.args, node.value, node.args[1:], strict=False)
    return reduce(common, [_link(left, sign, right) for left, sign, right in links])


def _link(left: Node, sign: str, right: Node) -> list[Piece]:
    if right.op == "sym" and sign in TURNED:
        left, sign, right = right, TURNED[sign], left
    if (free_symbols(left) and left.op != "sym") or free_symbols(right):
        return _solve_inequality(left, sign, right)
    if left.op != "sym" or sign not in _HALVES:
        raise Unreadable("a condition that does not bound one variable")
    return _REGIONS.pieces(_HALVES[sign](right))


def _solve_inequality(left: Node, sign: str, right: Node) -> list[Piece]:
    """x^2 < 4; of |u| < v both u < v and u > -v."""
    if right.op == "call" and sign in TURNED:
        left, sign, right = right, TURNED[sign], left
    if left == Node("call", left.args, "abs") and sign in TURNED and not free_symbols(right):
        up, down = (
            _solve_inequality(u, sign, right) for u in (left.args[0], Node("neg", left.args))
        )
        if sign in ("<", "le"):
            return common(up, down)
        solutions = unite([*up, *down]) if sign != "ne" else common(up, down)
        # |u| = -1 has no solution, though u = -1 may have one.
        none = sign == "=" and sign_of(constant(right)) < 0
        return [] if none else solutions
    stretches = solution(left, sign, right)
    return unite(
        # A closed low end lies just before its number, a closed high end just behind it.
        (End(None, low, 1 - 2 * a), End(None, high, 2 * b - 1))
        for low, a, high, b in stretches
    )


_REGIONS: Regions[End] = Regions(
    _end,
    End(None, arb.neg_inf(), 1),
    End(None, arb.pos_inf(), -1),
    {
        "rel": _condition,
        "list": _conditions,
        "builder": lambda node: _REGIONS.pieces(node.args[0]),
    },
)
_RAYS = frozenset(("<", "le", ">", "ge"))
_ALL = Node("numbers", value="R")
_HALVES: dict[str, Callable[[Node], Node]] = {
    "<": lambda end: Node("tuple", (MINUS_INFINITY, end), "()"),
    "le": lambda end: Node("tuple", (MINUS_INFINITY, end), "(]"),
    ">": lambda end: Node("tuple", (end, INFINITY), "()"),
    "ge": lambda end: Node("tuple", (end, INFINITY), "[)"),
    "=": lambda end: Node("set", (end,)),
    "ne": lambda end: Node("minus", (_ALL, Node("set", (end,)))),
    "in": lambda end: end,
    "notin": lambda end: Node("minus", (_ALL, end)),
}
"""What a sign says of the variable before it."""
