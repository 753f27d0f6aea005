"""Trees to values: what crosses between a program, its tests and the host, in place of objects.

`encoding` makes the trees, beside untrusted code; here they become values again, where results are judged.  Nothing is
trusted: every tree gives values of exact builtin types, within bounds on depth, size and hash collisions, or raises
`BadValue`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, islice
from math import prod
from typing import Any

from rlvr.sandbox.guest.encoding import BITS, DIGITS, FACTORIES, FIELDS, FRACTION_BITS, NAME
from rlvr.sandbox.guest.trees import DEPTH, NODES, BadValue, Opaque

__all__ = ["decode"]

_PLAIN = frozenset({int, str, bool, type(None)})
_ALIKE = 64  # keys with one hash in one dict or set: more make it quadratic
_ARRAY_BYTES = 64 << 20


def decode(tree: Any, other: Callable[[str, Any], Any] | None = None, *, arrays: bool = True) -> Any:
    """The value of a tree.  Lists of the tree may become part of the value, so decode a tree only once.

    Args:
        tree: as `loads` returned it.
        other: called with tags that are not defined here, and with what they tag; returns the value.
        arrays: numpy arrays become arrays where numpy is loaded; else nested lists.

    Raises:
        BadValue: the tree is malformed or beyond a bound.
    """
    try:
        return _Decoder(other, arrays).value(tree, 0)
    except BadValue:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError) as error:
        raise BadValue(f"malformed: {type(error).__name__}: {str(error)[:100]}") from None


class _Decoder:
    def __init__(self, other: Callable[[str, Any], Any] | None, arrays: bool) -> None:
        self.other = other
        self.arrays = arrays
        self.left = NODES
        self.named_types: dict[Any, Any] = {}

    def value(self, tree: Any, depth: int) -> Any:
        kind = type(tree)
        if kind in _PLAIN or kind is float:
            return tree
        if kind is list:
            return self.items(tree, depth)
        if kind is not dict or len(tree) != 1:
            raise BadValue("malformed: an object without one tag")
        [(tag, payload)] = tree.items()
        decoder = _DECODERS.get(tag)
        if decoder is not None:
            return decoder(self, payload, depth)
        if self.other is None:
            raise BadValue("malformed: an unknown tag")
        self.spend(1)
        return self.other(tag, payload)

    def spend(self, nodes: int) -> None:
        self.left -= nodes
        if self.left < 0:
            raise BadValue("too large")

    def items(self, trees: Any, depth: int) -> list[Any]:
        if type(trees) is not list:
            raise BadValue("malformed: no list")
        self.spend(len(trees) + 1)
        if depth >= DEPTH:
            raise BadValue("too deep")
        if set(map(type, trees)) <= _PLAIN:
            return trees
        depth += 1
        return [self.value(tree, depth) for tree in trees]

    def pairs(self, trees: Any, depth: int) -> list[tuple[Any, Any]]:
        items = self.items(trees, depth)
        if len(items) % 2:
            raise BadValue("malformed: a key without a value")
        self.check_keys(items[::2])
        return list(zip(items[::2], items[1::2], strict=True))

    def keys(self, trees: Any, depth: int) -> list[Any]:
        return self.check_keys(self.items(trees, depth))

    def check_keys(self, keys: list[Any]) -> list[Any]:
        """The keys, if they are hashable, distinct, and few of them have the same hash."""
        if len(keys) > _ALIKE and max(Counter(map(hash, keys)).values()) > _ALIKE:
            raise BadValue("too many keys with one hash")
        if len(set(keys)) != len(keys):
            raise BadValue("malformed: a key twice")
        return keys

    def to_int(self, payload: Any, depth: int) -> Any:
        if type(payload) is not str or not _HEX.match(payload) or len(payload) > BITS // 4 + 3:
            raise BadValue("malformed: no int")
        return int(payload, 16)

    def to_float(self, payload: Any, depth: int) -> Any:
        return _FLOATS[payload]

    def to_str(self, payload: Any, depth: int) -> Any:
        return bytes.fromhex(payload).decode("utf-8", "surrogatepass")

    def to_complex(self, payload: Any, depth: int) -> Any:
        real, imag = self.items(payload, depth)
        return complex(_exact(float, real), _exact(float, imag))

    def to_range(self, payload: Any, depth: int) -> Any:
        return range(*[_exact(int, n) for n in _sized(3, self.items(payload, depth))])

    def to_decimal(self, payload: Any, depth: int) -> Any:
        if type(payload) is not str or len(payload) > DIGITS or not _DECIMAL.match(payload):
            raise BadValue("malformed: no Decimal")
        return Decimal(payload)

    def to_fraction(self, payload: Any, depth: int) -> Any:
        parts = [_exact(int, n) for n in _sized(2, self.items(payload, depth))]
        bits = max(map(int.bit_length, parts))
        if bits > FRACTION_BITS:
            raise BadValue("too long a fraction")
        self.spend(bits * bits // 100_000)  # what reducing it takes
        return Fraction(*parts)

    def to_timedelta(self, payload: Any, depth: int) -> Any:
        return timedelta(*[_exact(int, n) for n in _sized(3, payload)])

    def to_date(self, payload: Any, depth: int) -> Any:
        return date(*[_exact(int, n) for n in _sized(3, payload)])

    def to_time(self, payload: Any, depth: int) -> Any:
        hour, minute, second, microsecond, fold, zone = _sized(6, payload)
        return time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))

    def to_datetime(self, payload: Any, depth: int) -> Any:
        *day, hour, minute, second, microsecond, fold, zone = _sized(9, payload)
        clock = time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))
        return datetime.combine(self.to_date(day, depth), clock)

    def zone(self, payload: Any) -> Any:
        return None if payload is None else timezone(self.to_timedelta(payload, 0))

    def to_counter(self, payload: Any, depth: int) -> Any:
        return _filled(Counter(), self.pairs(payload, depth))

    def to_ordered(self, payload: Any, depth: int) -> Any:
        return OrderedDict(self.pairs(payload, depth))

    def to_defaultdict(self, payload: Any, depth: int) -> Any:
        factory = None if payload[0] is None else FACTORIES[payload[0]]
        return _filled(defaultdict(factory), self.pairs(payload[1:], depth))

    def to_deque(self, payload: Any, depth: int) -> Any:
        maxlen, items = payload[0], self.items(payload[1:], depth)
        if maxlen is not None and _exact(int, maxlen) < len(items):
            raise BadValue("malformed: a deque over its maxlen")
        return deque(items, maxlen)

    def to_named(self, payload: Any, depth: int) -> Any:
        name, fields = payload[:2]
        key = (_exact(str, name), tuple(_sized(len(payload) - 2, fields)))
        if key not in self.named_types:
            if len(key[1]) > FIELDS or not all(type(n) is str and NAME.match(n) for n in (name, *fields)):
                raise BadValue("malformed: no namedtuple")
            self.spend(10_000)  # making a class takes a while
            self.named_types[key] = namedtuple(*key)  # refuses keywords and names given twice
        return self.named_types[key](*self.items(payload[2:], depth))

    def to_array(self, payload: Any, depth: int) -> Any:
        dtype, shape, flat = _sized(3, payload)
        flat = self.items(flat, depth)
        sizes = list(accumulate([_exact(int, n) for n in shape], int.__mul__, initial=1))
        if not _DTYPE.match(dtype) or min(sizes) < 0 or max(sizes) > NODES or sizes[-1] != len(flat) or len(shape) > 32:
            raise BadValue("malformed: no array")
        self.spend(max(sizes))
        numpy = sys.modules.get("numpy") if self.arrays else None
        if numpy is None:
            return _nested(flat, shape)
        if dtype in "US" and len(flat) * max(map(len, flat), default=0) > _ARRAY_BYTES // 4:
            raise BadValue("too large an array")
        if dtype != "O":
            return numpy.array(flat, dtype=dtype).reshape(shape)
        array = numpy.empty(len(flat), dtype=object)
        for i, item in enumerate(flat):  # one assignment of all would take lists among the items for more dimensions
            array[i] = item
        return array.reshape(shape)

    def to_opaque(self, payload: Any, depth: int) -> Any:
        return Opaque(_exact(str, payload)[:100])

    def to_ellipsis(self, payload: Any, depth: int) -> Any:
        return ...


def _exact(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise BadValue(f"malformed: no {kind.__name__}")
    return value


def _sized(n: int, items: Any) -> Any:
    if type(items) is not list or len(items) != n:
        raise BadValue(f"malformed: no list of {n}")
    return items


def _in_order(kind: Any, items: list[Any]) -> Any:
    """A set that iterates in the order of `items`, if one of two ways of making it does.

    {12, 13, 14, 15, 16} gives 16 first if Python made it from a constant, and last if item by item.
    """
    made = kind(items)
    if list(made) == items:
        return made
    again = kind(set(items))
    return again if list(again) == items else made


def _filled(empty: Any, pairs: list[tuple[Any, Any]]) -> Any:
    dict.update(empty, pairs)
    return empty


def _nested(flat: list[Any], shape: list[int]) -> Any:
    if not shape:
        return flat[0]
    for size, count in list(zip(shape, accumulate(shape, int.__mul__), strict=True))[:0:-1]:
        rows = iter(flat)
        flat = [list(islice(rows, size)) for _ in range(count // size if size else prod(shape[:-1]))]
    return flat


_HEX = re.compile(r"-?0x[0-9a-f]+\Z")
_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,20})?|Infinity|NaN[0-9]*)\Z")
_DTYPE = re.compile(r"(?:[<>|=][biufc][0-9]{1,2}|[USO])\Z")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

_DECODERS: dict[str, Callable[[_Decoder, Any, int], Any]] = {
    **{
        name: getattr(_Decoder, "to_" + name)
        for name in """array complex counter date datetime decimal defaultdict deque ellipsis float fraction int named
        opaque ordered range str time timedelta""".split()
    },
    "tuple": lambda self, payload, depth: tuple(self.items(payload, depth)),
    "set": lambda self, payload, depth: _in_order(set, self.keys(payload, depth)),
    "frozenset": lambda self, payload, depth: _in_order(frozenset, self.keys(payload, depth)),
    "dict": lambda self, payload, depth: dict(self.pairs(payload, depth)),
    "bytes": lambda self, payload, depth: bytes.fromhex(payload),
    "bytearray": lambda self, payload, depth: bytearray.fromhex(payload),
}
