"""How often is an environment's verdict right?  Against labels, by slices, and against another environment.

Positive means CORRECT: a false positive is a wrong completion that was accepted, a false negative a right one that was
not.  UNSCORED stands for our own failures and is counted apart: it is neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError, brief
from rlvr.evaluation import wilson
from rlvr.items import Rows
from rlvr.scoring import Scored, score

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Audit", "Case", "Confusion", "Disagreement", "Rate", "audit", "label_of"]

_VALUES = 50  # of a column; what has more is no slice
_LABELS: Final = {"true": True, "correct": True, "right": True, "yes": True, "1": True, "pass": True}
_LABELS_NOT: Final = {"false": False, "wrong": False, "incorrect": False, "no": False, "0": False, "fail": False}


@dataclass(frozen=True, slots=True)
class Rate:
    """k of n, with its 95 % interval: Wilson's score interval (Wilson 1927), as `rlvr.evaluation.wilson` writes it."""

    k: int
    n: int

    @property
    def value(self) -> float | None:
        return self.k / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.k, self.n) if self.n else None

    def __str__(self) -> str:
        if not self.n:
            return "none to tell by"
        low, high = wilson(self.k, self.n)
        return f"{self.k / self.n:.2%} [{low:.2%}, {high:.2%}], {self.k} of {self.n}"

    def as_dict(self) -> dict[str, Any]:
        """Its numbers, JSON-able; value and interval are None where n is 0."""
        return {"k": self.k, "n": self.n, "value": self.value, "interval": self.interval}


@dataclass(slots=True)
class Confusion:
    """Labels against verdicts."""

    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0
    true_negative: int = 0
    unscored: int = 0

    def add(self, label: bool, verdict: bool | None) -> None:
        """One completion; a verdict of None is UNSCORED."""
        if verdict is None:
            self.unscored += 1
        elif verdict:
            self.true_positive += label
            self.false_positive += not label
        else:
            self.false_negative += label
            self.true_negative += not label

    @property
    def scored(self) -> int:
        return self.true_positive + self.false_positive + self.false_negative + self.true_negative

    @property
    def rates(self) -> dict[str, Rate]:
        """False positives among the wrong, false negatives among the right, agreement among all that was scored."""
        wrong, right = self.false_positive + self.true_negative, self.false_negative + self.true_positive
        return {
            "false positives": Rate(self.false_positive, wrong),
            "false negatives": Rate(self.false_negative, right),
            "agreement": Rate(self.true_positive + self.true_negative, self.scored),
        }

    def as_dict(self) -> dict[str, Any]:
        """Counts and rates, JSON-able."""
        return asdict(self) | {"rates": {name: rate.as_dict() for name, rate in self.rates.items()}}


@dataclass(frozen=True, slots=True)
class Case:
    """One completion that is worth a look.

    Attributes:
        kind: "false positive", "false negative", "unscored", or "only the first" or "only the second" accepts it.
        why: the verdict's reason; of both verdicts, where two disagree.
    """

    kind: str
    id: str
    task: str
    completion: str
    reference: Any
    answer: str | None
    why: str
    label: bool | None = None


@dataclass(slots=True)
class Disagreement:
    """Two environments over the same completions; what either could not score is in neither count."""

    against: str
    both: int = 0
    only_first: int = 0
    only_second: int = 0
    neither: int = 0
    cases: list[Case] = field(default_factory=list)

    @property
    def rate(self) -> Rate:
        """How often they differ."""
        differ = self.only_first + self.only_second
        return Rate(differ, differ + self.both + self.neither)

    def as_dict(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return asdict(self) | {"rate": self.rate.as_dict()}


@dataclass(slots=True)
class Audit:
    """What an audit found.

    Attributes:
        total: all rows.
        slices: by column, then by value.
        reasons: how often each reason stood behind a false positive or a false negative.
        cases: the first few of each kind, reasons taken in turn: a hundred for one reason teach one thing.
        left_out: rows that could not be used, with the reason.
    """

    env: str
    label: str
    total: Confusion = field(default_factory=Confusion)
    slices: dict[str, dict[str, Confusion]] = field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    disagreement: Disagreement | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {
            "env": self.env,
            "label": self.label,
            "total": self.total.as_dict(),
            "slices": {
                column: {value: confusion.as_dict() for value, confusion in values.items()}
                for column, values in self.slices.items()
            },
            "reasons": self.reasons,
            "cases": [asdict(case) for case in self.cases],
            "left_out": self.left_out,
            "disagreement": None if self.disagreement is None else self.disagreement.as_dict(),
        }

    def show(self, console: Console) -> None:
        """Print the confusion matrix, the rates, the slices and the reasons behind what is wrong."""
        from rich.markup import escape
        from rich.table import Table

        it = self.total
        matrix = Table("", "said correct", "said not", title=f"{escape(self.env)} against {escape(self.label)!r}")
        matrix.add_row("labelled right", str(it.true_positive), f"[red]{it.false_negative}")
        matrix.add_row("labelled wrong", f"[red]{it.false_positive}", str(it.true_negative))
        console.print(matrix)
        for name, rate in it.rates.items():
            console.print(f"{name}: {rate}", highlight=False)
        console.print(f"unscored: {it.unscored}; rows left out: {len(self.left_out)}", highlight=False)
        for column, values in self.slices.items():
            table = Table(escape(column), "false positives", "false negatives", "unscored")
            for value, confusion in values.items():
                rates = confusion.rates
                row = (rates["false positives"], rates["false negatives"], confusion.unscored)
                table.add_row(escape(value), *map(str, row))
            console.print(table)
        for kind, reasons in self.reasons.items():
            console.print(f"{kind}: " + ", ".join(f"{escape(why)} {n}" for why, n in reasons.items()), highlight=False)
        if self.disagreement is not None:
            other = self.disagreement
            console.print(
                f"against {escape(other.against)}: they differ in {other.rate}; it alone accepts {other.only_second}, "
                f"the first alone {other.only_first}",
                highlight=False,
            )


def label_of(value: Any) -> bool:
    """A label as true or false: a boolean, 0 or 1, or a word such as "correct" or "wrong".

    Raises:
        DataError: it is none of these.
    """
    word = str(value).strip().lower()
    if isinstance(value, float) and value in (0.0, 1.0):
        return bool(value)
    known = _LABELS | _LABELS_NOT
    if word not in known:
        raise DataError(f"the label is {brief(value)}; it must be true or false, 1 or 0, correct or wrong")
    return known[word]


def audit(
    env: Environment,
    rows: Rows,
    *,
    label: str = "label",
    by: Sequence[str] = (),
    against: Environment | None = None,
    worst: int = 20,
    workers: int | None = None,
    progress: bool = False,
) -> Audit:
    """Hold an environment's verdicts against labels.

    Args:
        rows: completions as `rlvr.score` takes them, each with its label; gone through twice if `against` is given.
        label: the column that says whether a completion is right; see `label_of`.
        by: columns to slice by.
        against: another environment, or the same with other options; its verdicts are compared with the first's.
        worst: how many cases of each kind are kept.

    Raises:
        UsageError: the columns to slice by have no values, or nothing could be used.
    """
    found, kept = Audit(env.id, label), _Kept(worst)
    first: dict[str, tuple[Scored, bool]] = {}
    slices: dict[str, dict[str, Confusion]] = {column: defaultdict(Confusion) for column in by}
    reasons: dict[str, Counter[str]] = defaultdict(Counter)

    def leave_out(number: int, error: DataError) -> None:
        found.left_out.append(f"row {number}: {error}")

    for scored in score(env, rows, workers=workers, on_error=leave_out, progress=progress):
        try:
            right = _labelled(scored, label)
        except DataError as error:
            found.left_out.append(f"row {scored.item.id}: {error}")
            continue
        said = _said(scored)
        found.total.add(right, said)
        for column, values in slices.items():
            values[str(scored.item.row.get(column))].add(right, said)
        if said is not right:
            kind = "unscored" if said is None else "false positive" if said else "false negative"
            reasons[kind][scored.score.verdict.reason or "(no reason given)"] += 1
            kept.add(_case(kind, scored, right))
        if against is not None:
            first[scored.item.id] = scored, right
    if not found.total.scored + found.total.unscored:
        raise DataError(f"no row could be used: {found.left_out[0] if found.left_out else 'there are none'}")
    found.slices = {column: _sliced(column, values) for column, values in slices.items()}
    found.reasons = {kind: dict(counts.most_common()) for kind, counts in sorted(reasons.items())}
    found.cases = kept.listed()
    if against is not None:
        second = score(against, rows, workers=workers, on_error=lambda number, error: None, progress=progress)
        found.disagreement = _compared(first, second, against.id, worst)
    return found


class _Kept:
    """The first few cases of each kind and reason, so that what is rare is not crowded out by what is common."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._cases: dict[tuple[str, str], list[Case]] = defaultdict(list)

    def add(self, case: Case) -> None:
        known = self._cases[case.kind, case.why.partition(":")[0]]
        if len(known) < self._most:
            known.append(case)

    def listed(self) -> list[Case]:
        """By kind; the first of each reason, then the second of each."""
        found: list[Case] = []
        for kind in sorted({kind for kind, _ in self._cases}):
            of_each_reason = [cases for (its_kind, _), cases in self._cases.items() if its_kind == kind]
            mixed = [case for cases in zip_longest(*of_each_reason) for case in cases if case is not None]
            found += mixed[: self._most]
        return found


def _labelled(scored: Scored, label: str) -> bool:
    if label not in scored.item.row:
        raise DataError(
            f"no column {label!r}; it has {', '.join(map(repr, scored.item.row)) or 'none beside its task'}"
        )
    return label_of(scored.item.row[label])


def _said(scored: Scored) -> bool | None:
    return None if scored.score.total is None else scored.score.verdict.correct


def _sliced(column: str, values: Mapping[str, Confusion]) -> dict[str, Confusion]:
    if set(values) <= {"None"}:
        raise UsageError(f"no row has a value in column {column!r}, so that there is nothing to slice by")
    if len(values) > _VALUES:
        raise UsageError(f"column {column!r} has {len(values)} values; slice by one with at most {_VALUES}")
    return dict(sorted(values.items()))


def _case(kind: str, scored: Scored, label: bool | None, other: Scored | None = None) -> Case:
    item, verdict = scored.item, scored.score.verdict
    why = verdict.why if other is None else f"{verdict.why}; the second: {other.score.verdict.why}"
    return Case(kind, item.id, item.task.id, item.completion.text, item.task.reference, verdict.answer, why, label)


def _compared(
    first: Mapping[str, tuple[Scored, bool]], second: Iterator[Scored], against: str, worst: int
) -> Disagreement:
    found = Disagreement(against)
    kept: dict[str, list[Case]] = {"only the first": [], "only the second": []}
    for other in second:
        if other.item.id not in first:
            continue
        scored, label = first[other.item.id]
        one, two = _said(scored), _said(other)
        if one is None or two is None:
            continue
        found.both += one and two
        found.neither += not one and not two
        found.only_first += one and not two
        found.only_second += two and not one
        if one is not two:
            kind = "only the first" if one else "only the second"
            kept[kind] += [_case(kind, scored, label, other)] if len(kept[kind]) < worst else []
    found.cases = [case for cases in kept.values() for case in cases]
    return found
