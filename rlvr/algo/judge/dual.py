"""Forward-mode derivatives in float64 with a running bound of rounding, for the loops
of the judge; numpy alone.

A `Dual` is a number of each of a row's T trained tokens with its slope in that token's
log-probability, or one number of the row with its slopes in all of them: `value` [T] or [], `slope`
[T].  `size` and `steep` are sums of what value and slope are sums of, without signs: whoever
computes them in floating point is off by a few units in their last place (running error analysis,
Wilkinson 1963), however much cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dual", "Float64s", "choose", "dual_variable", "exp", "largest", "sigmoid", "softplus"]

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """A number that knows its derivative.

    Attributes:
        value: of each token, or of the row.
        slope: in the token's log-probability, or of the row in each of them.
        size, steep: bounds of both, without cancellation.
    """

    value: Any
    slope: Any
    size: Any
    steep: Any

    __array_priority__ = 1000  # so that numpy leaves `array * dual` to us

    def __add__(self, other: object) -> Dual:
        b = _dual(other)
        return Dual(
            self.value + b.value, self.slope + b.slope, self.size + b.size, self.steep + b.steep
        )

    def __neg__(self) -> Dual:
        # A sign does not change how far rounding can be off.
        return Dual(-self.value, -self.slope, self.size, self.steep)

    def __sub__(self, other: Any) -> Dual:
        return self + -other

    def __rsub__(self, other: object) -> Dual:
        return -self + other

    def __mul__(self, other: object) -> Dual:
        a, b = self, _dual(other)
        return Dual(
            a.value * b.value,
            a.slope * b.value + a.value * b.slope,
            a.size * b.size,
            a.steep * b.size + a.size * b.steep,
        )

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, number: float | int) -> Dual:
        return self * (1 / number)

    def sum(self) -> Dual:
        """The row's sum over its tokens."""
        # The slope stays [T]: of a sum, the derivative in each token is that token's own.
        return Dual(np.sum(self.value), self.slope, np.sum(self.size), self.steep)

    def clip(self, low: Any, high: Any) -> Dual:
        """Within bounds; the slope is 0 beyond them.

        Args:
            low, high: the bounds.
        """
        inside = (self.value >= low) & (self.value <= high)
        value = np.clip(self.value, low, high)
        return Dual(value, self.slope * inside, self.size, self.steep * inside)

    def through(self, value: Any, derivative: Any) -> Dual:
        """A function of it.

        Args:
            value: the function's.
            derivative: the function's, by the chain rule.
        """
        rate = np.abs(derivative)
        # The argument's own error, as the function passes it on,
        # and the rounding of the function's value.
        return Dual(
            value, derivative * self.slope, np.abs(value) + rate * self.size, rate * self.steep
        )


def dual_variable(values: object, slope: Any = 1.0) -> Dual:
    """Numbers to differentiate by.

    Args:
        values: their values.
        slope: their slopes.
    """
    values = np.asarray(values, float)
    # + 0 * values: a slope of one number gets the values' shape.
    return Dual(values, slope + 0 * values, np.abs(values), np.abs(slope) + 0 * values)


def _dual(number: Any) -> Dual:
    return number if isinstance(number, Dual) else Dual(number, 0.0, np.abs(number), 0.0)


def exp(x: Dual) -> Dual:
    """e^x.

    Args:
        x: any.
    """
    value = np.exp(x.value)
    return x.through(value, value)


def sigmoid(x: Dual) -> Dual:
    """1 / (1 + e^-x).

    Args:
        x: any.
    """
    value = 1 / (1 + np.exp(-x.value))
    return x.through(value, value * (1 - value))


def softplus(x: Dual) -> Dual:
    """log(1 + e^x), which is -log σ(-x).

    Args:
        x: any.
    """
    # log(1 + e^x) would overflow from about x = 710.
    return x.through(np.logaddexp(0.0, x.value), 1 / (1 + np.exp(-x.value)))


def choose(here: Any, yes: Dual, no: object) -> Dual:
    """One of two numbers, by a condition.

    Args:
        here: the condition, of each token or of the row.
        yes, no: the numbers.
    """
    b = _dual(no)
    pairs = (yes.value, b.value), (yes.slope, b.slope), (yes.size, b.size), (yes.steep, b.steep)
    return Dual(*(np.where(here, *pair) for pair in pairs))


def largest(a: Dual, b: Dual) -> Dual:
    """The greater of two numbers.

    Args:
        a, b: any.
    """
    return choose(a.value >= b.value, a, b)
