"""The work allowed for one comparison, counted in steps,
so that slow and fast machines give up at the same point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = [
    "Budget",
    "MOST_STEPS",
    "MOST_STEPS_OF_PAIR",
    "PairTooLarge",
    "charge",
    "left_of_pair",
    "one_pair",
    "spend_all_of_pair",
    "spend_of_pair",
]

MOST_STEPS = 32_000
"""Steps for one expression and another, of about 4 µs each: a node visited at a point or in a term
of a sum is one; what costs more counts for more."""

MOST_STEPS_OF_PAIR = 36_000
"""The same of all parts of a pair together, such as the items of two lists."""

# A list, since `charge` and `Budget.spend` write to it without a `global`.
_pair = [math.inf]  # what is left of it; a process compares one pair at a time


class PairTooLarge(Exception):
    """A pair has used all its steps.  No `TooLarge`,
    since a part that is left out must not make a pair equal."""


@contextmanager
def one_pair() -> Iterator[None]:
    """What is compared within shares one limit."""
    _pair[0] = MOST_STEPS_OF_PAIR
    try:
        yield
    finally:
        _pair[0] = math.inf


def left_of_pair() -> float:
    """The steps that its other parts may take."""
    return _pair[0]


def charge(steps: int) -> None:
    """Take steps from the pair alone.

    Args:
        steps: how many.
    """
    _pair[0] -= steps


def spend_of_pair(steps: int) -> None:
    """The same, for work that is still to be done.

    Args:
        steps: how many.

    Raises:
        PairTooLarge: there are not so many left.
    """
    charge(steps)
    if _pair[0] < 0:
        raise _too_large()


def spend_all_of_pair() -> NoReturn:
    """Take all that is left of the pair, for work that it did not suffice for.

    Raises:
        PairTooLarge: always.
    """
    charge(MOST_STEPS_OF_PAIR)
    raise _too_large()


def _too_large() -> PairTooLarge:
    return PairTooLarge(f"more than {MOST_STEPS_OF_PAIR} steps for all its parts")


class Budget:
    """What is left of it."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take so many steps.

        Raises:
            TooLarge: there are not so many left.
        """
        self.left -= steps
        _pair[0] -= steps  # no call: this is done at each node
        if self.left < 0:
            raise TooLarge(f"more than {MOST_STEPS} steps")
        if _pair[0] < 0:
            raise _too_large()
