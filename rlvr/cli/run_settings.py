"""Settings of a run from flags and from a file, and where each of them comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin

import tyro
from tyro.conf import arg

from rlvr.algo.presets import Algorithm, preset
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.settings import Number, changed, merged, numbers, parsed, read_settings

__all__ = ["AlgorithmNumbers", "NO_NUMBERS", "RunSettings", "Sources"]


@dataclass(frozen=True, kw_only=True)
class RunSettings(Config):
    """The flags of a `Config`, not checked yet: those of the algorithm's numbers come on top."""

    def __post_init__(self) -> None:
        pass


RunSettings.__doc__ = Config.__doc__  # which has the help of each flag


def _values(number: Number) -> str:
    """What may stand after the flag, for its help."""
    kinds = [one for one in (number.hint, *get_args(number.hint)) if one in (int, float, bool)]
    choices = [one for one in get_args(number.hint) if isinstance(one, str)]
    if get_origin(number.hint) is tuple:
        choices = list(get_args(get_args(number.hint)[0]))
    shown = {int: "INT", float: "FLOAT", bool: "true|false"}
    return shown[kinds[0]] if kinds else "|".join(choices) or "NAME"


if TYPE_CHECKING:
    AlgorithmNumbers: TypeAlias = Any  # made of the fields of `Algorithm`, so that none is left out
else:
    AlgorithmNumbers = dataclasses.make_dataclass(
        "AlgorithmNumbers",
        [
            (
                name,
                Annotated[
                    str | None,
                    arg(
                        metavar=_values(number),
                        help=number.help,
                        help_behavior_hint="(default: the algorithm's)",
                    ),
                ],
                field(default=None),
            )
            for name, number in numbers().items()
        ],
        frozen=True,
    )
NO_NUMBERS: AlgorithmNumbers = AlgorithmNumbers()


@dataclass(frozen=True)
class Sources:
    """Where the settings of a run come from: flags, a file, the algorithm's preset, defaults.

    Attributes:
        path: the file; None for none.
        flags: names of the settings that were given as flags.
        found: the settings of the file.
        default: the settings below them, such as a recipe's; None for those of `Config`.
        name: what those are called.
    """

    path: Path | None = None
    flags: frozenset[str] = frozenset()
    found: Mapping[str, Any] = field(default_factory=dict)
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
            UsageError: the file cannot be read, or has what no run has.
        """
        words = list(argv)
        flags = {
            word.partition("=")[0].removeprefix("--").removeprefix("no-")
            for word in words
            if word[:2] == "--"
        }
        path = None
        for i, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag == "--config" and (equals or i + 1 < len(words)):
                path = Path(value if equals else words[i + 1])
        found = {} if path is None else read_settings(path)
        return cls(path, frozenset(flag.replace("-", "_") for flag in flags), found, default, name)

    @property
    def settings(self) -> RunSettings:
        """The settings that flags change."""
        fields = {one.name: one for one in dataclasses.fields(Config)}
        needed = {
            name
            for name, one in fields.items()
            if one.default is one.default_factory is dataclasses.MISSING
        }
        below: dict[str, Any] = dict.fromkeys(needed, tyro.MISSING)
        if self.default is not None:
            below = {name: getattr(self.default, name) for name in fields}
        return RunSettings(
            **{**below, **{name: value for name, value in self.found.items() if name in fields}}
        )

    def config(self, settings: RunSettings, given: AlgorithmNumbers, **others: Any) -> Config:
        """The settings of the run, checked.

        Args:
            settings: from flags, over those of the file.
            given: the algorithm's numbers from flags, as text.
            others: settings that have flags of another kind.

        Raises:
            UsageError: one cannot work, or they contradict each other.
        """
        texts = {
            name: getattr(given, name) for name in numbers() if getattr(given, name) is not None
        }
        try:
            flags = {name: parsed(name, text) for name, text in texts.items()}
        except UsageError as error:
            name, _, rest = str(error).partition(" ")
            raise UsageError(f"--{name.replace('_', '-')} {rest}") from None
        changes = merged(
            {name: value for name, value in self.found.items() if name in numbers()}, flags
        )
        values = {
            one.name: getattr(settings, one.name) for one in dataclasses.fields(Config)
        } | others
        if changes:
            algorithm = values["algorithm"]
            values["algorithm"] = changed(
                preset(algorithm) if isinstance(algorithm, str) else algorithm, changes
            )
        return Config(**values)

    def of(self, config: Config) -> dict[str, str]:
        """Where each setting comes from: name → "flag", the file's name, "default" or what `name` says.

        Numbers of the algorithm that neither flag nor file gives are left out.

        Args:
            config: the settings.
        """
        places = {}
        names = {"option": "env_options", "sandbox": "env_options", "eval_option": "eval_options"}
        flags = {names.get(flag, flag) for flag in self.flags}
        is_whole = isinstance(self.found.get("algorithm"), Algorithm) and "algorithm" not in flags
        for name in [one.name for one in dataclasses.fields(config)] + list(numbers()):
            if name in flags:
                places[name] = "flag"
            elif self.path is not None and (name in self.found or (name in numbers() and is_whole)):
                places[name] = self.path.name
            elif name not in numbers():
                places[name] = self.name
        return places
