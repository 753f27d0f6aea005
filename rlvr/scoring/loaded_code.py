"""Code that stands in no file: of a notebook, an archive or a pipe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.machinery import NamespaceLoader
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

from rlvr.errors import foreign_code
from rlvr.scoring.held_values import held_values, objects_in, plain_text, qualified_name, vars_of

__all__ = ["digest_of_loaded"]

_OWN_CODE = (FunctionType, type)


def digest_of_loaded(module: str) -> str | None:
    """The digest of the functions and classes of a loaded module, with the constants that they
    name; None if it has none.  Of one that a loader has made, of its code; without that of all that
    it holds, with "no source" before it.

    Args:
        module: its name.
    """
    space = dict(vars_of(module))
    loader: Any = getattr(space.get("__spec__"), "loader", None)
    is_made, code = not isinstance(loader, (NamespaceLoader, NoneType)), None
    if is_made:
        # A loader of the user's may raise anything.
        with foreign_code():
            code = loader.get_code(module)
    if code:
        texts = [*_texts_of_code(code, {})]
    else:
        texts = [*(_texts_of_made(space) if is_made else _texts_of_space(module, space))]
    text = "\0".join(texts).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text).hexdigest()[:16]
    if is_made and not code:
        return f"no source, {digest}"
    return digest if texts else None


def _texts_of_space(module: str, space: dict[str, Any]) -> Iterator[str]:
    """The code of a module; its values may change while it is used."""
    for name, value in sorted(space.items()):
        if isinstance(value, _OWN_CODE) and getattr(value, "__module__", None) == module:
            yield from (name, *_texts_of(value, space))


def _texts_of_made(space: dict[str, Any]) -> Iterator[str]:
    """All that a module holds which a loader has filled by itself."""
    for name, value in sorted(space.items()):
        if name.startswith("__") and name != "__getattr__":
            continue
        yield name
        yield from _texts_of(value, space)
        yield plain_text(held_values(objects_in(value)))


def _texts_of(value: Any, space: dict[str, Any]) -> Iterator[str]:
    value = getattr(value, "__func__", value)  # of a static or class method
    if isinstance(value, property):
        yield from _texts_of(value.fget, space)
    elif isinstance(value, FunctionType):
        yield from _texts_of_code(value.__code__, space)
        yield plain_text([value.__defaults__, value.__kwdefaults__])
    elif isinstance(value, type):
        for name, member in sorted(vars(value).items()):
            if not name.startswith("__") or isinstance(member, FunctionType):
                yield name
                yield from _texts_of(member, space)
    else:
        yield plain_text(value) or qualified_name(value)


def _texts_of_code(code: CodeType, space: dict[str, Any]) -> Iterator[str]:
    """Without lines and the name of the file: a cell that is run again is the same code."""
    # Bytecode and names: the same source gives the same under one Python.
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts_of_code(constant, space)
        else:  # the order in a set differs between processes
            parts = constant if isinstance(constant, frozenset) else [constant]
            yield str(sorted(map(repr, parts)))
    for value in (space[name] for name in code.co_names if name in space):
        yield plain_text(value)
        if not issubclass(type(value), (*_OWN_CODE, ModuleType)):
            yield plain_text(held_values(objects_in(value)))
