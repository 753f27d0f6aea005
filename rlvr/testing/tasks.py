"""Checks of the tasks: made by index, the same each time, recordable as
JSON, and in one split only."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from rlvr.data.overlap import fold_text, near_duplicates
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError, brief, foreign_code
from rlvr.testing.answers import plain_answer
from rlvr.testing.exploits import harmless
from rlvr.testing.findings import Findings, Severity, describe_exception
from rlvr.text import prompt_text
from rlvr.types import Task

__all__ = ["check_tasks", "compare_tasks", "sample"]

_FIRST = 5  # number of tasks that are made twice
_SCANNED = 10_000  # number of tasks of a finite set that are compared with one another
_DRAWN = 1000  # the same of a set without end
_FEW, _MANY = 0.01, 0.05  # shares of the tasks that two splits have in common
_FAR = 10_000  # number of indices of a set without end, of which a sample is drawn


def sample(env: Environment, found: Findings, tasks: int | None, rng: random.Random) -> list[Task]:
    """A sample of the tasks, always with the first two; empty if tasks cannot be made.

    Args:
        env: the environment.
        found: where findings go.
        tasks: number of tasks; None for all.
        rng: draws the sample.

    Raises:
        UsageError: `tasks` is None for tasks without end, or the environment's data cannot be read.
    """
    with foreign_code() as errors:
        size = env.size
        several = range(size if size is not None else _FAR)
        if tasks is None and size is None:
            raise DataError(f"{env.id} generates tasks without end; say how many to look at")
        count = len(several) if tasks is None else min(tasks, len(several))
        first = list(range(min(2, count)))
        indices = first + sorted(rng.sample(several[len(first) :], count - len(first)))
        try:
            drawn_tasks = [env.task(index) for index in indices]
        except IndexError:  # a generator with an end
            several = range(_end(env, indices[-1]))
            indices = sorted(rng.sample(several, min(count, len(several))))
            drawn_tasks = [env.task(index) for index in indices]
    for error in errors:
        if isinstance(error, DataError):  # of a missing file or network, not the environment's
            raise error
        found.add("tasks-raise", got=describe_exception(error))
        return []
    for task in drawn_tasks:
        if not isinstance(task, Task):
            found.add("not-a-task", got=brief(task), wanted="Task(id, prompt, …)")
            return []
    if not drawn_tasks:
        found.add("no-tasks")
    return drawn_tasks


def check_tasks(env: Environment, drawn: Sequence[Task], found: Findings) -> list[Task]:
    """Run all checks of tasks that need no verdict.

    Args:
        env: the environment.
        drawn: the sample.
        found: where findings go.

    Returns:
        The first tasks; none if they are so broken that further checks have no meaning.
    """
    with foreign_code() as errors:
        first = _list_tasks(env, _FIRST)
        again = _list_tasks(env, len(first))
        by_index = [env.task(index) for index in range(len(first))]
        scanned = _list_tasks(env, _SCANNED if env.size is not None else _DRAWN)
    if errors:
        found.add("tasks-raise", got=describe_exception(errors[0]))
        return []
    if not _recordable([*first, *drawn], found):
        return []  # nor can they be compared: `==` of numpy's arrays has no single truth value
    if again != first:
        remedy = "draw from rlvr.seeded(self.id, self.split, index)"
        found.add(
            "tasks-differ",
            Severity.HOLE,
            "tasks come out differently the second time",
            wanted=remedy,
        )
    elif by_index != first:
        found.add("index-disagrees")
    ids = Counter(task.id for task in scanned)
    for name, count in ids.items():
        if count > 1:
            found.add("duplicate-ids", task=name)
    return scanned


def compare_tasks(env: Environment, tasks: Sequence[Task], found: Findings) -> None:
    """Look for tasks that read the same, which is the same task where all of it is in the prompt.

    Args:
        env: the environment.
        tasks: of it.
        found: where findings go.
    """
    if tasks:
        _find_repeated(env, tasks, found)
        _splits(env, tasks, found)


def _end(env: Environment, beyond: int) -> int:
    """Number of tasks of a generator that raises IndexError at the index `beyond`.

    Raises:
        IndexError: it has none.
    """
    env.task(0)
    last_good = 0
    while beyond - last_good > 1:
        middle = (last_good + beyond) // 2
        try:
            env.task(middle)
            last_good = middle
        except IndexError:
            beyond = middle
    return beyond


def _list_tasks(env: Environment, most: int) -> list[Task]:
    """The first tasks, at most `most`; a generator may end with IndexError."""
    tasks: list[Task] = []
    try:
        tasks.extend(islice(env.tasks(), most))
    except IndexError:
        if env.size is not None or not tasks:
            raise
    return tasks


def _recordable(tasks: Sequence[Task], found: Findings) -> bool:
    for task in tasks:
        try:
            reference, _, _ = json.loads(
                # `allow_nan`: JSON has no NaN.
                json.dumps([task.reference, task.prompt, dict(task.meta)], allow_nan=False)
            )
        except (TypeError, ValueError) as error:
            found.add(
                "unrecordable",
                task=task.id,
                got=describe_exception(error),
                wanted="what JSON can hold",
            )
            return False
        if reference != task.reference:
            got = f"{task.reference!r} is read back as {reference!r}"
            found.add("unrecordable", task=task.id, got=got, wanted="a list where there is a tuple")
    return True


def _find_repeated(env: Environment, tasks: Sequence[Task], found: Findings) -> None:
    """Repeated prompts: a note for a generator, whose tasks may be few, and a warning for a data
    set."""
    severity = Severity.NOTE if env.size is None else Severity.WARNING
    by_text: dict[str, Task] = {}
    texts: list[str] = []
    distinct: list[Task] = []
    for task in tasks:
        text = prompt_text(task.prompt)
        earlier_task = by_text.setdefault(text, task)
        if earlier_task is task:
            texts.append(text)
            distinct.append(task)
        elif earlier_task.reference != task.reference:
            got = (
                f"{brief(earlier_task.reference)} at {earlier_task.id!r}, "
                f"{brief(task.reference)} here"
            )
            found.add("contradiction", Severity.WARNING, task=task.id, got=got)
        else:
            found.add(
                "duplicate-tasks",
                severity,
                task=task.id,
                got=f"{earlier_task.id!r} has the same prompt",
            )
    if env.size is not None:  # a generator's tasks follow one pattern on purpose
        for earlier, later in near_duplicates(texts):
            found.add(
                "near-duplicates",
                Severity.NOTE,
                task=distinct[later].id,
                got=f"much like {distinct[earlier].id!r}",
            )
    answers = Counter(
        answer for task in tasks if (answer := plain_answer(task.reference)) is not None
    )
    for answer, count in answers.most_common(1):
        if len(tasks) >= 10 and count > len(tasks) / 2:
            found.add(
                "constant-answer",
                Severity.NOTE,
                completion=harmless(answer),
                got=f"{count} of {len(tasks)}",
            )


def _splits(env: Environment, tasks: Sequence[Task], found: Findings) -> None:
    """Prompts that another split has too, compared without case and punctuation."""
    base = env.split.partition("[")[0]  # train[:10] shares its tasks with train, and has to
    split = "test" if base == "train" else "train"
    with foreign_code() as errors:
        other_env: Any = type(env)(**(env.config | {"split": split}))
        limit = _SCANNED if env.size is not None else _DRAWN
        other_tasks = {
            fold_text(prompt_text(task.prompt)): task for task in _list_tasks(other_env, limit)
        }
    for error in errors:
        if not isinstance(error, UsageError):  # which says that there is no such split
            found.add(
                "split-raises", Severity.HOLE, f"split {split!r} fails instead of being refused",
                got=describe_exception(error),
                wanted="rlvr.UsageError for a split that is not there",
            )  # fmt: skip
        return
    own_tasks = {fold_text(prompt_text(task.prompt)): task for task in tasks}
    shared = [words for words in own_tasks if words in other_tasks]
    if env.size is not None and len(shared) == len(own_tasks) == len(other_tasks):
        found.add(
            "split-overlap",
            Severity.NOTE,
            f"splits {env.split!r} and {split!r} are the same tasks, all of them",
        )
        return
    share = len(shared) / max(len(own_tasks), 1)
    severity = Severity.HOLE if share > _MANY else Severity.WARNING
    if env.size is None and share < _FEW:
        severity = Severity.NOTE  # drawn from so many that two meet by chance
    for words in own_tasks:
        found.tried("split-overlap")
        if words in other_tasks:
            got = f"{other_tasks[words].id!r} of {split!r} has the same prompt"
            found.add("split-overlap", severity, task=own_tasks[words].id, got=got)
