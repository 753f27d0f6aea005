"""A setting of a run: its rule, what reads it, and whether it may change when the run goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias, get_args

from tyro.conf import Suppress, UseAppendAction, arg

from rlvr.algo.papers.base import Algorithm
from rlvr.errors import UsageError, brief
from rlvr.validate import (
    require_number,
    require_one_of,
    require_optional_whole,
    require_whole,
)

if TYPE_CHECKING:  # it has the settings
    from rlvr.train.config.run import Config, ResolvedConfig

__all__ = [
    "Check",
    "ONE",
    "OPTIONAL_ONE",
    "OPTIONAL_ZERO",
    "Options",
    "POSITIVE",
    "Reader",
    "Repeated",
    "Settings",
    "TextList",
    "ZERO",
    "default_hint",
    "defaults",
    "may_change",
    "one_of",
    "or_none",
    "require_not_given",
    "require_read",
    "rule",
    "setting",
    "texts",
    "two_numbers",
    "unread",
]

Check: TypeAlias = Callable[[str, object], object]
"""(name, value) → value; raises UsageError where it is refused."""

_RULE: Final = "rule"


class Reader(NamedTuple):
    """What reads a setting.

    Attributes:
        who: its name, for an error.
        reads: whether it is there, with these settings and this algorithm.
    """

    who: str
    reads: Callable[[Config, Algorithm], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    check: Check | None = None
    reader: Reader | None = None
    may_change: bool = False
    usual: bool = False
    stands_for: Any = None


class Settings:
    """The settings that one object of a run reads: fields that are made by `setting`.

    Attributes:
        about: what the object does, for `rlvr train --help`.
    """

    about: ClassVar[str] = ""
    _given: Collection[str]

    def __new__(cls, **values: object) -> Any:
        # The only place that knows which settings were
        # written: a dataclass's `__init__` sees defaults too.
        settings = super().__new__(cls)
        object.__setattr__(settings, "_given", values)
        return settings

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse settings of this object that contradict others.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """


def setting(default: object, check: Check | None = None, **options: Any) -> Any:
    """A field of settings.

    Args:
        default: its value where it is not given.
        check: of its value; None for none.
        options: `reader`, a `Reader`, None where every run reads it; `may_change`, True for
            settings of machine, reports and alarms, which a run may change when it goes on: they
            do not affect learning, except for how sums are rounded; `usual`, True for what most
            runs set; and `stands_for`, the value that None is a name of.
    """
    return dataclasses.field(default=default, metadata={_RULE: _Rule(check, **options)})


def rule(field: dataclasses.Field[Any]) -> _Rule:
    """What `setting` was given for a field.

    Args:
        field: of settings.
    """
    field_rule: _Rule = field.metadata.get(_RULE, _Rule())
    return field_rule


def or_none(check: Check) -> Check:
    """A check that lets None pass.

    Args:
        check: of other values.
    """
    return lambda name, value: None if value is None else check(name, value)


def one_of(choices: object, *, or_none: bool = False) -> Check:
    """A check for one of several texts.

    Args:
        choices: a Literal.
        or_none: whether None passes.
    """
    return partial(require_one_of, allowed=get_args(choices), or_none=or_none)


def two_numbers(example: str, *, rising: bool = True, **bounds: Any) -> Check:
    """A check for two numbers.

    Args:
        example: of what may be given.
        rising: whether the first has to be below the second.
        bounds: of both; see `rlvr.validate.require_number`.
    """

    def check(name: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise UsageError(f"{name} is {value!r}; it must be two numbers, such as {example}")
        low, high = (require_number(f"{name}[{i}]", value[i], **bounds) for i in (0, 1))
        if rising and low >= high:
            raise UsageError(f"{name} is {value!r}; the first must be below the second")
        return (low, high)

    return check


def texts(name: str, value: object) -> tuple[str, ...]:
    """A check for a list of texts.

    Args:
        name: of the setting.
        value: of it.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(text, str) and text for text in value
    ):
        raise UsageError(
            f"{name} is {value!r}; it must be a list of texts, such as ('q_proj', 'v_proj')"
        )
    return tuple(value)


ONE: Final = partial(require_whole, least=1)
ZERO: Final = partial(require_whole, least=0)
OPTIONAL_ONE: Final = partial(require_optional_whole, least=1)
OPTIONAL_ZERO: Final = partial(require_optional_whole, least=0)
POSITIVE: Final = partial(require_number, above=0)


def default_hint(label: str) -> str:
    """How `--help` shows a default: without the brackets that tyro puts around a name; "none" for
    an empty list.

    Args:
        label: tyro's.
    """
    return f"(default: {label.strip(chr(39) + '[]') or 'none'})"


TextList: TypeAlias = Annotated[tuple[str, ...], arg(help_behavior_hint=default_hint)]
Repeated: TypeAlias = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="TEXT", help_behavior_hint="(may be repeated)"),
]
Options: TypeAlias = Suppress[Mapping[str, Any]]


def may_change(kind: type[Config], name: str) -> bool:
    """Whether a run that goes on may have another value of a setting.

    Args:
        kind: `Config`.
        name: of the setting.
    """
    return any(field.name == name and rule(field).may_change for field in dataclasses.fields(kind))


def defaults(kind: type[Config]) -> dict[str, object]:
    """The defaults of all settings that have one, by name.

    Args:
        kind: `Config`.
    """
    fields = [field for field in dataclasses.fields(kind) if field.init]
    factories = {field.name: field.default_factory for field in fields}
    values = {field.name: field.default for field in fields}
    values |= {name: make() for name, make in factories.items() if make is not dataclasses.MISSING}
    return {name: value for name, value in values.items() if value is not dataclasses.MISSING}


def unread(config: Config, algorithm: Algorithm) -> dict[str, Reader]:
    """The settings that nothing reads in a run, each with what would.

    Args:
        config: the settings.
        algorithm: of the run.
    """
    readers = {field.name: rule(field).reader for field in dataclasses.fields(config)}
    return {
        name: reader
        for name, reader in readers.items()
        if reader is not None and not reader.reads(config, algorithm)
    }


def require_read(config: Config, algorithm: Algorithm) -> None:
    """Refuse settings that were given, and that nothing in this run reads.

    Args:
        config: as it was given.
        algorithm: of the run.

    Raises:
        UsageError: there is one.
    """
    for name, reader in unread(config, algorithm).items():
        require_not_given(config, (name,), reader.who, f" with {algorithm.label}")


def require_not_given(
    config: Config, names: Collection[str], reader: str, where: str = " here"
) -> None:
    """Refuse settings that were given, and are not read.

    Args:
        config: as it was given.
        names: of the settings.
        reader: what would read them.
        where: for the error.

    Raises:
        UsageError: one was given.
    """
    by_default = defaults(type(config))
    # A copy with changes (`dataclasses.replace`) gives every setting a value.
    is_copy = all(field.name in config._given for field in dataclasses.fields(config) if field.init)
    for name in names:
        value = getattr(config, name)
        # A value that differs from the default was given in any case; one that
        # equals it may still have been written, which a copy cannot tell.
        if value != by_default[name] or (name in config._given and not is_copy):
            raise UsageError(
                f"{name} is {brief(value)}, and nothing reads it{where}: it is of {reader}; leave "
                f"it out"
            )
