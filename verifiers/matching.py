"""Whether what is given can stand for what is wanted, one for one."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["has_perfect_matching"]


def has_perfect_matching(fits: Sequence[Sequence[bool]]) -> bool:
    """True if each row can have a column of its own: a perfect matching, by augmenting paths.

    Args:
        fits: for each thing that is given, whether it fits each thing that is wanted.
    """
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, does in enumerate(fits[row]):
            # a place is tried once for each new item, else the paths would multiply
            if does and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))
