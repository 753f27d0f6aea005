"""Zebra puzzles: which house has what, from clues that leave exactly one grid."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import rlvr
from rlvr.envs.clues import VALUES, in_words, needed_clues
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_whole
from rlvr.verifiers.logic import GridVerifier

__all__ = ["Zebra"]


@rlvr.register("zebra-v2")
class Zebra(Puzzle):
    """Find the grid of houses and their attributes; all cells must be right.

    A guess is right once in (houses!)^attributes.

    Options:
        houses: from 3 to 5.
        attributes: from 2 to 5.
    """

    houses: int = 3
    attributes: int = 3
    reward = rlvr.Correct(GridVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("houses", self.houses, 3, 5)
        require_whole("attributes", self.attributes, 2, 5)

    def make(self, rng: Random, mine: Callable[[Any], bool]) -> Made | None:
        n, kinds = self.houses, list(VALUES)[: self.attributes]
        grid = [tuple(rng.sample(range(n), n)) for _ in kinds]  # the house of each value
        values = [rng.sample(VALUES[kind], n) for kind in kinds]
        rows = [[values[k][grid[k].index(house)] for k in range(len(kinds))] for house in range(n)]
        if not mine(rows):
            return None
        clues = needed_clues(rng, grid, n)
        listed = "; ".join(
            f"{kind}: {', '.join(sorted(names))}" for kind, names in zip(kinds, values, strict=True)
        )
        said = "\n".join(
            f"{at}. {in_words(clue, kinds, values)}" for at, clue in enumerate(clues, start=1)
        )
        prompt = (
            f"There are {n} houses in a row, numbered 1 to {n} from left to right. Each has one of each: {listed}.\n"
            f"{said}\nGive one line for each house from 1 to {n}, with {', '.join(kinds)} in this order and commas "
            "between them, between <answer> and </answer>."
        )
        solution = "\n".join(", ".join(row) for row in rows)
        return Made(prompt, rows, solution)
