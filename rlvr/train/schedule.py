"""Learning rates over the optimiser steps of a run."""

from __future__ import annotations

import math

__all__ = ["scheduled"]


def scheduled(lr: float, schedule: str, *, done: int, warmup: int, updates: int) -> float:
    """The learning rate of the next update: it rises over the warm-up, then follows the schedule.

    Args:
        lr: at its height.
        schedule: "constant", or falling to 0 at the last update: "linear", "cosine".
        done: updates so far.
        warmup: updates over which it rises.
        updates: of the whole run.
    """
    if done < warmup:
        return lr * (done + 1) / (warmup + 1)
    share = min(1.0, (done - warmup) / max(1, updates - warmup))
    match schedule:
        case "linear":
            return lr * (1.0 - share)
        case "cosine":
            return lr * 0.5 * (1.0 + math.cos(math.pi * share))
        case _:
            return lr
