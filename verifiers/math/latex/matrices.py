"""Matrices of numbers: FLINT's own, exact ones or of balls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

from flint import acb, acb_mat, arb_mat, fmpq, fmpq_mat

from rlvr.verifiers.math.latex.values import (
    Number,
    Undefined,
    is_exact,
    is_integer,
    root_of,
    vanishes,
)

__all__ = ["Grid", "determinant", "grid", "is_grid", "length", "raise_power"]

Grid: TypeAlias = Any
"""An fmpq_mat, an arb_mat or an acb_mat; of two kinds, sums and products are of the wider one."""
_MOST_POWER = 100


def grid(shape: tuple[int, int], cells: Sequence[Number]) -> Grid:
    """A matrix of so many rows and columns, with these numbers row by row."""
    if all(map(is_exact, cells)):
        return fmpq_mat(*shape, cells)
    is_complex = any(isinstance(cell, acb) for cell in cells)
    return (acb_mat if is_complex else arb_mat)(*shape, cells)


def is_grid(value: Number | Grid) -> TypeGuard[Grid]:
    """Whether it is a matrix and no number."""
    return isinstance(value, fmpq_mat | arb_mat | acb_mat)


def length(vector: Grid, *, real: bool) -> Number:
    """The Euclidean norm of a vector."""
    if 1 not in (vector.nrows(), vector.ncols()):
        raise Undefined
    return root_of(sum((x * x for x in vector.entries()), fmpq(0)), 2, real=real)


def determinant(square: Grid) -> Number:
    """Its determinant."""
    if square.nrows() != square.ncols():
        raise Undefined
    return square.det()


def raise_power(square: Grid, exponent: Number) -> Grid:
    """A whole power; the inverse for -1."""
    if not is_integer(exponent) or abs(exponent) > _MOST_POWER:
        raise Undefined
    if vanishes(determinant(square)) and exponent < 0:
        raise Undefined
    # Balls have no negative powers.
    return (square.inv() if exponent < 0 else square) ** abs(int(exponent))
