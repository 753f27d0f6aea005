"""C++, with GNU's extensions as contests have them."""

import re

from rlvr.sandbox.languages.base import PRECOMPILED, PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.cpp",
    '#include <bits/stdc++.h>\nint main() { std::cout << "g++ " << __VERSION__ << std::endl; }',
    tool="g++",
    package="g++",
    compile=(
        *("{tool}", "-std={standard}", "-O2", "-pipe", "-fdiagnostics-color=never"),
        *("-I", PRECOMPILED, "-o", PROGRAM, "{sources}"),
    ),
    sources=(".cpp", ".cc", ".cxx"),
    run=(f"./{PROGRAM}",),
    least="#include <iostream>\nint main() { std::cout << 1; }\n",
    fences=("cpp", "c++", "cc", "cxx", "cpp17", "c++17", "cpp20", "c++20", "cpp23", "c++23"),
    opens=re.compile(
        r"\s*(?:#\s*(?:include|define|pragma)|//|/\*|(?:auto|bool|char|class|const"
        r"|constexpr|double|inline|int|long|namespace|static|struct|template|typedef|unsigned|"
        r"using|void)\b)"
    ),
    time_factor=1.0,
    standard="gnu++17",
    # The names of fences; "cpp" alone is the default above.
    standards={"cpp17": "gnu++17", "cpp20": "gnu++20", "cpp23": "gnu++23"},
    grammar=Grammar(
        "tree_sitter_cpp", "number_literal", {"long long": "int", "double": "float", "long": "int"}
    ),
)
