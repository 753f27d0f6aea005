"""`check`: tries an environment with everything that is known to go wrong in environments."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rlvr.environment import Environment, require_environment
from rlvr.errors import NonConforming
from rlvr.scoring import WALL_S
from rlvr.testing.findings import CheckReport, Findings, Severity
from rlvr.testing.labelled import check_labels
from rlvr.testing.plays import score_turns
from rlvr.testing.repeats import Elsewhere, check_episodes, check_repeats, check_task_repeats
from rlvr.testing.scores import TimeBudget, Tries, score_tasks
from rlvr.testing.tasks import check_tasks, compare_tasks, sample
from rlvr.testing.tried_work import try_work
from rlvr.testing.verifiers import check_verifier
from rlvr.testing.work import Work, maker_for
from rlvr.types import Score, Task
from rlvr.validate import require_optional_whole, require_seconds

__all__ = ["check", "check_environment"]

_EPISODES = 6  # tasks of an environment of several turns that are played
_HALF = 0.5  # share of the catalogue; a report on less is a warning


def check(
    env: Environment,
    *,
    tasks: int | None = 20,
    seed: int = 0,
    budget_s: float = 300.0,
    wall_s: float = WALL_S,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    workers: int | None = None,
    labels: str | Path | None = None,
) -> CheckReport:
    """Look for holes in an environment: all that `HOLES` names.

    Completions are scored in worker processes: one that hangs or ends its process is a finding, and
    does no harm. Tasks are made in this process.

    Args:
        env: the environment.
        tasks: number of tasks drawn for scoring; None for all of a finite set.
        seed: of the sample of tasks, and of the choice of wrong answers.
        budget_s: wall seconds after which no further completion is scored; a note says what was
            left out.
        wall_s: wall seconds after which a completion counts as hanging.
        only: checks to run, of `CHECKS`; all if empty.
        skip: checks or holes to leave out.
        workers: number of processes that score completions, with the same findings for any number;
            None for one per core where more than 20 tasks are drawn, else one.
        labels: a file of completions with `label`, right or wrong, as `rlvr view --labels` writes
            it; None for none.

    Raises:
        DataError: no row of `labels` can be used.
        UsageError: `env` is no environment, an argument cannot work, or this machine cannot score
            completions.
    """
    require_environment(env)
    tasks = require_optional_whole("tasks", tasks, 1, none="all")
    require_seconds("budget_s", budget_s)
    require_seconds("wall_s", wall_s)
    workers = require_optional_whole("workers", workers, 1, none="the default")
    started, findings, done, count = time.monotonic(), Findings(only, skip), Tries(), 0
    drawn_tasks = sample(env, findings, tasks, random.Random(seed))
    with Elsewhere(env, findings) as elsewhere:
        scanned = _check_tasks(env, elsewhere, drawn_tasks, findings, wall_s)
        if scanned is not None:
            played: Sequence[Task] = ()
            # A single turn is scored in workers; episodes are played, as they have a state.
            if env.single_turn:
                compare_tasks(env, scanned, findings)
                budget = TimeBudget(budget_s)
                _score_completions(
                    env, elsewhere, drawn_tasks, seed, budget, wall_s, workers, findings, done
                )
            else:
                # Fewer, as each is played many times over.
                drawn_tasks = played = drawn_tasks[:_EPISODES]
            count = len(drawn_tasks)
            if findings.wants("episodes"):
                check_episodes(elsewhere, played, findings, seed, wall_s)
                _try_played_work(env, played, findings, TimeBudget(budget_s), workers)
            _say_what_is_missing(findings, done, played)
    labelled = 0
    if labels is not None and findings.wants("labels"):
        labelled = check_labels(env, labels, findings, workers)
    took_ms = sorted(1000 * took_s for *_, took_s in done.tries) or [0.0]
    return CheckReport(
        env=env.id,
        findings=findings.listed(),
        tasks=count,
        completions=len(done.tries) + labelled,
        median_ms=statistics.median(took_ms),
        slowest_ms=took_ms[-1],
        took_s=time.monotonic() - started,
        seed=seed,
        config=_json_able(env.config),
        guess=done.guess,
        floor=done.floor,
        rows_left_out=env.rows_left_out if count else {},
    )


def check_environment(
    env: Environment,
    *,
    tasks: int | None = 5,
    seed: int = 0,
    budget_s: float = 300.0,
    wall_s: float = WALL_S,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> None:
    """Raise if `check` reports a hole or a warning; for tests of environments.

    Args:
        env, tasks, seed, budget_s, wall_s, only, skip: see `check`.

    Raises:
        NonConforming: lists every hole and warning, the worst first.
        UsageError: see `check`.
    """
    report = check(
        env, tasks=tasks, seed=seed, budget_s=budget_s, wall_s=wall_s, only=only, skip=skip
    )
    if not report.clean:
        lines = [
            str(finding) for finding in report.findings if finding.severity is not Severity.NOTE
        ]
        raise NonConforming(f"{env.id} does not pass its check:\n  - " + "\n  - ".join(lines))


def _check_tasks(
    env: Environment, elsewhere: Elsewhere, drawn: Sequence[Task], found: Findings, wall_s: float
) -> Sequence[Task] | None:
    """The first tasks, if they are looked at; None if there are none, or they are so broken that
    further checks have no meaning."""
    if not drawn:
        return None
    if not found.wants("tasks"):
        return ()
    scanned = check_tasks(env, drawn, found)
    if scanned:
        check_task_repeats(elsewhere, drawn, found, wall_s)
    return scanned or None


def _score_completions(
    env: Environment,
    elsewhere: Elsewhere,
    drawn: Sequence[Task],
    seed: int,
    budget: TimeBudget,
    wall_s: float,
    workers: int | None,
    found: Findings,
    done: Tries,
) -> None:
    """Score the catalogue, where a completion is the whole episode."""
    if any(map(found.wants, ("references", "exploits", "repeats"))):
        scored = score_tasks(env, drawn, found, budget, random.Random(seed), wall_s, workers)
        done.tries, done.shares, done.answers = scored.tries, scored.shares, scored.answers
    # A verifier that hung would hang here too, in this process.
    if found.wants("verifier") and not any(finding.hole == "hang" for finding in found.listed()):
        check_verifier(env, drawn, found)
    if found.wants("repeats"):
        check_repeats(env, elsewhere, done, found, budget, seed, wall_s)
    if budget.left_out:
        severity = Severity.WARNING if done.share < _HALF else Severity.NOTE
        what = f"the time was up: {budget.left_out} tasks or batches were not tried to the end"
        got = f"{done.share:.0%} of the catalogue" if done.shares else ""
        found.add("not-checked", severity, what, got=got)


def _try_played_work(
    env: Environment,
    played: Sequence[Task],
    found: Findings,
    budget: TimeBudget,
    workers: int | None,
) -> None:
    maker = maker_for(env)

    def score(task: Task, work: Work) -> Score:
        assert maker is not None
        return score_turns(env, task, maker.turns(task, work))

    try_work(env, played, found, workers or 1, score=score, is_over=lambda: budget.spent)


def _say_what_is_missing(found: Findings, done: Tries, played: Sequence[Task]) -> None:
    """Add a warning if nothing was scored, so that the report of it is not clean."""
    is_due = played or any(map(found.wants, ("references", "exploits", "repeats")))
    scored = done.tries or (played and found.wants("episodes"))
    # A hole that was found is a result, even if nothing was scored in the end.
    if (
        is_due
        and not scored
        and not any(finding.severity is Severity.HOLE for finding in found.listed())
    ):
        found.add("not-checked", Severity.WARNING, "nothing was scored")


def _json_able(config: dict[str, object]) -> dict[str, object]:
    """Options for a report: what JSON cannot hold becomes text."""
    # Through JSON, so that the report can be written whatever the options are.
    read: dict[str, object] = json.loads(json.dumps(config, default=str))
    return read
