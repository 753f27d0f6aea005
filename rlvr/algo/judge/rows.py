"""The rows of a recorded step in float64: of each row its trained tokens alone, so
that no loop has a mask."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlvr.algo.judge.conventions import Conventions
from rlvr.algo.judge.dual import Dual, Float64s, dual_variable
from rlvr.data.step_files import StepArray, StepFile, spans
from rlvr.types import JsonObject

__all__ = [
    "Formulas",
    "Setting",
    "StepRow",
    "advantage_rows",
    "rows_of_update",
    "shake",
    "value_rows",
]

_COLUMNS = {
    "behaviour": "behaviour_logprobs",
    "ref": "ref_logprobs",
    "teacher": "teacher_logprobs",
    "implicit": "implicit_rewards",
    "values": "values",
    "advantages": "advantages",
    "targets": "returns",
}
_NONE = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A row; arrays have one number for each of its T trained tokens, empty
    where the file has none.

    Attributes:
        index: of the row in the file.
        group: its number.
        score: 0 where it is UNSCORED.
        scored: False where it is UNSCORED.
        at: places of its trained tokens in the completion, [T].
        length: tokens of the completion.
        truncated: whether it has no end token; False where the file does not say.
        behaviour, old, ref, teacher: log-probabilities.
        implicit: rewards of tokens by a model.
        values: the critic's; `end` after the last token.
        advantages: as recorded.
        parts: of the reward.
        steps: (end, reward) of each turn with a reward; the end is behind its last token.
        prefixes: (tokens, value) of each prefix with a value.
        number: of the update in which it is trained.
        new: under the policy in this update.
        selected, kept: tokens that the loss treats apart, and those that it is computed on.
        entropies: of the policy.
        divergences: of the policy's distribution from the teacher's.
        targets: returns, which the critic's values are compared with.
        new_values: the critic's in this update.
        weight, margin: of the example that it belongs to.
        outputs: of a head: one number, or one of each step.
        labels: right continuations and all continuations of each step, [steps, 2].
    """

    index: int
    group: int
    score: float
    scored: bool
    at: NDArray[np.int64]
    length: int
    truncated: bool = False
    behaviour: Float64s
    old: Float64s
    ref: Float64s = field(default_factory=lambda: _NONE)
    teacher: Float64s = field(default_factory=lambda: _NONE)
    implicit: Float64s = field(default_factory=lambda: _NONE)
    values: Float64s = field(default_factory=lambda: _NONE)
    end: float = 0.0
    advantages: Float64s = field(default_factory=lambda: _NONE)
    parts: Float64s = field(default_factory=lambda: _NONE)
    steps: Sequence[tuple[int, float]] = ()
    prefixes: Sequence[tuple[int, float]] = ()
    number: int = 0
    new: Float64s = field(default_factory=lambda: _NONE)
    selected: NDArray[np.bool_] | bool = False
    kept: NDArray[np.bool_] | bool = True
    entropies: Float64s = field(default_factory=lambda: _NONE)
    divergences: Float64s = field(default_factory=lambda: _NONE)
    targets: Float64s = field(default_factory=lambda: _NONE)
    new_values: Float64s = field(default_factory=lambda: _NONE)
    weight: float = 1.0
    margin: float = 0.0
    outputs: Float64s = field(default_factory=lambda: _NONE)
    labels: Float64s = field(default_factory=lambda: np.zeros((0, 2)))


@dataclass(frozen=True, slots=True)
class Formulas:
    """The functions of an algorithm that is not published, by which it is judged itself.

    Attributes:
        advantages: of a step's rows, [T] of each.
        loss: of a row, for each of its tokens.
    """

    advantages: Callable[[Sequence[StepRow], Setting], list[Any]]
    loss: Callable[[StepRow, Setting], Dual]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the loops read beside the rows.

    Attributes:
        name: of the algorithm.
        numbers: its fields by name, parts as mappings.
        how: the conventions.
        own: formulas of an algorithm that is not published; None for a published one's.
    """

    name: str
    numbers: Mapping[str, Any]
    how: Conventions = field(default_factory=Conventions)
    own: Formulas | None = None

    def kl_in(self, place: str) -> JsonObject | None:
        """The KL penalty, if it is in this place.

        Args:
            place: "loss" or "reward".
        """
        kl: Mapping[str, object] | None = self.numbers.get("kl")
        chosen = self.how.kl_place
        if kl and (kl["place"] if chosen == "algorithm" else chosen) == place:
            return kl
        return None

    def log_ratio(self, row: StepRow, to: Float64s) -> Dual:
        """The log of the policy's probability over another's, of each token.

        Args:
            row: of the update.
            to: log-probabilities under the other policy.
        """
        bound = self.how.bound
        difference = dual_variable(row.new) - to
        return difference.clip(-bound, bound)


def advantage_rows(step: StepFile) -> list[StepRow]:
    """The rollouts of a step, for their advantages; branches have those of their owner.

    Args:
        step: the file's.
    """
    rows = _rows(step, step.arrays["mask"])
    owner = step.arrays.get("owner")
    if owner is not None:
        # A branch is owned by the row of its rollout.
        rows = [row for row in rows if owner[row.index] == row.index]
    numbers: dict[int, int] = {}
    # From the last one back, so that a row that is in several has the number of the first.
    for number in reversed(range(len(step.updates))):
        numbers |= dict.fromkeys(step.arrays[f"update{number}.rows"].tolist(), number)
    return [replace(row, number=numbers.get(row.index, 0)) for row in rows]


def rows_of_update(step: StepFile, number: int) -> tuple[list[StepRow], list[StepRow]]:
    """All rows of an update, and those that were computed, with the policy's log-probabilities.

    Args:
        step: the file's.
        number: of the update.
    """
    arrays, prefix = step.arrays, f"update{number}."
    rows = _rows(step, arrays.get("used", arrays["mask"]))
    outputs = arrays.get(prefix + "outputs")
    computed, start, outputs_read = [], 0, 0
    for index in arrays[prefix + "computed"].tolist():
        # The update's arrays lie one computed row behind the other, in the order of `computed`.
        row, stop = rows[index], start + rows[index].length
        places = row.at + start
        columns = {
            "new": _floats(arrays, prefix + "logprobs", places),
            "entropies": _floats(arrays, prefix + "entropies", places),
            "divergences": _floats(arrays, prefix + "divergences", places),
        }
        if prefix + "selected" in arrays:
            columns["selected"] = arrays[prefix + "selected"][places]
        if "kept" in arrays:
            # `kept` is of the step and not of the update: its places are those of the file's rows.
            columns["kept"] = arrays["kept"][spans(arrays["offsets"])[index]][row.at]
        if outputs is not None:
            # A head gives one number of a row, or one of each of its steps.
            count = len(row.labels) or 1
            columns["outputs"] = outputs[outputs_read : outputs_read + count].astype(np.float64)
            outputs_read += count
        computed.append(replace(row, **columns))
        start = stop
    return [rows[i] for i in arrays[prefix + "rows"].tolist()], computed


def value_rows(step: StepFile, number: int) -> list[StepRow]:
    """The rows of an update on which the critic learned, with its values.

    Args:
        step: the file's.
        number: of the update.
    """
    arrays, prefix = step.arrays, f"update{number}."
    rows = _rows(step, arrays.get("used", arrays["mask"]))
    value_rows_new, start = [], 0
    for index in arrays[prefix + "value_rows"].tolist():
        row = rows[index]
        new_values = _floats(arrays, prefix + "values", row.at + start)
        value_rows_new.append(replace(row, new_values=new_values))
        start += row.length
    return value_rows_new


def shake(row: StepRow, unit: float, way: float | int) -> StepRow:
    """The row with each number moved by a few roundings, up or down (Monte Carlo arithmetic, Parker
    1997).

    Equal scores stay equal, as they do when they are rounded: a group of equal scores has no std.

    Args:
        row: the row.
        unit: the unit roundoff of the recorded numbers.
        way: 1.0 or -1.0 for all numbers; or the seed of a draw.
    """
    draw = np.random.default_rng([abs(int(way)), row.index])

    def move(values: Any) -> Any:
        if not np.size(values):
            return values
        # Every entry up or down, by a draw of 0 and 1.
        signs = way if isinstance(way, float) else 2.0 * draw.integers(2, size=np.shape(values)) - 1
        return values + 4 * unit * np.abs(values) * signs

    def move_score(value: float) -> float:
        # Seeded by the value, so that equal scores move alike in every row.
        sign = way if isinstance(way, float) else random.Random(f"{way} {value}").choice((-1, 1))
        return value + 4 * unit * abs(value) * sign

    names = (
        "behaviour old ref teacher implicit values end advantages new entropies divergences "
        "targets new_values outputs"
    ).split()
    return replace(
        row,
        **{name: move(getattr(row, name)) for name in names},
        score=move_score(row.score),
        parts=np.array([move_score(part) for part in row.parts]),
        steps=[(end, move_score(reward)) for end, reward in row.steps],
        prefixes=[(tokens, move_score(value)) for tokens, value in row.prefixes],
    )


def _floats(arrays: Mapping[str, StepArray], name: str, places: Any) -> Float64s:
    return arrays[name][places].astype(np.float64) if name in arrays else _NONE


def _rows(step: StepFile, mask: NDArray[np.bool_]) -> list[StepRow]:
    arrays, rows = step.arrays, []
    # Without the trainer's own, the sampler's log-probabilities stand for the old policy.
    before = "old_logprobs" if "old_logprobs" in arrays else "behaviour_logprobs"
    for index, span in enumerate(spans(arrays["offsets"])):
        at = np.flatnonzero(mask[span])
        places = at + span.start
        columns: dict[str, Any] = {
            row_field: _floats(arrays, name, places) for row_field, name in _COLUMNS.items()
        }
        rows.append(
            StepRow(
                index=index,
                group=int(arrays["group"][index]),
                score=float(arrays["score"][index]),
                scored=bool(arrays["scored"][index]),
                at=at,
                length=span.stop - span.start,
                truncated=bool(arrays["truncated"][index]) if "truncated" in arrays else False,
                old=_floats(arrays, before, places),
                end=float(arrays["bootstrap"][index]) if "bootstrap" in arrays else 0.0,
                parts=arrays["score_parts"][index] if "score_parts" in arrays else _NONE,
                weight=float(arrays["row_weights"][index]) if "row_weights" in arrays else 1.0,
                margin=float(arrays["margins"][index]) if "margins" in arrays else 0.0,
                **columns,
            )
        )
    turns, rewards = arrays.get("turns"), arrays.get("turn_rewards")
    if turns is not None and rewards is not None:
        rows = _with_places(rows, "steps", turns[:, 0], turns[:, 2], rewards)
    if "step_labels" in arrays:
        # Columns: row, end of the step, right continuations, all continuations.
        owner, labels = arrays["step_labels"][:, 0], arrays["step_labels"][:, 2:]
        rows = [replace(row, labels=labels[owner == row.index].astype(float)) for row in rows]
    if "prefixes" in arrays:
        prefixes = arrays["prefixes"]
        rows = _with_places(
            rows, "prefixes", prefixes[:, 0], prefixes[:, 1], arrays["prefix_values"]
        )
    return rows


def _with_places(
    rows: Sequence[StepRow], name: str, of: Any, places: Any, values: Any
) -> list[StepRow]:
    """The rows with (place, value) pairs; a value that is NaN is none."""
    pairs_by_row: dict[int, Any] = {}
    for row, place, value in zip(of.tolist(), places.tolist(), values.tolist(), strict=True):
        # NaN alone differs from itself.
        if value == value:
            pairs_by_row.setdefault(row, []).append((place, value))
    return [replace(row, **{name: pairs_by_row.get(row.index, ())}) for row in rows]
