"""The numbers of an algorithm by flat names, with their types: for flags, files and records.
Needs no torch.

The name of a number is that of its field, behind that of its part: `clip_high` is `clip.high`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import docstring_parser

from rlvr.algo.papers.base import Absent, Algorithm
from rlvr.algo.parts import Correction
from rlvr.errors import UsageError, brief
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import nearest

__all__ = [
    "Number",
    "OF_THE_RUN",
    "algorithm_numbers",
    "as_record",
    "as_typed",
    "changed",
    "flag_of",
    "from_record",
    "number_of",
    "paper_numbers",
    "parsed",
    "plain_number",
]

_BEGINS: Final[Mapping[str, JsonObject]] = {"kl": {"estimator": "k3", "place": "loss"}}
"""What a part of an algorithm has besides the numbers that are given,
where the paper does without this part."""
OF_THE_RUN: Final = frozenset({"group_size", "temperature", "overlong"})
"""Fields whose flags are the run's, as a run can have them without an algorithm's saying so."""


class Number(NamedTuple):
    """A number, choice or switch of an algorithm.

    Attributes:
        part: the field that holds it: "clip", or None for one of the algorithm's own.
        name: of the field, such as "high"; empty for the part as a whole, which can only be "none".
        hint: its type.
        help: what it is.
    """

    part: str | None
    name: str
    hint: Any
    help: str


def paper_numbers(kind: type[Algorithm]) -> Mapping[str, Number]:
    """The numbers of an algorithm by flat name, without those that are the run's.

    Args:
        kind: its class.
    """
    hashed: Any = kind
    return _numbers(hashed)


@cache
def _numbers(kind: Any) -> Mapping[str, Number]:
    by_name: dict[str, Number] = {}
    texts = _texts(kind)
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name, hint = field.name, hints[field.name]
        if name in OF_THE_RUN:
            continue
        part = _part_of(hint)
        if part is None:
            by_name[name] = Number(None, name, hint, texts.get(name, ""))
            continue
        inner = _texts(part)
        for field_name, of in get_type_hints(part).items():
            by_name[f"{name}_{field_name}"] = Number(
                name, field_name, of, inner.get(field_name, "")
            )
        if type(None) in get_args(hint):
            by_name[name] = Number(
                name, "", Literal["none"], f"none: without; {texts.get(name, '')}"
            )
    return by_name


def _part_of(hint: Any) -> Any:
    """The class of a part, such as `Kl` of `Kl | None`; None for a plain number."""
    if get_origin(hint) is tuple:
        return None
    return next(
        (candidate for candidate in (hint, *get_args(hint)) if dataclasses.is_dataclass(candidate)),
        None,
    )


def _texts(kind: Any) -> dict[str, str]:
    """The text of each attribute in the docstrings of a class and of those below it."""
    texts: dict[str, str] = {}
    # From the base up, so that a subclass's own text replaces the inherited one.
    for base in reversed(kind.__mro__):
        parsed = docstring_parser.parse(base.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE)
        for parameter in parsed.params:
            for name in parameter.arg_name.split(", "):
                texts[name] = " ".join((parameter.description or "").split())
    return texts


def flag_of(name: str) -> str:
    """The flag of a number: `--clip-high` of `clip_high`."""
    return f"--{name.replace('_', '-')}"


def _of_others(name: str) -> list[str]:
    """The published algorithms that have a number of this name."""
    from rlvr.algo import papers

    return [
        paper_name
        for paper_name in papers.NAMES
        if name in paper_numbers(papers.algorithm_class(paper_name))
    ]


def number_of(algorithm: Algorithm, name: str, written: str = "") -> Number:
    """One of an algorithm's numbers.

    Args:
        algorithm: whose.
        name: flat name.
        written: as the user wrote it, such as a flag; empty for the name.

    Raises:
        UsageError: it has none of this name; the error says which algorithms have it.
    """
    own_numbers = paper_numbers(type(algorithm))
    if name in own_numbers:
        return own_numbers[name]
    if owners := _of_others(name):
        listed = f"{', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it"
    else:
        listed = f"it has {', '.join(own_numbers)}"
    raise UsageError(
        f"{written or name} is no number of {algorithm.label}{nearest(name, list(own_numbers))}; "
        f"{listed}"
    )


def changed(algorithm: Algorithm, changes: Mapping[str, Any]) -> Algorithm:
    """The algorithm with other numbers.

    Args:
        algorithm: such as a paper's.
        changes: flat name → value, such as {"clip_high": 0.3}; None or "none" for a part as a whole
            leaves it out, and so does a `kl_coefficient` of 0.

    Raises:
        UsageError: the algorithm has no such number, or these do not fit each other.
    """
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    hints = get_type_hints(type(algorithm))
    for name, value in changes.items():
        if name in OF_THE_RUN and name in hints:
            fields[name] = as_typed(name, value, hints[name])
            continue
        number = number_of(algorithm, name)
        value = as_typed(name, value, number.hint) if number.name else None
        if number.part is None:
            fields[number.name] = value
        else:
            parts.setdefault(number.part, {})[number.name] = value
    for part, values in parts.items():
        fields[part] = _changed_part(algorithm, part, values, hints[part])
    return dataclasses.replace(algorithm, **fields)


def _changed_part(algorithm: Algorithm, part: str, values: Mapping[str, Any], hint: Any) -> Any:
    # "" is the part as a whole, which can only be left out.
    if "" in values or (part == "kl" and values.get("coefficient") == 0):
        if contradicting := [
            f"{part}_{name}" for name in values if name and (part, name) != ("kl", "coefficient")
        ]:
            raise UsageError(
                f"{', '.join(contradicting)} and no {part} contradict each other; leave one out"
            )
        return None
    current = getattr(algorithm, part)
    if current is not None:
        return dataclasses.replace(current, **values)
    kind = _part_of(hint)
    needed = {
        field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING
    }
    arguments = {**_BEGINS.get(part, {}), **values}
    if missing := sorted(needed - arguments.keys()):
        raise UsageError(
            f"{part}_{next(iter(values))} is given, and {algorithm.label} has no {part}; "
            f"give {', '.join(f'{part}_{name}' for name in missing)} too"
        )
    return kind(**arguments)


def parsed(algorithm: Algorithm, name: str, text: str) -> Any:
    """The value of an algorithm's number from the text after its flag.

    Args:
        algorithm: whose number.
        name: flat name.
        text: as it was typed.

    Raises:
        UsageError: the algorithm has no such number, or the text is no value of it.
    """
    hint = number_of(algorithm, name, flag_of(name)).hint
    if get_origin(hint) is tuple:
        return as_typed(name, tuple(text.split(",")) if text != "none" else (), hint)
    try:
        # Python's spelling of true and false, too.
        value = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        value = text
    return as_typed(name, value, hint)


def as_record(algorithm: Algorithm) -> JsonDict:
    """An algorithm as plain JSON, from which `from_record` makes it again.

    Args:
        algorithm: any.
    """
    fields = {"name": algorithm.label, **dataclasses.asdict(algorithm)}
    return {**fields, "digest": algorithm.digest} if algorithm.digest else fields


def from_record(found: Any) -> Algorithm:
    """The algorithm that `as_record` recorded.

    Args:
        found: what it returned.

    Raises:
        UsageError: it is none, or it is of a version before 0.2, whose records had no name.
    """
    from rlvr.algo import papers

    if not isinstance(found, Mapping):
        raise UsageError(f"algorithm is {brief(found)}; it must be a name or a table")
    if "name" not in found:
        raise UsageError(
            "algorithm has no name: it was recorded before 0.2, or is a table of another kind; "
            "give the algorithm's "
            'name, such as algorithm = "dapo", and its numbers one by one'
        )
    kind = papers.algorithm_class(as_typed("algorithm.name", found["name"], str))
    hints, values = get_type_hints(kind), dict(found)
    del values["name"]
    # Recorded beside the fields, and no field itself.
    values.pop("digest", None)
    field_names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in field_names:
            raise UsageError(f"algorithm has no {name!r}{nearest(name, field_names)}")
    return kind(
        **{
            name: _make_number(f"algorithm.{name}", value, hints[name])
            for name, value in values.items()
        }
    )


def _make_number(name: str, value: Any, hint: Any) -> Any:
    part = _part_of(hint)
    if part is None or value is None:
        return as_typed(name, value, hint)
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {brief(value)}; it must be a table")
    hints = get_type_hints(part)
    for key in value:
        if key not in hints:
            raise UsageError(f"{name} has no {key!r}{nearest(key, list(hints))}")
    arguments = {key: as_typed(f"{name}.{key}", item, hints[key]) for key, item in value.items()}
    needed = [
        field.name for field in dataclasses.fields(part) if field.default is dataclasses.MISSING
    ]
    if missing := [field_name for field_name in needed if field_name not in arguments]:
        raise UsageError(f"{name} lacks {', '.join(missing)}")
    return part(**arguments)


def as_typed(name: str, value: Any, hint: Any) -> Any:
    """A value as its type has it: whole numbers become floats, lists tuples, and "none" None where
    that is allowed.

    Args:
        name: of the setting, for the message.
        value: as TOML or JSON has it.
        hint: the type.

    Raises:
        UsageError: the value is of another type.
    """
    typed_value, rule = _read_typed(value, hint)
    if rule:
        raise UsageError(f"{name} is {brief(value)}; it must be {rule}")
    return typed_value


def _read_typed(value: Any, hint: Any) -> tuple[Any, str]:
    """(The value as its type has it, empty), or (None, what it must be)."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Correction:
        return _typed_correction(value)
    if origin in (Union, types.UnionType):
        if type(None) in args and value in (None, "none"):
            return None, ""
        tried = [_read_typed(value, option) for option in args if option is not type(None)]
        accepted = [attempt for attempt in tried if not attempt[1]]
        return (
            accepted[0]
            if accepted
            else (None, " or ".join([rule for _, rule in tried] + ["none"] * (type(None) in args)))
        )
    if origin is Literal:
        return (value, "") if value in args else (None, f"one of {', '.join(map(repr, args))}")
    if origin is tuple:
        return _typed_tuple(value, args)
    if hint is Any:
        return value, ""
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        # Every comparison of NaN with a bound is false, so it is refused here.
        return (None, "a number") if math.isnan(value) else (float(value), "")
    plain = origin or hint
    if plain is Path:
        return (Path(value), "") if isinstance(value, str | Path) else (None, "a path")
    # True is an int to isinstance, and no whole number here.
    fits = isinstance(value, plain) and not (isinstance(value, bool) and plain is not bool)
    return (value, "") if fits else (None, _RULES.get(plain, f"a {plain.__name__}"))


def _typed_correction(value: Any) -> tuple[Any, str]:
    if isinstance(value, Mapping):  # a record
        return Correction(**value), ""
    if isinstance(value, str):
        return Correction.read(value), ""
    fits = isinstance(value, Correction)
    return (value, "") if fits else (None, "a text such as token:truncate:2")


def _typed_tuple(value: Any, args: tuple[Any, ...]) -> tuple[Any, str]:
    # tuple[float, ...], of any length.
    endless = len(args) == 2 and args[1] is Ellipsis
    rule = (
        f"a list, each {_read_typed(object(), args[0])[1]}"
        if endless
        else f"a list of {len(args)} numbers"
    )
    if args[0] is Correction:
        rule = "texts such as token:truncate:2, with commas between them"
        value = value.split(",") if isinstance(value, str) else value
    if not isinstance(value, list | tuple) or not (endless or len(value) == len(args)):
        return None, rule
    attempts = [_read_typed(item, args[0] if endless else args[i]) for i, item in enumerate(value)]
    return (
        (None, rule)
        if any(why for _, why in attempts)
        else (tuple(item for item, _ in attempts), "")
    )


_RULES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Mapping: "a table",
}


def algorithm_numbers(algorithm: Algorithm, max_tokens: int) -> JsonDict:
    """An algorithm as plain JSON: what the judge reads of it.

    Args:
        algorithm: any.
        max_tokens: the length of a constant aggregation, if the algorithm has none of its own.
    """
    # With the fields that the class lacks, so that a reader of the file knows them to be absent.
    names = {name for name in vars(Absent) if not name.startswith("_")}
    names |= {field.name for field in dataclasses.fields(algorithm)}
    numbers = {name: plain_number(getattr(algorithm, name)) for name in sorted(names)}
    numbers["length_tokens"] = algorithm.length_tokens or max_tokens
    return {"name": algorithm.spec or algorithm.name, "digest": algorithm.digest, **numbers}


def plain_number(value: Any) -> Any:
    """A number or part as JSON has it.

    Args:
        value: of a field.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain_number(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    return [plain_number(item) for item in value] if isinstance(value, tuple) else value
