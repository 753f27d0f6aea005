"""The yardstick: rows of our own with labels, in families, on which any grader of
mathematics is measured.

    report = measure_yardstick(["rlvr", "math-verify"])
    report.counts("math-verify").accepted_wrong

The rows are in yardsticks/math.jsonl; yardsticks/README.md says what their fields mean and how the
labels were checked. Rows whose label depends on a policy (`debatable`) are measured too and counted
apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import chain, zip_longest
from time import perf_counter
from typing import TYPE_CHECKING, Final

from rlvr.errors import Unscored, UsageError, WorkerTimeout
from rlvr.testing.graders import Grade, grader, require_grader
from rlvr.types import JsonDict
from rlvr.validate import nearest, require_processes, require_seconds
from rlvr.workers import WorkerPool, usable_cores
from rlvr.workers.threads import Threads

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "YARDSTICKS",
    "YardstickCounts",
    "YardstickGrade",
    "YardstickReport",
    "YardstickRow",
    "load_yardstick",
    "measure_yardstick",
]

_COUNTED = ("accepted\nthough wrong", "rejected\nthough right", "raised", "stopped", "s")

YARDSTICKS: Final = ("math",)
"""Names of the yardsticks."""


@dataclass(frozen=True, slots=True)
class YardstickRow:
    """One labelled answer.

    Attributes:
        id: family, template and number.  A template has at most ten rows.
        family: what the row is about, such as "intervals".
        task: the question, where the label depends on it; None for most rows.
        reference: the right answer.
        completion: what the grader reads: a whole completion, or a bare answer in a box.
        answer: the bare answer; None where the row is a whole completion.
        label: whether the completion is right.
        reason: why, in a sentence.
        debatable: the setting of `MathPolicy` that decides the label; None where nothing else can
            be meant.
    """

    id: str
    family: str
    task: str | None
    reference: str
    completion: str
    answer: str | None
    label: bool
    reason: str
    debatable: str | None


@dataclass(frozen=True, slots=True)
class YardstickGrade:
    """What a grader said of one row.

    Attributes:
        accepted: whether it accepted the completion; False where it raised or was stopped.
        failure: "raised" or "stopped" (killed at its time limit, or its process died), or empty.
        why: its reason, or the error; empty if it gave none.
        seconds: wall time.
    """

    accepted: bool
    failure: str
    why: str
    seconds: float


@dataclass(slots=True)
class YardstickCounts:
    """How often a grader was wrong.

    Attributes:
        wrong, right: number of rows with these labels.
        accepted_wrong: wrong ones that it accepted.
        rejected_right: right ones that it did not accept, whatever the cause.
        raised, stopped: rows at which it failed.
        seconds: wall time of all rows.
    """

    wrong: int = 0
    right: int = 0
    accepted_wrong: int = 0
    rejected_right: int = 0
    raised: int = 0
    stopped: int = 0
    seconds: float = 0.0

    def add(self, row: YardstickRow, grade: YardstickGrade) -> None:
        """Count one row.

        Args:
            row: the row.
            grade: what the grader said of it.
        """
        self.right += row.label
        self.wrong += not row.label
        self.accepted_wrong += grade.accepted and not row.label
        self.rejected_right += row.label and not grade.accepted
        self.raised += grade.failure == "raised"
        self.stopped += grade.failure == "stopped"
        self.seconds += grade.seconds

    def as_dict(self) -> dict[str, object]:
        """The counts, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class YardstickReport:
    """Graders on the rows of a yardstick.

    Attributes:
        name: of the yardstick.
        rows: its rows, in their order.
        grades: for each grader, a grade of each row.
    """

    name: str
    rows: list[YardstickRow]
    grades: dict[str, list[YardstickGrade]] = field(default_factory=dict)

    def counts(
        self, grader: str, *, family: str | None = None, debatable: bool = False
    ) -> YardstickCounts:
        """Counts of one grader.

        Args:
            grader: its name.
            family: count this family alone; None for all.
            debatable: count the debatable rows, which are left out otherwise.
        """
        totals = YardstickCounts()
        for row, grade in zip(self.rows, self.grades[grader], strict=True):
            if family in (None, row.family) and (row.debatable is not None) is debatable:
                totals.add(row, grade)
        return totals

    def false_grades(self, label: bool) -> Iterator[tuple[YardstickRow, dict[str, YardstickGrade]]]:
        """Rows with this label that a grader got wrong, without debatable ones; the first of each
        family come first.

        Args:
            label: False for rows that were accepted though wrong, True for those that were rejected
                though right.

        Returns:
            Rows, with the grades of the graders that were wrong.
        """
        by_family: dict[str, list[tuple[YardstickRow, dict[str, YardstickGrade]]]] = {}
        for i, row in enumerate(self.rows):
            wrong = {
                name: grades[i]
                for name, grades in self.grades.items()
                if grades[i].accepted is not row.label
            }
            if row.label is label and row.debatable is None and wrong:
                by_family.setdefault(row.family, []).append((row, wrong))
        turns = chain.from_iterable(zip_longest(*by_family.values()))
        return (item for item in turns if item is not None)

    @property
    def families(self) -> list[str]:
        """Names of the families, in their order."""
        return list(dict.fromkeys(row.family for row in self.rows))

    def as_dict(self) -> JsonDict:
        """All of it, for JSON: counts of each grader, and every row that one of them got wrong."""
        graders = {
            name: {
                "total": self.counts(name).as_dict(),
                "debatable": self.counts(name, debatable=True).as_dict(),
                "families": {
                    family: self.counts(name, family=family).as_dict() for family in self.families
                },
            }
            for name in self.grades
        }
        wrong = [
            {
                "id": row.id,
                "task": row.task,
                "reference": row.reference,
                "completion": row.completion,
                "label": row.label,
                "reason": row.reason,
                "graders": {name: grade.failure or grade.why for name, grade in grades.items()},
            }
            for label in (False, True)
            for row, grades in self.false_grades(label)
        ]
        return {"yardstick": self.name, "rows": len(self.rows), "graders": graders, "false": wrong}

    def show(self, console: Console, *, worst: int = 20) -> None:
        """Print the counts by family, then rows that were accepted though wrong and rejected though
        right.

        Args:
            console: where to print.
            worst: greatest number of rows of each kind.
        """

        from rlvr.console import Plainly

        def say(line: str) -> None:
            console.print(Plainly(line), soft_wrap=True)

        kinds = Counter((row.label, row.debatable is not None) for row in self.rows)
        say(
            f"{self.name}: {kinds[True, False]} right and {kinds[False, False]} wrong answers, "
            f"without debatable ones"
        )
        total = _table("", *_COUNTED)
        for name in self.grades:
            total.add_row(name, *_cells(self.counts(name)))
            if any(row.debatable for row in self.rows):
                total.add_row(f"{name}, debatable", *_cells(self.counts(name, debatable=True)))
        console.print(Plainly(total))
        if len(self.grades) == 1:
            [name] = self.grades
            table = _table("family", *_COUNTED)
            for family in self.families:
                table.add_row(family, *_cells(self.counts(name, family=family)))
        else:
            table = _table("accepted though wrong + rejected though right", "rows", *self.grades)
            for family in self.families:
                all_counts = [self.counts(name, family=family) for name in self.grades]
                errors = [
                    f"{count.accepted_wrong} + {count.rejected_right}" for count in all_counts
                ]
                table.add_row(family, str(all_counts[0].wrong + all_counts[0].right), *errors)
        console.print(Plainly(table))
        for label, title in ((False, "accepted though wrong"), (True, "rejected though right")):
            rows = list(self.false_grades(label))
            say(f"{title}: {len(rows)}" + (f", the first {worst}" if len(rows) > worst else ""))
            for row, by in rows[:worst]:
                graders = ", ".join(
                    f"{name} ({_short(grade)})" if _short(grade) else name
                    for name, grade in by.items()
                )
                text = row.answer if row.answer is not None else row.completion
                say(
                    f"  {row.id}: {text[:80]!r} for {row.reference[:60]!r}: {row.reason}.  By "
                    f"{graders}"
                )


def load_yardstick(name: str = "math", families: Sequence[str] = ()) -> list[YardstickRow]:
    """The rows of a yardstick.

    Args:
        name: one of `YARDSTICKS`.
        families: names of families, to have their rows alone; all rows if there are none.

    Raises:
        UsageError: there is no such yardstick or family.
    """
    if name not in YARDSTICKS:
        raise UsageError(
            f"there is no yardstick {name!r}; there is "
            f"{', '.join(YARDSTICKS)}{nearest(name, YARDSTICKS)}"
        )
    text = (files("rlvr.testing") / "yardsticks" / f"{name}.jsonl").read_text(encoding="utf-8")
    rows = [_row(json.loads(line)) for line in text.split("\n") if line]
    known_families = dict.fromkeys(row.family for row in rows)
    for family in families:
        if family not in known_families:
            raise UsageError(
                f"there is no family {family!r}{nearest(family, known_families)}; there are "
                f"{', '.join(known_families)}"
            )
    return [row for row in rows if not families or row.family in families]


def _row(fields: JsonDict) -> YardstickRow:
    answer = fields.get("answer")
    return YardstickRow(
        id=fields["id"],
        family=fields["family"],
        task=fields.get("task"),
        reference=fields["reference"],
        completion=fields["completion"] if answer is None else f"\\boxed{{{answer}}}",
        answer=answer,
        label=fields["label"],
        reason=fields["reason"],
        debatable=fields.get("debatable"),
    )


def measure_yardstick(
    graders: Sequence[str] = ("rlvr",),
    *,
    name: str = "math",
    families: Sequence[str] = (),
    rows: Sequence[YardstickRow] | None = None,
    wall_s: float = 15.0,
    memory_mib: int | None = 4096,
    workers: int | None = None,
) -> YardstickReport:
    """Grade the rows of a yardstick.  Each grader runs in worker processes, which are killed when
    they hang.

    Args:
        graders: names of graders; see `rlvr.testing.graders.grader`.
        name: one of `YARDSTICKS`.
        families: names of families to which it is restricted; none for all.
        rows: rows to grade instead of the yardstick's.
        wall_s: wall seconds after which the process of a grader is killed; math-verify's own limits
            of 5 s may add up to 15 s.
        memory_mib: memory limit of each worker process; None for no limit.
        workers: number of worker processes, of which only one grader's run at a time; by default
            one per core.

    Raises:
        UsageError: there is no such yardstick, family or grader, a package of it is missing, or a
            setting cannot work.
        WorkerError: a grader cannot be made in its worker.
    """
    for grader_name in graders:
        require_grader(grader_name)
    require_seconds("wall_s", wall_s)
    count = usable_cores() if workers is None else require_processes("workers", workers, 1)
    report = YardstickReport(name, load_yardstick(name, families) if rows is None else list(rows))
    for grader_name in graders:
        with (
            WorkerPool(
                partial(_handler, grader_name),
                workers=count,
                spares=0,
                memory_mib=memory_mib,
                quiet=True,
            ) as pool,
            Threads(count, "yardstick") as threads,
        ):
            # Started before the first row is timed.
            pool.warm()
            report.grades[grader_name] = list(
                threads.map(partial(_grade_row, pool, wall_s), report.rows)
            )
    return report


def _handler(name: str) -> Callable[[tuple[str, str, str | None]], tuple[bool, str, float]]:
    """In a worker: the grader, with the time that it takes."""
    grade = grader(name)

    def time_grade(item: tuple[str, str, str | None]) -> tuple[bool, str, float]:
        start = perf_counter()
        result: Grade = grade(*item)
        return (*result, perf_counter() - start)

    return time_grade


def _grade_row(pool: WorkerPool, wall_s: float, row: YardstickRow) -> YardstickGrade:
    start = perf_counter()
    [result] = pool.run([(row.completion, row.reference, row.task)], wall_s=wall_s)
    if isinstance(result, Unscored):
        # A worker that died or hung, in contrast to a grader that raised.
        died = result.reason in ("worker-died", WorkerTimeout.reason)
        return YardstickGrade(
            False, "stopped" if died else "raised", str(result)[:200], perf_counter() - start
        )
    accepted, why, seconds = result
    return YardstickGrade(accepted, "", why, seconds)


def _table(first: str, *others: str) -> Table:
    from rich.table import Column, Table

    return Table(Column(first, min_width=20), *(Column(name, justify="right") for name in others))


def _cells(counts: YardstickCounts) -> list[str]:
    wrong, right = (
        f"{counts.accepted_wrong} of {counts.wrong}",
        f"{counts.rejected_right} of {counts.right}",
    )
    return [wrong, right, str(counts.raised), str(counts.stopped), f"{counts.seconds:.2f}"]


def _short(grade: YardstickGrade) -> str:
    return f"{grade.failure}: {grade.why[:60]}" if grade.failure else grade.why
