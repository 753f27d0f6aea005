"""Checks that results repeat: in another process, under another hash seed, and from
several threads at once."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, TypeAlias

from rlvr.environment import Environment
from rlvr.errors import DataWarning, RlvrError, Unscored, UsageError, foreign_code
from rlvr.scoring import MEMORY_MIB
from rlvr.testing.episodes import JUNK, TASK_S, episode_breaches, gym_breaches, trace
from rlvr.testing.exploits import harmless
from rlvr.testing.findings import HOLES, Findings, Severity, describe_exception
from rlvr.testing.scores import TimeBudget, Tries
from rlvr.types import Completion, Score, Task
from rlvr.workers import Handler, WorkerPool
from rlvr.workers.threads import Threads

__all__ = ["Elsewhere", "check_episodes", "check_repeats", "check_task_repeats"]

# Sets and dictionaries of texts are gone through in another order under another seed.
_HASH_SEED = 20_231  # any other than 0, under which workers score
_MOST = 200  # completions that are scored again
_REPEATED_S = 5.0  # seconds that these may have taken together the first time
_BATCH = 20
_THREADS = 4
_QUICK_S = 1.0  # a completion that took longer is not scored again

_Asked: TypeAlias = tuple[str, Any]


class Elsewhere:
    """Workers with the environment, most under another hash seed than those that score.  Each is
    started when it is first needed and serves all checks: a start takes longer than what is asked.

    Args:
        env: the environment.
        found: where it is said that a worker cannot be started.
    """

    def __init__(self, env: Environment, found: Findings) -> None:
        self._env, self._found = env, found
        self._pools: dict[tuple[int, bool], WorkerPool | None] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def pool(self, hash_seed: int = _HASH_SEED, *, with_tasks: bool = False) -> WorkerPool | None:
        """A worker, which answers requests; None if it cannot be started.

        Args:
            hash_seed: of its interpreter.
            with_tasks: whether the environment has its tasks there.
        """
        bare = self._env.without_tasks()
        # Where the environment holds no tasks the two would be the same worker.
        with_tasks = with_tasks and not _same_fields(bare, self._env)
        key = (hash_seed, with_tasks)
        if key not in self._pools:
            self._pools[key] = self._start(self._env if with_tasks else bare, hash_seed)
        return self._pools[key]

    def _start(self, env: Environment, hash_seed: int) -> WorkerPool | None:
        try:
            pool = WorkerPool(
                partial(_handler, env), memory_mib=MEMORY_MIB, spares=0, hash_seed=hash_seed
            )
        except UsageError as error:
            self._found.add("unpicklable", got=str(error))
            return None
        self._open.enter_context(pool)
        try:
            pool.warm()
        except RlvrError as error:
            self._found.add("cannot-start", got=str(error))
            return None
        return pool


def _same_fields(one: Environment, other: Environment) -> bool:
    """Whether both hold the same objects, apart from an episode that is under way."""
    episode = {"_rng", "_episode"}
    fields, others = ({n: v for n, v in vars(e).items() if n not in episode} for e in (one, other))
    return fields.keys() == others.keys() and all(fields[n] is others[n] for n in fields)


def check_task_repeats(
    elsewhere: Elsewhere, drawn: Sequence[Task], found: Findings, wall_s: float
) -> None:
    """Check that another process makes the same tasks, where it can make them: rows of `from_rows`
    do not travel.

    Args:
        elsewhere: has the environment.
        drawn: tasks of this process.
        found: where findings go.
        wall_s: time limit, in wall seconds.
    """
    pool = elsewhere.pool()
    if pool is None:
        return
    # By ids, so that no task has to travel.
    lost, remade_tasks = _ask_pool(pool, ("find", [task.id for task in drawn]), wall_s)
    if lost or not remade_tasks:
        return  # its ids are of a kind that `find` need not know
    for task, remade in zip(drawn, remade_tasks, strict=True):
        found.tried("tasks-differ")
        # Through JSON on both sides, as tuples are read back as lists.
        expected = json.loads(_task_text(task))
        if remade is not None and json.loads(remade) != expected:
            found.add("tasks-differ", task=task.id, got=f"{remade[:200]} in another process")


def check_repeats(
    env: Environment,
    elsewhere: Elsewhere,
    done: Tries,
    found: Findings,
    budget: TimeBudget,
    seed: int,
    wall_s: float,
) -> None:
    """Check that completions get the same scores in another process, one by one and in threads.

    Args:
        env: the environment.
        elsewhere: has it too.
        done: the scores so far.
        found: where findings go.
        budget: wall seconds of the whole check.
        seed: of the sample of completions.
        wall_s: time limit of one completion, in wall seconds.
    """
    quick = [
        attempt for attempt in done.tries if attempt[2].total is not None and attempt[3] < _QUICK_S
    ]
    tries = random.Random(seed).sample(quick, min(len(quick), _MOST))
    # Those that fit into so many seconds, by what they took the first time.
    spent_s = itertools.accumulate(took_s for *_, took_s in tries)
    again = [
        (t, c, s)
        for (t, c, s, _), so_far_s in zip(tries, spent_s, strict=True)
        if so_far_s < _REPEATED_S
    ]
    if not again:
        return
    pool = elsewhere.pool()
    if pool is None:
        return
    for start in range(0, len(again), _BATCH):
        batch = again[start : start + _BATCH]
        # One by one first: what differs there differs in threads as well.
        for threads in (1, _THREADS):
            if budget.spent:
                budget.left_out += 1
                return
            work = [(task, completion) for task, completion, _ in batch]
            lost, results = _ask_pool(pool, ("score", (threads, work)), wall_s * len(batch))
            where = "in another process" if threads == 1 else f"in {threads} threads"
            if lost:
                found.add(
                    "nondeterministic", got=f"{lost} {where}", wanted="as in the first worker"
                )
                return
            _compare(env, batch, results, where, found)


def _compare(
    env: Environment,
    batch: Sequence[tuple[Task, Completion, Score]],
    there: list[object],
    where: str,
    found: Findings,
) -> None:
    low, high = env.reward.bounds
    for (task, completion, score), repeated in zip(batch, there, strict=True):
        case = {"task": task.id, "completion": harmless(completion.text)}
        found.tried("nondeterministic")
        first = _comparable(score)
        if first != repeated:
            pairs = (
                zip(first, repeated, strict=True)
                if isinstance(repeated, list)
                else [(first, repeated)]
            )
            got, expected = next((str(b), str(a)) for a, b in pairs if a != b)
            found.add(
                "nondeterministic", **case, got=f"{got} {where}", wanted=f"{expected}, as before"
            )
        # Bounds once more: in threads a shared state may leave them.
        if (
            isinstance(repeated, list)
            and repeated[0] is not None
            and not low <= repeated[0] <= high
        ):
            found.add("out-of-bounds", **case, got=str(repeated[0]), wanted=f"[{low:g}, {high:g}]")


def check_episodes(
    elsewhere: Elsewhere, tasks: Sequence[Task], found: Findings, seed: int, wall_s: float
) -> None:
    """Check episodes: reset and step; the example, replies and answers of tasks; and the same in
    another process.

    Args:
        elsewhere: has the environment.
        tasks: to be played.
        found: where findings go.
        seed: of the reset.
        wall_s: time limit for each task, in wall seconds, beside that of the calls.
    """
    limit_s = (TASK_S + wall_s) * max(len(tasks), 1)
    # Seed 0 is that of the workers that score; episodes are compared between it and another one.
    first = elsewhere.pool(0 if tasks else _HASH_SEED, with_tasks=True)
    if (
        first is None
        or not _report(first, ("gym", seed), 2 * wall_s, found)
        or not _report(first, ("episodes", tasks), limit_s, found)
        or not tasks
    ):
        return
    here = _ask_pool(first, ("trace", tasks), limit_s)[1]
    second = elsewhere.pool(with_tasks=True)
    if second is None:
        return
    there = _ask_pool(second, ("trace", tasks), limit_s)[1]
    found.tried("nondeterministic")
    if here != there:
        what = "the same turns give other replies in another process"
        found.add("nondeterministic", Severity.HOLE, what)


def _report(pool: WorkerPool, asked: _Asked, wall_s: float, found: Findings) -> bool:
    """Add the findings of the other process; False if it was lost, or the environment breaks its
    contract."""
    lost, breaches = _ask_pool(pool, asked, wall_s)
    if lost:
        found.add(
            "hang" if lost.startswith("worker-timeout") else "episode",
            Severity.HOLE,
            "an episode",
            got=lost,
        )
        return False
    for hole, severity, what, got in breaches:
        assert hole in HOLES
        found.add(hole, Severity(severity), what, got=got)
    # A verdict that pays junk is no broken contract, so that further checks have a meaning.
    return not any(
        severity == Severity.HOLE and hole not in JUNK for hole, severity, *_ in breaches
    )


def _ask_pool(pool: WorkerPool, asked: _Asked, wall_s: float) -> tuple[str, Any]:
    """(why the request was lost, "" if it was not; the reply)."""
    [reply] = pool.run([asked], wall_s=wall_s)
    return (f"{reply.reason}: {reply}", None) if isinstance(reply, Unscored) else ("", reply)


# ----------------------------------------------------------------------------- in the other process


def _handler(env: Environment) -> Handler:
    # The process that drew the tasks has said which rows were left out.
    warnings.simplefilter("ignore", DataWarning)

    def handle(asked: _Asked) -> Any:
        what, payload = asked
        if what == "score":
            threads, work = payload
            if threads == 1:
                return [_score_work(env, piece) for piece in work]
            with Threads(threads, "check of threads") as pool:
                return list(pool.map(partial(_score_work, env), work))
        if what == "find":
            return [_found(env, name) for name in payload]
        plays: dict[str, Any] = {"gym": gym_breaches, "episodes": episode_breaches, "trace": trace}
        return plays[what](env, payload)

    return handle


def _score_work(env: Environment, work: tuple[Task, Completion]) -> object:
    task, completion = work
    with foreign_code() as errors:
        [score] = env.score_group(task, [completion])
    return describe_exception(errors[0]) if errors else _comparable(score)


def _comparable(score: Score) -> list[object]:
    verdict = score.verdict
    fields = [score.total, str(verdict.outcome), verdict.value, verdict.why, verdict.answer]
    return [*fields, dict(verdict.detail), dict(score.parts)]  # as `rlvr replay` compares them


def _found(env: Environment, name: str) -> str | None:
    with foreign_code():  # which need not find a task by its id
        return _task_text(env.find(name))
    return None


def _task_text(task: Task) -> str:
    return json.dumps([task.id, task.prompt, task.reference, dict(task.meta)], sort_keys=True)
