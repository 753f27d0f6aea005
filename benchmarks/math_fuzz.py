r"""Expressions drawn as trees, printed in three notations, and an oracle that knows no LaTeX.

    python -m benchmarks.math_fuzz --pairs 100000                      rlvr alone
    python -m benchmarks.math_fuzz --pairs 2000 --prove 200 --peer peers/bin/python

Half of the pairs are one tree in two spellings, and half a tree and the same with one leaf, sign or
function changed, whose value Python's complex numbers tell.  Every verdict other than the oracle's
is counted by its reason.  `--prove` asks SymPy too, for so many pairs; `--peer` asks math-verify,
in the Python where it is installed.
"""

from __future__ import annotations

import argparse
import cmath
import json
import math
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeAlias

from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.math.latex.tree import Node, call, num, sym

__all__ = ["NOTATIONS", "Tree", "as_node", "drawn", "pairs", "printed", "values"]

Tree: TypeAlias = tuple[object, ...]
"""("num", 3), ("sym", "x"), or an operator and its parts."""

NOTATIONS = ("latex", "unicode", "plain")
_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "ln": cmath.log,
    "sqrt": cmath.sqrt,
    "abs": lambda z: complex(abs(z)),
}
_OPERATORS: dict[str, Callable[[complex, complex], complex]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
}
_TIMES = {"latex": (r"\cdot ", r"\times ", ""), "unicode": ("·", "×", ""), "plain": ("*", " * ")}
_POINTS = tuple(
    {"x": x, "y": y} for x, y in ((0.73, 1.91), (2.37, 0.59), (1.13, 3.07), (0.41, 2.2))
)
_BATCH = 500


def drawn(rng: Random, depth: int) -> Tree:
    """A tree of so many levels at most.

    Args:
        rng: where the choices come from.
        depth: levels of operators.
    """
    if depth == 0 or rng.random() < 0.15:
        return ("num", rng.randint(1, 9)) if rng.random() < 0.45 else ("sym", rng.choice("xy"))
    kind = rng.choice("+-*/^f+-*")
    if kind == "f":
        return (rng.choice(list(_FUNCTIONS)), drawn(rng, depth - 1))
    if kind == "^":
        return ("^", drawn(rng, depth - 1), ("num", rng.randint(2, 3)))
    return (kind, drawn(rng, depth - 1), drawn(rng, depth - 1))


def as_node(tree: Tree) -> Node:
    """What reading any of its spellings has to give.

    Args:
        tree: from `drawn`.
    """
    kind, *parts = tree
    if kind == "num":
        return num(int(str(parts[0])))
    if kind == "sym":
        return sym(str(parts[0]))
    inner = [as_node(part) for part in parts if isinstance(part, tuple)]
    if kind == "sqrt":
        return Node("root", (inner[0], num(2)))
    if kind in _FUNCTIONS:
        return call(str(kind), inner[0])
    if kind == "-":
        return Node("add", (inner[0], Node("neg", (inner[1],))))
    return Node({"+": "add", "*": "mul", "/": "div", "^": "pow"}[str(kind)], tuple(inner))


def printed(tree: Tree, rng: Random, notation: str) -> str:
    """One of many spellings; brackets go around everything that is not a single sign.

    Args:
        tree: from `drawn`.
        rng: which spelling.
        notation: one of `NOTATIONS`.
    """
    kind, *parts = tree
    if kind in ("num", "sym"):
        return str(parts[0])
    bare = [printed(part, rng, notation) for part in parts if isinstance(part, tuple)]
    if kind in _FUNCTIONS:
        return _applied(str(kind), bare[0], notation, rng)
    a, b = (
        text if part[0] in ("num", "sym") else f"({text})"
        for text, part in zip(bare, (p for p in parts if isinstance(p, tuple)), strict=True)
    )
    if kind in "+*" and rng.random() < 0.4:
        a, b = b, a
    if kind == "/" and notation == "latex":
        return rf"\frac{{{bare[0]}}}{{{bare[1]}}}" if rng.random() < 0.7 else f"({a})/({b})"
    if kind == "^":
        return f"{a}²" if notation == "unicode" and b == "2" else f"{a}^{{{b}}}"
    if kind == "*":
        sign = rng.choice(_TIMES[notation])
        return f"({a}){sign}({b})" if sign == "" else f"{a}{sign}{b}"
    return f"{a}{'−' if notation == 'unicode' and kind == '-' else kind}{b}"


def _applied(name: str, inner: str, notation: str, rng: Random) -> str:
    if name == "abs":
        return (
            rng.choice((f"|{inner}|", rf"\left|{inner}\right|"))
            if notation == "latex"
            else f"|{inner}|"
        )
    if notation != "latex":
        return f"√({inner})" if notation == "unicode" and name == "sqrt" else f"{name}({inner})"
    if name == "sqrt":
        return rf"\sqrt{{{inner}}}"
    return rng.choice((rf"\{name}({inner})", rf"\{name}\left({inner}\right)"))


def changed(tree: Tree, rng: Random) -> Tree:
    """The same with one leaf, sign or function changed.

    Args:
        tree: from `drawn`.
        rng: which.
    """
    kind, *parts = tree
    if kind == "num":
        return ("num", int(str(parts[0])) + 1)
    if kind == "sym":
        return ("sym", "y" if parts[0] == "x" else "x")
    if kind in _FUNCTIONS and rng.random() < 0.4:
        return (rng.choice([name for name in _FUNCTIONS if name != kind]), *parts)
    if kind in "+-*/" and rng.random() < 0.4:
        return ({"+": "-", "-": "+", "*": "/", "/": "*"}[str(kind)], *parts)
    at = rng.randrange(len(parts)) if kind != "^" else 0
    return (
        kind,
        *(changed(p, rng) if i == at and isinstance(p, tuple) else p for i, p in enumerate(parts)),
    )


def values(tree: Tree) -> list[complex] | None:
    """What it is worth at four points;
    None where it has no finite real value of ordinary size at one of them.

    Args:
        tree: from `drawn`.
    """
    try:
        found = [_worth(tree, at) for at in _POINTS]
    except (ArithmeticError, ValueError):
        return None
    return found if all(abs(v.imag) < 1e-12 and abs(v) < 1e6 for v in found) else None


def _worth(tree: Tree, at: dict[str, float]) -> complex:
    kind, *parts = tree
    if kind == "num":
        return complex(int(str(parts[0])))
    if kind == "sym":
        return complex(at[str(parts[0])])
    inner = [_worth(part, at) for part in parts if isinstance(part, tuple)]
    return _FUNCTIONS[str(kind)](inner[0]) if kind in _FUNCTIONS else _OPERATORS[str(kind)](*inner)


def pairs(seed: int, depth: int = 3) -> Iterator[tuple[str, str, bool]]:
    """Reference, answer and whether they are equal, without end.

    Args:
        seed: of the choices.
        depth: levels of operators.
    """
    rng = Random(seed)
    while True:
        tree = drawn(rng, depth)
        mine = values(tree)
        if mine is None or tree[0] in ("num", "sym"):
            continue
        there, here = rng.choice(NOTATIONS), rng.choice(NOTATIONS)
        yield printed(tree, rng, there), printed(tree, rng, here), True
        other = changed(tree, rng)
        its = values(other)
        apart = its is not None and sum(
            not math.isclose(a.real, b.real, rel_tol=1e-6, abs_tol=1e-6)
            for a, b in zip(mine, its, strict=True)
        )
        if apart:
            yield printed(tree, rng, there), printed(other, rng, here), False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prove", type=int, default=0, help="pairs on which SymPy is asked")
    parser.add_argument("--peer", type=Path, help="the Python of math-verify")
    given = parser.parse_args()
    verifier = MathVerifier(MathPolicy(form="any", rounding="exact"))
    source, counts = pairs(given.seed), Counter[str]()
    started, asked = time.process_time(), 0
    while asked < given.pairs:
        rows = [next(source) for _ in range(min(_BATCH, given.pairs - asked))]
        found = verifier.verify_many((rf"\boxed{{{a}}}", r) for r, a, _ in rows)
        asked += len(rows)
        for (reference, answer, equal), verdict in zip(rows, found, strict=True):
            if verdict.correct is not equal:
                counts[f"{'refused' if equal else 'paid'}: {verdict.why}"] += 1
                print(json.dumps([reference, answer, equal, verdict.why], ensure_ascii=False))
    print(f"{asked} pairs, {sum(counts.values())} verdicts other than the oracle's")
    print(f"{time.process_time() - started:.0f} CPU s here, without the worker's")
    for reason, count in counts.most_common():
        print(f"{count:6} {reason}")
    rows = [row for row, _ in zip(pairs(given.seed + 1), range(given.prove), strict=False)]
    opinions = Counter(
        str(verifier.compare(a, r, prove=True).why).rpartition(": ")[2] for r, a, _ in rows
    )
    print("SymPy:", dict(opinions))
    if given.peer:
        _ask(
            given.peer, [row for row, _ in zip(pairs(given.seed), range(given.pairs), strict=False)]
        )


def _ask(python: Path, rows: list[tuple[str, str, bool]]) -> None:
    """math-verify's verdicts on the same pairs, against the oracle's."""
    lines = [
        json.dumps({"id": str(at), "reference": r, "completion": rf"\boxed{{{a}}}"})
        for at, (r, a, _) in enumerate(rows)
    ]
    sides = Path(__file__).with_name("math_sides.py")
    done = subprocess.run(
        [str(python), "-P", str(sides), "math-verify", "main"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    counts = Counter[str]()
    for line in filter(lambda line: '"id"' in line, done.stdout.splitlines()):
        said = json.loads(line)
        if said["right"] is not rows[int(said["id"])][2]:
            counts["paid" if said["right"] else "refused"] += 1
    print("math-verify, other than the oracle:", dict(counts))


if __name__ == "__main__":
    main()
