"""Text to values (`values` says what the text is).

`read` trusts nothing: every text gives values of exact builtin types, or one of two errors.  The
parser of JSON makes the values as it goes, so that lists cost what they cost in C.  What a text may
cost is not counted here: `read` runs in processes whose memory and CPU time the kernel limits (a
box, or `sandbox.reader`).
"""

from __future__ import annotations

import builtins
import gc
import json
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice
from math import gcd, prod
from typing import Any

from rlvr.sandbox.guest.values import (
    BITS,
    BYTES,
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

__all__ = ["read"]

_PAUSED = 1 << 14  # bytes of a text that is read without the garbage collector

# our own copy: the program may change `builtins`
globals().update(__builtins__=dict(vars(builtins)))


def _no_constant(name: str) -> object:
    raise BadValue(f"{name} is not JSON")


_Json = json.JSONDecoder


def read(
    data: bytes, *, other: Callable[[str, Any], object] | None = None, arrays: bool = True
) -> Any:
    """The value that `write` wrote.

    Args:
        data: one line.
        other: called with tags that are not defined here, and with what they tag; returns the
            value.
        arrays: numpy arrays become arrays where numpy is loaded; else nested lists.

    Raises:
        BadValue: it is no such line.
        NotAValue: it is too large.
        MemoryError: see the module's docstring.
    """
    if len(data) > BYTES:
        raise NotAValue("not a value: too large to read")
    # Objects have one key, which is the tag; JSON's constants are tagged floats.
    scan = _Json(object_pairs_hook=_Decoder(other, arrays).tagged, parse_constant=_no_constant)
    # Nothing in the text is garbage, and looking for some would take as long as all the rest.
    # With `other`, code of the program may run meanwhile, and its garbage may be large.
    paused = other is None and len(data) > _PAUSED and gc.isenabled()
    if paused:
        gc.disable()
    try:
        text = data.decode("ascii")
        # `scan_once` reads one value and says where it ends; `decode` would allow blanks around it.
        value, end = scan.scan_once(text, 0)  # type: ignore[attr-defined]
    except (BadValue, NotAValue, MemoryError):
        raise
    # bytes of a program: whatever they raise, they are malformed
    except Exception as error:  # noqa: BLE001
        # Its text may be a large value's, which raises too.
        raise BadValue(f"malformed: {type(error).__name__}") from None
    finally:
        if paused:
            gc.enable()
    # Whatever follows would otherwise be ignored, and two readers could differ.
    if end != len(text):
        raise BadValue("malformed: more than one value")
    return value


# NumPy gives each text of an array the room of the longest one, four bytes for each character.
_ARRAY_BYTES = 64 << 20
_KEYS, _KEYS_OF_A_HASH = 1000, 200  # honest keys hardly share any
_EMPTY_LISTS = 200_000  # of the arrays of a text: a few bytes would else cost seconds and gigabytes


class _Decoder:
    """Makes the values of tagged objects, from the inside out."""

    def __init__(self, other: Callable[[str, Any], object] | None, arrays: bool) -> None:
        self.other, self.arrays = other, arrays
        self.named: dict[Any, Any] = {}
        self.lists_left = _EMPTY_LISTS

    def tagged(self, pairs: list[tuple[str, object]]) -> object:
        """The value of a JSON object."""
        if len(pairs) != 1:
            raise BadValue("malformed: an object without one tag")
        tag, payload = pairs[0]
        if tag in _DECODERS:
            return _DECODERS[tag](self, payload)
        if self.other is None:
            raise BadValue("malformed: an unknown tag")
        return self.other(tag, payload)

    def table(self, empty: Any, items: object) -> object:
        """A dict of these keys and values in turn, put into an empty one of some class."""
        if type(items) is not list or len(items) % 2:
            raise BadValue("malformed: no list of keys and values")
        # Before the dict is made: making it is what would take seconds.
        _check_hashes(items[::2])
        iterator = iter(items)
        pairs = zip(iterator, iterator)  # noqa: B905  it has as many keys as values
        if type(empty) is Counter:  # whose own update adds
            dict.update(empty, pairs)
        else:
            empty.update(pairs)
        # Equal keys, such as 1 and True: `write` never sends both.
        if 2 * len(empty) != len(items):
            raise BadValue("malformed: a key twice")
        return empty

    def to_int(self, payload: object) -> int:
        # In hexadecimal: decimal digits take quadratic time, and Python limits their number.
        if type(payload) is not str or not _HEX.match(payload) or len(payload) > BITS // 4 + 3:
            raise BadValue("malformed: no int")
        return int(payload, 16)

    def to_complex(self, payload: object) -> complex:
        real, imag = _check_size(2, payload)
        return complex(_exact(float, real), _exact(float, imag))

    def to_decimal(self, payload: object) -> Decimal:
        if type(payload) is not str or len(payload) > DIGITS or not _DECIMAL.match(payload):
            raise BadValue("malformed: no Decimal")
        return Decimal(payload)

    def to_fraction(self, payload: object) -> object:
        above, below = _ints(2, payload)
        if (
            below < 1
            # `write` sends lowest terms only; anything else is no Fraction of Python.
            or gcd(above, below) != 1
            or max(above.bit_length(), below.bit_length()) > FRACTION_BITS
        ):
            raise BadValue("malformed: no Fraction")
        fraction: Any = _new(Fraction)  # in half the time that it takes to call the class
        fraction._numerator, fraction._denominator = above, below
        return fraction

    def to_time(self, payload: object) -> time:
        hour, minute, second, microsecond, fold, zone = _check_size(6, payload)
        return time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))

    def to_datetime(self, payload: object) -> datetime:
        *day, hour, minute, second, microsecond, fold, zone = _check_size(9, payload)
        clock = time(hour, minute, second, microsecond, self.zone(zone), fold=_exact(int, fold))
        return datetime.combine(date(*_ints(3, day)), clock)

    def zone(self, payload: object) -> timezone | None:
        return None if payload is None else timezone(timedelta(*_ints(3, payload)))

    def to_defaultdict(self, payload: Any) -> object:
        payload = _exact(list, payload)
        factory = None if payload[0] is None else FACTORIES[payload[0]]
        return self.table(defaultdict(factory), payload[1:])

    def to_set(self, payload: object) -> set[object]:
        """A set that iterates in the order of the payload, if one of two ways of making it does.

        {12, 13, 14, 15, 16} gives 16 first if Python made it from a constant, and last if item by
        item.
        """
        if type(payload) is not list:
            raise BadValue("malformed: no list")
        # The same cost as of a table's keys.
        _check_hashes(payload)
        values = set(payload)
        if len(values) != len(payload):
            raise BadValue("malformed: a key twice")
        if len(values) > 1 and list(values) != payload:
            again = set(values)
            if list(again) == payload:
                # A copy of a set is laid out by its table and not by the order of insertion.
                return again
        return values

    def to_deque(self, payload: object) -> deque[object]:
        maxlen, *items = _exact(list, payload)
        if maxlen is not None and _exact(int, maxlen) < len(items):
            raise BadValue("malformed: a deque over its maxlen")
        return deque(items, maxlen)

    def to_named(self, payload: object) -> Any:
        name, fields, *items = _exact(list, payload)
        key = (name, *_check_size(len(items), fields))
        # One class for each name and fields, so that two values of it are equal in type.
        if key not in self.named:
            if len(key) > 1 + FIELDS or not all(type(n) is str and NAME.match(n) for n in key):
                raise BadValue("malformed: no namedtuple")
            self.named[key] = namedtuple(name, fields)  # refuses keywords and names given twice
        return _tuple(self.named[key], items)

    def to_array(self, payload: Any) -> object:
        dtype, shape, flat = _check_size(3, payload)
        if (
            type(dtype) is not str
            or not _DTYPE.match(dtype)
            or type(flat) is not list
            or type(shape) is not list
            # A product of many large sizes would be a number of any length.
            or len(shape) > DIMENSIONS  # before they are multiplied
        ):
            raise BadValue("malformed: no array")
        # Running products: each of them is a number of lists that would be made.
        sizes = list(accumulate(_ints(len(shape), shape), initial=1, func=int.__mul__))
        if min(sizes) < 0 or max(sizes) > NODES or sizes[-1] != len(flat):
            raise BadValue("malformed: no array")
        numpy = sys.modules.get("numpy") if self.arrays else None
        if numpy is None:
            # An empty array, or one of many axes, has lists for which no byte was written.
            self.lists_left -= max(0, sum(sizes[1:-1]) - len(flat))
            if self.lists_left < 0:
                raise NotAValue(f"not a value: more than {_EMPTY_LISTS} lists without an item")
            return _nest(flat, shape)
        # UCS-4: four bytes for each character of the longest text, in each cell.
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


def _exact(kind: type, value: object) -> Any:
    if type(value) is not kind:
        raise BadValue(f"malformed: no {kind.__name__}")
    return value


def _check_size(n: int, items: object) -> Any:
    if type(items) is not list or len(items) != n:
        raise BadValue(f"malformed: no list of {n}")
    return items


def _check_hashes(keys: list[object]) -> None:
    """Each key of a table is compared with those before it that have its hash: multiples of
    2**61 - 1 all have 0, so that a megabyte of them took ten seconds.  Those of texts are drawn."""
    if len(keys) <= _KEYS:
        return
    other_keys = [key for key in keys if type(key) is not str]
    # Few collisions among all: then there is no need to count each hash.
    if len(other_keys) - len(set(map(hash, other_keys))) < _KEYS_OF_A_HASH:
        return
    if max(Counter(map(hash, other_keys)).values()) > _KEYS_OF_A_HASH:  # that of -1 is that of -2
        raise NotAValue(f"not a value: more than {_KEYS_OF_A_HASH} keys of one hash")


def _ints(n: int, items: object) -> Any:
    for item in _check_size(n, items):
        if type(item) is not int:
            raise BadValue("malformed: no int")
    return items


def _of_ints(kind: type, decoder: _Decoder, payload: object) -> object:
    return kind(*_ints(3, payload))


def _nest(flat: list[object], shape: list[int]) -> object:
    if not shape:
        return flat[0]
    # From the innermost axis outwards; with a size of 0 no item says how many lists there are.
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
# Twenty digits of exponent: Decimal's own limit is below that.
_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,20})?|Infinity|NaN[0-9]*)\Z")
_DTYPE = re.compile(r"(?:[<>|=][biufc][0-9]{1,2}|[USO])\Z")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

_DECODERS: dict[str, Callable[[_Decoder, Any], object]] = {
    **{
        name: getattr(_Decoder, "to_" + name)
        for name in (
            "array complex datetime decimal defaultdict deque fraction int named set time"
        ).split()
    },
    **{kind.__name__: partial(_of_ints, kind) for kind in (date, range, timedelta)},
    # its own __init__ adds
    "counter": lambda self, payload: self.table(_COUNTER(Counter), payload),
    "dict": lambda self, payload: self.table({}, payload),
    "ordered": lambda self, payload: self.table(OrderedDict(), payload),
    "opaque": lambda self, payload: Opaque(_exact(str, payload)[:100]),
    "type": lambda self, payload: TYPES[payload],
    "float": lambda self, payload: _FLOATS[payload],
    "str": lambda self, payload: bytes.fromhex(payload).decode("utf-8", "surrogatepass"),
    "ellipsis": lambda self, payload: ...,
    "tuple": lambda self, payload: tuple(_exact(list, payload)),
    "frozenset": lambda self, payload: frozenset(self.to_set(payload)),
    "bytes": lambda self, payload: bytes.fromhex(payload),
    "bytearray": lambda self, payload: bytearray.fromhex(payload),
}
