"""Countdown and the game of 24: an expression of given numbers with a given value."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.puzzles import Made, Puzzle, column
from rlvr.validate import require_whole
from rlvr.verifiers.logic import ExpressionVerifier
from rlvr.verifiers.logic_solvers import apply_sign, solve24

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Countdown", "Game24"]

_HOW = (
    "Use + - * / and brackets, and each number at most as often as it is given{all}. "
    "Put the expression between <answer> and </answer>."
)


@rlvr.register("countdown-v4")
class Countdown(Puzzle):
    """Make a target from some of the given numbers; every puzzle has a solution,
    and any solution is right.

    Options:
        difficulty: from 1 (three numbers up to 10) to 5 (seven numbers up to 100).
        data: rows with `nums` (or `numbers`) and `target` (Jiayi-Pan/Countdown-Tasks-3to4) to take
            instead: a file or a hub id.
    """

    difficulty: int = 2
    data: str = ""
    reward = rlvr.Correct(ExpressionVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("difficulty", self.difficulty, 1, 5)

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        highest = (10, 25, 50, 75, 100)[self.difficulty - 1]
        numbers = [rng.randint(1, highest) for _ in range(self.difficulty + 2)]
        terms = [(Fraction(number), str(number)) for number in numbers]
        while len(terms) > 1:
            rng.shuffle(terms)
            terms = [_join_terms(rng, terms[0], terms[1]), *terms[2:]]
        value, text = terms[0]
        # Whole, from 10 to ten times the highest number that may be drawn, and none of the numbers.
        fits = value.denominator == 1 and 10 <= value <= 10 * highest and value not in numbers
        if not fits or not mine((sorted(numbers), int(value))):
            return None
        target = int(value)
        return Made(_write_question(numbers, target), {"numbers": numbers, "target": target}, text)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        numbers, target = column(row, "nums", "numbers"), column(row, "target")
        reference = self.reference_of({"numbers": numbers, "target": target})
        return rlvr.Task(id, _write_question(numbers, target), reference)


def _write_question(numbers: list[int], target: int) -> str:
    listed = ", ".join(map(str, numbers))
    return f"Make {target} from the numbers {listed}. {_HOW.format(all='')}"


def _join_terms(
    rng: Random, one: tuple[Fraction, str], other: tuple[Fraction, str]
) -> tuple[Fraction, str]:
    # The larger first, so that differences are not negative; division only where it comes out.
    (a, left), (b, right) = max(one, other), min(one, other)
    signs = "+-*/" if b and (a / b).denominator == 1 else "+-*"
    return apply_sign(rng.choice(signs), a, b, left, right)


@rlvr.register("game24-v4")
class Game24(Puzzle):
    """Make 24 from four numbers of 1 to 13, each used exactly once; only
    solvable ones are asked."""

    reward = rlvr.Correct(ExpressionVerifier())

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        numbers = [rng.randint(1, 13) for _ in range(4)]
        # By the numbers alone: their order makes no other puzzle.
        if not mine(sorted(numbers)):
            return None
        solution = solve24([(Fraction(number), str(number)) for number in numbers])
        if solution is None:
            return None
        prompt = (
            f"Make 24 from the numbers {', '.join(map(str, numbers))}. "
            f"{_HOW.format(all=', and use all of them')}"
        )
        return Made(prompt, {"numbers": numbers, "target": 24, "all": True}, solution)
