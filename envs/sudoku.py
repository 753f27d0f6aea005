"""Sudoku of 6 or 9 rows with exactly one solution."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import rlvr
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.logic import SudokuVerifier
from rlvr.verifiers.logic_solvers import box_shape, sudoku_solutions

__all__ = ["Sudoku"]


@rlvr.register("sudoku-v2")
class Sudoku(Puzzle):
    """Fill the grid; the answer is checked by the rules, and the given digits must stand.

    Options:
        size: rows of the grid: 6 or 9.
        difficulty: from 1 (a quarter of the cells is empty) to 5 (as many as leave one solution, at most 60 %).
    """

    size: int = 6
    difficulty: int = 2
    reward = rlvr.Correct(SudokuVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("size", self.size, (6, 9))
        require_whole("difficulty", self.difficulty, 1, 5)

    def make(self, rng: Random, mine: Callable[[Any], bool]) -> Made | None:
        solved = _filled(rng, self.size)
        names = {
            digit: at for at, digit in enumerate(solved[0])
        }  # the same under other digits is the same puzzle
        if not mine([[names[digit] for digit in row] for row in solved]):
            return None
        puzzle = [list(row) for row in solved]
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        rng.shuffle(cells)
        left = self.size**2 * (15 + 9 * self.difficulty) // 100
        for row, column in cells:
            if left == 0:
                break
            puzzle[row][column] = 0
            if len(sudoku_solutions(puzzle, most=2)) == 1:
                left -= 1
            else:
                puzzle[row][column] = solved[row][column]
        high, wide = box_shape(self.size)
        prompt = (
            f"Fill the empty cells (.) of this sudoku with 1 to {self.size}, so that each row, column and box "
            f"of {high} rows and {wide} columns has every digit once.\n\n{_text(puzzle)}\n\n"
            f"Give all {self.size} rows between <answer> and </answer>."
        )
        return Made(prompt, puzzle, _text(solved))


def _filled(rng: Random, size: int) -> list[list[int]]:
    """A full grid: a shifted pattern with rows, columns and digits shuffled inside what the rules allow."""
    high, wide = box_shape(size)

    def order(group: int, count: int) -> list[int]:
        blocks = [rng.sample(range(at * group, (at + 1) * group), group) for at in range(count)]
        rng.shuffle(blocks)
        return [line for block in blocks for line in block]

    digits = rng.sample(range(1, size + 1), size)
    columns = order(wide, size // wide)
    return [
        [digits[(wide * (r % high) + r // high + c) % size] for c in columns]
        for r in order(high, size // high)
    ]


def _text(grid: list[list[int]]) -> str:
    return "\n".join(" ".join(str(digit) if digit else "." for digit in row) for row in grid)
