"""Completions that a person called right or wrong, as cases of a check."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rlvr.environment.base import Environment
from rlvr.testing.audit import audit
from rlvr.testing.findings import Findings, Severity

__all__ = ["check_labels"]

_NAMES: Final = {
    "false positive": ("labelled-wrong", Severity.HOLE, "WRONG"),
    "false negative": ("labelled-right", Severity.WARNING, "CORRECT"),
    "unscored": ("unscored", Severity.HOLE, "a verdict"),
}
_CASES: Final = 1_000


def check_labels(
    env: Environment, rows: str | Path, found: Findings, workers: int | None = None
) -> int:
    """Score labelled completions; each verdict that differs from its label is a finding.

    Args:
        env: the environment.
        rows: a file as `rlvr.testing.audit.audit` takes it.
        found: gets the findings.
        workers: number of processes; None for one per core.

    Returns:
        The number of completions.

    Raises:
        DataError: no row can be used.
        UsageError: the rows have no column `label`.
    """
    result = audit(env, rows, worst=_CASES, workers=workers)
    total = result.total
    # Tries are counted by label, so that a finding says how many of how many.
    for hole, count in (
        ("labelled-wrong", total.false_positive + total.true_negative),
        ("labelled-right", total.true_positive + total.false_negative),
    ):
        for _ in range(count):
            found.tried(hole)
    for case in result.cases:
        hole, severity, expected = _NAMES[case.kind]
        found.add(
            hole,
            severity,
            task=case.task,
            completion=case.completion,
            got=case.why,
            wanted=expected,
        )
    if result.left_out:
        what = f"{len(result.left_out)} labelled rows were left out: {result.left_out[0][:200]}"
        found.add("not-checked", Severity.WARNING, what)
    return total.scored + total.unscored
