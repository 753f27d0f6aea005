"""How much wrong work each task of an environment pays.

wrong work   a completion with a witness: evidence, found without the verifier, that it is wrong
hole         wrong work that is paid; it makes a task weak
strength     the share of a task's wrong work that is refused
open         paid, and no witness was found: it may be right
doubtful     paid, with a witness that may lie outside of what the task means; never counted
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rlvr.data.strengths import digest_of_reference
from rlvr.environment import Environment, require_one_reply, seeded
from rlvr.errors import DataError, Unscored, UsageError
from rlvr.scoring import Scorer
from rlvr.statistics import estimate, wilson
from rlvr.testing.findings import Findings
from rlvr.testing.plays import score_plays
from rlvr.testing.strengthen import Mending, Tried, mend
from rlvr.testing.tasks import sample
from rlvr.testing.work import Maker, Untested, Witness, Work, maker_for
from rlvr.types import JsonDict, JsonObject, Outcome, Score, Task
from rlvr.validate import require_optional_whole, require_seconds, require_whole
from rlvr.workers import Threads, usable_cores

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["FEWEST", "StrengthReport", "WrittenWork", "measure_strength", "strength_summary"]

FEWEST: Final = 5
"""Wrong works below which a task counts as untested."""

# The numbers of a task's record that are summed over tasks.
_NUMBERS: Final = (
    "made", "wrong", "paid", "open", "doubtful", "slow", "unproven", "unscored", "right",
)  # fmt: skip
_RIGHT: Final = 4  # right works that are tried at each task
_SHOWN: Final = 4000  # characters of a text in the report
_CASES: Final = 10  # of a task in the report
_VOTES: Final = 4  # fewer programs may share a mistake
_SHOWN_TASKS: Final = 20  # in a terminal
_REASONS: Final = 3  # why tasks are untested, in a terminal
_SHOWN_WHY: Final = 200  # characters of each


class WrittenWork(NamedTuple):
    """A completion that a model wrote.

    Attributes:
        task: id of its task.
        text: the completion.
        is_right: what a person or a stricter verifier said of it; None if it has no label.
    """

    task: str
    text: str
    is_right: bool | None = None


@dataclass(frozen=True)
class StrengthReport:
    """What `measure_strength` found.

    Attributes:
        env: id of the environment.
        config: its options.
        seed, works: of the run.
        tasks: a record for each task, the weakest first, untested ones last: `task`, `state` (weak,
            strong or untested), `why` of an untested one, the numbers `made`, `wrong`, `paid`,
            `open`, `doubtful`, `slow`, `unproven` (refused, without a witness), `unscored` and
            `right`; `strength` with its Wilson `interval`, `operators` (for each the numbers of
            wrong and paid works), `cases` (paid works with their witness, the smallest first),
            `right_refused` and, where it was asked for, `mended`
            (`rlvr.testing.strengthen.Mending`).
        left_out: number of tasks for which there was no time.
    """

    env: str
    config: JsonObject
    seed: int
    works: int
    tasks: Sequence[JsonObject]
    left_out: int = 0
    digest: str = ""

    @property
    def holes(self) -> int:
        """Number of wrong works that are paid."""
        return sum(task["paid"] for task in self.tasks)

    @property
    def clean(self) -> bool:
        """True if no wrong work is paid and no right work refused."""
        return not self.holes and not self.right_refused

    @property
    def right_refused(self) -> int:
        """Number of right works that are refused."""
        return sum(len(task["right_refused"]) for task in self.tasks)

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON, with means over tasks."""
        counts = {name: sum(task[name] for task in self.tasks) for name in _NUMBERS}
        states = [task["state"] for task in self.tasks]
        return {
            "report": "strength",
            "env": self.env,
            "config": dict(self.config),
            "seed": self.seed,
            "works": self.works,
            "digest": self.digest,
            "counts": counts | {"right_refused": self.right_refused, "left_out": self.left_out},
            "states": {name: states.count(name) for name in ("weak", "strong", "untested")},
            "mean": _mean([task["strength"] for task in self.tasks if task["state"] != "untested"]),
            "operators": self._by_operator(),
            "tasks": [dict(task) for task in self.tasks],
        }

    def show(self, console: Console) -> None:
        """Print a table of the weakest tasks, and the sums.

        Args:
            console: where to print.
        """
        from rich.table import Table

        from rlvr.console import Plainly

        table = Table("task", "wrong", "paid", "strength", "smallest witness")
        for task in [task for task in self.tasks if task["state"] == "weak"][:_SHOWN_TASKS]:
            low, high = task["interval"]
            case = task["cases"][0]
            witness = f"{case['given']} gives {case['got']}, not {case['expected']}"
            numbers = (str(task["wrong"]), str(task["paid"]), f"{low:.2f} to {high:.2f}")
            table.add_row(task["task"], *numbers, witness[:200])
        if table.row_count:
            console.print(Plainly(table))
        for line in strength_summary(self.as_dict()):
            console.print(Plainly(line), soft_wrap=True)

    def _by_operator(self) -> dict[str, object]:
        shares: dict[str, list[float]] = defaultdict(list)
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for task in self.tasks:
            for operator, (wrong, paid) in task["operators"].items():
                shares[operator].append(1 - paid / wrong)
                totals[operator][0] += wrong
                totals[operator][1] += paid
        # The operators whose work is paid most come first.
        order = sorted(totals, key=lambda name: (sum(shares[name]) / len(shares[name]), name))
        return {
            name: {"wrong": totals[name][0], "paid": totals[name][1], "mean": _mean(shares[name])}
            for name in order
        }


def measure_strength(
    env: Environment,
    *,
    tasks: int | None = 20,
    works: int = 8,
    completions: Iterable[WrittenWork] = (),
    seed: int = 0,
    workers: int | None = None,
    budget_s: float | None = None,
    journal: Path | None = None,
    mending: bool = False,
) -> StrengthReport:
    """Try wrong and right work at tasks of an environment.

    Args:
        env: an environment for which, or for whose verifier, there is a maker of work.
        tasks: number of tasks; None for all of a finite set.
        works: number of wrong works that are made for each task.
        completions: what models wrote, tried beside the made work; one that is labelled right must
            not be refused.
        seed: of the sample and of the work.
        workers: number of programs and of scoring processes; None for one per core, 0 to score in
            this process.  The report is the same.
        budget_s: wall seconds after which no further task is begun; None for no limit.
        journal: file to which each task's record is written when it is done, and from which it is
            taken if it is there.
        mending: whether cases are sought that refute the wrong work that is paid, for
            `write_strengthened`.

    Raises:
        UsageError: an argument cannot work, or there is no maker for this environment.
        DataError: the journal is that of another run.
    """
    require_whole("works", works, 1)
    tasks = require_optional_whole("tasks", tasks, 1, none="all")
    workers = require_optional_whole("workers", workers, 0, none="one per core")
    workers = usable_cores() if workers is None else workers
    if budget_s is not None:
        require_seconds("budget_s", budget_s)
    if mending:
        # Cases are added to a reference; an episode of several turns has none to add to.
        require_one_reply(env, "and cases are added to tasks of single completions")
    maker = maker_for(env, workers or 1)
    if maker is None:
        raise UsageError(
            f"no maker of work serves {env.id}; write one beside its verifier, as "
            f"docs/writing/checking.md shows"
        )
    sampled = sample(env, Findings(), tasks, seeded("strength", seed))
    if not sampled:
        raise UsageError(f"{env.id} made no task")
    written: dict[str, list[WrittenWork]] = defaultdict(list)
    for completion in completions:
        written[completion.task].append(completion)
    # All that the report depends on, so that a journal of another run is refused.
    digest = _digest(env, sampled, written, seed, works, mending)
    run = _Run(env, maker, seed, works, written, mending)
    done = _Journal(journal, digest)
    until = None if budget_s is None else time.monotonic() + budget_s
    threads = Threads(workers or 1, "strength")
    try:
        with Scorer(env, workers=workers) as scorer:

            def measure_task(task: Task) -> JsonDict | None:
                if task.id in done.records:
                    return done.records[task.id]
                if until is not None and time.monotonic() > until:
                    return None
                record = run.record(task, scorer)
                done.write(record)
                return record

            futures = [threads.submit(measure_task, task) for task in sampled]
            records = [future.result() for future in futures]
    finally:
        threads.close()
        done.close()
    finished = [record for record in records if record is not None]
    order = sorted(
        finished,
        key=lambda record: (
            record["state"] == "untested",
            record["strength"] or 0.0,
            record["task"],
        ),
    )
    config = json.loads(json.dumps(env.config, default=str))
    return StrengthReport(env.id, config, seed, works, order, len(records) - len(finished), digest)


@dataclass
class _Run:
    """What all tasks share."""

    env: Environment
    maker: Maker
    seed: int
    works: int
    written: Mapping[str, Sequence[WrittenWork]]
    mending: bool = False

    def record(self, task: Task, scorer: Scorer) -> dict[str, object]:
        """A task's record."""
        count = _Count(task.id, digest_of_reference(task.reference))
        try:
            self.env.read_task(task)
            tried = self._try_wrong(task, self._make_wrong(task), scorer, count)
            right = self._try_right(task, scorer, count)
            if self.mending and any(play.paid for play in tried):
                count.mended = mend(self.maker, task, tried, right, scorer)
        except Untested as error:
            count.why = str(error)
        except DataError as error:
            count.why = f"its reference cannot be read: {error}"
        except Unscored as error:
            count.why = f"its work could not be tried here: {error}"
        return count.record()

    def _scores(self, task: Task, works: Sequence[Work], scorer: Scorer) -> list[Score]:
        plays = [self.maker.turns(task, work) for work in works]
        return score_plays(self.env, task, plays, scorer.score_group)

    def _rng(self, task: Task, what: str) -> Any:
        return seeded("strength", what, self.seed, task.id)

    def _make_wrong(self, task: Task) -> list[Work]:
        works: dict[str, Work] = {}
        for work in self.maker.wrong(task, self._rng(task, "wrong")):
            # The same text by two operators is one work.
            works.setdefault(work.text, work)
            if len(works) == self.works:
                break
        texts = dict.fromkeys(
            completion.text
            for completion in self.written.get(task.id, ())
            if not completion.is_right
        )
        return [*works.values(), *(Work(text, "model") for text in texts)]

    def _try_wrong(
        self, task: Task, made: Sequence[Work], scorer: Scorer, count: _Count
    ) -> list[Tried]:
        """Witnesses come first: work that is slow is not scored, which would take as long."""
        witnesses = [self.maker.witness(task, work) for work in made]
        quick = [
            (work, witness)
            for work, witness in zip(made, witnesses, strict=True)
            if witness is None or not witness.is_slow
        ]
        count.made, count.slow = len(made), len(made) - len(quick)
        scores = self._scores(task, [work for work, _ in quick], scorer)
        example = next(self.maker.right(task, self._rng(task, "right"))).text
        tried = []
        paid = [
            work
            for (work, _), score in zip(quick, scores, strict=True)
            if work.operator == "model" and score.verdict.correct
        ]
        for (work, witness), score in zip(quick, scores, strict=True):
            # Models that agree against the reference: the witness is doubtful for those works.
            if witness is not None and work in paid and self._is_disputed(task, witness, paid):
                witness = replace(witness, is_doubtful=True)
            if score.verdict.outcome is Outcome.UNSCORED:
                count.unscored += 1
                continue
            count.add(work, witness, paid=score.verdict.correct, example=example)
            if witness is not None and not witness.is_doubtful:
                tried.append(Tried(work, witness, score.verdict.correct))
        return tried

    def _is_disputed(self, task: Task, witness: Witness, paid: Sequence[Work]) -> bool:
        """Whether most of what models wrote and the verifier pays agrees on another value: then the
        reference may be wrong, or the task leaves room."""
        if witness.is_doubtful or len(paid) < _VOTES:
            return False
        votes = self.maker.dissent(task, witness, paid)
        # More than half of the paid works, and at least four.
        return votes >= _VOTES and 2 * votes > len(paid)

    def _try_right(self, task: Task, scorer: Scorer, count: _Count) -> list[str]:
        """The right work that is CORRECT, made and labelled."""
        works = self.maker.right(task, self._rng(task, "right"))
        right = list(itertools.islice(works, _RIGHT))
        texts = dict.fromkeys(
            completion.text for completion in self.written.get(task.id, ()) if completion.is_right
        )
        right += [Work(text, "labelled") for text in texts]
        scores = self._scores(task, right, scorer)
        count.right = len(right)
        accepted = []
        for work, score in zip(right, scores, strict=True):
            if score.verdict.correct:
                accepted.append(work.text)
            else:
                count.right_refused.append(
                    {
                        "operator": work.operator,
                        "text": work.text[:_SHOWN],
                        "why": score.verdict.why,
                    }
                )
        return accepted


@dataclass
class _Count:
    """The numbers of one task."""

    task: str
    reference_digest: str
    made: int = 0
    slow: int = 0
    open: int = 0
    doubtful: int = 0
    unproven: int = 0
    unscored: int = 0
    right: int = 0
    why: str = ""
    operators: dict[str, list[int]] = field(default_factory=dict)
    cases: list[JsonDict] = field(default_factory=list)
    right_refused: list[dict[str, object]] = field(default_factory=list)
    mended: Mending | None = None

    def add(self, work: Work, witness: Witness | None, *, paid: bool, example: str) -> None:
        """Count one work."""
        if witness is None:
            self.open += paid
            self.unproven += not paid
            return
        if witness.is_doubtful:
            self.doubtful += paid
            self.unproven += not paid
        else:
            wrong_paid = self.operators.setdefault(work.operator, [0, 0])
            wrong_paid[0] += 1
            wrong_paid[1] += paid
        if paid:
            self.cases.append(_case(work, witness, example))

    def record(self) -> JsonDict:
        wrong = sum(n for n, _ in self.operators.values())
        paid = sum(k for _, k in self.operators.values())
        numbers = vars(self) | {"wrong": wrong, "paid": paid}
        # A task with a hole is weak however few works there were.
        untested = wrong < FEWEST and not paid
        why = self.why or f"only {wrong} wrong works, fewer than {FEWEST}"
        # The smallest witness first, as it is the easiest to check by hand; doubtful ones last.
        cases = sorted(
            self.cases, key=lambda one: (one["doubtful"], len(one["given"]), one["given"])
        )
        return {
            "task": self.task,
            "reference_digest": self.reference_digest,
            "state": "weak" if paid else "untested" if untested else "strong",
            "why": why if untested else "",
            "strength": 1 - paid / wrong if wrong else None,
            "interval": list(wilson(wrong - paid, wrong)) if wrong else None,
            **{name: numbers[name] for name in _NUMBERS},
            "operators": dict(sorted(self.operators.items())),
            "cases": cases[:_CASES],
            "right_refused": self.right_refused,
        } | ({} if self.mended is None else {"mended": self.mended.as_dict()})


class _Journal:
    """Records of tasks that are done, one JSON line each after a first line that names the run."""

    def __init__(self, path: Path | None, digest: str) -> None:
        self.records: dict[str, JsonDict] = {}
        self._file = None
        if path is None:
            return
        if path.exists():
            self._read(path, digest)
        # Written anew from what was read, so that a half line at its end is gone.
        self._file = path.open("w", encoding="utf-8")
        for line in ({"digest": digest}, *self.records.values()):
            self.write(line)

    def _read(self, path: Path, digest: str) -> None:
        head, *lines = path.read_text(encoding="utf-8").split("\n")
        try:
            file_digest = json.loads(head)["digest"]
        except (ValueError, TypeError, KeyError):
            raise DataError(f"{path} is no journal of rlvr strength") from None
        if file_digest != digest:
            raise DataError(
                f"{path} is of another run: other data, options, seed, number of works or "
                f"completions; "
                "remove it, or give the same ones"
            )
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                break  # the last line of a run that was killed
            self.records[record["task"]] = record

    def write(self, record: Mapping[str, object]) -> None:
        """Write one line; from any thread."""
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            # After each task: a run that is killed loses the one under way.
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def strength_summary(report: JsonObject) -> list[str]:
    """The report in a few lines.

    Args:
        report: from `StrengthReport.as_dict`.
    """
    counts, states, mean = report["counts"], report["states"], report["mean"]
    share = "no task was tested"
    if mean is not None:
        share = f"mean strength {mean['value']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]"
    lines = [
        f"{report['env']}: {states['weak']} weak, {states['strong']} strong and "
        f"{states['untested']} untested tasks; {share}",
        f"of {counts['wrong']} wrong works {counts['paid']} are paid; besides, {counts['open']} "
        f"paid without a witness, {counts['doubtful']} with a doubtful one, {counts['slow']} slow; "
        f"{counts['right_refused']} of {counts['right']} right works refused",
    ]
    reasons = Counter(task["why"] for task in report["tasks"] if task["state"] == "untested")
    lines += [f"untested ({n}): {why[:_SHOWN_WHY]}" for why, n in reasons.most_common(_REASONS)]
    if counts["left_out"]:
        lines.append(f"the time was up: {counts['left_out']} tasks were not tried")
    return lines


def _case(work: Work, witness: Witness, example: str) -> dict[str, object]:
    lines = difflib.unified_diff(
        example.splitlines(), work.text.splitlines(), "right", "wrong", "", "", 2, ""
    )
    return {
        "operator": work.operator,
        "text": work.text[:_SHOWN],
        "diff": "\n".join(lines)[:_SHOWN],
        **witness.shown(_SHOWN),
        "doubtful": witness.is_doubtful,
    }


def _mean(values: Sequence[float]) -> dict[str, object] | None:
    if not values:
        return None
    interval = estimate(values, 0.95)
    return {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "tasks": interval.tasks,
    }


def _digest(
    env: Environment,
    tasks: Sequence[Task],
    written: Mapping[str, Sequence[WrittenWork]],
    seed: int,
    works: int,
    mending: bool,
) -> str:
    """What a report depends on."""
    parts: list[object] = [env.id, env.config, seed, works, mending, dict(written)]
    parts += [[task.id, task.prompt, task.reference] for task in tasks]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
