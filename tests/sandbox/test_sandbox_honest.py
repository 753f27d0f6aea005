"""Programs that mean no harm and are hard to run in a sandbox.  Each ends OK with what it would print anywhere."""

import ast
import dataclasses
from pathlib import Path

import pytest

from rlvr.sandbox import Limits, Program
from tests.processes import in_turn
from tests.sandbox.sandboxes import USERS, sandbox_as

LIMITS = Limits(cpu_s=8.0, wall_s=30.0, memory_mib=512)


@pytest.fixture(scope="module", params=USERS)
def sandbox(request):
    with sandbox_as(request.param, LIMITS) as sandbox:
        yield sandbox


def says(sandbox, source, expected, stdin="", language="python", **limits):
    run = sandbox.run(
        Program(language, source), stdin, limits=dataclasses.replace(LIMITS, **limits)
    )
    assert (run.ending, run.text) == ("OK", expected), (run.why, run.stderr[-2000:])
    return run


ONE_MB = "\n".join(str(n) for n in range(150_000))


@pytest.fixture(scope="module")
def ten_mb() -> str:
    return "\n".join(map(str, range(1_300_000)))


READERS = {
    "input": "s = 0\ntry:\n    while True: s += int(input())\nexcept EOFError: print(s)",
    "sys.stdin": "import sys\nprint(sum(int(line) for line in sys.stdin))",
    "read": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "readline": "import sys\ns = 0\nwhile line := sys.stdin.readline(): s += int(line)\nprint(s)",
    "readlines": "import sys\nprint(sum(map(int, sys.stdin.readlines())))",
    "buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "buffer lines": "import sys\nprint(sum(map(int, sys.stdin.buffer)))",
    "os.read": "import os\nb = b''.join(iter(lambda: os.read(0, 1 << 20), b''))\nprint(sum(map(int, b.split())))",
    "os.read by fstat": "import os\nprint(sum(map(int, os.read(0, os.fstat(0).st_size).split())))",
    "BytesIO by fstat": "import os, io, sys\nsys.stdin = io.BytesIO(os.read(0, os.fstat(0).st_size))\n"
    "input = lambda: sys.stdin.readline().rstrip()\nprint(sum(map(int, iter(input, b''))))",
    "open(0)": "print(sum(map(int, open(0))))",
    "open(0).read": "print(sum(map(int, open(0).read().split())))",
    "fdopen": "import os\nprint(sum(map(int, os.fdopen(0, 'rb'))))",
    "io.open": "import io\nprint(sum(map(int, io.open(0, 'rb', buffering=1 << 16))))",
    "fileinput": "import fileinput\nprint(sum(map(int, fileinput.input())))",
    "mmap": "import mmap\nm = mmap.mmap(0, 0, access=mmap.ACCESS_READ)\nprint(sum(map(int, iter(m.readline, b''))))",
    "mmap private": "import mmap\nm = mmap.mmap(0, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)\n"
    "print(sum(map(int, m[:].split())))",
    "/dev/stdin": "print(sum(map(int, open('/dev/stdin'))))",
    "/proc/self/fd/0": "print(sum(map(int, open('/proc/self/fd/0', 'rb').read().split())))",
    "pathlib": "import pathlib\nprint(sum(map(int, pathlib.Path('/dev/stdin').read_text().split())))",
    "seek": "import sys\nsys.stdin.seek(0, 2)\nsys.stdin.seek(0)\nprint(sum(map(int, sys.stdin)))",
    "iter(input, '')": "import sys\nprint(sum(map(int, sys.stdin.read().splitlines())))",
    "subprocess": "import subprocess\nprint(sum(map(int, subprocess.check_output(['cat']).split())))",
    "select": "import select, sys\nassert select.select([sys.stdin], [], [], 1)[0]\nprint(sum(map(int, sys.stdin)))",
}


@pytest.mark.parametrize("way", in_turn(READERS, 5))
def test_a_long_input_is_read_in(sandbox, way):
    """A megabyte of numbers, by every way of reading them."""
    says(sandbox, READERS[way], "11249925000\n", ONE_MB)


@pytest.mark.parametrize(
    "way",
    [way if way == "sys.stdin" else pytest.param(way, marks=pytest.mark.slow) for way in READERS],
)
def test_10_mb_are_read_in(sandbox, ten_mb, way):
    """By every way of reading them; line by line in each `make test`."""
    says(sandbox, READERS[way], "844999350000\n", ten_mb)


def _programs() -> dict[str, tuple[str, str, str | None]]:
    """name → source, standard input, expected output: the blocks of sandbox_honest.txt."""
    found = {}
    for block in Path(__file__).with_name("sandbox_honest.txt").read_text().split("\n=== ")[1:]:
        name, *lines = block.rstrip("\n").split("\n")
        told = {
            line[:3]: ast.literal_eval(line[4:]) for line in lines if line[:4] in ("<<< ", ">>> ")
        }
        source = "\n".join(line for line in lines if line[:4] not in ("<<< ", ">>> "))
        found[name] = source, told.get("<<<", ""), told.get(">>>")
    return found


PROGRAMS = _programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_at_home(sandbox, name):
    """The way it would run from a shell."""
    source, stdin, expected = PROGRAMS[name]
    run = sandbox.run(Program(name.partition(":")[0], source), stdin)
    assert run.ending == "OK", (run.why, run.stderr[-2000:])
    assert expected is None or run.text == expected, run.stderr[-2000:]


def test_long_output_is_whole(sandbox, ten_mb):
    """A hundred thousand writes, a million lines, and in C++ as many numbers in."""
    says(sandbox, "import sys\nfor i in range(100_000): sys.stdout.write('x')", "x" * 100_000)
    lines = "".join(f"{n}\n" for n in range(1_000_000))
    says(sandbox, "print('\\n'.join(map(str, range(1_000_000))))", lines)
    adds = "long s = 0, x; while (cin >> x) s += x; cout << s << endl;"
    fast = f"#include <bits/stdc++.h>\nusing namespace std;\nint main() {{ ios::sync_with_stdio(0); cin.tie(0); {adds} }}"
    says(sandbox, fast, "844999350000\n", ten_mb, "cpp")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# -*- coding: latin-1 -*-\nprint('ä')".encode("latin-1"), "ä\n"),
        (b"#!/usr/bin/env python3\n# vim: set fileencoding=utf-8 :\nprint('\xc3\xa4')", "ä\n"),
        (b"\xef\xbb\xbfprint(1)", "1\n"),
        (b"if 1:\r\n    print(1)\r\n", "1\n"),
        (b"print('''a\r\nb''')", "a\nb\n"),
        (b"print(1)\n\x0c\nprint(2)", "1\n2\n"),
        (b"print(1) \\\n\n", "1\n"),
        (b"print(1)  # no newline at the end", "1\n"),
        (b"", ""),
    ],
)
def test_a_source_in_any_dress(sandbox, source, expected):
    """Encodings, byte order marks and line ends as editors leave them."""
    says(sandbox, source, expected)


def test_a_program_of_several_files_imports_them(sandbox):
    """Modules and packages beside the main file, with arguments on the command line."""
    program = Program(
        "python",
        files={
            "main.py": "import sys, pkg.a, b\nprint(pkg.a.x + b.y, sys.argv[1:])",
            "pkg/a.py": "x = 1",
            "b.py": "y = 2",
        },
        args=("-v", "é"),
    )
    run = sandbox.run(program)
    assert run.text == "3 ['-v', 'é']\n", run
