"""What does judging a program on 20 cases of standard input cost, in CPU time of all processes?

    python -m benchmarks.stdio_cases --rounds 15

The program adds two numbers, so what is measured is the judge.  CPU time is that of this process
and of all below it, those that ended included, as /proc has it; each language is warmed by one
verdict.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rlvr.sandbox import Limits, Program, Sandbox
from rlvr.verifiers.code import StdioCase, judge
from tests.sandbox.sandboxes import descendants

PROGRAMS = {
    "python": "a, b = map(int, input().split())\nprint(a + b)",
    "cpp": (
        "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; "
        'std::cout << a + b << "\\n"; }'
    ),
}
CASES = [StdioCase(f"{i} {i + 1}\n", f"{2 * i + 1}\n") for i in range(20)]


def cpu_ms() -> float:
    """Milliseconds of this process and of all that it started."""
    ticks = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with Sandbox(workers=1, limits=Limits(memory_mib=256)) as sandbox:
        for language, source in PROGRAMS.items():
            program = Program(language, source)
            assert judge(program, CASES, sandbox=sandbox).accepted
            before = cpu_ms()
            assert all(judge(program, CASES, sandbox=sandbox).accepted for _ in range(rounds))
            print(f"{language}: {(cpu_ms() - before) / rounds:.0f} CPU ms for {len(CASES)} cases")


if __name__ == "__main__":
    main()
