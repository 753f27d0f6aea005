"""The codec: plain values to one line of text and back.  Both ends of every crossing use it, and nothing else.

    value ── write ──▶ text ══▶ read ──▶ value

The text is JSON.  None, bool, int, float, str and list stand for themselves; any other value is an object with one key,
its tag: {"tuple": [1, 2]}, {"dict": [k, v, k, v]}, {"float": "nan"}, {"opaque": "Stack"}.

`write` runs beside untrusted code.  An instance of a list subclass with a false `__eq__`, `__len__` or `__iter__`
becomes the list of its real items: they are read with the methods of `list`, and none of the subclass is called.

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
from itertools import accumulate, chain, islice
from math import gcd, isfinite, prod
from time import thread_time
from typing import Any, Final

__all__ = [
    "BITS",
    "BYTES",
    "BadValue",
    "Budget",
    "DEPTH",
    "DIGITS",
    "FACTORIES",
    "FIELDS",
    "FRACTION_BITS",
    "NAME",
    "NODES",
    "New",
    "NotAValue",
    "Opaque",
    "TYPES",
    "mro",
    "name_of",
    "read",
    "write",
]

DEPTH: Final = 100  # containers within containers: comparing and showing them recurses
NODES: Final = 2_000_000  # values within one value: about 250 MB at worst
BYTES: Final = 16 << 20  # of one text: reading the worst of them takes a few seconds
BITS: Final = 1 << 22  # of an int: 20,000! has 2^18
FRACTION_BITS: Final = 1 << 15  # reducing a fraction takes time in the square of its bits
DIGITS: Final = 20_000  # of a Decimal
FIELDS: Final = 64  # of a namedtuple
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
"""A field of a namedtuple, or its name."""

FACTORIES: Final = {k.__name__: k for k in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)}
"""What a defaultdict may make."""

TYPES: Final = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and not name.startswith("_") and kind.__name__ == name
}
"""Builtin classes, which are the same everywhere."""

_SMALL = 1 << 63
_FREE_NODES = 5_000  # not in the text: the rows of an empty array
_EXPONENT, _EXPONENT_NODES = 5, 64  # a Decimal of so many characters after its E takes long to hash
_DIMENSIONS = 8  # of an array
_NAMED = 8  # classes of namedtuples: making one takes a quarter of a millisecond
_PAUSED = 1 << 14  # bytes of a text that is read without the garbage collector
_KEYS_S = 1e-7  # for keys, by byte of text: several times what it takes where their hashes do not collide
_FREE_S = 0.001
_FEW_KEYS = 64  # collide as they may, they take microseconds
_LONGEST_NUMBER = 100  # digits outside of strings; longer ints are sent in hex

globals().update(__builtins__=dict(vars(builtins)))  # our own copy: the program may change `builtins`


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
    """An object that the program is to make, as an argument: its class is called, and then attributes are set.

    Args:
        name: the class, a global of the program.
        args, kwargs: what it is called with.
    """

    __slots__ = ("args", "attributes", "kwargs", "name")

    def __init__(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs
        self.attributes: dict[str, Any] = {}

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.name}({', '.join(given)})"


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
        if len(keys) <= _FEW_KEYS:
            table.update(items)
        else:
            began, rest = thread_time(), iter(items)
            allowed = _FREE_S + _KEYS_S * self._bytes - self._keys_s
            while part := list(islice(rest, max(8, (1 << 13) // (len(table) + 128)))):
                table.update(part)
                if thread_time() - began > allowed:
                    raise BadValue("keys whose hashes collide")
            self._keys_s += thread_time() - began
        if len(table) != len(keys):
            raise BadValue("malformed: a key twice")
        return table


# ------------------------------------------------------------------------------------------------ text


def _no_constant(name: str) -> Any:
    raise BadValue(f"{name} is not JSON")


_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.S)  # an open one runs to the end: linear on any bytes
_DIGITS = bytes(ord("0") if chr(i).isdigit() and i < 128 else ord(" ") for i in range(256))
_LONG = b"0" * (_LONGEST_NUMBER + 1)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_RUNS = re.compile(rb"\[+|\]+")
_JSON_DEPTH = 3 * DEPTH

_Json = json.JSONDecoder
_scan_json = (
    json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # C code that looks nothing up while it runs
        None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )
    if getattr(json.encoder, "c_make_encoder", None)
    else lambda tree, _: json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode(tree)
)


def write(value: Any, other: Callable[[Any, Callable[[], Any] | None], Any] | None = None) -> bytes:
    """A value as one line of ASCII.  An object that is no value becomes {"opaque": type name}, or what `other` says.

    Args:
        value: anything.
        other: called with objects of types other than the builtin ones; returns a tree, or None for the usual one.
            Its second argument, for an instance of a subclass of a builtin type, is a function that returns the tree
            of the real value; else None.

    Raises:
        NotAValue: the value is cyclic, too deep or too large.
    """
    try:
        line = "".join(_scan_json(_Encoder(other).tree(value), 0)).encode("ascii")
    except NotAValue:
        raise
    except Exception as error:  # noqa: BLE001  a set that another thread changes, a numpy array that is not one
        raise NotAValue(f"not a value: {name_of(type(error))} while reading it") from None
    if len(line) > BYTES:
        raise NotAValue(f"not a value: more than {BYTES} bytes")
    return line


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
    if data.count(b"[") + data.count(b"{") > DEPTH or data.count(b",") > NODES or _LONG in data.translate(_DIGITS):
        _examine(_STRINGS.sub(b'""', data))
    scan = _Json(object_pairs_hook=_Decoder(budget, other, arrays).tagged, parse_constant=_no_constant)
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
        brackets = brackets.replace(b"[]", b"")  # the innermost two levels: what is wide is seldom deep
    level = 0
    for run in _RUNS.findall(brackets):
        level += len(run) if run[0] == ord("[") else -len(run)
        if level > _JSON_DEPTH:
            raise BadValue("malformed: too deep")
    if _LONG in bare.translate(_DIGITS):  # int() of many digits raises, or where that is switched off, is slow
        raise BadValue("malformed: a number of more than 100 digits")


# ------------------------------------------------------------------------------------------------ values to trees

_mro_of = type.__dict__["__mro__"].__get__
_name_of = type.__dict__["__name__"].__get__


def mro(kind: type) -> tuple[type, ...]:
    """A class and its bases, whatever its metaclass says.

    Args:
        kind: the class.
    """
    return _mro_of(kind)  # type: ignore[no-any-return]


def name_of(kind: type) -> str:
    """The name of a class, cut to 100 characters.

    Args:
        kind: the class.
    """
    return str.__str__(_name_of(kind))[:100]


class _Encoder:
    def __init__(self, other: Callable[[Any, Callable[[], Any] | None], Any] | None) -> None:
        self.other = other
        self.left = NODES
        self.path: list[int] = []

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return value if -_SMALL < value < _SMALL else {"int": _int(value)}
        if kind is str:
            return value if value.isascii() else _str(value)
        if kind is bool or value is None:
            return value
        if kind is list:
            return self.items(value, value)
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(self, value)
        return self.special(value, kind)

    def special(self, value: Any, kind: type) -> Any:
        """The tree of an object whose type is not exactly a builtin one."""
        for base in mro(kind)[1:]:
            encoder = _ENCODERS.get(base)
            if encoder is not None:
                break
        else:
            encoder = _numpy(kind)
        if encoder is not None:
            if _fields(value, kind) is not None:
                encoder = _Encoder.named
            elif self.other is not None and "numpy" not in str(getattr(kind, "__module__", "")):
                found = encoder
                said = self.other(value, lambda: found(self, value))
                if said is not None:
                    return said
            return encoder(self, value)
        said = self.other(value, None) if self.other is not None else None
        return {"opaque": name_of(kind)} if said is None else said

    def items(self, owner: Any, items: list[Any]) -> list[Any]:
        """The trees of some items, as a new list."""
        self.left -= len(items) + 1
        if self.left < 0:
            raise NotAValue(f"not a value: more than {NODES} values in one")
        if len(self.path) == DEPTH:
            cyclic = len(set(self.path)) < DEPTH
            raise NotAValue("not a value: cycle" if cyclic else f"not a value: deeper than {DEPTH}")
        kinds = set(map(type, items))
        if kinds == {int}:
            if min(items) > -_SMALL and max(items) < _SMALL:
                return items[:]
        elif kinds == {float} and all(map(isfinite, items)):
            return items[:]
        self.path.append(id(owner))
        trees = list(map(self.tree, items))
        self.path.pop()
        return trees

    def tagged(self, tag: str, owner: Any, items: Any) -> Any:
        return {tag: self.items(owner, list(items))}

    def float(self, value: Any) -> Any:
        value = float.__float__(value) if isinstance(value, float) else value
        return value if isfinite(value) else {"float": float.__repr__(value)}

    def complex(self, value: Any) -> Any:
        return {"complex": [self.float(part.__get__(value)) for part in _COMPLEX]}

    def decimal(self, value: Any) -> Any:
        text = Decimal.__str__(value)
        if len(text) > DIGITS or "s" in text:  # comparing a signalling NaN raises
            raise NotAValue("not a value: a Decimal too long or sNaN")
        return {"decimal": text}

    def fraction(self, value: Any) -> Any:
        parts = [_real_int(part.__get__(value)) for part in _FRACTION]
        if max(map(int.bit_length, parts)) > FRACTION_BITS:
            raise NotAValue("not a value: a Fraction too long")
        return {"fraction": [self.tree(part) for part in parts]}

    def timedelta(self, value: Any) -> Any:
        return {"timedelta": _get(timedelta, "days seconds microseconds", value)}

    def date(self, value: Any) -> Any:
        return {"date": _get(date, "year month day", value)}

    def time(self, value: Any) -> Any:
        return {"time": [*_get(time, _CLOCK, value), _zone(time, value)]}

    def datetime(self, value: Any) -> Any:
        day = _get(date, "year month day", value)
        return {"datetime": [*day, *_get(datetime, _CLOCK, value), _zone(datetime, value)]}

    def counter(self, value: Any) -> Any:
        return self.tagged("counter", value, chain.from_iterable(dict.items(value)))

    def ordered(self, value: Any) -> Any:
        return self.tagged("ordered", value, chain.from_iterable(OrderedDict.items(value)))

    def defaultdict(self, value: Any) -> Any:
        made = _FACTORY(value)
        name = next((name for name, kind in FACTORIES.items() if kind is made), None)
        return {"defaultdict": [name, *self.items(value, list(chain.from_iterable(dict.items(value))))]}

    def deque(self, value: Any) -> Any:
        return {"deque": [_MAXLEN(value), *self.items(value, list(deque.__iter__(value)))]}

    def named(self, value: Any) -> Any:
        kind = type(value)
        items = self.items(value, list(tuple.__getitem__(value, _ALL)))
        return {"named": [name_of(kind), list(_fields(value, kind) or ()), *items]}

    def type(self, value: Any) -> Any:
        name = name_of(value)
        if TYPES.get(name) is value:
            return {"type": name}
        said = self.other(value, None) if self.other is not None else None
        return {"opaque": name_of(type(value))} if said is None else said

    def scalar(self, value: Any) -> Any:
        """A numpy scalar whose class is not derived from a Python number, as int64; float64 derives from float."""
        plain = sys.modules["numpy"].generic.item(value)
        if type(plain) is type(value):
            return {"opaque": name_of(type(value))}
        return self.tree(plain)

    def array(self, value: Any) -> Any:
        numpy = sys.modules["numpy"]
        value = numpy.ndarray.view(value, numpy.ndarray)
        if value.dtype.kind not in "biufcUSO" or value.ndim > _DIMENSIONS:
            return {"opaque": name_of(type(value))}
        dtype = value.dtype.str if value.dtype.kind in "biufc" else value.dtype.kind
        flat = self.items(value, value.reshape(-1).tolist())
        return {"array": [dtype, list(value.shape), flat]}


def _int(value: int) -> str:
    if value.bit_length() > BITS:
        raise NotAValue(f"not a value: an int of more than {BITS} bits")
    return hex(value)  # decimal digits would take quadratic time, and Python refuses more than 4300


def _real_int(value: Any) -> int:
    return int.__int__(value)


def _str(value: str) -> Any:
    try:
        value.encode()
        return value
    except UnicodeEncodeError:  # JSON would join two lone surrogates into one character
        return {"str": value.encode("utf-8", "surrogatepass").hex()}


def _get(owner: Any, names: str, value: Any) -> list[Any]:
    return [owner.__dict__[name].__get__(value) for name in names.split()]


def _zone(owner: Any, value: Any) -> Any:
    """The UTC offset as [days, seconds, microseconds], None for none.  A tzinfo class of the program is not called."""
    zone = owner.__dict__["tzinfo"].__get__(value)
    if zone is None:
        return None
    known = type(zone) is timezone or type(zone) is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", timezone)
    offset = owner.utcoffset(value) if known else None
    if offset is None:
        raise NotAValue("not a value: a time zone of its own kind")
    return _get(timedelta, "days seconds microseconds", offset)


def _fields(value: Any, kind: type) -> tuple[str, ...] | None:
    """The field names if it is an instance of a namedtuple."""
    if not isinstance(value, tuple):
        return None
    for base in mro(kind):
        names = type.__dict__["__dict__"].__get__(base).get("_fields")
        if names is not None:
            good = type(names) is tuple and len(names) == tuple.__len__(value) <= FIELDS
            return names if good and all(type(n) is str and NAME.match(n) for n in names) else None
    return None


def _numpy(kind: type) -> Callable[[_Encoder, Any], Any] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    for base in mro(kind):
        if base is getattr(numpy, "ndarray", None):
            return _Encoder.array
        if base is getattr(numpy, "generic", None):
            return _Encoder.scalar
    return None


_ALL = slice(None)
_CLOCK = "hour minute second microsecond fold"
_COMPLEX = [complex.__dict__["real"], complex.__dict__["imag"]]
_FRACTION: list[Any] = [Fraction.__dict__["_numerator"], Fraction.__dict__["_denominator"]]
_FACTORY = defaultdict.__dict__["default_factory"].__get__
_MAXLEN = deque.__dict__["maxlen"].__get__

# Each entry reads the real value with the base's own method: overridden ones in a subclass are not asked.
_ENCODERS: dict[type, Callable[[_Encoder, Any], Any]] = {
    bool: lambda self, value: value,
    int: lambda self, value: self.tree(int.__int__(value)),
    float: _Encoder.float,
    complex: _Encoder.complex,
    str: lambda self, value: _str(str.__str__(value)),
    bytes: lambda self, value: {"bytes": bytes.__getitem__(value, _ALL).hex()},
    bytearray: lambda self, value: {"bytearray": bytes(bytearray.__getitem__(value, _ALL)).hex()},
    list: lambda self, value: self.items(value, list.__getitem__(value, _ALL)),
    tuple: lambda self, value: self.tagged("tuple", value, tuple.__getitem__(value, _ALL)),
    set: lambda self, value: self.tagged("set", value, set.__iter__(value)),
    frozenset: lambda self, value: self.tagged("frozenset", value, frozenset.__iter__(value)),
    OrderedDict: _Encoder.ordered,
    Counter: _Encoder.counter,
    defaultdict: _Encoder.defaultdict,
    dict: lambda self, value: self.tagged("dict", value, chain.from_iterable(dict.items(value))),
    deque: _Encoder.deque,
    range: lambda self, value: {"range": [self.tree(n) for n in (value.start, value.stop, value.step)]},
    Decimal: _Encoder.decimal,
    Fraction: _Encoder.fraction,
    datetime: _Encoder.datetime,  # before date, which it derives from
    date: _Encoder.date,
    time: _Encoder.time,
    timedelta: _Encoder.timedelta,
    type: _Encoder.type,
    New: lambda self, value: self.tagged("new", value, (value.name, value.args, value.kwargs, value.attributes)),
    type(...): lambda self, value: {"ellipsis": None},
}


# ------------------------------------------------------------------------------------------------ trees to values

_ARRAY_BYTES = 64 << 20


class _Decoder:
    """Makes the values of tagged objects, from the inside out."""

    def __init__(self, budget: Budget, other: Callable[[str, Any], Any] | None, arrays: bool) -> None:
        self.budget, self.other, self.arrays = budget, other, arrays

    def tagged(self, pairs: list[tuple[str, Any]]) -> Any:
        """The value of a JSON object."""
        if len(pairs) != 1:
            raise BadValue("malformed: an object without one tag")
        tag, payload = pairs[0]
        decoder = _DECODERS.get(tag)
        if decoder is not None:
            return decoder(self, payload)
        if self.other is None:
            raise BadValue("malformed: an unknown tag")
        return self.other(tag, payload)

    def table(self, empty: Any, items: Any) -> Any:
        """A set of these items, or a dict of these keys and values in turn."""
        if type(items) is not list:
            raise BadValue("malformed: no list")
        if not items:
            return empty
        if type(empty) is set:
            return self.budget.fill(empty, items, items)
        if len(items) % 2:
            raise BadValue("malformed: a key without a value")
        each = iter(items)
        return self.budget.fill(empty, items[::2], zip(each, each, strict=True))

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
        return range(*[_exact(int, n) for n in _sized(3, payload)])

    def to_decimal(self, payload: Any) -> Any:
        if type(payload) is not str or len(payload) > DIGITS or not _DECIMAL.match(payload):
            raise BadValue("malformed: no Decimal")
        if len(payload.rpartition("E")[2]) > _EXPONENT and "E" in payload:
            self.budget.spend(_EXPONENT_NODES)
        return Decimal(payload)

    def to_fraction(self, payload: Any) -> Any:
        above, below = parts = [_exact(int, n) for n in _sized(2, payload)]
        if max(map(int.bit_length, parts)) > FRACTION_BITS or below < 1 or gcd(above, below) != 1:
            raise BadValue("malformed: no Fraction")
        made: Any = object.__new__(Fraction)  # in half the time that it takes to call the class
        made._numerator, made._denominator = above, below
        return made

    def to_timedelta(self, payload: Any) -> Any:
        return timedelta(*[_exact(int, n) for n in _sized(3, payload)])

    def to_date(self, payload: Any) -> Any:
        return date(*[_exact(int, n) for n in _sized(3, payload)])

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
        counter: Any = _COUNTER(Counter)  # without its own __init__ and update, which add
        dict.update(counter, self.table({}, payload))
        return counter

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
        made = self.table(set(), payload)
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
        key = (_exact(str, name), tuple(_sized(len(items), fields)))
        types = self.budget.named
        if key not in types:
            if len(key[1]) > FIELDS or not all(type(n) is str and NAME.match(n) for n in (name, *fields)):
                raise BadValue("malformed: no namedtuple")
            if len(types) == _NAMED:
                raise NotAValue(f"not a value: more than {_NAMED} classes of namedtuples")
            types[key] = namedtuple(*key)  # refuses keywords and names given twice
        return types[key](*items)

    def to_array(self, payload: Any) -> Any:
        dtype, shape, flat = _sized(3, payload)
        numpy = sys.modules.get("numpy") if self.arrays else None
        if numpy is None and type(shape) is list and _DTYPE.match(dtype):
            if shape == [len(_exact(list, flat))]:
                return flat
            if (not shape and len(flat) == 1) or (not flat and shape == [0, *shape[1:2]]):
                return flat[0] if flat else []
        flat = _exact(list, flat)
        sizes = list(accumulate([_exact(int, n) for n in shape], int.__mul__, initial=1))
        if (
            not _DTYPE.match(dtype)
            or min(sizes) < 0
            or max(sizes) > NODES
            or sizes[-1] != len(flat)
            or len(shape) > _DIMENSIONS
        ):
            raise BadValue("malformed: no array")
        self.budget.spend(4 * (max(sizes) - len(flat)) + 16 * len(shape))
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


def _nested(flat: list[Any], shape: list[int]) -> Any:
    if not shape:
        return flat[0]
    for size, count in list(zip(shape, accumulate(shape, int.__mul__), strict=True))[:0:-1]:
        rows = iter(flat)
        flat = [list(islice(rows, size)) for _ in range(count // size if size else prod(shape[:-1]))]
    return flat


_COUNTER = dict.__new__
_HEX = re.compile(r"-?0x[0-9a-f]+\Z")
_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,20})?|Infinity|NaN[0-9]*)\Z")
_DTYPE = re.compile(r"(?:[<>|=][biufc][0-9]{1,2}|[USO])\Z")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

_DECODERS: dict[str, Callable[[_Decoder, Any], Any]] = {
    **{
        name: getattr(_Decoder, "to_" + name)
        for name in """array complex counter date datetime decimal defaultdict deque ellipsis float fraction int named
        opaque ordered range str time timedelta type""".split()
    },
    "tuple": lambda self, payload: tuple(_exact(list, payload)),
    "set": _Decoder.to_set,
    "frozenset": lambda self, payload: frozenset(self.to_set(payload)),
    "dict": lambda self, payload: self.table({}, payload),
    "bytes": lambda self, payload: bytes.fromhex(payload),
    "bytearray": lambda self, payload: bytearray.fromhex(payload),
}
