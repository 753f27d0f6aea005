"""The reward at weak, strong and untested tasks, by a report of `rlvr strength`.

A policy that learns what a weak task pays by mistake gains there before it gains anywhere else;
`WeakTasks`, one of the run's trends, compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Final

from rlvr.data.strengths import read_strengths
from rlvr.environment import Environment
from rlvr.errors import DataError
from rlvr.types import Group

__all__ = ["TaskStrengths"]

_LOOKED_AT: Final = 2000  # tasks of a finite set before the first sample
_DRAWN: Final = 100  # of a set without end, whose tasks are made one by one


class TaskStrengths:
    """Which training tasks are weak.

    Args:
        path: the report.
        env: the training environment, whose first tasks are looked up at once; None for another
            process's.

    Raises:
        DataError: it is none, or is of other data.
    """

    def __init__(self, path: Path, env: Environment | None = None) -> None:
        self._strengths = read_strengths(path)
        if env is None:
            return
        # Sets without end are made task by task, so few are looked at.
        tasks = islice(env.tasks(), _DRAWN if env.size is None else _LOOKED_AT)
        # Which raises where the report has another reference.
        strengths = [self._strengths.of(task.id, task.reference) for task in tasks]
        # Only where all tasks were looked at is it certain that none is there.
        is_whole = env.size is not None and env.size <= _LOOKED_AT
        if is_whole and not any(strengths):
            raise DataError(
                f"{path} is of other data: it has none of the {len(strengths)} training tasks; run "
                "rlvr strength on these data"
            )

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
            strength = self._strengths.of(group.task.id, group.task.reference)
            totals = [
                rollout.score.total for rollout in group.rollouts if rollout.score is not None
            ]
            # Per group first, so that each task counts once.
            scored = [total for total in totals if total is not None]
            if scored:
                state = "untested" if strength is None else strength.state
                means.setdefault(state, []).append(fmean(scored))
        return {f"reward_at/{state}": fmean(values) for state, values in sorted(means.items())}
