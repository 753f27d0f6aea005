"""The reward at weak, strong and untested tasks, by a report of `rlvr strength`.

A policy that learns what a weak task pays by mistake gains there before it gains anywhere else;
`WeakTasks`, one of the run's trends, compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rlvr.data.strengths import read_strengths
from rlvr.types import Group

__all__ = ["TaskStrengths"]


class TaskStrengths:
    """Which training tasks are weak.

    Args:
        path: the report.

    Raises:
        DataError: it is none.
    """

    def __init__(self, path: Path) -> None:
        self._strengths = read_strengths(path)

    def metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """The mean reward of a step's groups, by the state of their task: `reward_at/weak` and
        so on.

        Args:
            groups: that were sampled, dropped ones too; one without a score is left out.

        Raises:
            DataError: the report is of other data.
        """
        means: dict[str, list[float]] = {}
        for group in groups:
            known = self._strengths.of(group.task.id, group.task.reference)
            totals = [one.score.total for one in group.rollouts if one.score is not None]
            scored = [total for total in totals if total is not None]
            if scored:
                state = "untested" if known is None else known.state
                means.setdefault(state, []).append(fmean(scored))
        return {f"reward_at/{state}": fmean(values) for state, values in sorted(means.items())}
