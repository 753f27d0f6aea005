"""Integer arithmetic: tasks without end, for demonstrations, tests and first training runs.

The map of `rlvr.envs`, one file for each environment, under its id:

arithmetic, gsm8k, math              numbers and formulas
science, chemistry                   quantities with units; formulas and equations
science_problems, reactions          … what these draw from
code, humaneval, mbpp, code_stdio    programs: the base, and data sets
code_dialects, code_drills           how data sets store a problem; small functions without end
qa, mcq, rows                        short answers; options; any rows with a verifier by name
function_call, json_objects, sql     structures
ifeval, iftrain, instruction_tasks   instructions: rows, procedural, and their words
puzzles, countdown, sudoku           what procedural ones share; expressions; grids
knights, claims, zebra, clues        roles and what they say; houses and their clues
games                                moves without tools
tool_math, search, bash              tools: Python, a corpus, files
desk, desk_worlds                    errands under rules, and their worlds
swe_lite, swe_projects, swe_finder   bugs of small projects; the projects; how tasks are found
swe                                  the table of found tasks

Contract: `rlvr.Environment`, registered by an entry point in pyproject.toml.
Sees `scoring` and below, not `testing`; `cli` finds them by id.
Goes wrong: splits that share tasks (seed by `rlvr.seeded`), and a changed prompt, task or verdict
without another `-vN`.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any, NamedTuple, TypeAlias

import rlvr
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.math import MathVerifier

__all__ = ["Arithmetic"]

# tenths of all expressions
_SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}
# Only in the prompt: the reference and the expression keep the signs of programs.
_SIGNS = str.maketrans("*/", "×÷")

_Form: TypeAlias = tuple[str, tuple[tuple[int, Any], ...]]
"""Equal for `3 + 4` and `4 + 3`: the kind of the outermost operation and its
sorted operands, or a number."""


class _Expression(NamedTuple):
    """An expression: text, value, binding strength of the outermost operation, and form."""

    text: str
    value: int
    binds: int
    form: _Form


@rlvr.register("arithmetic-v1")
class Arithmetic(rlvr.Environment):
    r"""Evaluate an expression of integers; the answer goes in the last \boxed{}.

    Options:
        difficulty: from 1 to 10.  1: two terms of one digit, some 200 tasks in all; 2: two terms of
            two digits; 10: six terms of six digits.
        operations: those of + - * / that may occur; every division is exact.

    `split` is train, validation or test.  A hash assigns each expression to one of them, together
    with all expressions that differ from it only in the order of terms or factors or in brackets
    that make no difference.
    """

    domain = "mathematics"
    difficulty: int = 2
    operations: str = "+-*"
    reward = rlvr.Correct(MathVerifier())

    def __post_init__(self) -> None:
        require_whole("difficulty", self.difficulty, 1, 10)
        if not self.operations or set(self.operations) - set(_BINDS):
            raise rlvr.UsageError(
                f"operations is {self.operations!r}; name some of {' '.join(_BINDS)}"
            )
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        # Drawn until the expression belongs to this split, so that no task is in two of them.
        while True:
            expression = self._expression(rng, terms=2 + (self.difficulty - 1) // 2)
            if _tenth(expression.form) in _SPLITS[self.split]:
                break
        name = f"{self.id}/{self.split}/{self.difficulty}/{self.operations}/{index}"
        prompt = f"Compute {expression.text.translate(_SIGNS)}. Put the answer in \\boxed{{}}."
        return rlvr.Task(
            name, prompt, reference=expression.value, meta={"expression": expression.text}
        )

    def _expression(self, rng: Random, terms: int, multiple_of: int = 1) -> _Expression:
        if terms == 1:
            # From one digit at difficulty 1 to six at 10.
            digits = 1 + self.difficulty // 2
            value = rng.randint(1, 10**digits - 1) * multiple_of
            return _Expression(str(value), value, 3, (str(value), ()))
        op = rng.choice(self.operations)
        # A divisor is a single number.
        on_the_right = 1 if op == "/" else rng.randint(1, terms - 1)
        # The divisor is made first, and the dividend as a multiple of it; other demands are passed
        # down.
        b = self._expression(rng, on_the_right, multiple_of if op in "+-" else 1)
        a = self._expression(rng, terms - on_the_right, multiple_of * (b.value if op == "/" else 1))
        left = f"({a.text})" if a.binds < _BINDS[op] else a.text
        # a - (b - c) and a / (b / c) need their brackets; a + (b + c) does not.
        right = (
            f"({b.text})"
            if b.binds < _BINDS[op] or (b.binds == _BINDS[op] and op in "-/")
            else b.text
        )
        value = _apply(op, a.value, b.value)
        return _Expression(
            f"{left} {op} {right}", value, _BINDS[op], _join_operands(op, a.form, b.form)
        )


def _apply(op: str, a: int, b: int) -> int:
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a // b


def _join_operands(op: str, left: _Form, right: _Form) -> _Form:
    """A chain of + and -, or of * and /: its operands, each with its sign, sorted."""
    # Subtraction is addition with another sign, division the other way of multiplication.
    kind, sign = ("+-", 1 if op == "+" else -1) if op in "+-" else ("*/", 1 if op == "*" else -1)
    return kind, tuple(sorted(_operands(left, kind, 1) + _operands(right, kind, sign)))


def _operands(form: _Form, kind: str, sign: int) -> list[tuple[int, _Form]]:
    return [(sign * s, operand) for s, operand in form[1]] if form[0] == kind else [(sign, form)]


def _tenth(form: _Form) -> int:
    # The first byte of a hash, spread over ten parts.
    return hashlib.sha256(repr(form).encode()).digest()[0] * 10 // 256
