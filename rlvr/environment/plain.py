"""A class that has `task` or `tasks` and `verify`, and no base of ours, as an environment.

    @dataclass(frozen=True, slots=True)
    class Sums:
        terms: int = 3                                   # the fields of a dataclass are options
        def task(self, index): ...
        def verify(self, task, completion): ...

`rlvr.make("sums.py:Sums", terms=4)` and `@rlvr.register("sums-v1")` take it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from rlvr.environment.base import Environment

__all__ = ["environment_class", "is_plain"]

_METHODS: Final = (
    "task tasks verify example find task_from reference_of setup tools user final grade "
    "turn_rewards example_episode"
).split()
_SETTINGS: Final = ("id", "reward", "domain", "max_concurrent", "outputs")


def is_plain(cls: object) -> bool:
    """Whether a class can be an environment and is none yet.

    Args:
        cls: anything.
    """
    return (
        isinstance(cls, type)
        and not issubclass(cls, Environment)
        and callable(getattr(cls, "verify", None))
        and any(callable(getattr(cls, name, None)) for name in ("task", "tasks"))
    )


@lru_cache(maxsize=256)
def environment_class(cls: type) -> type[Environment]:
    """The environment of such a class; the same one each time.

    Args:
        cls: the class.
    """
    options = [
        option
        for option in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
        if option.init
    ]
    names = [option.name for option in options]

    def post_init(self: Any) -> None:
        self._own = cls(**{name: getattr(self, name) for name in names})

    body: dict[str, object] = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__annotations__": {option.name: option.type for option in options},
        "__post_init__": post_init,
        "id": cls.__name__,
    }
    body |= {option.name: _default(option) for option in options if _default(option) is not None}
    body |= {name: getattr(cls, name) for name in _SETTINGS if hasattr(cls, name)}
    body |= {name: _forward(name) for name in _METHODS if hasattr(cls, name)}
    return type(cls.__name__, (Environment,), body)


def _default(option: dataclasses.Field[object]) -> object:
    """What stands for an option's default in the body of a class; None for none."""
    if option.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=option.default_factory)
    return (
        None if option.default is dataclasses.MISSING else dataclasses.field(default=option.default)
    )


def _forward(name: str) -> Callable[..., object]:
    def method(self: Any, *args: Any, **kwargs: object) -> Any:
        return getattr(self._own, name)(*args, **kwargs)

    method.__name__ = name
    return method
