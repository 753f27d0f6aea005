"""Solvers that generators use to make sure that a puzzle has a solution, or exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Final, TypeAlias

from rlvr.errors import DataError

__all__ = [
    "BOXES",
    "Clue",
    "apply_sign",
    "box_shape",
    "grids_left",
    "solve24",
    "sudoku_solutions",
]

Clue: TypeAlias = tuple[str, int, int, int, int]
"""Relation ("at", "not at", "same", "left", "next"), attribute and value of the one, attribute and
value of the other; for the first two, 0 and a house."""


BOXES: Final = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Rows and columns of a box of a sudoku, by its size."""


def box_shape(size: int) -> tuple[int, int]:
    """Rows and columns of a box of a sudoku.

    Args:
        size: 4, 6 or 9.

    Raises:
        DataError: another size.
    """
    if size not in BOXES:
        raise DataError(f"a sudoku has 4, 6 or 9 rows, not {size}")
    return BOXES[size]


def apply_sign(sign: str, a: Fraction, b: Fraction, left: str, right: str) -> tuple[Fraction, str]:
    """The value and the text of an operation.

    Args:
        sign: one of + - * /.
        a, b: values of the operands.
        left, right: their texts.
    """
    value = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    return value, f"({left} {sign} {right})"


def solve24(terms: list[tuple[Fraction, str]]) -> str | None:
    """An expression of all terms with the value 24; None if there is none.

    Args:
        terms: values with their texts.
    """
    if len(terms) == 1:
        return terms[0][1] if terms[0][0] == 24 else None
    return _search24([(value.numerator, value.denominator, text) for value, text in terms])


def _search24(terms: list[tuple[int, int, str]]) -> str | None:
    """The same of two or more terms: numerator, denominator, text.  Nothing is reduced, as that
    takes longer than the whole search with numbers this small."""
    for i, j in combinations(range(len(terms)), 2):
        remaining = [term for at, term in enumerate(terms) if at not in (i, j)]
        for (a, b, left), (c, d, right) in ((terms[i], terms[j]), (terms[j], terms[i])):
            below = b * d
            results = [
                ("+", a * d + c * b, below),
                ("-", a * d - c * b, below),
                ("*", a * c, below),
                ("/", a * d, b * c),
            ]
            for sign, above, below in results[: 4 if c else 3]:
                if remaining:
                    text = f"({left} {sign} {right})"
                    solution = _search24([*remaining, (above, below, text)])
                    if solution is not None:
                        return solution
                elif above == 24 * below:
                    return f"({left} {sign} {right})"
    return None


def sudoku_solutions(puzzle: list[list[int]], most: int) -> list[list[list[int]]]:
    """The solutions of a sudoku, at most `most`.

    Args:
        puzzle: rows of digits, 0 where nothing is given.
        most: how many to look for.
    """
    size = len(puzzle)
    high, wide = box_shape(size)
    grid = [list(row) for row in puzzle]
    rows, columns, boxes = [0] * size, [0] * size, [0] * size
    empty = []
    for r, row in enumerate(grid):
        for c, digit in enumerate(row):
            # the number of its box, row by row
            box = r // high * (size // wide) + c // wide
            if digit:
                rows[r] |= 1 << digit
                columns[c] |= 1 << digit
                boxes[box] |= 1 << digit
            else:
                empty.append((r, c, box))
    solutions: list[list[list[int]]] = []

    def search() -> None:
        if not empty:
            solutions.append([list(row) for row in grid])
            return
        # the empty cell with the fewest digits left: guesses there fail soonest
        at = max(
            range(len(empty)),
            key=lambda i: _digits_taken(rows, columns, boxes, *empty[i]).bit_count(),
        )
        r, c, box = empty.pop(at)
        used = _digits_taken(rows, columns, boxes, r, c, box)
        for digit in range(1, size + 1):
            if not used >> digit & 1 and len(solutions) < most:
                for unit, index in ((rows, r), (columns, c), (boxes, box)):
                    unit[index] ^= 1 << digit
                grid[r][c] = digit
                search()
                grid[r][c] = 0
                for unit, index in ((rows, r), (columns, c), (boxes, box)):
                    unit[index] ^= 1 << digit
        empty.insert(at, (r, c, box))

    search()
    return solutions


def _digits_taken(
    rows: list[int], columns: list[int], boxes: list[int], r: int, c: int, box: int
) -> int:
    return rows[r] | columns[c] | boxes[box]


def grids_left(clues: Sequence[Clue], houses: int, attributes: int) -> int:
    """The number of grids of a zebra puzzle that fit the clues; 2 stands for more.

    Each value has a set of houses where it may be, as bits; the clues narrow these down, and what
    is left is tried.

    Args:
        clues: the clues.
        houses, attributes: how many there are; each attribute has one value for each house.
    """
    return _grids([[(1 << houses) - 1] * houses for _ in range(attributes)], clues)


def _grids(where: list[list[int]], clues: Sequence[Clue]) -> int:
    if not _narrow(where, clues):
        return 0
    left = [
        (bits.bit_count(), k, a)
        for k, row in enumerate(where)
        for a, bits in enumerate(row)
        if bits.bit_count() > 1
    ]
    if not left:
        return 1
    # the value with the fewest houses left: guesses there fail soonest
    _, k, a = min(left)
    total = 0
    for house in range(len(where[0])):
        if where[k][a] >> house & 1:
            trial = [list(row) for row in where]
            trial[k][a] = 1 << house
            total += _grids(trial, clues)
            # one or more than one is all that is asked
            if total > 1:
                return 2
    return total


def _narrow(where: list[list[int]], clues: Sequence[Clue]) -> bool:
    """Remove houses that cannot be until nothing changes; False if a value has none left."""
    full = (1 << len(where[0])) - 1
    changed = True
    while changed:
        before = [list(row) for row in where]
        for relation, k, a, m, b in clues:
            if relation == "at":
                where[k][a] &= 1 << b
            elif relation == "not at":
                where[k][a] &= ~(1 << b)
            else:
                first, second = where[k][a], where[m][b]
                if relation == "same":
                    near, far = second, first
                elif relation == "left":
                    # left by one: the house of the second is the next bit
                    near, far = second >> 1, first << 1
                else:
                    near, far = second >> 1 | second << 1, first >> 1 | first << 1
                where[k][a] &= near & full
                where[m][b] &= far & full
        for row in where:
            for a, bits in enumerate(row):
                if bits.bit_count() == 1:
                    # a house that one value has for sure is not free for others of the same row
                    row[:] = [
                        bits if at == a else bits_of_value & ~bits
                        for at, bits_of_value in enumerate(row)
                    ]
        if not all(map(all, where)):
            return False
        changed = before != where
    return True
