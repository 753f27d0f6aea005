"""Several results side by side: which tasks pair, which models differ, and what could have been
seen.

Axes: P tasks that all have, F models, R results (a model has one for each seed).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlvr.display import show_value
from rlvr.errors import DataError, UsageError
from rlvr.scoring import identity
from rlvr.scoring.compare.paired import (
    PairedDifference,
    completions_needed,
    differences,
    estimates,
    holm,
    rank_intervals,
    seeded_difference,
)
from rlvr.scoring.compare.results import Results, TaskScores
from rlvr.statistics import Estimate, majority_at_k, pass_at_k

__all__ = ["Compared", "ComparedPart", "Comparison", "ComparisonTable", "Entry", "compare"]

_Key = tuple[str, str | None]
_Array = NDArray[np.float64]

# The level at which a difference is called one, after Holm's correction where there are several.
_ALPHA: Final = 0.05
_EXAMPLES: Final = 3
_LETTERS: Final = 100  # of a value in a line
_MOST_PAIRS: Final = 15  # that a table lists
# A screen has room for so many.
_MOST_REASONS: Final = 5
_MOST_TASKS: Final = 10
_FEW_TASKS: Final = 6  # 2 / 2^5 > 0.05


class Entry(NamedTuple):
    """A model that is compared.

    Attributes:
        name: what tables call it.
        seeds: its results, one for each seed of its training; usually one.
    """

    name: str
    seeds: Sequence[Results]


class ComparisonTable(NamedTuple):
    """A table of texts: for the terminal, Markdown and a page."""

    caption: str
    head: list[str]
    rows: list[list[str]]


class Compared(NamedTuple):
    """The difference of two models, second minus first, in one figure.

    Attributes:
        first, second: places of the models.
        difference: see there.
        adjusted: its p-value, adjusted for the number of comparisons (Holm).
    """

    first: int
    second: int
    difference: PairedDifference
    adjusted: float


class ComparedPart(NamedTuple):
    """The difference of two models in a part of the tasks, or in a share of the completions.

    Attributes:
        name: of the part.
        means: of both models.
        difference: second minus first.
        adjusted: its p-value, adjusted for the number of parts (Holm).
    """

    name: str
    means: list[float]
    difference: PairedDifference
    adjusted: float


@dataclass
class Comparison:
    """The result of `compare`.

    Attributes:
        names: of the models.
        seeds: how many each has.
        level: of the confidence intervals.
        tasks: number of tasks that all have.
        unpaired: why tasks were left out → their ids.
        notes: what else the reader has to know, one line each.
        metrics: name → the mean of each model.  The first one decides ranks and sentences.
        pairs: name of a metric → every pair of models.
        ranks: the ranks that each model may have, all at once with 95 % confidence.
        more_completions: for two models, completions of each task that would show the difference in
            the first metric.
        slices: for two models: the first metric by environment, difficulty and length.
        shares: for two models: shares of completions by outcome and reason.
        flipped: for two models: (task, share of right completions of the first, of the second)
            where they differ, the greatest difference first.
    """

    names: list[str]
    seeds: list[int]
    level: float
    tasks: int
    unpaired: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    metrics: dict[str, list[Estimate]] = field(default_factory=dict)
    pairs: dict[str, list[Compared]] = field(default_factory=dict)
    ranks: list[tuple[int, int]] = field(default_factory=list)
    more_completions: int | None = None
    slices: list[ComparedPart] = field(default_factory=list)
    shares: list[ComparedPart] = field(default_factory=list)
    flipped: list[tuple[str, float, float]] = field(default_factory=list)

    @property
    def metric(self) -> str:
        """The first metric, which decides."""
        return next(iter(self.metrics))

    def as_dict(self) -> dict[str, object]:
        """Everything as JSON, with the lines and tables that people read."""
        plain = asdict(self)
        plain["pairs"] = {
            name: [
                {"first": self.names[pair.first], "second": self.names[pair.second]}
                | _plain(pair.difference)
                | {"adjusted_p": pair.adjusted}
                for pair in pairs
            ]
            for name, pairs in self.pairs.items()
        }
        for kind in ("slices", "shares"):
            plain[kind] = [
                {"part": part.name, "means": part.means, **_plain(part.difference)}
                | {"adjusted_p": part.adjusted}
                for part in getattr(self, kind)
            ]
        tables = [table._asdict() for table in self.tables()]
        return {"kind": "comparison", "lines": self.lines(), "tables": tables, "results": plain}

    def lines(self) -> list[str]:
        """The result in words: the verdict first, then what it rests on."""
        lines = self._verdicts()
        lines.append(f"{_tasks(self.tasks)} could be paired.")
        if self.flipped:
            gained = sum(b > a for _, a, b in self.flipped)
            lost = len(self.flipped) - gained
            lines.append(f"{_tasks(gained)} gained right completions, {lost:,} lost some.")
        for reason, ids in self.unpaired.items():
            ellipsis = ", …" if len(ids) > _EXAMPLES else ""
            examples = ", ".join(_brief(task_id) for task_id in ids[:_EXAMPLES])
            lines.append(f"Left out, {reason}: {_tasks(len(ids))} ({examples}{ellipsis}).")
        return lines + self.notes

    def _verdicts(self) -> list[str]:
        pairs = self.pairs[self.metric]
        if len(self.names) == 2:
            return [self._verdict(pairs[0]), self._power(pairs[0])]
        # After Holm's correction, so that many pairs make no difference by chance.
        apart = [pair for pair in pairs if pair.adjusted < _ALPHA]
        lines = [f"{len(apart)} of {len(pairs)} pairs are told apart in {self.metric}."]
        close = [pair for pair in pairs if pair.adjusted >= _ALPHA]
        if close and len(pairs) <= _MOST_PAIRS:
            texts = [f"{self.names[pair.first]} and {self.names[pair.second]}" for pair in close]
            lines.append(f"Not told apart: {'; '.join(texts)}.")
        detectable = [pair.difference.detectable for pair in close if pair.difference.detectable]
        if detectable:
            lines.append(
                f"Each of these pairs alone could have shown {max(detectable):.3f} with power 0.8."
            )
        return lines

    def _verdict(self, pair: Compared) -> str:
        gap, first, second = pair.difference, self.names[pair.first], self.names[pair.second]
        interval = (
            f"{_percent(self.level)} interval {gap.low:+.3f} to {gap.high:+.3f}, p = {_p(gap.p)}"
        )
        # "Not told apart" and not "equal": the test cannot show equality.
        if gap.p >= _ALPHA:
            gain = f"{second} minus {first} is {gap.value:+.3f} in {self.metric}"
            return f"Not told apart: {gain} ({interval})."
        best, worse = (second, first) if gap.value > 0 else (first, second)
        sign = 1 if gap.value > 0 else -1
        gain = f"{best} is better than {worse} by {sign * gap.value:.3f} in {self.metric}"
        return f"{gain} ({second} minus {first}: {interval})."

    def _power(self, pair: Compared) -> str:
        difference = pair.difference
        if difference.detectable is None:
            return (
                "All tasks differ equally, so that nothing is known of what could have been seen."
            )
        text = (
            f"{_tasks(difference.tasks)} could have shown "
            f"{difference.detectable:.3f} with power 0.8"
        )
        if (
            difference.p < _ALPHA
            or difference.tasks_needed is None
            or difference.tasks_needed <= difference.tasks
        ):
            return text + "."
        text += f"; to show {abs(difference.value):.3f} takes {_tasks(difference.tasks_needed)}"
        if self.more_completions is not None:
            return f"{text}, or {self.more_completions:,} completions of each of these."
        return text + "."

    def tables(self) -> list[ComparisonTable]:
        """The figures, as texts."""
        if len(self.names) == 2:
            return [self._two(), *self._parts(), *self._flips()]
        return [self._board(), *self._all_pairs()]

    def _two(self) -> ComparisonTable:
        first, second = self.names
        rows = [
            [
                name,
                f"{means[0].value:.4f}",
                f"{means[1].value:.4f}",
                *_cells(self.pairs[name][0].difference, self.pairs[name][0].difference.p),
            ]
            for name, means in self.metrics.items()
        ]
        return ComparisonTable(f"{second} minus {first}", self._head("p"), rows)

    def _board(self) -> ComparisonTable:
        estimates = self.metrics[self.metric]
        more_metrics = [name for name in self.metrics if name != self.metric]
        order = sorted(range(len(self.names)), key=lambda i: -estimates[i].value)
        head = [
            "rank",
            "model",
            self.metric,
            f"{_percent(self.level)} interval",
            "ranks, 95 %",
            *more_metrics,
        ]
        rows = [
            [
                str(1 + sum(estimate.value > estimates[i].value for estimate in estimates)),
                self.names[i],
                f"{estimates[i].value:.4f}",
                f"{estimates[i].low:.4f} to {estimates[i].high:.4f}",
                "{} to {}".format(*self.ranks[i]),
                *(f"{self.metrics[name][i].value:.4f}" for name in more_metrics),
            ]
            for i in order
        ]
        return ComparisonTable(f"{len(rows)} models over {_tasks(self.tasks)}", head, rows)

    def _all_pairs(self) -> list[ComparisonTable]:
        pairs = self.pairs[self.metric]
        if len(pairs) > _MOST_PAIRS:
            return []
        rows = [
            [
                f"{self.names[pair.second]} minus {self.names[pair.first]}",
                *_cells(pair.difference, pair.adjusted),
            ]
            for pair in pairs
        ]
        head = ["", f"difference, {_percent(self.level)}", "p, Holm", "tasks"]
        return [ComparisonTable(f"pairs, {self.metric}", head, rows)]

    def _parts(self) -> list[ComparisonTable]:
        tables = []
        for caption, parts in (
            (f"{self.metric} by part", self.slices),
            ("shares of completions", self.shares),
        ):
            rows = [
                [
                    part.name,
                    *(f"{mean:.4f}" for mean in part.means),
                    *_cells(part.difference, part.adjusted),
                ]
                for part in parts
            ]
            tables += [ComparisonTable(caption, self._head("p, Holm"), rows)] if rows else []
        return tables

    def _head(self, p: str) -> list[str]:
        return ["", *self.names, f"difference, {_percent(self.level)}", p, "tasks"]

    def _flips(self) -> list[ComparisonTable]:
        rows = [[_cut(task), f"{a:.2f}", f"{b:.2f}"] for task, a, b in self.flipped[:_MOST_TASKS]]
        if not rows:
            return []
        return [ComparisonTable("tasks that changed most", ["task", *self.names], rows)]

    def markdown(self) -> str:
        """Lines and tables as Markdown."""
        parts = ["\n".join(f"- {_escape(line)}" for line in self.lines())]
        for table in self.tables():
            rows = [table.head, ["---"] * len(table.head), *table.rows]
            text = "\n".join("| " + " | ".join(map(_escape, row)) + " |" for row in rows)
            parts.append(f"**{_escape(table.caption)}**\n\n{text}")
        return "\n\n".join(parts) + "\n"


def compare(
    entries: Sequence[Entry],
    *,
    ks: Sequence[int] = (),
    accept: Collection[str] = (),
    level: float = 0.95,
    labels: Mapping[str, bool] | None = None,
) -> Comparison:
    """Compare models over the tasks that all of them have.

        old, new = (Entry(path, [read_results(Path(path))]) for path in ("old.jsonl", "new.jsonl"))
        print(compare([old, new]).markdown())

    Tasks are the same if id and reference are.  A task that one of the results lacks, or of which
    none of its completions is scored, is left out and counted.  avg@n and reward are over the
    scored completions of each task; pass@k and maj@k over tasks with k scored ones in all results.

    Args:
        entries: two models or more.
        ks: of pass@k and maj@k; by default the number of completions that all have of most tasks,
            if above 1.
        accept: "settings", "code" or "inputs", if scores may have been decided with others.
        level: of the confidence intervals.
        labels: by task whether a person called all its judged verdicts right, from `read_labels`;
            two models are then compared separately where a verdict was called wrong, where all were
            right, and where none was judged.

    Raises:
        UsageError: there are fewer than two models, scores were decided in different ways, or k is
            too large.
        DataError: fewer than two tasks pair.
    """
    if len(entries) < 2:
        raise UsageError("one model was given; name at least two to compare")
    results = [result for entry in entries for result in entry.seeds]
    counts = [len(entry.seeds) for entry in entries]
    notes = _require_same(results, accept)
    paired, unpaired = _pair(results)
    # Axes: P tasks, R results; counts says how many results each model has.
    table = _Paired(paired, counts, level)
    comparison = Comparison(
        [entry.name for entry in entries], counts, level, len(paired), unpaired, notes
    )
    steps = [(result.name, result.step) for result in results if result.step is not None]
    if len({step for _, step in steps}) > 1:
        texts = ", ".join(f"{name} at step {step:,}" for name, step in steps)
        comparison.notes.append(
            f"Of each run the last evaluation: {texts}; RUN/evaluations/step-N.json is another."
        )
    if max(counts) == 1:
        comparison.notes.append(
            "One result of each: this compares these models.  Whether a method is better takes "
            "several seeds of each (NAME=FILE NAME=FILE)."
        )
    if len(paired) < _FEW_TASKS:
        comparison.notes.append(f"{_tasks(len(paired))} cannot show any difference with p < 0.05.")
    for name, column in _metrics(table, ks):
        comparison.metrics[name] = table.estimates(column)
        comparison.pairs[name] = table.pairs(column)
    better = [
        (pair.second, pair.first) if pair.difference.value > 0 else (pair.first, pair.second)
        # Only pairs that are told apart move a rank.
        for pair in comparison.pairs[comparison.metric]
        if pair.adjusted < _ALPHA
    ]
    comparison.ranks = rank_intervals(len(entries), better)
    if len(entries) == 2:
        _look_closer(comparison, table, labels or {})
    return comparison


# ---------------------------------------------------------------------------------------- pairing


def _require_same(results: Sequence[Results], accept: Collection[str]) -> list[str]:
    """Refuse scores that were decided in different ways; a line for each difference accepted."""
    first = results[0]
    if any("identity" in result.decided.code for result in results):
        for result in results:  # of which the rows say the digest, and of which a file says all
            if result.decided.digest:
                result.decided.code.setdefault("identity", result.decided.digest)
    common = first.decided.without()
    for result in results[1:]:
        differences = identity.identity_differences(common, result.decided)
        refused = {part for part, _ in differences}.difference(accept)
        flags = (
            f", or pass --accept {' '.join(sorted(refused))} to rlvr compare"
            if "settings" in refused
            else ""
        )
        way_out = f"score both in one way{flags}"
        # Added to what the first has, so that all later ones are compared with it too.
        common.add(result.decided, result.name, accept, here=first.name, way_out=way_out)
    return [f"Accepted: {line}." for line in common.accepted]


def _pair(results: Sequence[Results]) -> tuple[list[list[TaskScores]], dict[str, list[str]]]:
    """The scores of each task that all results have, shape [P][R]; and ids of the others by
    reason."""
    reasons: dict[str, list[str]] = {}
    with_references = all(
        reference is not None for result in results for _, reference in result.tasks
    )
    by_key = [_key_tasks(result, with_references, reasons) for result in results]
    shared = set(by_key[0]).intersection(*by_key[1:])
    ids = [{task for task, _ in tasks} for tasks in by_key]
    everywhere = set.intersection(*ids)
    for result, tasks in zip(results, by_key, strict=True):
        for key in tasks:
            if key in shared:
                continue
            reason = (
                "with another reference in another file"
                if key[0] in everywhere
                else f"not in all files but in {result.name}"
            )
            reasons.setdefault(reason, []).append(key[0])
    reasons = {reason: list(dict.fromkeys(task_ids)) for reason, task_ids in reasons.items()}
    paired = []
    for key in by_key[0]:  # in the order of the first file
        if key not in shared:
            continue
        row = [tasks[key] for tasks in by_key]
        unscored = next((i for i, task in enumerate(row) if not task.correct), None)
        if unscored is None:
            paired.append(row)
        else:
            reason = f"without a scored completion in {results[unscored].name}"
            reasons.setdefault(reason, []).append(key[0])
    # A single task has no variance.
    if len(paired) < 2:
        why = "; ".join(
            f"{reason}: {_tasks(len(left_ids))}" for reason, left_ids in reasons.items()
        )
        raise DataError(
            f"{_tasks(len(paired))} can be paired, and a comparison needs at least 2 "
            f"({why or 'there are no more'}): give files scored on the same tasks, with the same "
            "ids and references"
        )
    return paired, reasons


def _key_tasks(
    result: Results, with_references: bool, reasons: dict[str, list[str]]
) -> dict[_Key, TaskScores]:
    """The tasks by key; where a file has no references, by id alone."""
    times = Counter(task for task, _ in result.tasks)
    by_key: dict[_Key, TaskScores] = {}
    for (task, reference), scores in result.tasks.items():
        # One id for two references: it is not known which belongs to which.
        if times[task] > 1:
            reasons.setdefault(f"with several references in {result.name}", []).append(task)
        else:
            by_key[task, reference if with_references else None] = scores
    return by_key


# ---------------------------------------------------------------------------------------- figures


class _Paired:
    """The tasks that pair, and how columns over them are compared."""

    def __init__(self, tasks: list[list[TaskScores]], seeds: Sequence[int], level: float) -> None:
        self.tasks, self.seeds, self.level = tasks, seeds, level
        self.counts = np.array([[len(task.correct) for task in row] for row in tasks])
        self.right = np.array([[sum(task.correct) for task in row] for row in tasks])
        self.rates: _Array = self.right / self.counts
        names = [row[0].cluster for row in tasks]
        places = {name: i for i, name in enumerate(dict.fromkeys(names))}
        grouped = names[0] is not None
        self.clusters = np.array([places[name] for name in names]) if grouped else None
        if grouped and len(places) < 2:
            raise DataError("all tasks are of one cluster; a comparison needs at least 2")

    def column(self, figure: Callable[[TaskScores], float], least: int = 1) -> _Array:
        """A figure of each task and result, shape [P, R]; NaN in tasks with fewer scored
        completions in any."""
        enough = self.counts.min(axis=1) >= least
        return np.array(
            [
                [figure(task) if ok else np.nan for task in row]
                for row, ok in zip(self.tasks, enough, strict=True)
            ]
        )

    def models(self, column: _Array) -> _Array:
        """The mean over each model's seeds, shape [P, F]."""
        ends = np.cumsum(self.seeds)[:-1]
        return np.stack([part.mean(axis=1) for part in np.split(column, ends, axis=1)], axis=1)

    def estimates(self, column: _Array) -> list[Estimate]:
        """The mean of each model, with the interval over tasks alone."""
        # NaN in any result leaves the task out for all.
        complete: NDArray[np.bool_] = ~np.isnan(column.sum(axis=1))
        values = self.models(column[complete])
        clusters = self._clusters(complete)
        return estimates(values, clusters=clusters, level=self.level, bounds=_bounds(values))

    def _clusters(self, known: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        if self.clusters is None:
            return None
        return np.unique(self.clusters[known], return_inverse=True)[1]

    def pairs(self, column: _Array, where: NDArray[np.bool_] | None = None) -> list[Compared]:
        """Every pair of models, over the tasks whose figure is known; none if these are fewer than
        two clusters."""
        complete: NDArray[np.bool_] = ~np.isnan(column.sum(axis=1))
        if where is not None:
            complete &= where
        clusters = self._clusters(complete)
        if (complete.sum() if clusters is None else clusters.max(initial=-1) + 1) < 2:
            return []
        chosen = column[complete]
        pairs = list(combinations(range(len(self.seeds)), 2))
        found_differences = differences(
            self.models(chosen),
            pairs,
            clusters=clusters,
            level=self.level,
            bounds=_bounds(chosen),
        )
        ends = np.cumsum(self.seeds)[:-1]
        parts = np.split(chosen, ends, axis=1)
        for place, (a, b) in enumerate(pairs):
            # Several seeds: their variance is a part of the error.
            if self.seeds[a] + self.seeds[b] > 2:
                found_differences[place] = seeded_difference(
                    parts[a], parts[b], clusters=clusters, level=self.level
                )
        adjusted = holm([difference.p for difference in found_differences])
        return [
            Compared(a, b, difference, p)
            for (a, b), difference, p in zip(pairs, found_differences, adjusted, strict=True)
        ]


def _bounds(values: _Array) -> tuple[float, float] | None:
    """Those of shares; None where totals are not known to have any."""
    return (0.0, 1.0) if values.min() >= 0 and values.max() <= 1 else None


def _metrics(table: _Paired, ks: Sequence[int]) -> list[tuple[str, _Array]]:
    """avg@n, reward if it says more, pass@k and maj@k."""
    counts = np.unique(table.counts)
    usual = int(np.median(table.counts.min(axis=1)))  # of most tasks in all results
    columns = [(f"avg@{usual}" if len(counts) == 1 else "avg", table.rates)]
    rewards = table.column(lambda task: fmean(task.totals))
    # A reward of 0 and 1 says what avg says.
    if not np.allclose(rewards, table.rates):
        columns.append(("reward", rewards))
    for k in sorted({*ks} if ks else {usual} - {1}):
        enough = (table.counts >= k).all(axis=1)
        if k < 1 or enough.sum() < 2:
            raise UsageError(
                f"k is {k}, and {_tasks(int(enough.sum()))} have so many scored completions in all "
                f"files; most have {usual}: give a smaller -k"
            )
        passed = np.full(table.rates.shape, np.nan)
        # The unbiased estimate needs n >= k completions of each task.
        passed[enough] = pass_at_k(table.counts[enough], table.right[enough], k)
        columns.append((f"pass@{k}", passed))
        if _answers(table):
            columns.append((f"maj@{k}", table.column(partial(_majority, k=k), k)))
    return columns


def _majority(task: TaskScores, k: int) -> float:
    if not any(task.correct):
        return 0.0  # without counting votes, which takes longer than all the rest
    return majority_at_k(task.answers, task.correct, k)


_JUDGED: Final = {True: "judged right", False: "judged wrong", None: "not judged"}


def _answers(table: _Paired) -> bool:
    """Whether each result has answers at all."""
    results = range(len(table.tasks[0]))
    return all(any(any(row[i].answers) for row in table.tasks) for i in results)


def _look_closer(found: Comparison, table: _Paired, labels: Mapping[str, bool]) -> None:
    """What is told of two models alone: parts, shares, flipped tasks, completions that would be
    needed."""
    rates = table.models(table.rates)
    # Stable: tasks of equal change keep the order of the file.
    order = np.argsort(-np.abs(rates[:, 1] - rates[:, 0]), kind="stable")
    found.flipped = [
        (table.tasks[i][0].task, float(rates[i, 0]), float(rates[i, 1]))
        for i in order
        if rates[i, 0] != rates[i, 1]
    ]
    # One seed of each: the formula is for completions of two models.
    if table.counts.shape[1] == 2:
        pair = found.pairs[found.metric][0].difference
        counts, right = table.counts.astype(np.float64), table.right.astype(np.float64)
        found.more_completions = completions_needed(pair, counts, right, found.level)
    lengths = np.array([fmean(fmean(task.lengths) for task in row) for row in table.tasks])
    parts = [
        *_by_name("environment", [row[0].env for row in table.tasks]),
        *_by_name("verdicts", [_JUDGED[labels.get(row[0].task)] for row in table.tasks]),
        # By both models' mean: by one of them, chance would look like a change.
        *_by_third("difficulty", -rates.mean(axis=1), ("easy", "middle", "hard")),
        *_by_third("length", lengths, ("short", "middle", "long")),
    ]
    found.slices = _compare_pieces(table, [(name, table.rates, where) for name, where in parts])
    found.shares = _compare_pieces(table, [(*piece, None) for piece in _shares(table)])


_Piece = tuple[str, _Array, NDArray[np.bool_] | None]


def _compare_pieces(table: _Paired, pieces: Sequence[_Piece]) -> list[ComparedPart]:
    """The difference in each piece, with p-values adjusted for their number."""
    parts = []
    for name, column, where in pieces:
        if pairs := table.pairs(column, where):
            chosen = column if where is None else column[where]
            means = table.models(chosen).mean(axis=0).tolist()
            parts.append((name, means, pairs[0].difference))
    adjusted = holm([difference.p for _, _, difference in parts])
    return [ComparedPart(*part, p) for part, p in zip(parts, adjusted, strict=True)]


def _by_name(kind: str, names: Sequence[str]) -> list[tuple[str, NDArray[np.bool_]]]:
    kinds = sorted(set(names))
    if len(kinds) < 2:
        return []
    return [(f"{kind} {name}", np.array([member == name for member in names])) for name in kinds]


def _by_third(
    kind: str, values: _Array, names: tuple[str, str, str]
) -> list[tuple[str, NDArray[np.bool_]]]:
    """Thirds by a figure of both models together, which does not favour one of them."""
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    # A third or more has one value: there are no thirds.
    if low == high:
        return []
    thirds = values <= low, (values > low) & (values <= high), values > high
    return [
        (f"{kind}: {name}", third) for name, third in zip(names, thirds, strict=True) if third.any()
    ]


def _shares(table: _Paired) -> list[tuple[str, _Array]]:
    """Shares of each task's completions: by outcome, cut off, and the most frequent reasons."""
    everyone = [task for row in table.tasks for task in row]
    columns = [
        (outcome, table.column(partial(_outcome_share, outcome=outcome)))
        for outcome in ("wrong", "unparsed", "unscored")
        if any(task.outcomes[outcome] for task in everyone)
    ]
    if any(task.truncated for task in everyone):
        cut = table.column(lambda one: one.truncated / max(1, one.outcomes.total()))
        columns.append(("truncated", cut))
    reasons = sum((task.reasons for task in everyone), Counter[str]())
    for reason, _ in reasons.most_common(_MOST_REASONS):
        share = table.column(partial(_reason_share, reason=reason))
        columns.append((f"reason: {reason or 'none given'}", share))
    return columns


def _outcome_share(task: TaskScores, outcome: str) -> float:
    return task.outcomes[outcome] / task.outcomes.total()


def _reason_share(task: TaskScores, reason: str) -> float:
    return task.reasons[reason] / len(task.correct)


# ---------------------------------------------------------------------------------------- texts


def _cells(it: PairedDifference, p: float) -> list[str]:
    """Under the heads that `_head` gives."""
    return [f"{it.value:+.3f} [{it.low:+.3f}, {it.high:+.3f}]", _p(p), f"{it.tasks:,}"]


def _plain(it: PairedDifference) -> dict[str, object]:
    """As JSON, which has no infinity: an end that is not known is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(it).items()
    }


def _brief(value: Any) -> str:
    return _cut(show_value(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…"


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _p(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _tasks(count: int) -> str:
    return f"{count:,} task" + "s" * (count != 1)


def _escape(text: str) -> str:
    # Pipes and line ends would break a table of Markdown.
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
