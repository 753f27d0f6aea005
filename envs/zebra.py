"""Zebra puzzles: which house has what, from clues that leave exactly one grid."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import rlvr
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.validate import require_whole
from rlvr.verifiers.logic import GridVerifier
from rlvr.verifiers.logic_solvers import Clue, grids_left

__all__ = ["Zebra"]

_VALUES = {
    "name": "Alma Bruno Clara David Elena".split(),
    "colour": "red blue green white yellow".split(),
    "pet": "cat dog horse parrot rabbit".split(),
    "drink": "tea coffee milk juice water".split(),
    "job": "baker doctor farmer pilot teacher".split(),
}
_SAID = {
    "name": "{} lives",
    "colour": "the {} house is",
    "pet": "the owner of the {} lives",
    "drink": "the one who drinks {} lives",
    "job": "the {} lives",
}


@rlvr.register("zebra-v1")
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
        n, kinds = self.houses, list(_VALUES)[: self.attributes]
        grid = [tuple(rng.sample(range(n), n)) for _ in kinds]  # the house of each value
        values = [rng.sample(_VALUES[kind], n) for kind in kinds]
        rows = [[values[k][grid[k].index(house)] for k in range(len(kinds))] for house in range(n)]
        if not mine(rows):
            return None
        possible = _clues(grid, n)
        rng.shuffle(possible)
        clues: list[Clue] = []
        while grids_left(clues, n, len(kinds)) > 1:
            clues.append(possible.pop())
        for clue in list(clues):
            rest = [one for one in clues if one != clue]
            if grids_left(rest, n, len(kinds)) == 1:
                clues = rest
        listed = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in zip(kinds, values, strict=True))
        said = "\n".join(f"{at}. {_words(clue, kinds, values)}" for at, clue in enumerate(clues, start=1))
        prompt = (
            f"There are {n} houses in a row, numbered 1 to {n} from left to right. Each has one of each: {listed}.\n"
            f"{said}\nGive one line for each house from 1 to {n}, with {', '.join(kinds)} in this order and commas "
            "between them, between <answer> and </answer>."
        )
        solution = "\n".join(", ".join(row) for row in rows)
        return Made(prompt, rows, solution)


def _clues(grid: list[tuple[int, ...]], n: int) -> list[Clue]:
    """Every true clue."""
    cells = [(kind, value) for kind in range(len(grid)) for value in range(n)]
    found: list[Clue] = []
    for k, a in cells:
        house = grid[k][a]
        found += [("at", k, a, 0, house)] if n > 2 or k == 0 else []
        found += [("not at", k, a, 0, other) for other in range(n) if other != house]
        for m, b in cells:
            if m > k and grid[m][b] == house:
                found.append(("same", k, a, m, b))
            if (m, b) != (k, a) and grid[m][b] == house + 1:
                found.append(("left", k, a, m, b))
            if (m, b) > (k, a) and abs(grid[m][b] - house) == 1:
                found.append(("next", k, a, m, b))
    return found


def _words(clue: Clue, kinds: list[str], values: list[list[str]]) -> str:
    relation, k, a, m, b = clue
    one = _SAID[kinds[k]].format(values[k][a])
    one = one[0].upper() + one[1:]
    if relation == "at":
        return f"{one} at number {b + 1}."
    if relation == "not at":
        return f"{one} at another number than {b + 1}."
    other = _SAID[kinds[m]].format(values[m][b]).rsplit(" ", 1)[0]
    where = {"same": "in the same place as", "left": "directly left of", "next": "directly beside"}[relation]
    return f"{one} {where} {other}."
