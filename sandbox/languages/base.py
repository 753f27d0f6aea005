"""What a language of programs is: one row, in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "Grammar",
    "PRECOMPILED",
    "PROGRAM",
    "ProgramLanguage",
]

PROGRAM: Final = "program"
"""The file that compiling makes."""

PRECOMPILED: Final = "/cache"
"""The folder inside a slot with C++'s precompiled header."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What slips in a program need to know of tree-sitter's grammar of its language.

    Attributes:
        module: of the grammar's wheel.
        numbers: the kind of node that is a whole number.
        types: a type → a narrower one.
        statements: kinds of nodes that may be left out of a block.
        function: of the module, which gives the grammar.
    """

    module: str
    numbers: str
    types: Mapping[str, str] = field(default_factory=dict)
    statements: tuple[str, ...] = (
        *("expression_statement", "break_statement", "continue_statement", "if_statement"),
        *("for_statement", "while_statement"),
    )
    function: str = "language"


@dataclass(frozen=True, slots=True)
class ProgramLanguage:
    """How programs of a language are found, compiled and run.

    In `compile` and `run`, {tool} is the path of `tool`, {folder} its folder, {main} the main file,
    {entry} what `entry` found, {standard} the standard, and the word {sources} stands for all files
    whose names end as `sources` says.

    Attributes:
        main: the file that a program's `source` becomes.
        hello: a program that prints the language's version.
        tool: what compiles or runs it; "" for Python, which the slot itself is.
        package: of Debian, with the tool.
        run: the command line; the program's arguments follow.
        compile: the command line that makes `PROGRAM`; empty for languages that are not compiled.
        sources: endings of the names of the files that are compiled.
        least: a program that must compile, or the compiler is broken; empty where there is none.
        limits: of a compilation, where it needs other ones than most (`Limits`).
        least_memory_mib: what even a small program needs.
        dies: exit codes of a program that an uncaught error ends, where it does not end by a
            signal.
        fences: names of the language in a completion's fences, in lower case.
        opens: matches where a text without any mark is code; None where no such text counts.
        time_factor: times what a C++ program takes, for the limits of contests.
        standards: name → value of {standard}: names of their own in `LANGUAGES`.  The row's own
            name has `standard`.
        standard: value of {standard}.
        entry: source → the name of the main file, and {entry}; None where it is always `main`.
        where: command line that prints the folder of the tool's files, where they may lie outside
            of /usr.
        parts: what a program sees of that folder; all of it if empty.
        env: variables of the tool's and the program's environment.
        calls: functions of a program can be called, and tests can run beside it.
        grammar: for slips in its programs; None where there are none, or they need no grammar.
    """

    main: str
    hello: str
    tool: str = ""
    package: str = ""
    run: tuple[str, ...] = ()
    compile: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    least: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    least_memory_mib: int = 0
    dies: tuple[int, ...] = ()
    fences: tuple[str, ...] = ()
    opens: re.Pattern[str] | None = None
    time_factor: float = 3.0
    standards: Mapping[str, str] = field(default_factory=dict)
    standard: str = ""
    entry: Callable[[str], tuple[str, str]] | None = None
    where: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    calls: bool = False
    grammar: Grammar | None = None
