"""Matrices of numbers, with the operations that answers use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from flint import fmpq

from rlvr.verifiers.math.latex.values import (
    Number,
    Undefined,
    divide,
    is_integer,
    root_of,
    vanishes,
)

__all__ = ["Grid", "Row", "determinant", "length", "raise_power"]

Row: TypeAlias = tuple[Number, ...]
"""The numbers of one row."""
_MOST_POWER = 100


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of equal length."""

    rows: tuple[Row, ...]

    def __add__(self, other: Grid) -> Grid:
        if not isinstance(other, Grid) or self.shape != other.shape:
            raise Undefined
        pairs = zip(self.rows, other.rows, strict=True)
        return Grid(tuple(tuple(x + y for x, y in zip(r, s, strict=True)) for r, s in pairs))

    def __mul__(self, other: Grid | Number) -> Grid:
        if not isinstance(other, Grid):
            return Grid(tuple(tuple(x * other for x in row) for row in self.rows))
        if self.shape[1] != other.shape[0]:
            raise Undefined
        columns = other.transposed().rows
        return Grid(tuple(tuple(_dot(row, column) for column in columns) for row in self.rows))

    __rmul__ = __mul__

    def __neg__(self) -> Grid:
        return self * fmpq(-1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.rows[0])

    def transposed(self) -> Grid:
        """Columns as rows."""
        return Grid(tuple(zip(*self.rows, strict=True)))


def _dot(row: Row, column: Row) -> Number:
    return sum((x * y for x, y in zip(row, column, strict=True)), fmpq(0))


def length(grid: Grid, *, real: bool) -> Number:
    """The Euclidean norm of a vector."""
    if 1 not in grid.shape:
        raise Undefined
    return root_of(sum((x * x for row in grid.rows for x in row), fmpq(0)), 2, real=real)


def determinant(grid: Grid) -> Number:
    """By elimination, with the largest pivot for the sake of the balls' widths."""
    # The right side has no column: only the determinant is of use.
    return _eliminate(grid, Grid(tuple(() for _ in grid.rows)))[0]


def raise_power(grid: Grid, exponent: Number) -> Grid:
    """A whole power; the inverse for -1."""
    if not is_integer(exponent) or abs(exponent) > _MOST_POWER:
        raise Undefined
    size = len(grid.rows)
    unit = Grid(tuple(tuple(fmpq(int(i == j)) for j in range(size)) for i in range(size)))
    base = grid if exponent >= 0 else _eliminate(grid, unit)[1]
    power = unit
    # Factor by factor: there are at most 100.
    for _ in range(abs(int(exponent))):
        power = power * base
    return power


def _eliminate(left: Grid, right: Grid) -> tuple[Number, Grid]:
    """The determinant of `left`, and the solution X of left · X = right (nothing of use if that is
    singular)."""
    size = len(left.rows)
    if left.shape[1] != size:
        raise Undefined
    rows = [[*a, *b] for a, b in zip(left.rows, right.rows, strict=True)]
    product: Number = fmpq(1)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if vanishes(rows[pivot][column]):
            # With the unit matrix on the right an inverse was asked for, and there is none.
            if right.shape[1] == size:
                raise Undefined  # no inverse
            return fmpq(0), right
        if pivot != column:
            rows[column], rows[pivot] = rows[pivot], rows[column]
            product = -product
        product *= rows[column][column]
        rows[column] = [divide(x, rows[column][column]) for x in rows[column]]
        for row_number in range(size):
            if row_number != column and rows[row_number][column] != 0:
                factor = rows[row_number][column]
                rows[row_number] = [
                    x - factor * y for x, y in zip(rows[row_number], rows[column], strict=True)
                ]
    return product, Grid(tuple(tuple(row[size:]) for row in rows))
