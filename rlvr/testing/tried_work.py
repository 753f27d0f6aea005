"""Wrong and right work in a check: eight and four at each task, wherever there is a maker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from rlvr.environment import Environment, seeded
from rlvr.errors import Unscored
from rlvr.testing.exploits import harmless
from rlvr.testing.findings import Findings, Severity
from rlvr.testing.work import Maker, Untested, Work, maker_for
from rlvr.types import Score, Task
from rlvr.workers import Threads

__all__ = ["try_work"]

_WRONG: Final = 8
_RIGHT: Final = 4


class _Tried(NamedTuple):
    """A work with its score, and what it should have got; "" where that is what it got."""

    hole: str
    work: Work
    score: Score
    wanted: str


def try_work(
    env: Environment,
    tasks: Sequence[Task],
    found: Findings,
    workers: int,
    *,
    score: Callable[[Task, Work], Score],
    is_over: Callable[[], bool],
) -> None:
    """Try wrong and right work of the environment's kind, at each task; a note says where there is
    none.

    Args:
        env: the environment.
        tasks: of the environment.
        found: where findings go.
        workers: number of tasks that are tried at once.
        score: scores work at a task.
        is_over: whether there is no time for another task.
    """
    if not any(map(found.wants, ("wrong-work", "right-work"))) or not tasks:
        return
    makers: dict[str, Maker] = {}
    # Each member of a mixture once, by its own id.
    for member in {env.route(task)[0].id: env.route(task)[0] for task in tasks}.values():
        maker = maker_for(member, workers)
        if maker is None:
            what = (
                f"no maker of work serves {member.id}, "
                "so that wrong-work and right-work were not tried"
            )
            found.add("not-checked", Severity.NOTE, what)
        else:
            makers[member.id] = maker

    def try_at(task: Task) -> list[_Tried] | str:
        member, inner = env.route(task)
        try:
            return [] if is_over() else _try_at(makers[member.id], task, inner, score)
        except (Untested, Unscored) as error:
            return str(error)

    tasks = [task for task in tasks if env.route(task)[0].id in makers]
    threads = Threads(workers, "work")
    try:
        results = [future.result() for future in [threads.submit(try_at, task) for task in tasks]]
    finally:
        threads.close()
    for task, tries in zip(tasks, results, strict=True):
        if isinstance(tries, str):
            what = "no work could be made, so that wrong-work and right-work were not tried"
            found.add("not-checked", Severity.NOTE, what, task=task.id, got=tries)
            continue
        for hole, work, score_given, expected in tries:
            if found.wants(hole):
                found.tried(hole)
                _judge(found, task, hole, work, score_given, expected)


def _try_at(
    maker: Maker, task: Task, inner: Task, score: Callable[[Task, Work], Score]
) -> list[_Tried]:
    wrong = list(islice(maker.wrong(inner, seeded("work", task.id)), _WRONG))
    right = list(islice(maker.right(inner, seeded("work", task.id)), _RIGHT))
    tries: list[_Tried] = []
    for work in wrong:
        proof = maker.witness(inner, work)
        # Only work whose wrongness is beyond doubt is tried here.
        if proof is None or proof.is_doubtful or proof.is_slow:
            continue
        evidence = f"not correct: at {proof.given} it is {proof.got}, not {proof.expected}"[:400]
        score_given = score(task, work)
        tries.append(
            _Tried("wrong-work", work, score_given, evidence if score_given.verdict.correct else "")
        )
    for work in right:
        score_given = score(task, work)
        # UNSCORED is no refusal.
        is_refused = score_given.total is not None and not score_given.verdict.correct
        expected = "correct: it is right by its making" if is_refused else ""
        tries.append(_Tried("right-work", work, score_given, expected))
    return tries


def _judge(found: Findings, task: Task, hole: str, work: Work, score: Score, wanted: str) -> None:
    if wanted:
        got = f"{score.verdict.outcome} ({score.verdict.why[:200]}), made by {work.operator!r}"
        text = harmless(work.text)
        found.add(hole, task=task.id, completion=text, got=got, wanted=wanted)
