"""The first page: runs, scored files and reports as one table, sorted, filtered and grouped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from rlvr.errors import UsageError, brief
from rlvr.types import JsonDict
from rlvr.viewer.curves import spark
from rlvr.viewer.sources import ReportSource, RunSource, Shown, Source, State

if TYPE_CHECKING:
    from rlvr.viewer.metrics import RunMetrics

__all__ = ["EvaluationScore", "HomeFilters", "HomeRow", "home_page"]

_MOST: Final = 1000  # rows of the page
_SETTINGS: Final = 60  # by which runs can be grouped
_KINDS: Final = ("run", "scored completions", "report")
_SORTS: Final = {
    "name": "name",
    "model": "model",
    "algorithm": "algorithm",
    "environment": "env",
    "steps": "step",
    "last": "last",
    "best": "best",
    "reward": "reward",
    "unscored": "unscored",
    "state": "state",
    "started": "started",
    "duration": "duration_s",
}
"""Columns by which rows are sorted: name in the address → field of `HomeRow`."""
_TEXTS: Final = frozenset(("name", "model", "algorithm", "environment", "state"))


class EvaluationScore(NamedTuple):
    """An evaluation: the value sorts first."""

    value: float
    low: float
    high: float
    step: int


@dataclass(frozen=True, slots=True)
class HomeRow:
    """What the table says of a source; None and "" where it has nothing to say.

    Attributes:
        key: its number.
        name, kind, state: in words.
        model, algorithm, env: of a run.
        step, steps: its last one and how many were asked for.
        metric: of the evaluations.
        last, best: evaluations of a run.
        reward: mean of the last step.
        unscored: mean number of rollouts of a step that could not be scored.
        started: seconds since 1970: of a run when its settings were written, else of the last
            change.
        duration_s: seconds of all steps and evaluations.
        curve: a spark line.
        says: first line of the user's notes, or of a report.
        bytes: size of a file.
    """

    key: int
    name: str
    kind: str
    state: State
    started: float | None
    model: str = ""
    algorithm: str = ""
    env: str = ""
    step: int | None = None
    steps: str = ""
    metric: str = ""
    last: EvaluationScore | None = None
    best: EvaluationScore | None = None
    reward: float | None = None
    unscored: float | None = None
    duration_s: float | None = None
    curve: str = ""
    says: str = ""
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HomeFilters:
    """What the address of the first page says.

    Attributes:
        q: words that a row must have, in its name, model, notes or anywhere else.
        kind, state: of the rows.
        sort: a column; with a minus before it the greatest first.
        group: a setting of runs, such as `settings.lr`.
    """

    q: str = ""
    kind: str = ""
    state: str = ""
    sort: str = "-started"
    group: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> HomeFilters:
        """The filters in the query of an address.

        Args:
            query: values by name.

        Raises:
            UsageError: there is no such column.
        """
        names = [field.name for field in fields(cls)]
        filters = cls(**{name: query[name].strip()[:300] for name in names if query.get(name)})
        if filters.sort.removeprefix("-") not in _SORTS:
            raise UsageError(
                f"sort is {brief(filters.sort)}; it must be one of {', '.join(_SORTS)}, with - for "
                f"the greatest first"
            )
        return filters

    def link(self, **changes: str) -> str:
        """The query of the address with some values changed.

        Args:
            changes: new values by name.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)} | changes
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def toggled(self, column: str) -> str:
        """The address that sorts by a column; the other way round if it is sorted by it.

        Args:
            column: a key of the columns.
        """
        first = column if column in _TEXTS else f"-{column}"
        reverse = f"-{column}" if column in _TEXTS else column
        return self.link(sort=reverse if self.sort == first else first)


def home_page(sources: Shown, filters: HomeFilters, wait_s: float) -> JsonDict:
    """The table.

    Args:
        sources: all that is shown.
        filters: which of them, and in which order.
        wait_s: seconds after which metrics that were not read yet are left to the next time.

    Returns:
        Values for the template; `unread` is the number of runs that are still to be read.
    """
    end = time.monotonic() + wait_s
    rows, settings, unread = [], {}, 0
    for key, source in enumerate(sources.all):
        if isinstance(source, RunSource):
            unread += time.monotonic() >= end and not source.has_read()
            if source.has_read() or time.monotonic() < end:
                settings[key] = source.settings()[0]
        rows.append(_row(key, source, settings.get(key)))
    rows_kept = [row for row in rows if _passes(row, filters, settings.get(row.key, {}))]
    rows_kept = _sort_rows(rows_kept, filters.sort)[:_MOST]
    return {
        "groups": _group_rows(rows_kept, filters.group, settings),
        "shown": len(rows_kept),
        "total": len(rows),
        "unread": unread,
        "runs": [row.key for row in rows_kept if row.kind == "run"],
        "kinds": [kind for kind in _KINDS if any(row.kind == kind for row in rows)],
        "states": sorted({row.state.name for row in rows} - {""}),
        "columns": list(_SORTS),
        "settings": _differing(settings.values()),
        "live": any(row.state.live for row in rows),
        "filters": filters,
    }


def _row(key: int, source: Source, settings: Mapping[str, str] | None) -> HomeRow:
    if isinstance(source, RunSource):
        return _run(key, source, settings)
    started, size = None, None
    with suppress(OSError):
        status = source.files()[0].path.stat() if source.files() else source.path.stat()
        started, size = status.st_mtime, status.st_size
    says = source.says if isinstance(source, ReportSource) else ""
    return HomeRow(key, source.name, source.what, source.state(), started, says=says, bytes=size)


def _run(key: int, source: RunSource, settings: Mapping[str, str] | None) -> HomeRow:
    if settings is None:
        return HomeRow(key, source.name, source.what, State(False, "", "not read yet"), None)
    metrics, _ = source.metrics()
    started = None
    with suppress(OSError):
        started = (source.path / "config.json").stat().st_mtime
    name, scores = _scores(metrics)
    curve = next(
        (
            spark(metric_name, values.tolist())
            for metric_name in (name, "accuracy", "reward")
            if len(values := metrics.points(metric_name)[1]) > 1
        ),
        "",
    )
    get = settings.get
    return HomeRow(
        key,
        source.name,
        source.what,
        source.state(),
        started,
        model=get("settings.model", ""),
        algorithm=get("settings.algorithm.name", get("settings.algorithm", "")),
        env=get("settings.env", ""),
        step=metrics.last_step if len(metrics) else None,
        steps=get("settings.steps", ""),
        metric=name.removeprefix("eval/"),
        last=scores[-1] if scores else None,
        best=max(scores, default=None),
        reward=_number(metrics.last("reward")),
        unscored=_mean(metrics.points("unscored")[1].tolist()),
        duration_s=sum(
            float(metrics.points(metric_name)[1].sum()) for metric_name in ("step_s", "eval_s")
        ),
        curve=curve,
        says=(source.notes().strip().splitlines() or [""])[0][:200],
    )


def _scores(metrics: RunMetrics) -> tuple[str, list[EvaluationScore]]:
    """The evaluations by their first mean over completions, `eval/avg@N`."""
    names = [
        column
        for column in metrics.columns
        if column.startswith("eval/avg@") and column.count("/") == 1
    ]
    if not names:
        return "", []
    name = names[0]
    low, high = (dict(_pairs(metrics, f"{name}/{end}")) for end in ("low", "high"))
    return name, [
        EvaluationScore(value, low.get(step, math.nan), high.get(step, math.nan), step)
        for step, value in _pairs(metrics, name)
    ]


def _pairs(metrics: RunMetrics, name: str) -> list[tuple[int, float]]:
    steps, values = metrics.points(name)
    return list(zip(steps.astype(int).tolist(), values.tolist(), strict=True))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _passes(row: HomeRow, filters: HomeFilters, settings: Mapping[str, str]) -> bool:
    if filters.kind and row.kind != filters.kind:
        return False
    if filters.state and row.state.name != filters.state:
        return False
    texts = " ".join([row.name, row.kind, row.state.name, row.says, *settings.values()]).lower()
    return all(word in texts for word in filters.q.lower().split())


def _sort_rows(rows: Sequence[HomeRow], sort: str) -> list[HomeRow]:
    """Rows in order; those without a value come last, whichever way it is."""
    name, descending = _SORTS[sort.removeprefix("-")], sort.startswith("-")

    def value(row: HomeRow) -> Any:
        cell = getattr(row, name)
        cell = cell.name if isinstance(cell, State) else cell
        return _natural(cell) if isinstance(cell, str) else cell

    have = [row for row in rows if getattr(row, name) not in (None, "")]
    lack = [row for row in rows if getattr(row, name) in (None, "")]
    return sorted(have, key=value, reverse=descending) + lack


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A text in the order that people expect: run-2 before run-10."""
    parts: list[tuple[int, int, str]] = []
    word = ""
    for char in text.lower():
        is_digit = char.isascii() and char.isdigit()
        if word and is_digit != word[0].isdigit():
            parts.append(_part(word))
            word = ""
        word += char
    return [*parts, _part(word)] if word else parts


def _part(word: str) -> tuple[int, int, str]:
    is_number = word.isascii() and word.isdigit() and len(word) < 19
    return (0, int(word), "") if is_number else (1, 0, word)


def _group_rows(
    rows: Sequence[HomeRow], name: str, settings: Mapping[int, Mapping[str, str]]
) -> list[tuple[str, list[HomeRow], float | None]]:
    """(value of the setting, rows, mean of their last evaluations); one group without a name where
    none is asked."""
    groups: dict[str, list[HomeRow]] = {}
    for row in rows:
        value = settings.get(row.key, {}).get(name, "–") if name else ""
        groups.setdefault(value, []).append(row)
    values = sorted(groups, key=_natural)
    means = [_mean([row.last.value for row in groups[value] if row.last]) for value in values]
    return [(value, groups[value], mean) for value, mean in zip(values, means, strict=True)]


def _differing(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Settings that not all runs have the same, which are few."""
    every = list(settings)
    names = sorted(
        {name for run_settings in every for name in run_settings if name.startswith("settings.")}
    )
    return [name for name in names if len({run_settings.get(name) for run_settings in every}) > 1][
        :_SETTINGS
    ]
