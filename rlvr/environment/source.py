"""Where the code of an environment comes from: a digest of every file of one's own, the version of every package.

An id with a version says what the bundled environments do.  A class in a script has no version: an edit between a run
and its continuation would mix the scores of two programs, and only the text of the file can tell.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from rlvr.environment.base import Environment

__all__ = ["changed_source", "source_of"]

_MOST = 2000  # objects looked at: an environment may hold its rows
_PLAIN = (str, bytes, int, float, complex, type(None))
_DIGEST = re.compile(r"[0-9a-f]{16}")
_PACKAGES = ("site-packages", "dist-packages")


def source_of(env: Environment) -> dict[str, str]:
    """Module → digest of its file, or package → version, for all that an environment, its verifier and its reward run.

    Python's own modules and rlvr's are left out, and what an installed package imports.  What one's own files import is
    there too, in functions as well.

    Args:
        env: the environment.
    """
    found: dict[str, str] = {}
    todo, seen = [*_modules_of(env)], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or _is_known(name):
            continue
        seen.add(name)
        path = _file_of(name)
        if path is None:
            continue
        if any(part in _PACKAGES for part in path.parts):
            package = name.partition(".")[0]
            found[package] = _version(package)
        else:
            text = path.read_bytes()
            found[name] = hashlib.sha256(text).hexdigest()[:16]  # see `_DIGEST`
            todo += _imported_by(name, text)
    return dict(sorted(found.items()))


def changed_source(before: Any, now: Mapping[str, str]) -> str:
    """What differs between two sources, for an error message; empty if nothing does.

    Args:
        before: of a record; None for one of a version that had none.
        now: what `source_of` gives.
    """
    if not isinstance(before, Mapping):
        return ""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(_changed(name, before, now) for name in names)


def _changed(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name not in before or name not in now:
        return f"{name} is new" if name in now else f"{name} is gone"
    if _DIGEST.fullmatch(now[name]):
        return f"{name} was edited"
    return f"{name} {before[name]} is now {now[name]}"


def _is_known(name: str) -> bool:
    top = name.partition(".")[0]
    return top == "rlvr" or top in sys.stdlib_module_names


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # the distribution has another name than its module
        return str(getattr(sys.modules.get(package), "__version__", "unknown"))


def _file_of(name: str) -> Path | None:
    """The file of a module, loaded or not; an import in a function runs when a completion is scored."""
    path = getattr(sys.modules.get(name), "__file__", None)
    parent = name.rpartition(".")[0]
    if name not in sys.modules and (
        not parent or parent in sys.modules
    ):  # a search would load its parent
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            path = getattr(importlib.util.find_spec(name), "origin", None)
    return Path(path) if path and Path(path).is_file() else None


def _imported_by(name: str, text: bytes) -> Iterator[str]:
    """Names of the modules that a file imports, and of those that what it holds comes from."""
    module = sys.modules.get(name)
    for value in list(vars(module).values()) if module is not None else ():
        other = (
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        )
        path = _file_of(other) if isinstance(other, str) and other in sys.modules else None
        if (
            isinstance(other, str)
            and path is not None
            and not any(part in _PACKAGES for part in path.parts)
        ):
            yield other  # a package that is imported is named below
    package = getattr(module, "__package__", None) or name.rpartition(".")[0]
    with contextlib.suppress(
        SyntaxError, ValueError, RecursionError
    ):  # an extension module is no text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parents = (
                    package.split(".")[: len(package.split(".")) - node.level + 1]
                    if node.level
                    else []
                )
                base = ".".join([*parents, *filter(None, [node.module])])
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _modules_of(env: Environment) -> set[str]:
    """The modules of the classes and functions in an environment, its options and its reward."""
    modules = {cls.__module__ for cls in type(env).__mro__}
    todo: list[Any] = [env, env.reward]
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        value = todo.pop()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that no other object gets its id
        if isinstance(value, functools.partial):
            todo += [value.func, *value.args, *value.keywords.values()]
            continue
        modules |= {cls.__module__ for cls in type(value).__mro__}
        with contextlib.suppress(
            Exception
        ):  # an option may be any object, one that raises when it is looked at too
            modules.add(str(getattr(value, "__module__", "")))
            todo += _inside(value)
    return modules


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, ModuleType):
        return []
    closure = [
        cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_filled(cell)
    ]
    fields = [
        getattr(value, name, None)
        for name in getattr(type(value), "__slots__", ())
        if isinstance(name, str)
    ]
    return [*closure, *fields, *getattr(value, "__dict__", {}).values()]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is bound later
        return False
