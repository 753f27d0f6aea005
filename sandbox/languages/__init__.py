"""The languages of programs: one file each, with one row.

A language of your own is a file like these, with a `ROW`: `register("perl", "perl.py")`, or the
variable RLVR_LANGUAGES=perl.py,… of the process, whose workers get it too.
"""

from __future__ import annotations

import dataclasses
import os
import re
import runpy
from pathlib import Path
from typing import Final

from rlvr.errors import UsageError
from rlvr.sandbox.languages import (
    bash,
    c,
    cpp,
    go,
    java,
    javascript,
    pypy,
    python,
    rust,
    typescript,
)
from rlvr.sandbox.languages.base import PRECOMPILED, PROGRAM, ProgramLanguage
from rlvr.validate import nearest

__all__ = [
    "LANGUAGES",
    "PRECOMPILED",
    "PROGRAM",
    "ProgramLanguage",
    "register",
    "require_language",
    "table",
]

_VARIABLE: Final = "RLVR_LANGUAGES"
_MODULES: Final = (python, pypy, cpp, c, java, rust, go, javascript, typescript, bash)
_PLACE: Final = re.compile(r"\{[a-z_]+\}")
_WHOLE_WORDS: Final = ("{tool}", "{main}", "{entry}", "{sources}")
_PLACES: Final = (*_WHOLE_WORDS, "{folder}", "{standard}")

LANGUAGES: Final[dict[str, ProgramLanguage]] = {}
"""By the name that `Program` takes."""


def register(name: str, path: str | Path) -> ProgramLanguage:
    """Add a language, here and in processes that are started from now on.

    Args:
        name: as `Program` takes it.
        path: a Python file that sets `ROW` to a `ProgramLanguage`; it is run, so it must be yours.

    Returns:
        The row.

    Raises:
        UsageError: there is no such file, it cannot be run, it has no such row, the row has no
            command line that could run a program, or a name of it is of a language of rlvr's own.
    """
    file = Path(path).resolve()
    about = f"the language {name!r}"
    if not file.is_file():
        raise UsageError(f"{about}: there is no file {str(path)!r}")
    try:
        row = runpy.run_path(str(file)).get("ROW")
    except Exception as error:
        raise UsageError(
            f"{about}: {str(path)!r} cannot be run: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(row, ProgramLanguage):
        raise UsageError(f"{about}: {str(path)!r} sets no ROW to a ProgramLanguage")
    _require_commands(about, row)
    for variant in (name, *row.standards):
        if variant in _OWN:
            raise UsageError(
                f"{about}: {variant!r} is a language of rlvr's own; name the file otherwise, or "
                f"write {_VARIABLE}=NAME={path}"
            )
    _add(name, row)
    entry = f"{name}={file}"  # whole, as a process may start in another folder
    replaced = ("", entry, str(path), f"{name}={path}")
    entries = [one for one in os.environ.get(_VARIABLE, "").split(",") if one not in replaced]
    os.environ[_VARIABLE] = ",".join([*entries, entry])
    return row


def _require_commands(about: str, row: ProgramLanguage) -> None:
    """Refuse a row whose programs could not start: each of them would count as WRONG."""
    if not row.tool:
        raise UsageError(f"{about}: tool is ''; it must name what compiles or runs programs")
    for field, words in (("run", row.run), ("compile", row.compile)):
        if not (isinstance(words, tuple) and all(isinstance(word, str) for word in words)):
            raise UsageError(
                f"{about}: {field} is {words!r}; it must be a tuple of words, such as "
                f'("{{tool}}", "{{main}}")'
            )
        unknown = [word for word in words if _PLACE.fullmatch(word) and word not in _PLACES]
        if unknown:
            raise UsageError(
                f"{about}: {field} has {unknown[0]}; the places are {', '.join(_PLACES)}"
            )
        within = [word for word in words if _is_within(word)]
        if within:
            raise UsageError(
                f"{about}: {field} has {within[0]!r}; {{tool}}, {{main}}, {{entry}} and "
                f"{{sources}} must be words of their own"
            )
    if not row.run:
        raise UsageError(f'{about}: run is empty; it must be such as ("{{tool}}", "{{main}}")')


def _is_within(word: str) -> bool:
    """Whether a place is a part of a word, where it is not filled.  A script has other braces."""
    is_script = any(character.isspace() for character in word)
    return not is_script and word not in _PLACES and any(place in word for place in _WHOLE_WORDS)


def require_language(name: str, language: str) -> str:
    """The language unchanged, if it is one of `LANGUAGES`.

    Args:
        name: of the argument or setting, as the caller knows it.
        language: the value that was given.

    Raises:
        UsageError: there is none of this name; says how one is added.
    """
    if language in LANGUAGES:
        return language
    names = ", ".join(map(repr, LANGUAGES))
    raise UsageError(
        f"{name} is {language!r}; it must be one of {names}; a file of yours adds one: "
        f"{_VARIABLE}=NAME.py (docs/adding.md){nearest(language, LANGUAGES)}"
    )


def _add(name: str, row: ProgramLanguage) -> None:
    LANGUAGES[name] = row
    for variant, standard in row.standards.items():
        LANGUAGES[variant] = dataclasses.replace(row, standard=standard, standards={})


def table() -> str:
    """The languages of rlvr as a table in Markdown, for the documentation."""
    lines = [
        "| language | fences | main file | made or run with | times C++ | Debian package |",
        "|---|---|---|---|---|---|",
    ]
    for module in _MODULES:
        name, row = module.__name__.rpartition(".")[2], module.ROW
        names = ", ".join(f'`"{fence}"`' for fence in (name, *row.standards))
        main = f"`{row.main}`" + (", or as its public class" if row.entry else "")
        fences, tool = ", ".join(row.fences), f"`{row.tool}`" if row.tool else ""
        lines.append(
            f"| {names} | {fences} | {main} | {tool} | {row.time_factor:g} | {row.package} |"
        )
    return "\n".join(lines)


for _module in _MODULES:
    _add(_module.__name__.rpartition(".")[2], _module.ROW)
_OWN: Final = frozenset(LANGUAGES)
for _entry in filter(None, os.environ.get(_VARIABLE, "").split(",")):
    _name, _, _path = _entry.rpartition("=")
    register(_name or Path(_path).stem, _path)
