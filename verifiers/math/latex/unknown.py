"""Functions of which nothing is known: for every seed another one,
so that what agrees for all of them is an identity.

Each is a quotient of polynomials with coefficients out of a hash, which has no real pole, and is
exact for fractions. What has no value, such as the event in P(X > 2), stands for a number out of a
hash of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache, reduce

from flint import arb, fmpq

from rlvr.verifiers.math.latex.tree import Node
from rlvr.verifiers.math.latex.values import Number, divide, is_exact

__all__ = ["is_notation", "stand_in", "unknown"]

_NOTATION = frozenset("rel list set builder numbers union intersection minus congruent".split())
# Five above the line of the quotient, two below.
_COEFFICIENTS = 7
_DIGITS = 30
_MOST_BITS = 1_000


def unknown(seed: Number, values: Sequence[Number]) -> Number:
    """The value of one such function of one or more numbers.

    Args:
        seed: the number that says which.
        values: its arguments, in their order.
    """
    # Balls as text: a seed that is not exact has the same first digits at every precision.
    name = str(seed) if is_exact(seed) else seed.str(_DIGITS, radius=False)
    first, *later = values
    start = _quotient(_coefficients(name), first)
    # Weighed, so that f(x, y) is not f(y, x).
    return reduce(
        lambda total, x: _quotient(_coefficients(name + "+"), total + 3 * x), later, start
    )


def is_notation(node: Node) -> bool:
    """What stands in the brackets has no value."""
    return node.op in _NOTATION


def stand_in(node: Node) -> Number:
    """A number for what has no value, the same wherever it occurs."""
    return _hash_text(repr(_sort_arguments(node)))[0]


def _sort_arguments(node: Node) -> Node:
    node = node.map(_sort_arguments)
    if node.op not in ("union", "intersection", "set", "add", "mul"):
        return node  # A ∪ B and B ∪ A are one event; A \setminus B has an order
    return Node(node.op, tuple(sorted(node.args, key=repr)), node.value)


def _quotient(c: tuple[Number, ...], x: Number) -> Number:
    if is_exact(x) and x.height_bits() > _MOST_BITS:  # f(f(f(…))) has four times as many each
        x = arb(x)
    square = x * x
    # x⁴ + |c₅|x² + |c₆| has no real zero, as no coefficient is 0 (they are odd numbers over 4096).
    below = square * square + abs(c[5]) * square + abs(c[6])
    above = c[0] + c[1] * x + c[2] * square + c[3] * square * x + c[4] * square * square
    return divide(above, below)


@lru_cache(maxsize=1024)
def _coefficients(name: str) -> tuple[Number, ...]:
    return _hash_text(name)


def _hash_text(text: str) -> tuple[Number, ...]:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    parts = [int.from_bytes(digest[2 * i : 2 * i + 2]) for i in range(_COEFFICIENTS)]
    return tuple(fmpq(2 * part + 1 - (1 << 16), 1 << 12) for part in parts)
