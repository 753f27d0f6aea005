"""What a number given by the user has to be."""

from __future__ import annotations

import math
from numbers import Integral, Real

from rlvr.errors import UsageError

__all__ = ["require_number", "require_whole"]


def require_whole(name: str, value: object, low: int) -> None:
    """Raises a `UsageError` unless this is a whole number of at least `low`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise UsageError(f"{name} is {value!r}; it must be a whole number of at least {low}")


def require_number(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Raises a `UsageError` unless this is a finite number in [low, high]."""
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) <= high or value == math.inf:
        limits = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise UsageError(f"{name} is {value!r}; it must be a number {limits}")
