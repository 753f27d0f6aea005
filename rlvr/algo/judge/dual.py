"""Forward-mode derivatives in float64, for the loops of the judge; numpy alone.

A `Dual` is a number of each of a row's T trained tokens with its slope in that token's log-probability, or one number
of the row with its slopes in all of them: `value` [T] or [], `slope` [T].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dual", "Floats", "choose", "exp", "largest", "sigmoid", "softplus"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """A number that knows its derivative.

    Attributes:
        value: of each token, or of the row.
        slope: in the token's log-probability, or of the row in each of them.
    """

    value: Any
    slope: Floats

    __array_priority__ = 1000  # so that numpy leaves `array * dual` to us

    def __add__(self, other: Any) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __sub__(self, other: Any) -> Dual:
        return self + -other

    def __rsub__(self, other: Any) -> Dual:
        return -self + other

    def __mul__(self, other: Any) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value * value, self.slope * value + self.value * slope)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, number: float) -> Dual:
        return self * (1 / number)

    def sum(self) -> Dual:
        """The row's sum over its tokens."""
        return Dual(np.sum(self.value), self.slope)

    def clip(self, low: Any, high: Any) -> Dual:
        """Within bounds; the slope is 0 beyond them.

        Args:
            low, high: the bounds.
        """
        inside = (self.value >= low) & (self.value <= high)
        return Dual(np.clip(self.value, low, high), self.slope * inside)


def _parts(number: Any) -> tuple[Any, Any]:
    return (number.value, number.slope) if isinstance(number, Dual) else (number, 0.0)


def exp(x: Dual) -> Dual:
    """e^x.

    Args:
        x: any.
    """
    value = np.exp(x.value)
    return Dual(value, value * x.slope)


def sigmoid(x: Dual) -> Dual:
    """1 / (1 + e^-x).

    Args:
        x: any.
    """
    value = 1 / (1 + np.exp(-x.value))
    return Dual(value, value * (1 - value) * x.slope)


def softplus(x: Dual) -> Dual:
    """log(1 + e^x), which is -log σ(-x).

    Args:
        x: any.
    """
    return Dual(np.logaddexp(0.0, x.value), x.slope / (1 + np.exp(-x.value)))


def choose(here: Any, yes: Dual, no: Dual | float) -> Dual:
    """One of two numbers, by a condition.

    Args:
        here: the condition, of each token or of the row.
        yes, no: the numbers.
    """
    value, slope = _parts(no)
    return Dual(np.where(here, yes.value, value), np.where(here, yes.slope, slope))


def largest(a: Dual, b: Dual) -> Dual:
    """The greater of two numbers.

    Args:
        a, b: any.
    """
    return choose(a.value >= b.value, a, b)
