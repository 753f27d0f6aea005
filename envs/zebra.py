"""Zebra puzzles: which house has what, from clues that leave exactly one grid."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.clues import VALUES, clue_sentence, needed_clues
from rlvr.envs.puzzles import Made, Puzzle, column
from rlvr.validate import require_whole
from rlvr.verifiers.logic import GridVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Zebra"]


@rlvr.register("zebra-v4")
class Zebra(Puzzle):
    """Find the grid of houses and their attributes; all cells must be right.

    A guess is right once in (houses!)^attributes.

    Options:
        houses: from 3 to 5.
        attributes: from 2 to 5.
        data: rows with `puzzle` and `solution`, a mapping of `header` and `rows` (ZebraLogicBench),
            to take instead: a file or a hub id.
    """

    houses: int = 3
    attributes: int = 3
    data: str = ""
    reward = rlvr.Correct(GridVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("houses", self.houses, 3, 5)
        require_whole("attributes", self.attributes, 2, 5)

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        n, kinds = self.houses, list(VALUES)[: self.attributes]
        grid = [tuple(rng.sample(range(n), n)) for _ in kinds]  # the house of each value
        values = [rng.sample(VALUES[kind], n) for kind in kinds]
        # The grid gives the house of each value; rows want the value of each house.
        rows = [[values[k][grid[k].index(house)] for k in range(len(kinds))] for house in range(n)]
        if not mine(rows):
            return None
        clues = needed_clues(rng, grid, n)
        listed = "; ".join(
            f"{kind}: {', '.join(sorted(names))}" for kind, names in zip(kinds, values, strict=True)
        )
        sentences = "\n".join(
            f"{at}. {clue_sentence(clue, kinds, values)}" for at, clue in enumerate(clues, start=1)
        )
        prompt = (
            f"There are {n} houses in a row, numbered 1 to {n} from left to right. Each has one of "
            f"each: {listed}.\n"
            f"{sentences}\n{_how(n, kinds)}"
        )
        return Made(prompt, rows, _grid(rows))

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        puzzle, solution = column(row, "puzzle"), column(row, "solution")
        head, *kinds = solution["header"]
        rows = [cells[1:] for cells in solution["rows"]]
        # Cells that are only underscores hide the solution.
        if head.lower() != "house" or any(set(cell) == {"_"} for cells in rows for cell in cells):
            raise rlvr.DataError(f"{id}: the solution has no houses, or its cells are hidden")
        rows = self.reference_of(rows)
        prompt = f"{puzzle}\n\n{_how(len(rows), kinds)}"
        return rlvr.Task(id, prompt, rows, {"solution": _grid(rows)})


def _how(houses: int, kinds: list[str]) -> str:
    return (
        f"Give one line for each house from 1 to {houses}, with {', '.join(kinds)} in this order "
        "and commas between them, between <answer> and </answer>."
    )


def _grid(rows: list[list[str]]) -> str:
    return "\n".join(", ".join(row) for row in rows)
