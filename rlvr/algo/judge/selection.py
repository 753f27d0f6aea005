"""Which tokens of an update KL-Cov and Clip-Cov treat apart (arXiv:2505.22617, sec. 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr.algo.judge.rows import Setting, StepRow

__all__ = ["selectable", "wrong_selection"]

_OFF = 1e-4  # of log-probabilities of one model in two layouts, in float32
_OFF_HALF = 0.05  # in other precisions


def selectable(
    rows: Sequence[StepRow], setting: Setting, off: float = 0.0
) -> tuple[NDArray[np.bool_], int, int]:
    """Which of the trained tokens may be selected, and how many at least and at most.

    Args:
        rows: all of an update with trained tokens, with log-probabilities and advantages.
        setting: of `kl_cov` or `clip_cov`.
        off: how far log-probabilities may be off, in nats.
    """
    names = ("new", "old", "advantages")
    new, old, A = (np.concatenate([getattr(row, name) for row in rows]) for name in names)
    covariances = (new - new.mean()) * (A - A.mean())
    off_by = off * np.abs(A - A.mean())
    count = max(1, int(setting.numbers["share"] * len(new)))
    if setting.name == "kl_cov":
        least = np.sort(covariances)[-count]
        return covariances >= least - off_by - off_by.max(), count, count
    low, high, clip = (setting.numbers[name] for name in ("low", "high", "clip"))

    def between(off: float) -> NDArray[np.bool_]:
        r, by = np.exp(new - old), off * np.abs(A - A.mean())
        clipped = (A > 0) & (r > (1 + clip["high"]) * np.exp(2 * off))
        clipped |= (A < 0) & (r < (1 - clip["low"]) * np.exp(-2 * off))
        return (covariances > low - by) & (covariances < high + by) & ~clipped

    return between(off), min(count, int(between(-off).sum())), count


def wrong_selection(
    rows: Sequence[StepRow], computed: Sequence[StepRow], setting: Setting, precision: object
) -> tuple[int | None, int | None, float, float] | None:
    """The row and token that is selected and must not be, with 1 and 0; without a place, how many
    are selected, and how many should be; None if nothing is wrong, or rows were not computed.

    Args:
        rows: all of an update.
        computed: those with log-probabilities.
        setting: of the step.
        precision: that the head says.
    """
    known = {row.index for row in computed}
    own = [row for row in computed if len(row.at)]
    if setting.own or setting.name not in ("kl_cov", "clip_cov") or not own:
        return None
    if setting.numbers.get("share") is None or not len(own[0].advantages):
        return None
    if any(len(row.at) and row.index not in known for row in rows):
        return None
    off = _OFF if precision in (None, "float32") else _OFF_HALF
    may, least, most = selectable(own, setting, off)
    chosen = np.concatenate([np.broadcast_to(row.selected, len(row.at)) for row in own])
    places = [(row.index, int(t)) for row in own for t in row.at]
    if foreign := np.flatnonzero(chosen & ~may).tolist():
        return *places[foreign[0]], 1.0, 0.0
    count = int(chosen.sum())
    if least <= count <= most:
        return None
    return None, None, float(count), float(most if count > most else least)
