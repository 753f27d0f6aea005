"""Options of an environment: their values are checked against the annotated types.

A typo in a value should be one clear error, not a wrong task.  Simple types are checked; values of
other types are passed on as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rlvr.errors import UsageError, brief
from rlvr.types import plain

__all__ = ["check_annotations", "typed_options"]


def check_annotations(cls: type) -> None:
    """Refuse annotations that make an option by accident, and mutable defaults, which all
    environments would share.

    Args:
        cls: the class of an environment.

    Raises:
        UsageError: names the annotation or default, with the fix.
    """
    for name, kind in inspect.get_annotations(cls).items():
        if "ClassVar" in str(kind):
            continue
        if name == "id":  # seeds depend on it, so two of one class cannot differ in it
            raise UsageError(
                f"{cls.__name__}: the id is no option; write id = … without a type, or "
                f"@rlvr.register(…)"
            )
        # an option is recorded with its value, and a reward has no place in JSON
        if name == "reward":
            raise UsageError(
                f"{cls.__name__}: the reward is no option; write reward = … without a type"
            )
        default = cls.__dict__.get(name)
        if isinstance(default, (list, dict, set)):
            raise UsageError(
                f"{cls.__name__}: all would share the default {name} = {default!r}; make it a "
                f"tuple, or write "
                f"{name}: … = dataclasses.field(default_factory={type(default).__name__})"
            )


def typed_options(
    cls: type, given: dict[str, object], defaults: dict[str, object]
) -> dict[str, object]:
    """The options with the types that are annotated: a list becomes a tuple if one is annotated, as
    JSON has no tuples.

    Args:
        cls: the class of the environment.
        given: options by name.
        defaults: of all options; an error shows the default as an example.

    Raises:
        UsageError: an option has another type.
    """
    try:
        kinds = get_type_hints(cls)
    except (NameError, TypeError):  # names that only the author's function or type checker knows
        return given
    read = {}
    for name, value in given.items():
        try:
            read[name] = _read(value, kinds.get(name, Any))
        except TypeError:
            such = (
                f", such as {defaults[name]!r}"
                if isinstance(defaults.get(name), (str, int, float, tuple))
                else ""
            )
            raise UsageError(
                f"{cls.__name__}: {name} is {brief(value)}; it must be "
                f"{_type_name(kinds[name])}{such}"
            ) from None
    return read


def _read(value: object, kind: object) -> Any:
    """The value as this type; TypeError if it is of another."""
    origin, kinds = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _as_one_of(value, kinds)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in kinds):
            raise TypeError
        return value
    if origin is tuple:
        if not isinstance(value, (tuple, list)):
            raise TypeError
        item_kinds = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
        if len(item_kinds) != len(value):
            raise TypeError
        return tuple(map(_read, value, item_kinds))
    if _is_mapping(origin or kind):
        if not isinstance(value, Mapping):
            raise TypeError
        return value
    if kind not in (bool, int, float, str, NoneType):
        return value
    value = plain(value)
    if (
        type(value) is not kind
        and not (kind is float and type(value) is int)
        and not _is_subclass_value(value, kind)
    ):
        raise TypeError
    return value


def _as_one_of(value: object, kinds: Iterable[object]) -> object:
    for kind in kinds:
        try:
            return _read(value, kind)
        except TypeError:
            continue
    raise TypeError


def _is_subclass_value(value: object, kind: type) -> bool:
    """A StrEnum is a str; but True is no int, whatever Python says."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_mapping(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


_TYPE_NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


def _type_name(kind: Any) -> str:
    if _is_mapping(get_origin(kind) or kind):
        return "a mapping, in JSON an object"
    return _TYPE_NAMES.get(kind) or str(kind).replace("typing.", "")
