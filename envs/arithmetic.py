"""Integer arithmetic: a task family that never ends, for demonstrations, tests and first training runs."""

from __future__ import annotations

import hashlib
from random import Random

import rlvr
from rlvr.verifiers.math import MathVerifier

__all__ = ["Arithmetic"]

_SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}  # tenths of all expressions
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}
_SIGNS = str.maketrans("*/", "×÷")


@rlvr.register("arithmetic-v1")
class Arithmetic(rlvr.SingleTurnEnv):
    r"""Evaluate an expression of integers; the answer goes in the last \boxed{}.

    Options:
        difficulty: 1 is two terms of one digit, 10 is six terms of six digits.
        operations: which of + - * / may occur; every division is exact.

    `split` is train, validation or test, and a hash of its text decides where an expression belongs: none is in two.
    """

    difficulty: int = 1
    operations: str = "+-*"
    reward = rlvr.Correct(MathVerifier())

    def __post_init__(self) -> None:
        if self.difficulty not in range(1, 11):
            raise rlvr.UsageError(f"difficulty is {self.difficulty!r}; it must be a whole number from 1 to 10")
        if not self.operations or set(self.operations) - set(_BINDS):
            raise rlvr.UsageError(f"operations is {self.operations!r}; name some of {' '.join(_BINDS)}")
        if self.split not in _SPLITS:
            raise rlvr.UsageError(f"split is {self.split!r}; it must be one of {', '.join(_SPLITS)}")

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            text, value, _ = self._expression(rng, terms=2 + (self.difficulty - 1) // 2)
            if _tenth(text) in _SPLITS[self.split]:
                break
        prompt = f"Compute {text.translate(_SIGNS)}. Put the answer in \\boxed{{}}."
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, reference=value, meta={"expression": text})

    def _expression(self, rng: Random, terms: int, multiple_of: int = 1) -> tuple[str, int, int]:
        """A random expression: its text, its value, and how tightly its outermost operation binds."""
        if terms == 1:
            digits = 1 + self.difficulty // 2
            value = rng.randint(1, 10**digits - 1) * multiple_of
            return str(value), value, 3
        op = rng.choice(self.operations)
        on_the_right = 1 if op == "/" else rng.randint(1, terms - 1)
        # A dividend is made a multiple of its divisor, which is known first; the other demands are passed down.
        right, b, right_binds = self._expression(rng, on_the_right, multiple_of if op in "+-" else 1)
        left, a, left_binds = self._expression(rng, terms - on_the_right, multiple_of * (b if op == "/" else 1))
        left = f"({left})" if left_binds < _BINDS[op] else left
        right = f"({right})" if right_binds < _BINDS[op] or (right_binds == _BINDS[op] and op in "-/") else right
        return f"{left} {op} {right}", _apply(op, a, b), _BINDS[op]


def _apply(op: str, a: int, b: int) -> int:
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a // b


def _tenth(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0] * 10 // 256
