"""What a recorded step would have been with other scores, or by another
algorithm: no model is needed.

scores or numbers ──advantages──▶ losses ──▶ ∂loss/∂log-probability of each token,
                                             beside those that were recorded

The gradient is the sum of these weights with ∇log π.  Two steps are compared by the cosine of the
weights of all tokens; where the file has a sketch of each row's ∇ Σ log π, by that of the
gradients, with each row's mean weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlvr.algo.judge.advantages import ADVANTAGES, advantages
from rlvr.algo.judge.dual import Float64s
from rlvr.algo.judge.head import of_update, setting_of, what_advantages_lack, what_the_loss_lacks
from rlvr.algo.judge.losses import LOSSES, UpdateLoss
from rlvr.algo.judge.rows import Setting, StepRow, advantage_rows, rows_of_update
from rlvr.algo.judge.updates import not_finite, place_of
from rlvr.data.step_files import StepFile, spans
from rlvr.errors import DataError

__all__ = ["Turned", "other_weights", "recorded_weights", "what_if"]


_LEAST = 1e-3  # of the squared difference; what is less is rounding


@dataclass(frozen=True, slots=True)
class Turned:
    """A step beside what it would have been.

    Attributes:
        step: its number; None where the file has none.
        rows: completions.
        flipped: rows whose score differs, or that are scored in one of the two only.
        changed: rows whose advantage has another sign.
        cosine: of the gradient that was taken and the other; 0 where one of them is none.
        norm: of the other over that of the one taken; None where none was taken.
        by: what was compared: "token weights", "row sketches" or "gradients".
        turning: rows that turn the gradient most, with their shares of the squared difference of
            the weights.
    """

    step: int | None
    rows: int
    flipped: int
    changed: int
    cosine: float
    norm: float | None
    by: str
    turning: Sequence[tuple[int, float]]


def what_if(
    step: StepFile,
    scores: Sequence[float | None] | None = None,
    parts: Sequence[Mapping[str, float]] | None = None,
    algorithm: Mapping[str, object] | None = None,
) -> Turned:
    """Compare a step with what it would have been.

    Args:
        step: the file's.
        scores: of each row, None for UNSCORED; None for those that it had.
        parts: of each row's score, by name, for algorithms that read them.
        algorithm: as a file's head has it; None for the file's own.

    Raises:
        DataError: the file lacks something that the algorithm reads, or the judge has no advantages
            or loss of it.
    """
    if fault := not_finite(step):
        raise DataError(_names_place(*fault))
    other_taken = other_weights(step, scores, parts, algorithm)
    weights_taken = recorded_weights(step)
    mask = step.arrays["mask"]
    row_spans = spans(step.arrays["offsets"])
    for name, weights in (("weight", weights_taken), ("other weight", other_taken)):
        for at in np.flatnonzero(~np.isfinite(weights)).tolist():
            place = place_of(step.arrays["offsets"], at)
            raise DataError(_names_place(name, *place, weights[at]))
    by = "token weights"
    pair = weights_taken, other_taken
    if "row_sketches" in step.arrays:
        # A row's mean weight times the sketch of its summed
        # gradient: exact where a row's weights are all equal.
        by, sketches = "row sketches", step.arrays["row_sketches"].astype(float)
        pair = tuple(
            _row_means(of_tokens, mask, row_spans) @ sketches
            for of_tokens in (weights_taken, other_taken)
        )
    a, b = (float(np.linalg.norm(mean)) for mean in pair)
    cosine = float(pair[0] @ pair[1]) / (a * b) if a and b else 0.0
    shares = np.array(
        [
            float(np.sum((other_taken[row_span] - weights_taken[row_span]) ** 2))
            for row_span in row_spans
        ]
    )
    total = shares.sum()
    # Of equal shares the first row.
    order = np.argsort(-shares, kind="stable")[:5]
    turning = [(int(i), float(shares[i] / total)) for i in order if shares[i] > _LEAST * total]
    was, after = _scores(step), _scores(step) if scores is None else list(scores)
    signs = [
        np.sign([of_tokens[place].sum() for place in row_spans])
        for of_tokens in (weights_taken, other_taken)
    ]
    number = step.head.get("step")
    return Turned(
        step=number if isinstance(number, int) else None,
        rows=len(row_spans),
        flipped=sum(x != y for x, y in zip(was, after, strict=True)),
        changed=int((signs[0] != signs[1]).sum()),
        cosine=cosine,
        norm=b / a if a else None,
        by=by,
        turning=turning,
    )


def _names_place(name: str, row: int, token: int | None, value: float) -> str:
    place = f"row {row}" if token is None else f"row {row}, token {token}"
    return f"{name} of {place} is {value}; a step is compared by finite numbers alone"


def recorded_weights(step: StepFile) -> Float64s:
    """∂loss/∂log-probability of every token, over all updates of the step; 0 where none was
    computed.

    Args:
        step: the file's.
    """
    flat_weights = np.zeros(int(step.arrays["offsets"][-1]))
    span = spans(step.arrays["offsets"])
    for number in range(len(step.updates)):
        weights = step.arrays.get(f"update{number}.weights")
        if weights is None:
            raise DataError(f"the file has no weights of update {number}")
        start = 0
        for row in step.arrays[f"update{number}.computed"].tolist():
            length = span[row].stop - span[row].start
            flat_weights[span[row]] += weights[start : start + length]
            start += length
    return flat_weights


def other_weights(
    step: StepFile,
    scores: Sequence[float | None] | None = None,
    parts: Sequence[Mapping[str, float]] | None = None,
    algorithm: Mapping[str, object] | None = None,
) -> Float64s:
    """The same with other scores or by another algorithm, at the log-probabilities that were
    recorded.

    Rows that the step did not compute have those of before the step: their ratio is 1.

    Args:
        step, scores, parts, algorithm: see `what_if`.
    """
    file = _with_scores(step, scores, parts)
    if algorithm is not None:
        # Coefficients that adapted belong to the recorded algorithm, not to the other one.
        updates = [{k: v for k, v in update.items() if k != "numbers"} for update in file.updates]
        head = {**file.head, "algorithm": dict(algorithm), "updates": updates}
        file = StepFile(head, file.arrays)
    setting = setting_of(file)
    for names, what in ((ADVANTAGES, "advantages"), (LOSSES, "loss per token")):
        if setting.name not in names:
            raise DataError(f"the judge has no {what} of {setting.name}")
    if setting.name in ("gkd", "sdft"):
        raise DataError(f"{setting.name} compares whole distributions, which a file does not have")
    if missing := what_advantages_lack(file, setting):
        raise DataError(f"the file has no {missing}, from which {setting.name} computes advantages")
    with np.errstate(all="ignore"):
        file = _with_advantages(file, setting)
        flat_weights = np.zeros(int(file.arrays["offsets"][-1]))
        for number in range(len(file.updates)):
            _add_update(flat_weights, file, number, of_update(file, number, setting))
    return flat_weights


def _add_update(found: Float64s, file: StepFile, number: int, setting: Setting) -> None:
    rows, computed = rows_of_update(file, number)
    if missing := what_the_loss_lacks(file, number, setting):
        raise DataError(f"the file has no {missing}, from which {setting.name} computes its loss")
    row_at = {row.index: row for row in computed}
    # A row that was not computed had advantage 0 then, and may have another now.
    every = [row_at.get(row.index) or replace(row, new=row.old) for row in rows]
    update_loss = UpdateLoss(rows, every, setting)
    start = file.arrays["offsets"]
    for row, weights in zip(every, update_loss.weights, strict=True):
        found[int(start[row.index]) + row.at] += weights


def _with_advantages(file: StepFile, setting: Setting) -> StepFile:
    rows = advantage_rows(file)
    owner = file.arrays.get("owner", np.arange(len(file.arrays["group"])))
    by_row: dict[int, tuple[StepRow, Float64s]] = {
        row.index: (row, row_values)
        for row, row_values in zip(rows, advantages(rows, setting), strict=True)
    }
    values = np.zeros(int(file.arrays["offsets"][-1]))
    mask = file.arrays["mask"]
    for index, place in enumerate(spans(file.arrays["offsets"])):
        _, row_advantages = by_row[int(owner[index])]
        at = np.flatnonzero(mask[place])
        if int(owner[index]) == index:
            values[place.start + at] = row_advantages
        elif len(row_advantages):  # a branch has its rollout's, which is the same of all tokens
            values[place.start + at] = row_advantages[-1]
    return StepFile(file.head, {**file.arrays, "advantages": values})


def _with_scores(
    step: StepFile,
    scores: Sequence[float | None] | None,
    parts: Sequence[Mapping[str, float]] | None,
) -> StepFile:
    if scores is None:
        return step
    rows = len(step.arrays["group"])
    if len(scores) != rows:
        raise DataError(f"there are {len(scores)} scores for {rows} rows")
    arrays = {**step.arrays}
    arrays["score"] = np.array([0.0 if score is None else score for score in scores], float)
    arrays["scored"] = np.array([score is not None for score in scores], bool)
    # Parts of the old scores do not add up to the new ones.
    arrays.pop("score_parts", None)
    if parts:
        names = sorted({name for row_parts in parts for name in row_parts})
        arrays["score_parts"] = np.array(
            [[row_parts.get(name, 0.0) for name in names] for row_parts in parts], float
        ).reshape(rows, len(names))
    return StepFile(step.head, arrays)


def _scores(step: StepFile) -> list[float | None]:
    pairs = zip(step.arrays["score"].tolist(), step.arrays["scored"].tolist(), strict=True)
    return [score if scored else None for score, scored in pairs]


def _row_means(weights: Float64s, mask: Any, own: Sequence[slice]) -> Float64s:
    """The mean weight of each row's trained tokens."""
    return np.array(
        [weights[row_span].sum() / max(1, int(mask[row_span].sum())) for row_span in own]
    )
