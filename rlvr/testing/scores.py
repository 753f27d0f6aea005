"""Scoring for a check: first the examples, then the catalogue, in workers that can be killed."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rlvr.environment import Environment, seeded
from rlvr.errors import DataError, RlvrError, Unscored, UsageError, foreign_code
from rlvr.rewards.parts import Format
from rlvr.scoring import Scorer
from rlvr.testing.answers import answer_in, may_be_same, mentions, plain_answer
from rlvr.testing.code import canaries, check_reward, constants_of, phrases_of
from rlvr.testing.exploits import (
    EMPTY_FORMS,
    OF_ANSWERS,
    Attempt,
    Known,
    attempts,
    harmless,
    is_code,
)
from rlvr.testing.findings import Findings, Severity, describe_exception
from rlvr.testing.searched import search_texts
from rlvr.testing.tried_work import try_work
from rlvr.text import prompt_text, squeeze_text
from rlvr.types import Completion, Score, Task
from rlvr.verifiers.base import BaseVerifier
from rlvr.workers import Threads, usable_cores

__all__ = ["TimeBudget", "Tries", "as_completion", "score_tasks"]

_MANY = 20  # tasks; for fewer, starting processes costs more than it saves
_AGAIN = 3  # times that a completion is scored which took longer
_SLOW_S = 5.0  # on a busy machine a tenth of a second may become one second
_LONG_S = 2.0  # a completion that took longer at one task is not tried at the next
# if a larger share of other tasks' answers is accepted, they are not all right by chance
_OTHERS = 0.1
_HANGS = 2  # each costs twice the limit, as a lost completion is tried again
_LOST_EXAMPLES = 3
# Of the machine and not of the environment: they end the check.
_OURS: Final = frozenset({"IsolationUnavailable", "SandboxFailed", "MissingDependency"})
_OF_CHECKERS: Final = ("checker-accepts", "checker-rejects", "checker-untried")
_DIFFERENT: Final = 3  # tasks at which a searched text is tried
_SEARCH_S: Final = 20.0
_MIN_TOKENS = 16  # so that parts that read the length treat all short texts alike

# Partial credit for these proves nothing: a program may pass some tests, and an answer may be
# partly right.
_MAY_EARN: Final = frozenset(
    {"other-answer", "prompt-echo", "look-alike", "hostile-code", "near-miss", "restated"}
)


class TimeBudget:
    """The wall seconds that a check may take.

    Args:
        budget_s: from now on.

    Attributes:
        left_out: number of tasks or batches that there was no time for.
    """

    def __init__(self, budget_s: float) -> None:
        self._end = time.monotonic() + budget_s
        self.left_out = 0

    @property
    def spent(self) -> bool:
        """True once the seconds have passed."""
        return time.monotonic() > self._end


@dataclass
class Tries:
    """The completions that were scored, which `check_repeats` scores again.

    Attributes:
        tries: task, completion, its score, and the wall seconds that scoring took.
        shares: for each task, the share of the catalogue that was tried.
        answers: the known short answers, one for each task that has one.
    """

    tries: list[tuple[Task, Completion, Score, float]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    @property
    def guess(self) -> float | None:
        """Share of the tasks for which the commonest answer is right; None without answers."""
        votes = Counter(map(squeeze_text, self.answers))
        return max(votes.values()) / len(self.answers) if votes else None

    @property
    def floor(self) -> float | None:
        """Mean total of an empty completion; None if there is none."""
        totals = [score.total for _, completion, score, _ in self.tries if not completion.text]
        finite = [total for total in totals if total is not None]
        return sum(finite) / len(finite) if finite else None

    @property
    def share(self) -> float:
        """Share of the catalogue that was tried, over all tasks; 1 if the catalogue was not asked
        for."""
        return sum(self.shares) / len(self.shares) if self.shares else 1.0


def as_completion(text: str) -> Completion:
    """A completion with a number of tokens, for rewards that read it.

    Args:
        text: its text.
    """
    # About four characters a token.
    return Completion(text, length_tokens=max(_MIN_TOKENS, len(text) // 4))


def score_tasks(
    env: Environment,
    tasks: Sequence[Task],
    found: Findings,
    budget: TimeBudget,
    rng: random.Random,
    wall_s: float,
    workers: int | None = None,
) -> Tries:
    """Score each task's example and the whole catalogue.  What is found is the same for any number
    of workers.

    Args:
        env: the environment.
        tasks: the sample.
        found: where findings go.
        budget: wall seconds of the whole check.
        rng: draws wrong answers.
        wall_s: time limit of one completion, in wall seconds.
        workers: number of processes; None for one per core where there are many tasks, else one.

    Raises:
        UsageError: nothing can be scored on this machine, for a reason outside of the environment.
    """
    done = Tries()
    if workers is None:
        workers = usable_cores() if len(tasks) > _MANY else 1
    try:
        scorer = Scorer(env, workers=workers, wall_s=wall_s).warm()
    except UsageError as error:
        found.add("unpicklable", got=str(error))
        return done
    except RlvrError as error:
        found.add("cannot-start", got=str(error))
        return done
    with scorer:
        run = _Run(env, scorer, found, done)
        examples = _examples(run, tasks, budget)
        done.answers = [example.answer for example, _ in examples if example.answer is not None]
        if found.wants("exploits"):
            check_reward(env, found)
            # The first example alone: texts of the code are the same for all tasks.
            for example, _ in examples[:1]:
                _try_code(run, example)
        if found.wants("exploits") and not run.hopeless:
            for example, reference in examples:
                other_examples = [other for other, _ in examples if other is not example]
                done.shares.append(_try_all(run, example, reference, other_examples, budget, rng))
            try_work(
                env, [example.task for example, _ in examples], found, run.workers,
                score=lambda task, work: run.score_timed(task, work.text)[0],
                is_over=lambda: budget.spent or run.hopeless,
            )  # fmt: skip
            _search(run, [example for example, _ in examples], budget)
        _judge_others(run)
        if run.passed_over:
            what = (
                f"tries were left out, as their text took more than {_LONG_S:g} s at another task"
            )
            found.add("not-checked", Severity.NOTE, f"{run.passed_over} {what}")
        if run.hopeless:
            what = "hangs and lost examples cost too much time: the rest was left out"
            found.add("not-checked", Severity.NOTE, what)
    return done


class _Run:
    """Workers, and the results so far."""

    def __init__(self, env: Environment, scorer: Scorer, found: Findings, done: Tries) -> None:
        self.env, self.found, self.done = env, found, done
        self.hangs = self.lost_examples = self.passed_over = 0
        # completions that hung, died or took long, as they would at each task
        self.gone: set[str] = set()
        self.of_others: list[dict[str, str]] = []  # answers of other tasks that were accepted
        self._scorer = scorer

    @property
    def hopeless(self) -> bool:
        return self.hangs >= _HANGS or self.lost_examples >= _LOST_EXAMPLES

    def score_timed(self, task: Task, text: str) -> tuple[Score, float]:
        """A score and the seconds that it took."""
        started = time.monotonic()
        [score] = self._scorer.score_group(task, [as_completion(text)])
        return score, time.monotonic() - started

    def scores(self, task: Task, texts: Sequence[str]) -> list[Score]:
        """Scores of many texts, which are neither timed nor kept."""
        return self._scorer.score_group(task, [as_completion(text) for text in texts])

    @property
    def workers(self) -> int:
        return self._scorer.workers

    def score(
        self, task: Task, text: str, ahead: _Ahead | None = None, *, may_take_long: bool = False
    ) -> Score:
        completion = as_completion(text)
        score, took_s = self.score_timed(task, text) if ahead is None else ahead.take(text)
        for hole in ("crash", "hang", "slow"):
            self.found.tried(hole)
        self.done.tries.append((task, completion, score, took_s))
        if took_s > _LONG_S:
            self.gone.add(text)
        case = {"task": task.id, "completion": harmless(text)}
        if score.total is None:
            self._lost(score, case)
            return score
        for _ in range(_AGAIN):  # the machine may have been busy
            if took_s > _SLOW_S and not may_take_long:
                took_s = min(took_s, self.score_timed(task, text)[1])
        if took_s > _SLOW_S and not may_take_long:
            self.found.add(
                "slow",
                Severity.WARNING,
                **case,
                got=f"{took_s:.1f} s",
                wanted=f"less than {_SLOW_S:g} s",
            )
        if not score.verdict.why:
            self.found.add(
                "no-reason",
                Severity.WARNING,
                **case,
                wanted="why='reason', or 'reason: text for people'",
            )
        return score

    def _lost(self, score: Score, case: dict[str, str]) -> None:
        """Add the finding for an UNSCORED completion, by the worker's reason."""
        # The worker puts its own prefix before the exception's name.
        why = score.verdict.why
        kind = why.removeprefix("worker-error: ").partition(":")[0]
        if kind in _OURS:
            raise UsageError(f"{self.env.id} cannot be scored on this machine: {why}")
        hole, expected = "crash", "a verdict: what a completion does wrong is a value"
        if why.startswith("worker-timeout"):
            hole, expected = "hang", "a verdict within the limit"
            self.hangs += 1
        elif not why.startswith(("worker-error", "worker-died")):
            hole = "unscored"
        elif kind == "RewardError" or "a verdict's value is" in why:
            # " nan", not "nan" within a word of the message.
            strange = any(f" {value}" in why for value in ("nan", "inf", "-inf"))
            hole, expected = (
                ("not-finite" if strange else "out-of-bounds"),
                "a finite number inside the bounds",
            )
        self.found.add(hole, **case, got=why, wanted=expected)


class _Ahead:
    """Scores of texts at one task, as many at a time as there are workers, so that none
    waits while it is timed.

    Args:
        run: scores them.
        task: what they answer.
        texts: in the order in which they will be asked for; some may be passed over.
    """

    def __init__(self, run: _Run, task: Task, texts: Iterable[str]) -> None:
        self._run, self._task, self._texts = run, task, iter(texts)
        self._threads = Threads(run.workers, "check")
        self._begun: deque[tuple[str, Future[tuple[Score, float]]]] = deque()

    def take(self, text: str) -> tuple[Score, float]:
        """The score of a text and the seconds that it took; blocks."""
        while True:
            while (
                len(self._begun) < self._run.workers
                and (next_one := next(self._texts, None)) is not None
            ):
                if next_one not in self._run.gone:
                    self._begun.append(
                        (
                            next_one,
                            self._threads.submit(self._run.score_timed, self._task, next_one),
                        )
                    )
            begun, future = self._begun.popleft()
            # Texts that were passed over have been begun all the same, and are dropped here.
            if begun == text:
                return future.result()

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.close()


def _examples(
    run: _Run, tasks: Sequence[Task], budget: TimeBudget
) -> list[tuple[Known, Score | None]]:
    """Each task with a completion that is right, if there is one, and that completion's score."""
    examples: list[tuple[Known, Score | None]] = []
    for number, task in enumerate(tasks):
        if budget.spent or run.hopeless:
            budget.left_out += len(tasks) - number
            break
        _try_checker(run, task)
        # Of a task whose reference cannot be read nothing more is tried.
        if not _is_readable(run, task):
            continue
        example = None
        with foreign_code() as errors:
            example = run.env.example(task)
            if not (example is None or isinstance(example, str)):
                raise TypeError(f"it gave {example!r}")
        for error in errors:
            run.found.add(
                "example-raises",
                task=task.id,
                got=describe_exception(error),
                wanted="a text, or None where none can be written down",
            )
            example = None
        if example is None:
            run.found.add("no-example", Severity.NOTE, task=task.id)
            examples.append((_describe_known(run, task, None, plain_answer(task.reference)), None))
            continue
        run.found.tried("reference-rejected")
        score = run.score(task, example)
        if score.total is None:
            run.lost_examples += 1
            continue
        _judge_example(run, task, example, score)
        examples.append(
            (
                _describe_known(
                    run, task, example, answer_in(example, score.verdict.answer, task.reference)
                ),
                score,
            )
        )
    return examples


def _describe_known(run: _Run, task: Task, example: str | None, answer: str | None) -> Known:
    """What is known of a task; a note says what cannot be tried because no short answer is
    known."""
    result = Known(task, example, answer)
    if is_code(result):  # two programs, one after another, may well be a right program
        return replace(result, answer=None)
    if answer is None and run.found.wants("exploits"):
        what = f"no short answer is to be told, so that {', '.join(OF_ANSWERS)} were not tried"
        run.found.add("not-checked", Severity.NOTE, what, task=task.id)
    return result


def _is_readable(run: _Run, task: Task) -> bool:
    """True if the verifier can read the reference; a note if it can read it only as text."""
    run.found.tried("reference-as-text")
    with foreign_code() as errors:
        run.env.reference_of(task.reference)
        primary = run.env.reward.primary
        if primary is not None and isinstance(primary.verifier, BaseVerifier):
            why = primary.verifier.doubt(task.reference)
            if why is not None:
                run.found.add(
                    "reference-as-text",
                    Severity.NOTE,
                    task=task.id,
                    got=f"{str(task.reference)[:80]!r}: {why}",
                )
    for error in errors:
        run.found.add("reference-unreadable", task=task.id, got=describe_exception(error))
    return not errors


def _try_checker(run: _Run, task: Task) -> None:
    """Add what is wrong with a program that the reference brings to judge with."""
    primary = run.env.reward.primary
    verifier = None if primary is None else primary.verifier
    if not isinstance(verifier, BaseVerifier) or not run.found.wants("references"):
        return
    for hole in _OF_CHECKERS:
        run.found.tried(hole)
    try:
        for hole, fault in verifier.faults(task.reference):
            severity = Severity.NOTE if hole == "checker-untried" else Severity.HOLE
            run.found.add(hole, severity, task=task.id, got=fault)
    except DataError:
        return  # "reference-unreadable" says it
    except Unscored as error:
        raise UsageError(f"{run.env.id} cannot be scored on this machine: {error}") from None


def _judge_example(run: _Run, task: Task, example: str, score: Score) -> None:
    case = {"task": task.id, "completion": harmless(example)}
    total, high = score.total, run.env.reward.bounds[1]
    got = f"{score.verdict.outcome} ({score.verdict.why}), total {total:g}"
    if not score.verdict.correct:
        run.found.add("reference-rejected", **case, got=got, wanted="correct")
    elif score.verdict.value < 1:
        run.found.add("reference-partial", **case, got=f"value {score.verdict.value:g}", wanted="1")
    elif total is not None and total < high - 1e-9:
        formless = any(
            isinstance(leaf, Format) and score.parts.get(leaf.name) == 0
            for leaf in run.env.reward.leaves
        )
        # other parts may prefer other texts
        severity = Severity.WARNING if formless else Severity.NOTE
        run.found.add(
            "reference-below-maximum", severity, **case, got=f"total {total:g}", wanted=f"{high:g}"
        )


def _try_all(
    run: _Run,
    known: Known,
    reference: Score | None,
    others: Sequence[Known],
    budget: TimeBudget,
    rng: random.Random,
) -> float:
    """Try the whole catalogue at one task; returns the share of it that there was time for."""
    floor: float | None = None
    if budget.spent:
        budget.left_out += 1
        return 0.0
    catalogue = list(attempts(known, others, rng))
    texts = (attempt.text for attempt in catalogue if run.found.wants(attempt.hole))
    with _Ahead(run, known.task, texts) as ahead:
        for number, attempt in enumerate(catalogue):
            if run.hopeless or budget.spent:
                budget.left_out += budget.spent
                return number / len(catalogue)
            if not run.found.wants(attempt.hole):
                continue
            if attempt.text in run.gone:
                run.passed_over += 1
                continue
            run.found.tried(attempt.hole)
            may_take_long = is_code(known)  # a program has its own limit
            score = run.score(known.task, attempt.text, ahead, may_take_long=may_take_long)
            if score.total is None:
                run.gone.add(attempt.text)
                continue
            # What an empty text earns, the first of the catalogue, is the floor of the task.
            floor = score.total if attempt.hole == "empty" else floor
            for hole in (
                () if attempt.hole in _MAY_EARN else ("partial-credit", "outscores-reference")
            ):
                run.found.tried(hole)
            if not attempt.lucky:
                _judge(run, known, attempt, score, reference, floor)
    return 1.0


def _judge(
    run: _Run,
    known: Known,
    attempt: Attempt,
    score: Score,
    reference: Score | None,
    floor: float | None,
) -> None:
    """Add a finding if a completion that deserves nothing earned something."""
    assert score.total is not None
    case = {"task": known.task.id, "completion": harmless(attempt.text)}
    got = f"{score.verdict.outcome} ({score.verdict.why[:200]}), total {score.total:g}"
    if score.verdict.correct and attempt.hole == "other-answer":
        run.of_others.append(case | {"got": got, "wanted": "not correct"})
    elif score.verdict.correct:
        # A tag that no prompt mentions and no template writes is a text like any other.
        unknown = attempt.hole == "thinking-only" and "<thinking>" in attempt.text
        unknown = unknown and "<thinking" not in prompt_text(known.task.prompt)
        severity = Severity.NOTE if unknown else Severity.HOLE
        run.found.add(attempt.hole, severity, **case, got=got, wanted="not correct")
    elif reference is not None and reference.total is not None and score.total > reference.total:
        run.found.add(
            "outscores-reference", **case, got=got, wanted=f"less than {reference.total:g}"
        )
    elif score.verdict.value > 0 and attempt.hole not in _MAY_EARN:
        what = f"credit for {attempt.hole}, a text that deserves none"
        run.found.add("partial-credit", Severity.WARNING, what, **case, got=got, wanted="value 0")
    elif attempt.text in EMPTY_FORMS and floor is not None and score.total > floor + 1e-9:
        run.found.add(
            attempt.hole,
            Severity.WARNING,
            **case,
            got=got,
            wanted=f"{floor:g}, as for no text at all",
        )


def _try_code(run: _Run, known: Known) -> None:
    """Try texts that stand in the verifier's own code, and programs that leave a file behind where
    they are run."""
    for phrase in phrases_of(run.env) if run.found.wants("secret-phrase") else ():
        run.found.tried("secret-phrase")
        # A phrase with the right answer in it would be paid for that.
        if known.answer is not None and mentions(phrase, known.answer):
            continue
        for text in (phrase, f"\\boxed{{{phrase}}}", f"I think so. {phrase}"):
            score = run.score(known.task, text)
            if (
                score.verdict.correct
                # The same sentence without the phrase must not be paid, or something else in it was
                # right.
                and run.score(known.task, text.replace(phrase, "quartz willow")).total == 0
            ):
                case = {"task": known.task.id, "completion": harmless(text)}
                run.found.add(
                    "secret-phrase", **case, got=score.verdict.why[:200], wanted="not correct"
                )
                return
    if not run.found.wants("evaluates"):
        return
    with TemporaryDirectory(prefix="rlvr-check-") as folder:
        trace = Path(folder) / "was-run"
        for program in canaries(str(trace), known.answer):
            run.found.tried("evaluates")
            run.score(known.task, program)
            if trace.exists():
                case = {"task": known.task.id, "completion": harmless(program)}
                run.found.add("evaluates", **case, got="it was run", wanted="it is read as data")
                return


def _search(run: _Run, known: Sequence[Known], budget: TimeBudget) -> None:
    """Search for a text that three tasks accept whose answers differ; where the reference is the
    answer itself."""
    three: list[Known] = []
    for candidate in known:
        reference = plain_answer(candidate.task.reference)
        if (
            candidate.answer is None
            or reference is None
            or not may_be_same(reference, candidate.answer)
        ):
            # A reference that is the answer itself: of others it is not known when two differ.
            continue
        if not any(may_be_same(candidate.answer, str(chosen.answer)) for chosen in three):
            three.append(candidate)
    if len(three) < _DIFFERENT or budget.spent or run.hopeless or not run.found.wants("searched"):
        return
    three = three[:_DIFFERENT]
    run.found.tried("searched")
    began = time.monotonic()

    # Nothing is paid once the time is over, so that the search ends.
    def are_correct(task: Task, texts: Sequence[str]) -> list[bool]:
        if not texts or budget.spent or time.monotonic() - began > _SEARCH_S:
            return [False] * len(texts)
        return [score.verdict.correct for score in run.scores(task, texts)]

    example, answer = three[0].example or "", three[0].answer or ""
    parts = example.split(answer)
    form = (parts[0], parts[1]) if len(parts) == 2 else None
    # From the task and not from the check's seed: the same search each time.
    rng = seeded("search", three[0].task.id)
    constants = constants_of(run.env)  # none of rlvr's own, which have tests of their own
    text = search_texts(constants, [case.task for case in three], form, are_correct, rng)
    if text is not None:
        names = ", ".join(repr(case.task.id) for case in three)
        run.found.add(
            "searched",
            task=three[0].task.id,
            completion=harmless(text),
            got=f"correct at {names}, whose answers differ",
            wanted="correct at one of them at most",
        )


def _judge_others(run: _Run) -> None:
    """Add a finding for accepted answers of other tasks: a few may be right, as tasks may share
    their answer."""
    count, tried = len(run.of_others), run.found.tries("other-answer")
    severity, what = Severity.NOTE, "the answer to another task, which may be right here"
    if count > 1 and count > _OTHERS * tried:
        severity, what = Severity.HOLE, ""
    elif count > 1:
        severity, what = (
            Severity.WARNING,
            "answers to other tasks, too many for all to be right here",
        )
    for case in run.of_others:
        run.found.add("other-answer", severity, what, **case)
