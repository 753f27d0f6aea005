"""The clues of a zebra puzzle: which are true, which are needed, and how they are said."""

from __future__ import annotations

from random import Random
from typing import Final

from rlvr.verifiers.logic_solvers import Clue, grids_left

__all__ = ["VALUES", "clue_sentence", "needed_clues"]

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
    # Clues are added until one grid is left; then each that is not needed goes.
    while grids_left(clues, n, len(grid)) > 1:
        clues.append(possible.pop())
    for clue in list(clues):
        remaining = [candidate for candidate in clues if candidate != clue]
        if grids_left(remaining, n, len(grid)) == 1:
            clues = remaining
    return clues


def _clues(grid: list[tuple[int, ...]], n: int) -> list[Clue]:
    """Every true clue."""
    cells = [(kind, value) for kind in range(len(grid)) for value in range(n)]
    facts: list[Clue] = []
    for k, a in cells:
        house = grid[k][a]
        facts += [("at", k, a, 0, house)] if n > 2 or k == 0 else []
        facts += [("not at", k, a, 0, elsewhere) for elsewhere in range(n) if elsewhere != house]
        for m, b in cells:
            # Each pair once, by the order of attributes.
            if m > k and grid[m][b] == house:
                facts.append(("same", k, a, m, b))
            if (m, b) != (k, a) and grid[m][b] == house + 1:
                facts.append(("left", k, a, m, b))
            if (m, b) > (k, a) and abs(grid[m][b] - house) == 1:
                facts.append(("next", k, a, m, b))
    return facts


def clue_sentence(clue: Clue, kinds: list[str], values: list[list[str]]) -> str:
    """A clue as a sentence.

    Args:
        clue: the clue.
        kinds: the names of the attributes.
        values: of each attribute.
    """
    relation, k, a, m, b = clue
    subject = _SAID[kinds[k]].format(values[k][a])
    subject = subject[0].upper() + subject[1:]
    if relation == "at":
        return f"{subject} at number {b + 1}."
    if relation == "not at":
        return f"{subject} at another number than {b + 1}."
    # "the owner of the cat lives" without its verb.
    object_text = _SAID[kinds[m]].format(values[m][b]).rsplit(" ", 1)[0]
    where = {"same": "in the same place as", "left": "directly left of", "next": "directly beside"}[
        relation
    ]
    return f"{subject} {where} {object_text}."
