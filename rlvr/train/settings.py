"""Settings of a run from a file and from flags: their names, their types, and the numbers of an algorithm one by one.

The names of a file are those of `Config`; those of an algorithm's numbers are the fields of `Algorithm`, with the
field's name before those of its parts: `clip_high` is `Algorithm.clip.high`.  Needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import docstring_parser

from rlvr.algo.presets import Algorithm, preset
from rlvr.errors import UsageError, brief
from rlvr.train.config import Config
from rlvr.validate import nearest

__all__ = ["Number", "changed", "merged", "numbers", "parsed", "read_settings", "typed"]

_BEGINS: Final[Mapping[str, Mapping[str, Any]]] = {"kl": {"estimator": "k3", "place": "loss"}}
"""What a part of an algorithm has besides the numbers that are given, where the preset does without this part."""
_DERIVED: Final = frozenset({"needs"})
"""What runs have recorded of their algorithm that follows from the rest of it."""
_NOT_NUMBERS: Final = frozenset({"paper", "sources"})


class Number(NamedTuple):
    """A number, choice or switch of an algorithm.

    Attributes:
        part: the field of `Algorithm` that holds it: "clip", or None for one of the algorithm's own.
        name: of the field, such as "high"; empty for the part as a whole, which can only be "none".
        hint: its type.
        help: what it is.
    """

    part: str | None
    name: str
    hint: Any
    help: str


@cache
def numbers() -> Mapping[str, Number]:
    """Every number of an algorithm by its flat name; without those that a `Config` has itself."""
    found: dict[str, Number] = {}
    ours = {field.name for field in dataclasses.fields(Config)}
    texts = _described(Algorithm)
    for name, hint in get_type_hints(Algorithm).items():
        if name in ours or name in _NOT_NUMBERS:
            continue
        part = next((one for one in (hint, *get_args(hint)) if dataclasses.is_dataclass(one)), None)
        if part is None:
            found[name] = Number(None, name, hint, texts[name])
            continue
        inner = _described(part)
        for field, of in get_type_hints(part).items():
            found[f"{name}_{field}"] = Number(name, field, of, inner[field])
        if type(None) in get_args(hint):
            found[name] = Number(name, "", Literal["none"], f"none: without; {texts[name]}")
    return found


def _described(kind: Any) -> dict[str, str]:
    """The text of each attribute in a class's docstring."""
    said = {
        name: one.description or "" for one in _sections(kind) for name in one.arg_name.split(", ")
    }
    return {name: " ".join(said.get(name, "").split()) for name in get_type_hints(kind)}


def _sections(kind: Any) -> list[docstring_parser.DocstringParam]:
    return docstring_parser.parse(kind.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE).params


def changed(algorithm: Algorithm, changes: Mapping[str, Any]) -> Algorithm:
    """The algorithm with other numbers.

    Args:
        algorithm: such as a preset.
        changes: flat name → value, such as {"clip_high": 0.3}; None or "none" for a part as a whole leaves it out, and
            so does a `kl_coefficient` of 0.

    Raises:
        UsageError: there is no such number, or these do not fit each other.
    """
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        number = _number(name)
        value = typed(name, value, number.hint) if number.name else None
        if number.part is None:
            fields[number.name] = value
        else:
            parts.setdefault(number.part, {})[number.name] = value
    for part, values in parts.items():
        fields[part] = _changed_part(algorithm, part, values)
    return dataclasses.replace(algorithm, **fields)


def _changed_part(algorithm: Algorithm, part: str, values: Mapping[str, Any]) -> Any:
    if "" in values or (part == "kl" and values.get("coefficient") == 0):
        if rest := [
            f"{part}_{name}" for name in values if name and (part, name) != ("kl", "coefficient")
        ]:
            raise UsageError(
                f"{', '.join(rest)} and no {part} contradict each other; leave one out"
            )
        return None
    now = getattr(algorithm, part)
    if now is not None:
        return dataclasses.replace(now, **values)
    kind: Any = next(
        one for one in get_args(get_type_hints(Algorithm)[part]) if dataclasses.is_dataclass(one)
    )
    needed = {
        field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING
    }
    given = {**_BEGINS.get(part, {}), **values}
    if missing := sorted(needed - given.keys()):
        raise UsageError(
            f"{part}_{next(iter(values))} is given, and this algorithm has no {part}; "
            f"give {', '.join(f'{part}_{name}' for name in missing)} too"
        )
    return kind(**given)


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of an algorithm from two places, of which the second wins; see `changed`.

    Args:
        first: such as those of a file.
        then: such as those of flags.
    """
    known = numbers()
    whole = {known[name].part for name in then if name in known and not known[name].name}
    inner = {known[name].part for name in then if name in known and known[name].name}
    kept = {
        name: value
        for name, value in first.items()
        if known[name].part is None
        or known[name].part not in (inner if not known[name].name else whole)
    }
    return {**kept, **then}


def _number(name: str) -> Number:
    known = numbers()
    if name not in known:
        raise UsageError(f"an algorithm has no number {name!r}{nearest(name, list(known))}")
    return known[name]


def parsed(name: str, text: str) -> Any:
    """The value of an algorithm's number from the text after its flag.

    Args:
        name: flat name.
        text: as it was typed.

    Raises:
        UsageError: it is no value of this number.
    """
    hint = _number(name).hint
    if get_origin(hint) is tuple:
        return typed(name, tuple(text.split(",")) if text != "none" else (), hint)
    try:
        value = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        value = text
    return typed(name, value, hint)


def typed(name: str, value: Any, hint: Any) -> Any:
    """A value as its type has it: whole numbers become floats, lists tuples, and "none" None where that is allowed.

    Args:
        name: of the setting, for the message.
        value: as TOML or JSON has it.
        hint: the type.

    Raises:
        UsageError: the value is of another type.
    """
    found, rule = _typed(value, hint)
    if rule:
        raise UsageError(f"{name} is {brief(value)}; it must be {rule}")
    return found


def _typed(value: Any, hint: Any) -> tuple[Any, str]:
    """(The value as its type has it, empty), or (None, what it must be)."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if type(None) in args and value in (None, "none"):
            return None, ""
        tried = [_typed(value, one) for one in args if one is not type(None)]
        known = [one for one in tried if not one[1]]
        return (
            known[0]
            if known
            else (None, " or ".join([rule for _, rule in tried] + ["none"] * (type(None) in args)))
        )
    if origin is Literal:
        return (value, "") if value in args else (None, f"one of {', '.join(map(repr, args))}")
    if origin is tuple:
        return _typed_tuple(value, args)
    if hint is Any:
        return value, ""
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return (None, "a number") if math.isnan(value) else (float(value), "")
    plain = origin or hint
    if plain is Path:
        return (Path(value), "") if isinstance(value, str | Path) else (None, "a path")
    fits = isinstance(value, plain) and not (isinstance(value, bool) and plain is not bool)
    return (value, "") if fits else (None, _RULES.get(plain, f"a {plain.__name__}"))


def _typed_tuple(value: Any, args: tuple[Any, ...]) -> tuple[Any, str]:
    endless = len(args) == 2 and args[1] is Ellipsis
    rule = (
        f"a list, each {_typed(object(), args[0])[1]}"
        if endless
        else f"a list of {len(args)} numbers"
    )
    if not isinstance(value, list | tuple) or not (endless or len(value) == len(args)):
        return None, rule
    found = [_typed(one, args[0] if endless else args[i]) for i, one in enumerate(value)]
    return (None, rule) if any(why for _, why in found) else (tuple(one for one, _ in found), "")


_RULES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Mapping: "a table",
}


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, or of a JSON file such as a run's `config.json`.

    `algorithm` is the name of a preset, or a table with all fields of `Algorithm`; single numbers of the preset, such
    as `clip_high`, stand beside it.  A run's `config.json` says that its folder is the run.

    Args:
        path: the file; TOML unless its name ends with .json.

    Returns:
        Names → values, each of its type.

    Raises:
        UsageError: it cannot be read, has an unknown name, or a value of another type.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:  # both parsers' errors are ValueErrors
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"cannot read settings from {path}: {why}; give a TOML file, or a run's config.json"
        ) from None
    is_run = isinstance(found, dict) and isinstance(found.get("settings"), dict)
    if is_run:
        found = {"run": str(path.parent), **found["settings"]}
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds a {type(found).__name__}; it must be a table of settings")
    hints, known = get_type_hints(Config), numbers()
    try:
        return {name: _setting(name, value, hints, known) for name, value in found.items()}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _setting(name: str, value: Any, hints: Mapping[str, Any], known: Mapping[str, Number]) -> Any:
    if name == "algorithm":
        return _preset_name(value) if isinstance(value, str) else _algorithm(value)
    if name in hints:
        return typed(name, value, hints[name])
    if isinstance(value, Mapping) and (inner := [one for one in known if known[one].part == name]):
        raise UsageError(
            f"there is no table {name!r}; write its numbers one by one, such as {inner[0]}"
        )
    if name in known:
        return typed(name, value, known[name].hint)
    raise UsageError(f"there is no setting {name!r}{nearest(name, [*hints, *known])}")


def _preset_name(name: str) -> str:
    preset(name)  # which refuses a name that is none
    return name


def _algorithm(table: Any) -> Algorithm:
    """An `Algorithm` from what `dataclasses.asdict` made of it."""
    found = _made(Algorithm, "algorithm", table)
    assert isinstance(found, Algorithm)
    return found


def _made(kind: Any, name: str, table: Any) -> Any:
    if not isinstance(table, Mapping):
        raise UsageError(
            f"{name} is {brief(table)}; it must be a table"
            + " or a preset's name" * (kind is Algorithm)
        )
    hints = get_type_hints(kind)
    for key in table:
        if key not in hints and key not in _DERIVED:
            raise UsageError(f"{name} has no {key!r}{nearest(key, list(hints))}")
    values = {}
    for key, value in table.items():
        if key in _DERIVED:
            continue
        part = next(
            (one for one in (hints[key], *get_args(hints[key])) if dataclasses.is_dataclass(one)),
            None,
        )
        if part is not None and value is not None:
            values[key] = _made(part, f"{name}.{key}", value)
        else:
            values[key] = typed(f"{name}.{key}", value, hints[key])
    fields = [field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    if missing := [field.name for field in fields if field.name not in values]:
        raise UsageError(
            f"{name} lacks {', '.join(missing)}; a table has to have every field without a default"
        )
    return kind(**values)
