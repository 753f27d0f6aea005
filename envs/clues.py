"""The clues of a zebra puzzle: which are true, which are needed, and how they are said."""

from __future__ import annotations

from random import Random
from typing import Final

from rlvr.verifiers.logic_solvers import Clue, grids_left

__all__ = ["VALUES", "in_words", "needed_clues"]

VALUES: Final = {
    "name": "Alma Bruno Clara David Elena".split(),
    "colour": "red blue green white yellow".split(),
    "pet": "cat dog horse parrot rabbit".split(),
    "drink": "tea coffee milk juice water".split(),
    "job": "baker doctor farmer pilot teacher".split(),
}
_SAID: Final = {
    "name": "{} lives",
    "colour": "the {} house is",
    "pet": "the owner of the {} lives",
    "drink": "the one who drinks {} lives",
    "job": "the {} lives",
}


def needed_clues(rng: Random, grid: list[tuple[int, ...]], n: int) -> list[Clue]:
    """Clues that leave this grid alone, none of which can be spared.

    Args:
        rng: draws them.
        grid: for each attribute, the house of each value.
        n: number of houses.
    """
    possible = _clues(grid, n)
    rng.shuffle(possible)
    clues: list[Clue] = []
    while grids_left(clues, n, len(grid)) > 1:
        clues.append(possible.pop())
    for clue in list(clues):
        rest = [one for one in clues if one != clue]
        if grids_left(rest, n, len(grid)) == 1:
            clues = rest
    return clues


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


def in_words(clue: Clue, kinds: list[str], values: list[list[str]]) -> str:
    """A clue as a sentence.

    Args:
        clue: the clue.
        kinds: the names of the attributes.
        values: of each attribute.
    """
    relation, k, a, m, b = clue
    one = _SAID[kinds[k]].format(values[k][a])
    one = one[0].upper() + one[1:]
    if relation == "at":
        return f"{one} at number {b + 1}."
    if relation == "not at":
        return f"{one} at another number than {b + 1}."
    other = _SAID[kinds[m]].format(values[m][b]).rsplit(" ", 1)[0]
    where = {"same": "in the same place as", "left": "directly left of", "next": "directly beside"}[
        relation
    ]
    return f"{one} {where} {other}."
