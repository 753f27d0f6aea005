"""Code and settings that stand in no file: of a notebook, an archive or a pipe; in closures and attributes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["digest_of_loaded", "fields_of", "held_values"]

_OWN_CODE = (FunctionType, type)
_DECIDES_NOTHING = frozenset({"workers"})
_CONTAINERS = (Mapping, list, tuple, set, frozenset, ModuleType)


def digest_of_loaded(module: str) -> str | None:
    """The digest of the functions and classes of a loaded module, with the constants that they
    name; None if it has none.

    Args:
        module: its name.
    """
    space = dict(getattr(sys.modules.get(module), "__dict__", {}))  # None blocks an import
    hasher, count = hashlib.sha256(), 0
    for name, value in sorted(space.items()):
        if isinstance(value, _OWN_CODE) and getattr(value, "__module__", None) == module:
            count += 1
            for text in (name, *_texts_of(value, space)):
                hasher.update(f"{text}\0".encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()[:16] if count else None


def _texts_of(value: Any, space: dict[str, Any]) -> Iterator[str]:
    value = getattr(value, "__func__", value)  # of a static or class method
    if isinstance(value, property):
        yield from _texts_of(value.fget, space)
    elif isinstance(value, FunctionType):
        yield from _texts_of_code(value.__code__, space)
        yield _plain_text([value.__defaults__, value.__kwdefaults__])
    elif isinstance(value, type):
        for name, member in sorted(vars(value).items()):
            if not name.startswith("__") or isinstance(member, FunctionType):
                yield name
                yield from _texts_of(member, space)
    else:
        yield _plain_text(value)


def _texts_of_code(code: CodeType, space: dict[str, Any]) -> Iterator[str]:
    """Without lines and the name of the file: a cell that is run again is the same code."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts_of_code(constant, space)
        else:  # the order in a set differs between processes
            parts = constant if isinstance(constant, frozenset) else [constant]
            yield str(sorted(map(repr, parts)))
    yield from (_plain_text(space[name]) for name in code.co_names if name in space)


def _plain_text(value: Any) -> str:
    """A value of JSON as a text; "" for others."""
    with suppress(TypeError, ValueError, RecursionError):
        return json.dumps(value, sort_keys=True)
    return ""


def fields_of(value: Any) -> dict[str, Any]:
    """What an object holds, by name: attributes, a function's closure, arguments of a partial.

    Args:
        value: any object; one that raises when it is looked at raises here.
    """
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, **value.keywords}
    names = getattr(getattr(value, "__code__", None), "co_freevars", ())
    cells = zip(names, getattr(value, "__closure__", None) or (), strict=False)
    slots = [name for name in getattr(type(value), "__slots__", ()) if isinstance(name, str)]
    fields = {name: getattr(value, name, None) for name in slots}
    return {
        **{name: cell.cell_contents for name, cell in cells if _is_filled(cell)},
        **fields,
        **getattr(value, "__dict__", {}),
    }


def held_values(objects: Iterable[Any]) -> dict[str, Any]:
    """What objects were made with, as far as it is JSON: numbers, and digests of other values.

    Attributes that are no parameter of the class are left out, such as a cache.

    Args:
        objects: such as a reward with its parts.
    """
    values: dict[str, Any] = {}
    for held_by in objects:
        kind = getattr(held_by, "__qualname__", type(held_by).__qualname__)
        if isinstance(held_by, (*_CONTAINERS, type)) or kind.startswith("_"):
            continue
        with suppress(Exception):  # it may be any object, see `fields_of`
            for name, value in sorted(fields_of(held_by).items()):
                text = _plain_text(value)
                if text and name not in _DECIDES_NOTHING and _is_given(held_by, name):
                    same = sum(key.partition(" ")[0] == f"{kind}.{name}" for key in values)
                    key = f"{kind}.{name}" + f" {same + 1}" * bool(same)
                    is_text = isinstance(value, (str, list, tuple, dict))
                    values[key] = (
                        hashlib.sha256(text.encode()).hexdigest()[:16] if is_text else value
                    )
    return values


def _is_given(held_by: Any, name: str) -> bool:
    """Whether it was made with this; places of files are looked at as they are opened."""
    value = fields_of(held_by)[name]
    if isinstance(value, str) and Path(value).is_absolute():
        return False
    if isinstance(held_by, (FunctionType, functools.partial)):
        return True
    return name in inspect.signature(type(held_by)).parameters


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is bound later
        return False
