"""Rust, the standard library alone."""

import re

from rlvr.sandbox.languages.base import PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.rs",
    'fn main() { println!("rust") }',
    tool="rustc",
    package="rustc",
    compile=("{tool}", "--edition=2021", "-O", "--color=never", "-o", PROGRAM, "{main}"),
    sources=(".rs",),
    run=(f"./{PROGRAM}",),
    least="fn main() {}\n",
    limits={"cpu_s": 20.0, "wall_s": 40.0, "memory_mib": 2048, "processes": 128},
    # A panic exits with 101.
    dies=(101,),
    fences=("rust", "rs"),
    opens=re.compile(
        r"\s*(?:use\s+\w|fn\s+\w|//|/\*|#!?\[|(?:pub|struct|enum|impl|mod|const|static)\s)"
    ),
    time_factor=1.0,
    where=("{tool}", "--print", "sysroot"),
    parts=("lib",),  # the folder may be one that other software shares, such as ~/.local
    grammar=Grammar(
        "tree_sitter_rust",
        "integer_literal",
        # Which literals may become narrower, to make overflows.
        {"i64": "i32", "u64": "u32", "f64": "f32", "i128": "i64"},
    ),
)
