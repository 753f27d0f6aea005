"""Which slips in our own code the tests notice: a sample by a fixed seed, one at a time.

    python -m benchmarks.mutants --count 400 --minutes 60 --out mutants.jsonl

A slip is one that `rlvr strength` makes in programs: another comparison, a bound that is off by
one, a statement left out; none in annotations, docstrings and what stands outside of functions.
Functions are drawn by their length.  A slip is killed if a test nearest
to its module fails, or takes three times as long: the test files whose names have the module's, or
that import it; of a module that has none, its room's folder.  Files are changed in place and
restored, so the checkout must be clean and nothing else may use it.  Run it again to go on where it
ended.  The same seed draws the same slips as long as the code stays, also where the tests have
changed.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis  # noqa: F401  forks have it
import numpy as np  # noqa: F401
import pytest
import sympy  # noqa: F401
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: F401

from rlvr.statistics import wilson
from rlvr.verifiers.code.operators import Mutant, mutants

ROOMS = {
    "verifiers": "verifiers",
    "rlvr/rewards": "rewards",
    "rlvr/algo": "algo",
    "rlvr/scoring": "scoring",
    "sandbox/guest": "sandbox",
    "rlvr/collect": "collect",
}
"""Folders of the code, and those of their tests."""
LEFT_OUT = "slow or docs"
LEAST_S = 20.0
"""CPU seconds that a run of tests always has."""


class Part(NamedTuple):
    """A function of a module or of one of its classes.

    Attributes:
        path: of the module.
        node: the function.
        start: number of its first line, from 0.
    """

    path: Path
    node: ast.FunctionDef
    start: int


def parts(rooms: Iterable[str]) -> list[Part]:
    """Functions of each module, in order."""
    paths = (path for room in rooms for path in sorted(Path(room).rglob("*.py")))
    functions = []
    for path in paths:
        top = ast.parse(path.read_text(encoding="utf-8")).body
        for node in (*top, *(inner for owner in top for inner in getattr(owner, "body", ()))):
            if isinstance(node, ast.FunctionDef):
                first = min(part.lineno for part in (node, *node.decorator_list))
                functions.append(Part(path, node, first - 1))
    return functions


def slips(part: Part) -> list[Mutant]:
    """Each is the whole module with one slip in the function, not in an annotation or docstring."""
    lines = part.path.read_text(encoding="utf-8").splitlines(keepends=True)
    annotations = dict[str, str]()
    tree = ast.parse(ast.unparse(part.node))
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                name = f"annotation_{len(annotations)}_"
                annotations[name] = ast.unparse(getattr(node, field))
                setattr(node, field, ast.Name(name))
    made = []
    for text, operator in mutants(ast.unparse(tree)):
        text = re.sub(r"\bannotation_\d+_", lambda name: annotations[name[0]], text)
        text = textwrap.indent(text, " " * part.node.col_offset) + "\n"
        source = [*lines[: part.start], text, *lines[part.node.end_lineno :]]
        made.append(Mutant("".join(source), operator))
    return made


def sample(seed: int, rooms: Iterable[str]) -> Iterator[tuple[Part, int, Mutant]]:
    """Slips without end, each with its number in its part."""
    every, rng = parts(rooms), random.Random(seed)
    lengths = [part.node.end_lineno - part.start for part in every]
    made: dict[Part, list[Mutant]] = {}
    while True:
        [part] = rng.choices(every, lengths)
        if part not in made:
            made[part] = slips(part)
        if made[part]:
            number = rng.randrange(len(made[part]))
            yield part, number, made[part][number]


def nearest_tests(path: Path) -> list[str]:
    """Test files of a module."""
    folder = next(tests for room, tests in ROOMS.items() if path.is_relative_to(room))
    name = ".".join(path.with_suffix("").parts)
    name = name if name.startswith("rlvr.") else f"rlvr.{name}"
    package, _, stem = name.rpartition(".")
    imports = re.compile(
        rf"\b{re.escape(name)}\b|from {re.escape(package)} import [^\n(]*\b{stem}\b"
    )
    every = sorted(Path("tests", folder).rglob("test_*.py"))
    near = [
        file
        for file in every
        if stem in file.stem or imports.search(file.read_text(encoding="utf-8"))
    ]
    return [str(file) for file in near or every]


def run_tests(files: list[str], most_s: float | None) -> tuple[str, float]:
    """What became of the tests ("passed", "time", or the first that failed), and their CPU
    seconds.  They run in a fork of this process, which has what they import of others: a new
    interpreter takes longer than most of them."""
    arguments = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", f"not ({LEFT_OUT})"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                os._exit(_run_in_child([*arguments, *files], most_s))
            finally:
                os._exit(99)
        last, status, usage = time.monotonic() + 20 * (most_s or 1000), 0, None
        try:
            while usage is None:
                ended, status, now = os.wait4(child, os.WNOHANG)
                usage = now if ended else None
                if usage is None and time.monotonic() > last:
                    os.killpg(child, signal.SIGKILL)
                time.sleep(0.05)
        finally:
            if usage is None:
                os.killpg(child, signal.SIGKILL)
        output.seek(0)
        said = output.read().decode(errors="replace")
    took_s = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if code in (0, 5):
        return "passed", took_s
    if code < 0:
        return "time", took_s
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return first[1] if first else said[-200:], took_s


def _run_in_child(arguments: list[str], most_s: float | None) -> int:
    if most_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(most_s), int(most_s) + 5))
        # a slip's bytecode must not stay; what this process starts reads the variable
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    for name in [name for name in sys.modules if name.partition(".")[0] in ("rlvr", "tests")]:
        del sys.modules[name]  # the files' own, with the slip, are imported instead
    return int(pytest.main(arguments))


def try_mutant(path: Path, mutant: Mutant, files: list[str], most_s: float) -> str:
    """The same with the slip in its file."""
    stat, source = path.stat(), path.read_bytes()
    try:
        path.write_text(mutant.source, encoding="utf-8")
        return run_tests(files, most_s)[0]
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its bytecode is right again


def read_answers(path: Path) -> dict[str, str]:
    """Those of earlier parts, by slip."""
    if not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--minutes", type=float, default=60.0, help="of wall time in this part")
    parser.add_argument("--out", type=Path, required=True, help="file of answers, added to")
    args = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"]).returncode:
        parser.error("the checkout has changes; commit them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # after the file is restored
    until = time.monotonic() + 60 * args.minutes
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    answers, whole_s = read_answers(args.out), dict[str, float]()
    seen = set[str]()
    for part, number, mutant in sample(args.seed, args.rooms):
        if len(seen) >= args.count or time.monotonic() > until:
            break
        path = part.path
        key = f"{path} {part.start + 1} {part.node.name} {number} {mutant.operator}"
        seen.add(key)
        if key in answers:
            continue
        files = nearest_tests(path)
        tests = " ".join(files)
        if tests not in whole_s:
            said, whole_s[tests] = run_tests(files, None)
            assert said == "passed", f"{said} fails without a slip"
        answers[key] = try_mutant(path, mutant, files, LEAST_S + 3 * whole_s[tests])
        with args.out.open("a", encoding="utf-8") as out:
            print(json.dumps([key, answers[key]]), file=out)
    lived = Counter(key.split()[0] for key in seen if answers.get(key) == "passed")
    tried = seen & answers.keys()
    killed = len(tried) - lived.total()
    low, high = wilson(killed, len(tried))
    print(f"{killed} of {len(tried)} slips were noticed ({low:.1%} to {high:.1%}); not in:")
    print(*(f"  {name}: {count}" for name, count in lived.most_common()), sep="\n")


if __name__ == "__main__":
    main()
