"""Where the code of an environment comes from: a digest of every file of one's own, the version of every package.

An id with a version says what the bundled environments do.  A class in a script has no version: an edit between a run
and its continuation would mix the scores of two programs, and only the text of the file can tell.
"""

from __future__ import annotations

import functools
import hashlib
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
_PACKAGES = ("site-packages", "dist-packages")


def source_of(env: Environment) -> dict[str, str]:
    """Module → digest of its file, or package → version, for all that an environment, its verifier and its reward run.

    Python's own modules and rlvr's are left out, and what an installed package imports.  Of one's own files those that
    they import are there too.

    Args:
        env: the environment.
    """
    found: dict[str, str] = {}
    todo, seen = [*_modules_of(env)], set[str]()
    while todo:
        name = todo.pop()
        module = sys.modules.get(name)
        if name in seen or module is None or _is_known(name):
            continue
        seen.add(name)
        path = getattr(module, "__file__", None)
        if path is None or not Path(path).is_file():
            continue
        if any(part in _PACKAGES for part in Path(path).parts):
            package = name.partition(".")[0]
            found[package] = _version(package)
        else:
            found[name] = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
            todo += _imported_by(module)
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
    return ", ".join(
        f"{name} was edited" if name in before and name in now and "." not in now[name] else _changed(name, before, now)
        for name in names
    )


def _changed(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name in before and name in now:
        return f"{name} {before[name]} is now {now[name]}"
    return f"{name} is new" if name in now else f"{name} is gone"


def _is_known(name: str) -> bool:
    top = name.partition(".")[0]
    return top == "rlvr" or top in sys.stdlib_module_names


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # the distribution has another name than its module
        return str(getattr(sys.modules.get(package), "__version__", "unknown"))


def _imported_by(module: ModuleType) -> Iterator[str]:
    """Names of the modules that a module's own names come from, if these stand in files of one's own."""
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        other = sys.modules.get(name) if isinstance(name, str) else None
        path = getattr(other, "__file__", None)
        if isinstance(name, str) and path and not any(part in _PACKAGES for part in Path(path).parts):
            yield name


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
        modules |= {cls.__module__ for cls in type(value).__mro__} | {str(getattr(value, "__module__", ""))}
        todo += _inside(value)
    return modules


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, ModuleType):
        return []
    closure = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_filled(cell)]
    fields = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if isinstance(name, str)]
    return [*closure, *fields, *getattr(value, "__dict__", {}).values()]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is bound later
        return False
