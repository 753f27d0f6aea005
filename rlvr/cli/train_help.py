"""`rlvr train --help`: the flags that people set; the others by group, or all of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import docstring_parser

from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import flag_of, paper_numbers
from rlvr.cli.run_settings import number_metavar
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.config.run import GROUPS as SETTINGS
from rlvr.train.config.setting import rule
from rlvr.validate import nearest

__all__ = ["GROUPS", "help_page"]

_WIDTH: Final = 100
_FLAGS: Final = 28  # columns of the flags

_USUAL: Final = "usual"


def _pages() -> dict[str, tuple[str, list[str]]]:
    pages = {_USUAL: ("what most runs set", list[str]())}
    for group in SETTINGS:
        # Options of environments and templates have flags of another kind.
        settings: Any = group
        flags = [field for field in fields(settings) if field.default_factory is MISSING]
        pages[_USUAL][1].extend(field.name for field in flags if rule(field).usual)
        further_names = [field.name for field in flags if not rule(field).usual]
        if further_names:
            pages[group.__name__.removesuffix("Settings").lower()] = (group.about, further_names)
    return pages


GROUPS: Final[Mapping[str, tuple[str, list[str]]]] = _pages()
"""Name → (what it holds, the settings of a run in it)."""

_ABOVE: Final = (
    (
        "--config FILE",
        "Take settings from this file: TOML, or the config.json of a run.  Flags win.",
    ),
    ("--dry-run", "Print all settings and the memory forecast, sample and score one group, stop."),
    ("--option NAME=VALUE", "Set an option of the environment; may be repeated."),
    ("--reward EXPRESSION", "Another reward than the environment's own, see `rlvr rewards`."),
    ("--sandbox LEVEL", "Level of the sandbox: namespaces (the default) or restricted."),
    ("--eval-option NAME=VALUE", "Set an option of the environment for evaluation alone."),
    ("--template-option NAME=VALUE", "Set a variable of the chat template."),
)
"""The flags that are no settings of a run."""


def help_page(argv: Sequence[str], algorithm: Algorithm) -> str | None:
    """The page that was asked for; None if none was, or all flags were, which the parser shows.

    Args:
        argv: the flags of `rlvr train`, without a recipe.
        algorithm: whose numbers are shown.

    Raises:
        UsageError: there is no such group.
    """
    place = next((i for i, word in enumerate(argv) if word in ("-h", "--help")), None)
    if place is None:
        return None
    group = argv[place + 1] if place + 1 < len(argv) else _USUAL
    if group.startswith("-"):
        group = _USUAL
    if group not in GROUPS:
        raise UsageError(
            f"--help {group}: there is no such group{nearest(group, GROUPS)} (there are "
            f"{', '.join(GROUPS)}; --help-all shows every flag)"
        )
    lines = _usual_page(algorithm) if group == _USUAL else _group_page(group)
    return "\n".join(lines) + "\n"


def _usual_page(algorithm: Algorithm) -> Iterator[str]:
    yield "usage: rlvr train [RECIPE] --env ENV --model MODEL --run RUN [OPTIONS]"
    yield ""
    yield "Train a policy on an environment.  The same command continues a run that was stopped."
    yield ""
    yield (
        "Example: rlvr train --env gsm8k-v4 --model Qwen/Qwen3-0.6B --run runs/a --max-tokens 1024"
    )
    yield "Example: rlvr train --config run.toml --run runs/b --clip-high 0.3 --dry-run"
    yield ""
    for flag, text in _ABOVE:
        yield from _entry(flag, text)
    yield from _settings(_USUAL, first_sentence=True)
    own_numbers = paper_numbers(type(algorithm))
    if own_numbers:
        yield ""
        yield from textwrap.wrap(
            f"Numbers of {algorithm.name}, explained by `rlvr algorithms {algorithm.name}`: "
            + ", ".join(
                f"{flag_of(name)} {number_metavar(own_numbers[name])}" for name in own_numbers
            ),
            _WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    yield ""
    yield "More, by `--help GROUP`; `--help-all` shows every flag:"
    for name, (text, names) in GROUPS.items():
        if name != _USUAL:
            yield from _entry(f"  {name}", f"{text} ({len(names)} flags)")


def _group_page(group: str) -> Iterator[str]:
    yield f"rlvr train, {GROUPS[group][0]}:"
    yield ""
    yield from _settings(group)


def _settings(group: str, *, first_sentence: bool = False) -> Iterator[str]:
    texts = _texts()
    hints = get_type_hints(Config)
    settings_by_name = {setting.name: setting for setting in fields(Config)}
    for name in GROUPS[group][1]:
        text = texts[name]
        if first_sentence:
            text = re.split(r"(?<=\.)\s+(?=[A-Z`])", text)[0]
        flag = f"{flag_of(name)} {_metavar(hints[name])}".rstrip()
        yield from _entry(flag, text + _default(settings_by_name[name]))


def _texts() -> dict[str, str]:
    """The help of each setting, from the docstring of its class."""
    params = [
        param for group in SETTINGS for param in docstring_parser.parse(group.__doc__ or "").params
    ]
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def _entry(flag: str, text: str) -> list[str]:
    indent = " " * _FLAGS
    if len(flag) < _FLAGS:
        return textwrap.wrap(
            text, _WIDTH, initial_indent=flag.ljust(_FLAGS), subsequent_indent=indent
        )
    return [flag, *textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)]


def _default(setting: Field[object]) -> str:
    if setting.default is MISSING and setting.default_factory is MISSING:
        return " (required)"
    value = setting.default
    if value is MISSING or value is None or value is False or value in ("", ()):
        return ""
    values = value if isinstance(value, tuple) else (value,)
    return (
        f" ({' '.join(f'{item:g}' if isinstance(item, float) else str(item) for item in values)})"
    )


def _metavar(hint: object) -> str:
    """What stands after the flag; nothing for a switch."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if get_origin(hint) is Literal:
        return "|".join(map(str, kinds))
    if get_origin(kinds[0]) is Literal:
        return "|".join(map(str, get_args(kinds[0])))
    names = {int: "INT", float: "FLOAT", bool: "", Path: "PATH"}
    metavar = names.get(kinds[0], "TEXT")
    if get_origin(hint) is tuple or get_origin(kinds[0]) is tuple:
        return " ".join([metavar] * 2) if kinds[0] is float else "TEXT…"
    return metavar
