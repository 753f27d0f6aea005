"""Steps of preferences in files: pairs, labels and right completions, with the weight
of each token or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlvr.algo.papers.numbers import algorithm_numbers
from rlvr.data.step_files import StepFile
from rlvr.train.part import ExampleMicro
from rlvr.train.recorder import RowArrays, StepWriter, add_rows
from rlvr.types import JsonDict

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["ExampleRecorder", "rows_of_examples"]


@dataclass(slots=True)
class _Update:
    """An update while it is made.

    Attributes:
        rows: of each (`id` of an example, side), and at last of each (its number, side).
        point: KTO's z.
        head: what the file says of the update.
    """

    rows: dict[tuple[int, int], RowArrays] = field(default_factory=dict)
    point: float | None = None
    head: JsonDict = field(default_factory=dict)


class ExampleRecorder(StepWriter):
    """Records the examples of a step, with what the loss has read of each row."""

    wants = "examples"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._updates: list[_Update] = []
        self._micro: ExampleMicro | None = None

    def select(self, mini: object) -> Any:
        if self._is_due:
            self._updates.append(_Update())
        return mini

    def see_examples(self, micro: ExampleMicro) -> None:
        # The gradient of the micro-batch before is complete only now, after its backward pass.
        self._take_micro()
        if not self._is_due:
            return
        for values in (micro.logprobs, micro.outputs):
            if values is not None and values.requires_grad:
                # Autograd keeps the gradient of a tensor that is no leaf only on request.
                values.retain_grad()
        self._micro = micro

    def _take_micro(self) -> None:
        """Keep what the last micro-batch's backward pass has left."""
        micro, self._micro = self._micro, None
        if micro is None or not self._updates:
            return
        update = self._updates[-1]
        if micro.point is not None:
            update.point = float(micro.point)
        n = len(micro.examples)
        for index in range(len(micro.rows)):
            # Rows of a micro-batch: first all chosen ones, then all rejected ones.
            example, side = micro.examples[index % n], index // n
            row_arrays = _of_row(micro, index, len(micro.rows[index].completion_ids))
            # By `id` at first: a micro-batch has its examples, and not their numbers in the batch.
            add_rows(update.rows, {(id(example), side): row_arrays})

    def gradient(self, norm: float) -> None:
        self._take_micro()

    def after_update(self, numbers: Mapping[str, float]) -> None:
        if self._updates:
            terms = dict(numbers)
            self._updates[-1].head = {"loss": terms.pop("loss", None), "terms": terms}

    def after_skip(self, mini: Any, numbers: Mapping[str, float]) -> None:
        """Write the rows of an update that was left out."""
        self._micro = None
        del self._updates[-1:]
        if self.learner.ranks.first:
            step = StepFile({"left_out": True}, rows_of_examples(mini.rows)[0])
            self._save(step, f"-bad-{self.learner.bad}")

    def after(self, batch: Any) -> dict[str, float]:
        updates, self._updates = self._updates, []
        if not updates:
            return {}
        numbers = {id(example): number for number, example in enumerate(batch.rows)}
        for update in updates:  # by their numbers, which all ranks know
            numbered_rows = {(numbers[of], side): row for (of, side), row in update.rows.items()}
            update.rows = {}
            for rows in self.learner.ranks.of_all_rows(numbered_rows):
                add_rows(update.rows, rows)
        return self._judge(self._step_file(batch, updates) if self.learner.ranks.first else None)

    def _step_file(self, batch: Any, updates: Sequence[_Update]) -> StepFile:
        config, algorithm = self.learner.config, self.learner.algorithm
        arrays, places = rows_of_examples(batch.rows)
        rows_so_far: dict[tuple[int, int], RowArrays] = {}
        # In reverse, so that a row's numbers are those of the first update that has it.
        for update in reversed(updates):
            rows_so_far |= update.rows
        order = [
            (n, side) for n, example in enumerate(batch.rows) for side in range(len(example.rows))
        ]
        for name in ("ref_logprobs",):
            if order and name in rows_so_far.get(order[0], {}):
                columns = [np.zeros(0, np.float32), *(rows_so_far[place][name] for place in order)]
                arrays[name] = np.concatenate(columns)
        heads = []
        for number, update in enumerate(updates):
            prefix, update_keys = f"update{number}.", [key for key in order if key in update.rows]
            rows = np.array([places[key] for key in update_keys], np.int32)
            arrays |= {prefix + "rows": rows, prefix + "computed": rows}
            for name in ("logprobs", "weights", "outputs", "output_weights"):
                if update_keys and name in update.rows[update_keys[0]]:
                    columns = [
                        np.zeros(0, np.float32),
                        *(update.rows[key][name] for key in update_keys),
                    ]
                    arrays[prefix + name] = np.concatenate(columns)
            numbers = {} if update.point is None else {"reference_point": update.point}
            heads.append({**update.head, "numbers": numbers})
        head = {
            "algorithm": algorithm_numbers(algorithm, config.max_tokens),
            **self._head,
            "updates": heads,
        }
        return StepFile(head, arrays)


def _of_row(micro: ExampleMicro, index: int, length: int) -> dict[str, StepArray]:
    """Of one row, after the backward pass."""
    arrays: dict[str, StepArray] = {}
    for values, names in (
        (micro.logprobs, ("logprobs", "weights")),
        (micro.outputs, ("outputs", "output_weights")),
    ):
        if values is None:
            continue
        # No gradient: the loss has not read these rows.
        grad = torch.zeros_like(values) if values.grad is None else values.grad
        part: object = slice(0, length) if names[0] == "logprobs" else slice(None)
        if micro.output_rows is not None and names[0] == "outputs":
            selected = micro.output_rows == index
            pair = values[selected], grad[selected]
        else:
            pair = values[index].reshape(-1)[part], grad[index].reshape(-1)[part]
        arrays |= {name: _floats(tensor) for name, tensor in zip(names, pair, strict=True)}
    if micro.ref_logprobs is not None:
        arrays["ref_logprobs"] = _floats(micro.ref_logprobs[index, :length])
    return arrays


def _floats(values: Tensor) -> NDArray[np.float32]:
    floats: NDArray[np.float32] = values.detach().float().cpu().numpy()
    return floats


def rows_of_examples(
    examples: Sequence[Any],
) -> tuple[dict[str, StepArray], dict[tuple[int, int], int]]:
    """The arrays of the rows of pairs or labelled completions, the chosen one of a pair first; and
    each row's place.

    Args:
        examples: of a step, see `rlvr.train.preferences.Example`.
    """
    rows = [
        (number, side, row)
        for number, example in enumerate(examples)
        for side, row in enumerate(example.rows)
    ]
    lengths = [len(row.completion_ids) for _, _, row in rows]
    right = [examples[number].right and side == 0 for number, side, _ in rows]
    arrays: dict[str, StepArray] = {
        "prompt_ids": np.array([t for _, _, row in rows for t in row.prompt_ids], np.int32),
        "prompt_offsets": _offsets([len(row.prompt_ids) for _, _, row in rows]),
        "token_ids": np.array([t for _, _, row in rows for t in row.completion_ids], np.int32),
        "offsets": _offsets(lengths),
        "mask": np.array([bool(m) for _, _, row in rows for m in row.completion_mask], bool),
        "group": np.array([number for number, _, _ in rows], np.int32),
        "score": np.array(right, np.float64),
        "scored": np.ones(len(rows), bool),
        # Log-probabilities of the policy that sampled are unknown: the file has none.
        "behaviour_logprobs": np.zeros(sum(lengths), np.float32),
        "row_weights": np.array([examples[number].weight for number, _, _ in rows], np.float64),
        "margins": np.array([examples[number].margin for number, _, _ in rows], np.float64),
    }
    steps = [
        (row, *step) for row, (number, _, _) in enumerate(rows) for step in examples[number].steps
    ]
    if steps:
        arrays["step_labels"] = np.array(steps, np.float64).reshape(-1, 4)
    places = {(number, side): i for i, (number, side, _) in enumerate(rows)}
    return arrays, places


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.array([0, *accumulate(lengths)], np.int64)
