"""Draws the curves of a run into one PNG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rlvr.errors import DataError, MissingDependency
from rlvr.train.metrics import read_metrics
from rlvr.types import JsonObject

__all__ = ["plot"]

_PANELS: Final[Mapping[str, tuple[str, ...]]] = {
    "mean reward and its parts": ("reward", "reward/"),
    "accuracy in training": ("accuracy",),
    "outcomes, share of rollouts": ("outcome/",),
    "unscored rollouts": ("unscored",),
    "length, tokens": ("length",),
    "truncated, share": ("truncated",),
    "entropy, nats per token": ("entropy",),
    "KL, nats per token": ("kl", "kl_ref"),
    "gradient norm, before it is clipped": ("grad_norm",),
}
"""The panels before that of the evaluations, with their metrics; a name that ends in / is
the beginning of several."""

_COLUMNS: Final = 3
_DASHES: Final = ("-", "--", ":", "-.")  # beside colours, which not all can tell apart
# Okabe and Ito's
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#946c00", "#56b4e9")


def plot(run: Path, to: Path | None = None) -> Path:
    """Draw what a run logged: reward by part, outcomes, length, entropy, evaluations and more;
    returns the path.

    Panels without a number are left out.  Unscored rollouts have a panel only where there were
    some.

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
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise MissingDependency("matplotlib", "train") from None
    panels = {title: lines for title, names in _PANELS.items() if (lines := _lines(rows, names))}
    # Drawn only if there are some: a panel of zeros would say nothing.
    if not any(value for _, value in panels.get("unscored rollouts", {}).get("unscored", [])):
        panels.pop("unscored rollouts", None)
    evaluations = _evaluations(rows)
    count = len(panels) + bool(evaluations)
    if not count:
        raise DataError(
            f"{path} has steps without any number that is drawn, such as reward; train a step first"
        )
    columns = min(_COLUMNS, count)
    height = -(-count // columns)
    figure = Figure(figsize=(4 * columns, 0.5 + 3 * height), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no window, and no global state
    places = iter(figure.add_subplot(height, columns, i + 1) for i in range(count))
    for title, lines in panels.items():
        panel = next(places)
        for i, (name, points) in enumerate(lines.items()):
            steps, values = zip(*points, strict=True)
            _draw(panel, steps, values, i, name)
        panel.set_title(title, fontsize="medium")
        if len(lines) > 1:
            panel.legend(fontsize="small")
    if evaluations:
        panel = next(places)
        panel.set_title("evaluation, with 95 % intervals", fontsize="medium")
        for i, (label, series) in enumerate(evaluations.items()):
            steps, values, low, high = zip(*series, strict=True)
            _draw(panel, steps, values, i, label, marker="o")
            panel.fill_between(steps, low, high, alpha=0.2, color=_COLOURS[i % len(_COLOURS)])
        panel.legend(fontsize="small")
    for panel in figure.axes:
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.suptitle(_title(run))
    to = run / "curves.png" if to is None else to
    figure.savefig(to, dpi=110)
    return to


def _draw(
    panel: Any,
    steps: Sequence[float],
    values: Sequence[float],
    number: int,
    label: str,
    marker: str = "",
) -> None:
    panel.plot(
        steps,
        values,
        color=_COLOURS[number % len(_COLOURS)],
        linestyle=_DASHES[number % len(_DASHES)],
        marker=marker or ("o" if len(steps) == 1 else None),  # one point makes no line
        label=_plain(label),
    )


def _lines(rows: Sequence[JsonObject], names: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of each metric of a panel that has any number."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, (int, float)) and any(
                name == pattern or (pattern.endswith("/") and name.startswith(pattern))
                for pattern in names
            ):
                lines.setdefault(name, []).append((row["step"], value))
    return {name: lines[name] for name in sorted(lines)}


def _title(run: Path) -> str:
    """What was trained on what, by which algorithm; and the folder."""
    try:
        settings = json.loads((run / "config.json").read_text(encoding="utf-8"))["settings"]
        algorithm = settings["algorithm"]
        facts = [
            settings.get("env"),
            settings.get("model"),
            algorithm.get("name") or algorithm.get("paper"),  # runs before 0.2 have no name
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        facts = []
    texts = [str(fact) if len(str(fact)) <= 40 else f"…{str(fact)[-40:]}" for fact in facts if fact]
    place = run.resolve()
    text = (
        f"{place.parent.name}/{place.name}: {', '.join(texts)}"
        if texts
        else f"{place.parent.name}/{place.name}"
    )
    return _plain(text)


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # which matplotlib would read as mathematics


def _evaluations(rows: Sequence[JsonObject]) -> dict[str, list[tuple[float, ...]]]:
    """(step, value, low, high) of each evaluation, by metric; equal curves, such as avg@n and
    pass@1, become one."""
    by_points: dict[tuple[tuple[float, float], ...], tuple[list[str], list[tuple[float, ...]]]] = {}
    for name in sorted(
        {
            name
            for row in rows
            for name in row
            if name.startswith(("eval/avg@", "eval/pass@", "eval/maj@"))
        }
    ):
        points: list[tuple[float, ...]] = [
            (row["step"], row[name], row[f"{name}/low"], row[f"{name}/high"])
            for row in rows
            if f"{name}/low" in row and row[name] is not None
        ]
        if points:
            # Metrics whose values differ by rounding alone share a curve.
            same = tuple((step, round(value, 9)) for step, value, *_ in points)
            by_points.setdefault(same, ([], points))[0].append(name.removeprefix("eval/"))
    return {" = ".join(names): points for names, points in by_points.values()}
