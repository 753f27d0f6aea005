"""Audits, checks, evaluations and comparisons as tables and cases, from what
their commands write as JSON."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from rlvr.display import LeftOut
from rlvr.errors import DataError, brief
from rlvr.types import JsonObject
from rlvr.validate import nearest
from rlvr.viewer.rendering import render, style

__all__ = ["Report", "ReportTable", "cut_cell", "cut_text", "read_report", "report_page", "told"]

_LARGEST: Final = 256 << 20  # bytes of a file
_TEXT: Final = 4000  # characters of a completion
_CELL: Final = 1000  # and of a cell
_LEFT_OUT: Final = 100, 10_000  # reasons and rows that are listed
_GROUP: Final = "rlvr.reports"


@dataclass(frozen=True)
class ReportTable:
    """One table.  Numbers are put to the right; `bad` has (row, column)
    of cells that should be 0."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    bad: frozenset[tuple[int, int]] = frozenset()


@dataclass
class Report:
    """A report, ready for a page.

    Attributes:
        title: what it is about.
        lines: its result in words.
        tables: in order.
        cases: headings, each with (summary, facts, text) of its cases.
    """

    title: str
    lines: list[str] = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    cases: list[tuple[str, list[tuple[str, ReportTable, str]]]] = field(default_factory=list)


def read_report(path: Path) -> Report | None:
    """The report in a file; None if it holds something else.

    Args:
        path: what `rlvr audit -o`, `rlvr check --json`, `rlvr eval -o`, `rlvr compare -o` or `rlvr
            strength -o` wrote.

    Raises:
        DataError: it begins as a report does, and cannot be read.
    """
    if path.suffix != ".json":
        return None
    if path.stat().st_size > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST >> 20} MiB; no report is so large")
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(tree, Mapping) or (reader := _reader_of(tree)) is None:
        return None
    try:
        report = reader(tree)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise DataError(
            f"{path} looks like a report, and lacks something: {error!r}, in "
            f"{Path(place.filename).name}, line {place.lineno}"
        ) from None
    if not isinstance(report, Report):
        raise DataError(f"{path}: its reader gave {brief(report)}; it must give a Report")
    return report


def report_page(tree: Mapping[str, object]) -> bytes:
    """One page that needs no server, no script and no other file.

    Args:
        tree: a report as JSON has it.
    """
    return render("report_alone.html", report=told(tree), style=style())


def told(tree: Mapping[str, object]) -> Report:
    """A report as tables and cases.

    Args:
        tree: a report as JSON has it.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    reader = _reader_of(tree)
    if reader is None:
        raise ValueError("no kind of report has these keys")
    return reader(tree)


def _reader_of(tree: Mapping[str, object]) -> Callable[[Mapping[str, Any]], Report] | None:
    """What makes a page of a report: ours by its keys, another package's by its key `report`."""
    for keys, reader in _READERS:
        if all(key in tree for key in keys):
            return reader
    points = entry_points(group=_GROUP, name=str(tree["report"])) if "report" in tree else ()
    for point in points:
        try:
            added: Callable[[Mapping[str, Any]], Report] = point.load()
        except (ImportError, AttributeError) as error:
            raise DataError(
                f"reports of the kind {point.name!r} are read by {point.value}, which cannot be "
                f"loaded: {error}; mend or uninstall its package"
            ) from error
        return added
    kind = tree.get("report")
    if isinstance(kind, str) and "completion" not in tree:  # else a row with such a column
        known = sorted({point.name for point in entry_points(group=_GROUP)})
        raise DataError(
            f"no page reads reports of the kind {kind!r}; installed packages read "
            f"{', '.join(map(repr, known)) or 'none'} (docs/adding.md){nearest(kind, known)}"
        )
    return None


# ------------------------------------------------------------------------------------------- audits


def _audit(tree: JsonObject) -> Report:
    report = Report(f"Audit of {tree['env']}")
    total = tree["total"]
    matrix = [
        ("labelled right", total["true_positive"], total["false_negative"]),
        ("labelled wrong", total["false_positive"], total["true_negative"]),
    ]
    head: tuple[str, ...] = (f"column {tree['label']}", "said correct", "said not")
    report.tables.append(
        ReportTable("verdicts against labels", head, matrix, frozenset(((0, 2), (1, 1))))
    )
    rates = [(name, _rate(rate)) for name, rate in total["rates"].items()]
    report.tables.append(ReportTable("rates, 95 % interval (Wilson)", ("rate", "value"), rates))
    report.lines.append(f"Not scored, by a failure of ours: {total['unscored']:,}.")
    for column, values in tree["slices"].items():
        rows = [
            (
                value,
                _rate(slice_of_value["rates"]["false positives"]),
                _rate(slice_of_value["rates"]["false negatives"]),
                slice_of_value["unscored"],
            )
            for value, slice_of_value in values.items()
        ]
        head = (column, "false positives", "false negatives", "unscored")
        report.tables.append(ReportTable(f"by {column}", head, rows))
    for kind, reasons in tree["reasons"].items():
        report.tables.append(
            ReportTable(f"{kind}: why", ("reason", "count"), list(reasons.items()))
        )
    report.cases += _cases(tree["cases"])
    if (second := tree.get("disagreement")) is not None:
        report.lines.append(f"Against {second['against']}: they differ in {_rate(second['rate'])}.")
        accepted = [
            ("both", second["both"]),
            (tree["env"], second["only_first"]),
            (second["against"], second["only_second"]),
            ("neither", second["neither"]),
        ]
        report.tables.append(
            ReportTable(f"against {second['against']}", ("accepted by", "count"), accepted)
        )
        report.cases += _cases(second["cases"])
    if (ranking := tree.get("reward_model")) is not None:
        report.tables.append(_ranking(ranking))
    if left_out := tree["left_out"]:
        report.lines.append(f"Rows left out: {len(left_out):,}.")
        report.cases.append(("rows left out", [_left_out(left_out)]))
    return report


def _cases(
    cases: Iterable[JsonObject],
) -> list[tuple[str, list[tuple[str, ReportTable, str]]]]:
    kinds: dict[str, list[tuple[str, ReportTable, str]]] = {}
    for case in cases:
        facts = [
            tuple(map(cut_cell, (case["reference"], case["answer"], case["why"], case["label"])))
        ]
        table = ReportTable("", ("reference", "answer", "reason", "label"), facts)
        case_line = f"{case['id']}, task {case['task']}: {case['why'][:200]}"
        kinds.setdefault(f"{case['kind']}: cases", []).append(
            (case_line, table, cut_text(case["completion"]))
        )
    return list(kinds.items())


def _left_out(rows: Sequence[str]) -> tuple[str, ReportTable, str]:
    """Folded: how many for which reason, and all of them."""
    by_reason, (reasons, listed) = LeftOut(), _LEFT_OUT
    for text in rows:
        row, _, why = text.partition(": ")
        by_reason.add(row, why)
    counts = [(count, cut_cell(example)) for example, count in by_reason.reasons(reasons)]
    last_line = [f"… {len(rows) - listed:,} more"] if len(rows) > listed else []
    table = ReportTable("by reason", ("rows", "such as"), counts)
    return f"{len(rows):,} rows", table, "\n".join([*map(cut_cell, rows[:listed]), *last_line])


def _ranking(ranking: JsonObject) -> ReportTable:
    """What was measured of a reward model."""
    within, of_all = ranking["within_tasks"], ranking["of_all"]
    rows = [("right before wrong", "no task has both a right and a wrong completion")]
    if within is not None:
        share = (
            f"{within['value']:.3f} [{within['low']:.3f}, {within['high']:.3f}], "
            f"mean of {within['tasks']:,} tasks"
        )
        rows = [("of a task's pairs, right before wrong", share)]
    for name, value in (
        ("of all pairs, right before wrong", of_all),
        ("mean score of right completions", ranking["mean_right"]),
        ("mean score of wrong completions", ranking["mean_wrong"]),
    ):
        rows += [] if value is None else [(name, f"{value:.3f}")]
    return ReportTable("the reward model against labels, 95 % interval", ("figure", "value"), rows)


def _rate(rate: JsonObject) -> str:
    if rate["value"] is None:
        return "no completions"
    low, high = rate["interval"]
    return f"{rate['value']:.2%} [{low:.2%}, {high:.2%}], {rate['k']:,} of {rate['n']:,}"


# --------------------------------------------------------------------------- checks and evaluations


def _check(tree: JsonObject) -> Report:
    report = Report(f"Check of {tree['env']}")
    count = {
        name: sum(finding["severity"] == name for finding in tree["findings"])
        for name in ("hole", "warning", "note")
    }
    holes, warnings = count["hole"], count["warning"]
    report.lines.append(
        "It passes: no holes, no warnings."
        if not holes + warnings
        else f"Holes: {holes}. Warnings: {warnings}."
    )
    report.lines.append(
        f"{tree['completions']:,} completions for {tree['tasks']:,} tasks; a score takes "
        f"{tree['median_ms']:.2g} ms (median), {tree['slowest_ms']:.3g} ms at most."
    )
    rows = [
        (finding["severity"], finding["hole"], finding["what"], finding["count"], finding["tried"])
        for finding in tree["findings"]
    ]
    if rows:
        bad = frozenset((at, 0) for at, row in enumerate(rows) if row[0] == "hole")
        report.tables.append(
            ReportTable("findings", ("severity", "hole", "what", "found", "of"), rows, bad)
        )
    guess, floor = tree.get("guess"), tree.get("floor")
    figures = [
        ("right by the best constant answer", "unknown" if guess is None else f"{guess:.1%}"),
        ("earned by no text", "unknown" if floor is None else f"{floor:g}"),
        ("seed of the sample", tree.get("seed", 0)),
        *((f"option {name}", cut_cell(value)) for name, value in tree.get("config", {}).items()),
    ]
    report.tables.append(ReportTable("figures", ("figure", "value"), figures))
    cases = [
        (
            f"{finding['severity']} {finding['hole']}: {finding['what']}",
            ReportTable(
                "",
                ("task", "got", "wanted"),
                [
                    (
                        cut_cell(finding["task"]),
                        cut_cell(finding["got"]),
                        cut_cell(finding["wanted"]),
                    )
                ],
            ),
            cut_text(finding["completion"]),
        )
        for finding in tree["findings"]
    ]
    report.cases += [("first case of each finding", cases)] if cases else []
    return report


def _evaluation(tree: JsonObject) -> Report:
    report = Report(f"Evaluation of {tree.get('model') or 'a model'}")
    report.lines.append(
        f"Mean length {tree['length']:.1f} tokens, {tree['truncated']:.1%} truncated, "
        f"{tree['unscored']:,} unscored."
    )
    rows = [
        (
            name,
            f"{metric['value']:.4f}",
            f"{metric['low']:.4f} to {metric['high']:.4f}",
            metric["tasks"],
        )
        for name, metric in tree["metrics"].items()
    ]
    report.tables.append(
        ReportTable("metrics", ("metric", "value", "95 % interval", "tasks"), rows)
    )
    return report


def _comparison(tree: JsonObject) -> Report:
    tables = [
        ReportTable(cut_cell(table["caption"]), [*table["head"]], [*map(list, table["rows"])])
        for table in tree["tables"]
    ]
    names = ", ".join(map(str, tree["results"]["names"]))
    return Report(cut_cell(f"Comparison of {names}"), list(map(str, tree["lines"])), tables)


def _strength(tree: JsonObject) -> Report:
    report = Report(f"Strength of {tree['env']}")
    counts, states = tree["counts"], tree["states"]
    report.lines.append(
        ", ".join(f"{name}: {count:,}" for name, count in states.items()) + " tasks."
    )
    report.lines.append(", ".join(f"{name}: {count:,}" for name, count in counts.items()) + ".")
    rows = [
        (
            row["task"],
            row["state"],
            row["wrong"],
            row["paid"],
            _ends(row["interval"]),
            cut_cell(row["why"]),
        )
        for row in tree["tasks"]
    ]
    bad = frozenset((at, 3) for at, task_row in enumerate(tree["tasks"]) if task_row["paid"])
    head = ("task", "state", "wrong works", "paid", "strength, 95 %", "why")
    report.tables.append(ReportTable("tasks, the weakest first", head, rows, bad))
    means = [
        (
            name,
            operator["wrong"],
            operator["paid"],
            f"{operator['mean']['value']:.3f}",
            _ends([operator["mean"]["low"], operator["mean"]["high"]]),
        )
        for name, operator in tree["operators"].items()
    ]
    columns = ("operator", "wrong works", "paid", "mean strength", "95 %")
    report.tables.append(ReportTable("operators, over tasks", columns, means))
    for task in tree["tasks"]:
        cases = [
            (
                (
                    f"{case['operator']}{', doubtful' if case['doubtful'] else ''}: "
                    f"{cut_cell(case['given'])}"
                ),
                _facts(case),
                case["diff"] or case["text"],
            )
            for case in task["cases"]
        ]
        cases += [
            (
                f"right work refused: {case['operator']}",
                ReportTable("", ("why",), [(cut_cell(case["why"]),)]),
                case["text"],
            )
            for case in task["right_refused"]
        ]
        report.cases += [(task["task"], cases)] if cases else []
    return report


def _referee(tree: JsonObject) -> Report:
    """A line for each case, and the quantities of those that depart."""
    report = Report(f"Referee: {tree['trainer'] or tree['referee']}")
    rows, counts = [], dict[str, int]()
    for ruling in tree["rulings"]:
        status = ruling["status"]
        counts[status] = counts.get(status, 0) + 1
        rows.append((ruling["case"], status, ruling["thread"], ruling["why"]))
        departing = [check for check in ruling["quantities"] if check["status"] == "departs"]
        names = "row token recorded recomputed tolerance ratio cosine".split()
        cells = [
            (
                check["quantity"],
                *(_number(check[name]) for name in names),
                "; ".join(check["explained"]),
            )
            for check in departing
        ]
        if cells:
            head = ("quantity", *names, "explained if")
            report.tables.append(ReportTable(f"{ruling['case']}: what departs", head, cells))
    report.tables.insert(0, ReportTable("cases", ("case", "status", "thread", "why"), rows))
    report.lines.append(", ".join(f"{count} {status}" for status, count in counts.items()) + ".")
    return report


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _facts(case: Mapping[str, object]) -> ReportTable:
    facts = tuple(cut_cell(case[name]) for name in ("given", "expected", "got"))
    return ReportTable("", ("witness", "expected", "got"), [facts])


def _ends(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def cut_text(text: object) -> str:
    """The beginning of a completion, and its length where that is not all."""
    text = str(text)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}\n… {len(text):,} characters"


def cut_cell(value: object) -> str:
    """A value as the text of a cell: cut, and JSON where it is no text."""
    text = (
        ""
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= _CELL else f"{text[:_CELL]} …"


_READERS: Final = (
    (("total", "slices", "reasons", "cases", "left_out"), _audit),
    (("lines", "tables", "results"), _comparison),
    (("states", "operators", "counts"), _strength),
    (("referee", "trainer", "rulings"), _referee),
    (("findings", "completions", "tasks"), _check),
    (("metrics", "too_long"), _evaluation),
)
"""The keys that a kind of report has, and what makes a page of it."""
