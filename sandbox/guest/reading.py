"""Text to values (`values` says what the text is).

`read` trusts nothing: every text gives values of exact builtin types, or one of two errors.  The parser of JSON makes
the values as it goes, so that lists cost what they cost in C.  A `Budget` bounds bytes, nodes and time in proportion to
the text: no text is cheap to write and dear to read.
"""

from __future__ import annotations

import builtins
import gc
import json
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice
from math import gcd, prod
from time import thread_time
from typing import Any

from rlvr.sandbox.guest.values import (
    BITS,
    BYTES,
    DEPTH,
    DIGITS,
    DIMENSIONS,
    FACTORIES,
    FIELDS,
    FRACTION_BITS,
    NAME,
    NODES,
    TYPES,
    BadValue,
    NotAValue,
    Opaque,
)

__all__ = ["Budget", "read"]

_FREE_NODES = 10_000  # not in the text: the rows of an empty array
_EXPONENT, _EXPONENT_NODES = 5, 64  # a Decimal of so many characters after its E takes long to hash
_NAMED = 8  # classes of namedtuples: making one takes a quarter of a millisecond
_PAUSED = 1 << 14  # bytes of a text that is read without the garbage collector
_KEYS_S = 5e-8  # for keys, by byte of text, whatever they are
_FREE_S = 0.001
_HASHES, _INSERTS = (
    3,
    20,
)  # beside that, times what hashing these keys and a table of other keys take: measured so slow
_FEW_KEYS = 64  # collide as they may, they take microseconds
_LONGEST_NUMBER = 100  # digits outside of strings; longer ints are sent in hex

globals().update(
    __builtins__=dict(vars(builtins))
)  # our own copy: the program may change `builtins`


class Budget:
    """What reading the texts of one sender may cost: so many bytes, and time and memory in proportion to them.

    Args:
        bytes: of all texts together.
    """

    def __init__(self, bytes: int = 2 * BYTES) -> None:
        self._left = bytes
        self._bytes = 0
        self._nodes = _FREE_NODES
        self._keys_s = 0.0
        self.named: dict[Any, Any] = {}

    def buy(self, size: int) -> None:
        """Take in a text.

        Args:
            size: its length in bytes.

        Raises:
            NotAValue: it is too long.
        """
        if size > min(BYTES, self._left):
            raise NotAValue("not a value: too large to read")
        self._left -= size
        self._bytes += size
        self._nodes += size

    def spend(self, nodes: int) -> None:
        """Pay for values that are not in the text one by one, such as the rows of an empty array.

        Args:
            nodes: how many.

        Raises:
            NotAValue: they are too many for a text of this length.
        """
        self._nodes -= nodes
        if self._nodes < 0:
            raise NotAValue("not a value: too large to read")

    def fill(self, table: Any, keys: list[Any], items: Iterable[Any]) -> Any:
        """Put items into an empty set or dict, and stop if their keys are chosen to collide.

        A hash table takes quadratic time for such keys, and no test of the keys finds all of them.  So this looks at
        the clock of the thread, ever more often as the table grows: a single key takes time in its size at worst.

        Args:
            table: an empty set or dict.
            keys: all the keys.
            items: the keys, or pairs of key and value for a dict.

        Returns:
            The table.

        Raises:
            BadValue: the keys collide, or one is there twice.
        """
        update = _updater(table)
        allowed = due = _FREE_S + _KEYS_S * self._bytes - self._keys_s
        granted = 0.0  # a share of the time
        began, rest = thread_time(), iter(items)
        while part := list(islice(rest, max(16, (1 << 13) // (len(table) + 128)))):
            update(part)
            took = thread_time() - began
            if took > due:
                # Slow keys, a slow machine, or collisions?  The same keys' hashes and a table of as many other keys
                # say so: neither can be slowed by the sender.
                again = thread_time()
                for _ in map(hash, islice(keys, len(table))):
                    pass
                hashed = thread_time()
                set(range(len(table)))
                made = thread_time()
                granted = (_HASHES * (hashed - again) + _INSERTS * (made - hashed)) / took
                if took * (1 - granted) > allowed:
                    raise BadValue("keys whose hashes collide")
                began, due = began + (thread_time() - again), 2 * took
        self._keys_s += max(0.0, (thread_time() - began) * (1 - granted))
        if len(table) != len(keys):
            raise BadValue("malformed: a key twice")
        return table


def _updater(table: Any) -> Callable[[Iterable[Any]], None]:
    """What puts items into it: that of a Counter would add."""
    return partial(dict.update, table) if type(table) is Counter else table.update


def _no_constant(name: str) -> Any:
    raise BadValue(f"{name} is not JSON")


_STRINGS = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.S
)  # an open one runs to the end: linear on any bytes
_DIGITS = bytes(ord("0") if chr(i).isdigit() and i < 128 else ord(" ") for i in range(256))
_LONG = b"0" * (_LONGEST_NUMBER + 1)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_RUNS = re.compile(rb"\[+|\]+")
_JSON_DEPTH = 3 * DEPTH

_Json = json.JSONDecoder


def read(
    data: bytes,
    budget: Budget | None = None,
    *,
    other: Callable[[str, Any], Any] | None = None,
    arrays: bool = True,
) -> Any:
    """The value that `write` wrote.  Takes time linear in the length of `data`, whatever it contains.

    Args:
        data: one line.
        budget: pays for it; None for a new one.
        other: called with tags that are not defined here, and with what they tag; returns the value.
        arrays: numpy arrays become arrays where numpy is loaded; else nested lists.

    Raises:
        BadValue: it is no such line, or has keys that are chosen to collide.
        NotAValue: it is too large.
    """
    budget = budget or Budget()
    budget.buy(len(data))
    if (
        data.count(b"[") + data.count(b"{") > DEPTH
        or data.count(b",") > NODES
        or _LONG in data.translate(_DIGITS)
    ):
        _examine(_STRINGS.sub(b'""', data))
    scan = _Json(
        object_pairs_hook=_Decoder(budget, other, arrays).tagged, parse_constant=_no_constant
    )
    # Nothing in the text is garbage, and looking for some would take as long as all the rest.
    paused = other is None and len(data) > _PAUSED and gc.isenabled()
    if paused:
        gc.disable()
    try:
        text = data.decode("ascii")
        value, end = scan.scan_once(text, 0)  # type: ignore[attr-defined]
    except (BadValue, NotAValue):
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        RecursionError,
        AttributeError,
        StopIteration,
    ) as error:
        raise BadValue(f"malformed: {type(error).__name__}: {str(error)[:100]}") from None
    finally:
        if paused:
            gc.enable()
    if end != len(text):
        raise BadValue("malformed: more than one value")
    return value


def _examine(bare: bytes) -> None:
    """Refuse what would be slow to parse, or would overflow the stack where the host has a high recursion limit.

    Args:
        bare: a text without its strings.
    """
    brackets = bare.translate(_SQUARE, _NOT_BRACKETS)
    if bare.count(b",") > NODES or len(brackets) > 2 * NODES:
        raise NotAValue("not a value: too large to read")
    for _ in range(2):
        brackets = brackets.replace(
            b"[]", b""
        )  # the innermost two levels: what is wide is seldom deep
    level = 0
    for run in _RUNS.findall(brackets):
        level += len(run) if run[0] == ord("[") else -len(run)
        if level > _JSON_DEPTH:
            raise BadValue("malformed: too deep")
    if _LONG in bare.translate(
        _DIGITS
    ):  # int() of many digits raises, or where that is switched off, is slow
        raise BadValue("malformed: a number of more than 100 digits")


_ARRAY_BYTES = 64 << 20


class _Decoder:
    """Makes the values of tagged objects, from the inside out."""

    def __init__(
        self, budget: Budget, other: Callable[[str, Any], Any] | None, arrays: bool
    ) -> None:
        self.budget, self.other, self.arrays = budget, other, arrays

    def tagged(self, pairs: list[tuple[str, Any]]) -> Any:
        """The value of a JSON object."""
        if len(pairs) != 1:
            raise BadValue("malformed: an object without one tag")
        tag, payload = pairs[0]
        if tag in _DECODERS:
            return _DECODERS[tag](self, payload)
        if self.other is None:
            raise BadValue("malformed: an unknown tag")
        return self.other(tag, payload)

    def table(self, empty: Any, items: Any) -> Any:
        """A dict of these keys and values in turn, put into an empty one of some class."""
        if type(items) is not list or len(items) % 2:
            raise BadValue("malformed: no list of keys and values")
        each = iter(items)
        if len(items) > 2 * _FEW_KEYS:
            return self.budget.fill(empty, items[::2], zip(each, each, strict=True))
        _updater(empty)(zip(each, each))  # noqa: B905  it has as many keys as values
        if 2 * len(empty) != len(items):
            raise BadValue("malformed: a key twice")
        return empty

    def to_int(self, payload: Any) -> Any:
        if type(payload) is not str or not _HEX.match(payload) or len(payload) > BITS // 4 + 3:
            raise BadValue("malformed: no int")
        return int(payload, 16)

    def to_float(self, payload: Any) -> Any:
        return _FLOATS[payload]

    def to_str(self, payload: Any) -> Any:
        return bytes.fromhex(payload).decode("utf-8", "surrogatepass")

    def to_complex(self, payload: Any) -> Any:
        real, imag = _sized(2, payload)
        return complex(_exact(float, real), _exact(float, imag))

    def to_range(self, payload: Any) -> Any:
        start, stop, step = _ints(3, payload)
        return range(start, stop, step)

    def to_decimal(self, payload: Any) -> Any:
        if type(payload) is not str or len(payload) > DIGITS or not _DECIMAL.match(payload):
            raise BadValue("malformed: no Decimal")
        if len(payload.rpartition("E")[2]) > _EXPONENT and "E" in payload:
            self.budget.spend(_EXPONENT_NODES)
        return Decimal(payload)

    def to_fraction(self, payload: Any) -> Any:
        above, below = _ints(2, payload)
        if (
            below < 1
            or gcd(above, below) != 1
            or max(above.bit_length(), below.bit_length()) > FRACTION_BITS
        ):
            raise BadValue("malformed: no Fraction")
        made: Any = _new(Fraction)  # in half the time that it takes to call the class
        made._numerator, made._denominator = above, below
        return made

    def to_timedelta(self, payload: Any) -> Any:
        days, seconds, microseconds = _ints(3, payload)
        return timedelta(days, seconds, microseconds)

    def to_date(self, payload: Any) -> Any:
        year, month, day = _ints(3, payload)
        return date(year, month, day)

    def to_time(self, payload: Any) -> Any:
        hour, minute, second, microsecond, fold, zone = _sized(6, payload)
        return time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))

    def to_datetime(self, payload: Any) -> Any:
        *day, hour, minute, second, microsecond, fold, zone = _sized(9, payload)
        clock = time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))
        return datetime.combine(self.to_date(day), clock)

    def zone(self, payload: Any) -> Any:
        return None if payload is None else timezone(self.to_timedelta(payload))

    def to_counter(self, payload: Any) -> Any:
        return self.table(_COUNTER(Counter), payload)  # without its own __init__, which adds

    def to_dict(self, payload: Any) -> Any:
        return self.table({}, payload)

    def to_ordered(self, payload: Any) -> Any:
        return self.table(OrderedDict(), payload)

    def to_defaultdict(self, payload: Any) -> Any:
        payload = _exact(list, payload)
        factory = None if payload[0] is None else FACTORIES[payload[0]]
        return self.table(defaultdict(factory), payload[1:])

    def to_set(self, payload: Any) -> Any:
        """A set that iterates in the order of the payload, if one of two ways of making it does.

        {12, 13, 14, 15, 16} gives 16 first if Python made it from a constant, and last if item by item.
        """
        if type(payload) is not list:
            raise BadValue("malformed: no list")
        if len(payload) > _FEW_KEYS:
            made = self.budget.fill(set(), payload, payload)
        else:
            made = set(payload)
            if len(made) != len(payload):
                raise BadValue("malformed: a key twice")
        if len(made) > 1 and list(made) != payload:
            again = set(made)
            if list(again) == payload:
                return again
        return made

    def to_deque(self, payload: Any) -> Any:
        maxlen, *items = _exact(list, payload)
        if maxlen is not None and _exact(int, maxlen) < len(items):
            raise BadValue("malformed: a deque over its maxlen")
        return deque(items, maxlen)

    def to_named(self, payload: Any) -> Any:
        name, fields, *items = _exact(list, payload)
        key = (name, *_sized(len(items), fields))
        types = self.budget.named
        if key not in types:
            if len(key) > 1 + FIELDS or not all(type(n) is str and NAME.match(n) for n in key):
                raise BadValue("malformed: no namedtuple")
            if len(types) == _NAMED:
                raise NotAValue(f"not a value: more than {_NAMED} classes of namedtuples")
            types[key] = namedtuple(name, fields)  # refuses keywords and names given twice
        return _tuple(types[key], items)

    def to_array(self, payload: Any) -> Any:
        dtype, shape, flat = _sized(3, payload)
        numpy = sys.modules.get("numpy") if self.arrays else None
        if numpy is None and type(shape) is list and _DTYPE.match(dtype):
            if shape == [len(_exact(list, flat))]:
                return flat
            if (not shape and len(flat) == 1) or (not flat and shape == [0, *shape[1:2]]):
                return flat[0] if flat else []
        flat = _exact(list, flat)
        sizes = list(accumulate(_ints(len(shape), shape), initial=1, func=int.__mul__))
        if (
            not _DTYPE.match(dtype)
            or min(sizes) < 0
            or max(sizes) > NODES
            or sizes[-1] != len(flat)
            or len(shape) > DIMENSIONS
        ):
            raise BadValue("malformed: no array")
        self.budget.spend(8 * (max(sizes) - len(flat)) + 16 * len(shape))
        if numpy is None:
            return _nested(flat, shape)
        if dtype in "US" and len(flat) * max(map(len, flat), default=0) > _ARRAY_BYTES // 4:
            raise BadValue("too large an array")
        if dtype != "O":
            return numpy.array(flat, dtype=dtype).reshape(shape)
        array = numpy.empty(len(flat), dtype=object)
        for i, item in enumerate(
            flat
        ):  # one assignment of all would take lists among the items for more dimensions
            array[i] = item
        return array.reshape(shape)

    def to_opaque(self, payload: Any) -> Any:
        return Opaque(_exact(str, payload)[:100])

    def to_type(self, payload: Any) -> Any:
        return TYPES[payload]

    def to_ellipsis(self, payload: Any) -> Any:
        return ...


def _exact(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise BadValue(f"malformed: no {kind.__name__}")
    return value


def _sized(n: int, items: Any) -> Any:
    if type(items) is not list or len(items) != n:
        raise BadValue(f"malformed: no list of {n}")
    return items


def _ints(n: int, items: Any) -> Any:
    if type(items) is not list or len(items) != n:
        raise BadValue(f"malformed: no list of {n}")
    for item in items:
        if type(item) is not int:
            raise BadValue("malformed: no int")
    return items


def _nested(flat: list[Any], shape: list[int]) -> Any:
    if not shape:
        return flat[0]
    for size, count in list(zip(shape, accumulate(shape, int.__mul__), strict=True))[:0:-1]:
        rows = iter(flat)
        flat = [
            list(islice(rows, size)) for _ in range(count // size if size else prod(shape[:-1]))
        ]
    return flat


_COUNTER = dict.__new__
_new = object.__new__
_tuple = tuple.__new__
_HEX = re.compile(r"-?0x[0-9a-f]+\Z")
_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,20})?|Infinity|NaN[0-9]*)\Z")
_DTYPE = re.compile(r"(?:[<>|=][biufc][0-9]{1,2}|[USO])\Z")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

_DECODERS: dict[str, Callable[[_Decoder, Any], Any]] = {
    **{
        name: getattr(_Decoder, "to_" + name)
        for name in """array complex counter date datetime decimal defaultdict deque dict ellipsis float fraction int
        named opaque ordered range set str time timedelta type""".split()
    },
    "tuple": lambda self, payload: tuple(_exact(list, payload)),
    "frozenset": lambda self, payload: frozenset(self.to_set(payload)),
    "bytes": lambda self, payload: bytes.fromhex(payload),
    "bytearray": lambda self, payload: bytearray.fromhex(payload),
}
