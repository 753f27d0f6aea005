"""Metrics of a run as curves: small inline SVG, told apart by colour and by
dashes, styled by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from rlvr.viewer.metrics import RunMetrics

__all__ = ["GROUPS", "Panel", "metrics_of", "overlay_curves", "panels", "spark"]

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "accuracy": ("accuracy", "batch/accuracy"),
    "evaluation": ("eval/avg@", "eval/pass@", "eval/maj@"),
    "reward and its parts": ("reward", "reward/"),
    "outcomes, share of rollouts": tuple(
        f"outcome/{name}" for name in ("correct", "wrong", "unparsed", "unscored")
    ),
    "length, tokens": ("length", "length_max", "eval/length"),
    "truncated, share": ("truncated", "eval/truncated"),
    "unscored and masked rollouts": ("unscored", "masked", "eval/unscored", "forks_unscored"),
    "groups: trained on, dropped": ("groups", "dropped/", "missing", "left"),
    "waste, share of tokens": ("waste",),
    "entropy, nats per token": ("entropy",),
    "KL, nats per token": ("kl", "kl_ref"),
    "tokens at the bounds, share": ("clipped_low", "clipped_high", "clipped_dual"),
    "importance ratio": ("ratio_mean", "ratio_max"),
    "loss": ("loss",),
    "gradient norm": ("grad_norm",),
    "learning rate": ("lr",),
    "staleness, versions": ("staleness",),
    "canary": ("canary",),
    "time, s": ("step_s", "generation_s", "scoring_wait_s", "update_s", "sync_s", "eval_s"),
    "memory, MiB": ("memory_mib",),
}
"""The panels in order, with the metrics that each shows; a name that ends in / or @ is
the beginning of several."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 200, 52, 8, 10, 22
_COLOURS = 6  # of the style sheet
_MOST_LINES, _MOST_POINTS, _MOST_LINKS, _SPARKS = 12, 1500, 120, 40

_Point = tuple[int, float]


class Panel(NamedTuple):
    """One panel of curves.

    Attributes:
        title: what it shows, with the unit.
        svg: the picture.
        legend: (name, number of its colour, last value) of each line.
    """

    title: str
    svg: Markup
    legend: list[tuple[str, int, str]]


def panels(
    metrics: RunMetrics, steps: Sequence[int], link: Callable[[int], str] | None
) -> list[Panel]:
    """The panels of a run that have any number.

    Args:
        metrics: of the run.
        steps: those whose rollouts were kept.
        link: the address of a step's rollouts; None for a page without a server.
    """
    all_panels = []
    for title, names in GROUPS.items():
        named_points = [(name, _points(metrics, name)) for name in metrics_of(metrics, names)]
        lines = dict([named_line for named_line in named_points if named_line[1]][:_MOST_LINES])
        if lines:
            all_panels.append(_panel(title, lines, steps, link))
    return all_panels


def overlay_curves(runs: Sequence[tuple[str, RunMetrics]]) -> list[Panel]:
    """The first metric of each panel, with a line for each run, for pages without scripts.

    Args:
        runs: their names and metrics; those beyond twelve are left out.
    """
    all_panels = []
    for names in GROUPS.values():
        first_names = [name for _, metrics in runs for name in metrics_of(metrics, names)[:1]][:1]
        for name in first_names:
            named_points = [(of, _points(metrics, name)) for of, metrics in runs]
            lines = dict([named_line for named_line in named_points if named_line[1]][:_MOST_LINES])
            all_panels += [_panel(name, lines, (), None)] if lines else []
    return all_panels


class _Axes:
    """From steps and values to places in the picture."""

    def __init__(self, points: Sequence[_Point]) -> None:
        steps, values = [step for step, _ in points], [value for _, value in points]
        self.first, self.last = min(steps), max(steps)
        low, high = min(values), max(values)
        space = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
        self.low, self.high = (low if low == 0 else low - space), high + space

    def x(self, step: float) -> float:
        share = (step - self.first) / ((self.last - self.first) or 1)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def metrics_of(metrics: RunMetrics, names: Sequence[str]) -> list[str]:
    """The metrics of a run that a panel shows, in its order.

    Args:
        metrics: of the run.
        names: a value of `GROUPS`.
    """
    names_shown = [
        name
        for name in metrics.columns
        if _place(name, names) < len(names) and not name.endswith(("/low", "/high"))
    ]
    return sorted(names_shown, key=lambda name: (_place(name, names), name))


def _points(metrics: RunMetrics, name: str) -> list[_Point]:
    steps, values = metrics.points(name)
    return list(zip(map(int, steps), values.tolist(), strict=True))


def _place(name: str, names: Sequence[str]) -> int:
    """Which of the names a metric belongs to; their number if it is none of them."""
    fits = (
        i
        for i, pattern in enumerate(names)
        if name == pattern or (pattern.endswith(("/", "@")) and name.startswith(pattern))
    )
    return next(fits, len(names))


def _panel(
    title: str,
    lines: Mapping[str, Sequence[_Point]],
    steps: Sequence[int],
    link: Callable[[int], str] | None,
) -> Panel:
    curves, legend = [], []
    axes = _Axes([point for line in lines.values() for point in line])
    for number, (name, points) in enumerate(lines.items()):
        style = number % _COLOURS
        curves.append(_curve(name, points, axes, style))
        legend.append((name, style, _short(points[-1][1])))
    parts = [_frame(axes), *curves]
    if link is not None:
        linked_steps = [step for step in steps if axes.first <= step <= axes.last]
        parts += [
            _link(step, link(step), axes)
            for step in linked_steps[:: max(1, len(linked_steps) // _MOST_LINKS)]
        ]
    head = Markup('<svg viewBox="0 0 {} {}" role="group"><title>{} by step</title>').format(
        _WIDTH, _HEIGHT, title
    )
    return Panel(title, head + Markup("").join(parts) + Markup("</svg>"), legend)


def _link(step: int, address: str, axes: _Axes) -> Markup:
    """A dot on the axis that opens the rollouts of a step."""
    dot = f'<circle class="step" cx="{axes.x(step)}" cy="{_HEIGHT - _BOTTOM}" r="4"/>'
    return Markup(f'<a href="{escape(address)}"><title>rollouts of step {step}</title>{dot}</a>')


def _curve(name: str, points: Sequence[_Point], axes: _Axes, style: int) -> Markup:
    if len(points) == 1:
        at = points[0]
        return Markup(
            '<circle class="c{}" cx="{}" cy="{}" r="3"><title>{}</title></circle>'
        ).format(style, axes.x(at[0]), axes.y(at[1]), name)
    places = " ".join(f"{axes.x(step)},{axes.y(value)}" for step, value in _thin_points(points))
    return Markup('<polyline class="c{}" points="{}"><title>{}</title></polyline>').format(
        style, places, name
    )


def spark(name: str, values: Sequence[float]) -> Markup:
    """A curve as small as a word.

    Args:
        name: of the metric.
        values: in order; at least two.
    """
    thinned = values[:: math.ceil(len(values) / _SPARKS)]
    low, high = min(thinned), max(thinned)
    places = " ".join(
        f"{80 * i / (len(thinned) - 1):.1f},{17 - 15 * (value - low) / ((high - low) or 1):.1f}"
        for i, value in enumerate(thinned)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 80 18" role="img" aria-label="{} from {} to {}">'
        '<polyline class="c0" points="{}"/></svg>'
    ).format(name, _short(thinned[0]), _short(thinned[-1]), places)


def _thin_points(points: Sequence[_Point]) -> Iterable[_Point]:
    """At most so many points that a browser draws them at once: the least and greatest of each
    stretch."""
    if len(points) <= _MOST_POINTS:
        return points
    width = math.ceil(2 * len(points) / _MOST_POINTS)
    stretches = (points[i : i + width] for i in range(0, len(points), width))
    ends = (
        {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        for stretch in stretches
    )
    return [point for pair in ends for point in sorted(pair)]


def _frame(axes: _Axes) -> Markup:
    low, high = axes.y(axes.low), axes.y(axes.high)
    parts = [
        Markup('<path class="axis" d="M{} {}V{}H{}"/>').format(_LEFT, high, low, _WIDTH - _RIGHT)
    ]
    for value in (axes.low, (axes.low + axes.high) / 2, axes.high):
        y = axes.y(value)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(_LEFT, y, _WIDTH - _RIGHT))
        parts.append(
            Markup('<text class="ylabel" x="{}" y="{}">{}</text>').format(
                _LEFT - 5, y + 4, _short(value)
            )
        )
    for step, place in ((axes.first, "first"), (axes.last, "last")):
        if place == "first" or axes.last > axes.first:
            x = axes.x(step)
            parts.append(
                Markup('<text class="xlabel {}" x="{}" y="{}">{}</text>').format(
                    place, x, _HEIGHT - 4, step
                )
            )
    return Markup("").join(parts)


def _short(value: float) -> str:
    return str(escape(f"{value:.3g}"))
