"""Plain values as text, between processes that do not trust each other.  Both ends of every
crossing use this codec.

    value ── writing.write ──▶ text ══▶ reading.read ──▶ value

The text is JSON.  None, bool, int, float, str and list stand for themselves; any other value is an
object with one key, its tag: {"tuple": [1, 2]}, {"dict": [k, v, k, v]}, {"float": "nan"},
{"opaque": "Stack"}.  Here is what both ends know: the bounds, the errors, and the two kinds of
object that are no plain values.
"""

from __future__ import annotations

import builtins
import re
from typing import Final

__all__ = [
    "BITS",
    "BYTES",
    "BadValue",
    "DEPTH",
    "DIGITS",
    "DIMENSIONS",
    "FACTORIES",
    "FIELDS",
    "FRACTION_BITS",
    "NAME",
    "NODES",
    "New",
    "NotAValue",
    "Opaque",
    "TYPES",
]

DEPTH: Final = 100  # containers within containers: comparing and showing them recurses
NODES: Final = 2_000_000  # values within one value: about 250 MB at worst
BYTES: Final = 16 << 20  # of one text: reading the worst of them takes a few seconds
BITS: Final = 1 << 22  # of an int: 20,000! has 2^18
FRACTION_BITS: Final = 1 << 15  # reducing a fraction takes time in the square of its bits
DIGITS: Final = 20_000  # of a Decimal
DIMENSIONS: Final = 8  # of an array
FIELDS: Final = 64  # of a namedtuple
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
"""A field of a namedtuple, or its name."""

FACTORIES: Final = {
    k.__name__: k
    for k in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
}
"""What a defaultdict may make."""

TYPES: Final = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and not name.startswith("_") and kind.__name__ == name
    # Names that hold another class, such as EnvironmentError for OSError, are left out.
}
"""Builtin classes, which are the same everywhere."""

# our own copy: the program may change `builtins`
globals().update(__builtins__=dict(vars(builtins)))


class BadValue(ValueError):
    """A text that `write` never makes."""


class NotAValue(ValueError):
    """A value that cannot be sent or read: it is cyclic, too deep or too large."""


class Opaque:
    """Stands for an object that is not a value.  It equals nothing but itself.

    Args:
        type_name: of the object.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"


class New:
    """An object that the program is to make, as an argument: its class is called, and
    then attributes are set.

    Args:
        name: the class, a global of the program.
        args, kwargs: what it is called with.
    """

    __slots__ = ("args", "attributes", "kwargs", "name")

    def __init__(self, name: str, args: list[object], kwargs: dict[str, object]) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs
        self.attributes: dict[str, object] = {}

    def __repr__(self) -> str:
        arguments = [
            *map(repr, self.args),
            *(f"{name}={value!r}" for name, value in self.kwargs.items()),
        ]
        return f"{self.name}({', '.join(arguments)})"
