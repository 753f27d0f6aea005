"""The languages of programs: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["LANGUAGES", "Language", "PRECOMPILED", "PROGRAM"]

PROGRAM: Final = "program"
"""The file that compiling makes."""

PRECOMPILED: Final = "/cache"
"""The folder inside a slot with C++'s precompiled header."""


@dataclass(frozen=True, slots=True)
class Language:
    """How programs of a language are compiled and run.

    In `compile` and `run`, {tool} is the path of `tool`, {folder} its folder, {main} the main file, and the word
    {sources} stands for all files whose names end as `sources` says.

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


_GCC: Final = ("-O2", "-pipe", "-fdiagnostics-color=never")

LANGUAGES: Final[dict[str, Language]] = {
    "python": Language("main.py", "import platform\nprint(platform.python_version())"),
    "cpp": Language(
        "main.cpp",
        '#include <bits/stdc++.h>\nint main() { std::cout << "g++ " << __VERSION__ << std::endl; }',
        tool="g++",
        package="g++",
        compile=("{tool}", "-std=gnu++17", *_GCC, "-I", PRECOMPILED, "-o", PROGRAM, "{sources}"),
        sources=(".cpp", ".cc", ".cxx"),
        run=(f"./{PROGRAM}",),
        least="#include <iostream>\nint main() { std::cout << 1; }\n",
    ),
    "c": Language(
        "main.c",
        '#include <stdio.h>\nint main(void) { puts("gcc " __VERSION__); }',
        tool="gcc",
        package="gcc libc6-dev",
        compile=("{tool}", "-std=gnu17", *_GCC, "-o", PROGRAM, "{sources}", "-lm"),
        sources=(".c",),
        run=(f"./{PROGRAM}",),
        least='#include <stdio.h>\nint main(void) { puts("1"); }\n',
    ),
    "java": Language(
        "Main.java",
        'class Main { public static void main(String[] a) { System.out.println("java " + '
        'System.getProperty("java.version")); } }',
        tool="javac",
        package="default-jdk-headless",
        compile=(
            *("/bin/sh", "-c"),
            '"$@" && cd classes && "$0" --create --no-compress --file=../' + PROGRAM + " .",
            *(
                "{folder}/jar",
                "{tool}",
                "-J-Xss64m",
                "-encoding",
                "UTF-8",
                "-d",
                "classes",
                "{sources}",
            ),
        ),
        sources=(".java",),
        run=(
            *(
                "{folder}/java",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                "-Xshare:auto",
            ),
            *(
                "-XX:MaxRAMPercentage=60",
                "-Xss64m",
                "-Dfile.encoding=UTF-8",
                "-cp",
                PROGRAM,
                "Main",
            ),
        ),
        least="class Main { }\n",
        limits={"processes": 128},
    ),
    "javascript": Language(
        "main.js",
        "console.log(`node ${process.version}`)",
        tool="node",
        package="nodejs",
        run=("{tool}", "{main}"),
    ),
    "bash": Language(
        "main.sh",
        'echo "bash $BASH_VERSION"',
        tool="bash",
        package="bash",
        run=("{tool}", "{main}"),
    ),
}
"""By the name that `Program` takes."""
