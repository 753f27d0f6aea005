"""The work allowed for one comparison, counted in steps,
so that slow and fast machines give up at the same point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = [
    "Budget",
    "MOST_STEPS",
    "MOST_STEPS_OF_PAIR",
    "PairTooLarge",
    "charge",
    "left_of_pair",
    "one_pair",
]

MOST_STEPS = 40_000
"""Nodes visited in all, at every point and in every term of a sum; what costs more counts for
more."""


MOST_STEPS_OF_PAIR = 50_000
"""The same of all parts of a pair together, such as the items of two lists:
about a quarter of a CPU second."""

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
    """Take steps from the pair alone, for work that has a limit of its own.

    Args:
        steps: how many.
    """
    _pair[0] -= steps


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
        _pair[0] -= steps
        if self.left < 0:
            raise TooLarge(f"more than {MOST_STEPS} steps")
        if _pair[0] < 0:
            raise PairTooLarge(f"more than {MOST_STEPS_OF_PAIR} steps for all its parts")
