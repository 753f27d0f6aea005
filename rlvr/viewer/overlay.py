"""Any number of runs in one set of curves: points, smoothing, bands over seeds,
events, settings that differ."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlvr.errors import UsageError, brief
from rlvr.types import JsonDict
from rlvr.viewer.curves import GROUPS, metrics_of
from rlvr.viewer.metrics import Column, RunMetrics
from rlvr.viewer.sources import RunSource

__all__ = ["AXES", "OverlayView", "overlay_data", "overlay_page"]

AXES: Final = {
    "step": (),
    "tokens": ("tokens",),
    "hours": ("step_s", "eval_s"),
    "samples": ("rollouts",),
}
"""What can be on the x axis, and the metrics whose running sum it is."""

_MOST_POINTS: Final = 1500  # of a line; zoom asks again
_MOST_DIFFERING: Final = 100
_NO_SETTING: Final = ("settings.seed", "settings.run", "settings.resume")
"""What seeds of one run may differ in."""
_CHECKPOINT = re.compile(r"step-(\d{1,12})(?:\.pt)?")


@dataclass(frozen=True, slots=True)
class OverlayView:
    """How curves are shown.

    Attributes:
        by: a key of `AXES`.
        smooth: weight of what was before in an exponential mean, 0 to 0.99; 0 shows each point.
        bands: whether runs that differ in their seed alone are one mean with a band.
        within: the part of the x axis that is shown.
    """

    by: str = "step"
    smooth: float = 0.0
    bands: bool = False
    within: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> OverlayView:
        """The view in the query of an address.

        Args:
            query: values by name.

        Raises:
            UsageError: a value is none.
        """
        by = query.get("by", "step")
        if by not in AXES:
            raise UsageError(f"by is {brief(by)}; it must be one of {', '.join(AXES)}")
        smooth = _float(query, "smooth", 0.0)
        if not 0 <= smooth <= 0.99:
            raise UsageError(f"smooth is {smooth:g}; it must be between 0 and 0.99")
        within = (_float(query, "from", -math.inf), _float(query, "to", math.inf))
        return cls(by, smooth, query.get("bands") == "1", within)


def _float(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{name} is {brief(text)}; it must be a number")
    return value


def overlay_page(runs: Sequence[RunSource]) -> JsonDict:
    """Which metrics the runs have, in panels, in what settings they differ, and their events.

    Args:
        runs: in the order in which they are coloured.
    """
    read = [run.metrics()[0] for run in runs]
    settings = [run.settings()[0] for run in runs]
    names = sorted({name for run_settings in settings for name in run_settings})
    rows = [(name, [run_settings.get(name, "–") for run_settings in settings]) for name in names]
    groups = [
        (
            title,
            sorted(
                {
                    name_of_metric
                    for metrics in read
                    for name_of_metric in metrics_of(metrics, names_of_panel)
                }
            ),
        )
        for title, names_of_panel in GROUPS.items()
    ]
    return {
        "panels": [(title, metrics) for title, metrics in groups if metrics],
        "differ": [row for row in rows if len(set(row[1])) > 1][:_MOST_DIFFERING],
        "events": [
            (number, step, what)
            for number, run in enumerate(runs)
            for step, what in _events(run, read[number])
        ],
        "axes": list(AXES),
    }


def overlay_data(runs: Sequence[RunSource], metric: str, view: OverlayView) -> dict[str, object]:
    """A metric of each run, or of each group of seeds, ready to be drawn.

    Args:
        runs: as for `overlay_page`.
        metric: its name.
        view: how it is shown.

    Returns:
        `lines`, each with name, number of the run, x and y, and low and high of a band; and
        `marks`, each with x, number of the run and what happened.
    """
    read = [run.metrics()[0] for run in runs]
    marks = []
    for number, (run, metrics) in enumerate(zip(runs, read, strict=True)):
        places = dict(zip(metrics.columns["step"], _axis(metrics, view.by), strict=True))
        marks += [
            {"x": float(places[step]), "run": number, "what": what}
            for step, what in _events(run, metrics)
            if step in places
        ]
    points = [_points(metrics, metric, view) for metrics in read]
    groups = _seeds(runs) if view.bands else [[number] for number in range(len(runs))]
    lines = [_line(runs, group, points, view) for group in groups]
    return {"lines": [line for line in lines if line["x"]], "marks": marks}


def _points(metrics: RunMetrics, metric: str, view: OverlayView) -> tuple[Column, Column]:
    values = metrics.columns.get(metric)
    if values is None:
        return np.empty(0), np.empty(0)
    finite = np.isfinite(values)
    return _axis(metrics, view.by)[finite], _smooth_column(values[finite], view.smooth)


def _axis(metrics: RunMetrics, by: str) -> Column:
    if by == "step":
        return metrics.columns["step"]
    total = np.zeros(len(metrics))
    for name in AXES[by]:
        total += np.nan_to_num(metrics.columns.get(name, np.zeros(len(metrics))))
    return np.cumsum(total) / (3600 if by == "hours" else 1)


def _smooth_column(values: Column, weight: float) -> Column:
    """The exponential mean, corrected for its beginning (Adam, arXiv:1412.6980, section 3)."""
    if not weight:
        return values
    smooth, mean, share = [], 0.0, 1.0
    for value in values.tolist():
        mean = weight * mean + (1 - weight) * value
        share *= weight
        smooth.append(mean / (1 - share))
    return np.array(smooth)


def _seeds(runs: Sequence[RunSource]) -> list[list[int]]:
    """Numbers of the runs that have the same settings but for their seed."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, run in enumerate(runs):
        settings = run.settings()[0].items()
        key = [
            setting
            for setting in settings
            if setting[0].startswith("settings.") and setting[0] not in _NO_SETTING
        ]
        groups.setdefault(tuple(sorted(key)) or (("", str(number)),), []).append(number)
    return list(groups.values())


def _line(
    runs: Sequence[RunSource],
    group: Sequence[int],
    points: Sequence[tuple[Column, Column]],
    view: OverlayView,
) -> JsonDict:
    name = runs[group[0]].name
    line: dict[str, object] = {"run": group[0], "name": name}
    if len(group) == 1:
        x, y = _thin_columns(*_within(*points[group[0]], view.within))
        return line | {"x": x.tolist(), "y": y.tolist()}
    have = [points[number] for number in group if len(points[number][0])]
    x = np.unique(np.concatenate([at for at, _ in have])) if have else np.empty(0)
    x, _ = _within(x, x, view.within)
    x = x[:: max(1, math.ceil(len(x) / _MOST_POINTS))]
    table = [np.interp(x, at, y, left=np.nan, right=np.nan) for at, y in have]
    line |= {"name": f"{name} and {len(group) - 1} more seeds", "x": x.tolist()}
    if not len(x):
        return line | {"y": []}
    every = np.stack(table)
    return line | {
        "y": np.nanmean(every, 0).tolist(),
        "low": np.nanmin(every, 0).tolist(),
        "high": np.nanmax(every, 0).tolist(),
    }


def _within(x: Column, y: Column, ends: tuple[float, float]) -> tuple[Column, Column]:
    inside = (x >= ends[0]) & (x <= ends[1])
    return x[inside], y[inside]


def _thin_columns(x: Column, y: Column) -> tuple[Column, Column]:
    """The least and the greatest of each stretch, so that no peak is lost."""
    if len(x) <= _MOST_POINTS:
        return x, y
    width = math.ceil(2 * len(x) / _MOST_POINTS)
    used = len(x) // width * width
    blocks = y[:used].reshape(-1, width)
    starts = np.arange(0, used, width)
    at = np.concatenate((starts + blocks.argmin(1), starts + blocks.argmax(1), [len(x) - 1]))
    at = np.unique(at)
    return x[at], y[at]


def _events(run: RunSource, metrics: RunMetrics) -> list[tuple[int, str]]:
    """(step, what) of what happened in a run beside its steps."""
    steps, values = metrics.points("reset")
    events = [(int(step), "reset") for step in steps[values > 0]]
    steps, values = metrics.points("stage")
    events += [(int(step), f"stage {number:g}") for step, number in zip(steps, values, strict=True)]
    folder = run.path / "checkpoints"
    if folder.is_dir() and not folder.is_symlink():
        matches = (_CHECKPOINT.fullmatch(path.name) for path in folder.iterdir())
        events += [(int(match[1]), "checkpoint") for match in matches if match]
    return sorted(events)
