"""How many optimiser steps a batch makes.  Needs no torch."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_GROUPS", "LEAST_ROWS", "updates_of"]

LEAST_GROUPS: Final = 8
LEAST_ROWS: Final = 64
"""An update has at least so many groups and rows: the gradient of fewer is mostly noise."""


def updates_of(prompts: int, group_size: int, updates: int) -> int:
    """The updates of a full batch, see `rlvr.train.credit.update_rows`.

    Args:
        prompts: groups of the batch.
        group_size: rows of each.
        updates: how many are wanted.
    """
    count = min(updates, prompts // LEAST_GROUPS, prompts * group_size // LEAST_ROWS)
    # The smallest update has ⌊prompts / count⌋ groups.
    while count > 1 and prompts // count * group_size < LEAST_ROWS:
        count -= 1
    return max(1, count)
