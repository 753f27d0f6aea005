"""The work allowed for one comparison, counted in steps, so that slow and fast machines give up at the same point."""

from __future__ import annotations

from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = ["Budget", "MOST_STEPS"]

MOST_STEPS = 40_000
"""Nodes visited in all, at every point and in every term of a sum; what costs more counts for more."""


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
        if self.left < 0:
            raise TooLarge(f"more than {MOST_STEPS} steps")
