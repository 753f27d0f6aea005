"""Keeps tasks that are worth training on: by pass rate, without duplicates, without those of a test set.

A task that every rollout solves, or none, does not train a policy: all advantages of its group are 0.  UNSCORED
rollouts are no failures of the policy and do not count.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rlvr.data.lines import Row
from rlvr.data.overlap import TestSetOverlap, folded, near_duplicates
from rlvr.errors import DataError, UsageError, brief
from rlvr.statistics import wilson
from rlvr.types import Outcome, Prompt
from rlvr.validate import require_number, require_one_of, require_whole

__all__ = ["DroppedTask", "FilterRules", "Kept", "filter_tasks"]


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The rules that a task must meet to be kept.

    Attributes:
        min_rate, max_rate: limits of the pass rate, the share of correct rollouts; both are allowed.
        min_n: least number of scored rollouts.
        by: "rate" compares k/n with the limits; "interval" drops a task only if its whole 95 % interval lies outside,
            so that a few unlucky rollouts do not drop it.
        duplicates: of tasks with the same prompt, apart from case and the punctuation of sentences, keep the first.
        near: of tasks that share at least this part of their 5-grams, such as 0.8, keep the first; None to keep all.
        ngram: number of words in a row that a task must not share with a test: 13, as for GPT-3 (arXiv:2005.14165, C);
            of a shorter test all its words, from 4 up.

    Raises:
        UsageError: a number is out of range.
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
        require_whole("min_n", self.min_n, 0)
        require_one_of("by", self.by, ("rate", "interval"))
        if self.near is not None:
            require_number("near", self.near, most=1, above=0, hint="or None")
        require_whole("ngram", self.ngram, 1)

    @property
    def need_rollouts(self) -> bool:
        """Whether a rule looks at the rollouts of a task."""
        return self.min_rate > 0 or self.max_rate < 1 or self.min_n > 0


@dataclass(slots=True, eq=False)
class Kept:
    """A task with its rollouts counted.

    Attributes:
        id: of the task.
        prompt: "" if its records have none.
        reference: the trusted answer.
        meta: what else is known of the task: its meta, and other columns of its row.
        correct, scored, unscored: numbers of rollouts; `scored` does not count the unscored ones.
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
        """The prompt as one text, messages one after another."""
        return "\n".join(self.messages)

    @property
    def messages(self) -> tuple[str, ...]:
        """The text of each message; a prompt that is a text is one message."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        return tuple("" if message["content"] is None else str(message["content"]) for message in self.prompt)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the pass rate; [0, 1] if nothing was scored."""
        return wilson(self.correct, self.scored) if self.scored else (0.0, 1.0)

    def row(self) -> dict[str, Any]:
        """The task as a row for `Environment.from_rows`: prompt and reference; the rest becomes its meta.

        A task without rollouts keeps the rates of the row that it came from, if any.
        """
        own = {"id": self.id, "prompt": self.prompt, "reference": self.reference}
        row = {**own, **self.meta, **own}
        if not self.scored + self.unscored:
            return row
        low, high = self.interval
        rates = {"pass_rate": self.correct / self.scored if self.scored else None, "pass_low": low, "pass_high": high}
        return {**row, **rates, "correct": self.correct, "scored": self.scored, "unscored": self.unscored}


@dataclass(frozen=True, slots=True)
class DroppedTask:
    """A task that is dropped.

    Attributes:
        task: with its rollouts counted.
        why: `"reason: text"`.
    """

    task: Kept
    why: str

    @property
    def reason(self) -> str:
        """The part of `why` that can be counted."""
        return self.why.partition(":")[0]

    def row(self) -> dict[str, Any]:
        """The task as a row, with `why`."""
        return {"why": self.why, **self.task.row()}


# The columns of a record that belong to the rollout or the run; all others belong to the task.
_OF_THE_ROLLOUT: Final = frozenset(
    "outcome total parts value why answer detail completion length_tokens truncated env config verifier reward rlvr "
    "versions row".split()
)
_OF_THE_TASK: Final = frozenset({"id", "task", "reference", "meta"})


@dataclass(slots=True)
class _Tasks:
    """Rollouts gathered by task, in the order in which tasks come up.

    Args:
        column: the column of the prompts.
        needed: whether rows must have a prompt, since a rule looks at it.
        compared_with_tests: whether prompts are compared with a test set, so that an empty one is an error.
    """

    column: str
    needed: bool
    compared_with_tests: bool
    by_key: dict[str, Kept] = field(default_factory=dict)

    def add(self, row: Row, number: int) -> None:
        """Count a row.

        Args:
            row: a record or a task.
            number: of the row, counted from 1.

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
        alone = (
            None if is_rollout else number
        )  # a row that is no rollout is a task of its own, which may be a duplicate
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
                "prompts with --prompt-column, or look for neither tests nor duplicates"
            )
        prompt = row.get(self.column)
        prompt = "" if prompt is None else prompt
        if not (isinstance(prompt, str) or (isinstance(prompt, (list, tuple)) and all(map(_is_message, prompt)))):
            raise DataError(
                f"row {number}: the prompt is {brief(prompt)}; it must be a text, or a list of messages with 'content'"
            )
        if not prompt and self.compared_with_tests:
            raise DataError(f"row {number} has an empty prompt, which cannot be compared with a test")
        return prompt

    def _meta(self, row: Row, number: int, is_rollout: bool) -> dict[str, Any]:
        meta = {} if row.get("meta") is None else row["meta"]
        if not isinstance(meta, Mapping):
            raise DataError(f"row {number}: meta is {brief(meta)}; it must be an object of names and values")
        passed = _OF_THE_TASK | {self.column} | (_OF_THE_ROLLOUT if is_rollout else frozenset())
        return {**meta, **{name: value for name, value in row.items() if name not in passed}}


def filter_tasks(
    rows: Iterable[Row], rules: FilterRules | None = None, tests: Sequence[str] = (), *, prompt: str = "prompt"
) -> tuple[list[Kept], list[DroppedTask]]:
    """Split tasks into those that are kept and those that are dropped.

    Contamination is checked first, then duplicates, then rates: a task is dropped for the first reason that holds.

    Args:
        rows: records of `rlvr score`; or tasks with a prompt and `reference`, if no rule looks at rollouts.
        rules: the rules; by default only duplicates are dropped.
        tests: prompts of a test set that must not be trained on.
        prompt: the column of the prompts.

    Returns:
        The tasks that are kept and those that are dropped, each in the order of the rows.

    Raises:
        DataError: a row is neither, or a rule looks at rollouts and no row has an outcome.
    """
    rules = rules or FilterRules()
    needed = bool(tests) or rules.duplicates or rules.near is not None
    gathered = _Tasks(prompt, needed, bool(tests))
    for number, row in enumerate(rows, 1):
        gathered.add(row, number)
    tasks = list(gathered.by_key.values())
    if rules.need_rollouts and tasks and not any(task.scored + task.unscored for task in tasks):
        raise DataError("no row has an outcome, so that there are no pass rates: give what `rlvr score` wrote")
    _unique_ids(tasks)
    why: dict[Kept, str] = {}
    for found in (_contaminated(tasks, tests, rules), _repeated(tasks, rules), _outside_rates(tasks, rules)):
        for task, reason in found:
            why.setdefault(task, reason)
    dropped = [DroppedTask(task, why[task]) for task in tasks if task in why]
    return [task for task in tasks if task not in why], dropped


def _contaminated(tasks: Sequence[Kept], tests: Sequence[str], rules: FilterRules) -> Iterator[tuple[Kept, str]]:
    shared = TestSetOverlap(tests, rules.ngram).find([task.messages for task in tasks]) if tests else ()
    for task, hit in zip(tasks, shared, strict=False):
        if hit is not None:
            yield task, f"contaminated: shares {hit[0]!r} with the test {hit[1][:200]!r}"


def _repeated(tasks: Sequence[Kept], rules: FilterRules) -> Iterator[tuple[Kept, str]]:
    asked = [task for task in tasks if task.text.strip()]
    if rules.duplicates:
        first: dict[tuple[str, ...], Kept] = {}
        for task in asked:
            known = first.setdefault(folded(task.text), task)
            if known is not task:
                differs = " and another reference" if known.reference != task.reference else ""
                yield task, f"duplicate: has the prompt of {known.id!r}{differs}"
    if rules.near is not None:
        for earlier, later in near_duplicates([task.text for task in asked], rules.near):
            yield asked[later], f"near-duplicate: much like {asked[earlier].id!r}"


def _outside_rates(tasks: Sequence[Kept], rules: FilterRules) -> Iterator[tuple[Kept, str]]:
    if not rules.need_rollouts:
        return
    for task in tasks:
        if task.scored < max(rules.min_n, 1):
            yield task, f"too-few: {task.scored} scored rollouts, {task.unscored} unscored"
            continue
        rate, (low, high) = task.correct / task.scored, task.interval
        least, most = (rate, rate) if rules.by == "rate" else (low, high)
        counts = f"{task.correct} of {task.scored} correct, interval [{low:.3f}, {high:.3f}]"
        if most < rules.min_rate:
            yield task, f"too-hard: {counts}"
        elif least > rules.max_rate:
            yield task, f"too-easy: {counts}"


def _unique_ids(tasks: Sequence[Kept]) -> None:
    """Make ids unique: rows with their own reference may all be called "row", tasks of an environment must not."""
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
