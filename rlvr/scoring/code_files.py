"""Which code takes part in judging: digests of rlvr's files and of one's own, versions
of packages and of Python.

Found by reading: the modules of environment, verifier and reward, and what they import, also in
functions.  What is imported by a name that is computed is seen in the worker, see
`rlvr.scoring.watch`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import locale
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import FunctionType, ModuleType

from rlvr.environment import Environment
from rlvr.scoring.held_values import fields_of, objects_in, vars_of
from rlvr.scoring.loaded_code import digest_of_loaded

__all__ = [
    "code_of",
    "digest",
    "is_installed",
    "is_library",
    "module_version",
    "package_version",
]

_PACKAGES = ("site-packages", "dist-packages")
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_ROOTS = ("rlvr.scoring.items", "rlvr.scoring.scorer")
"""What makes an item of a row and a score of observations, beside the environment's own modules."""

_STARTED = ("sitecustomize", "usercustomize")
"""What Python runs before all else, where it is there: it may change anything."""

# All of `rlvr.data` but `columns`, which decides what columns a row is made of.
_DECIDES_NOTHING = re.compile(
    r"rlvr(\.(cli|collect|console|display|engines|errors|extras|http|serve|train|viewer|workers)"
    r"(\..*)?"
    r"|\.data(\.(?!columns$).*)?"
    r"|\.scoring(\.(?!items$|ordering$|scorer$).*)?)?"
)
"""Modules that carry, keep or show; a change there is no other judge."""

_IMPORT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)|import[ \t]+"
    rb"([^\n;]+))",
    re.MULTILINE,
)
_WORD = re.compile(rb"[A-Za-z_]\w*")


def digest(content: bytes) -> str:
    """The digest of a file's content, or of a value.

    Args:
        content: the bytes.
    """
    return hashlib.sha256(content).hexdigest()[:16]


def code_of(env: Environment) -> dict[str, str]:
    """Module → digest of its file, `package NAME` → version, and `python`, for all that judges.

    Modules go by name, not by path: the same files in another folder are the same code.

    Args:
        env: the environment.
    """
    versions = {"python": _python()}
    todo, visited = [*_ROOTS, *_STARTED, *_modules_of(env)], set[str]()
    while todo:
        name = todo.pop()
        if name in visited:
            continue
        visited.add(name)
        # A library in C, whose version Python's own does not say.
        if name == "sqlite3":
            versions["sqlite"] = importlib.import_module("sqlite3").sqlite_version
        version = module_version(name)
        if version is None:
            continue
        versions[version[0]] = version[1]
        path = _file_of(name)
        # Packages are known by their version; files of one's own are read on.
        if version[0] == name and path is not None:
            todo += _read(name, str(path), *_state(path))[1]
            # A name that is bound to something imported elsewhere is not in the text.
            if not name.startswith("rlvr."):
                todo += _held_by(name)
    return {**dict.fromkeys(_STARTED, "absent"), **versions}


def _python() -> str:
    """The version of Python, and how it was started: without assertions, with other digits in a
    whole number, or with other letters in a file, a judge may be another one."""
    words = [platform.python_version()]
    if sys.flags.optimize:
        words.append("-O")
    # The limit decides whether a long number is read or refused.
    digits = sys.get_int_max_str_digits()
    if digits != sys.int_info.default_max_str_digits:
        words.append(f"int_max_str_digits={digits}")
    # what `open` takes; `locale.getencoding` says ASCII in a C locale, where Python takes UTF-8
    encoding = locale.getpreferredencoding(False).lower()
    if encoding != "utf-8":
        words.append(encoding)
    return " ".join(words)


def module_version(name: str) -> tuple[str, str] | None:
    """(name, digest) of a module, (`package NAME`, version) of an installed one; None for one that
    decides nothing.

    Args:
        name: of the module.
    """
    if name in _STARTED:  # which Python has run, wherever it stands
        path = _file_of(name) if name in sys.modules else None
        return None if path is None else (name, _read(name, str(path), *_state(path))[0])
    top = name.partition(".")[0]
    if _DECIDES_NOTHING.fullmatch(name) or top in sys.stdlib_module_names:
        return None
    path = _file_of(name) or _file_of_package(top)
    if path is None:  # of a notebook, inside an archive, or made by a loader of one's own
        loaded = digest_of_loaded(name)
        return None if loaded is None else (name, loaded)
    if is_installed(str(path), name):
        version = package_version(top)
        return None if version == "unknown" else (f"package {top}", version)
    return name, _read(name, str(path), *_state(path))[0]


def is_installed(path: str, module: str = "") -> bool:
    """Whether a file belongs to Python or to an installed package, whose version speaks for it.

    rlvr's own files are always looked at: two copies of one version may differ.

    Args:
        path: of the file.
        module: its name, if it is one.
    """
    if module.startswith("rlvr."):
        return False
    return is_library(path) or any(part in _PACKAGES for part in Path(path).parts)


def is_library(path: str) -> bool:
    """Whether a file is of Python's own library.

    Args:
        path: of the file, as a code object names it.
    """
    # Frozen modules are of Python itself.
    return path.startswith((*_PYTHON, "<frozen")) and not any(name in path for name in _PACKAGES)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


# Keyed by time and size: an edited file is read again.
@functools.lru_cache(maxsize=4096)
def _read(name: str, path: str, mtime_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """(digest, names that it imports) of a file in this state."""
    text = Path(path).read_bytes()
    is_package = Path(path).name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    return digest(text), tuple(_imported_by(text, package))


def _imported_by(text: bytes, package: str) -> Iterator[str]:
    """Names of the modules that a file imports, wherever; a sentence that reads like an import does
    no harm."""
    for base, names, modules in _IMPORT.findall(text):
        if modules:
            for clause in modules.split(b","):
                yield clause.strip().partition(b" ")[0].decode("ascii", "replace")
            continue
        # Dots count levels upwards, as Python resolves them.
        level = len(base) - len(base.lstrip(b"."))
        above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        start = ".".join([*above, *filter(None, [base.lstrip(b".").decode("ascii", "replace")])])
        yield start
        # A word may be a module or a name in it: one that is no module has no file.
        yield from (f"{start}.{word.decode()}" for word in _WORD.findall(names))


def _held_by(name: str) -> Iterator[str]:
    """Names of the modules from which what a module holds comes."""
    for value in list(vars_of(name).values()):
        is_module = isinstance(value, ModuleType)
        module_name = value.__name__ if is_module else getattr(value, "__module__", None)
        path = (
            _file_of(module_name)
            if isinstance(module_name, str) and module_name in sys.modules
            else None
        )
        if (
            isinstance(module_name, str)
            and path is not None
            and not is_installed(str(path), module_name)
        ):
            yield module_name  # a package that is imported is named in the text


@functools.cache
def package_version(package: str) -> str:
    """The version of the distribution that a module comes from; "unknown" if there is none.

    Args:
        package: the module.
    """
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    for distribution in packages_distributions().get(package, ()):
        return version(distribution)
    return "unknown"


def _file_of(name: str) -> Path | None:
    """The file of a module, loaded or not; an import in a function runs when a completion is
    scored."""
    if name in sys.modules:
        # Not by `getattr`, which a module may answer with anything.
        path = vars_of(name).get("__file__")
        # A module without a file, such as a namespace package.
        return Path(path) if isinstance(path, str) and Path(path).is_file() else None
    parent, _, last = name.rpartition(".")
    if parent:
        inside = [Path(folder, last) for folder in _folders_of(parent)]
        places = [place for stem in inside for place in (stem / "__init__.py", Path(f"{stem}.py"))]
        # Without loading it: an import could run anything.
        return next((place for place in places if place.is_file()), None)
    spec = _spec_of(name)
    path = None if spec is None else spec.origin
    return Path(path) if path and Path(path).is_file() else None


def _file_of_package(top: str) -> Path | None:
    """The file of an installed package: its version speaks for what it makes without one."""
    path = _file_of(top)
    return path if path is not None and is_installed(str(path), top) else None


def _folders_of(package: str) -> list[str]:
    """Where the modules of a package stand; nothing is loaded to find out."""
    if package in sys.modules:
        return [*map(str, vars_of(package).get("__path__") or ())]
    path = _file_of(package)
    if path is not None:
        return [str(path.parent)] if path.name == "__init__.py" else []
    parent = package.rpartition(".")[0]
    spec = _spec_of(package) if not parent or parent in sys.modules else None
    return [] if spec is None else list(spec.submodule_search_locations or ())


def _spec_of(name: str) -> ModuleSpec | None:
    # `find_spec` raises ValueError for a module without a spec, a finder of the user's the others.
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        return importlib.util.find_spec(name)
    return None


def _modules_of(env: Environment) -> set[str]:
    """The modules of the classes and functions in an environment, its options and its reward."""
    modules = {cls.__module__ for cls in type(env).__mro__}
    for value in objects_in(env, env.reward):
        modules |= {cls.__module__ for cls in type(value).__mro__}
        is_code = issubclass(type(value), (FunctionType, type))
        modules.add(str(value.__module__ if is_code else fields_of(value).get("__module__")))
    return modules
