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
    centred, numbers = A - A.mean(), setting.numbers
    # `by`: how far each covariance is off if its log-probability is off by `off`.
    covariances, by = (new - new.mean()) * centred, off * np.abs(centred)
    count = max(1, int(numbers["share"] * len(new)))
    if setting.name == "kl_cov":
        # Both may be off: the token's own covariance, and that of the token at the threshold.
        return covariances >= np.sort(covariances)[-count] - by - by.max(), count, count

    def mark_between(way: int) -> NDArray[np.bool_]:
        # 2 off: the two log-probabilities of the ratio may be off in opposite directions.
        r, wider = np.exp(new - old), np.exp(2 * off * way)
        clipped = (A > 0) & (r > (1 + numbers["clip"]["high"]) * wider)
        clipped |= (A < 0) & (r < (1 - numbers["clip"]["low"]) / wider)
        above = covariances > numbers["low"] - way * by
        return above & (covariances < numbers["high"] + way * by) & ~clipped

    # Tokens that may be selected by the widest reading; by the narrowest, how many must be.
    return mark_between(1), min(count, int(mark_between(-1).sum())), count


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
    with_tokens = [row for row in computed if len(row.at)]
    needed = {"kl_cov": {"share"}, "clip_cov": {"share", "low", "high"}}.get(setting.name)
    is_known = needed is not None and needed <= setting.numbers.keys()
    is_whole = {row.index for row in rows if len(row.at)} == {row.index for row in with_tokens}
    if setting.own or not (
        is_known and is_whole and with_tokens and len(with_tokens[0].advantages)
    ):
        return None
    off = _OFF if precision in (None, "float32") else _OFF_HALF
    may, lowest, highest = selectable(with_tokens, setting, off)
    chosen = np.concatenate([np.broadcast_to(row.selected, len(row.at)) for row in with_tokens])
    places = [(row.index, int(t)) for row in with_tokens for t in row.at]
    if foreign := np.flatnonzero(chosen & ~may).tolist():
        return *places[foreign[0]], 1.0, 0.0
    count = int(chosen.sum())
    if lowest <= count <= highest:
        return None
    return None, None, float(count), float(highest if count > highest else lowest)
