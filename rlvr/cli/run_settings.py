"""Settings of a run from flags and from a file, and where each of them comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import tyro
from tyro.conf import arg

from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import Number, changed, flag_of, number_of, paper_numbers, parsed
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.config.setting import defaults, unread
from rlvr.train.settings import merge_numbers, read_settings

__all__ = ["RunSettings", "Sources", "number_flags", "number_metavar"]

_SETTINGS_OF_FLAGS: Final = {
    "option": "env_options",
    "sandbox": "env_options",
    "eval_option": "eval_options",
    "template_option": "template_options",
}
"""Flags that set one entry of a setting."""
_GONE: Final = {
    **dict.fromkeys(
        ("advantage", "objective", "group_baseline", "preference", "preference_loss"),
        "--algorithm NAME (`rlvr algorithms`)",
    ),
    **dict.fromkeys(
        ("correction_kind", "correction_level", "correction_low", "correction_high"),
        "--correction LEVEL:KIND:BOUNDS",
    ),
    "minibatch": "--updates, their number",
    "preference_beta": "--beta",
    "max_rounds": "--max-tries",
    "token_logprobs": "--step-files",
}
"""Flags of 0.1.0 → what does their job."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Config):
    """The flags of a `Config`, not checked yet: those of the algorithm's numbers come on top."""

    def __post_init__(self) -> None:
        pass


def number_metavar(number: Number) -> str:
    """What may stand after the flag, for its help.

    Args:
        number: of an algorithm.
    """
    kinds = [hint for hint in (number.hint, *get_args(number.hint)) if hint in (int, float, bool)]
    choices = [choice for choice in get_args(number.hint) if isinstance(choice, str)]
    if get_origin(number.hint) is tuple:
        choices = list(get_args(get_args(number.hint)[0]))
    names = {int: "INT", float: "FLOAT", bool: "true|false"}
    return names[kinds[0]] if kinds else "|".join(choices) or "NAME"


def number_flags(kind: type[Algorithm]) -> type[object]:
    """The flags of an algorithm's numbers: a dataclass with a text, or None, for each; always the
    same one.

    Args:
        kind: the algorithm's class.
    """
    hashed: object = kind
    return _number_flags(hashed)


@cache
def _number_flags(kind: Any) -> type[object]:
    fields = [
        (
            name,
            Annotated[
                str | None,
                arg(
                    metavar=number_metavar(number),
                    help=number.help,
                    help_behavior_hint="(default: the algorithm's)",
                ),
            ],
            field(default=None),
        )
        for name, number in paper_numbers(kind).items()
    ]
    return dataclasses.make_dataclass(f"{kind.__name__}Numbers", fields, frozen=True)


@dataclass(frozen=True)
class Sources:
    """Where the settings of a run come from: flags, a file, the algorithm's paper, defaults.

    Attributes:
        path: the file; None for none.
        algorithm: whose numbers flags and the file change.
        flags: names of the settings that were given as flags.
        found: the settings of the file.
        default: the settings below them, such as a recipe's; None for those of `Config`.
        name: what those are called.
    """

    algorithm: Algorithm
    path: Path | None = None
    flags: frozenset[str] = frozenset()
    found: Mapping[str, object] = field(default_factory=dict)
    default: Config | None = None
    name: str = "default"

    @classmethod
    def from_flags(
        cls, argv: Sequence[str], default: Config | None = None, name: str = "default"
    ) -> Sources:
        """Look for the flags that are there, and read the file of `--config`.

        Args:
            argv: the flags.
            default: see `Sources`.
            name: see `Sources`.

        Raises:
            UsageError: the file cannot be read, or has what no run has; there is no such algorithm;
                or a flag is gone, or a number of other algorithms.
        """
        path = None if (text := _value_of("config", argv)) is None else Path(text)
        below = "dapo" if default is None else default.algorithm
        file_settings = {} if path is None else read_settings(path, below)
        chosen = _value_of("algorithm", argv) or file_settings.get("algorithm", below)
        algorithm = load_algorithm(chosen) if isinstance(chosen, str) else chosen
        flags = _flags_of(argv)
        for gone in sorted(flags & _GONE.keys()):
            raise UsageError(f"{flag_of(gone)} is gone; give {_GONE[gone]}")
        _require_numbers(flags, algorithm)
        return cls(algorithm, path, frozenset(flags), file_settings, default, name)

    @property
    def settings(self) -> RunSettings:
        """The settings that flags change."""
        fields = {field.name: field for field in dataclasses.fields(Config)}
        needed = {
            name
            for name, setting in fields.items()
            if setting.default is setting.default_factory is dataclasses.MISSING
        }
        below: dict[str, Any] = dict.fromkeys(needed, tyro.MISSING)
        if self.default is not None:
            below = {name: getattr(self.default, name) for name in fields}
        return RunSettings(
            **{**below, **{name: value for name, value in self.found.items() if name in fields}}
        )

    @property
    def no_numbers(self) -> object:
        """The flags of the algorithm's numbers, none of them given."""
        return number_flags(type(self.algorithm))()

    def config(self, settings: RunSettings, given: object, **others: Any) -> Config:
        """The settings of the run, checked.

        Args:
            settings: from flags, over those of the file.
            given: the algorithm's numbers from flags, as text: see `number_flags`.
            others: settings that have flags of another kind.

        Raises:
            UsageError: one cannot work, or they contradict each other.
        """
        own_numbers = paper_numbers(type(self.algorithm))
        texts = {
            name: getattr(given, name) for name in own_numbers if getattr(given, name) is not None
        }
        flags = {}
        for name, text in texts.items():
            try:
                flags[name] = parsed(self.algorithm, name, text)
            except UsageError as error:
                raise UsageError(str(error).replace(name, flag_of(name), 1)) from None
        fields = {setting.name for setting in dataclasses.fields(Config)}
        of_file = {name: value for name, value in self.found.items() if name not in fields}
        changes = merge_numbers(self.algorithm, of_file, flags)
        by_default = defaults(Config)
        named = self.flags | set(self.found)
        values = {
            name: value
            for name, value in ({name: getattr(settings, name) for name in fields} | others).items()
            if name in named or name not in by_default or value != by_default[name]
        }
        values.setdefault("algorithm", settings.algorithm)
        if changes or not isinstance(values["algorithm"], str):
            values["algorithm"] = changed(self.algorithm, changes)
        left_out = self._unread_through_flags(dataclasses.replace(settings, **others))
        return Config(**{name: value for name, value in values.items() if name not in left_out})

    def _unread_through_flags(self, settings: Config) -> set[str]:
        """Settings of a file or a recipe that something read, and that nothing reads with these
        flags: who gave the flags cannot leave them out, as `eval_n` with `--eval-every None`."""
        below = self.settings
        algorithm = below.algorithm
        if isinstance(algorithm, str):
            algorithm = load_algorithm(algorithm)
        may_stay = unread(below, algorithm).keys() | self._set_by_flags
        by_default, left_out = defaults(Config), set[str]()
        values = {
            setting.name: getattr(settings, setting.name) for setting in dataclasses.fields(Config)
        }
        while True:  # what is left out may have been the reader of another one
            unread_names = (
                unread(RunSettings(**values), self.algorithm).keys() - may_stay - left_out
            )
            if not unread_names:
                return left_out
            left_out |= unread_names
            values |= {name: by_default[name] for name in unread_names}

    @property
    def _set_by_flags(self) -> set[str]:
        return {_SETTINGS_OF_FLAGS.get(flag, flag) for flag in self.flags}

    def of(self, config: Config) -> dict[str, str]:
        """Where each setting comes from: name → "flag", the file's name, "default" or what `name`
        says.

        Numbers of the algorithm that neither flag nor file gives are left out.

        Args:
            config: the settings.
        """
        places = {}
        flags, left_out = self._set_by_flags, self._unread_through_flags(config)
        is_whole = isinstance(self.found.get("algorithm"), Algorithm) and "algorithm" not in flags
        own_numbers = paper_numbers(type(self.algorithm))
        for name in [*(setting.name for setting in dataclasses.fields(config)), *own_numbers]:
            if name in left_out:
                places[name] = "default"
            elif name in flags:
                places[name] = "flag"
            elif self.path is not None and (
                name in self.found or (name in own_numbers and is_whole)
            ):
                places[name] = self.path.name
            elif name not in own_numbers:
                places[name] = self.name
        return places


def _value_of(flag: str, argv: Sequence[str]) -> str | None:
    """What stands after a flag; None where it is not given."""
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == f"--{flag}" and equals:
            return value
        if name == f"--{flag}" and i + 1 < len(argv):
            return argv[i + 1]
    return None


def _flags_of(argv: Sequence[str]) -> set[str]:
    """The names of the flags that are there, with `_` for `-`."""
    words = [word.partition("=")[0] for word in argv if word[:2] == "--"]
    return {word.removeprefix("--").removeprefix("no-").replace("-", "_") for word in words}


def _require_numbers(flags: set[str], algorithm: Algorithm) -> None:
    """Refuse numbers of other algorithms, before a flag's value is read or a model is loaded."""
    accepted = {
        *paper_numbers(type(algorithm)),
        *(setting.name for setting in dataclasses.fields(Config)),
    }
    all_numbers = {
        name for paper_name in NAMES for name in paper_numbers(algorithm_class(paper_name))
    }
    for name in sorted(flags & all_numbers - accepted):
        number_of(algorithm, name, flag_of(name))
