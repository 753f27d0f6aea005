"""Sudoku of 6 or 9 rows with exactly one solution."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from random import Random
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.puzzles import Made, Puzzle, column
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.logic import SudokuVerifier
from rlvr.verifiers.logic_solvers import box_shape, sudoku_solutions

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Sudoku"]


@rlvr.register("sudoku-v4")
class Sudoku(Puzzle):
    """Fill the grid; the answer is checked by the rules, and the given digits must stand.

    Options:
        rows: of the grid: 6 or 9.
        difficulty: from 1 (a quarter of the cells is empty) to 5 (as many as leave one solution, at
            most 60 %).
        data: rows with `puzzle` (or `question`, `quizzes`) to take instead: a file or a hub id.  A
            puzzle has 16, 36 or 81 characters, `.` or `0` where nothing is given, or is a list of
            lists of digits.
    """

    rows: int = 6
    difficulty: int = 2
    data: str = ""
    reward = rlvr.Correct(SudokuVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("rows", self.rows, (6, 9))
        require_whole("difficulty", self.difficulty, 1, 5)

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        solved = _fill_grid(rng, self.rows)
        # the same under other digits is the same puzzle
        # Digits are named by their places in the first row.
        names = {digit: at for at, digit in enumerate(solved[0])}
        if not mine([[names[digit] for digit in row] for row in solved]):
            return None
        puzzle = [list(row) for row in solved]
        cells = [(row, place) for row in range(self.rows) for place in range(self.rows)]
        rng.shuffle(cells)
        # 24 % of the cells at difficulty 1, 60 % at 5.
        left = self.rows**2 * (15 + 9 * self.difficulty) // 100
        for row, place in cells:
            if left == 0:
                break
            puzzle[row][place] = 0
            # Emptied only as long as one solution is left; two suffice to see that.
            if len(sudoku_solutions(puzzle, most=2)) == 1:
                left -= 1
            else:
                puzzle[row][place] = solved[row][place]
        return Made(_prompt_of(puzzle), puzzle, _text(solved))

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        puzzle = column(row, "puzzle", "question", "quizzes")
        puzzle = self.reference_of(_square(puzzle) if isinstance(puzzle, str) else puzzle)
        return rlvr.Task(id, _prompt_of(puzzle), puzzle)

    def example(self, task: rlvr.Task) -> str | None:
        return super().example(task) or SudokuVerifier().example(task.reference)


def _prompt_of(puzzle: list[list[int]]) -> str:
    size = len(puzzle)
    high, wide = box_shape(size)
    return (
        f"Fill the empty cells (.) of this sudoku with 1 to {size}, so that each row, column and "
        f"box of {high} rows and {wide} columns has every digit once.\n\n{_text(puzzle)}\n\n"
        f"Give all {size} rows between <answer> and </answer>."
    )


def _square(puzzle: str) -> list[list[int]]:
    """The rows of a puzzle on one line, as data sets have them."""
    digits = [0 if char in ".0_" else int(char) for char in "".join(puzzle.split())]
    size = isqrt(len(digits))
    if size**2 != len(digits):
        raise rlvr.DataError(f"the puzzle has {len(digits)} characters, which make no square")
    return [digits[at : at + size] for at in range(0, len(digits), size)]


def _fill_grid(rng: Random, size: int) -> list[list[int]]:
    """A full grid: a shifted pattern with rows, columns and digits shuffled inside what the rules
    allow."""
    high, wide = box_shape(size)

    def order(group: int, count: int) -> list[int]:
        blocks = [rng.sample(range(at * group, (at + 1) * group), group) for at in range(count)]
        rng.shuffle(blocks)
        return [line for block in blocks for line in block]

    digits = rng.sample(range(1, size + 1), size)
    columns = order(wide, size // wide)
    # Each row is the one before shifted by a box's width, so that boxes hold each digit once.
    return [
        [digits[(wide * (r % high) + r // high + c) % size] for c in columns]
        for r in order(high, size // high)
    ]


def _text(grid: list[list[int]]) -> str:
    return "\n".join(" ".join(str(digit) if digit else "." for digit in row) for row in grid)
