"""Keeps tasks that are worth training on: by pass rate, without duplicates,
without those of a test set.

    rows ─▶ tasks with their rollouts counted, in a temporary file
         ─▶ why some are dropped ─▶ each task, in order

Ids, counts and reasons are in memory, a few hundred bytes for each task; prompts and all else are
on disk.  Prompts are compared in several processes, with the same result for any number of them.

A task that every rollout solves, or none, does not train a policy: all advantages of its group are
0.  UNSCORED rollouts are no failures of the policy and do not count.
"""

from __future__ import annotations

import itertools
import json
import pickle
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from rlvr.data.lines import Line, Row
from rlvr.data.overlap import TestSetOverlap, digest_of, fold_text, near_duplicates
from rlvr.data.parallel import in_chunks, map_chunks
from rlvr.data.rows import usable
from rlvr.data.strengths import Strengths
from rlvr.data.tokens import PromptFrame, lengths, load_fast_tokenizer
from rlvr.errors import DataError, UsageError, brief, foreign_code
from rlvr.types import JsonDict, Outcome, Prompt
from rlvr.validate import require_number, require_one_of, require_optional_whole, require_whole
from rlvr.workers import ship

__all__ = ["DroppedTask", "FilterRules", "Kept", "filter_rows", "filter_tasks", "key_of_task"]


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The rules that a task must meet to be kept.

    Attributes:
        min_rate, max_rate: limits of the pass rate, the share of correct rollouts; both are
            allowed.
        min_n: least number of scored rollouts.
        by: "rate" compares k/n with the limits; "interval" drops a task only if its whole 95 %
            interval lies outside, so that a few unlucky rollouts do not drop it.
        duplicates: of tasks with the same prompt, apart from case and the punctuation of sentences,
            keep the first.
        near: of tasks that share at least this part of their 5-grams, such as 0.8, keep the first;
            None to keep all.
        ngram: number of words in a row that a task must not share with a test: 13, as for GPT-3
            (arXiv:2005.14165, C); of a shorter test all its words, from 4 up.
        max_characters: the most characters that a prompt may have, messages together; None for any
            number.
        max_tokens: the most tokens that a prompt may have, messages together; None for any number.
        tokenizer: counts them: a file tokenizer.json, the folder of a model, or its id on the hub.
        frame: what the chat template adds to a prompt, which counts too; None for nothing.
        strengths: the report of `rlvr strength` on these tasks; None if no rule looks at it.
        min_strength: least strength; a task that was not tested is dropped.  With `by="interval"`
            only a task whose whole interval lies below.

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
    max_characters: int | None = None
    max_tokens: int | None = None
    tokenizer: str | None = None
    frame: PromptFrame | None = None
    strengths: Strengths | None = None
    min_strength: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_rate <= self.max_rate <= 1:  # false for NaN
            raise UsageError(
                f"rates from {self.min_rate!r} to {self.max_rate!r}: give 0 <= min_rate <= "
                f"max_rate <= 1"
            )
        require_whole("min_n", self.min_n, 0)
        require_one_of("by", self.by, ("rate", "interval"))
        if self.near is not None:
            require_number("near", self.near, most=1, above=0, hint="or None")
        require_whole("ngram", self.ngram, 1)
        require_optional_whole("max_characters", self.max_characters, 1, none="any number")
        require_optional_whole("max_tokens", self.max_tokens, 1, none="any number")
        if (self.max_tokens is None) != (self.tokenizer is None):
            raise UsageError(
                "max_tokens and tokenizer go together: the limit, and the model whose tokens are "
                "counted"
            )
        require_number("min_strength", self.min_strength, 0, 1)
        if (self.strengths is None) != (self.min_strength == 0):
            raise UsageError(
                "a report of strength and min_strength go together: what was measured, and the "
                "limit, above 0"
            )

    @property
    def looks_at_prompts(self) -> bool:
        """Whether a rule looks at the prompt of a task."""
        limits = (self.near, self.max_characters, self.max_tokens)
        return self.duplicates or any(limit is not None for limit in limits)

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
    meta: JsonDict
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
        return tuple(
            "" if message["content"] is None else str(message["content"]) for message in self.prompt
        )

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the pass rate; [0, 1] if nothing was scored."""
        from rlvr.statistics import wilson  # numpy takes 0.1 s, which no help text should

        return wilson(self.correct, self.scored) if self.scored else (0.0, 1.0)

    def row(self) -> JsonDict:
        """The task as a row for `Environment.from_rows`: prompt and reference; the rest becomes its
        meta.

        A task without rollouts keeps the rates of the row that it came from, if any.
        """
        own_columns = {"id": self.id, "prompt": self.prompt, "reference": self.reference}
        row = {**own_columns, **self.meta, **own_columns}
        if not self.scored + self.unscored:
            return row
        low, high = self.interval
        rates = {
            "pass_rate": self.correct / self.scored if self.scored else None,
            "pass_low": low,
            "pass_high": high,
        }
        return {
            **row,
            **rates,
            "correct": self.correct,
            "scored": self.scored,
            "unscored": self.unscored,
        }


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

    def row(self) -> JsonDict:
        """The task as a row, with `why`."""
        return {"why": self.why, **self.task.row()}


# The columns of a record that belong to the rollout or the run; all others belong to the task.
_OF_THE_ROLLOUT: Final = frozenset(
    "outcome total parts value why answer detail completion length_tokens truncated env config "
    "verifier reward rlvr versions row".split()
)
_OF_THE_TASK: Final = frozenset({"id", "task", "reference", "meta"})


class _Tasks:
    """Rollouts gathered by task, in the order in which tasks come up.  The tasks themselves
    are in a temporary file.

    Args:
        column: the column of the prompts.
        needed: whether rows must have a prompt, since a rule looks at it.
        compared_with_tests: whether prompts are compared with a test set, so that an empty one is
            an error.
    """

    def __init__(self, column: str, needed: bool, compared_with_tests: bool) -> None:
        self.column, self.needed, self.compared_with_tests = column, needed, compared_with_tests
        self.ids: list[str] = []
        self._places: dict[bytes, int] = {}  # by a digest of all that makes a task
        self._starts = array("Q")
        self._correct, self._scored, self._unscored = array("I"), array("I"), array("I")
        # Without a name: nothing is left of it, however this process ends.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `__exit__`

    def __enter__(self) -> _Tasks:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Kept]:
        """All tasks.  Others may be looked up meanwhile."""
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> Kept:
        start = self._starts[place]
        if self._file.tell() != start:  # in order, one is where the one before it ends
            self._file.seek(start)
        task: Kept = pickle.load(self._file)  # noqa: S301  our own file, which has no name
        task.id = self.ids[place]
        task.correct, task.scored, task.unscored = (
            self._correct[place],
            self._scored[place],
            self._unscored[place],
        )
        return task

    @property
    def rolled_out(self) -> bool:
        """Whether any task has rollouts."""
        return any(self._scored) or any(self._unscored)

    def rates(self, place: int) -> Kept:
        """A task's counts, without the task.

        Args:
            place: of the task.
        """
        counts = self._correct[place], self._scored[place], self._unscored[place]
        return Kept(self.ids[place], "", None, {}, *counts)

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
                f"row {number} has no column 'reference'; give what `rlvr score` wrote, or tasks "
                f"with theirs"
            )
        prompt, is_rollout = self._prompt(row, number), "outcome" in row
        outcome = _outcome(row["outcome"], number) if is_rollout else None
        first, second = ("task", "id") if is_rollout else ("id", "task")
        task_id = next(
            (str(row[name]) for name in (first, second) if row.get(name) is not None),
            f"row:{number}",
        )
        # A row that is no rollout is a task of its own, which may be a duplicate.
        key = key_of_task(row, task_id, prompt, None if is_rollout else number)
        place = self._places.get(key)
        if place is None:
            # First what can fail: a row that is left out has no place.
            task = Kept(task_id, prompt, row["reference"], self._meta(row, number, is_rollout))
            place = self._places[key] = len(self)
            self._starts.append(self._file.tell())
            self._file.write(_pickle_task(task))
            self.ids.append(task_id)
            for counts in (self._correct, self._scored, self._unscored):
                counts.append(0)
        self._unscored[place] += outcome is Outcome.UNSCORED
        self._scored[place] += outcome not in (None, Outcome.UNSCORED)
        self._correct[place] += outcome is Outcome.CORRECT

    def gathered(self) -> None:
        """No row follows: forget what they were compared with, and make ids unique.

        Rows with their own reference may all be called "row"; tasks of an environment must not.
        """
        self._places.clear()
        count = Counter(self.ids)
        # `a#2` may be the id of another task.
        used_ids = set(count)
        for place, name in enumerate(self.ids):
            if count[name] > 1:
                tried = (f"{name}#{place + 1}{'+' * pluses}" for pluses in itertools.count())
                self.ids[place] = next(
                    candidate for candidate in tried if candidate not in used_ids
                )
                used_ids.add(self.ids[place])

    def _prompt(self, row: Row, number: int) -> Prompt:
        if self.column not in row and self.needed:
            raise DataError(
                f"row {number} has no column {self.column!r}; it has {', '.join(map(repr, row))}: "
                "name that of the prompts with --prompt-column, or look for neither tests nor "
                "duplicates"
            )
        prompt = row.get(self.column)
        prompt = "" if prompt is None else prompt
        if not (
            isinstance(prompt, str)
            or (isinstance(prompt, (list, tuple)) and all(map(_is_message, prompt)))
        ):
            raise DataError(
                f"row {number}: the prompt is {brief(prompt)}; it must be a text, or a list of "
                f"messages with 'content'"
            )
        if not prompt and self.compared_with_tests:
            raise DataError(
                f"row {number} has an empty prompt, which cannot be compared with a test"
            )
        return prompt

    def _meta(self, row: Row, number: int, is_rollout: bool) -> dict[str, object]:
        meta = {} if row.get("meta") is None else row["meta"]
        if not isinstance(meta, Mapping):
            raise DataError(
                f"row {number}: meta is {brief(meta)}; it must be an object of names and values"
            )
        passed = _OF_THE_TASK | {self.column} | (_OF_THE_ROLLOUT if is_rollout else frozenset())
        return {**meta, **{name: value for name, value in row.items() if name not in passed}}


def key_of_task(row: Row, own: str, prompt: Prompt, alone: int | None = None) -> bytes:
    """What the rows of one task have in common: its id, prompt and reference.

    Args:
        row: a record or a task.
        own: id of the task, or of the row if it names no task.
        prompt: "" if the row has none.
        alone: tells the row from others that are alike; None for a rollout of the same task.
    """
    # Rows that name no task are told apart by prompt and reference.
    # Rows that bring their own reference may all be called "row"; and completions without a task
    # have ids.
    named = own if row.get("task") not in (None, "row") or not prompt else None
    return digest_of(
        [json.dumps([named, prompt, row.get("reference"), alone], sort_keys=True, default=str)]
    )


def filter_tasks(
    rows: Iterable[Row],
    rules: FilterRules | None = None,
    tests: Sequence[str] = (),
    *,
    prompt: str = "prompt",
    processes: int | None = None,
) -> tuple[list[Kept], list[DroppedTask]]:
    """Split tasks into those that are kept and those that are dropped; `filtered` does not hold
    them all in memory.

    Args:
        rows, rules, tests, prompt, processes: see `filtered`.

    Returns:
        The tasks that are kept and those that are dropped, each in the order of the rows.

    Raises:
        DataError: see `filter_rows`.
    """
    kept_tasks: list[Kept] = []
    dropped: list[DroppedTask] = []
    for task in filter_rows(rows, rules, tests, prompt=prompt, processes=processes):
        if isinstance(task, Kept):
            kept_tasks.append(task)
        else:
            dropped.append(task)
    return kept_tasks, dropped


def filter_rows(
    rows: Iterable[Row | Line],
    rules: FilterRules | None = None,
    tests: Sequence[str] = (),
    *,
    prompt: str = "prompt",
    processes: int | None = None,
    left_out: Callable[[Line, str], object] | None = None,
) -> Iterator[Kept | DroppedTask]:
    """Every task in the order of the rows, kept or dropped.  All rows are read before the first
    comes.

    Contamination is checked first, then duplicates, lengths, strength, and rates: a task is dropped
    for the first reason that holds.

    Args:
        rows: records of `rlvr score`; or tasks with a prompt and `reference`, if no rule looks at
            rollouts; as mappings, or as lines of a file.
        rules: the rules; by default only duplicates are dropped.
        tests: prompts of a test set that must not be trained on.
        prompt: the column of the prompts.
        processes: number of processes that compare prompts; None for one per core, 0 for this one.
        left_out: is told each row that is neither, and why; None if the first is an error.

    Raises:
        DataError: no row can be used, or, without `left_out`, one cannot; or a rule looks at
            rollouts and no row has an outcome.
    """
    rules = rules or FilterRules()
    if rules.tokenizer is not None:
        # so that one that is not there is said before a million rows are read
        load_fast_tokenizer(rules.tokenizer)
    with _Tasks(prompt, bool(tests) or rules.looks_at_prompts, bool(tests)) as tasks:
        lines = (
            row if isinstance(row, Line) else Line(number, row)
            for number, row in enumerate(rows, 1)
        )
        for _ in usable(lines, tasks.add, "the rows", left_out):
            pass
        if rules.need_rollouts and len(tasks) and not tasks.rolled_out:
            raise DataError(
                "no row has an outcome, so that there are no pass rates: give what `rlvr score` "
                "wrote"
            )
        tasks.gathered()
        why: dict[int, str] = {}
        for outcomes in (
            _find_contaminated(tasks, tests, rules, processes),
            _find_repeated(tasks, rules, processes),
            _too_long(tasks, rules, processes),
            _too_weak(tasks, rules),
            _outside_rates(tasks, rules),
        ):
            for place, reason in outcomes:
                # The first reason stays: the rules are asked in the order of the docstring.
                why.setdefault(place, reason)
        for place, task in enumerate(tasks):
            yield DroppedTask(task, why[place]) if place in why else task


def _find_contaminated(
    tasks: _Tasks, tests: Sequence[str], rules: FilterRules, processes: int | None
) -> Iterator[tuple[int, str]]:
    if not tests:
        return
    shared = TestSetOverlap(tests, rules.ngram).find(
        (task.messages for task in tasks), processes=processes
    )
    for place, hit in enumerate(shared):
        if hit is not None:
            yield place, f"contaminated: shares {hit[0]!r} with the test {hit[1][:200]!r}"


def _find_repeated(
    tasks: _Tasks, rules: FilterRules, processes: int | None
) -> Iterator[tuple[int, str]]:
    if rules.duplicates:
        first: dict[bytes, int] = {}
        places, pairs = array("I"), array("I")
        chunks = map_chunks(_digests, in_chunks(_prompts_of(tasks, places)), processes)
        for index, digest in enumerate(
            itertools.chain.from_iterable(digests for _, digests in chunks)
        ):
            first_place = first.setdefault(bytes.fromhex(digest), places[index])
            if first_place != places[index]:
                pairs.extend((first_place, places[index]))
        first.clear()
        for earlier, later in zip(pairs[::2], pairs[1::2], strict=True):
            differs = (
                " and another reference"
                if tasks[earlier].reference != tasks[later].reference
                else ""
            )
            yield later, f"duplicate: has the prompt of {tasks.ids[earlier]!r}{differs}"
    if rules.near is not None:
        places = array("I")
        for earlier, later in near_duplicates(
            _prompts_of(tasks, places), rules.near, processes=processes
        ):
            yield places[later], f"near-duplicate: much like {tasks.ids[places[earlier]]!r}"


def _prompts_of(tasks: _Tasks, places: array[int]) -> Iterator[str]:
    """The prompts that are not empty; the places of their tasks are added to `places`."""
    for place, task in enumerate(tasks):
        if task.text.strip():
            places.append(place)
            yield task.text


def _digests(texts: Sequence[str]) -> list[str]:
    return [digest_of(fold_text(text)).hex() for text in texts]


def _too_long(
    tasks: _Tasks, rules: FilterRules, processes: int | None
) -> Iterator[tuple[int, str]]:
    if rules.max_characters is not None:
        for place, task in enumerate(tasks):
            if len(task.text) > rules.max_characters:
                yield place, f"too-long: {len(task.text)} characters"
    if rules.max_tokens is not None and rules.tokenizer is not None:
        places = array("I")
        chunks = map_chunks(
            partial(lengths, rules.tokenizer, rules.frame),
            in_chunks(_prompts_of(tasks, places)),
            processes,
        )
        for index, count in enumerate(
            itertools.chain.from_iterable(counts for _, counts in chunks)
        ):
            if count > rules.max_tokens:
                yield places[index], f"too-long: {count} tokens"


def _too_weak(tasks: _Tasks, rules: FilterRules) -> Iterator[tuple[int, str]]:
    if rules.strengths is None:
        return
    for place, task in enumerate(tasks):
        strength = rules.strengths.of(task.id, task.reference)
        if strength is None or strength.value is None:
            yield place, "untested: its strength was not measured"
        # By the interval: a task is dropped only if even its upper end is too low.
        elif (strength.value if rules.by == "rate" else strength.high) < rules.min_strength:
            interval = f"[{strength.low:.3f}, {strength.high:.3f}]"
            yield place, f"too-weak: strength {strength.value:.3f}, interval {interval}"


def _outside_rates(tasks: _Tasks, rules: FilterRules) -> Iterator[tuple[int, str]]:
    if not rules.need_rollouts:
        return
    for place in range(len(tasks)):
        task = tasks.rates(place)
        # UNSCORED rollouts are our failures and count for nothing.
        if task.scored < max(rules.min_n, 1):
            yield place, f"too-few: {task.scored} scored rollouts, {task.unscored} unscored"
            continue
        rate, (low, high) = task.correct / task.scored, task.interval
        lowest, highest = (rate, rate) if rules.by == "rate" else (low, high)
        counts = f"{task.correct} of {task.scored} correct, interval [{low:.3f}, {high:.3f}]"
        if highest < rules.min_rate:
            yield place, f"too-hard: {counts}"
        elif lowest > rules.max_rate:
            yield place, f"too-easy: {counts}"


def _pickle_task(task: Kept) -> bytes:
    with foreign_code():  # a row may hold anything
        return pickle.dumps(task)
    # cloudpickle takes what pickle does not.
    return ship(task)  # takes ten times as long


def _outcome(value: Any, number: int) -> Outcome:
    try:
        return Outcome(value)
    except ValueError as error:
        raise DataError(f"row {number}: {error}") from None


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and "content" in value
