"""What is compared: the scores of each task, read from scored files, evaluation reports, rollouts
and runs."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rlvr.data.files import read_bounded
from rlvr.data.lines import Row
from rlvr.data.rows import read_whole
from rlvr.display import show_value
from rlvr.errors import DataError, brief
from rlvr.scoring.identity import Identity, read_identity
from rlvr.text import prompt_text
from rlvr.types import JsonObject, Outcome, is_chat

__all__ = ["Results", "TaskScores", "read_labels", "read_results"]

_OUTCOMES: Final = frozenset(one.value for one in Outcome)
_WAY: Final = ("config", "verifier", "reward")
_TASKS_ALONE: Final = ("data", "split")  # options that choose tasks, and decide no score
_MOST_COMPLETIONS: Final = 1 << 20  # of a task in a report
_GREATEST: Final = 1e100  # whose squares can be added up
_EVALUATION: Final = re.compile(r"step-(\d+)\.json")


@dataclass(slots=True)
class TaskScores:
    """The scores of one task's completions.

    Attributes:
        task: its id.
        env: id of its environment; empty if it is not known.
        cluster: the value of the column that names clusters; None without one.
        correct: True for each scored completion that is CORRECT.
        answers: the answer of each scored completion.
        totals: the total of each scored completion; of an evaluation report one number, their mean.
        lengths: tokens of each completion, or characters where tokens are not known; of a report
            their mean.
        outcomes: how often each outcome occurs.
        reasons: how often each reason occurs among completions that are not correct, up to its
            first colon.
        truncated: how many completions reached the token limit.
    """

    task: str
    env: str
    cluster: object = None
    correct: list[bool] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    truncated: int = 0


@dataclass(slots=True)
class Results:
    """The scores of one file.

    Attributes:
        name: what tables call it.
        tasks: by (id, reference); a reference that the file does not have is None.
        decided: how scores were decided: of each environment the values of settings and code by
            name.
        completions: number of completions, those that are UNSCORED included.
        step: of a run, that of the evaluation.
    """

    name: str
    tasks: dict[tuple[str, str | None], TaskScores]
    decided: Identity
    completions: int
    step: int | None = None


def read_results(path: Path, name: str | None = None, *, cluster: str | None = None) -> Results:
    """Read one file or run.

    Args:
        path: what `rlvr score` or `rlvr eval --rollouts` wrote, a report of `rlvr eval -o`, a file
            of a run's `rollouts`, or the folder of a run, of which the last evaluation is read.
        name: what tables call it; by default the path.
        cluster: a column whose values say which tasks belong together; of records also one of their
            `row` or `meta`.

    Raises:
        DataError: it is none of these, holds no score, or lacks the column.
    """
    name = str(path) if name is None else name
    step = None
    if path.is_dir():
        step, path = _last_evaluation(path)
    report = _report(path) if path.suffix == ".json" else None
    if report is not None and cluster is not None:
        raise DataError(
            f"{path} is a report, which has no column {cluster!r}; give the rollouts, which "
            "`rlvr eval --rollouts FILE` keeps"
        )
    results = _of_rows(path, name, cluster) if report is None else _of_report(path, name, report)
    if not any(task.correct for task in results.tasks.values()):
        raise DataError(
            f"{path}: no completion is scored"
            + (f", all {results.completions:,} are UNSCORED" if results.completions else "")
            + "; score it again with `rlvr score`"
        )
    results.step = step
    return results


def _last_evaluation(run: Path) -> tuple[int, Path]:
    folder = run / "evaluations"
    if not folder.is_dir() and run.parent.name == folder.name:  # of a further evaluation
        folder = run
    evaluations = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _EVALUATION.fullmatch(path.name))
    }
    if not evaluations:
        raise DataError(
            f"{run} has no evaluation in {folder.name}/; train with --eval-every N, evaluate "
            "RUN/model with `rlvr eval`, or give a file of its rollouts/"
        )
    return max(evaluations.items())


# ---------------------------------------------------------------------------------------- reports


def _report(path: Path) -> Mapping[str, object] | None:
    """The report in a file; None if it holds rows."""
    try:
        tree = json.loads(read_bounded(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a scored file, report or run") from None
    except (ValueError, RecursionError):
        return None
    if isinstance(tree, dict) and {"tasks", "metrics"} <= tree.keys():
        return tree
    return None


def _of_report(path: Path, name: str, tree: JsonObject) -> Results:
    env = str(tree.get("env", ""))
    tasks: dict[tuple[str, str | None], TaskScores] = {}
    completions = 0
    try:
        for row in tree["tasks"]:
            task = TaskScores(str(row["task"]), env)
            task.correct = [bool(is_correct) for is_correct in row["correct"]]
            task.answers = list(row["answers"])
            task.totals = [] if row["reward"] is None else [_finite(row["reward"], path, task.task)]
            task.lengths = [_finite(row["length"], path, task.task, "length")]
            task.truncated = int(row["truncated"])
            task.outcomes[Outcome.CORRECT.value] = sum(task.correct)
            task.outcomes[Outcome.UNSCORED.value] = int(row["unscored"])
            count = len(task.correct) + int(row["unscored"])
            completions += count
            if (
                not max(1, len(task.correct)) <= count <= _MOST_COMPLETIONS
                or not 0 <= task.truncated <= count
                or len(task.answers) != len(task.correct)
                or bool(task.totals) != bool(task.correct)
            ):
                raise DataError(
                    f"{path}: the counts of task {task.task[:60]!r} do not fit each other; "
                    "evaluate again"
                )
            # By id alone, so two would be one.
            if (task.task, None) in tasks:
                raise DataError(f"{path} holds task {task.task!r} twice; evaluate each task once")
            tasks[task.task, None] = task
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path} looks like a report of `rlvr eval`, and lacks {error}") from None
    return Results(name, tasks, _identity_of(path, {env: tree}), completions)


# ---------------------------------------------------------------------------------------- rows


def read_labels(path: Path) -> dict[str, bool]:
    """Of the tasks whose verdicts a person judged, whether all those verdicts were called right.

    Args:
        path: what `rlvr view --labels` wrote.

    Raises:
        DataError: a row is no such mark.
    """
    labels: dict[str, bool] = {}
    for number, row in enumerate(read_whole(path), 1):
        right = row.get("verdict_is_right")
        if not isinstance(right, bool):
            raise DataError(
                f"{path}, row {number}: verdict_is_right is {show_value(right)}; give a file that "
                "rlvr view --labels wrote"
            )
        name, _ = _key(row, path, number)
        # One wrong verdict makes the task's verdicts wrong.
        labels[name] = right and labels.get(name, True)
    return labels


def _of_rows(path: Path, name: str, cluster: str | None) -> Results:
    tasks: dict[tuple[str, str | None], TaskScores] = {}
    # Where the whole identity is known, a resumed run may hold rows of two digests, one accepted.
    # Without the whole identity, the column says it row by row.
    names = _WAY if read_identity(path) is not None else (*_WAY, "identity")
    first: dict[str, Row] = {}  # of each environment
    ways: dict[str, list[object]] = {}
    completions = 0
    for completions, row in enumerate(read_whole(path), 1):
        env = str(row.get("env") or "")
        way = [row.get(column) for column in names]
        if env not in first:
            first[env], ways[env] = row, way
        elif way != ways[env]:
            raise DataError(
                f"{path}, row {completions}: its score was decided in another way than those "
                "before it; give files of one way each"
            )
        key = _key(row, path, completions)
        task = tasks.get(key)
        if task is None:
            task = tasks[key] = TaskScores(key[0], env, _cluster(row, cluster, path))
        _add(task, row, path, completions)
    return Results(name, tasks, _identity_of(path, first), completions)


def _key(row: Row, path: Path, number: int) -> tuple[str, str | None]:
    """(id, reference).  Rows that name no task are called "row" or by their own id: those are told
    by their prompt."""
    if "task" not in row or "outcome" not in row:
        missing = "outcome" if "task" in row else "task"
        raise DataError(
            f"{path}, row {number} has no column {missing!r}; give what `rlvr score` wrote, a "
            "report of `rlvr eval -o`, or the folder of a run"
        )
    name, prompt = str(row["task"]), row.get("prompt")
    if prompt and name in ("row", str(row.get("id"))):
        if not (isinstance(prompt, str) or is_chat(prompt)):
            raise DataError(
                f"{path}, row {number}: the prompt is {brief(prompt)}; it must be a text, or a "
                "list of chat messages"
            )
        name = prompt_text(prompt)
    if "reference" not in row:
        return name, None
    reference = row["reference"]
    return name, reference if isinstance(reference, str) else json.dumps(reference)


def _cluster(row: Row, column: str | None, path: Path) -> object:
    if column is None:
        return None
    for place in (row.get("row"), row.get("meta"), row):
        if isinstance(place, Mapping) and place.get(column) is not None:
            return json.dumps(place[column], sort_keys=True, default=str)
    raise DataError(
        f"{path}: task {row['task']!r} has no column {column!r}, by which tasks are grouped"
    )


def _add(task: TaskScores, row: Row, path: Path, number: int) -> None:
    outcome = row["outcome"]
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        outcomes = ", ".join(sorted(_OUTCOMES))
        raise DataError(
            f"{path}, row {number}: outcome is {show_value(outcome)}; it is one of {outcomes}"
        )
    task.outcomes[outcome] += 1
    task.truncated += bool(row.get("truncated"))
    length = row.get("length_tokens")
    # Letters stand for tokens where those are not known.
    length = len(str(row.get("completion") or "")) if length is None else length
    task.lengths.append(_finite(length, path, f"of row {number}", "length_tokens"))
    total = row["total"] if "total" in row else row.get("score")
    # UNSCORED is no wrong answer: it is left out of the rate.
    if total is None or outcome == "unscored":
        return
    task.correct.append(outcome == "correct")
    task.answers.append(row.get("answer"))
    task.totals.append(_finite(total, path, f"of row {number}"))
    if outcome != "correct":
        # The reason without its text: "wrong: 3 is not 4" is one reason with all of its kind.
        task.reasons[str(row.get("why") or "").partition(":")[0][:80]] += 1


def _finite(value: Any, path: Path, where: str, column: str = "total") -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _GREATEST:
        raise DataError(
            f"{path}: the {column} {where} is {show_value(value)}; it must be a finite number "
            f"up to {_GREATEST:g}, or null where there is none: score the file again"
        )
    return number


def _identity_of(path: Path, ways: Mapping[str, Row]) -> Identity:
    """How scores were decided: what stands beside the file, else what its rows say."""
    is_plain_report = path.suffix == ".json" and not any("identity" in row for row in ways.values())
    stored = None if is_plain_report else read_identity(path)
    if stored is not None:
        return stored.without("data")  # the rows themselves, which have other completions
    identity = Identity()
    for env, row in ways.items():
        name = f"{env} " if len(ways) > 1 else ""
        config = row.get("config") or {}
        if not isinstance(config, Mapping):
            raise DataError(
                f"{path}: config is {show_value(config)}; it must be an object: score the file "
                "again"
            )
        settings = {
            f"option {option}": value
            for option, value in config.items()
            if option not in _TASKS_ALONE
        }
        settings |= {
            column: row[column] for column in ("env", "verifier", "reward") if row.get(column)
        }
        identity.settings |= {f"{name}{row}": value for row, value in settings.items()}
        if "identity" in row:
            identity.code[f"{name}identity"] = row["identity"]
    return identity
