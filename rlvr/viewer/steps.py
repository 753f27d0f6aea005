"""A recorded training step as a report: what departs first, its updates, its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlvr.algo.judge.verify import QuantityCheck, verify
from rlvr.data.step_files import StepFile, read_step, spans
from rlvr.errors import DataError
from rlvr.viewer.reports import Report, ReportTable, cut_cell, cut_text

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

__all__ = ["step_report"]

# More rows make the page slow to draw; texts take most of its bytes.
_MOST_ROWS: Final = 1000
_MOST_TEXTS: Final = 100
_MOST_JUDGED: Final = 200_000
"""Tokens of a step that a page judges: some ten seconds."""


def step_report(path: Path) -> Report:
    """What `rlvr step verify` finds in a step file, and the file's updates and rows.

    Args:
        path: of the file.

    Raises:
        DataError: it is truncated, altered, of a newer version, or no step file.
    """
    step = read_step(path)
    head, arrays = step.head, step.arrays
    algorithm = _mapping(head.get("algorithm")).get("name")
    number = "A step" if head.get("step") is None else f"Step {head['step']}"
    report = Report(cut_cell(f"{number} of {head.get('trainer')}, {algorithm}"))
    tokens = int(arrays["offsets"][-1])
    report.lines.append(
        f"{len(arrays['group']):,} rows in {len(np.unique(arrays['group'])):,} groups, "
        f"{tokens:,} tokens, {int(arrays['mask'].sum()):,} of them trained on; "
        f"{int((~arrays['scored']).sum()):,} rows UNSCORED."
    )
    findings: list[QuantityCheck] = []
    if tokens > _MOST_JUDGED:
        report.lines.append(f"Too long to be judged here: rlvr step verify {path.name}")
    else:
        try:
            findings = verify(step)
        except DataError as error:
            report.lines.append(f"Not judged: {error}")
    report.lines += [_first_departing(findings)] if findings else []
    report.tables += [_findings_table(findings)] if findings else []
    report.tables += [_updates_table(step.updates)] if step.updates else []
    report.tables.append(_rows_table(step))
    departing = {check.row for check in findings if check.status == "departs"}
    report.cases += _texts(step, departing)
    return report


def _first_departing(findings: Sequence[QuantityCheck]) -> str:
    for finding in findings:
        if finding.status == "departs":
            return f"First: {finding}."
    equal = sum(finding.status == "equal" for finding in findings)
    return f"Nothing departs: {equal} quantities equal, {len(findings) - equal} not compared."


def _findings_table(findings: Sequence[QuantityCheck]) -> ReportTable:
    rows = [
        (
            finding.quantity,
            finding.status,
            *(_number(value) for value in (finding.row, finding.token)),
            *(_number(value) for value in (finding.recorded, finding.recomputed)),
            _number(finding.tolerance),
            _number(finding.ratio),
            cut_cell(finding.why or "; ".join(finding.explained)),
        )
        for finding in findings
    ]
    bad = frozenset((at, 1) for at, finding in enumerate(findings) if finding.status == "departs")
    head = ("quantity", "status", "row", "token", "recorded", "recomputed", "rounding allows")
    caption = "recomputed, in the order of the trainer"
    return ReportTable(caption, (*head, "norms' ratio", "why, or explained if"), rows, bad)


def _updates_table(updates: Sequence[Mapping[str, object]]) -> ReportTable:
    names = ["loss"]
    for update in updates:
        names += [name for name in _mapping(update.get("terms")) if name not in names]
    rows = []
    for number, update in enumerate(updates):
        terms = {"loss": update.get("loss"), **_mapping(update.get("terms"))}
        sizes = (_number(update.get(name)) for name in ("sequences", "tokens"))
        rows.append((number, *sizes, *(_number(terms.get(name)) for name in names)))
    return ReportTable("updates", ("update", "completions", "tokens", *names), rows)


def _rows_table(step: StepFile) -> ReportTable:
    rows = [_row_cells(step, row) for row in range(min(len(step.arrays["group"]), _MOST_ROWS))]
    left = len(step.arrays["group"]) - len(rows)
    caption = "rows" + (f", without the last {left:,}" if left else "")
    return ReportTable(caption, _ROW_HEAD, rows)


_ROW_HEAD: Final = (
    "row", "task", "score", "advantage, mean", "tokens", "trained on", "truncated",
    "|trainer - sampler|, most",
)  # fmt: skip


def _row_cells(step: StepFile, row: int) -> tuple[object, ...]:
    arrays = step.arrays
    span = spans(arrays["offsets"][row : row + 2])[0]
    mask = arrays["mask"][span]
    score = float(arrays["score"][row]) if arrays["scored"][row] else "UNSCORED"
    truncated = arrays.get("truncated")
    return (
        row,
        cut_cell(_group_of(step, row).get("task")),
        score if isinstance(score, str) else _number(score),
        _mean(arrays.get("advantages"), span, mask),
        span.stop - span.start,
        int(mask.sum()),
        "" if truncated is None else "yes" if truncated[row] else "no",
        _most_apart(arrays, span, mask),
    )


def _mean(values: StepArray | None, span: slice, mask: StepArray) -> str:
    if values is None or not mask.any():
        return ""
    return _number(float(values[span][mask].mean()))


def _most_apart(arrays: Mapping[str, StepArray], span: slice, mask: StepArray) -> str:
    """How far the trainer's log-probability of a token is from the sampler's, before the step."""
    old = arrays.get("old_logprobs")
    if old is None or not mask.any():
        return ""
    apart = np.abs(old[span] - arrays["behaviour_logprobs"][span])[mask]
    return _number(float(apart.max()))


def _texts(step: StepFile, departing: set[int | None]) -> list[tuple[str, list[Any]]]:
    """The completions, those of rows that depart first."""
    texts = step.head.get("texts")
    if not isinstance(texts, list):
        return []
    numbers = range(min(len(texts), len(step.arrays["group"])))
    order = sorted(numbers, key=lambda row: row not in departing)[:_MOST_TEXTS]
    cases = []
    for row in order:
        group = _group_of(step, row)
        facts = [tuple(cut_cell(group.get(name)) for name in ("prompt", "reference"))]
        mark = ", departs" if row in departing else ""
        summary = f"row {row}{mark}: score {_row_cells(step, row)[2]}"
        cases.append(
            (summary, ReportTable("", ("prompt", "reference"), facts), cut_text(texts[row]))
        )
    return [("completions", cases)]


def _group_of(step: StepFile, row: int) -> Mapping[str, object]:
    groups = _mapping(step.head.get("groups"))
    return _mapping(groups.get(str(step.arrays["group"][row])))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else cut_cell(value)
