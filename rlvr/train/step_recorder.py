"""Training steps written to files from which anyone recomputes them: no forward pass
more, on any number of ranks.

Log-probabilities and their gradients are those of the update's own graph;
docs/reference/step_files.md has the format.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlvr.algo.papers.numbers import algorithm_numbers, plain_number
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues
from rlvr.data.step_files import StepFile
from rlvr.errors import UsageError
from rlvr.train.credit import Batch
from rlvr.train.gradient_sketch import PLACES, sketch, weights_digest
from rlvr.train.part import Micro
from rlvr.train.recorder import RowArrays, StepWriter, add_rows
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.self_check import other_layout
from rlvr.types import JsonDict, Rollout

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["StepRecorder", "step_of_batch"]

_TOKEN_ARRAYS = (
    "behaviour_logprobs old_logprobs ref_logprobs teacher_logprobs values implicit_rewards "
    "advantages returns kept"
).split()


@dataclass(slots=True)
class _Update:
    """An update while it is made.

    Attributes:
        rows: all its rows, as indices of the batch.
        numbers: of the algorithm where they differ from step to step.
        selected: the tokens that the algorithm treats apart, of each row.
        computed: arrays of each computed row, by its index.
        valued: the same of each row that the critic learned from.
        head: what the file says of the update.
    """

    rows: list[int]
    numbers: JsonDict
    selected: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    computed: dict[int, RowArrays] = field(default_factory=dict)
    valued: dict[int, RowArrays] = field(default_factory=dict)
    head: JsonDict = field(default_factory=dict)
    sketch: NDArray[np.float64] | None = None

    def rows_in_order(self) -> dict[int, RowArrays]:
        """Arrays of the computed rows, in the order of the update."""
        return {row: self.computed[row] for row in self.rows if row in self.computed}


class StepRecorder(StepWriter):
    """Records the rows of a step with all that their updates were computed from."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._index: dict[int, int] = {}
        self._open: _Update | None = None
        self._micro: Micro | None = None
        self._values: tuple[Sequence[Rollout], Tensor] | None = None
        self._updates: list[_Update] = []
        self._more: dict[str, object] = {}
        self._prefixes: Sequence[PrefixValues] | None = None
        self._sketches: NDArray[np.float32] | None = None
        self._off: dict[str, float] = {}
        self._digest: str | None = None
        self._batch_rows: Sequence[object] = ()
        if learner.config.step_sketches and learner.ranks.world > 1:
            raise UsageError(
                "step_sketches takes a gradient for each row, and sharded weights have none in one "
                "place: record them on one rank, or leave step_sketches out"
            )

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.algorithm.examples is None

    def begin_at(self, step: int) -> None:
        super().begin_at(step)
        # What a run that continues begins with may be other weights than those digested before.
        self._digest = None

    def _weights_digest(self) -> str:
        """That after a step is the one before the next: weights change in updates alone."""
        if self._digest is None:
            self._digest = weights_digest(self.learner.policy.model)
        return self._digest

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        self._prefixes = sampled.values
        return sampled

    def before(self, batch: Batch) -> Batch:
        learner = self.learner
        # Also what an update left behind that was skipped.
        self._updates, self._open, self._micro, self._values = [], None, None, None
        self._index = {id(row): i for i, row in enumerate(batch.rows)}
        self._batch_rows = batch.rows
        averages = [part.average for part in learner.parts if part.average is not None]
        self._more = {"average": averages[0] if averages else None}
        if any(part.holds_policy for part in learner.parts):
            self._more["held"] = True  # the critic learns alone
        # A digest is of whole weights, which only a run of one rank has.
        if self.is_written and learner.ranks.world == 1:
            self._more["weights_before"] = self._weights_digest()
        self._sketches = None
        self._off = {}
        if self.is_written and learner.config.step_sketches:
            # Before the optimiser's step: gradients at the weights that it begins with.
            self._sketches = np.stack([self._sketch_of(row) for row in batch.rows])
        return batch

    def _sketch_of(self, row: Any) -> NDArray[np.float32]:
        """Of the gradient of the summed log-probabilities of a row's trained tokens."""
        policy = self.learner.policy
        logprobs = policy.logprobs([row], self.learner.temperature)[0]
        mask = torch.tensor(row.completion_mask, device=policy.device)
        if not mask.any():
            return np.zeros(PLACES, np.float32)
        logprobs[mask].sum().backward()
        row_sketch = sketch(policy.model).astype(np.float32)
        self.learner.optimizer.zero_grad(set_to_none=True)
        return row_sketch

    def select(self, mini: Any) -> Any:
        self._digest = None  # of weights that this update changes
        # By identity: mini-batches hold the batch's own rows.
        rows = [self._index.get(id(row), i) for i, row in enumerate(mini.rows)]
        self._open = _Update(rows, _numbers_now(self.learner))
        if mini.selected is not None:
            flat = mini.selected.cpu().numpy()
            self._open.selected = dict(zip(rows, flat, strict=True))
        self._open.head |= {
            "tokens": int(mini.completion_mask.sum()),
            "sequences": int(mini.completion_mask.any(dim=1).sum()),
        }
        return mini

    def penalty(self, loss: Tensor, micro: Micro) -> Tensor:
        self._take_micro()
        if self._open is None:
            return loss
        if any(part.replaces_step for part in self.learner.parts):
            # TRPO asks for its surrogate many times, the last time at the weights after its step.
            # Only log-probabilities: TRPO has no slope per token of its step.
            only_logprobs = {"logprobs": micro.logprobs.detach().float().cpu().numpy()}
            self._open.computed |= self._by_row(micro.batch.rows, only_logprobs)
        elif micro.logprobs.requires_grad:
            # log-probabilities are no leaves, and autograd keeps the gradients of leaves alone.
            for values in _read_of(micro).values():
                values.retain_grad()
            self._micro = micro
        return loss

    def see_values(self, rows: Sequence[Rollout], values: Tensor) -> None:
        self._take_values()
        if self._open is not None:
            values.retain_grad()
            self._values = rows, values

    def _take_micro(self) -> None:
        """Keep what the last micro-batch's backward pass has left."""
        micro, self._micro = self._micro, None
        if micro is not None and self._open is not None:
            columns: RowArrays = {}
            for name, values in _read_of(micro).items():
                columns |= _with_gradient(name, values)
            add_rows(self._open.computed, self._by_row(micro.batch.rows, columns))

    def _take_values(self) -> None:
        """The same of the critic's last micro-batch."""
        recorded_values, self._values = self._values, None
        if recorded_values is not None and self._open is not None:
            rows, values = recorded_values
            add_rows(self._open.valued, self._by_row(rows, _with_gradient("values", values)))

    def _by_row(self, rows: Sequence[Rollout], columns: RowArrays) -> dict[int, RowArrays]:
        return {
            self._index.get(id(row), i): {
                name: values[i, : len(row.completion_ids)] for name, values in columns.items()
            }
            for i, row in enumerate(rows)
        }

    def gradient(self, norm: float) -> None:
        self._take_micro()
        self._take_values()
        update = self._open
        if update is not None and (self._is_due or not math.isfinite(norm)):
            # 1e-6 is torch's own guard against a norm of 0.
            scale = min(1.0, self.learner.config.grad_clip / (norm + 1e-6))
            update.head["gradient_scale"] = scale
            update.sketch = sketch(self.learner.policy.model)
            # The first update alone: only it is made with the weights before the step.
            if self._is_judged and not self._updates and math.isfinite(norm):
                self._off = other_layout(
                    self.learner, self._batch_rows, update.rows_in_order(), scale, update.sketch
                )

    def after_update(self, numbers: Mapping[str, float]) -> None:
        self._close(numbers)

    def after_skip(self, mini: Any, numbers: Mapping[str, float]) -> None:
        """Write an update that was left out, whose rows are then all that the file has."""
        self._close(numbers)
        updates = self._updates[-1:]
        # The update's rows become the file's rows, numbered anew.
        places = {row: i for i, row in enumerate(updates[0].rows)} if updates else {}
        for update in updates:
            update.computed = {
                places[row]: row_arrays for row, row_arrays in update.computed.items()
            }
            update.valued = {places[row]: row_arrays for row, row_arrays in update.valued.items()}
            update.selected = {
                places[row]: row_arrays for row, row_arrays in update.selected.items()
            }
            update.rows = list(range(len(update.rows)))
        self._more["left_out"] = True
        step = self._step_file(mini, updates)
        if step is not None:
            self._save(step, f"-bad-{self.learner.bad}")
        del self._more["left_out"]
        # The step's file lacks this update, and says so.
        self._more["skipped"] = True
        self._updates = self._updates[:-1]

    def last_logprobs(self) -> dict[int, Sequence[float]]:
        """Of the tokens of each row of this step in its last update, by the row's number; all ranks
        call it together."""
        mine = {
            row: row_values["logprobs"].tolist()
            for update in self._updates
            for row, row_values in update.computed.items()
        }
        every = self.learner.ranks.of_all_rows(mine)
        return {row: row_values for logprobs_of in every for row, row_values in logprobs_of.items()}

    def _close(self, numbers: Mapping[str, float]) -> None:
        self._take_micro()
        self._take_values()
        update, self._open = self._open, None
        if (update is not None and update.computed) or (update is not None and self._is_due):
            terms = dict(numbers)
            update.head |= {
                "loss": terms.pop("loss", None),
                "terms": terms,
                "numbers": update.numbers,
            }
            self._updates.append(update)
            if not self._is_due:  # kept for a bad update alone, which follows at once
                del self._updates[:-1]

    def after(self, batch: Batch) -> dict[str, float]:
        updates, self._updates = self._updates, []
        if not self._is_due:
            return {}
        if self.is_written and self.learner.ranks.world == 1:
            self._more["weights_after"] = self._weights_digest()
        return self._judge(self._step_file(batch, updates), **self._off)

    def _step_file(self, batch: Batch, updates: Sequence[_Update]) -> StepFile | None:
        """What a file has of a step; None on other ranks than the first."""
        ranks, config = self.learner.ranks, self.learner.config
        if ranks.world > 1:
            # Every rank has its own rows of an update; sketches of shards add up.
            every = ranks.of_all_rows([(update.computed, update.valued) for update in updates])
            sketches = ranks.from_all([update.sketch for update in updates])
            if not ranks.first:
                return None
            updates = [
                _join_ranks(update, rows, parts)
                for update, rows, parts in zip(
                    updates, zip(*every, strict=True), zip(*sketches, strict=True), strict=True
                )
            ]
        algorithm = algorithm_numbers(self.learner.algorithm, config.max_tokens)
        step = step_of_batch(batch, algorithm | {"average": self._more.get("average")})
        arrays = dict(step.arrays)
        if self._prefixes and len(self._prefixes) == len(step.arrays["offsets"]) - 1:
            arrays |= _prefix_arrays(self._prefixes)
        if self._sketches is not None and len(self._sketches) == len(step.arrays["group"]):
            arrays["row_sketches"] = self._sketches
        for number, update in enumerate(updates):
            arrays |= _update_arrays(f"update{number}.", update)
        head = {
            **step.head,
            **self._head,
            **self._more,
            "updates": [update.head for update in updates],
        }
        return StepFile(head, arrays)


def _read_of(micro: Micro) -> dict[str, Tensor]:
    """What the loss has a slope in, by the name of its array."""
    arrays = {
        "logprobs": micro.logprobs,
        "entropies": micro.entropies,
        "divergences": micro.more.get("divergence"),
    }
    return {name: values for name, values in arrays.items() if values is not None}


_SLOPES = {
    "logprobs": "weights",
    "entropies": "entropy_weights",
    "divergences": "divergence_weights",
    "values": "value_weights",
}


def _with_gradient(name: str, values: Tensor) -> RowArrays:
    """Values and the loss's slope in them, after its backward pass."""
    # A row of advantages 0 may not have been reached.
    slopes = torch.zeros_like(values) if values.grad is None else values.grad
    return {
        column: array.detach().float().cpu().numpy()
        for column, array in ((name, values), (_SLOPES[name], slopes))
    }


def _join_ranks(
    update: _Update,
    each: Sequence[tuple[Any, Any]],
    parts: Sequence[NDArray[np.float64] | None],
) -> _Update:
    """An update with the rows of all ranks, and the sum of their parts of the sketch."""
    computed: dict[int, RowArrays] = {}
    valued: dict[int, RowArrays] = {}
    for rows, own_valued in each:
        add_rows(computed, rows)
        add_rows(valued, own_valued)
    sketches = [part for part in parts if part is not None]
    total_sketch = sum(sketches[1:], start=sketches[0]) if sketches else None
    return dataclasses.replace(update, computed=computed, valued=valued, sketch=total_sketch)


def _update_arrays(prefix: str, update: _Update) -> RowArrays:
    order = [row for row in update.rows if row in update.computed]
    arrays: RowArrays = {
        "rows": np.array(update.rows, np.int32),
        "computed": np.array(order, np.int32),
        **_joined_rows([update.computed[row] for row in order]),
    }
    if valued := [row for row in update.rows if row in update.valued]:
        arrays["value_rows"] = np.array(valued, np.int32)
        arrays |= _joined_rows([update.valued[row] for row in valued])
    if update.selected and order:
        lengths = {row: len(update.computed[row]["logprobs"]) for row in order}
        arrays["selected"] = np.concatenate([update.selected[row][: lengths[row]] for row in order])
    if update.sketch is not None:
        arrays["sketch"] = update.sketch
    return {prefix + name: array for name, array in arrays.items()}


def _joined_rows(rows: Sequence[RowArrays]) -> RowArrays:
    """The arrays of rows, one after the other."""
    none = np.zeros(0, np.float32)
    names = rows[0] if rows else ()
    return {name: np.concatenate([none, *(row[name] for row in rows)]) for name in names}


def _part(learner: Learner, name: str) -> Any:
    """The part of a name; by name, since the table of parts has this one too."""
    return next((part for part in learner.parts if part.name == name), None)


def _numbers_now(learner: Learner) -> dict[str, object]:
    """Coefficients of this update, where they adapt."""
    algorithm, bonus = learner.algorithm, _part(learner, "entropy")
    numbers: dict[str, object] = {"entropy_now": 0.0 if bonus is None else bonus.coefficient}
    for name in ("kl", "trust"):
        if getattr(algorithm, name) is not None:
            numbers[name] = plain_number(getattr(algorithm, name))
    return numbers


def step_of_batch(batch: Batch, algorithm: Mapping[str, object]) -> StepFile:
    """The rows of a batch as a step file has them, without updates.

    Args:
        batch: with advantages.
        algorithm: as `algorithm_numbers` gives it.
    """
    rows = batch.rows
    lengths = [len(row.completion_ids) for row in rows]
    scores = [getattr(row, "score", None) for row in rows]
    totals = [None if score is None else score.total for score in scores]
    # A branch's owner by identity; other rows own themselves.
    owners = {
        id(branch): i for i, row in enumerate(rows) for branch in getattr(row, "branches", ())
    }
    group = np.zeros(len(rows), np.int32) if batch.group is None else batch.group.numpy()
    arrays: dict[str, StepArray] = {
        "prompt_ids": _joined_ids(row.prompt_ids for row in rows),
        "prompt_offsets": _offsets([len(row.prompt_ids) for row in rows]),
        "token_ids": _joined_ids(row.completion_ids for row in rows),
        "offsets": _offsets(lengths),
        "group": group.astype(np.int32),
        "owner": np.array([owners.get(id(row), i) for i, row in enumerate(rows)], np.int32),
        "score": np.array([total or 0.0 for total in totals], np.float64),
        "scored": np.array([total is not None for total in totals], bool),
        "truncated": np.array([bool(row.truncated) for row in rows], bool),
    }
    # Places of real tokens in the padded columns.
    inside = np.concatenate(
        [np.arange(length) + i * batch.completion_mask.shape[1] for i, length in enumerate(lengths)]
    ).astype(np.int64)

    def flat(values: Tensor) -> StepArray:
        array: StepArray = values.cpu().numpy().reshape(-1)[inside]
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    # Tokens that the update trained on, perhaps fewer than were sampled: overlong rows, subsets.
    used = flat(batch.completion_mask)
    masks = [getattr(row, "completion_mask", ()) for row in rows]
    arrays["mask"] = used
    if [len(mask) for mask in masks] == lengths:
        arrays["mask"] = np.array([bool(is_trained) for mask in masks for is_trained in mask], bool)
        if (arrays["mask"] != used).any():
            arrays["used"] = used
    for name in _TOKEN_ARRAYS:
        values = getattr(batch, name)
        if values is not None:
            arrays[name] = flat(values)
    if batch.outcomes is not None and algorithm.get("likelihood"):
        arrays["row_weights"] = (batch.outcomes == 1).cpu().numpy().astype(np.float64)
    if batch.bootstrap is not None:
        arrays["bootstrap"] = batch.bootstrap.cpu().numpy().astype(np.float32)
    parts = sorted({name for score in scores if score is not None for name in score.parts})
    if parts:
        part_rows = [
            [0.0 if s is None else s.parts.get(name, 0.0) for name in parts] for s in scores
        ]
        arrays["score_parts"] = np.array(part_rows, np.float64)
    turns = [(i, turn) for i, row in enumerate(rows) for turn in getattr(row, "turns", ())]
    if turns:
        places = [(i, turn.start, turn.stop) for i, turn in turns]
        # NaN: a turn without a reward of its own, which 0 would not tell apart.
        turn_rewards = [math.nan if turn.reward is None else turn.reward for _, turn in turns]
        arrays |= {
            "turns": np.array(places, np.int32),
            "turn_rewards": np.array(turn_rewards, np.float64),
        }
    names = [getattr(getattr(row, "task", None), "id", "") for row in rows]
    why = {
        str(i): score.verdict.why
        for i, score in enumerate(scores)
        if score is not None and score.total is None
    }
    head = {
        "algorithm": dict(algorithm),
        "parts": parts,
        "tasks": names,
        "unscored": why,
        "texts": [_text_of(row) for row in rows],
        "groups": {str(number): _task_of(row) for number, row in zip(group, rows, strict=True)},
    }
    return StepFile(head, arrays)


def _text_of(row: object) -> str | None:
    """What is scored of a row; None of an episode, whose text alone is not enough."""
    several = len(getattr(row, "turns", ())) > 1 or getattr(row, "episode", None) is not None
    return None if several else getattr(row, "text", None)


def _task_of(row: object) -> dict[str, object]:
    """A row's task as columns from which it is scored again."""
    task = getattr(row, "task", None)
    if task is None:
        return {}
    record: dict[str, object] = {"task": task.id}
    for name in ("prompt", "reference"):
        value = getattr(task, name)
        with contextlib.suppress(TypeError, ValueError):  # a reference of any type: left out
            json.dumps(value)
            record[name] = value
    return record


def _prefix_arrays(prefixes: Sequence[PrefixValues]) -> dict[str, StepArray]:
    """(row, tokens) and value of each boundary that has one, of rows whose ends have one."""
    places = [
        (row, tokens, value)
        for row, prefix in enumerate(prefixes)
        for tokens, value in zip(prefix.boundaries, prefix.values, strict=True)
        # Without both ends the values of a row do not add up to its score.
        if None not in (value, prefix.values[0], prefix.values[-1])
    ]
    return {
        "prefixes": np.array([place[:2] for place in places], np.int32).reshape(-1, 2),
        "prefix_values": np.array([place[2] for place in places], np.float64),
    }


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _joined_ids(each: Any) -> NDArray[np.int32]:
    return np.array([int(token) for ids in each for token in ids], np.int32)
