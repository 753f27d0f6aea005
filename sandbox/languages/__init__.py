"""The languages of programs: one file each, with one row.

A language of your own is a file like these, with a `ROW`: `register("perl", "perl.py")`, or the
variable RLVR_LANGUAGES=perl.py,… of the process, whose workers get it too.
"""

from __future__ import annotations

import dataclasses
import os
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
        UsageError: there is no such file, or it has no such row.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise UsageError(f"the language {name!r}: there is no file {str(path)!r}")
    row = runpy.run_path(str(file)).get("ROW")
    if not isinstance(row, ProgramLanguage):
        raise UsageError(f"the language {name!r}: {str(path)!r} sets no ROW to a ProgramLanguage")
    _add(name, row)
    entries = [entry for entry in os.environ.get(_VARIABLE, "").split(",") if entry]
    entry = f"{name}={file}"
    if entry not in entries:
        os.environ[_VARIABLE] = ",".join([*entries, entry])
    return row


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
        f"{name} is {language!r}; it must be one of {names}{nearest(language, LANGUAGES)}; "
        f"a file of yours adds one: {_VARIABLE}=NAME.py (docs/adding.md)"
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
for _entry in filter(None, os.environ.get(_VARIABLE, "").split(",")):
    _name, _, _path = _entry.rpartition("=")
    register(_name or Path(_path).stem, _path)
