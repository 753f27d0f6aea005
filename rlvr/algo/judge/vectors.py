"""Test vectors: small steps of every paper with what the judge makes of them,
for other projects' tests.

plain     two groups of four, whole completions
rows      masked and UNSCORED rows, another's tokens inside of a completion, a group of one and one
          of equal scores
far       log ratios of ±3 and ±100, on both sides of every clip
updates   two updates, of three rows and five, in uneven micro-batches, one of them without a
          trained token

All numbers are float64; inputs are float32's, so that both precisions read the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from rlvr.algo.judge.advantages import ADVANTAGES, advantages
from rlvr.algo.judge.dual import Float64s
from rlvr.algo.judge.head import needs, setting_of
from rlvr.algo.judge.losses import LOSSES, UpdateLoss
from rlvr.algo.judge.rows import Setting, StepRow, advantage_rows, rows_of_update
from rlvr.algo.judge.selection import selectable
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.numbers import algorithm_numbers
from rlvr.data.step_files import StepArray, StepFile

__all__ = ["CASES", "PAPERS", "vector_step", "vectors"]

CASES: Final = ("plain", "rows", "far", "updates")
PAPERS: Final = tuple(sorted((ADVANTAGES.keys() & LOSSES.keys()) - {"gkd", "sdft"}))
"""All with a loss per token that follows from numbers per token, not from whole distributions."""
# Eight rows in which all kinds are met: lengths that differ within a group, the longest (which
# is truncated), a group that agrees, and one of a single row.  Scores are multiples of 1/8, so
# that a sum of them is exact in every order.
_LENGTHS: Final = (3, 8, 5, 6, 2, 7, 4, 8)
_LONGEST: Final = 8
_SCORES: Final = (1.0, 0.0, 0.0, 0.75, 0.5, 0.0, 0.25, 0.625)
_SCORES_OF_ROWS: Final = (1.0, 0.0, 0.5, 0.75, 1.0, 1.0, 1.0, 0.625)
_GROUPS: Final = {"rows": (0, 0, 0, 0, 1, 1, 1, 2), "updates": (0, 0, 0, 1, 1, 1, 1, 1)}
_TWO_GROUPS: Final = (0, 0, 0, 0, 1, 1, 1, 1)
_WITH: Final = {"turns": "turn_rewards", "prefixes": "prefix_values"}
_READ_BY_SOME: Final = (
    "ref_logprobs",
    "teacher_logprobs",
    "values",
    "implicit_rewards",
    "score_parts",
    "selected",
    *_WITH.keys(),
    *_WITH.values(),
)
_NUMBERS: Final = {"kl_cov": {"share": 0.2}, "clip_cov": {"share": 0.2, "low": 0.1}}
"""At their own a batch so small has one token that is selected, or none."""
_MICRO: Final = ([0, 1, 1], [0, 0, 1, 2, 2])
"""The micro-batch of each row of each of two updates."""
_MASKED: Final = {"rows": 2, "updates": 5}
"""A row without a trained token."""


def vectors() -> Iterator[tuple[str, StepFile]]:
    """Each paper's name with a case, and the step, whose advantages, weights, loss and terms are
    the judge's."""
    for name in PAPERS:
        for case in CASES:
            yield f"{name}-{case}", vector_step(name, case)


def vector_step(name: str, case: str) -> StepFile:
    """A paper's step of a case.

    Args:
        name: of `PAPERS`.
        case: of `CASES`.
    """
    return _answer(_make_case(name, case))


def _make_case(name: str, case: str) -> StepFile:
    """The rows of a case, with what the paper reads of them."""
    # GRPO's number on arXiv.
    draw = np.random.default_rng(2402_03300)
    total, offsets = sum(_LENGTHS), np.cumsum([0, *_LENGTHS])
    rows = np.arange(8, dtype=np.int32)

    def around(values: Any, by: float) -> Float64s:
        # A log-probability stays below 0.
        return _single(np.minimum(values + by * draw.standard_normal(total), -0.01))

    old = _single(-draw.uniform(0.1, 2.0, total))
    sampled, new = around(old, 0.1), around(old, 0.3)
    if case == "far":
        for row, apart in ((1, 100.0), (2, -3.0), (5, -100.0), (7, 3.0)):
            place = slice(offsets[row], offsets[row + 1])
            # So low, or so high, that the new one is still below 0.
            old[place] = -101.0 if apart > 0 else -1.0
            new[place] = old[place] + apart
            sampled[place] = old[place]
    mask = np.ones(total, bool)
    if case in _MASKED:
        mask[offsets[_MASKED[case]] : offsets[_MASKED[case] + 1]] = False
    if case == "rows":
        mask[offsets[1] + 2 : offsets[1] + 4] = False
    scored = (rows != 3) | (case != "rows")
    algorithm = load_algorithm(name, **_NUMBERS.get(name, {}))
    numbers = algorithm_numbers(algorithm, _LONGEST) | {"average": None}
    prefixes = [(row, tokens) for row in rows for tokens in (0, _LENGTHS[row] // 2, _LENGTHS[row])]
    arrays: dict[str, StepArray] = {
        "token_ids": draw.integers(2, 40, total).astype(np.int32),
        "offsets": offsets.astype(np.int64),
        "mask": mask,
        "group": np.array(_GROUPS.get(case, _TWO_GROUPS), np.int32),
        "score": np.where(scored, _SCORES_OF_ROWS if case == "rows" else _SCORES, 0.0),
        "scored": scored,
        "truncated": np.array([n == _LONGEST for n in _LENGTHS]),
        "behaviour_logprobs": sampled,
        "old_logprobs": old,
        "ref_logprobs": around(old, 0.2),
    }
    arrays |= {
        "teacher_logprobs": around(old, 0.5),
        "values": _single(draw.uniform(-0.5, 0.5, total)),
        "implicit_rewards": _single(0.3 * draw.standard_normal(total)),
        "score_parts": _single(draw.uniform(0.0, 1.0, (8, 2))),
        "turns": np.array([(row, 0, _LENGTHS[row]) for row in rows], np.int32),
        "turn_rewards": _single(draw.uniform(0.0, 1.0, 8)),
        "prefixes": np.array(sorted(set(prefixes)), np.int32),
    }
    selected = draw.uniform(size=total) < 0.2
    arrays["prefix_values"] = _single(draw.uniform(0.0, 1.0, len(arrays["prefixes"])))
    updates = [{"micro": micro} for micro in _MICRO] if case == "updates" else [{}]
    first = 0
    for number, update in enumerate(updates):
        update_rows = rows[first : first + len(update.get("micro", rows))]
        span = slice(offsets[update_rows[0]], offsets[update_rows[-1] + 1])
        arrays |= {
            f"update{number}.rows": update_rows,
            f"update{number}.computed": update_rows,
            f"update{number}.logprobs": new[span],
            f"update{number}.selected": selected[span],
        }
        first += len(update_rows)
    head = {
        "algorithm": numbers,
        "case": case,
        "license": "Apache-2.0",
        "trainer": "the judge of rlvr",
        "updates": updates,
    }
    return StepFile(head, arrays)


def _answer(asked: StepFile) -> StepFile:
    """The step with what the judge makes of it, without the inputs that the paper does not read."""
    setting = setting_of(asked)
    arrays = dict(asked.arrays)
    of_advantages, of_loss = needs(setting.name, setting)
    read = {*of_advantages, *of_loss, *load_algorithm(setting.name).reads}
    unread = {*_READ_BY_SOME} - read - {_WITH.get(name) for name in read}
    arrays = {
        name: array for name, array in arrays.items() if name.rpartition(".")[2] not in unread
    }
    step = StepFile(asked.head, arrays)
    start = arrays["offsets"]
    rows = advantage_rows(step)
    flat_advantages = np.zeros(int(start[-1]))
    for row, row_advantages in zip(rows, advantages(rows, setting), strict=True):
        flat_advantages[start[row.index] + row.at] = row_advantages
    arrays["advantages"] = flat_advantages
    updates = [_answer_update(step, n, setting, arrays) for n in range(len(step.updates))]
    return StepFile({**step.head, "updates": updates}, arrays)


def _answer_update(
    step: StepFile, number: int, setting: Setting, arrays: dict[str, StepArray]
) -> dict[str, object]:
    """The head of an update, whose weights are added to the arrays, and
    the tokens that it selects."""
    every, computed = rows_of_update(step, number)
    if (key := f"update{number}.selected") in arrays:
        with_tokens = [row for row in computed if len(row.at)]
        may, _, count = selectable(with_tokens, setting)
        # Of the tokens that may be selected, the first ones up to the count.
        chosen = iter(may & (np.cumsum(may) <= count))
        every_chosen = [np.fromiter(chosen, bool, len(row.at)) for row in computed]
        arrays[key] = _flat(computed, every_chosen)
        _, computed = rows_of_update(step, number)
    with np.errstate(all="ignore"):
        update_loss = UpdateLoss(every, computed, setting)
    arrays[f"update{number}.weights"] = _flat(computed, update_loss.weights)
    return {
        **step.updates[number],
        "loss": update_loss.loss,
        "terms": update_loss.terms,
        "tokens": update_loss.tokens,
        "sequences": update_loss.sequences,
    }


def _flat(rows: Sequence[StepRow], values: Sequence[StepArray]) -> StepArray:
    """A number for each token of the rows, 0 for those that are not trained on."""
    lines = [np.zeros(row.length, values[0].dtype) for row in rows]
    for line, row, row_values in zip(lines, rows, values, strict=True):
        line[row.at] = row_values
    return np.concatenate(lines)


def _single(values: object) -> Float64s:
    """Numbers that float32 has, too."""
    return np.asarray(values, np.float32).astype(np.float64)
