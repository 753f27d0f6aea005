"""Go, the standard library alone."""

import re

from rlvr.sandbox.languages.base import PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.go",
    'package main\nimport ("fmt"; "runtime")\nfunc main() { fmt.Println(runtime.Version()) }',
    tool="go",
    package="golang-go",
    compile=("{tool}", "build", "-o", PROGRAM, "{main}"),
    sources=(".go",),
    run=(f"./{PROGRAM}",),
    least="package main\nfunc main() {}\n",
    # From Go 1.20 on, each compilation makes the standard library's packages that it needs.
    limits={
        "cpu_s": 60.0,
        "wall_s": 120.0,
        "memory_mib": 2048,
        "processes": 256,
        "disk_mib": 512.0,
    },
    # A panic, and a deadlock of goroutines, exit with 2.
    dies=(2,),
    fences=("go", "golang"),
    opens=re.compile(r"\s*(?:package\s+main\b|//|/\*|import\s*[(\"]|func\s+\w)"),
    time_factor=1.5,
    where=("{tool}", "env", "GOROOT"),
    # No module and no other toolchain is looked for: there is no network.
    env={"GOFLAGS": "-mod=mod", "GO111MODULE": "off", "GOTOOLCHAIN": "local"},
    grammar=Grammar(
        "tree_sitter_go",
        "int_literal",
        {"int": "int32", "int64": "int32", "float64": "float32"},
        statements=(
            "expression_statement",
            "assignment_statement",
            "inc_statement",
            "dec_statement",
            "if_statement",
            "for_statement",
            "break_statement",
            "continue_statement",
        ),
    ),
)
