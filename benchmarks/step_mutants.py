"""How many faults of the trainer's arithmetic `rlvr step verify` names:
functions are changed one operator at a time.

    python -m benchmarks.step_mutants --count 200 --minutes 9 --out mutants.jsonl

Mutants are drawn among the operators, numbers and flags in functions that a run calls.  One counts
if it changes what a step records, and is named if the judge finds a departure; those that stop the
run count apart.  Run it again to go on where it ended: FILE has an answer in each line.
"""

import argparse
import ast
import builtins
import importlib
import json
import os
import pkgutil
import random
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from rich.console import Console

import rlvr
import rlvr.algo.papers
from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.data.step_files import StepFile, read_step
from rlvr.errors import RlvrError
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

RUNS = {
    "grpo": {
        "correction": "token:truncate:2,sequence:mask:0.5:2",
        "entropy": 0.01,
        "clip_dual": 3.0,
    },
    "reinforce_pp": {},
    "gspo": {},
    "dr_grpo": {},
    "ppo": {},
    "sapo": {},
    "cispo": {},
    "gmpo": {},
    "kl_cov": {},
    "rloo": {},
}
TRIED = 3
"""Algorithms that a mutant is tried with, of those that run its line."""
MODULES = "advantages aggregation corrections kl masks objectives ratios returns terms".split()
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.Gt,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


_STOPS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError),
    *(RlvrError, RuntimeError, TypeError, ValueError),
)


class Change(ast.NodeTransformer):
    """Changes the operator, number or flag with a number; counts them all.

    Args:
        wanted: which; -1 to count alone.
    """

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.what = wanted, ""
        self.lines: list[int] = []

    def _is_wanted(self, node: ast.AST, what: str) -> bool:
        line = int(getattr(node, "lineno", 0))
        self.lines.append(line)
        if len(self.lines) - 1 != self.wanted:
            return False
        self.what = f"line {line}: {what}"
        return True

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        kind = SWAPS.get(type(node.op))
        if kind and self._is_wanted(node, f"{type(node.op).__name__} to {kind.__name__}"):
            node.op = kind()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        kind = SWAPS.get(type(node.ops[0]))
        if kind and self._is_wanted(node, f"{type(node.ops[0]).__name__} to {kind.__name__}"):
            node.ops[0] = kind()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_wanted(node, f"{node.value} to {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int | float) and self._is_wanted(
            node, f"{node.value} to {node.value * 1.5 + 1}"
        ):
            return ast.copy_location(ast.Constant(type(node.value)(node.value * 1.5 + 1)), node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if self._is_wanted(node, f"without {type(node.op).__name__}"):
            return node.operand
        return node


class Digits(rlvr.Environment):
    """The first character decides: a digit below 5 is right."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"{self.id}/{index}", f"{index % 40}=", reference="a digit below 5")

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        right = completion[:1] in tuple("01234")
        return rlvr.Verdict(rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG, why="first")


def modules() -> Iterator[ModuleType]:
    for name in MODULES:
        yield importlib.import_module(f"rlvr.algo.{name}")
    for found in pkgutil.iter_modules(rlvr.algo.papers.__path__):
        if found.name in (*RUNS, "base"):
            yield importlib.import_module(f"rlvr.algo.papers.{found.name}")
    for name in ("credit", "parts", "learner"):
        yield importlib.import_module(f"rlvr.train.{name}")


def codes(code: CodeType, prefix: str = "") -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from codes(constant)


def apply(module: ModuleType, tree: ast.Module) -> None:
    """Give the living functions of a module the code of a changed one."""
    changed = dict(codes(compile(tree, str(module.__file__), "exec")))
    for name, code in changed.items():
        found: Any = module
        for part in name.split("."):
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        function = getattr(found, "__wrapped__", found)
        function = getattr(function, "fget", function)
        function = getattr(function, "func", function)
        if isinstance(function, FunctionType) and len(function.__code__.co_freevars) == len(
            code.co_freevars
        ):
            function.__code__ = code


class Marks(ast.NodeTransformer):
    """Lets each function of a module say that it runs, by the line of its `def`."""

    def __init__(self) -> None:
        self.lines: dict[int, set[int]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        own = set(range(node.lineno, (node.end_lineno or 0) + 1))
        self.generic_visit(node)
        inner = (self.lines[one.lineno] for one in node.body if isinstance(one, ast.FunctionDef))
        self.lines[node.lineno] = own.difference(*inner)
        said = f"__import__('builtins').rlvr_ran.add((__file__, {node.lineno}))"
        node.body.insert(0, ast.parse(said).body[0])
        return node


def lines_by_name(
    folder: Path,
) -> tuple[dict[str, list[StepFile]], dict[str, set[tuple[str, int]]]]:
    """The plain steps, and the lines of the functions that each algorithm ran."""
    marked = {}
    for module in modules():
        marks = Marks()
        tree = ast.fix_missing_locations(marks.visit(parsed(module)))
        apply(module, tree)
        marked[module.__file__] = marks.lines
    found, lines = {}, {}
    for name in RUNS:
        ran = builtins.rlvr_ran = set[tuple[str, int]]()  # type: ignore[attr-defined]
        found |= steps(folder, [name])
        lines[name] = {(file, line) for file, at in ran for line in marked[file][at]}
    for module in modules():
        apply(module, parsed(module))
    return found, lines


def places() -> Iterator[tuple[ModuleType, int, int]]:
    """Each mutant: its module, number and line."""
    for module in modules():
        tree = parsed(module)
        counting = Change()
        counting.visit(tree)
        yield from ((module, n, line) for n, line in enumerate(counting.lines))


def parsed(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def steps(folder: Path, names: Iterable[str]) -> dict[str, list[StepFile]]:
    """A step of two updates with each algorithm, and the updates that were left out of it."""
    found = {}
    for name in names:
        algorithm = load_algorithm(name, **RUNS[name])
        if algorithm.dynamic_sampling:
            algorithm = replace(algorithm, dynamic_sampling=False)
        run = folder / name
        config = Config(
            env="digits",
            model="tiny",
            run=run,
            algorithm=algorithm,
            steps=1,
            prompts=12,
            group_size=4,
            updates=None if name == "rloo" else 2,
            max_tokens=6,
            lr=2e-2,
            workers=0,
            eval_every=None,
            rollouts_every=0,
            step_files=1,
            verify_every=0,
        )
        env = Digits()
        policy = Policy(*tiny("0123456789= ", seed=0, hidden=16, heads=2, layers=1))
        with Trainer(
            config, policy=policy, env=env, eval_env=env, console=Console(quiet=True)
        ) as trainer:
            trainer.run()
        found[name] = [read_step(file) for file in sorted((run / "steps").iterdir())]
    return found


def differs(every: list[StepFile], others: list[StepFile]) -> bool:
    if len(every) != len(others):
        return True
    ours, theirs = every[0], others[0]
    for name, array in ours.arrays.items():
        other = theirs.arrays.get(name)
        if other is None or other.shape != array.shape:
            return True
        least = 1e-5 * float(np.abs(np.nan_to_num(array)).max(initial=0.0))  # less is rounding
        if not np.allclose(array, other, rtol=1e-4, atol=least, equal_nan=True):
            return True
    # Terms of the advantages' size cancel in the loss, and leave their rounding.
    least = 1e-6 * float(np.abs(np.nan_to_num(ours.arrays["advantages"])).max(initial=0.0))
    return any(
        not np.isclose(
            a.get("loss") or 0, b.get("loss") or 0, rtol=1e-5, atol=least, equal_nan=True
        )
        for a, b in zip(ours.updates, theirs.updates, strict=False)
    )


def verdict(
    module: ModuleType,
    tree: ast.Module,
    plain: dict[str, list[StepFile]],
    names: list[str],
    folder: Path,
) -> str:
    """Of a mutant: unchanged, stopped, missed, or the quantity that is named."""
    apply(module, tree)
    missed = []
    for name in names:
        try:
            found = steps(folder, [name])[name]
        except _STOPS as error:
            return f"stopped by {type(error).__name__}"
        if not differs(plain[name], found):
            continue
        for quantity in (one for step in found for one in verify(step)):
            if quantity.status == "departs":
                return f"named {quantity.quantity} in {name}"
        missed.append(name)
    return f"missed in {', '.join(missed)}" if missed else "unchanged"


def in_a_child(*args: Any) -> str:
    reading, writing = os.pipe()
    if not (child := os.fork()):
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + 30, used + 30))
        folder = Path(tempfile.mkdtemp())
        text = verdict(*args, folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.write(writing, text.encode()[:500])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text or "stopped by a crash"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=9.0, help="of wall time in this part")
    parser.add_argument("--out", type=Path, required=True, help="file of answers, added to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * args.minutes
    plain, lines = lines_by_name(Path(tempfile.mkdtemp()))
    every_step = [step for found in plain.values() for step in found]
    assert not any(one.status == "departs" for step in every_step for one in verify(step))
    run_by = {
        (module, number): [name for name in RUNS if (module.__file__, line) in lines[name]]
        for module, number, line in places()
    }
    order = [mutant for mutant, names in run_by.items() if names]
    random.Random(args.seed).shuffle(order)
    answers = read_answers(args.out)
    for module, number in order:
        counts = Counter(answer.split()[0] for answer in answers.values())
        if counts["named"] + counts["missed"] >= args.count or time.monotonic() > until:
            break
        change = Change(number)
        tree = ast.fix_missing_locations(change.visit(parsed(module)))
        key = f"{module.__name__} {number} {change.what}"
        if key not in answers:
            names = run_by[module, number][:TRIED]
            answers[key] = in_a_child(module, tree, plain, names)
            with args.out.open("a", encoding="utf-8") as out:
                print(json.dumps([key, answers[key]]), file=out)
    counts = Counter(answer.split()[0] for answer in answers.values())
    print(f"of {len(order)} mutants in functions that run: {dict(counts)}")
    print(*(f"{key}: {one}" for key, one in answers.items() if one.startswith("missed")), sep="\n")


def read_answers(path: Path) -> dict[str, str]:
    """Those of earlier parts."""
    if not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
