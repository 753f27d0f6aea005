"""The findings of a check: each hole by name, with a completion that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from rlvr.errors import UsageError
from rlvr.types import JsonObject
from rlvr.validate import nearest

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Breach",
    "CHECKS",
    "CheckReport",
    "Finding",
    "Findings",
    "HOLES",
    "Severity",
    "describe_exception",
]

Breach: TypeAlias = tuple[str, str, str, str]
"""A finding as another process gives it: hole, severity, what, got."""

CHECKS: Final = ("tasks", "references", "exploits", "verifier", "repeats", "episodes", "labels")
"""The groups of checks, in the order in which they run."""

_LONGEST = 500  # characters of a result: its reason may quote the whole completion


def describe_exception(error: BaseException) -> str:
    """An exception as text: its type and message.

    Args:
        error: the exception.
    """
    return f"{type(error).__name__}: {error}"


class Severity(StrEnum):
    """How serious a finding is.  Holes and warnings fail a check, notes do not."""

    HOLE = "hole"  # a policy can earn a reward that it does not deserve, or the contract is broken
    WARNING = "warning"  # rewards or punishes something that was probably not intended
    NOTE = "note"  # for information


_TASKS: Final = {
    "tasks-raise": "tasks cannot be made",
    "no-tasks": "there are no tasks",
    "not-a-task": "something other than a Task is among the tasks",
    "duplicate-ids": "two tasks have the same id",
    "unrecordable": "a task cannot be recorded as JSON, or is read back as something else",
    "tasks-differ": "tasks are made differently in another process, or the second time",
    "index-disagrees": "task(index) and tasks() disagree",
    "split-raises": "making the other split fails with an error other than UsageError",
    "split-overlap": "two splits share tasks",
    "duplicate-tasks": "two tasks have the same prompt",
    "near-duplicates": "two tasks have nearly the same prompt",
    "contradiction": "two tasks have the same prompt and different references",
    "constant-answer": "one answer is right for most tasks",
}
_REFERENCES: Final = {
    "reference-unreadable": "the verifier cannot read a reference",
    "reference-as-text": "a reference can only be compared as text",
    "no-example": "example(task) gives no completion that is known to be right",
    "example-raises": "example(task) raises, or does not return a text",
    "reference-rejected": "the example, which should be right, is not CORRECT",
    "reference-partial": "the example is CORRECT with less than full credit",
    "reference-below-maximum": "the example earns less than the reward's upper bound",
    "checker-accepts": "a task's checker or interactor accepts what cannot be right, in every case",
    "checker-rejects": "a task's checker or interactor does not accept what is known to be right",
    "checker-untried": "a task's interactor was not tried with a right program",
}
_EXPLOITS: Final = {
    "empty": "no text at all",
    "whitespace": "only white space",
    "prompt-echo": "the prompt, repeated",
    "other-answer": "the answer to another task",
    "hedge": "the right answer beside a wrong one",
    "several-boxes": "several boxes in one statement, one of them right",
    "candidates": "a list of candidates, one of them right",
    "substring": "a wrong answer that contains the right one",
    "near-miss": "an answer that is off by a little, by its sign, by one digit or one letter",
    "permuted": "the digits of the right answer in another order",
    "not-a-number": "NaN or infinity in the place of an answer",
    "self-graded": "data that say of themselves that they are right",
    "secret-phrase": "a text that stands in the code of the verifier",
    "evaluates": "the text of a completion is run as a program, in the process that scores",
    "format-outweighs": (
        "a wrong answer in the right form earns as much as a right answer without it"
    ),
    "judge-alone": "a judge decides, with no rule before it and no audit of it",
    "restated": "an expression of the prompt, as the answer: the question, given back",
    "thinking-only": "the right answer inside the thinking part alone",
    "format-without-content": "the form that the prompt asks for, with no answer in it",
    "repetition": "one text repeated many times",
    "junk": "a text without an answer",
    "malformed": "broken markup, control characters, digits of other scripts",
    "hostile-math": "an expression made to exhaust time or memory of an evaluator",
    "hostile-code": "a program that attacks its judge instead of solving the problem",
    "look-alike": "the right answer in other characters that look the same",
    "grader-instructions": "instructions to a grader",
    "wrong-work": "work that is wrong, with evidence found without the verifier, is CORRECT",
    "right-work": "work that is right by its making is not CORRECT",
    "searched": "a text that was found by search is CORRECT at three tasks with different answers",
    "partial-credit": "credit for a text that deserves none",
    "outscores-reference": "another completion earns more than the right one",
    "crash": "verifying a completion raises or ends the process",
    "hang": "verifying a completion exceeds the time limit",
    "slow": "verifying a completion takes seconds",
    "unscored": "verify returns UNSCORED, which stands for failures of ours",
    "not-finite": "a value is NaN or infinite",
    "out-of-bounds": "a value or a total is out of its bounds",
    "no-reason": "a verdict has no reason",
}
_VERIFIER: Final = {
    "reference-raises": "a reference of another form is neither read nor refused by DataError",
    "rewritten": "a right answer, rewritten as the verifier declares to take it, is not CORRECT",
    "alternatives": "a right answer beside a wrong one, as 'A or B', is CORRECT",
    "long-text": "a text of up to a megabyte takes more than half a CPU second",
}
_REPEATS: Final = {
    "unpicklable": "the environment cannot be pickled for another process",
    "cannot-start": "the environment cannot be loaded in another process",
    "nondeterministic": "the same completion gets another score in another process or thread",
}
_EPISODES: Final = {
    "reset": "reset does not return what Gymnasium's does",
    "step": "step does not return what Gymnasium's does",
    "episode": "an episode breaks the contract",
    "secret": "what the policy is told, or can ask a tool for, holds the answer",
    "collected-twice": "the same action earns a reward again and again",
    "bought": "a script that tampers with the session is paid",
    "long-reply": "a reply is longer than any context",
    "not-checked": "something was left out",
}
_LABELS: Final = {
    "labelled-wrong": "a completion that was labelled wrong is CORRECT",
    "labelled-right": "a completion that was labelled right is not CORRECT",
}

HOLES: Final[Mapping[str, str]] = {
    **_TASKS,
    **_REFERENCES,
    **_EXPLOITS,
    **_VERIFIER,
    **_REPEATS,
    **_EPISODES,
    **_LABELS,
}
"""The meaning of each name in `Finding.hole`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One hole, warning or note.

    Attributes:
        hole: its name, one of `HOLES`.
        severity: how serious it is.
        what: what happened, in one line.
        task: id of the first task with it; "" if it belongs to no single task.
        completion: what was tried there, shortened.
        got: the result.
        wanted: the result that it should have had.
        count, tried: how often it was found, out of how many tries.
    """

    hole: str
    severity: Severity
    what: str
    task: str = ""
    completion: str = ""
    got: str = ""
    wanted: str = ""
    count: int = 1
    tried: int = 1

    def __str__(self) -> str:
        of = f" ({self.count} of {self.tried})" if self.tried > 1 else ""
        where = f", task {self.task!r}" if self.task else ""
        completion_text = f", {self.completion}" if self.completion else ""
        came = f": {self.got}" if self.got else ""
        due = f"; wanted: {self.wanted}" if self.wanted else ""
        return f"{self.severity} {self.hole}{of}: {self.what}{where}{completion_text}{came}{due}"


class Findings:
    """Collects findings: one for each hole and severity, with its first case and counts.

    "not-checked" has one finding for each reason.

    Args:
        only: checks to run; all of `CHECKS` if empty.
        skip: checks or holes to leave out.

    Raises:
        UsageError: no such check or hole.
    """

    def __init__(self, only: Sequence[str] = (), skip: Sequence[str] = ()) -> None:
        for name in only:
            if name not in CHECKS:
                raise UsageError(
                    f"there is no check {name!r}; the checks are "
                    f"{', '.join(CHECKS)}{nearest(name, CHECKS)}"
                )
        for name in skip:
            if name not in CHECKS and name not in HOLES:
                raise UsageError(
                    f"{name!r} cannot be skipped: it is neither a hole nor one of the checks "
                    f"{', '.join(CHECKS)}"
                    f"{nearest(name, (*CHECKS, *HOLES))}"
                )
        self._only, self._skip = tuple(only) or CHECKS, frozenset(skip)
        self._first: dict[tuple[str, Severity, str], Finding] = {}
        self._count: Counter[tuple[str, Severity, str]] = Counter()
        self._tried: Counter[str] = Counter()

    def wants(self, name: str) -> bool:
        """True if this check should run, or this hole be looked for.

        Args:
            name: of a check or a hole.
        """
        if name in _REFERENCES and name != "no-example" and not self.wants("references"):
            return False  # examples are scored for other checks too
        return name not in self._skip and (name in self._only or name not in CHECKS)

    def tried(self, hole: str) -> None:
        """Count one more try at this hole, whatever its result.

        Args:
            hole: its name.
        """
        self._tried[hole] += 1

    def tries(self, hole: str) -> int:
        """Number of tries at this hole.

        Args:
            hole: its name.
        """
        return self._tried[hole]

    def add(
        self,
        hole: str,
        severity: Severity = Severity.HOLE,
        what: str = "",
        /,
        *,
        task: str = "",
        completion: str = "",
        got: str = "",
        wanted: str = "",
    ) -> None:
        """Add a finding; if the hole was found before, only its count grows.

        Args:
            hole, severity, what, task, completion, got, wanted: see `Finding`; `what` is that of
                `HOLES` if empty.
        """
        assert hole in HOLES
        if self.wants(hole):
            case = Finding(
                hole, severity, what or HOLES[hole], task, completion, got[:_LONGEST], wanted
            )
            key = hole, severity, what if hole == "not-checked" else ""
            self._first.setdefault(key, case)
            self._count[key] += 1

    def listed(self) -> tuple[Finding, ...]:
        """All findings, the worst first, then in the order of `HOLES`."""
        ranks, order = list(Severity), list(HOLES)
        findings = [
            replace(
                first,
                count=self._count[key],
                # Some holes are added without a try of their own.
                tried=max(self._count[key], self._tried[first.hole]),
            )
            for key, first in self._first.items()
        ]
        return tuple(sorted(findings, key=lambda f: (ranks.index(f.severity), order.index(f.hole))))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of checking one environment.

    Attributes:
        env: its id.
        findings: the worst first.
        tasks: number of tasks that were tried.
        completions: number of completions that were scored, without repetitions.
        median_ms, slowest_ms: wall milliseconds of one score, with the overhead of the worker pool.
        took_s: wall seconds of the whole check.
        seed: of the sample.
        config: the environment's options.
        guess: share of the sample for which the commonest answer is right: what a policy earns that
            always says it. None where no short answers are known.
        floor: mean total of an empty completion; None if none was scored.
        rows_left_out: number of rows of the data that could not be used, by an example of each
            reason.
    """

    env: str
    findings: tuple[Finding, ...]
    tasks: int = 0
    completions: int = 0
    median_ms: float = 0.0
    slowest_ms: float = 0.0
    took_s: float = 0.0
    seed: int = 0
    config: JsonObject = field(default_factory=dict)
    guess: float | None = None
    floor: float | None = None
    rows_left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """True if there is neither a hole nor a warning."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def holes(self) -> tuple[str, ...]:
        """The names of the holes, each once, without warnings and notes."""
        return tuple(f.hole for f in self.findings if f.severity is Severity.HOLE)

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        return asdict(self) | {"clean": self.clean}

    def show(self, console: Console) -> None:
        """Print a table with each hole, how often it was found, and its first case.

        Args:
            console: where to print.
        """
        from rich.table import Table
        from rich.text import Text

        from rlvr.console import Plainly

        colours = {Severity.HOLE: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
        table = Table("", "found", "of", "first case", show_lines=True)
        for item in self.findings:
            case = (
                ("", item.what),
                ("task ", item.task),
                ("said ", item.completion),
                ("got ", item.got),
                ("want ", item.wanted),
            )
            lines = "\n".join(name + text for name, text in case if text)
            mark = Text(str(item.severity), colours[item.severity])
            table.add_row(
                mark, item.hole, f"{item.count}/{item.tried}" if item.tried > 1 else "", lines
            )
        if self.findings:
            console.print(Plainly(table))
        counts = Counter(finding.severity for finding in self.findings)
        counts_text = ", ".join(f"{counts[s]} {s}{'s' * (counts[s] != 1)}" for s in Severity)
        if self.completions:
            scope = (
                f"{self.completions} completions for {self.tasks} tasks in {self.took_s:.1f} s; a "
                f"score takes {self.median_ms:.2g} ms (median), {self.slowest_ms:.3g} ms at most; "
                f"the best constant answer is right for {_share(self.guess)}, no text earns "
                f"{_number(self.floor)}"
            )
        else:
            scope = (
                "no completion was scored by itself; "
                f"episodes of {self.tasks} tasks in {self.took_s:.1f} s"
            )
        console.print(Plainly(f"{self.env}: {counts_text}; {scope}"), soft_wrap=True)


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "an unknown total" if value is None else f"{value:g}"
