"""How often is an environment's verdict right?  Compared with labels, by slices, and
with another environment.

Positive means CORRECT: a false positive is a wrong completion that was accepted, a false negative a
right completion that was rejected.  UNSCORED stands for our own failures: it is neither, and is
counted apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr.data.formats import read_rows
from rlvr.data.lines import Line, Row
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError, brief
from rlvr.scoring import Scored, score
from rlvr.scoring.items import Item, Rows
from rlvr.statistics import estimate, wilson
from rlvr.types import JsonDict, Prompt
from rlvr.validate import require_whole

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Audit",
    "AuditCase",
    "Confusion",
    "Disagreement",
    "Ranking",
    "Rate",
    "RewardModelScores",
    "audit",
    "label_of",
]

RewardModelScores = Callable[[Sequence[Prompt], Sequence[str]], Sequence[float]]
"""(prompts, completions) → a score of each, such as `RewardModel.scores`."""

_VALUES = 50  # greatest number of values of a column to slice by
_HEAD = 100  # rows among which a column must have a value
_REASONS = 20  # greatest number of reasons shown of each kind
# greatest number of reasons counted; there may be many, as a reason may quote the completion
_COUNTED = 1000
_OTHERS = "(other reasons)"
_LONGEST = 200  # characters of a reason
_LONGEST_TEXT = 100_000  # characters of a text in a case, of which a report has many
_AT_ONCE = 64  # completions that a reward model scores together
_LABELS: Final = dict.fromkeys("true correct right yes 1 pass".split(), True)
_LABELS_NOT: Final = dict.fromkeys("false wrong incorrect no 0 fail".split(), False)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate, k of n, with its 95 % interval: Wilson's score interval (Wilson 1927), see
    `rlvr.statistics.wilson`.

    Attributes:
        k, n: how many of how many.
    """

    k: int
    n: int

    @property
    def value(self) -> float | None:
        """k / n; None if n is 0."""
        return self.k / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None if n is 0."""
        return wilson(self.k, self.n) if self.n else None

    def __str__(self) -> str:
        if not self.n:
            return "no completions"
        low, high = wilson(self.k, self.n)
        return f"{self.k / self.n:.2%} [{low:.2%}, {high:.2%}], {self.k} of {self.n}"

    def as_dict(self) -> dict[str, object]:
        """Its numbers, for JSON; value and interval are None if n is 0."""
        return {"k": self.k, "n": self.n, "value": self.value, "interval": self.interval}


@dataclass(slots=True)
class Confusion:
    """Counts of labels against verdicts.

    Attributes:
        true_positive: labelled right and CORRECT.
        false_positive: labelled wrong and CORRECT.
        false_negative: labelled right and not CORRECT.
        true_negative: labelled wrong and not CORRECT.
        unscored: not scored, whatever the label.
    """

    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0
    true_negative: int = 0
    unscored: int = 0

    def add(self, label: bool, verdict: bool | None) -> None:
        """Count one completion.

        Args:
            label: whether it is right.
            verdict: whether it is CORRECT; None for UNSCORED.
        """
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
        """Number of completions that were scored."""
        return self.true_positive + self.false_positive + self.false_negative + self.true_negative

    @property
    def rates(self) -> dict[str, Rate]:
        """False positives among the wrong, false negatives among the right, agreement among all
        scored completions."""
        wrong, right = (
            self.false_positive + self.true_negative,
            self.false_negative + self.true_positive,
        )
        return {
            "false positives": Rate(self.false_positive, wrong),
            "false negatives": Rate(self.false_negative, right),
            "agreement": Rate(self.true_positive + self.true_negative, self.scored),
        }

    def as_dict(self) -> JsonDict:
        """Counts and rates, for JSON."""
        return asdict(self) | {"rates": {name: rate.as_dict() for name, rate in self.rates.items()}}


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One completion at which label and verdict, or two environments,
    disagree; or that was not scored.

    Attributes:
        kind: "false positive", "false negative", "unscored"; or "only the first" or "only the
            second" accepts it.
        id: the row's id.
        task: the task's id.
        completion, reference: the row's text, its first 100,000 characters, and its task's
            reference.
        answer: what the verifier read as the answer.
        why: the verdict's reason; both reasons if two environments disagree.
        label: whether the completion is right.
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
    """Two environments on the same completions; those that either could not score are in
    none of the four counts.

    Attributes:
        against: id of the second environment.
        both, only_first, only_second, neither: number of completions accepted by these.
        unscored: number of completions that the second could not score.
        left_out: rows that only the second could not use, with the reason.
        cases: the first completions at which they disagree.
    """

    against: str
    both: int = 0
    only_first: int = 0
    only_second: int = 0
    neither: int = 0
    unscored: int = 0
    left_out: list[str] = field(default_factory=list)
    cases: list[AuditCase] = field(default_factory=list)

    @property
    def rate(self) -> Rate:
        """Rate of completions at which they disagree."""
        differ = self.only_first + self.only_second
        return Rate(differ, differ + self.both + self.neither)

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        return asdict(self) | {"rate": self.rate.as_dict()}


@dataclass(slots=True)
class Ranking:
    """A reward model against labels: does it put right completions before wrong ones?

    Attributes:
        scores: (label, score) of each completion, by task.
    """

    scores: dict[str, list[tuple[bool, float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def of_tasks(self) -> list[float]:
        """Of each task with both labels: the share of its pairs of a right and a wrong one that are
        in order.

        A tie counts ½.  Between tasks nothing is compared: a model may find one harder than
        another.
        """
        return [
            share
            for labelled_scores in self.scores.values()
            if (share := _in_order(labelled_scores)) is not None
        ]

    @property
    def of_all(self) -> float | None:
        """The share among all pairs, of any tasks: the area under the ROC curve; None without both
        labels."""
        return _in_order(
            # All pairs of the file, so that a task with many completions weighs more.
            [
                scores_of_task
                for labelled_score in self.scores.values()
                for scores_of_task in labelled_score
            ]
        )

    def mean(self, label: bool) -> float | None:
        """The mean score of completions with this label; None if there are none.

        Args:
            label: right or wrong.
        """
        scores_of_label = [
            score
            for scores_of_task in self.scores.values()
            for right, score in scores_of_task
            if right is label
        ]
        return sum(scores_of_label) / len(scores_of_label) if scores_of_label else None

    def as_dict(self) -> JsonDict:
        """Its numbers, for JSON."""
        within = asdict(estimate(self.of_tasks, 0.95)) if self.of_tasks else None
        return {
            "within_tasks": within,
            "of_all": self.of_all,
            "mean_right": self.mean(True),
            "mean_wrong": self.mean(False),
        }

    def __str__(self) -> str:
        if not self.of_tasks:
            return "no task has both a right and a wrong completion"
        within = estimate(self.of_tasks, 0.95)
        return (
            f"right before wrong in {within} of a task's pairs, mean of {within.tasks} tasks; "
            f"{self.of_all:.3f} of all pairs; mean score {self.mean(True):.3f} of right and "
            f"{self.mean(False):.3f} of wrong completions"
        )


def _in_order(found: Sequence[tuple[bool, float]]) -> float | None:
    """The share of (right, wrong) pairs with the greater score on the right one; by ranks (Mann and
    Whitney 1947)."""
    wrong = sorted(score for right, score in found if not right)
    right = [score for right, score in found if right]
    if not wrong or not right:
        return None
    # Ties count half: `bisect_left` counts the scores below, `bisect_right` those not above.
    below = sum(bisect_left(wrong, score) + bisect_right(wrong, score) for score in right)
    return below / (2 * len(wrong) * len(right))


@dataclass(slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        env: id of the environment.
        label: the column with the labels.
        total: counts of all rows.
        slices: counts by column, then by value.
        reasons: by kind, the commonest reasons of false positives, false negatives and unscored
            rows, with counts.
        cases: the first few of each kind, with as many different reasons as possible.
        left_out: rows that could not be used, with the reason.
        disagreement: of a second environment with the first; None if there is no second.
        ranking: of a reward model; None if there is none.
    """

    env: str
    label: str
    total: Confusion = field(default_factory=Confusion)
    slices: dict[str, dict[str, Confusion]] = field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    cases: list[AuditCase] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    disagreement: Disagreement | None = None
    ranking: Ranking | None = None

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
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
            "reward_model": None if self.ranking is None else self.ranking.as_dict(),
        }

    @property
    def whole(self) -> bool:
        """True if every row was scored, by both environments."""
        second = self.disagreement is None or not (
            self.disagreement.unscored or self.disagreement.left_out
        )
        return second and not (self.left_out or self.total.unscored)

    def show(self, console: Console) -> None:
        """Print the confusion matrix, the rates, the slices and the reasons of false verdicts.

        Args:
            console: where to print.
        """
        from rich.table import Table
        from rich.text import Text

        from rlvr.console import Plainly

        def say(line: str) -> None:
            console.print(Plainly(line))

        total = self.total
        matrix = Table("", "said correct", "said not", title=f"{self.env} against {self.label!r}")
        matrix.add_row(
            "labelled right", str(total.true_positive), Text(str(total.false_negative), "red")
        )
        matrix.add_row(
            "labelled wrong", Text(str(total.false_positive), "red"), str(total.true_negative)
        )
        console.print(Plainly(matrix))
        for name, rate in total.rates.items():
            say(f"{name}: {rate}")
        say(f"unscored: {total.unscored}; rows left out: {len(self.left_out)}")
        for column, values in self.slices.items():
            table = Table(column, "false positives", "false negatives", "unscored")
            for value, confusion in values.items():
                rates = confusion.rates
                row = (rates["false positives"], rates["false negatives"], confusion.unscored)
                table.add_row(value, *map(str, row))
            console.print(Plainly(table))
        for kind, reasons in self.reasons.items():
            say(f"{kind}: " + ", ".join(f"{why} {n}" for why, n in reasons.items()))
        if self.ranking is not None:
            say(f"the reward model: {self.ranking}")
        if self.disagreement is not None:
            second = self.disagreement
            say(
                f"against {second.against}: they differ in {second.rate}; it alone accepts "
                f"{second.only_second}, the first alone {second.only_first}; unscored: "
                f"{second.unscored}; rows left out: {len(second.left_out)}"
            )


def label_of(value: object) -> bool:
    """A label as true or false.

    Args:
        value: a boolean, 0 or 1, or a word such as "correct" or "wrong".

    Raises:
        DataError: it is none of these.
    """
    word = str(value).strip().lower()
    if isinstance(value, float) and value in (0.0, 1.0):
        # 0.0 and 1.0 come from files that hold labels as floats; "0.0" is no word of the table.
        return bool(value)
    labels = _LABELS | _LABELS_NOT
    if word not in labels:
        raise DataError(
            f"the label is {brief(value)}; it must be true or false, 1 or 0, correct or wrong"
        )
    return labels[word]


def audit(
    env: Environment,
    rows: Rows,
    *,
    label: str = "label",
    by: Sequence[str] = (),
    against: Environment | None = None,
    reward_model: RewardModelScores | None = None,
    worst: int = 20,
    workers: int | None = None,
    progress: bool = False,
) -> Audit:
    """Compare an environment's verdicts with labels.

    Args:
        env: the environment.
        rows: completions as `rlvr.score` takes them, each with its label.  With `against` they are
            read twice: an iterator is then kept in memory, a file is not.
        label: the column that says whether a completion is right; see `label_of`.
        by: columns to slice by; "task" is the task's id.
        against: another environment, or the same with other options, whose verdicts are compared
            with the first's.
        reward_model: is measured against the labels too, on every row that has one; in this
            process.
        worst: greatest number of cases of each kind.
        workers: see `rlvr.Scorer`.
        progress: show the progress.

    Raises:
        UsageError: the label or a column to slice by has no value in the first 100 rows, a column
            to slice by has too many values, or a setting cannot work.
        DataError: no row could be used.
    """
    require_whole("worst", worst, 0)
    # An iterator would be used up by the first environment.
    if against is not None and isinstance(rows, Iterator):
        rows = list(rows)
    result, worst_cases = Audit(env.id, label), _Kept(worst)
    result.ranking = None if reward_model is None else Ranking()
    waiting: list[tuple[Item, bool]] = []
    first: dict[str | int, tuple[bool | None, bool, str]] = {}
    slices: dict[str, dict[str, Confusion]] = {column: defaultdict(Confusion) for column in by}
    reasons: dict[str, Counter[str]] = defaultdict(Counter)

    def leave_out(number: int, error: DataError) -> None:
        result.left_out.append(f"row {number}: {error}")

    first_look = _with_columns(rows, label, by)
    for scored in score(env, first_look, workers=workers, on_error=leave_out, progress=progress):
        try:
            right = _label_of_row(scored, label)
        except DataError as error:
            result.left_out.append(f"row {scored.item.id}: {error}")
            continue
        if result.ranking is not None and reward_model is not None:
            waiting.append((scored.item, right))
            if len(waiting) == _AT_ONCE:
                _rank(result.ranking, reward_model, waiting)
        accepted = _accepts(scored)
        result.total.add(right, accepted)
        for column, values in slices.items():
            values[_value(scored.item, column)].add(right, accepted)
            if len(values) > _VALUES:
                raise UsageError(
                    f"column {column!r} has more than {_VALUES} values; slice by another"
                )
        # `accepted` may be None, which is neither label.
        if accepted is not right:
            kind = (
                "unscored"
                if accepted is None
                else "false positive"
                if accepted
                else "false negative"
            )
            _count(reasons[kind], scored.score.verdict.reason)
            worst_cases.add(_case(kind, scored, right))
        # Only what the comparison needs: a file may have millions of rows.
        if against is not None:
            first[scored.item.id] = accepted, right, scored.score.verdict.why[:_LONGEST]
    if result.ranking is not None and reward_model is not None:
        _rank(result.ranking, reward_model, waiting)
    if not result.total.scored + result.total.unscored:
        raise DataError(
            f"no row could be used: {result.left_out[0] if result.left_out else 'there are none'}"
        )
    result.slices = {column: dict(sorted(values.items())) for column, values in slices.items()}
    result.reasons = {kind: _commonest(counts) for kind, counts in sorted(reasons.items())}
    result.cases = worst_cases.listed()
    if against is not None:
        result.disagreement = disagreement = Disagreement(against.id)
        # The rows that the first refused already are not said again.
        refused = {text.partition(":")[0] for text in result.left_out}

        def leave_out_too(number: int, error: DataError) -> None:
            if f"row {number}" not in refused:
                disagreement.left_out.append(f"row {number}: {error}")

        second = score(against, rows, workers=workers, on_error=leave_out_too, progress=progress)
        _compare(disagreement, first, second, worst)
    return result


def _rank(
    found: Ranking, reward_model: RewardModelScores, waiting: list[tuple[Item, bool]]
) -> None:
    """Score the completions that wait, together."""
    scores = reward_model(
        [item.task.prompt for item, _ in waiting], [item.completion.text for item, _ in waiting]
    )
    for (item, label), value in zip(waiting, scores, strict=True):
        found.scores[item.task.id].append((label, value))
    waiting.clear()


def _with_columns(rows: Rows, label: str, by: Sequence[str]) -> Rows:
    """The same rows, after a check of the columns' names: a mistyped name is found before scoring
    begins.

    Raises:
        UsageError: none of the first rows has the label, or a value to slice by.
    """
    if not isinstance(rows, (str, Path)) and (
        isinstance(rows, Mapping) or type(rows).__name__ == "DataFrame"
    ):
        return rows  # neither is a sequence of rows; the scorer reports that
    lines = iter(read_rows(rows) if isinstance(rows, (str, Path)) else rows)
    head, columns = list[Row | Item | Line](), set[str]()
    for line in islice(lines, _HEAD):
        head.append(line)
        row = line.row if isinstance(line, (Item, Line)) else line
        columns |= (
            {name for name, value in row.items() if value is not None}
            if isinstance(row, Mapping)
            else set()
        )
        # No more are held than are needed: a row may be long.
        if columns >= {label, *by} - {"task"}:
            break
    if columns and label not in columns:
        raise UsageError(
            f"no row has a label in column {label!r}; there are "
            f"{', '.join(map(repr, sorted(columns)))}"
        )
    for column in by:
        if columns and column not in columns | {"task"}:
            raise UsageError(
                f"no row has a value in column {column!r}, so that there is nothing to slice by"
            )
    # A sequence is read again from its start; of what is read once the head goes back in front.
    return rows if isinstance(rows, Sequence) and type(rows) is not str else chain(head, lines)


def _count(counts: Counter[str], reason: str) -> None:
    reason = reason[:_LONGEST] or "(no reason given)"
    counts[reason if reason in counts or len(counts) < _COUNTED else _OTHERS] += 1


def _commonest(counts: Counter[str]) -> dict[str, int]:
    rest_count = counts.pop(_OTHERS, 0)
    common = dict(counts.most_common(_REASONS))
    rest_count += counts.total() - sum(common.values())
    return common | ({_OTHERS: rest_count} if rest_count else {})


class _Kept:
    """Keeps the first few cases of each kind and reason, so that common reasons
    leave room for rare ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._cases: dict[tuple[str, str], list[AuditCase]] = defaultdict(list)

    def add(self, case: AuditCase) -> None:
        # By the words before the colon, which name the reason; what follows quotes.
        key = case.kind, case.why.partition(":")[0][:_LONGEST]
        if (
            key not in self._cases
            and sum(kind == case.kind for kind, _ in self._cases) >= self._most
        ):
            return  # one case of each known reason already fills the list
        if len(self._cases[key]) < self._most:
            self._cases[key].append(case)

    def listed(self) -> list[AuditCase]:
        """By kind; the first of each reason, then the second of each."""
        ordered: list[AuditCase] = []
        for kind in sorted({kind for kind, _ in self._cases}):
            of_each_reason = [
                cases for (its_kind, _), cases in self._cases.items() if its_kind == kind
            ]
            mixed = [
                case for cases in zip_longest(*of_each_reason) for case in cases if case is not None
            ]
            ordered += mixed[: self._most]
        return ordered


def _label_of_row(scored: Scored, label: str) -> bool:
    if label not in scored.item.row:
        raise DataError(
            f"no column {label!r}; it has "
            f"{', '.join(map(repr, scored.item.row)) or 'none beside its task'}"
        )
    return label_of(scored.item.row[label])


def _accepts(scored: Scored) -> bool | None:
    # By total: another part of the reward may have failed where the verdict stands.
    return None if scored.score.total is None else scored.score.verdict.correct


def _value(item: Item, column: str) -> str:
    return item.task.id if column == "task" else str(item.row.get(column))


def _case(kind: str, scored: Scored, label: bool | None, why: str | None = None) -> AuditCase:
    item, verdict = scored.item, scored.score.verdict
    why = verdict.why if why is None else why
    text, reference = item.completion.text, item.task.reference
    answer = None if verdict.answer is None else _shorten(verdict.answer)
    return AuditCase(
        kind, str(item.id), item.task.id, _shorten(text), reference, answer, _shorten(why), label
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _compare(
    found: Disagreement,
    first: Mapping[str | int, tuple[bool | None, bool, str]],
    second: Iterator[Scored],
    worst: int,
) -> None:
    cases_by_kind: dict[str, list[AuditCase]] = {"only the first": [], "only the second": []}
    for scored in second:
        if scored.item.id not in first:
            continue
        accepted, label, why = first[scored.item.id]
        two = _accepts(scored)
        found.unscored += two is None
        if accepted is None or two is None:
            continue
        found.both += accepted and two
        found.neither += not accepted and not two
        found.only_first += accepted and not two
        found.only_second += two and not accepted
        kind = "only the first" if accepted else "only the second"
        if accepted is not two and len(cases_by_kind[kind]) < worst:
            cases_by_kind[kind].append(
                _case(kind, scored, label, f"{why}; the second: {scored.score.verdict.why}")
            )
    found.cases = [case for cases in cases_by_kind.values() for case in cases]
