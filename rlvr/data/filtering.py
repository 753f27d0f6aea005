"""Tasks worth training on: by pass rate, without what a test set holds, each once.

A task that every rollout solves, or none, teaches a policy nothing: all advantages of its group are 0.  UNSCORED
rollouts are no failures of the policy, so that they count neither for nor against a task.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rlvr.data.overlap import Shared, folded, near_duplicates
from rlvr.data.rows import Row
from rlvr.errors import DataError, UsageError, brief
from rlvr.statistics import wilson
from rlvr.types import Outcome, Prompt

__all__ = ["Dropped", "Kept", "Limits", "filter_tasks"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a task has to be to stay.

    Attributes:
        min_rate, max_rate: the share of correct rollouts must lie between them, both included.
        min_n: so many scored rollouts at least.
        by: "rate" looks at k/n; "interval" drops a task only if its whole 95 % interval lies outside, so that a few
            rollouts of bad luck cost none.
        duplicates: of tasks with the same prompt, whatever its case and the punctuation of its sentences, the first
            stays.
        near: so does it of tasks that share this part of their 5-grams, such as 0.8; None for no such look.
        ngram: words in an n-gram that must not be shared with a test set: 13, as for GPT-3 (arXiv:2005.14165, C);
            of a shorter test all its words in a row, from 4 up.

    Raises:
        UsageError: numbers that cannot work.
    """

    min_rate: float = 0.0
    max_rate: float = 1.0
    min_n: int = 0
    by: Literal["rate", "interval"] = "rate"
    duplicates: bool = True
    near: float | None = None
    ngram: int = 13

    def __post_init__(self) -> None:
        if not 0 <= self.min_rate <= self.max_rate <= 1:  # false for NaN
            raise UsageError(f"rates from {self.min_rate!r} to {self.max_rate!r}: give 0 <= min_rate <= max_rate <= 1")
        if self.min_n < 0:
            raise UsageError(f"min_n is {self.min_n!r}; it must be a whole number of at least 0")
        if self.by not in ("rate", "interval"):
            raise UsageError(f"by is {self.by!r}; it must be 'rate' or 'interval'")
        if self.near is not None and not 0 < self.near <= 1:
            raise UsageError(f"near is {self.near!r}; it must lie above 0 and be at most 1, or None")
        if self.ngram < 1:
            raise UsageError(f"ngram is {self.ngram!r}; it must be a whole number of at least 1")

    @property
    def by_rate(self) -> bool:
        """Does it take rollouts to tell?"""
        return self.min_rate > 0 or self.max_rate < 1 or self.min_n > 0


@dataclass(slots=True, eq=False)
class Kept:
    """A task with its rollouts counted.

    Attributes:
        prompt: "" where a record has none.
        meta: what else is known of the task: its meta, and other columns of its row.
        correct, scored, unscored: rollouts; `scored` does not hold the unscored ones.
    """

    id: str
    prompt: Prompt
    reference: Any
    meta: dict[str, Any]
    correct: int = 0
    scored: int = 0
    unscored: int = 0

    @property
    def text(self) -> str:
        """What the prompt says, messages one after another."""
        return "\n".join(self.messages)

    @property
    def messages(self) -> tuple[str, ...]:
        """What each message says; a prompt that is a text is one."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        return tuple("" if message["content"] is None else str(message["content"]) for message in self.prompt)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95 %; all of [0, 1] where nothing was scored."""
        return wilson(self.correct, self.scored) if self.scored else (0.0, 1.0)

    def row(self) -> dict[str, Any]:
        """What `Environment.from_rows` reads: prompt and reference; the rest becomes its meta.

        Without rollouts the rates are those that its row came with, if any.
        """
        own = {"id": self.id, "prompt": self.prompt, "reference": self.reference}
        row = {**own, **self.meta, **own}
        if not self.scored + self.unscored:
            return row
        low, high = self.interval
        rates = {"pass_rate": self.correct / self.scored if self.scored else None, "pass_low": low, "pass_high": high}
        return {**row, **rates, "correct": self.correct, "scored": self.scored, "unscored": self.unscored}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A task that goes, and why: `"reason: text"`."""

    task: Kept
    why: str

    @property
    def reason(self) -> str:
        """The countable part."""
        return self.why.partition(":")[0]

    def row(self) -> dict[str, Any]:
        """The task, and why it went."""
        return {"why": self.why, **self.task.row()}


# Of a record these belong to the rollout or the run; every other column is the task's.
_OF_THE_ROLLOUT: Final = frozenset(
    "outcome total parts value why answer detail completion length_tokens truncated env config verifier reward rlvr "
    "versions row".split()
)
_OF_THE_TASK: Final = frozenset({"id", "task", "reference", "meta"})


@dataclass(slots=True)
class _Tasks:
    """Rollouts gathered by task, in the order in which tasks come up.

    Args:
        column: where prompts stand.
        needed: is there anything that prompts are asked for?
        held: is it said that a task is kept only if its prompt could be looked at?
    """

    column: str
    needed: bool
    held: bool
    by_key: dict[str, Kept] = field(default_factory=dict)

    def add(self, row: Row, number: int) -> None:
        """One row more.

        Raises:
            DataError: it is neither a record nor a task.
        """
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is {brief(row)}; it must be a mapping of columns")
        if "reference" not in row:
            raise DataError(
                f"row {number} has no column 'reference'; give what `rlvr score` wrote, or tasks with theirs"
            )
        prompt, is_rollout = self._prompt(row, number), "outcome" in row
        outcome = _outcome(row["outcome"], number) if is_rollout else None
        first, second = ("task", "id") if is_rollout else ("id", "task")
        own = next((str(row[name]) for name in (first, second) if row.get(name) is not None), f"row:{number}")
        # Rows that bring their own reference may all be called "row"; and completions without a task have ids.
        named = own if row.get("task") not in (None, "row") or not prompt else None
        alone = None if is_rollout else number  # no rollout: a task of its own, if only to be a duplicate
        key = json.dumps([named, prompt, row["reference"], alone], sort_keys=True, default=str)
        task = self.by_key.get(key)
        if task is None:
            task = self.by_key[key] = Kept(own, prompt, row["reference"], self._meta(row, number, is_rollout))
        task.unscored += outcome is Outcome.UNSCORED
        task.scored += outcome not in (None, Outcome.UNSCORED)
        task.correct += outcome is Outcome.CORRECT

    def _prompt(self, row: Row, number: int) -> Prompt:
        if self.column not in row and self.needed:
            raise DataError(
                f"row {number} has no column {self.column!r}; it has {', '.join(map(repr, row))}: name that of the "
                "prompts with --prompt-column, or ask neither for tests nor for duplicates"
            )
        prompt = row.get(self.column)
        prompt = "" if prompt is None else prompt
        if not (isinstance(prompt, str) or (isinstance(prompt, (list, tuple)) and all(map(_is_message, prompt)))):
            raise DataError(
                f"row {number}: the prompt is {brief(prompt)}; it must be a text, or a list of messages with 'content'"
            )
        if not prompt and self.held:
            raise DataError(f"row {number} has an empty prompt, which can be held against no test")
        return prompt

    def _meta(self, row: Row, number: int, is_rollout: bool) -> dict[str, Any]:
        meta = {} if row.get("meta") is None else row["meta"]
        if not isinstance(meta, Mapping):
            raise DataError(f"row {number}: meta is {brief(meta)}; it must be an object of names and values")
        passed = _OF_THE_TASK | {self.column} | (_OF_THE_ROLLOUT if is_rollout else frozenset())
        return {**meta, **{name: value for name, value in row.items() if name not in passed}}


def filter_tasks(
    rows: Iterable[Row], limits: Limits | None = None, tests: Sequence[str] = (), *, prompt: str = "prompt"
) -> tuple[list[Kept], list[Dropped]]:
    """Sort tasks into those that stay and those that go.

    Contamination is looked at first, then duplicates, then rates: a task goes for the first reason that holds.

    Args:
        rows: records of `rlvr score`; or tasks with a prompt and `reference`, where no rate is asked for.
        tests: prompts of a test set that must not be trained on.
        prompt: the column of the prompts.

    Raises:
        DataError: a row that is neither, or rates are asked for and no row has an outcome.
    """
    limits = limits or Limits()
    needed = bool(tests) or limits.duplicates or limits.near is not None
    gathered = _Tasks(prompt, needed, bool(tests))
    for number, row in enumerate(rows, 1):
        gathered.add(row, number)
    tasks = list(gathered.by_key.values())
    if limits.by_rate and tasks and not any(task.scored + task.unscored for task in tasks):
        raise DataError("no row has an outcome, so that there are no pass rates: give what `rlvr score` wrote")
    _unique_ids(tasks)
    why: dict[Kept, str] = {}
    for look in (_contaminated(tasks, tests, limits), _repeated(tasks, limits), _by_rate(tasks, limits)):
        for task, reason in look:
            why.setdefault(task, reason)
    dropped = [Dropped(task, why[task]) for task in tasks if task in why]
    return [task for task in tasks if task not in why], dropped


def _contaminated(tasks: Sequence[Kept], tests: Sequence[str], limits: Limits) -> Iterator[tuple[Kept, str]]:
    shared = Shared(tests, limits.ngram).found_in([task.messages for task in tasks]) if tests else ()
    for task, hit in zip(tasks, shared, strict=False):
        if hit is not None:
            yield task, f"contaminated: shares {hit[0]!r} with the test {hit[1][:200]!r}"


def _repeated(tasks: Sequence[Kept], limits: Limits) -> Iterator[tuple[Kept, str]]:
    asked = [task for task in tasks if task.text.strip()]
    if limits.duplicates:
        first: dict[tuple[str, ...], Kept] = {}
        for task in asked:
            known = first.setdefault(folded(task.text), task)
            if known is not task:
                differs = " and another reference" if known.reference != task.reference else ""
                yield task, f"duplicate: has the prompt of {known.id!r}{differs}"
    if limits.near is not None:
        for earlier, later in near_duplicates([task.text for task in asked], limits.near):
            yield asked[later], f"near-duplicate: much like {asked[earlier].id!r}"


def _by_rate(tasks: Sequence[Kept], limits: Limits) -> Iterator[tuple[Kept, str]]:
    if not limits.by_rate:
        return
    for task in tasks:
        if task.scored < max(limits.min_n, 1):
            yield task, f"too-few: {task.scored} scored rollouts, {task.unscored} unscored"
            continue
        rate, (low, high) = task.correct / task.scored, task.interval
        least, most = (rate, rate) if limits.by == "rate" else (low, high)
        said = f"{task.correct} of {task.scored} correct, interval [{low:.3f}, {high:.3f}]"
        if most < limits.min_rate:
            yield task, f"too-hard: {said}"
        elif least > limits.max_rate:
            yield task, f"too-easy: {said}"


def _unique_ids(tasks: Sequence[Kept]) -> None:
    """Rows that bring their own reference may all be called "row"; an environment's tasks must not."""
    count = Counter(task.id for task in tasks)
    taken = set(count)
    for number, task in enumerate(tasks, 1):
        if count[task.id] > 1:
            tried = (f"{task.id}#{number}{'+' * more}" for more in itertools.count())
            task.id = next(name for name in tried if name not in taken)
            taken.add(task.id)


def _outcome(value: Any, number: int) -> Outcome:
    try:
        return Outcome(value)
    except ValueError as error:
        raise DataError(f"row {number}: {error}") from None


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "content" in value
