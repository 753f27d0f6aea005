"""Scorers of async environments: many completions are awaited at once, and a bad one costs its neighbours nothing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import textwrap
import threading
from functools import partial

import pytest

import rlvr
from rlvr.errors import UsageError
from tests.awaiting import Awaited, Judge, Polite, Ranked, most_at_once, note, until
from tests.environments import Trials
from tests.processes import PATIENCE_S, ended, python

ENV = Awaited()
WORKERS = [0, 2]


@pytest.fixture(scope="module")
def scorers():
    """In this process, and in two others; a worker takes longer to start than all of a test."""
    with rlvr.Scorer(ENV, workers=0) as here, rlvr.Scorer(ENV, workers=2, wall_s=1.5) as there:
        yield {0: here, 2: there}


def said(scored) -> tuple:
    return (
        scored.item.id,
        scored.outcome,
        scored.score.total,
        dict(scored.score.parts),
        scored.score.verdict.why,
    )


@pytest.mark.parametrize("workers", WORKERS)
def test_completions_are_awaited_together_within_the_bound(workers, scorers, tmp_path):
    """Each waits until 8 have begun, so 8 are under way at once; `max_concurrent` is 8, so no more are."""
    log = tmp_path / "log"
    rows = [{"task": i, "completion": f"{i}@together {log} 8"} for i in range(24)]
    scored = list(scorers[workers].stream(rows))
    assert scorers[workers].processes == (workers, 0)
    assert [one.item.task.reference for one in scored] == list(range(24))
    assert all(one.outcome is rlvr.Outcome.CORRECT for one in scored)
    assert most_at_once(log) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_a_group_is_awaited_together(workers, scorers, tmp_path):
    task, scorer = ENV.task(7), scorers[workers]
    blocking = scorer.score_group(task, [f"7@together {tmp_path / 'a'} 8", "8"] * 8)
    waited = asyncio.run(scorer.ascore_group(task, [f"7@together {tmp_path / 'b'} 8", "8"] * 8))
    alone = ENV.score_group(task, [f"7@together {tmp_path / 'c'} 8", "8"] * 8)
    assert blocking == waited == alone
    assert [score.total for score in alone] == [1.0, 0.0] * 8


def test_single_scores_from_many_callers_share_the_workers(scorers, tmp_path):
    """As from a service or a trainer that asks for one completion at a time: 8 callers, two worker processes."""
    log = tmp_path / "log"

    async def ask(scorer):
        return await asyncio.gather(
            *(scorer.ascore(ENV.task(i), f"{i}@together {log} 8") for i in range(8))
        )

    assert [score.total for score in asyncio.run(ask(scorers[2]))] == [1.0] * 8


class Both(Trials):
    """The same answers as `Awaited`, without waiting."""

    def verify(self, task, completion):
        outcome = rlvr.Outcome.CORRECT if completion == str(task.reference) else rlvr.Outcome.WRONG
        return rlvr.Verdict(outcome, why=f"compared: with {task.reference}", answer=completion)


@pytest.mark.parametrize("workers", [0, 2])
def test_results_are_those_of_the_same_code_without_async(workers, scorers, tmp_path):
    """The first of three rows is the last to be finished, and still comes first."""
    log = tmp_path / "log"
    note(str(log), "")
    rows = [{"id": i, "task": i, "completion": f"{i + i % 2}", "other": i} for i in range(40)]
    plain = [said(one) for one in rlvr.score(Both(), rows, workers=0)]
    assert [said(one) for one in scorers[workers].stream(rows)] == plain
    slow = [
        {"task": i, "completion": f"{i}@{action} {log} x"}
        for i, action in enumerate(["after", "note", "note"])
    ]
    assert [one.item.task.reference for one in scorers[workers].stream(slow)] == [0, 1, 2]


# ---------------------------------------------------------------------------------- what goes wrong

GOOD = ["7", "8", "7"]
FINE = ["compared: with 7"] * 3


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("raise ValueError", "worker-error: ValueError: no"),
        ("raise SystemExit", "worker-error: SystemExit: 3"),
        ("raise KeyboardInterrupt", "worker-error: KeyboardInterrupt"),
        ("raise CancelledError", "worker-error: CancelledError"),
        ("raise StopAsyncIteration", "worker-error: StopAsyncIteration"),
        ("raise GeneratorExit", "worker-error: GeneratorExit"),
        ("cancels-itself", "worker-error: CancelledError"),
        ("not-json", "worker-error: ValueError: Out of range float values are not JSON compliant"),
        ("subtask", "worker-error: SystemExit: 3"),
        (
            "run",
            "worker-error: RuntimeError: asyncio.run() cannot be called from a running event loop",
        ),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_is_the_items_own(action, why, workers, scorers):
    if workers == 0 and action in ("raise KeyboardInterrupt", "raise GeneratorExit"):
        pytest.skip("in this process these are Ctrl-C, and the end of a coroutine that is closed")
    scores = scorers[workers].score_group(ENV.task(7), [*GOOD, f"7@{action}"])
    assert scorers[workers].processes == (workers, 0)
    assert [score.verdict.why for score in scores] == [*FINE, why]
    assert scores[3].total is None


def test_one_that_never_ends_is_lost_alone(scorers, tmp_path):
    """It is cancelled, twice as it is tried twice, and the process goes on; `creep` holds the loop again and again."""
    log = tmp_path / "log"
    scores = scorers[2].score_group(
        ENV.task(7), [*GOOD, "7@forever", f"7@cleans-up {log}", "7@creep"]
    )
    assert scorers[2].processes == (2, 0)
    late = "worker-timeout: it ran out of wall time"
    assert [score.verdict.why for score in scores] == [*FINE, late, late, late]
    assert log.read_text().count("c") == 2


def test_one_that_ignores_being_cancelled_is_lost_alone():
    """Its process takes no more items and is replaced when the others in it are done."""
    with rlvr.Scorer(ENV, workers=1, wall_s=1.0) as scorer:
        scores = scorer.score_group(ENV.task(7), [*GOOD, "7@stubborn"])
        assert scorer.processes[1] == 2
    assert [score.verdict.why for score in scores] == [
        *FINE,
        "worker-timeout: it ran out of wall time",
    ]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("block 60", "worker-timeout: it ran out of wall time"),
        ("exit", "worker-died: the worker process ended: exit code 7"),
        pytest.param(
            "kill",
            "worker-died: the worker process ended: killed by SIGKILL",
            marks=pytest.mark.slow,
        ),
        pytest.param("memory", "worker-error: MemoryError", marks=pytest.mark.slow),
    ],
)
def test_one_that_takes_its_process_with_it_is_lost_alone(action, why, tmp_path):
    """The others wait until it has begun, so they are in the process with it; they begin anew in the next one."""
    log = tmp_path / "log"
    note(str(log), "")
    waiting = [f"7@after {log} x", f"8@after {log} x"]
    late = threading.Timer(0.3, note, (str(log), "x"))
    late.start()
    with rlvr.Scorer(ENV, workers=1, wall_s=1.5) as scorer:
        scores = scorer.score_group(ENV.task(7), [*waiting, f"7@{action}"])
    late.join()
    assert [score.verdict.why for score in scores] == [*FINE[:2], why]


def test_time_in_which_others_hold_the_loop_does_not_count(scorers):
    """Each blocks for 0.4 s, as a request without await does: in each process 6 of them are 2.4 s, of 1.5 for each."""
    assert [score.total for score in scorers[2].score_group(ENV.task(7), ["7@block 0.4"] * 12)] == [
        1.0
    ] * 12


def test_a_fork_that_comes_back_does_not_answer(scorers):
    assert [score.total for score in scorers[2].score_group(ENV.task(7), ["7", "8", "7@fork"])] == [
        1.0,
        0.0,
        1.0,
    ]


def test_a_scorer_that_is_closed_ends_the_calls_under_way():
    for workers in (0, 1):
        with rlvr.Scorer(ENV, workers=workers) as scorer:
            call = scorer._begin(
                [rlvr.scoring.Item("1", ENV.task(7), rlvr.Completion("7@forever"))]
            )
            scorer.score(ENV.task(7), "7")
        with pytest.raises(UsageError, match="closed"):
            call.result(10)
        with pytest.raises(UsageError, match="closed"):
            scorer.score(ENV.task(7), "7")


def test_no_process_outlives_its_scorer_or_this_program(tmp_path):
    """A scorer that is dropped without being closed, and a program that is killed with SIGKILL."""
    log = tmp_path / "log"
    scorer = rlvr.Scorer(ENV, workers=1)
    assert scorer.score(ENV.task(7), f"7@pid {log}").total == 1.0
    del scorer
    gc.collect()
    assert ended(int(log.read_text()))
    code = f"""
        import rlvr, sys
        from tests.awaiting import Awaited
        scorer = rlvr.Scorer(Awaited(), workers=1)
        scorer.score_group(Awaited().task(7), ["7@pid {log}2", "7@forever"])
    """
    with python(textwrap.dedent(code)) as program:
        pid = int(asyncio.run(asyncio.wait_for(written(tmp_path / "log2"), PATIENCE_S)))
        program.kill()
    assert ended(pid)


async def written(path) -> str:
    await until(lambda: path.exists() and path.read_text().endswith(" "))
    return path.read_text()


def test_an_environment_that_cannot_be_rebuilt_says_so():
    class Fragile(Awaited):
        def __setstate__(self, state):
            raise RuntimeError("not here")

    with pytest.raises(rlvr.WorkerError, match="not here"), rlvr.Scorer(Fragile(), workers=1):
        pass
    with pytest.raises(rlvr.WorkerError, match="not here"):
        list(rlvr.Scorer(Fragile(), workers=1).stream([{"task": 7, "completion": "7"}]))


def test_rows_that_are_given_up_are_cancelled(tmp_path):
    """A stream that is closed early leaves nothing running."""
    for workers in (0, 1):
        log = tmp_path / f"log{workers}"
        note(str(log), "")
        texts = (f"7@after {log} bb", f"7@cleans-up {log}", f"7@cleans-up {log}")
        rows = [{"task": 7, "completion": text} for text in texts]
        with rlvr.Scorer(ENV, workers=workers) as scorer:
            stream = scorer.stream(rows)
            assert next(stream).outcome is rlvr.Outcome.CORRECT
            stream.close()
            asyncio.run(asyncio.wait_for(until(lambda log=log: log.read_text() == "bbcc"), 10))
            assert scorer.score(ENV.task(7), "7").total == 1.0


def test_an_item_that_cannot_be_sent_is_an_error_of_its_row():
    errors = []
    rows = [
        {"task": 7, "completion": "7"},
        rlvr.scoring.Item("2", rlvr.Task("t", "", threading.Lock()), rlvr.Completion("7")),
    ]
    with rlvr.Scorer(ENV, workers=1) as scorer:
        scored = list(
            scorer.stream(rows, on_error=lambda number, error: errors.append((number, str(error))))
        )
    assert len(scored) == 1
    assert errors[0][0] == 2
    assert "cannot be sent" in errors[0][1]


# ---------------------------------------------------------------------------- where async may stand


def composed(reward):
    return rlvr.Environment.from_rows([{"prompt": "?", "reference": 7}], reward=reward)


@pytest.mark.parametrize("workers", [0, 1])
def test_parts_may_be_async_and_others_not(workers):
    """1 for the judge, 0.5 for please, -0.25 for the format that is not there."""
    reward = rlvr.Correct(Judge()) + 0.5 * Polite() - 0.25 * rlvr.Format("<a>...</a>")
    env = composed(reward + 0.1 * rlvr.Correct(Judge(), name="second"))
    text = "7@please"
    with rlvr.Scorer(env, workers=workers) as scorer:
        there = scorer.score_group(env.task(0), [text, "8"])
    assert there == env.score_group(env.task(0), [text, "8"])
    assert there[0].parts == {"correct": 1.0, "polite": 0.5, "format": 0.0, "second": 0.1}
    sync_verdict = composed(rlvr.Correct(lambda c, r: c == str(r)) + Polite())
    assert sync_verdict.is_async
    assert [s.total for s in sync_verdict.score_group(sync_verdict.task(0), ["7", "please"])] == [
        1.0,
        1.0,
    ]


def test_functions_and_partials_of_them_may_be_async():
    async def exact(completion, reference, fold=False):
        await asyncio.sleep(0)
        return completion.casefold() == reference if fold else completion == reference

    for function in (exact, partial(exact, fold=True)):
        env = rlvr.Environment.from_rows([{"prompt": "?", "reference": "a"}], verifier=function)
        assert env.is_async
        assert outcomes_of(env, ["a", "b"], workers=0) == ["said-true", "said-false"]


def outcomes_of(env, completions, **settings):
    rows = [{"task": 0, "completion": text} for text in completions]
    return [one.score.verdict.why for one in rlvr.score(env, rows, **settings)]


@pytest.mark.parametrize("workers", [0, 1])
def test_group_parts_may_be_async_and_groups_are_awaited_together(workers, scorers, tmp_path):
    """4 groups of 2: each group waits in its second stage until all 4 have come there."""
    log = tmp_path / "log"
    env = Awaited().with_reward(rlvr.Correct() + Ranked())

    def rows(suffix):
        return [
            {"task": i, "completion": f"{i}{extra}{suffix}"}
            for i in range(4)
            for extra in ("", "0")
        ]

    class Quiet(Awaited):
        reward = rlvr.Correct(lambda c, r: True) + Ranked()
        verify = rlvr.Environment.verify

    quiet = Quiet()
    scored = list(rlvr.score(quiet, rows(f"@together {log} 4"), workers=workers))
    assert [one.score.parts["ranked"] for one in scored] == [0.5, 1.0] * 4
    assert most_at_once(log) == 4
    assert [one.score.total for one in rlvr.score(env, rows(""), workers=workers)] == [1.5, 1.0] * 4
    assert [score.total for score in env.score_group(env.task(1), ["1", "10"])] == [1.5, 1.0]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("forever", "worker-timeout: it ran out of wall time"),
        ("raise ValueError", "worker-error: ValueError: no"),
    ],
)
def test_a_group_part_that_fails_costs_its_group_alone(action, why):
    class Quiet(Awaited):
        reward = rlvr.Correct(lambda c, r: True) + Ranked()
        verify = rlvr.Environment.verify

    rows = [{"task": 0, "completion": f"0@{action}"}, {"task": 1, "completion": "1"}]
    scored = list(rlvr.score(Quiet(), rows, workers=1, wall_s=0.5))
    assert [one.score.verdict.why for one in scored] == [why, "said-true"]


def test_a_forgotten_await_is_an_error_that_says_so():
    async def judge(completion, reference):
        return True

    async def yields(completion, reference):
        yield True

    async def twice(completion, reference):
        return judge(completion, reference)

    class Forgot(Awaited):
        def verify(self, task, completion):
            return judge(completion, task.reference)

    class ForgotPart(Polite):
        def value(self, task, completion, verdict):
            return judge(completion, verdict)

    def of(verifier):
        return rlvr.Environment.from_rows([{"prompt": "?", "reference": "a"}], verifier=verifier)

    forgot = "a coroutine that was not awaited; declare the function with `async def`"
    for env, message in (
        (of(lambda c, r: judge(c, r)), forgot),
        (of(twice), forgot),
        (of(yields), "an async generator; write `return` in place of `yield`"),
        (Forgot(), f"Forgot.verify returned {forgot}"),
    ):
        with pytest.raises(UsageError, match=message.replace("(", r"\(")):
            env.score(env.task(0), "a")
        [why] = outcomes_of(env, ["a"], workers=0)
        assert message in why
    env = composed(rlvr.Correct(lambda c, r: True) + ForgotPart())
    with pytest.raises(rlvr.RewardError, match="coroutine that was not awaited"):
        env.score(env.task(0), "7")


def test_what_cannot_be_async_is_refused():
    async def form(text):
        return True

    with pytest.raises(UsageError, match="not an async one"):
        rlvr.Format(form)
    env = composed(rlvr.Correct(lambda c, r: True) + rlvr.Format(lambda text: form(text)))
    with pytest.raises(UsageError, match="coroutine that was not awaited"):
        env.score(env.task(0), "7")
    with pytest.raises(
        UsageError, match=r"Walk\.task is async; of an environment's methods only verify may be"
    ):

        class Walk(rlvr.Environment):
            async def task(self, index):
                return rlvr.Task("walk", "")

    with pytest.raises(UsageError, match=r"max_concurrent is 0"):

        class Never(Awaited):
            max_concurrent = 0

    with pytest.raises(UsageError, match="waits for something"):
        ENV.observe(ENV.task(7), rlvr.Completion("7"))


# ------------------------------------------------------------------------------- loops and contexts

WHO = contextvars.ContextVar("WHO", default="default")


class Asks(Awaited):
    """Says what it sees of the caller's context, and whether its loop is the one of before."""

    async def verify(self, task, completion):
        seen, loop = WHO.get(), asyncio.get_running_loop()
        WHO.set("changed by a completion")
        same = LOOPS.setdefault("first", loop) is loop
        return rlvr.Verdict("correct", why=f"{seen}, {'same' if same else 'another'} loop")


LOOPS: dict = {}


def test_calls_in_this_process_share_one_loop_and_see_the_callers_context():
    """So a client that the verifier keeps stays usable; and from a running loop, such as a notebook's, it works too."""
    WHO.set("mine")
    env = Asks()

    async def inside():
        return env.score(env.task(0), "").verdict.why

    whys = [env.score(env.task(0), "").verdict.why for _ in range(2)] + [asyncio.run(inside())]
    for _ in range(2):
        with rlvr.Scorer(env, workers=0) as scorer:
            whys += [score.verdict.why for score in scorer.score_group(env.task(0), ["", ""])]
    assert set(whys) == {"mine, same loop"}


def test_async_code_that_waits_for_its_own_loop_is_told_so():
    class Nested(Awaited):
        async def verify(self, task, completion):
            return ENV.score(task, completion).verdict

    with pytest.raises(UsageError, match=r"await Scorer\.ascore"):
        Nested().score(ENV.task(0), "0")


def test_a_forked_child_has_a_loop_of_its_own():
    """As under multiprocessing's fork: the parent's loop thread and workers are not the child's."""
    with rlvr.Scorer(ENV, workers=1) as there, rlvr.Scorer(ENV, workers=0) as here:
        before = [scorer.score(ENV.task(7), "7").total for scorer in (there, here)]
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                totals = [scorer.score(ENV.task(7), "7").total for scorer in (there, here)]
                totals.append(ENV.score(ENV.task(7), "7").total)
                there.close()
                os._exit(41 if totals == [1.0, 1.0, 1.0] else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 41
        assert (
            before
            == [scorer.score(ENV.task(7), "7").total for scorer in (there, here)]
            == [1.0, 1.0]
        )
        assert there.processes == (1, 0)
