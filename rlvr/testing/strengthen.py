"""Data with stronger tests: cases that refute wrong work which was paid, in
the data set's own columns.

wrong work that is paid ─▶ its witness becomes a case ─▶ right work still passes?
  ─▶ a row that reads as the new task
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlvr.data.files import whole_file, write_whole
from rlvr.data.lines import Row
from rlvr.data.rows import dump_row
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError
from rlvr.scoring import Scorer
from rlvr.testing.scores import as_completion
from rlvr.testing.work import Maker, Witness, Work
from rlvr.types import JsonDict, JsonObject, Task

__all__ = [
    "MOST_CASES",
    "Mending",
    "SourceRows",
    "Tried",
    "manifest_path",
    "mend",
    "write_strengthened",
]

MOST_CASES: Final = 4
"""Cases that are added to a task at most."""

_SHOWN: Final = 2000  # characters of a value in the manifest


class Tried(NamedTuple):
    """Wrong work that was scored: it has a witness."""

    work: Work
    witness: Witness
    paid: bool


@dataclass
class Mending:
    """What was done for a weak task.

    Attributes:
        reference: the reference with more cases; None where there are none.
        cases: those that were added: operator, input, expected value and what the wrong work gives.
        dropped: those that were not, with the reason.
        wrong, paid: wrong work of operators that made no case, and how much of it is still paid.
    """

    reference: Any = None
    cases: list[dict[str, str]] = field(default_factory=list)
    dropped: list[dict[str, str]] = field(default_factory=list)
    wrong: int = 0
    paid: int = 0

    def as_dict(self) -> JsonDict:
        """All of it, for JSON."""
        return dataclasses.asdict(self)


def mend(
    maker: Maker, task: Task, tried: Sequence[Tried], right: Sequence[str], scorer: Scorer
) -> Mending:
    """Add cases to a task until none of its wrong work is paid, or there are `MOST_CASES`.

    Args:
        maker: writes a witness as a case.
        task: the task.
        tried: wrong work; only cases of work that is paid are added.
        right: completions that must still be CORRECT.
        scorer: scores the changed task.
    """
    done, current = Mending(), task
    witnesses: list[Witness] = []
    paid = [play for play in tried if play.paid]
    # By the shortest input: the case that is added should be easy to read.
    paid.sort(key=lambda one: (len(one.witness.given), one.witness.given))
    while paid and len(witnesses) < MOST_CASES:
        first = paid.pop(0)
        changed = None
        if first.witness.case is not None:
            changed = maker.mend(task, [*witnesses, first.witness])
        # Right work first, then the work whose case it is, then what else is still paid.
        texts = [*right, first.work.text, *(play.work.text for play in paid)]
        accepted = [] if changed is None else _judge_texts(changed, texts, scorer)
        if changed is None or accepted is None:
            done.dropped.append(
                _case(first) | {"why": f"{_judge(maker)} takes no such case: mend the verifier"}
            )
        elif not all(accepted[: len(right)]):
            done.dropped.append(_case(first) | {"why": "right work fails it"})
        elif accepted[len(right)]:
            done.dropped.append(
                _case(first) | {"why": f"{_judge(maker)} pays the work all the same: mend it"}
            )
        else:
            current = changed
            witnesses.append(first.witness)
            done.cases.append(_case(first))
            still_paid = accepted[len(right) + 1 :]
            # One case often refutes several works.
            paid = [play for play, is_paid in zip(paid, still_paid, strict=True) if is_paid]
    if witnesses:
        done.reference = current.reference
        operators = {case["operator"] for case in done.cases}
        # Work of other operators: how far the new cases reach beyond what they were made for.
        untargeted_texts = [play.work.text for play in tried if play.work.operator not in operators]
        done.wrong, done.paid = (
            len(untargeted_texts),
            sum(_judge_texts(current, untargeted_texts, scorer) or ()),
        )
    return done


def _judge_texts(task: Task, texts: Sequence[str], scorer: Scorer) -> list[bool] | None:
    """Whether each completion is CORRECT; None where the reference cannot be read."""
    try:
        scores = scorer.score_group(task, [as_completion(text) for text in texts])
    except DataError:
        return None
    return [score.verdict.correct for score in scores]


def _case(one: Tried) -> dict[str, str]:
    return {"operator": one.work.operator, **one.witness.shown(_SHOWN)}


def _judge(maker: Maker) -> str:
    judge = maker.verifier
    return type(maker.env if judge is None else judge).__name__


# ----------------------------------------------------------------------------- the copy of the data


def manifest_path(path: Path) -> Path:
    """Where the manifest of a copy stands.

    Args:
        path: of the copy.
    """
    return path.with_name(path.stem + ".manifest.json")


def write_strengthened(source: SourceRows, report: JsonObject, path: Path) -> list[str]:
    """Write a copy of an environment's data with the cases that a report has, and its manifest
    beside it.

    Args:
        source: its data.
        report: with `seed`, `works`, `digest` and `tasks`, each with its `mended`.
        path: of the copy, .jsonl.

    Returns:
        What was done, in lines for people.
    """
    by_row = {
        source.places[task_report["task"]]: task_report
        for task_report in report["tasks"]
        if task_report["task"] in source.places
    }
    original, copy = hashlib.sha256(), hashlib.sha256()
    done: list[JsonDict] = []
    with whole_file(path) as file:
        for number, row in enumerate(source.rows):
            # Rows as they were and as they are: the manifest has a digest of both files.
            original.update(dump_row(row))
            record = by_row.get(number)
            if record is not None and record["state"] == "weak":
                row, entry = _strengthen_row(source, number, row, record)
                done.append(entry)
            line = dump_row(row)
            copy.update(line)
            file.write(line)
    changed = [entry for entry in done if not entry["why"]]
    manifest = {
        "manifest": "rlvr strength --strengthen",
        "rlvr": metadata.version("rlvr"),
        "python": platform.python_version(),
        "env": report["env"],
        "config": report["config"],
        "seed": report["seed"],
        "works": report["works"],
        "report": report["digest"],
        "rows": len(source.rows),
        "rows_sha256": original.hexdigest(),
        "sha256": copy.hexdigest(),
        "tasks": done,
    }
    write_whole(manifest_path(path), (json.dumps(manifest, indent=2) + "\n").encode())
    count = sum(len(entry["cases"]) for entry in changed)
    lines = [f"{path}: {count} cases added to {len(changed)} of {len(done)} weak tasks"]
    wrong = sum(entry["after"]["wrong"] for entry in changed)
    paid = sum(entry["after"]["paid"] for entry in changed)
    lines.append(f"of {wrong} wrong works by operators that made no case {paid} are still paid")
    lines += [f"{entry['task']} is left: {entry['why']}" for entry in done if entry["why"]]
    return lines


class SourceRows:
    """The rows of an environment's data, each with the task that it makes.

    Args:
        env: the environment.

    Attributes:
        rows: in their order, without those that no format could read.
        places: the number of each task's row.

    Raises:
        UsageError: its tasks are not read from rows.
        DataError: the data cannot be read.
    """

    def __init__(self, env: Environment) -> None:
        self.rows: list[Row] = []
        self.places: dict[str, int] = {}
        self._ids: list[str] = []
        self._make: Any = env.task_from  # of a row and an id
        read, is_finite = env.tasks_in, env.size is not None

        def recording(source: Any, **options: Any) -> Iterator[Task]:
            make: Any = options.pop("make", None) or env.task_from
            self._make = make

            def make_recording(row: Row, id: str) -> Task | None:
                self.rows.append(row)
                self._ids.append(id)
                task: Task | None = make(row, id)
                if task is not None:
                    self.places.setdefault(task.id, len(self.rows) - 1)
                return task

            return read(source, make=make_recording, **options)

        # Past the frozen class: the environment's own reader runs, and each row is noted on its
        # way.
        object.__setattr__(env, "tasks_in", recording)
        try:
            for _ in env.tasks() if is_finite else ():
                pass
        finally:
            object.__delattr__(env, "tasks_in")
        if not self.rows:
            raise UsageError(
                f"{env.id} draws its tasks and reads no rows, so that there is no data to "
                f"strengthen; "
                "leave out --strengthen, and mend what draws them"
            )

    def task(self, number: int, row: Row) -> Task | None:
        """The task of a row that takes the place of another.

        Args:
            number: of the place.
            row: the new row.
        """
        try:
            task: Task | None = self._make(row, self._ids[number])
            return task
        except (DataError, TypeError, ValueError, LookupError, AttributeError):
            return None


def _strengthen_row(
    source: SourceRows, number: int, row: Row, record: JsonObject
) -> tuple[Row, dict[str, object]]:
    """The row with the task's cases, and what the manifest says of it."""
    mended = record["mended"]
    entry = {
        "task": record["task"],
        "row": number,
        "cases": mended["cases"],
        "dropped": mended["dropped"],
        "after": {"wrong": mended["wrong"], "paid": mended["paid"]},
        "why": "",
    }
    if not mended["cases"]:
        reasons = sorted({task_mending["why"] for task_mending in mended["dropped"]})
        return row, entry | {"why": "; ".join(reasons) or "no case could be made"}
    before = source.task(number, row)
    assert before is not None
    for changed in _rows_with(row, before.reference, mended["reference"]):
        task = source.task(number, changed)
        if task is not None and (task.prompt, task.reference) == (
            before.prompt,
            mended["reference"],
        ):
            return changed, entry
    columns = ", ".join(map(repr, row))
    return row, entry | {
        "cases": [],
        "why": f"its row has no column for more cases; it has {columns}",
    }


def _rows_with(row: Row, old: Any, new: object) -> Iterator[Row]:
    """Rows that may read as the new reference: where a part of the old one stands, its new value
    takes its place.

    Whether one does is found out by reading it.
    """
    parts = [(old, new)]
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        parts += [(old.get(name), value) for name, value in new.items() if old.get(name) != value]
    changed = dict(row)
    for name, value in row.items():
        for before, after in parts:
            replaced = _replace_part(changed[name], before, after)
            changed[name] = changed[name] if replaced is None else replaced
        # One column alone first, then all together.
        if changed[name] is not value:
            yield {**row, name: changed[name]}
    yield changed


def _replace_part(value: object, before: object, after: object) -> object:
    """A column's value with the new part; None where the old one does not stand in it."""
    if value == before:
        return after
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if inner == before:
                return {**value, name: after}
    # A column that holds JSON as text.
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            replaced = _replace_part(json.loads(value), before, after)
        except (ValueError, RecursionError):
            return None
        return None if replaced is None else json.dumps(replaced)
    if isinstance(value, list) and isinstance(before, str) and isinstance(after, str):
        # A list of lines, of which more are added at its end.
        if not all(isinstance(item, str) for item in value) or not after.startswith(before):
            return None
        lines = after[len(before) :].strip("\n").split("\n")
        return [*value, *lines] if before.endswith("\n".join(value).replace("\r\n", "\n")) else None
    return None
