"""What changed between two steps of a run, and on which rows two scored files disagree."""

from __future__ import annotations

from typing import Final

from rlvr.types import JsonDict
from rlvr.viewer.filters import OUTCOMES
from rlvr.viewer.index import outcome_table
from rlvr.viewer.sources import RunSource, Source

__all__ = ["disagreements", "step_changes"]

_MOST: Final = 40  # lines of a table
_MOST_ROWS: Final = 200  # pairs of rows that are listed


def step_changes(source: RunSource, step: int, before: int) -> JsonDict:
    """Outcomes, reasons, parts, length and truncation of two steps, and the tasks that flipped.

    A task of the step is compared with the last earlier step that sampled it.

    Args:
        source: the run.
        step: of the run, whose rollouts were kept.
        before: the step that it is compared with.
    """
    ask = source.index.query
    totals = dict(
        ask("SELECT step, count(*) FROM rows WHERE step IN (?, ?) GROUP BY step", [step, before])
    )

    def shares(columns: str, where: str = "error IS NULL") -> list[tuple[object, ...]]:
        sql = (
            f"SELECT {columns}, count(*) FILTER (step = ?) AS now, count(*) FILTER (step = ?) AS "
            f"earlier FROM rows WHERE step IN (?, ?) AND {where} GROUP BY {columns}"
        )
        changes_found = [
            (
                *names,
                earlier,
                count_now,
                count_now / max(1, totals.get(step, 0)) - earlier / max(1, totals.get(before, 0)),
            )
            for *names, count_now, earlier in ask(sql, [step, before, step, before])
        ]
        return sorted(changes_found, key=lambda it: -abs(it[-1]))[:_MOST]

    means = (
        "avg(total) FILTER (isfinite(total)), avg(length), avg(truncated::INT), "
        "avg((outcome = 'unscored')::INT)"
    )
    by_step = {
        row[0]: row[1:]
        for row in ask(
            f"SELECT step, {means} FROM rows WHERE step IN (?, ?) GROUP BY step", [step, before]
        )
    }
    names = ("mean reward", "mean length", "truncated, share", "unscored, share")
    empty = (None,) * len(names)
    numbers = [
        (name, *pair)
        for name, *pair in zip(
            names, by_step.get(before, empty), by_step.get(step, empty), strict=True
        )
    ]
    parts = ask(
        "SELECT name, avg(value) FILTER (n >> 32 = ?), avg(value) FILTER (n >> 32 = ?), "
        "count(*) FILTER (n >> 32 = ? AND value > 0 AND n IN (SELECT n FROM rows WHERE outcome <> "
        "'correct')) "
        "FROM parts WHERE n >> 32 IN (?, ?) AND isfinite(value) GROUP BY name ORDER BY name LIMIT "
        "40",
        [before, step, step, step, before],
    )
    flipped = ask(
        "WITH shares AS (SELECT task, env, step, avg((outcome = 'correct')::INT) AS correct, "
        "count(*) AS c FROM rows WHERE error IS NULL AND task <> '' AND step <= ? AND outcome <> "
        "'unscored' GROUP BY task, env, step), earlier AS (SELECT now.task, now.env, max(was.step) "
        "AS step FROM shares AS now JOIN shares AS was ON now.task = was.task AND now.env = "
        "was.env AND was.step < now.step WHERE now.step = ? GROUP BY now.task, now.env) SELECT "
        "now.task, now.env, was.step, was.correct, now.correct, now.c FROM shares AS now JOIN "
        "earlier USING (task, env) JOIN shares AS was ON was.task = now.task AND was.env = now.env "
        "AND was.step = earlier.step WHERE now.step = ? ORDER BY now.correct - was.correct, "
        "now.task",
        [step, step, step],
    )
    return {
        "step": step,
        "before": before,
        "totals": (totals.get(before, 0), totals.get(step, 0)),
        "outcomes": shares("outcome"),
        "reasons": shares("outcome, reason", "error IS NULL AND outcome <> 'correct'"),
        "dropped": shares("dropped", "dropped <> ''"),
        "numbers": numbers,
        "parts": parts,
        "again": len(flipped),
        "worse": [flip for flip in flipped if flip[4] < flip[3]][:_MOST],
        "better": [flip for flip in reversed(flipped) if flip[4] > flip[3]][:_MOST],
    }


def disagreements(
    first: Source, second: Source, said: tuple[str, str] | None, most: int = _MOST_ROWS
) -> JsonDict:
    """On which rows two scored files have another outcome.

    Rows belong together by their ids, where all of both files have one that is the only one of its
    kind; else by their lines.

    Args:
        first, second: the files.
        said: outcomes of the first and of the second; rows with just these are listed.  None for
            all that differ.
        most: greatest number of rows that are listed.
    """
    by_id = all(
        source.index.query(
            "SELECT count(*) = count(DISTINCT id) AND count(*) FILTER (id = '') = 0 FROM rows"
        )[0][0]
        for source in (first, second)
    )
    key = "id" if by_id else "line"
    columns = f"SELECT {key}, n, coalesce(outcome, 'broken'), reason FROM rows"
    second_rows = second.index.query(columns)
    second_table = outcome_table(second_rows, by_id=by_id)
    joined = (
        f"FROM (SELECT {key} AS k, n, coalesce(outcome, 'broken') AS outcome, reason FROM rows) AS "
        "a JOIN other AS b ON a.k = b.k"
    )
    [(shared,)] = first.index.query(f"SELECT count(*) {joined}", other=second_table)
    matrix = first.index.query(
        f"SELECT a.outcome, b.outcome, count(*) {joined} GROUP BY ALL", other=second_table
    )
    reasons = first.index.query(
        f"SELECT a.outcome, a.reason, b.outcome, b.reason, count(*) AS c {joined} WHERE a.outcome "
        f"<> b.outcome GROUP BY ALL ORDER BY c DESC, 1, 2, 3, 4 LIMIT {_MOST}",
        other=second_table,
    )
    where = "a.outcome <> b.outcome" if said is None else "a.outcome = ? AND b.outcome = ?"
    rows = first.index.query(
        f"SELECT a.k, a.n, a.outcome, a.reason, b.n, b.outcome, b.reason {joined} WHERE {where} "
        f"ORDER BY a.n LIMIT {most}",
        said or (),
        other=second_table,
    )
    counts = {(a, b): count for a, b, count in matrix}
    names = [
        outcome for outcome in (*OUTCOMES, "broken") if any(outcome in pair for pair in counts)
    ]
    return {
        "key": key,
        "both": shared,
        "alone": [
            source.index.query("SELECT count(*) FROM rows")[0][0] - shared
            for source in (first, second)
        ],
        "names": names,
        "matrix": counts,
        "differ": sum(count for (a, b), count in counts.items() if a != b),
        "reasons": reasons,
        "rows": rows,
        "said": said,
    }
