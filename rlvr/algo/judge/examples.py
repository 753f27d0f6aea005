"""Losses on pairs, labels and steps as papers print them, in float64, with slopes in what
a model says of each row.

What it says is a row's gain h = Σ (log π - log π_ref), or a reward model's number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from rlvr.algo.judge.dual import Dual, Float64s, dual_variable, largest, sigmoid, softplus
from rlvr.algo.judge.rows import Setting, StepRow
from rlvr.errors import DataError
from rlvr.types import JsonObject

__all__ = ["EXAMPLE_LOSSES", "ExampleLoss", "OF_PAIRS", "label_loss", "pair_loss"]


def pair_loss(
    name: str, numbers: JsonObject, chosen: float, rejected: float, margin: float = 0.0
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
    # Two slopes each: in the chosen row's number, and in the rejected one's.
    better = dual_variable(chosen, np.array([1.0, 0.0]))
    worse = dual_variable(rejected, np.array([0.0, 1.0]))
    if name == "reward_model":
        total = better + worse
        return softplus(worse - better + margin) + total * total * numbers["centring"]
    beta = numbers["beta"]
    ahead = better - worse
    if name == "slic":
        # ahead * 0.0 is 0 with two slopes of 0.
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
    numbers: Mapping[str, object],
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
    x = dual_variable(said, np.ones(1))
    if name == "kto":
        gain = (x - point) * numbers["beta"]
        if right:
            return (1 - sigmoid(gain)) * numbers["right_weight"]
        return (1 - sigmoid(-gain)) * numbers["wrong_weight"]
    if name not in ("process_reward_model", "pointwise_reward_model"):
        raise DataError(f"the judge has no loss on labels of {name!r}")
    return softplus(-x) * right + softplus(x) * (counts - right)


# ------------------------------------------------------------------------------ an update

OF_PAIRS: Final = ("dpo", "ipo", "slic", "reward_model")
_OF_LABELS: Final = ("kto", "pointwise_reward_model", "process_reward_model")
_OF_RIGHT: Final = ("rft", "sft")
_WITH_HEAD: Final = ("reward_model", "pointwise_reward_model", "process_reward_model")
EXAMPLE_LOSSES: Final = frozenset((*OF_PAIRS, *_OF_LABELS, *_OF_RIGHT))
"""Algorithms that learn from pairs, labels, steps or right completions."""


class ExampleLoss:
    """What an update makes of examples: the rows of one `group`, of pairs the chosen one first.

    Args:
        computed: its rows.
        setting: the algorithm and its numbers.

    Attributes:
        loss, weights, steep, sizes, terms: see `rlvr.algo.judge.losses.UpdateLoss`.
        output_weights: ∂loss / ∂output of each row's numbers of a head.
        output_steep: the same without signs.
        tokens, sequences: rows and tokens that are trained on.
        entropy_weights: none.
    """

    def __init__(self, computed: Sequence[StepRow], setting: Setting) -> None:
        self._setting, self._name = setting, setting.name
        self.loss, self.sizes = 0.0, {"loss": 0.0}
        self.terms: dict[str, float] = {}
        self.entropy_weights: list[Float64s] = []
        self.weights = [np.zeros(len(row.at)) for row in computed]
        self.steep = [np.zeros(len(row.at)) for row in computed]
        self.output_weights = [np.zeros(len(row.outputs)) for row in computed]
        self.output_steep = [np.zeros(len(row.outputs)) for row in computed]
        self.tokens = sum(len(row.at) for row in computed)
        self.sequences = len(computed)
        groups: dict[int, list[int]] = {}
        for i, row in enumerate(computed):
            groups.setdefault(row.group, []).append(i)
        # One row of each group stands for it: its weight is the group's.
        firsts = [computed[members[0]] for members in groups.values()]
        self._weight = sum(row.weight for row in firsts)
        self._first_tokens = sum(row.weight * len(row.at) for row in firsts)
        self._counts = sum(row.weight * float(row.labels[:, 1].sum()) for row in firsts)
        for members in groups.values():
            self._add([computed[i] for i in members], members)

    def _add(self, rows: Sequence[StepRow], places: Sequence[int]) -> None:
        first, numbers = rows[0], self._setting.numbers
        if self._name == "process_reward_model":
            self._add_steps(first, places[0])
            return
        if self._name in _OF_RIGHT:
            self._take_likelihood(first, places[0], 1.0)
            return
        outputs = [self._says(row) for row in rows]
        if self._name in OF_PAIRS:
            part_loss = pair_loss(self._name, numbers, outputs[0], outputs[1], first.margin)
        else:
            point = numbers.get("reference_point") or 0.0
            part_loss = label_loss(self._name, numbers, outputs[0], first.score, point=point)
        share = first.weight / self._weight
        self.loss += float(part_loss.value) * share
        self.sizes["loss"] += float(part_loss.size) * share
        slopes, steep = (
            np.broadcast_to(part_loss.slope, len(rows)),
            np.broadcast_to(part_loss.steep, len(rows)),
        )
        for i, (row, place) in enumerate(zip(rows, places, strict=True)):
            if self._name in _WITH_HEAD:
                self.output_weights[place] += slopes[i] * share
                self.output_steep[place] += steep[i] * share
            else:
                # The slope in h goes to every token alike, as h is a sum over them, or their mean.
                self.weights[place] += slopes[i] * share / self._length(row)
                self.steep[place] += steep[i] * share / self._length(row)
        if numbers.get("sft_weight"):
            self._take_likelihood(first, places[0], numbers["sft_weight"])

    def _says(self, row: StepRow) -> float:
        """What the model says of a row: its gain, or the head's number."""
        if self._name in _WITH_HEAD:
            return float(row.outputs[0])
        return float((row.new - row.ref).sum()) / self._length(row)

    def _length(self, row: StepRow) -> int:
        return max(1, len(row.at)) if self._setting.numbers.get("length") == "mean" else 1

    def _take_likelihood(self, row: StepRow, place: int, by: float) -> None:
        """-log π of a row's tokens, in a mean over the tokens of all first rows."""
        # Weights may all be 0, and then shares are; 1e-300 is far below any sum of weights.
        share = by * row.weight / max(self._first_tokens, 1e-300)
        self.loss -= float(row.new.sum()) * share
        self.sizes["loss"] += float(np.abs(row.new).sum()) * abs(share)
        self.weights[place] -= share
        self.steep[place] += abs(share)

    def _add_steps(self, row: StepRow, place: int) -> None:
        share = row.weight / max(self._counts, 1e-300)
        for step, (right, counts) in enumerate(row.labels):
            output = float(row.outputs[step])
            part_loss = label_loss(
                self._name, self._setting.numbers, output, float(right), counts=float(counts)
            )
            self.loss += float(part_loss.value) * share
            self.sizes["loss"] += float(part_loss.size) * share
            self.output_weights[place][step] += part_loss.slope[0] * share
            self.output_steep[place][step] += part_loss.steep[0] * share
