"""Which slips in our own code the tests notice: a sample by a fixed seed, one at a time.

    python -m benchmarks.mutants --count 400 --minutes 60 --out mutants.jsonl

A slip is one that `rlvr strength` makes in programs: another comparison, a bound that is off by
one, a statement left out; none in annotations, docstrings and what stands outside of functions.
Functions are drawn by their length.  The tests of each room run once to see which functions each
reaches; a slip then meets those that reach its function, first those whose file has its module's
name, the cheap first, up to `--cpu-s` of them.  It is killed if one fails, or takes three times as
long.

Files are changed in place and restored, so the checkout must be clean and nothing else may use it;
two that run side by side have a worktree each, and other `--rooms`.  Run it again to go on where it
ended.  The same seed draws the same slips as long as the code stays, also where the tests have
changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import json
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import hypothesis  # noqa: F401  forks have it
import numpy as np  # noqa: F401
import pytest
import sympy  # noqa: F401
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: F401

from rlvr.statistics import wilson
from rlvr.verifiers.code.operators import Mutant, mutants

ROOMS = {
    "verifiers": (
        "tests/verifiers",
        "tests/envs/test_iftrain.py",
        "tests/envs/test_instruction_rows.py",
        "tests/envs/test_swe_lite.py",
    ),
    "rlvr/rewards": ("tests/rewards", "tests/verifiers/test_judge.py"),
    "rlvr/algo": ("tests/algo", "tests/train/test_whatif.py", "tests/train/test_step_parts.py"),
    "rlvr/scoring": ("tests/scoring", "tests/serve/test_client.py"),
    "sandbox/guest": ("tests/sandbox",),
    "rlvr/collect": ("tests/collect",),
}
"""Folders of the code, and where their tests are."""
LEFT_OUT = "slow or docs"
LEAST_S = 5.0
"""CPU seconds that a test always has."""


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


def draw(seed: int, count: int) -> dict[str, tuple[Part, Mutant]]:
    """Slips of all rooms, by module, line, function, number in it, and kind."""
    every, rng = parts(ROOMS), random.Random(seed)
    lengths = [part.node.end_lineno - part.start for part in every]
    made, drawn = dict[Part, list[Mutant]](), dict[str, tuple[Part, Mutant]]()
    while len(drawn) < count:
        [part] = rng.choices(every, lengths)
        if part not in made:
            made[part] = slips(part)
        if made[part]:
            number = rng.randrange(len(made[part]))
            mutant = made[part][number]
            drawn[f"{name_of(part)} {number} {mutant.operator}"] = part, mutant
    return drawn


def name_of(part: Part) -> str:
    """Module, line and name."""
    return f"{part.path} {part.start + 1} {part.node.name}"


class Survey:
    """A plugin of pytest that keeps of each test what it takes, and the functions that it reaches.

    A function marks its place on a board that processes share (`marked_source`).  It cannot see
    what a test leans on that an earlier one did, so caches are cleared before each.
    """

    def __init__(self, board: mmap.mmap, out: Path, only: Iterable[str] = ()) -> None:
        self.board, self.out, self.only = board, out, set(only)
        self.tests, self.failed = dict[str, dict[str, Any]](), set[str]()
        self.reached, self.shared = set[int](), dict[tuple[str, Path], set[int]]()

    def take(self) -> set[int]:
        """Places marked since the last look."""
        places = {mark.start() for mark in re.finditer(b"\1", self.board[:])}
        self.board[:] = bytes(len(self.board))
        return places

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.only:
            items[:] = [item for item in items if item.nodeid in self.only]
        self.imports = self.take()
        modules = [module for name, module in sys.modules.items() if name.startswith("rlvr.")]
        values = [value for module in modules for value in vars(module).values()]
        self.caches = [value.cache_clear for value in values if hasattr(value, "cache_clear")]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        self.reached |= self.take()
        try:
            return (yield)
        finally:
            places = self.take()
            self.reached |= places
            if fixturedef.scope != "function":  # later tests of the file lean on it too
                self.shared[fixturedef.argname, request.path] = places

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        for clear in self.caches:
            clear()
        self.take()
        self.reached, begin, begin_s = set(), os.times(), time.monotonic()
        result = yield
        cpu_s, wall_s = sum(os.times()[:4]) - sum(begin[:4]), time.monotonic() - begin_s
        self.reached |= self.take()
        self.reached.update(*(self.shared.get((name, item.path), ()) for name in item.fixturenames))
        reached = sorted(self.reached)
        self.tests[item.nodeid] = {"cpu_s": cpu_s, "wall_s": wall_s, "reaches": reached}
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        text = json.dumps([self.tests, sorted(self.failed), sorted(self.imports)])
        self.out.write_text(text, encoding="utf-8")


def marked_source(path: Path, places: Mapping[int, int], board: str) -> str:
    """The module whose functions mark their places on the board.

    Args:
        path: of the module.
        places: of functions, by the line of their `def`.
        board: a file; where it cannot be opened, nothing is marked.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for owner in (tree, *tree.body):
        for node in getattr(owner, "body", ()):
            if isinstance(node, ast.FunctionDef):
                mark = ast.parse(f"_board_[{places[node.lineno]}] = 1").body
                start = int(ast.get_docstring(node) is not None)
                node.body[start:start] = mark
    opened = f"""
        try:
            import mmap as _board_
            with open({board!r}, "r+b") as _file_:
                _board_ = _board_.mmap(_file_.fileno(), 0)
        except Exception:
            _board_ = {{}}
    """
    start = 0
    for number, node in enumerate(tree.body):
        docstring = isinstance(node, ast.Expr) and number == 0
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            start = number + 1
    tree.body[start:start] = ast.parse(textwrap.dedent(opened)).body
    return ast.unparse(tree)


@contextlib.contextmanager
def changed(sources: Mapping[Path, str]) -> Iterator[None]:
    """Files have other texts inside."""
    before = {path: (path.stat(), path.read_bytes()) for path in sources}
    try:
        for path, source in sources.items():
            path.write_text(source, encoding="utf-8")
        yield
    finally:
        for path, (stat, source) in before.items():
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its bytecode is right again


def survey(room: str, out: Path) -> tuple[dict[str, dict[str, Any]], set[int]]:
    """Tests of a room that pass, each with what it takes and the functions that it reaches; and the
    functions called when modules are imported.

    Args:
        room: folder of the code.
        out: file that keeps the answer; read if it is there.
    """
    if not out.exists():
        functions = parts([room])
        places = dict[Path, dict[int, int]]()
        for place, part in enumerate(functions):
            places.setdefault(part.path, {})[part.node.lineno] = place
        with (
            tempfile.NamedTemporaryFile(suffix=".board") as board,
            tempfile.TemporaryDirectory() as temporary,
        ):
            file = Path(temporary, "survey")
            os.truncate(board.name, len(functions))
            Path(board.name).chmod(0o666)  # guests have other users
            shared = mmap.mmap(board.fileno(), 0)
            sources = {
                path: marked_source(path, lines, board.name) for path, lines in places.items()
            }
            with changed(sources):
                in_fork(lambda: run_anew(ROOMS[room], Survey(shared, file)))
            tests, failed, imports = json.loads(file.read_text(encoding="utf-8"))
            if failed:  # some look at our own sources, which had marks
                files = sorted({name.partition("::")[0] for name in failed})
                in_fork(lambda: run_anew(files, Survey(shared, file, failed)))
                for name in json.loads(file.read_text(encoding="utf-8"))[1]:
                    print(f"left out, fails without a slip: {name}")
                    del tests[name]
        out.write_text(json.dumps([tests, imports]), encoding="utf-8")
    tests, imports = json.loads(out.read_text(encoding="utf-8"))
    return tests, set(imports)


class Trial:
    """A plugin of pytest that runs some tests in an order, each with limits that the process above
    sees."""

    def __init__(self, tests: Mapping[str, Mapping[str, Any]]) -> None:
        self.tests, self.now = tests, mmap.mmap(-1, 1 << 14)
        self.tell("", 100.0, 600.0)

    def tell(self, name: str, cpu_s: float, wall_s: float) -> None:
        limits = struct.pack("dd", cpu_s, time.monotonic() + wall_s)
        self.now[:] = (limits + name.encode()).ljust(len(self.now), b"\0")

    def read(self) -> tuple[str, float, float]:
        """The test that runs, and its end in CPU seconds of its process and by the clock."""
        cpu_s, until = struct.unpack("dd", self.now[:16])
        return self.now[16:].rstrip(b"\0").decode(), cpu_s, until

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        collected = {item.nodeid: item for item in items}
        items[:] = [collected[name] for name in self.tests if name in collected]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        test = self.tests[nodeid]
        cpu_s = time.process_time() + LEAST_S + 3 * test["cpu_s"]
        self.tell(nodeid, cpu_s, 60 + 10 * test["wall_s"])


class Room:
    """A plugin of pytest that collects a room's tests once, and tries slips in forks of that.

    There the function gets the slip's code, which costs no import.  A slip in what imports call, in
    defaults or decorators meets modules that are imported anew.

    Args:
        room: folder of the code.
        slips: by name.
        most_s: CPU seconds of the tests that a slip meets.
        until: end of the last, by the monotonic clock.
        out: file to which answers are added.
    """

    def __init__(
        self,
        room: str,
        slips: Mapping[str, tuple[Part, Mutant]],
        most_s: float,
        until: float,
        out: Path,
    ) -> None:
        self.slips, self.most_s, self.until, self.out = slips, most_s, until, out
        self.tests, self.imports = survey(room, out.with_suffix(f".{room.replace('/', '.')}.json"))
        self.places = {name_of(part): place for place, part in enumerate(parts([room]))}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = {item.nodeid: item for item in session.items}
        self.functions = dict[tuple[str, int], list[FunctionType]]()
        for value in gc.get_objects():
            if type(value) is FunctionType:
                code = value.__code__
                self.functions.setdefault((code.co_filename, code.co_firstlineno), []).append(value)

    def pytest_runtestloop(self) -> bool:
        for key, (part, mutant) in self.slips.items():
            begin_s = time.monotonic()
            if begin_s > self.until:
                break
            trial = Trial(self.choose(part))
            killer = self.try_slip(part, mutant.source, trial)
            answer = {"slip": key, "killed_by": killer, "tests": len(trial.tests)}
            answer["wall_s"] = round(time.monotonic() - begin_s, 1)
            with self.out.open("a", encoding="utf-8") as out:
                print(json.dumps(answer), file=out)
        killers = {answer["killed_by"] for answer in read_answers(self.out).values()}
        for name in self.false_alarms(killers):
            print(f"fails without a slip: {name}")
        return True

    def choose(self, part: Part) -> dict[str, dict[str, Any]]:
        """Tests that a slip meets, in order; any may see one in what imports call."""
        place, costs = self.places[name_of(part)], dict[str, list[float]]()
        for name, test in self.tests.items():
            costs.setdefault(name.partition("::")[0], []).append(test["cpu_s"])

        def order(name: str) -> tuple[bool, float, str, float]:
            file = name.partition("::")[0]
            mean_s = sum(costs[file]) / len(costs[file])
            return part.path.stem not in file, mean_s, file, self.tests[name]["cpu_s"]

        is_imported = place in self.imports
        names = [n for n, test in self.tests.items() if is_imported or place in test["reaches"]]
        chosen, total_s = dict[str, dict[str, Any]](), 0.0
        for name in sorted(names, key=order):
            if not chosen or total_s + self.tests[name]["cpu_s"] <= self.most_s:
                chosen[name] = self.tests[name]
                total_s += self.tests[name]["cpu_s"]
        return chosen

    def try_slip(self, part: Part, source: str, trial: Trial) -> str:
        """The first test that fails or takes too long; "" if all pass."""
        if not trial.tests:
            return ""
        new, files = self.new_code(part, source), {name.partition("::")[0] for name in trial.tests}
        ways: list[Callable[[], int]] = []
        if new is not None:
            ways.append(lambda: self.run(trial, *new))
        if new is None or self.places[name_of(part)] in self.imports:
            ways.append(lambda: run_anew(sorted(files), trial))
        with changed({part.path: source}):  # processes that the tests start import it
            for way in ways:
                trial.tell("", 100.0, 600.0)
                code, said = in_fork(way, trial)
                name = trial.read()[0]
                assert code != 99 or name, said
                if code not in (0, 5):
                    return (name or said[-300:]) + (" (time)" if code < 0 else "")
        return ""

    def new_code(self, part: Part, source: str) -> tuple[list[FunctionType], CodeType] | None:
        """Functions of the imported modules, and the code that they get; None if the slip is in
        their defaults or decorators, or makes other variables free."""
        path = str(part.path.resolve())
        functions = self.functions.get((path, part.start + 1), [])
        after = len(part.path.read_text(encoding="utf-8").splitlines()) - part.node.end_lineno
        lines = source.splitlines(keepends=True)
        text = "".join(lines[part.start : len(lines) - after])
        [own] = ast.parse(textwrap.dedent(text)).body
        heads = ([node.args, *node.decorator_list] for node in (own, part.node))
        own_head, head = ([ast.unparse(one) for one in nodes] for nodes in heads)
        if own_head != head:
            return None
        try:
            codes = [compile(source, path, "exec", dont_inherit=True)]
        except SyntaxError:
            return None
        for code in codes:  # grows
            codes += [value for value in code.co_consts if isinstance(value, CodeType)]
            if (code.co_name, code.co_firstlineno) == (part.node.name, part.start + 1):
                same = {one.__code__.co_freevars for one in functions} == {code.co_freevars}
                return (functions, code) if same else None
        return None

    def run(
        self, trial: Trial, functions: Iterable[FunctionType] = (), code: CodeType | None = None
    ) -> int:
        """Run tests as they are imported; 1 if one fails.

        Args:
            trial: the tests.
            functions: that get other code.
            code: of them.
        """
        for function in functions:
            function.__code__ = code
        items = [self.items[name] for name in trial.tests if name in self.items]
        if not items:
            return 0
        session = items[0].session
        session.config.pluginmanager.register(trial)
        for item, later in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=later)
            if session.testsfailed:
                return 1
        return 0

    def false_alarms(self, killers: Iterable[str]) -> list[str]:
        """Those that fail without a slip too, where they run without the others."""
        left, alarms = {name: self.tests[name] for name in killers if name in self.tests}, []
        while True:
            trial = Trial(left)
            if in_fork(partial(self.run, trial), trial)[0] == 0:
                return alarms
            alarms.append(trial.read()[0])
            del left[alarms[-1]]


def in_fork(run: Callable[[], int], trial: Trial | None = None) -> tuple[int, str]:
    """The exit code and output of a fork; it has what is imported here.

    Args:
        run: gives the exit code.
        trial: says how long the fork may take.
    """
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                # a slip's bytecode must not stay; what this process starts reads the variable
                sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
                code = run()
                sys.stdout.flush()
                os._exit(code)
            finally:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(99)
        try:
            code = _wait(child, trial)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # and what its tests have left
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _wait(child: int, trial: Trial | None) -> int:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if trial is not None:
            stat = Path(f"/proc/{child}/stat").read_text(encoding="utf-8")
            ticks = map(int, stat.rpartition(")")[2].split()[11:13])
            _, cpu_s, until = trial.read()
            if time.monotonic() > until or sum(ticks) * tick_s > cpu_s:
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)


def pytest_arguments(files: Iterable[str]) -> list[str]:
    arguments = ["-q", "-s", "-n", "0", "-p", "no:cacheprovider", "-m", f"not ({LEFT_OUT})"]
    # of what is imported already
    return [*arguments, "-W", "ignore::pytest.PytestAssertRewriteWarning", *files]


def run_anew(files: Iterable[str], plugin: Survey | Trial) -> int:
    """Import the modules and run the tests, up to the first that fails in a trial."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("rlvr", "tests")]:
        del sys.modules[name]  # the files' own, with the slip, are imported instead
    first = ["-x"] if isinstance(plugin, Trial) else []
    return int(pytest.main([*pytest_arguments(files), *first], [plugin]))


def read_answers(path: Path) -> dict[str, dict[str, Any]]:
    """Those of earlier runs, by slip."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {answer["slip"]: answer for answer in lines}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rooms",
        nargs="*",
        choices=list(ROOMS),
        default=list(ROOMS),
        help="whose slips of the sample are tried",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of wall time in this run")
    parser.add_argument("--cpu-s", type=float, default=10.0, help="of the tests that a slip meets")
    parser.add_argument("--out", type=Path, required=True, help="file of answers, added to")
    args = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"]).returncode:
        parser.error("the checkout has changes; commit them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # after the file is restored
    until = time.monotonic() + 60 * args.minutes
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    slips_of = draw(args.seed, args.count)
    for room in args.rooms:
        answers = read_answers(args.out)
        left = {
            key: slip
            for key, slip in slips_of.items()
            if slip[0].path.is_relative_to(room) and key not in answers
        }
        if left:
            plugin = Room(room, left, args.cpu_s, until, args.out)
            code = pytest.main(pytest_arguments(ROOMS[room]), [plugin])
            if code:  # pytest has caught what ends this process
                sys.exit(int(code))
    answers = read_answers(args.out)
    tried = [answers[key] for key in slips_of if key in answers]
    lived = Counter(answer["slip"].split()[0] for answer in tried if not answer["killed_by"])
    killed = len(tried) - lived.total()
    low, high = wilson(killed, len(tried))
    print(f"{killed} of {len(tried)} slips were noticed ({low:.1%} to {high:.1%}); not in:")
    print(*(f"  {name}: {count}" for name, count in lived.most_common()), sep="\n")


if __name__ == "__main__":
    main()
