r"""The tree that a text is read into, before it is evaluated.

    \frac{x}{2}+1  →  add(div(sym x, num 2), num 1)

op       args, value                                 op       args, value
-----------------------------------------------------------------------------------------------
num      value: Written                              rel      sides; value: the signs between them
sym      value: name                                 list     items without brackets; value: and, or
const    value: pi e i inf                           tuple    items; value: the two brackets
add mul  any number; value: mixed, of 2\frac13       set      items
neg fact fact2 conj deg                              builder  (condition); value: the variable
div pow mod (÷)                                      numbers  value: R Q Z N empty
pm       (a, b): a ± b; value: + or - for the upper  union intersection minus
call     value: sin, ln, gcd, …                      matrix   cells by row; value: (rows, columns)
log      (x, base)       root (x, n)                 det transpose
sum prod (body, from, to); value: variable           cases    value, condition, value, condition, …
int      (body[, from, to]); value: variable         lim      (body, point); value: (variable, side)
term     indices; value: the name, a in a_i
diff     (body); value: (variable, order)            congruent (x, modulus)
apply    (letter, what stands in brackets behind it) compose  (f, g)
logic    parts; value: not and or xor implies iff
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

__all__ = [
    "BINDERS",
    "EULER",
    "IMAGINARY",
    "INFINITY",
    "MINUS_INFINITY",
    "Node",
    "PI",
    "TURNED",
    "TooLarge",
    "Unreadable",
    "Written",
    "call",
    "calls",
    "depth",
    "free_symbols",
    "has",
    "minus",
    "neg",
    "num",
    "operands",
    "replace_part",
    "size",
    "split_signs",
    "sym",
    "takes_angle",
    "unsigned",
    "walk",
]

BINDERS = frozenset(("sum", "prod", "int", "lim", "builder"))
"""Operators with a variable of their own."""


class Unreadable(Exception):
    """The text has no reading, or has two."""


class TooLarge(Exception):
    """The text is beyond a static limit; the message says which."""


class Written(Fraction):
    """A decimal as it stands in a text: its value, and how many digits stand behind its point."""

    places: int

    def __new__(cls, text: str) -> Written:
        self = super().__new__(cls, text)
        self.places = len(text.partition(".")[2])
        return self

    def __repr__(self) -> str:
        # The points of a pair are hashed from its text, so that 0.50 and 0.5 must print alike.
        return f"Fraction({self.numerator}, {self.denominator})"  # what the points are drawn from

    def __reduce__(self) -> tuple[Any, ...]:
        return Fraction, (self.numerator, self.denominator)  # the engine takes values alone


@dataclass(frozen=True, slots=True)
class Node:
    """See the table above."""

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None

    def map(self, change: Callable[[Node], Node]) -> Node:
        """The same with each of its parts changed."""
        return Node(self.op, tuple(map(change, self.args)), self.value)


TURNED = {"<": ">", ">": "<", "le": "ge", "ge": "le", "=": "=", "ne": "ne"}
"""The sign between two sides that have changed places."""


def num(value: int | Fraction) -> Node:
    """A rational number."""
    return Node("num", value=Fraction(value))


def sym(name: str) -> Node:
    """A variable."""
    return Node("sym", value=name)


EULER, IMAGINARY, PI, INFINITY = (Node("const", value=name) for name in ("e", "i", "pi", "inf"))
MINUS_INFINITY = Node("neg", (INFINITY,))
"""The constants, and what `-\\infty` is read as."""


def call(name: str, *args: Node) -> Node:
    """A named function of its arguments."""
    return Node("call", args, name)


def calls(node: Node, *names: str) -> bool:
    """True if one of these functions occurs."""
    return any(below.op == "call" and below.value in names for below in walk(node))


def operands(node: Node, op: str) -> tuple[Node, ...]:
    """What this operator joins; of any other node the node itself."""
    return node.args if node.op == op else (node,)


def neg(node: Node) -> Node:
    """Its opposite."""
    return Node("neg", (node,))


def unsigned(node: Node) -> Node:
    """It without a minus in front."""
    return node.args[0] if node.op == "neg" else node


def minus(a: Node, b: Node) -> Node:
    """Their difference."""
    return Node("add", (a, neg(b)))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack += top.args


def size(node: Node) -> int:
    """How many nodes."""
    return sum(1 for _ in walk(node))


def depth(node: Node) -> int:
    """How many levels; without recursion, since it guards against too much of it."""
    level, deepest = [node], 0
    while level:
        level = [arg for above in level for arg in above.args]
        deepest += 1
    return deepest


def has(node: Node, *ops: str) -> bool:
    """True if one of these operators occurs."""
    return any(below.op in ops for below in walk(node))


def takes_angle(node: Node) -> bool:
    """True if an angle is one of a function in it: the degrees of sin 30° and of e^{i 60°} are no
    unit behind it."""
    return any(
        below.op == "call" or (below.op == "pow" and below.args[0] == EULER) for below in walk(node)
    )


def replace_part(node: Node, old: Node, new: Node) -> Node:
    """The tree with one part, wherever it stands, in the place of another.

    Args:
        node: the tree.
        old, new: the part, and what takes its place.
    """
    if node == old:
        return new
    # A part that is replaced is not searched again, so `new` may hold `old`.
    return node.map(lambda part: replace_part(part, old, new))


def split_signs(node: Node) -> list[Node]:
    r"""What double signs stand for: one and two are free, more or \mp go together.

    Args:
        node: the tree.
    """
    doubles = [below.value for below in walk(node) if below.op == "pm"]
    count, free = len(doubles), doubles in (["+"], ["+", "+"])
    ways = itertools.product("+-", repeat=count) if free else ("+" * count, "-" * count)
    return [_with_signs(node, iter(way)) for way in ways]


def _with_signs(node: Node, signs: Iterator[str]) -> Node:
    node = node.map(lambda part: _with_signs(part, signs))
    if node.op != "pm":
        return node
    # the lower sign of \mp is a plus
    left, right = node.args
    right = right if next(signs) == node.value else neg(right)
    return right if left == num(0) else Node("add", (left, right))


@lru_cache(maxsize=4096)
def free_symbols(node: Node) -> frozenset[str]:
    """The variables that no sum, integral, limit or set-builder binds."""
    if node.op == "sym":
        return frozenset((node.value,))
    below = [free_symbols(arg) for arg in node.args]
    name = node.value[0] if node.op in ("diff", "lim") else node.value
    if node.op == "diff" or (node.op == "int" and len(below) == 1):
        below.append(frozenset((name,)))  # a derivative and an antiderivative depend on x
    elif node.op in BINDERS and below:
        below[0] = below[0] - {name}  # only the body is in its scope
    return frozenset().union(*below)
