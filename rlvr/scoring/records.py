"""Recorded scores: each record holds all that is needed to reach the same score again.

`replay` makes the environment from the record, verifies the recorded completion against the recorded reference, and
reports whatever came out otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlvr.data.rows import Row, dump_row, read_whole
from rlvr.environment import Environment
from rlvr.environment.registry import make
from rlvr.errors import DataError, UsageError
from rlvr.scoring.items import Item
from rlvr.scoring.scorer import Scored, Scorer
from rlvr.types import Completion, Outcome, Score, Task, Verdict

__all__ = ["Difference", "asked", "continues", "provenance", "record", "replay", "score_fields", "score_from"]

_COMPARED = ("outcome", "value", "why", "answer", "detail", "total", "parts")
"""What a replay must reach again, exactly."""

_ENGINE = ("math-verify", "sympy")  # what verdicts depend on beyond our own versions


def provenance(env: Environment, name: str) -> dict[str, Any]:
    """Who scored: the part of a record that every row of a run has in common.

    Args:
        name: what `rlvr.make` took to make the environment; its id, or where its class stands.

    Raises:
        UsageError: an option's value has no place in JSON.
    """
    try:
        config = json.loads(json.dumps(env.config, allow_nan=False))  # as it will be read back: tuples become lists
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: its options {env.config!r} cannot be recorded as JSON: {error}") from error
    primary = env.reward.primary
    verifier = primary.verifier.id if primary is not None and primary.verifier is not None else None
    return {
        "env": name,
        "config": config,
        "verifier": verifier,  # None: the environment's own verify, whose version is the environment's
        "reward": str(env.reward),
        "rlvr": _version("rlvr"),
        "versions": {package: _version(package) for package in _ENGINE},
    }


def record(scored: Scored, run: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON-able record of one score; `run` is its `provenance`."""
    item = scored.item
    return {
        "id": item.id,
        **score_fields(scored.score),
        "completion": item.completion.text,
        "length_tokens": item.completion.length_tokens,
        "truncated": item.completion.truncated,
        "task": item.task.id,
        "prompt": item.task.prompt,
        "reference": item.task.reference,
        "meta": dict(item.task.meta),
        **run,
        "row": dict(item.row),
    }


def score_fields(score: Score) -> dict[str, Any]:
    """What of a record is the score."""
    verdict = score.verdict
    return {
        "outcome": verdict.outcome.value,
        "total": score.total,
        "parts": dict(score.parts),
        "value": verdict.value,
        "why": verdict.why,
        "answer": verdict.answer,
        "detail": dict(verdict.detail),
    }


def score_from(row: Row) -> Score:
    """The score of a record, or of an answer of the HTTP service: what `score_fields` was given.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    verdict = Verdict(Outcome(row["outcome"]), row["value"], row["why"], row["answer"], row["detail"])
    return Score(row["total"], row["parts"], verdict)


def asked(item: Item, run: Mapping[str, Any]) -> dict[str, Any]:
    """What of an item's record is known before it is scored."""
    nothing = Score(None, {}, Verdict(Outcome.UNSCORED))
    return {name: value for name, value in record(Scored(item, nothing), run).items() if name not in _COMPARED}


def continues(row: Row, item: Item, run: Mapping[str, Any]) -> bool:
    """Is this record what the item would come to in such a run, whatever its score?"""
    return all(row.get(name) == value for name, value in json.loads(dump_row(asked(item, run))).items())


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that did not come out as it stands."""

    id: str
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"{self.id}: {self.field} was {_cut(self.recorded)}, is now {_cut(self.replayed)}"


def replay(records: Iterable[Row] | str | Path, *, workers: int | None = None) -> Iterator[list[Difference]]:
    """Score every record again; one list per record, in order, empty where nothing differs.

    UNSCORED records are passed over: they hold a failure of ours, not a verdict that could be reached again.  The
    versions of rlvr and of what it computes with are not compared, but named where something else differs.

    Args:
        records: mappings, or the file that `rlvr score` wrote.

    Raises:
        DataError: a record lacks what scoring it again takes.
        UnknownEnvironment: its environment is not installed.
    """
    if isinstance(records, (str, Path)):
        records = read_whole(records)
    for run, batch in _by_run(row for row in records if row.get("outcome") != Outcome.UNSCORED):
        env = make(run["env"], **run["config"])
        now = provenance(env, run["env"])
        with Scorer(env, workers=workers) as scorer:
            items = [_item(row, number) for number, row in enumerate(batch)]
            for row, scored in zip(batch, scorer.stream(items), strict=True):
                again = record(scored, now)
                compared = ("reward", "verifier", *_COMPARED)
                differ = [name for name in compared if row[name] != again[name]]
                differ += [name for name in ("rlvr", "versions") if differ and row.get(name) != again[name]]
                yield [Difference(str(row["id"]), name, row.get(name), again[name]) for name in differ]


def _cut(value: Any) -> str:
    text = repr(value)  # a detail may hold a traceback
    return text if len(text) <= 500 else f"{text[:500]}…"


def _by_run(records: Iterable[Row]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Consecutive records of one environment and configuration; nearly always the whole file."""
    key, run = "", dict[str, Any]()
    batch: list[Row] = []
    for row in records:
        missing = {"id", "env", "config", "completion", "task", "reference", "reward", "verifier", *_COMPARED} - set(
            row
        )
        if missing:
            raise DataError(
                f"record {row.get('id')!r} is not one that `rlvr score` wrote: it lacks {', '.join(sorted(missing))}"
            )
        if not (isinstance(row["env"], str) and isinstance(row["config"], dict)):
            raise DataError(f"record {row['id']!r}: env {row['env']!r} or config {row['config']!r} is not what it was")
        this = json.dumps([row["env"], row["config"]], sort_keys=True)
        if batch and this != key:
            yield run, batch
            batch = []
        key, run = this, {"env": row["env"], "config": row["config"]}
        batch.append(row)
    if batch:
        yield run, batch


def _item(row: Row, number: int) -> Item:
    """By number, since the records of two runs in one file may share their ids."""
    try:
        task = Task(row["task"], row.get("prompt") or "", row["reference"], row.get("meta") or {})
        completion = Completion(row["completion"], row.get("length_tokens"), row.get("truncated") or False)
        return Item(str(number), task, completion)
    except (TypeError, ValueError) as error:
        raise DataError(f"record {row['id']!r}: {error}") from error


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a folder that was never installed
        return "unknown"
