"""The critic's loss of a recorded update in float64, row by row: ½ (V - R)²,
clipped, a mean over tokens.

The clip is that of OpenAI's baselines, studied in arXiv:2005.12729.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlvr.algo.judge.dual import Dual, Float64s, dual_variable, largest
from rlvr.algo.judge.rows import Setting, StepRow

__all__ = ["CriticLoss"]


class CriticLoss:
    """What an update makes of the rows that the critic learns from.

    Args:
        rows: with values before the update, values in it and targets.
        setting: with the numbers of the critic: `value_clip`, and `coefficient`, by which the loss
            counts where the critic shares the policy's layers.

    Attributes:
        loss: the mean over all trained tokens, without the coefficient.
        size: the same without signs.
        weights: ∂loss / ∂value of each trained token, with the coefficient.
        steep: the same without signs.
    """

    def __init__(self, rows: Sequence[StepRow], setting: Setting) -> None:
        critic = setting.numbers["critic"]
        tokens = max(1, sum(len(row.at) for row in rows))
        # A critic of its own has its own optimiser, where the loss stands alone.
        by = critic["coefficient"] if critic["backbone"] == "shared" else 1.0
        errors = [_error(row, critic["value_clip"]) for row in rows]
        self.loss = float(sum(np.sum(error.value) for error in errors)) / tokens
        self.size = float(sum(np.sum(error.size) for error in errors)) / tokens
        self.weights: list[Float64s] = [error.slope * (by / tokens) for error in errors]
        self.steep: list[Float64s] = [error.steep * (by / tokens) for error in errors]


def _error(row: StepRow, clip: float | None) -> Dual:
    values, targets = dual_variable(row.new_values), row.targets
    off = values - targets
    if clip is None:
        return off * off / 2
    near = values.clip(row.values - clip, row.values + clip) - targets
    # The greater one: the clip can only hold a value back, not make its error look smaller.
    return largest(off * off, near * near) / 2
