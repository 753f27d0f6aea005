"""What the pages show: the numbers from the index, the texts from the files, put into templates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rlvr.errors import UsageError
from rlvr.types import JsonDict, JsonObject
from rlvr.viewer.curves import panels
from rlvr.viewer.filters import BROKEN, NOT_CORRECT, OUTCOMES, SLICES, Filters
from rlvr.viewer.index import score_parts
from rlvr.viewer.rendering import templates
from rlvr.viewer.reports import Report, told
from rlvr.viewer.sources import RunSource, Source
from rlvr.viewer.texts import PIECE, answer_at, as_text, excerpt, piece, word_diff
from rlvr.viewer.tokens import COLOURS, colour_tokens
from rlvr.viewer.verdicts import failed_case, readings_of_row

if TYPE_CHECKING:
    from rlvr.viewer.markdown import RenderedText

__all__ = [
    "FIELDS",
    "comparison",
    "diff_page",
    "group_page",
    "row_page",
    "row_text",
    "rows_of_reason",
    "rows_page",
    "run_page",
    "summary",
    "turns_of",
]

_PAGE: Final = 50  # rows of a page
_MOST_VALUES = 40  # of a table of counts
_MOST_SIDES = 32  # rollouts of a group that are shown
_CELL = 3000  # characters of a completion in a group
_NOTE = 4000  # and of details
_MOST_TURNS = 200  # of an episode
_MOST_STEPS: Final = 1000  # of a table of metrics

FIELDS: Final = ("completion", "prompt", "reference", "answer", "why", "detail", "meta", "row")
"""The columns of a row whose whole text can be asked for."""

_ROW = (
    "n, step, line, id, task, env, outcome, reason, total, advantage, length, truncated, "
    "dropped, error"
)

templates.globals.update(
    OUTCOMES=OUTCOMES, BROKEN=BROKEN, NOT_CORRECT=NOT_CORRECT, SLICES=SLICES, COLOURS=COLOURS
)


def summary(source: Source, filters: Filters) -> JsonDict:
    """Counts by outcome, reason, environment, part and length, of the rows that pass the filters.

    Args:
        source: whose rows are counted.
        filters: which of them.
    """
    index = source.index
    where, values, stopped = filters.where(index)
    ask = index.query
    [(total, truncated, shortest, median, longest, mean)] = ask(
        "SELECT count(*), count(*) FILTER (truncated), min(length), median(length), max(length), "
        f"avg(total) FILTER (isfinite(total)) FROM rows WHERE {where}",
        values,
    )

    def counts(columns: str, but: str = "TRUE") -> list[tuple[Any, ...]]:
        sql = (
            f"SELECT {columns}, count(*) AS c FROM rows WHERE {where} AND {but} "
            f"GROUP BY {columns} ORDER BY c DESC"
        )
        return ask(f"{sql}, {columns} LIMIT {_MOST_VALUES + 1}", values)

    by_outcome: dict[str | None, int] = dict(counts("outcome", "error IS NULL"))
    [(broken,)] = ask(f"SELECT count(*) FROM rows WHERE {where} AND error IS NOT NULL", values)
    parts = ask(
        "SELECT name, count(*), avg(value) FILTER (isfinite(value)), min(value), max(value), "
        f"count(*) FILTER (value <> 0) FROM parts WHERE n IN (SELECT n FROM rows WHERE {where}) "
        f"GROUP BY name ORDER BY name LIMIT {_MOST_VALUES}",
        values,
    )
    return {
        "where": (where, values),
        "stopped": stopped,
        "total": total,
        "truncated": truncated,
        "lengths": (shortest, median, longest),
        "mean": mean,
        "broken": broken,
        "outcomes": sorted(by_outcome.items(), key=lambda it: (it[0] not in OUTCOMES, -it[1])),
        "reasons": counts("outcome, reason", "error IS NULL"),
        "envs": counts("env", "error IS NULL"),
        "dropped": counts("dropped", "error IS NULL"),
        "parts": parts,
        "most": _MOST_VALUES,
    }


def rows_page(source: Source, filters: Filters) -> JsonDict:
    """Counts, and the rows of one page.

    Args:
        source: whose rows are shown.
        filters: which of them.
    """
    counts = summary(source, filters)
    where, values = counts["where"]
    number = int(filters.page or 0)
    sql = (
        f"SELECT {_ROW} FROM rows WHERE {where} ORDER BY {filters.sort} LIMIT {_PAGE} OFFSET "
        f"{number * _PAGE}"
    )
    rows = _records(source, source.index.query(sql, values))
    steps = []
    if filters.task:
        steps = source.index.query(
            "SELECT step, env, count(*), count(*) FILTER (outcome = 'correct'), avg(total) FILTER "
            "(isfinite(total)), "
            "count(*) FILTER (truncated), max(dropped) FROM rows WHERE task = ? AND (env = ? OR ? "
            "= '') "
            "GROUP BY step, env ORDER BY step, env LIMIT 2000",
            [filters.task, filters.env, filters.env],
        )
    pages = -(-counts["total"] // _PAGE)
    before = None
    if isinstance(source, RunSource) and filters.step:
        before = max((step for step in source.steps if step < int(filters.step)), default=None)
    return {
        "counts": counts,
        "slices": _slices(source, filters, where, values),
        "rows": rows,
        "number": number,
        "pages": pages,
        "steps": steps,
        "before": before,
    }


_MOST_SLICES: Final = 12


def _slices(
    source: Source, filters: Filters, where: str, values: Sequence[object]
) -> JsonDict | None:
    """Counts of reasons by slice; None unless they were asked for."""
    if not filters.by:
        return None
    counted = source.index.query(
        f"SELECT {SLICES[filters.by]} AS slice, outcome, reason, count(*) AS c FROM rows WHERE "
        f"{where} AND error IS NULL GROUP BY ALL",
        values,
    )
    totals: dict[Any, int] = {}
    reasons: dict[tuple[object, str], int] = {}
    for name, outcome, reason, count in counted:
        totals[name] = totals.get(name, 0) + count
        reasons[outcome, reason] = reasons.get((outcome, reason), 0) + count
    names = sorted(totals, key=lambda it: -totals[it])[:_MOST_SLICES]
    if filters.by in ("length", "step"):
        names.sort(key=lambda it: int((it or "0").split()[0]))
    return {
        "names": names,
        "totals": totals,
        "counts": {(name, outcome, reason): count for name, outcome, reason, count in counted},
        "reasons": sorted(reasons, key=lambda it: -reasons[it])[:_MOST_VALUES],
        "left_out": len(totals) - len(names),
    }


def _records(source: Source, found: Sequence[tuple[Any, ...]]) -> list[JsonDict]:
    """The rows of a list, each with the beginning of its completion."""
    names = _ROW.split(", ")
    rows = [dict(zip(names, values, strict=True)) for values in found]
    rows_by_number = source.index.rows([row["n"] for row in rows])
    for row in rows:
        full_row = rows_by_number.get(row["n"], "")
        text = full_row if isinstance(full_row, str) else as_text(full_row.get("completion"))
        row["start"] = " ".join(text[:400].split())[:160]
        row["why"] = "" if isinstance(full_row, str) else as_text(full_row.get("why"))[:300]
    return rows


def row_page(
    source: Source,
    n: int,
    start: int | None,
    colour: str = "",
    token: int = 0,
    rendered: bool | None = None,
) -> JsonDict | None:
    """One row with its texts; None if there is no such row.

    Args:
        source: whose row it is.
        n: its number.
        start: first character of the completion that is shown; None for the part with the answer.
        colour: by what tokens are coloured, see `rlvr.viewer.tokens`; "" for none.
        token: number of the first one that is shown.
        rendered: whether prompt and completion are shown as Markdown; None for yes, unless
            something in them would have been an element of the page.
    """
    facts_found = source.index.query(f"SELECT {_ROW} FROM rows WHERE n = ?", [n])
    full_row = source.index.rows([n]).get(n)
    if not facts_found or full_row is None:
        return None
    facts = dict(zip(_ROW.split(", "), facts_found[0], strict=True))
    row = {} if isinstance(full_row, str) else dict(full_row)
    text = full_row if isinstance(full_row, str) else as_text(row.get("completion"))
    answer = row.get("answer")
    mark = answer_at(text, answer)
    [(before, after)] = source.index.query(
        "SELECT (SELECT max(n) FROM rows WHERE n < ?), (SELECT min(n) FROM rows WHERE n > ?)",
        [n, n],
    )
    prompt, piece_shown = _prompt(row), piece(text, start or 0, mark)
    if rendered is None:
        rendered = not isinstance(full_row, str) and _reads_as_markdown([text], [text, prompt])
    other_columns = {
        name: excerpt(as_text(row[name]), _NOTE)
        for name in (
            "reference",
            "detail",
            "meta",
            "row",
            "source",
            "config",
            "reward",
            "verifier",
            "versions",
        )
        if row.get(name) not in (None, "", {}, "{}", [])
    }
    return {
        "n": n,
        "facts": facts,
        "why": excerpt(as_text(row.get("why")), _NOTE),
        "row_parts": score_parts(row),
        "answer": None if answer is None else excerpt(as_text(answer), _NOTE),
        "mark": mark,
        "prompt": excerpt(prompt, _NOTE),
        "text": piece_shown,
        "rendered": _render_part(text, piece_shown.start, piece_shown.end, mark)
        if rendered
        else None,
        "rendered_prompt": _render_part(prompt, 0, _NOTE, None) if rendered else None,
        "tokens": colour_tokens(row, colour, token) if colour else None,
        "has_tokens": bool(row.get("tokens")),
        "turns": turns_of(row),
        "formulas": readings_of_row(row),
        "case": failed_case(row),
        "others": other_columns,
        "before": before,
        "after": after,
    }


def _reads_as_markdown(completions: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether texts are shown as Markdown unless a reader wants it otherwise.

    Some completion has markup, all are short, and nothing would have been an element of the page.
    """
    from rlvr.viewer.markdown import elements_of, has_markup

    return (
        all(len(text) <= PIECE for text in texts)
        and any(map(has_markup, completions))
        and not any(map(elements_of, texts))
    )


def _render_part(text: str, start: int, end: int, mark: tuple[int, int] | None) -> RenderedText:
    """A part of a text as Markdown; the parser is imported with the first."""
    from rlvr.viewer.markdown import render_text

    return render_text(text[start:end], mark and (mark[0] - start, mark[1] - start))


def diff_page(source: Source, first: int, second: int) -> JsonDict | None:
    """Two completions as one text, with the words that only one of them has; None if there is no
    such row.

    Args:
        source: whose rows they are.
        first, second: their numbers.
    """
    rows_by_number = source.index.rows([first, second])
    if not {first, second} <= rows_by_number.keys():
        return None
    rows = [rows_by_number[first], rows_by_number[second]]
    texts = [
        full_row if isinstance(full_row, str) else as_text(full_row.get("completion"))
        for full_row in rows
    ]
    return {"diff": word_diff(*texts), "cut": max(map(len, texts)) > PIECE}


def _prompt(row: Mapping[str, object]) -> str:
    return as_text(row.get("prompt") or row.get("messages"))


def turns_of(row: Mapping[str, object]) -> list[dict[str, object]]:
    """The turns of an episode, each with its text, its calls and what followed; none for a row of
    one turn.

    Args:
        row: a record with an episode, or a row of a run's rollouts.
    """
    episode = row.get("episode")
    turns = episode.get("turns") if isinstance(episode, Mapping) else episode
    rewards = row.get("turns")
    if not isinstance(turns, list):
        return [
            {
                "text": "",
                "calls": [],
                "user": "",
                "reward": turn.get("reward"),
                "tokens": (turn.get("start"), turn.get("stop")),
            }
            for turn in (rewards if isinstance(rewards, list) else [])
            if isinstance(turn, Mapping)
        ]
    return [
        {
            "text": excerpt(as_text(turn.get("text")), _NOTE),
            "calls": [
                {
                    name: excerpt(as_text(call.get(name)), _NOTE)
                    for name in ("name", "arguments", "reply")
                }
                | {"error": call.get("error") is True}
                for call in turn.get("calls") or []
                if isinstance(call, Mapping)
            ],
            "user": excerpt(as_text(turn.get("user")), _NOTE),
            "reward": None,
            "tokens": None,
        }
        for turn in turns[:_MOST_TURNS]
        if isinstance(turn, Mapping)
    ]


def row_text(source: Source, n: int, name: str) -> str | None:
    """The whole text of a column of a row; None if there is none.

    Args:
        source: whose row it is.
        n: its number.
        name: of the column; the text of a broken row is its completion.
    """
    full_row = source.index.rows([n]).get(n)
    if isinstance(full_row, str):
        return full_row if name == "completion" else None
    if full_row is None:
        return None
    value = _prompt(full_row) if name == "prompt" else full_row.get(name)
    return None if value is None or value == "" else as_text(value)


def group_page(
    source: Source, task: str, env: str, step: int, rendered: bool | None = None
) -> JsonDict:
    """The completions of one task side by side.

    Args:
        source: whose rows they are.
        task, env, step: of the rows.
        rendered: whether they are shown as Markdown; None for yes, unless one of them would have
            had an element.
    """
    where, values = "task = ? AND env = ? AND step = ? AND error IS NULL", [task, env, step]
    [(count,)] = source.index.query(f"SELECT count(*) FROM rows WHERE {where}", values)
    sides = _sides(source, where, values, _MOST_SIDES, rendered=rendered)
    first = sides[0] if sides else {"prompt": "", "reference": ""}
    shared = {"prompt": first["prompt"], "reference": first["reference"]}
    shared["rendered"] = any(side["rendered"] for side in sides)
    return {**shared, "sides": sides, "count": count, "task": task, "env": env, "step": step}


def rows_of_reason(
    source: Source, outcome: str | None, reason: str, most: int
) -> list[dict[str, object]]:
    """The first rows with an outcome and a reason.

    Args:
        source: whose rows they are.
        outcome, reason: of the rows.
        most: how many.
    """
    where = "outcome IS NOT DISTINCT FROM ? AND reason = ? AND error IS NULL"
    return _sides(source, where, [outcome, reason], most)


def _sides(
    source: Source, where: str, values: Sequence[Any], most: int, *, rendered: bool | None = False
) -> list[dict[str, object]]:
    """Rows as they stand side by side."""
    facts_found = source.index.query(
        f"SELECT {_ROW} FROM rows WHERE {where} ORDER BY n LIMIT {most}", values
    )
    rows_by_number = source.index.rows([values[0] for values in facts_found])
    rows: list[JsonObject] = []
    for n, *_ in facts_found:
        row = rows_by_number.get(n, {})
        rows.append({"completion": row} if isinstance(row, str) else row)
    texts = [as_text(row.get("completion")) for row in rows]
    if rendered is None:
        rendered = _reads_as_markdown(texts, texts)
    sides = []
    for facts_row, row, text in zip(facts_found, rows, texts, strict=True):
        facts = dict(zip(_ROW.split(", "), facts_row, strict=True))
        mark = answer_at(text, row.get("answer"))
        facts |= {
            "why": excerpt(as_text(row.get("why")), 500),
            "parts": score_parts(row),
            "answer": None if row.get("answer") is None else excerpt(as_text(row["answer"]), 300),
            "text": excerpt(text, _CELL, mark),
            "rendered": _render_part(text, 0, _CELL, mark) if rendered else None,
            "prompt": excerpt(_prompt(row), _NOTE),
            "reference": excerpt(as_text(row.get("reference")), 500),
        }
        sides.append(facts)
    return sides


def run_page(source: RunSource, base: str | None) -> JsonDict:
    """Curves, steps, settings and versions of a run.

    Args:
        source: the run.
        base: address of its pages; None for a page without a server.
    """
    import numpy as np

    metrics, notes = source.metrics()
    steps = source.steps
    settings, why = source.settings()
    link = None if base is None else lambda step: f"{base}rows?step={step}"
    columns_shown = [name for name in _IN_TABLE if name in metrics.columns]
    table = np.column_stack(
        [metrics.columns[name][-_MOST_STEPS:] for name in ("step", *columns_shown)]
    )
    return {
        "panels": panels(metrics, steps, link),
        "steps": steps,
        "step_files": list(source.step_files()),
        "notes": [*notes, *([why] if why else [])],
        "settings": settings,
        "lines": len(metrics),
        "last_step": metrics.last_step,
        "shown": columns_shown,
        "table": [[None if math.isnan(cell) else cell for cell in row] for row in table.tolist()],
        "last": {
            name: float(column[-1])
            for name, column in metrics.columns.items()
            if len(column) and not math.isnan(column[-1])
        },
    }


_IN_TABLE: Final = (
    "accuracy", "reward", "length", "truncated", "unscored", "entropy", "kl", "clipped_high",
    "waste", "staleness",
)  # fmt: skip


def comparison(chosen: Sequence[Source]) -> Report:
    """Which of several scored files or runs is better, and how surely: what `rlvr compare` says.

    Args:
        chosen: the files, or runs, of which the last evaluations are compared.

    Raises:
        DataError: one of them has no results, or they do not go together.
        UsageError: there is only one.
    """
    from rlvr.scoring.compare import Entry, compare, read_results

    if len(chosen) < 2:
        raise UsageError("one is selected; select two or more to compare them")
    entries = [Entry(source.name, [read_results(source.results, source.name)]) for source in chosen]
    return told(compare(entries).as_dict())
