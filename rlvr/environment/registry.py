"""Environments by versioned id.

A package, rlvr itself included, names its environments under the entry-point group `rlvr.envs`.
They are imported when they are asked for.

    [project.entry-points."rlvr.envs"]
    "chess-mates-v1" = "my_package.chess:Mates"
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import MISSING
from functools import lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, cast

from rlvr.environment.base import Environment
from rlvr.environment.plain import environment_class, is_plain
from rlvr.errors import RlvrError, UnknownEnvironment, UntrustedPlace, UsageError, brief
from rlvr.types import JsonObject
from rlvr.validate import nearest

__all__ = [
    "SHARE",
    "defaults_of",
    "environment_ids",
    "is_mixture",
    "load",
    "make",
    "object_at",
    "only_places",
    "read_option",
    "register",
    "takes_options",
]

_GROUP = "rlvr.envs"

_C = TypeVar("_C", bound=type[Environment])
_ID = re.compile(r"(?:[a-z0-9_.-]+/)?[a-z0-9_.-]+-v[0-9]+")
_registered: dict[str, type[Environment]] = {}
_allowed: ContextVar[frozenset[str] | None] = ContextVar("places", default=None)  # None: any

SHARE = re.compile(
    r"(?P<env>\S+?):(?P<weight>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<rest>,\S*)?"
)
"""An environment of a mixture that is written in one line: ENV:WEIGHT,
with options after a comma."""

_MIXTURE = "mixture-v1"

_VERSIONS = {
    2: "desk",
    3: "code-stdio humaneval mbpp",
    4: "chem countdown function-call game24 gsm8k ifbench ifeval iftrain json kk math mcq "
    "python-tool-math qa reasoning-gym rows science search sql sudoku zebra",
}
"""Environments of rlvr's own whose verdicts have changed, by their version of now."""

_RETIRED = {
    f"{name}-v{old}": f"{name}-v{version}"
    for version, names in _VERSIONS.items()
    for name in names.split()
    for old in range(1, version)
}
"""Ids of rlvr's own whose verdicts have changed, with their successors."""


def register(id: str) -> Callable[[_C], _C]:
    """Class decorator that gives an environment its id, `[owner/]name-vN` in lower case.

    The version goes up whenever tasks, prompts or verdicts of the environment change.  Registering
    the same class again, as a notebook does when a cell is run twice, replaces it.

    Args:
        id: the id.

    Raises:
        UsageError: the id is malformed, or another class has it.
    """
    if not isinstance(id, str):
        raise UsageError(
            f"@register on {id!r}: write its id in parentheses, @rlvr.register('gsm8k-v4')"
        )
    if not _ID.fullmatch(id):
        raise UsageError(
            f"environment id {id!r}: write [owner/]name-vN in lower case, such as 'gsm8k-v4'"
        )

    def decorate(cls: _C) -> _C:
        if is_plain(cls):
            cls = cast("_C", environment_class(cls))  # type: ignore[arg-type]
        if not (isinstance(cls, type) and issubclass(cls, Environment)):
            raise UsageError(
                f"register({id!r}) is for subclasses of rlvr.Environment, and classes with task "
                f"and verify, not {cls!r}"
            )
        registered = _registered.get(id)
        if registered is not None and _where(registered) != _where(cls):
            raise UsageError(
                f"environment id {id!r} belongs to {_where(registered)}; {_where(cls)} needs "
                f"another"
            )
        if cls.id != id and _registered.get(cls.id) is cls:  # its tasks are drawn from its id
            raise UsageError(
                f"{_where(cls)} is {cls.id!r} already; to have it as {id!r} too, register a "
                f"subclass"
            )
        cls.id = id
        _registered[id] = cls
        return cls

    return decorate


def environment_ids() -> list[str]:
    """Every id that `make` knows, sorted."""
    return sorted({*_registered, *_entry_points()})


def load(id: str) -> type[Environment]:
    """The class of an environment.

    Args:
        id: a registered id, or `"module:Class"` or `"path/to/file.py:Class"`.

    Raises:
        UnknownEnvironment: there is no such environment, or its id is retired; the message names
            the nearest id, or the successor.
        UsageError: the entry point of the id cannot be loaded.
    """
    if is_mixture(id):
        return load(_MIXTURE)
    if not isinstance(id, str):
        raise UnknownEnvironment(
            f"{id!r} is no environment id; write one such as 'gsm8k-v4', or call the class itself"
        )
    if ":" in id:
        loaded = object_at(id)
        if is_plain(loaded):
            return environment_class(loaded)
        if not _is_class(loaded):
            raise UnknownEnvironment(f"{id!r} is {brief(loaded)}, not an environment class")
        return cast("type[Environment]", loaded)
    if id not in _registered and id in _entry_points():
        point = _entry_points()[id]
        try:
            cls = point.load()
        except RlvrError:
            raise  # such as an optional part that is not installed
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"entry point {id!r} cannot be loaded: {error}; fix or uninstall its package"
            ) from error
        if _registered.get(id) is not cls:
            raise UsageError(
                f"entry point {id!r} leads to {point.value}; put @rlvr.register({id!r}) on that "
                f"class"
            )
    if id not in _registered:
        raise UnknownEnvironment(_unknown_error(id))
    return _registered[id]


def make(id: str, **config: Any) -> Environment:
    """An environment by id, with options: `rlvr.make("gsm8k-v4", split="test")`.

    Several ids with weights, `"arithmetic-v1:0.5 gsm8k-v4:0.5"`, make a mixture, see
    `rlvr.Mixture`.  A place may also hold an environment, such as one that `from_rows` made, or a
    function without arguments that gives one; then there are no options.

    Args:
        id: see `load`.
        config: options of the environment by name; and `reward`, an expression, for another reward
            than its own: `"2*correct - 1 + 0.2*format('<think>...</think>')"`.

    Raises:
        UnknownEnvironment: there is no such environment.
        UsageError: it has no such option, or an option without a default is missing; or the reward
            is no expression.
    """
    reward = config.pop("reward", None)
    env = _with_options(id, config)
    load = partial(object_at, what="part of a reward")
    return env.with_reward_text(reward, load) if reward is not None else env


def _with_options(id: str, config: JsonObject) -> Environment:
    if is_mixture(id):
        config = {"envs": id, **config}  # of a record, they are among its options
    elif not takes_options(id):
        return _call_factory(id, config)
    cls = load(id)
    options = cls.options()
    for name in config:
        if name not in options:
            raise UsageError(
                f"{id} has no option {name!r}; its options are "
                f"{', '.join(options)}{nearest(name, options)}"
            )
    missing = [
        name for name, default in options.items() if default is MISSING and name not in config
    ]
    if missing:
        raise UsageError(f"{id} needs the option {', '.join(missing)}, which has no default")
    return cls(**config)


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def defaults_of(id: str) -> dict[str, object]:
    """The options that `make` takes for an environment, with their defaults; `dataclasses.MISSING`
    where there is none.

    Args:
        id: what `make` takes.

    Raises:
        UnknownEnvironment, UsageError: see `load`.
    """
    return load(id).options() if takes_options(id) else {}


def takes_options(id: str) -> bool:
    """False where the environment is an object at a place, or comes from a function there, and is
    as it is.

    Args:
        id: what `make` takes.
    """
    return not isinstance(id, str) or ":" not in id or is_mixture(id) or _is_class(object_at(id))


def is_mixture(id: str) -> bool:
    """True for a mixture that is written in one line, such as "arithmetic-v1:0.5 gsm8k-v4:0.5".

    Args:
        id: what `make` takes.
    """
    return isinstance(id, str) and any(SHARE.fullmatch(piece) for piece in id.split())


def read_option(name: str, default: object, value: str) -> Any:
    """An option's value from text: it stays text where the default is one, and is JSON otherwise.

    Where the default does not tell (None, or there is none) it is JSON if it can be, else text.

    Args:
        name: of the option, for errors.
        default: of the option; `dataclasses.MISSING` if there is none.
        value: as it was typed.

    Raises:
        UsageError: it must be JSON and is not.
    """
    if isinstance(default, str):
        return value
    if isinstance(default, bool) and value in ("True", "False"):  # as Python writes them
        return value == "True"
    try:
        return json.loads(value)
    except ValueError:
        if default is not None and default is not MISSING:
            raise UsageError(f"{name}: {value!r} is not a value like {default!r}") from None
        return value


def object_at(place: str, *, what: str = "environment") -> Any:
    """What stands at `"module:name"` or `"path/to/file.py:name"`.

    Args:
        place: the place.
        what: what is looked for; errors name it.

    Raises:
        UnknownEnvironment: nothing stands there.
        UntrustedPlace: a file names it, and the user did not.
    """
    allowed = _allowed.get()
    if allowed is not None and place not in allowed:
        raise UntrustedPlace(
            f"the {what} {place!r} is code that a record names, and only you name code: look at "
            f"it, then pass --allow {place} (in Python allow=[{place!r}])"
        )
    file, _, name = place.rpartition(":")
    try:
        if not file or (file.startswith(".") and not file.endswith(".py")):
            raise ImportError("that is no module")
        module = _import_file(Path(file)) if file.endswith(".py") else importlib.import_module(file)
        return getattr(module, name)
    except RlvrError:
        raise  # raised by the module itself, such as MissingDependency
    except (ImportError, FileNotFoundError, AttributeError) as error:
        raise UnknownEnvironment(
            f"no {what} at {place!r}: {error}; write module:name or path/to/file.py:name"
        ) from error
    except SystemExit as error:
        raise UnknownEnvironment(
            f"no {what} at {place!r}: importing {file} ended in SystemExit: {error}; put what runs "
            "as a program under if __name__ == '__main__'"
        ) from error


@contextlib.contextmanager
def only_places(places: Iterable[str]) -> Iterator[None]:
    """Within this, `object_at` and with it `make` run no code at any other place: names come from a
    file.

    Ids lead to packages that are installed, so they are not refused.

    Args:
        places: that the user has named.
    """
    token = _allowed.set(frozenset(places))
    try:
        yield
    finally:
        _allowed.reset(token)


def _is_class(found: object) -> bool:
    return is_plain(found) or (isinstance(found, type) and issubclass(found, Environment))


def _is_factory(found: object) -> bool:
    """A function that can be called as it is."""
    if not callable(found) or isinstance(found, (Environment, type)):
        return False
    with contextlib.suppress(ValueError):  # of C, without a signature
        parameters = inspect.signature(found).parameters.values()
        return all(
            parameter.default is not parameter.empty
            or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            for parameter in parameters
        )
    return False


def _call_factory(id: str, config: JsonObject) -> Environment:
    """The environment at a place that holds no class."""
    value = object_at(id)
    env = value() if _is_factory(value) else value
    if not isinstance(env, Environment):
        raise UnknownEnvironment(
            f"{id!r} is {brief(value)}{f', which gave {brief(env)}' if env is not value else ''}; "
            "name an environment class, an environment, or a function without arguments that "
            "gives one"
        )
    if config:
        raise UsageError(
            f"{id} is an environment as it is and has no option {next(iter(config))!r}; name a "
            f"class for that"
        )
    return env


def _import_file(path: Path) -> object:
    """Import a file under its own name, its folder on the path, so that workers can import it
    too."""
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if "." in path.stem:
        raise ImportError(
            f"Python imports no file with a dot in its name, {path.stem!r}; rename it"
        )
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != path:
        raise ImportError(
            f"the name {path.stem!r} is taken by {getattr(module, '__file__', module)}; rename the "
            f"file"
        )
    return module


def _unknown_error(id: str) -> str:
    if id in _RETIRED:
        return (
            f"environment {id!r} is retired: its verdicts have changed, so records of it cannot be "
            f"repeated; its successor is {_RETIRED[id]!r}"
        )
    ids = environment_ids()
    if not ids:
        return (
            f"no environment {id!r}, nor any other: rlvr runs from a folder that "
            "was never installed; pip install -e ."
        )
    versions = [
        candidate
        for candidate in ids
        if candidate.rpartition("-v")[0] == (id.rpartition("-v")[0] or id)
    ]
    if versions:
        return f"no environment {id!r}; of this name there is {' and '.join(versions)}"
    return f"no environment {id!r}; `rlvr envs` lists all{nearest(id.lower(), ids)}"


def _where(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
