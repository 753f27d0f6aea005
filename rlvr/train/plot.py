"""Draws the curves of a run into one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rlvr.errors import DataError, MissingDependency
from rlvr.train.metrics import read_metrics

__all__ = ["plot"]

_PANELS: Final = {
    "reward": "mean reward",
    "accuracy": "accuracy in training",
    "length": "length, tokens",
    "entropy": "entropy, nats per token",
    "grad_norm": "gradient norm, before it is clipped",
}


def plot(run: Path, to: Path | None = None) -> Path:
    """Draw reward, accuracy, length, entropy, gradient norm and, with intervals, the evaluations; returns the path.

    Args:
        run: folder of the run.
        to: path of the picture; None for `RUN/curves.png`.

    Raises:
        DataError: the folder has no metrics of a run.
        MissingDependency: matplotlib is not installed.
    """
    path = run / "metrics.jsonl"
    rows = read_metrics(path) if path.is_file() else []
    if not rows:
        raise DataError(f"{path} has no steps; give the folder of a run with at least one")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("matplotlib", "train") from None
    figure = Figure(figsize=(12, 6), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no window, and no global state
    panels = figure.subplots(2, 3).flat
    for panel, (name, title) in zip(panels, _PANELS.items(), strict=False):
        _line(panel, rows, name)
        panel.set_title(title)
    _evaluations(panels[5], rows)
    for panel in panels:
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    figure.suptitle(run.name)
    to = run / "curves.png" if to is None else to
    figure.savefig(to, dpi=110)
    return to


def _line(panel: Any, rows: Sequence[dict[str, Any]], name: str) -> None:
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    panel.plot(*([list(axis) for axis in zip(*points, strict=True)] or [[], []]))


def _evaluations(panel: Any, rows: Sequence[dict[str, Any]]) -> None:
    panel.set_title("evaluation")
    for label, points in _curves(rows).items():
        steps, values, low, high = (list(axis) for axis in zip(*points, strict=True))
        panel.plot(steps, values, marker="o", label=label)
        panel.fill_between(steps, low, high, alpha=0.2)
        panel.legend()


def _curves(rows: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, ...]]]:
    """(step, value, low, high) of each evaluation, by metric; equal curves, such as avg@n and pass@1, become one."""
    found: dict[tuple[tuple[float, float], ...], tuple[list[str], list[tuple[float, ...]]]] = {}
    for name in sorted(
        {name for row in rows for name in row if name.startswith(("eval/avg@", "eval/pass@", "eval/maj@"))}
    ):
        points: list[tuple[float, ...]] = [
            (row["step"], row[name], row[f"{name}/low"], row[f"{name}/high"])
            for row in rows
            if f"{name}/low" in row and row[name] is not None
        ]
        if points:
            same = tuple((step, round(value, 9)) for step, value, *_ in points)
            found.setdefault(same, ([], points))[0].append(name.removeprefix("eval/"))
    return {" = ".join(names): points for names, points in found.values()}
