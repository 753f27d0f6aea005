"""Equality of a call's value with the expected one, on plain values as the sandbox returns them.

What a comparison raises, for a signalling NaN say, is not caught here: whose fault it is, `reading`
decides.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlvr.errors import foreign_code
from rlvr.validate import require_number

__all__ = ["Equality", "JSON", "STRICT", "check_tolerances", "show_result"]

_SHOWN = 200
_PARTS = 1000
_LARGEST_KEY = 1 << 64  # `str` refuses very large integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """Python's `==`, with named leniencies.

    What `==` accepts is accepted: 1 == 1.0 == True, and a Counter equals its dict.  NaN equals
    nothing.

    Attributes:
        sequences: a list equals a tuple of the same items, at any depth, as in APPS: JSON has no
            tuples.
        iterators: a generator, a map or a view equals the list of its items.
        keys: an int as a dict's key equals its text: JSON has no other keys.
        single: x equals an expected [x]: some APPS rows wrap the value in a list.
        abs_tol, rel_tol: numbers, at any depth, may differ by `abs_tol`, or by `rel_tol` times the
            expected number.
        nan: NaN equals NaN.

    Raises:
        UsageError: a tolerance is no number of at least 0.
    """

    sequences: bool = False
    iterators: bool = False
    keys: bool = False
    single: bool = False
    abs_tol: float = 0.0
    rel_tol: float = 0.0
    nan: bool = False

    def __post_init__(self) -> None:
        check_tolerances(self)

    def holds(self, got: object, expected: object) -> bool:
        """True if the values are equal.

        Args:
            got: the program's value, untrusted.
            expected: the reference's value.
        """
        if self._same(got, expected):
            return True
        return (
            self.single
            and isinstance(expected, list)
            and len(expected) == 1
            and self._same(got, expected[0])
        )

    def _same(self, got: Any, expected: Any) -> bool:
        if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)):
            alike = self.sequences or isinstance(got, list) == isinstance(expected, list)
            return alike and len(got) == len(expected) and all(map(self._same, got, expected))
        if isinstance(expected, Mapping) and isinstance(got, Mapping):
            if not self._lenient:
                return bool(got == expected)
            values = {_key_as_text(key): value for key, value in got.items()} if self.keys else got
            return len(got) == len(expected) and all(
                key in values and self._same(values[key], value) for key, value in expected.items()
            )
        if _is_real(got) and _is_real(expected):
            return bool(got == expected) or self._near(got, expected)
        return bool(got == expected)

    @property
    def _lenient(self) -> bool:
        return self.sequences or self.keys or self.nan or self.abs_tol > 0 or self.rel_tol > 0

    def _near(self, got: int | float, expected: int | float) -> bool:
        try:
            off, size = abs(float(got) - float(expected)), abs(float(expected))
        except OverflowError:  # a whole number beyond all floats
            return False
        if math.isnan(off):  # one is NaN, or both are the same infinity, which was equal before
            return self.nan and got != got and expected != expected
        return 0 < off < math.inf and (off <= self.abs_tol or off <= self.rel_tol * size)


def check_tolerances(holder: object) -> None:
    """Check `abs_tol` and `rel_tol` of a frozen dataclass.

    Args:
        holder: a dataclass.

    Raises:
        UsageError: one is no number of at least 0.
    """
    for name in ("abs_tol", "rel_tol"):
        what = f"{type(holder).__name__}: {name}"
        object.__setattr__(holder, name, require_number(what, getattr(holder, name), 0))


STRICT: Final = Equality()
"""Python's `==`."""

JSON: Final = Equality(sequences=True, iterators=True, keys=True)
"""For expected values that were written as JSON."""


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _key_as_text(key: object) -> object:
    return str(key) if type(key) is int and abs(key) < _LARGEST_KEY else key


def _is_small(value: object) -> bool:
    """True if the value has at most a thousand parts: showing millions would take longer than
    judging them."""
    left, stack = _PARTS, [value]
    while stack and left >= 0:
        part = stack.pop()
        if isinstance(part, dict):
            left -= len(part)
            stack += [*part.keys(), *part.values()] if left >= 0 else []
        elif isinstance(part, list | tuple | set | frozenset | deque):
            left -= len(part)
            stack += part if left >= 0 else []
        elif isinstance(part, str | bytes | bytearray):
            left -= len(part) // 100
    return left >= 0


def show_result(value: object) -> str:
    """The value's `repr`, cut to 200 characters; of a value with very many parts its type and
    length.

    Args:
        value: any plain value.
    """
    if isinstance(value, str | bytes):
        value = value[: _SHOWN + 1]
    elif not _is_small(value):
        size = f" of {len(value)} items" if hasattr(value, "__len__") else ""
        return f"a {type(value).__name__}{size}"
    text = f"a {type(value).__name__} that cannot be shown"
    with foreign_code():  # of a program: an int of more than 4300 digits, a Counter of NaNs
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
