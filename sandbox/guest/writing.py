"""Values to text (`values` says what the text is).

`write` runs beside untrusted code.  An instance of a list subclass with a false `__eq__`, `__len__`
or `__iter__` becomes the list of its real items: they are read with the methods of `list`, and none
of the subclass is called.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from math import isfinite
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
    New,
    NotAValue,
)

__all__ = ["class_name", "mro", "write"]

# Integers below it are plain JSON; larger ones are texts, as readers of JSON have 64 bits.
_SMALL = 1 << 63

# our own copy: the program may change `builtins`
globals().update(__builtins__=dict(vars(builtins)))

# Made once: building the encoder costs more than a short value.
_scan_json = (
    # C code that looks nothing up while it runs
    json.encoder.c_make_encoder(  # type: ignore[attr-defined]
        None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )
    if getattr(json.encoder, "c_make_encoder", None)
    else lambda tree, _: json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode(tree)
)


def write(
    value: object, other: Callable[[Any, Callable[[], Any] | None], object] | None = None
) -> bytes:
    """A value as one line of ASCII.  An object that is no value becomes {"opaque": type name}, or
    what `other` says.

    Args:
        value: anything.
        other: called with objects of types other than the builtin ones; returns a tree, or None for
            the usual one. Its second argument, for an instance of a subclass of a builtin type, is
            a function that returns the tree of the real value; else None.

    Raises:
        NotAValue: the value is cyclic, too deep or too large.
    """
    try:
        line = "".join(_scan_json(_Encoder(other).tree(value), 0)).encode("ascii")
    except NotAValue:
        raise
    # a set that another thread changes, a numpy array that is not one
    # A RecursionError too: the tree is deeper than C code goes.
    except Exception as error:  # noqa: BLE001
        raise NotAValue(f"not a value: {class_name(type(error))} while reading it") from None
    if len(line) > BYTES:
        raise NotAValue(f"not a value: more than {BYTES} bytes")
    return line


# A metaclass may define `__mro__` and `__name__` itself.
_mro_of = type.__dict__["__mro__"].__get__
_name_of = type.__dict__["__name__"].__get__


def mro(kind: type) -> tuple[type, ...]:
    """A class and its bases, whatever its metaclass says.

    Args:
        kind: the class.
    """
    return _mro_of(kind)  # type: ignore[no-any-return]


def class_name(kind: type) -> str:
    """The name of a class, cut to 100 characters.

    Args:
        kind: the class.
    """
    return str.__str__(_name_of(kind))[:100]


class _Encoder:
    def __init__(self, other: Callable[[Any, Callable[[], Any] | None], object] | None) -> None:
        self.other = other
        self.left = NODES
        self.path: list[int] = []

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            # JSON's own form where any reader takes it.
            return value if -_SMALL < value < _SMALL else {"int": _int(value)}
        if kind is str:
            return value if value.isascii() else _str(value)
        if kind is bool or value is None:
            return value
        if kind is list:
            return self.items(value, value)
        # By exact type: a subclass may behave in another way.
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(self, value)
        return self.special(value, kind)

    def special(self, value: object, kind: type) -> object:
        """The tree of an object whose type is not exactly a builtin one."""
        # The first base that is known, in the order of Python's own lookup.
        for base in mro(kind)[1:]:
            encoder = _ENCODERS.get(base)
            if encoder is not None:
                break
        else:
            encoder = _numpy(kind)
        if encoder is not None:
            if _fields(value, kind) is not None:
                # A namedtuple is told by its fields: its class is the program's.
                encoder = _Encoder.named
            elif self.other is not None and "numpy" not in str(getattr(kind, "__module__", "")):
                encode = encoder
                tree = self.other(value, lambda: encode(self, value))
                if tree is not None:
                    return tree
            return encoder(self, value)
        tree = self.other(value, None) if self.other is not None else None
        return {"opaque": class_name(kind)} if tree is None else tree

    def items(self, owner: object, items: list[Any]) -> list[Any]:
        """The trees of some items, as a new list."""
        # The list itself counts too, so that empty ones are not free.
        self.left -= len(items) + 1
        if self.left < 0:
            raise NotAValue(f"not a value: more than {NODES} values in one")
        if len(self.path) == DEPTH:
            # A cycle comes back to an object of the path, so ids repeat.
            cyclic = len(set(self.path)) < DEPTH
            raise NotAValue("not a value: cycle" if cyclic else f"not a value: deeper than {DEPTH}")
        kinds = set(map(type, items))
        # Lists of numbers alone are copied as a whole: most large values are such.
        if kinds == {int}:
            if min(items) > -_SMALL and max(items) < _SMALL:
                return items[:]
        elif kinds == {float} and all(map(isfinite, items)):
            return items[:]
        self.path.append(id(owner))
        trees = list(map(self.tree, items))
        self.path.pop()
        return trees

    def tagged(self, tag: str, owner: object, items: Any) -> object:
        return {tag: self.items(owner, list(items))}

    def table(self, tag: str, value: Any, kind: type[dict[Any, Any]] = dict) -> object:
        # The base's own `items`: a subclass may show others.
        return self.tagged(tag, value, chain.from_iterable(kind.items(value)))

    def float(self, value: Any) -> Any:
        value = float.__float__(value) if isinstance(value, float) else value
        # JSON has no text for infinities and NaN.
        return value if isfinite(value) else {"float": float.__repr__(value)}

    def complex(self, value: object) -> Any:
        return {"complex": [self.float(part.__get__(value)) for part in _COMPLEX]}

    def decimal(self, value: object) -> object:
        text = Decimal.__str__(value)
        if len(text) > DIGITS or "s" in text:  # comparing a signalling NaN raises
            raise NotAValue("not a value: a Decimal too long or sNaN")
        return {"decimal": text}

    def fraction(self, value: object) -> object:
        parts = [_real_int(part.__get__(value)) for part in _FRACTION]
        if max(map(int.bit_length, parts)) > FRACTION_BITS:
            raise NotAValue("not a value: a Fraction too long")
        return {"fraction": [self.tree(part) for part in parts]}

    def time(self, value: object) -> object:
        return {"time": [*_get(time, _CLOCK, value), _zone(time, value)]}

    def datetime(self, value: object) -> object:
        day = _get(date, "year month day", value)
        return {"datetime": [*day, *_get(datetime, _CLOCK, value), _zone(datetime, value)]}

    def defaultdict(self, value: Any) -> object:
        factory = _FACTORY(value)
        name = next((name for name, kind in FACTORIES.items() if kind is factory), None)
        return {
            "defaultdict": [name, *self.items(value, list(chain.from_iterable(dict.items(value))))]
        }

    def deque(self, value: Any) -> object:
        # deque has no slices; the base's iterator is what a subclass cannot replace.
        return {"deque": [_MAXLEN(value), *self.items(value, list(deque.__iter__(value)))]}

    def named(self, value: Any) -> object:
        kind = type(value)
        items = self.items(value, list(tuple.__getitem__(value, _ALL)))
        return {"named": [class_name(kind), list(_fields(value, kind) or ()), *items]}

    def type(self, value: Any) -> Any:
        name = class_name(value)
        if TYPES.get(name) is value:
            return {"type": name}
        tree = self.other(value, None) if self.other is not None else None
        return {"opaque": class_name(type(value))} if tree is None else tree

    def scalar(self, value: object) -> object:
        """A numpy scalar whose class is not derived from a Python number, as int64; float64 derives
        from float."""
        # generic.item of numpy itself, whatever the scalar's class defines.
        plain = sys.modules["numpy"].generic.item(value)
        if type(plain) is type(value):
            return {"opaque": class_name(type(value))}
        return self.tree(plain)

    def array(self, value: Any) -> Any:
        numpy = sys.modules["numpy"]
        # A view without the subclass, which may compute something else.
        value = numpy.ndarray.view(value, numpy.ndarray)
        # Dates and records are left out: they have no plain form.
        if value.dtype.kind not in "biufcUSO" or value.ndim > DIMENSIONS:
            return {"opaque": class_name(type(value))}
        dtype = value.dtype.str if value.dtype.kind in "biufc" else value.dtype.kind
        flat = self.items(value, value.reshape(-1).tolist())
        return {"array": [dtype, list(value.shape), flat]}


def _int(value: int) -> str:
    if value.bit_length() > BITS:
        raise NotAValue(f"not a value: an int of more than {BITS} bits")
    return hex(value)  # decimal digits would take quadratic time, and Python refuses more than 4300


def _real_int(value: Any) -> int:
    return int.__int__(value)


def _str(value: str) -> object:
    try:
        value.encode()
        return value
    except UnicodeEncodeError:  # JSON would join two lone surrogates into one character
        return {"str": value.encode("utf-8", "surrogatepass").hex()}


def _get(owner: object, names: str, value: object) -> list[object]:
    return [owner.__dict__[name].__get__(value) for name in names.split()]


def _zone(owner: Any, value: Any) -> object:
    """The UTC offset as [days, seconds, microseconds], None for none.  A tzinfo class of the
    program is not called."""
    zone = owner.__dict__["tzinfo"].__get__(value)
    if zone is None:
        return None
    # zoneinfo only if it is loaded: else no value can be of it.
    is_standard = type(zone) is timezone or type(zone) is getattr(
        sys.modules.get("zoneinfo"), "ZoneInfo", timezone
    )
    offset = owner.utcoffset(value) if is_standard else None
    if offset is None:
        raise NotAValue("not a value: a time zone of its own kind")
    return _get(timedelta, _SPAN, offset)


def _fields(value: object, kind: type) -> tuple[str, ...] | None:
    """The field names if it is an instance of a namedtuple."""
    if not isinstance(value, tuple):
        return None
    for base in mro(kind):
        names = type.__dict__["__dict__"].__get__(base).get("_fields")
        if names is not None:
            # Fields that are not names, or another number of them: then it is a tuple.
            good = type(names) is tuple and len(names) == tuple.__len__(value) <= FIELDS
            return names if good and all(type(n) is str and NAME.match(n) for n in names) else None
    return None


def _numpy(kind: type) -> Callable[[_Encoder, Any], object] | None:
    # Never imported here: without it no value can be numpy's.
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
_SPAN = "days seconds microseconds"
_CLOCK = "hour minute second microsecond fold"
_COMPLEX = [complex.__dict__["real"], complex.__dict__["imag"]]
_FRACTION: list[Any] = [Fraction.__dict__["_numerator"], Fraction.__dict__["_denominator"]]
_FACTORY = defaultdict.__dict__["default_factory"].__get__
_MAXLEN = deque.__dict__["maxlen"].__get__

# Each entry reads the real value with the base's own method: overridden ones in a subclass are not
# asked.
_ENCODERS: dict[type, Callable[[_Encoder, Any], object]] = {
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
    OrderedDict: lambda self, value: self.table("ordered", value, OrderedDict),
    Counter: lambda self, value: self.table("counter", value),
    defaultdict: _Encoder.defaultdict,
    dict: lambda self, value: self.table("dict", value),
    deque: _Encoder.deque,
    range: lambda self, value: {
        "range": [self.tree(n) for n in (value.start, value.stop, value.step)]
    },
    Decimal: _Encoder.decimal,
    Fraction: _Encoder.fraction,
    datetime: _Encoder.datetime,  # before date, which it derives from
    date: lambda self, value: {"date": _get(date, "year month day", value)},
    time: _Encoder.time,
    timedelta: lambda self, value: {"timedelta": _get(timedelta, _SPAN, value)},
    type: _Encoder.type,
    New: lambda self, value: self.tagged(
        "new", value, (value.name, value.args, value.kwargs, value.attributes)
    ),
    type(...): lambda self, value: {"ellipsis": None},
}
