"""How many faults of the trainer's arithmetic `rlvr step verify` names: functions are changed one operator at a time.

    python -m benchmarks.step_mutants --count 200 --seed 0
    for k in $(seq 0 14); do python -m benchmarks.step_mutants --count 14 --share $k/15 & done; wait

A mutant counts if it changes what a step records; it is named if the judge finds a departure, or if the run stops.
"""

import argparse
import ast
import importlib
import os
import pkgutil
import random
import shutil
import sys
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
MODULES = "advantages aggregation corrections kl masks objectives ratios returns terms".split()
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.Gt, ast.Gt: ast.Lt,
    ast.LtE: ast.Gt, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip


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
        self.wanted, self.count, self.line, self.what = wanted, 0, 0, ""

    def _is_wanted(self, node: ast.AST, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.wanted:
            return False
        self.line = int(getattr(node, "lineno", 0))
        self.what = f"line {self.line}: {what}"
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


def called_by_name(folder: Path) -> tuple[dict[str, list[StepFile]], dict[str, set[CodeType]]]:
    """The plain steps, and the functions that each algorithm's ran."""
    found, called = {}, {}
    for name in RUNS:
        own = called[name] = set[CodeType]()
        sys.setprofile(lambda frame, event, arg, own=own: own.add(frame.f_code))
        try:
            found |= steps(folder, [name])
        finally:
            sys.setprofile(None)
    return found, called


def reached(module: ModuleType, line: int, called: dict[str, set[CodeType]]) -> list[str]:
    """The algorithms that run a function with this line."""

    def has_line(code: CodeType) -> bool:
        lines = [number for _, _, number in code.co_lines() if number]
        return code.co_filename == module.__file__ and min(lines) <= line <= max(lines)

    return [name for name, codes in called.items() if any(map(has_line, codes))]


def steps(folder: Path, names: Iterable[str]) -> dict[str, list[StepFile]]:
    """A step of two updates with each algorithm, and the updates that were left out of it."""
    found = {}
    for name in names:
        algorithm = load_algorithm(name, **RUNS[name])
        if algorithm.dynamic_sampling:
            algorithm = replace(algorithm, dynamic_sampling=False)
        run = folder / name
        config = Config(
            env="digits", model="tiny", run=run, algorithm=algorithm, steps=1, prompts=32, group_size=4,
            updates=2, max_tokens=6, lr=2e-2, workers=0, eval_every=None, rollouts_every=0, step_files=1,
        )  # fmt: skip
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
    return any(
        not np.isclose(a.get("loss") or 0, b.get("loss") or 0, rtol=1e-5, equal_nan=True)
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
    parser.add_argument("--share", default="0/1", help="K/N: the K-th of N equal shares, from 0")
    args = parser.parse_args()
    torch.set_num_threads(1)
    every: list[tuple[ModuleType, int]] = []
    for module in modules():
        counting = Change()
        counting.visit(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))
        every += [(module, place) for place in range(counting.count)]
    plain, called = called_by_name(Path(tempfile.mkdtemp()))
    files = [step for found in plain.values() for step in found]
    assert not any(quantity.status == "departs" for step in files for quantity in verify(step))
    counts, started = Counter[str](), time.process_time()
    first, shares = map(int, args.share.split("/"))
    order = random.Random(args.seed).sample(every, len(every))[first::shares]
    while order and counts["changed"] < args.count:
        module, place = order.pop()
        change = Change(place)
        tree = change.visit(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))
        names = reached(module, change.line, called)
        said = "unchanged, as nothing runs it"
        if names:
            said = in_a_child(module, ast.fix_missing_locations(tree), plain, names)
        counts["tried"] += 1
        counts[said.split()[0]] += 1
        counts["changed"] += said.split()[0] in ("named", "missed")
        print(f"{module.__name__} {change.what}: {said}", flush=True)
    print(dict(counts), f"{time.process_time() - started:.0f} CPU s here")


if __name__ == "__main__":
    main()
