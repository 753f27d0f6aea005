"""A step of a user's algorithm, judged by the algorithm's own functions in
float64, a row at a time.

That its advantages and loss are what its author means, no judge can say; that the trainer made of
them what it should, with masks, denominators, penalties and corrections, is recomputed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlvr.algo.judge.dual import Dual, Float64s
from rlvr.algo.judge.rows import Formulas, Setting, StepRow
from rlvr.algo.masks import zero_masked
from rlvr.algo.objectives import Losses
from rlvr.algo.papers import algorithm_class
from rlvr.algo.papers.base import Algorithm, Inputs
from rlvr.algo.papers.numbers import as_typed, from_record
from rlvr.algo.ratios import log_ratio
from rlvr.data.step_files import StepFile
from rlvr.errors import DataError, UsageError
from rlvr.train.credit import collate, credit
from rlvr.types import Group, Outcome, Rollout, Score, Task, Turn, Verdict

__all__ = ["formulas_of", "own_formulas"]


def own_formulas(step: StepFile, spec: str) -> Formulas:
    """The formulas by which a step of a user's algorithm is judged.

    Args:
        step: of a run of this algorithm.
        spec: the algorithm, `mine.py:Mine` or `package.module:Mine`.

    Raises:
        DataError: the step is of another algorithm, or of another version of its file.
        UsageError: there is no such algorithm.
    """
    kind = algorithm_class(spec)
    if not kind.digest:
        raise UsageError(
            f"{spec} is published, and judged by its paper's formulas; leave --algorithm out"
        )
    if kind.examples is not None or {"prefix_values", "divergence"} & kind.reads:
        raise UsageError(
            f"{spec} learns from examples, forks or whole distributions, and only algorithms with "
            f"a loss per token are judged by their own functions; leave --algorithm out"
        )
    recorded = step.head.get("algorithm")
    # By its source: the same name may be another algorithm now.
    if not isinstance(recorded, dict) or recorded.get("digest") != kind.digest:
        name = recorded.get("name") if isinstance(recorded, dict) else None
        raise DataError(
            f"the step is of the algorithm {name!r} with another source than {spec} has now; "
            f"give the file as it was when the step was recorded"
        )
    # Only its own fields: a record also has what runs add to it.
    names = {"name", *kind.__dataclass_fields__}
    algorithm = from_record(
        {key: value for key, value in recorded.items() if key in names} | {"name": spec}
    )
    return formulas_of(algorithm, as_typed("average", recorded.get("average"), float | None))


def formulas_of(algorithm: Algorithm, average: float | None = None) -> Formulas:
    """The functions of an algorithm as the judge calls formulas.

    Args:
        algorithm: with a loss per token.
        average: its moving baseline before the step.
    """

    def advantages(rows: Sequence[StepRow], setting: Setting) -> list[Any]:
        return _advantages(rows, algorithm, average)

    def loss(row: StepRow, setting: Setting) -> Dual:
        return _loss(row, algorithm)

    return Formulas(advantages, loss)


@contextmanager
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    # The algorithm makes tensors itself, of the default type.
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _advantages(
    rows: Sequence[StepRow], algorithm: Algorithm, average: float | None
) -> list[object]:
    """[T] of each row, by the algorithm's `advantages` on the trained tokens alone."""
    by_group: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_group.setdefault(row.group, []).append(i)
    # In the order of groups, as `collate` lays rows out.
    order = [i for members in by_group.values() for i in members]
    groups = [
        Group(_task(number), [_rollout(rows[i], _task(number)) for i in members])
        for number, members in by_group.items()
    ]
    updates = [rows[i].number for i in order]
    with _in_float64():
        batch = collate(groups)
        width = batch.completion_mask.shape[1]
        columns_known: dict[str, Tensor] = {}
        columns = {
            "ref_logprobs": "ref",
            "teacher_logprobs": "teacher",
            "implicit_rewards": "implicit",
            "values": "values",
        }
        for name, attribute in columns.items():
            if any(len(getattr(row, attribute)) for row in rows):
                columns_known[name] = _pad_rows([getattr(rows[i], attribute) for i in order], width)
        if "values" in columns_known:
            columns_known["bootstrap"] = torch.tensor([rows[i].end for i in order])
        batch = replace(batch, **columns_known)
        advantages = credit(
            groups, batch, algorithm, minibatch_of=updates, average=average
        ).advantages
    # Back in the order of the rows.
    advantages_of = {i: advantages[n, : len(rows[i].at)].numpy() for n, i in enumerate(order)}
    return [advantages_of[i] for i in range(len(rows))]


def _task(number: int) -> Task:
    return Task(str(number), "")


def _rollout(row: StepRow, task: Task) -> Rollout:
    tokens = len(row.at)
    # Algorithms that read parts find at least one.
    parts = {str(n): float(part) for n, part in enumerate(row.parts)} or {"score": row.score}
    score = Score(row.score, parts, Verdict(Outcome.CORRECT, why="recorded"))
    if not row.scored:
        score = Score(None, {}, Verdict(Outcome.UNSCORED, why="recorded"))
    # Ends of steps in trained tokens alone, as the row here has no others.
    ends = [bisect_left(row.at.tolist(), end) for end, _ in row.steps]
    turns = [
        Turn(start, end, reward)
        for (start, end), (_, reward) in zip(pairwise([0, *ends]), row.steps, strict=True)
        if start < end
    ]
    return Rollout(
        task=task,
        text="",
        prompt_ids=(),
        # Any token: no model reads it.
        completion_ids=(0,) * tokens,
        completion_mask=(True,) * tokens,
        behaviour_logprobs=tuple(row.behaviour.tolist()),
        weights_version=0,
        turns=turns,
        score=score,
    )


def _pad_rows(rows: Sequence[Float64s], width: int) -> Tensor:
    padded = torch.zeros(len(rows), width)
    for i, values in enumerate(rows):
        padded[i, : len(values)] = torch.from_numpy(values)
    return padded


def _loss(row: StepRow, algorithm: Algorithm) -> Dual:
    """The algorithm's `loss` of a row's tokens, and the slope of their sum
    in each log-probability."""
    tokens = len(row.at)
    if not tokens:
        return Dual(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))
    mask = torch.ones(1, tokens, dtype=torch.bool)
    # A leaf, so that the slope is of this row's log-probabilities alone.
    new = _row(row.new).requires_grad_()
    entropies = _row(row.entropies).requires_grad_() if len(row.entropies) else None

    def log_r() -> Tensor:
        return log_ratio(new, _row(row.old), mask)

    inputs = {
        "logprobs": new,
        "old_logprobs": _row(row.old),
        "behaviour_logprobs": _row(row.behaviour),
        "log_ratio": log_r,
        "ratio": lambda: log_r().exp(),
        "advantages": _row(row.advantages),
        "mask": mask,
        "entropies": entropies,
        "ref_logprobs": _row(row.ref) if len(row.ref) else None,
        "teacher_logprobs": _row(row.teacher) if len(row.teacher) else None,
        "values": _row(row.values) if len(row.values) else None,
        "returns": _row(row.targets) if len(row.targets) else None,
        "selected": torch.as_tensor(row.selected).reshape(1, -1),
    }
    with _in_float64():
        result = algorithm.loss(Inputs(algorithm, inputs))
        losses = result.losses if isinstance(result, Losses) else result
        if not isinstance(losses, Tensor) or losses.shape != new.shape:
            raise UsageError(f"the loss of {algorithm.label} has not one number per token of a row")
        (slope,) = torch.autograd.grad(zero_masked(losses, mask).sum(), new)
    value, slopes = losses.detach()[0].numpy(), slope[0].numpy()
    # Sizes by which rounding of the judge is bounded.
    steep = np.abs(slopes) + np.abs(row.advantages)
    return Dual(value, slopes, np.abs(value) + np.abs(row.advantages), steep)


def _row(values: Float64s) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).reshape(1, -1)
