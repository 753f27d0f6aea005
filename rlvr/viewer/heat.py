"""Tasks by steps of a run, or by scored files, coloured by pass rate: what is
solved, lost or never solved.

Axes: P tasks, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlvr.errors import UsageError, brief
from rlvr.viewer.sources import RunSource, Source

__all__ = ["HeatMap", "SORTS", "cells_of", "heat_map", "heat_page", "require_sort"]

SORTS: Final = ("first", "learning", "variance", "name")
"""By what tasks are sorted: first success, rise from the first to the
last third, variance, name."""

# Each is a number in the page, of up to three digits.
_MOST_CELLS: Final = 400_000
_LISTED: Final = 50  # tasks of a table
_NONE: Final = 255  # stands for a cell without a rollout

_CELLS: Final = (
    "SELECT task, env, step, avg((outcome = 'correct')::INT), bool_and(dropped <> '') FROM rows "
    "WHERE error IS NULL AND task <> '' AND outcome <> 'unscored' GROUP BY task, env, step"
)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Pass rates.

    Attributes:
        tasks: (task, environment) of each row.
        columns: steps of a run, or names of files.
        rates: P C, NaN where a task has no scored completion.
        dropped: P C, whether all of a cell's completions were left out of the training.
        left_out: tasks beyond those that are shown.
    """

    tasks: list[tuple[str, str]]
    columns: list[int] | list[str]
    rates: NDArray[np.float64]
    dropped: NDArray[np.bool_]
    left_out: int = 0


def require_sort(sort: str) -> str:
    """The order that an address names.

    Args:
        sort: one of `SORTS`; "" for the first.

    Raises:
        UsageError: it is none.
    """
    if sort not in ("", *SORTS):
        raise UsageError(f"sort is {brief(sort)}; it must be one of {', '.join(SORTS)}")
    return sort or SORTS[0]


def heat_map(sources: Sequence[Source], sort: str) -> HeatMap:
    """The tasks of one source by step, or of several by source.

    Args:
        sources: one run, or scored files, in the order of columns.
        sort: of `SORTS`.
    """
    cells = [source.index.query(_CELLS) for source in sources]
    by_step = len(sources) == 1 and isinstance(sources[0], RunSource)
    steps = sorted({row[2] for rows in cells for row in rows}) if by_step else []
    names = steps if by_step else [source.name for source in sources]
    tasks = sorted({(row[0], row[1]) for rows in cells for row in rows})
    row_of = {task: place for place, task in enumerate(tasks)}
    column_of = {step: place for place, step in enumerate(steps)}
    rates = np.full((len(tasks), len(names)), np.nan)
    dropped = np.zeros(rates.shape, bool)
    for number, rows in enumerate(cells):
        for task, env, step, rate, is_dropped in rows:
            at = row_of[task, env], column_of.get(step, number)
            rates[at], dropped[at] = rate, is_dropped
    order = _order(rates, sort)[: _MOST_CELLS // max(1, len(names))]
    tasks_shown = [tasks[place] for place in order]
    return HeatMap(tasks_shown, names, rates[order], dropped[order], len(tasks) - len(order))


def _order(rates: NDArray[np.float64], sort: str) -> NDArray[np.intp]:
    count = rates.shape[1]
    if sort == "name" or not rates.size:
        return np.arange(len(rates))
    if sort == "first":
        solved = np.nan_to_num(rates) > 0
        keys = np.where(solved.any(1), solved.argmax(1), count).astype(float)
        return np.lexsort((-_mean(rates), keys))
    if sort == "variance":
        return np.argsort(-_mean(rates * (1 - rates)), kind="stable")
    third = max(1, count // 3)
    return np.argsort(-(_mean(rates[:, -third:]) - _mean(rates[:, :third])), kind="stable")


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over columns; 0 where there is no number."""
    counts = np.isfinite(values).sum(1)
    means: NDArray[np.float64] = np.nansum(values, 1) / np.maximum(counts, 1)
    return means


def cells_of(found: HeatMap) -> dict[str, object]:
    """What the page's script draws: rates in percent, row by row.

    Args:
        found: the map.
    """
    cells = np.where(np.isnan(found.rates), _NONE, np.round(100 * np.nan_to_num(found.rates)))
    return {
        "tasks": found.tasks,
        "columns": found.columns,
        "cells": cells.astype(int).ravel().tolist(),
        "dropped": np.flatnonzero(found.dropped).tolist(),
    }


def heat_page(found: HeatMap, since: int) -> dict[str, object]:
    """Tables of tasks beside the map: lost and gained since a column, never solved, always solved.

    Args:
        found: the map.
        since: a step; of files, the number of a column.  The first column from it on is compared
            with the last one that a task has.
    """
    first = next((i for i, column in enumerate(found.columns) if column == since), 0)
    if found.columns and isinstance(found.columns[0], str):
        first = min(max(since, 0), len(found.columns) - 1)
    was, rates_now = _ends(found.rates[:, first:])
    best = np.nan_to_num(found.rates, nan=-1).max(1, initial=-1)
    worst = np.nan_to_num(found.rates, nan=2).min(1, initial=2)

    def listed(
        kept: NDArray[np.bool_], key: NDArray[np.float64]
    ) -> tuple[int, list[dict[str, object]]]:
        places = np.flatnonzero(kept)
        places = places[np.argsort(key[places], kind="stable")]
        rows = [
            {
                "task": found.tasks[i][0],
                "env": found.tasks[i][1],
                "was": was[i],
                "now": rates_now[i],
            }
            for i in places[:_LISTED]
        ]
        return len(places), rows

    return {
        "since": found.columns[first] if found.columns else 0,
        "lists": [
            ("lost since then, the worst first", *listed(rates_now < was, rates_now - was)),
            ("gained since then", *listed(rates_now > was, was - rates_now)),
            ("never solved", *listed(best == 0, best)),
            ("always solved", *listed(worst == 1, worst)),
        ],
        "unsampled": int(np.isnan(found.rates).sum()),
        "dropped": int(found.dropped.sum()),
        "cells": found.rates.size,
        "tasks": len(found.tasks),
        "columns": found.columns,
        "left_out": found.left_out,
    }


def _ends(rates: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first and the last rate of each task; NaN, which is neither less nor more, without
    one."""
    if not rates.size:
        return np.full(len(rates), np.nan), np.full(len(rates), np.nan)
    have = np.isfinite(rates)
    rows = np.arange(len(rates))
    last = rates.shape[1] - 1 - have[:, ::-1].argmax(1)
    return rates[rows, have.argmax(1)], rates[rows, last]
