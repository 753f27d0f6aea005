"""C, linked with its mathematics."""

import re

from rlvr.sandbox.languages.base import PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.c",
    '#include <stdio.h>\nint main(void) { puts("gcc " __VERSION__); }',
    tool="gcc",
    package="gcc libc6-dev",
    compile=(
        # As contests compile: optimised, with GNU's extensions.
        *("{tool}", "-std=gnu17", "-O2", "-pipe", "-fdiagnostics-color=never"),
        *("-o", PROGRAM, "{sources}", "-lm"),
    ),
    sources=(".c",),
    run=(f"./{PROGRAM}",),
    least='#include <stdio.h>\nint main(void) { puts("1"); }\n',
    fences=("c", "c99", "c11", "c17", "gcc"),
    opens=re.compile(
        r"\s*(?:#\s*(?:include|define|pragma)|//|/\*|(?:char|const|double|enum|float|int|long"
        r"|short|static|struct|typedef|union|unsigned|void)\b)"
    ),
    time_factor=1.0,
    grammar=Grammar(
        "tree_sitter_c", "number_literal", {"long long": "int", "double": "float", "long": "int"}
    ),
)
