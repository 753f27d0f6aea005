"""A setting of a run: its rule, what reads it, whether it may change, and what runs did before it was there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rlvr.algo.papers.base import Algorithm
from rlvr.errors import UsageError, brief

if TYPE_CHECKING:  # it has the settings
    from rlvr.train.config import Config

__all__ = [
    "Check",
    "Reader",
    "earlier",
    "may_change",
    "or_none",
    "require_default",
    "require_read",
    "rule",
    "setting",
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
    added: bool = False
    earlier: Any = None


def setting(default: Any, check: Check | None = None, **options: Any) -> Any:
    """A field of `Config`.

    Args:
        default: its value where it is not given.
        check: of its value; None for none.
        options: `reader`, a `Reader`, None where every run reads it; `may_change`, True for
            settings of machine, reports and alarms, which a run may change when it goes on: they
            do not affect learning, except for how sums are rounded; `added`, True for settings
            that runs of 0.1.0 do not have; and `earlier`, what these did, if it is not the default.
    """
    return dataclasses.field(default=default, metadata={_RULE: _Rule(check, **options)})


def rule(field: dataclasses.Field[Any]) -> _Rule:
    """What `setting` was given for a field.

    Args:
        field: of `Config`.
    """
    found: _Rule = field.metadata.get(_RULE, _Rule())
    return found


def or_none(check: Check) -> Check:
    """A check that lets None pass.

    Args:
        check: of other values.
    """
    return lambda name, value: None if value is None else check(name, value)


def may_change(kind: type[Config], name: str) -> bool:
    """Whether a run that goes on may have another value of a setting.

    Args:
        kind: `Config`.
        name: of the setting.
    """
    return any(one.name == name and rule(one).may_change for one in dataclasses.fields(kind))


def earlier(kind: type[Config]) -> dict[str, Any]:
    """What runs did that lack a setting, by its name.

    Args:
        kind: `Config`.
    """
    added = [one for one in dataclasses.fields(kind) if rule(one).added]
    values = {one.name: rule(one).earlier or one.default for one in added}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def require_read(config: Config, algorithm: Algorithm) -> None:
    """Refuse settings that nothing in this run reads.

    What is as by default, or switched off, was not asked for.

    Args:
        config: as it was given.
        algorithm: of the run.

    Raises:
        UsageError: there is one.
    """
    for one in dataclasses.fields(config):
        reader = rule(one).reader
        if reader is not None and not reader.reads(config, algorithm):
            require_default(config, (one.name,), reader.who, f" with {algorithm.label}")


def require_default(
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
    defaults = {one.name: one.default for one in dataclasses.fields(config)}
    for name in names:
        value = getattr(config, name)
        if value and value != defaults[name]:
            raise UsageError(
                f"{name} is {brief(value)}, and nothing reads it{where}: it is of {reader}; leave "
                f"it out"
            )
