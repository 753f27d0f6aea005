"""Which rows an update of a recorded step has, and which of them it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rlvr.data.step_files import StepArray, StepFile, spans

__all__ = ["foreign_token", "missing_row", "not_finite", "place_of", "untrained_row", "wrong_sizes"]

_GROUPS, _ROWS = 8, 64  # of an update at least, where a batch makes several


def wrong_sizes(step: StepFile) -> Iterator[tuple[int, int, int]]:
    """Updates that are not equal parts of whole groups: (number, groups,
    groups that it should have).

    An update has at least 8 groups and 64 rows, so a small batch makes fewer than are wanted.

    Args:
        step: one whose head says how many updates are `updates_wanted`; another has none.
    """
    update_count = step.head.get("updates_wanted")
    if type(update_count) is not int or update_count < 1 or step.head.get("left_out"):
        return
    group = step.arrays["group"]
    sizes = Counter(group.tolist())
    same = len(set(sizes.values())) == 1
    count = 1
    if same:
        rows = next(iter(sizes.values()))
        # From the wanted number down, the first with which
        # every update keeps enough rows; 1 always does.
        fitting = range(min(update_count, len(sizes) // _GROUPS), 1, -1)
        count = next((c for c in fitting if len(sizes) // c * rows >= _ROWS), 1)
    for number in range(len(step.updates)):
        rows_of_group = Counter(group[step.arrays[f"update{number}.rows"]].tolist())
        # A group whose rows are in two updates was split.
        if any(sizes[group_number] != rows for group_number, rows in rows_of_group.items()):
            yield number, len(rows_of_group), len(rows_of_group) + 1
        # Between the quotient rounded down and up, as groups may not divide evenly.
        elif same and not len(sizes) // count <= len(rows_of_group) <= -(-len(sizes) // count):
            yield number, len(rows_of_group), len(sizes) // count


def foreign_token(step: StepFile) -> tuple[int, int] | None:
    """The first row and token that is trained on and is not the policy's; None for none.

    Args:
        step: the file's.
    """
    is_foreign = step.arrays.get("used", False) & ~step.arrays["mask"]
    if not is_foreign.any():
        return None
    return place_of(step.arrays["offsets"], int(np.argmax(is_foreign)))


def not_finite(step: StepFile) -> tuple[str, int, int | None, float] | None:
    """The first score or log-probability of before the step that is not finite: its array, row,
    token and value.  None for none.

    Args:
        step: the file's.
    """
    names = "score behaviour_logprobs old_logprobs ref_logprobs teacher_logprobs values".split()
    offsets = step.arrays["offsets"]
    for name in names:
        values = step.arrays.get(name)
        if values is None:
            continue
        # Only what counts must be finite: an UNSCORED row's score may be anything.
        used = step.arrays["scored" if name == "score" else "mask"]
        bad = np.flatnonzero(used & ~np.isfinite(values))
        if not len(bad):
            continue
        at = int(bad[0])
        if name == "score":
            return name, at, None, float(values[at])
        return name, *place_of(offsets, at), float(values[at])
    return None


def place_of(offsets: StepArray, at: int) -> tuple[int, int]:
    """Row and token of a place in a flat array.

    Args:
        offsets: where each row begins, and the end.
        at: the place.
    """
    # "right", so that a row's first token is its own, and rows without tokens are passed over.
    row = int(np.searchsorted(offsets, at, side="right")) - 1
    return row, at - int(offsets[row])


def missing_row(step: StepFile, number: int) -> tuple[int, int] | None:
    """The first row and token of an update with an advantage that was not computed; None for none.

    Args:
        step: the file's.
        number: of the update.
    """
    prefix = f"update{number}."
    return _first_with_slope(step, step.arrays[prefix + "rows"], step.arrays[prefix + "computed"])


def untrained_row(step: StepFile) -> tuple[int, int] | None:
    """The first row and token with an advantage that is in no update; None for none.

    Args:
        step: one whose head says how many updates were wanted, and that none was left out or
            waited for the critic; of another it is not known.
    """
    head = step.head
    if "updates_wanted" not in head or any(map(head.get, ("left_out", "skipped", "held"))):
        return None
    rows = np.arange(len(step.arrays["group"]))
    # So that there is something to join where the step has no update.
    none = np.zeros(0, np.int32)
    updates = [step.arrays[f"update{number}.rows"] for number in range(len(step.updates))]
    return _first_with_slope(step, rows, np.concatenate([none, *updates]))


def _first_with_slope(step: StepFile, rows: StepArray, but: StepArray) -> tuple[int, int] | None:
    """Row and token of the first advantage that is not 0, in rows that are not among others."""
    trained = step.arrays.get("used", step.arrays["mask"])
    row_spans = spans(step.arrays["offsets"])
    for row in np.setdiff1d(rows, but).tolist():
        has_slope = trained[row_spans[row]] & (step.arrays["advantages"][row_spans[row]] != 0)
        if has_slope.any():
            return row, int(np.argmax(has_slope))
    return None
