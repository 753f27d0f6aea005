"""What objects hold, read past their own methods: an object that raises when it is
looked at hides nothing."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

__all__ = ["fields_of", "held_values", "objects_in", "plain_text", "qualified_name", "vars_of"]

_MOST = 2000  # objects looked at: an environment may hold its rows
_PLAIN = (str, bytes, int, float, complex, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset)
_MADE_OF_PARTS = (FunctionType, MethodType, SimpleNamespace, functools.partial)
_DECIDES_NOTHING = frozenset({"workers"})
_SHOWN_WHOLE = frozenset({"datetime", "decimal", "fractions", "ipaddress", "uuid", "zoneinfo"})
"""Modules whose values `repr` shows whole, the same in each process."""


def objects_in(*roots: object) -> Iterator[object]:
    """Objects and what they hold, without plain values; the first 2,000.

    Args:
        roots: where to begin.
    """
    todo, visited = list(roots), dict[int, Any]()
    # A bound, as an environment may hold a million rows.
    while todo and len(visited) < _MOST:
        value = todo.pop()
        if issubclass(type(value), _PLAIN) or id(value) in visited:
            continue
        visited[id(value)] = value  # kept, so that no other object gets its id
        yield value
        if not issubclass(type(value), ModuleType):
            todo += [*_elements(value), *fields_of(value).values()]


def _elements(value: Any) -> Iterable[object]:
    kind = type(value)
    if issubclass(kind, dict):
        # dict's own method: a subclass may raise or lie.
        return dict.values(value)
    base = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
    return () if base is None else base.__iter__(value)


def fields_of(value: Any) -> dict[str, object]:
    """What an object holds, by name: attributes, a function's closure and defaults, arguments of a
    partial, the object of a method.

    Args:
        value: any object; its own `__getattr__`, `__dict__` and the like are not called.
    """
    kind = type(value)
    if issubclass(kind, functools.partial):
        return {"func": value.func, "args": value.args, **value.keywords}
    if kind is MethodType:
        return {"self": value.__self__, "func": value.__func__}
    fields = _function_fields(value) if kind is FunctionType else {}
    # From the base upwards, so that a subclass's slots win.
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and base.__module__ != "builtins":
                try:
                    fields[name] = member.__get__(value)
                except AttributeError:  # of `__slots__`, and not set
                    continue
    dict_slot = next((vars(base)["__dict__"] for base in kind.__mro__ if _has_dict(base)), None)
    return fields if dict_slot is None else {**fields, **dict_slot.__get__(value)}


def _has_dict(kind: type) -> bool:
    """Whether the class brings the attributes of its instances, not a property of that name."""
    return isinstance(vars(kind).get("__dict__"), (GetSetDescriptorType, MemberDescriptorType))


def _function_fields(function: FunctionType) -> dict[str, object]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    fields = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    fields |= function.__kwdefaults__ or {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            fields[name] = cell.cell_contents
        except ValueError:  # a name that is bound later
            continue
    return fields


def held_values(objects: Iterable[Any]) -> dict[str, object]:
    """What objects were made with: numbers, and digests of other values.

    Attributes that are no parameter of the class are left out, such as a cache, unless what a
    parameter gave stands under no name of its own.

    Args:
        objects: such as a reward with its parts.
    """
    values: dict[str, Any] = {}
    for held_by in objects:
        kind = type(held_by)
        if issubclass(kind, (type, ModuleType)) or kind in _CONTAINERS or _is_inner(kind):
            continue
        label = held_by.__qualname__ if kind is FunctionType else kind.__qualname__
        fields = fields_of(held_by)
        given_names = _given_names(kind, fields)
        for name in sorted(fields.keys() - _DECIDES_NOTHING):
            value = fields[name]
            text = (
                ""
                if given_names is not None and name.strip("_") not in given_names
                else plain_text(value)
            )
            if not text or (isinstance(value, str) and Path(value).is_absolute()):
                continue  # places of files are looked at as they are opened
            # Two objects of one class: numbered in the order in which they were found.
            same = sum(key.partition(" ")[0] == f"{label}.{name}" for key in values)
            key = f"{label}.{name}" + f" {same + 1}" * bool(same)
            is_number = type(value) in (bool, int, float, type(None))
            values[key] = value if is_number else _digest(text)
    return values


def _is_inner(kind: type) -> bool:
    """Whether a class is a part of Python's or rlvr's own objects, such as a lock."""
    top = kind.__module__.partition(".")[0]
    return kind.__name__.startswith("_") and (top == "rlvr" or top in sys.stdlib_module_names)


def _given_names(kind: type, fields: Mapping[str, object]) -> frozenset[str] | None:
    """The names under which a value of this class has what it was made with; None: under any."""
    # Made of parts: all that they hold was given to them.
    if issubclass(kind, _MADE_OF_PARTS):
        return None
    try:
        names = frozenset(inspect.signature(kind).parameters)
    except (TypeError, ValueError):  # of a class in C, or one with a signature that is none
        return None if _is_ones_own(kind) else frozenset()
    field_names = {name.strip("_") for name in fields}
    return None if _is_ones_own(kind) and names - field_names else names


def _is_ones_own(kind: type) -> bool:
    """Whether a class is a user's: others keep more than they were made with."""
    path = str(vars_of(kind.__module__).get("__file__") or "")
    top = kind.__module__.partition(".")[0]
    return not (
        top == "rlvr" or top in sys.stdlib_module_names - {"__main__"} or "-packages" in path
    )


def vars_of(module: str) -> dict[str, Any]:
    """The names of a loaded module, read past its own `__getattr__`; none if it is not loaded.

    Args:
        module: its name.
    """
    # None blocks an import.
    space: dict[str, Any] = getattr(sys.modules.get(module), "__dict__", {})
    return space


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain_text(value: object) -> str:
    """A value as a text that is the same in each process; "" for one that has none, such as a
    function.

    Args:
        value: of JSON, a set, bytes, an array, a pattern, a date and the like.
    """
    try:
        tree = _tree(value)
        return "" if tree is None and value is not None else json.dumps(tree, sort_keys=True)
    except RecursionError:
        return ""


def _tree(value: Any) -> object:
    """The value as JSON, read past its own methods; None for what has no text."""
    kind = type(value)
    if kind in (str, int, float, bool):
        return value
    if issubclass(kind, dict):
        pairs = [(_element(key), _element(held)) for key, held in dict.items(value)]
        by_text = all(isinstance(key, str) for key, _ in pairs)
        # JSON has texts as keys alone; a dict with others becomes sorted pairs.
        return dict(pairs) if by_text else sorted(pairs, key=json.dumps)
    if issubclass(kind, _CONTAINERS):
        elements = [_element(element) for element in _elements(value)]
        # Sets have no order that two processes share.
        return elements if issubclass(kind, (list, tuple)) else sorted(elements, key=json.dumps)
    if kind is re.Pattern:
        return [_element(value.pattern), value.flags]
    if kind in (complex, range) or kind.__module__ in _SHOWN_WHOLE:
        return repr(value)
    try:
        # Arrays, by their bytes, form and shape.
        view = memoryview(value)
        return [view.format, list(view.shape or ()), view.tobytes().hex()]
    except (TypeError, ValueError, BufferError):
        return value if issubclass(kind, (str, int, float)) else None


def _element(value: object) -> object:
    tree = _tree(value)
    return qualified_name(value) if tree is None and value is not None else tree


def qualified_name(value: Any) -> str:
    """The name of a function or a class, or of the class of another object.

    Args:
        value: any object.
    """
    named = value if issubclass(type(value), (FunctionType, type)) else type(value)
    return f"{named.__module__}.{named.__qualname__}"
