"""Losses on pairs, labels and steps as papers print them, in float64, with slopes in what a model says of each row.

What it says is a row's gain h = Σ (log π - log π_ref), or a reward model's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlvr.algo.judge.dual import Dual, largest, sigmoid, softplus, variable
from rlvr.errors import DataError

__all__ = ["label_loss", "pair_loss"]


def pair_loss(
    name: str, numbers: Mapping[str, Any], chosen: float, rejected: float, margin: float = 0.0
) -> Dual:
    """The loss of a pair, with its slopes in both numbers.

    Args:
        name: of the algorithm.
        numbers: its fields.
        chosen, rejected: what the model says of each.
        margin: of reward models.

    Raises:
        DataError: the judge does not know the algorithm.
    """
    better = variable(chosen, np.array([1.0, 0.0]))
    worse = variable(rejected, np.array([0.0, 1.0]))
    if name == "reward_model":
        both = better + worse
        return softplus(worse - better + margin) + both * both * numbers["centring"]
    beta = numbers["beta"]
    ahead = better - worse
    if name == "slic":
        return largest(1 - ahead * beta, ahead * 0.0)
    if name == "ipo":
        short = ahead - 1 / (2 * beta)
        return short * short
    if name != "dpo":
        raise DataError(f"the judge has no loss on pairs of {name!r}")
    right, flipped, eps = softplus(-ahead * beta), softplus(ahead * beta), numbers["smoothing"]
    if numbers["reading"] == "robust":
        return (right * (1 - eps) - flipped * eps) / (1 - 2 * eps)
    return right * (1 - eps) + flipped * eps


def label_loss(
    name: str,
    numbers: Mapping[str, Any],
    said: float,
    right: float,
    *,
    counts: float = 1.0,
    point: float = 0.0,
) -> Dual:
    """The loss of a labelled completion or step, with its slope.

    Args:
        name: of the algorithm.
        numbers: its fields.
        said: what the model says of it.
        right: 1 for right, 0 for wrong; of a step, the right continuations.
        counts: continuations of a step.
        point: KTO's z.

    Raises:
        DataError: the judge does not know the algorithm.
    """
    x = variable(said, np.ones(1))
    if name == "kto":
        gain = (x - point) * numbers["beta"]
        if right:
            return (1 - sigmoid(gain)) * numbers["right_weight"]
        return (1 - sigmoid(-gain)) * numbers["wrong_weight"]
    if name not in ("process_reward_model", "pointwise_reward_model"):
        raise DataError(f"the judge has no loss on labels of {name!r}")
    return softplus(-x) * right + softplus(x) * (counts - right)
