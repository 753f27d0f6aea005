"""The scorer: every completion gets its score, in order, and a bad one never harms another."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import rlvr
from rlvr.errors import UsageError, WorkerError
from rlvr.verifiers.math import MathVerifier
from tests.environments import Trials
from tests.processes import PATIENCE_S, children, ended, python, run_python

ENV = Trials()
TASK = ENV.task(7)
TEXTS = ["7", " 7\r\n", "8", "", " \n", "\x00", "\ud800", "7\x00", "a" * 1_000_000, "７", "7@raise"]
OUTCOMES = ["correct", "correct", "wrong", "unparsed", "unparsed"] + ["wrong"] * 5 + ["unscored"]


def said(score: rlvr.Score) -> tuple:
    """All of a score but the traceback of a failure, which names the place it happened in."""
    return (
        score.total,
        score.parts,
        score.verdict.outcome,
        score.verdict.value,
        score.verdict.why,
        score.verdict.answer,
    )


def rows(*completions: str, **columns) -> list[dict]:
    return [{"task": 7, "completion": text, **columns} for text in completions]


# ------------------------------------------------------------------------------------- one bad item


WITH_A_LOG = ["hang", "hoard", "kill", "exit", "raise", "flaky"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """120 rows, all well but six in the middle; each row notes every attempt at it in a log."""
    log = tmp_path_factory.mktemp("hostile") / "log"
    actions = {50 + i: action for i, action in enumerate(WITH_A_LOG)}
    given = [
        {
            "task": i,
            "completion": f"{i if i % 3 else 'no'}@{actions.get(i, f'row-{i}')} {log}",
            "id": f"row {i}",
        }
        for i in range(120)
    ]
    scored = list(rlvr.score(ENV, given, workers=2, wall_s=1.0))
    return scored, Counter(line.split()[1] for line in log.read_text().splitlines())


def test_bad_rows_in_the_middle_cost_only_themselves(hostile):
    """A hang, 10 GB, SIGKILL, sys.exit and an exception: five UNSCORED, everybody else scored, in their places."""
    scored, _ = hostile
    assert [s.item.id for s in scored] == [f"row {i}" for i in range(120)]
    expected = ["unscored" if 50 <= i < 55 else "correct" if i % 3 else "wrong" for i in range(120)]
    assert [s.outcome for s in scored] == expected


def test_what_happened_to_a_bad_row_stands_in_its_verdict(hostile):
    """The verifier's author reads here what has to be mended."""
    scored, _ = hostile
    assert [s.score.verdict.why for s in scored[50:55]] == [
        "worker-timeout: it ran out of wall time",
        "worker-error: MemoryError",
        "worker-died: the worker process ended: killed by SIGKILL",
        "worker-error: SystemExit: 3",
        "worker-error: RuntimeError: as asked",
    ]
    assert "in verify" in scored[54].score.verdict.detail["traceback"]


def test_a_bad_row_is_tried_exactly_twice(hostile):
    """Once more, since it may have been bad luck; never a third time, since each costs a worker."""
    _, attempts = hostile
    assert {action: attempts[action] for action in WITH_A_LOG} == dict.fromkeys(WITH_A_LOG, 2)


def test_good_rows_are_verified_exactly_once(hostile):
    """Also those that shared a worker with a bad one."""
    _, attempts = hostile
    assert set(attempts) == {f"row-{i}" for i in range(120) if not 50 <= i < 56} | set(WITH_A_LOG)
    assert {attempts[f"row-{i}"] for i in range(120) if not 50 <= i < 56} == {1}


def test_a_passing_failure_is_scored_on_the_second_try(hostile):
    """Its first attempt killed the worker, its second found a log in place: 55 is no multiple of 3, and correct."""
    scored, attempts = hostile
    assert attempts["flaky"] == 2
    assert (scored[55].outcome, scored[55].score.total) == ("correct", 1.0)


def test_an_unscored_completion_never_has_a_total(hostile):
    """None, so that an average over it fails at the line that forgot; and no parts to be averaged either."""
    scored, _ = hostile
    for s in scored:
        assert (
            (s.score.total is None) == (s.outcome is rlvr.Outcome.UNSCORED) == (not s.score.parts)
        )


# ------------------------------------------------------------------------------ the same everywhere


@pytest.fixture(scope="module")
def expected() -> list[tuple]:
    """As the main thread without workers says."""
    with rlvr.Scorer(ENV, workers=0) as scorer:
        scores = [scorer.score(TASK, text) for text in TEXTS]
    assert [score.verdict.outcome for score in scores] == OUTCOMES
    return [said(score) for score in scores]


def test_the_main_thread_says_the_same(scorer, expected):
    """In a worker as without one."""
    assert [said(scorer.score(TASK, text)) for text in TEXTS] == expected


def test_32_threads_say_the_same(scorer, expected):
    """More callers than workers, every text from several threads at once."""
    with ThreadPoolExecutor(32) as threads:
        got = list(threads.map(lambda text: said(scorer.score(TASK, text)), TEXTS * 4))
    assert got == expected * 4


def test_asyncio_says_the_same(scorer, expected):
    """And the event loop goes on meanwhile: gather would otherwise take them one by one."""

    async def main():
        return await asyncio.gather(*(scorer.ascore(TASK, text) for text in TEXTS * 4))

    assert [said(score) for score in asyncio.run(main())] == expected * 4


def test_a_group_and_a_stream_say_the_same(scorer, expected):
    """Whichever way the completions come in."""

    async def group():
        return await scorer.ascore_group(TASK, TEXTS)

    assert [said(score) for score in scorer.score_group(TASK, TEXTS)] == expected
    assert [said(score) for score in asyncio.run(group())] == expected
    assert [said(scored.score) for scored in scorer.stream(rows(*TEXTS))] == expected


def test_without_workers_even_sys_exit_is_contained():
    """`workers=0` contains no crash, but it is the same border: the verdicts are those of a worker."""
    with rlvr.Scorer(ENV, workers=0) as scorer:
        assert scorer.score(TASK, "7@exit").verdict.why == "worker-error: SystemExit: 3"


def test_the_event_loop_is_not_blocked(scorer, fifo):
    """While one completion is stuck in a worker, the loop runs and another is scored."""

    async def main():
        stuck = asyncio.ensure_future(scorer.ascore(TASK, f"7@gate {fifo.path}"))
        worker = await asyncio.to_thread(fifo.pid)
        other = await scorer.ascore(TASK, "7")
        assert not stuck.done()
        fifo.path.with_name("fifo.open").touch()
        os.kill(worker, signal.SIGKILL)  # the second attempt finds the gate open
        return other, await stuck

    other, stuck = asyncio.run(main())
    assert (other.total, stuck.total) == (1.0, 1.0)


SCRIPT = '''
import dataclasses, enum, math
import rlvr

LIMIT = 3

class Kind(enum.Enum):
    GOOD = "good"

def helper(text):
    return math.floor(LIMIT) == len(text)

@dataclasses.dataclass(frozen=True)
class Long(rlvr.Part):
    """A part from the same place."""
    name: str = "long"
    bounds = (0.0, 1.0)
    def value(self, task, completion, verdict):
        return float(helper(completion.text))

class Base(rlvr.Environment):
    extra: str = ""
    def task(self, index):
        return rlvr.Task(str(index), "p", reference=Kind.GOOD)

class Mine(Base):
    """Defined where no worker can import it."""
    reward = rlvr.Correct() + Long()
    def task(self, index):
        return super().task(index)
    def verify(self, task, completion):
        right = helper(completion) and task.reference is Kind.GOOD and self.extra == "x"
        return rlvr.Verdict(rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG, why="helped")

rows = [{"task": 0, "completion": text} for text in ("abc", "ab")]
totals = [scored.score.total for scored in rlvr.score(Mine(extra="x"), rows, workers=1)]
'''


def test_an_environment_of_a_script_works_in_workers(tmp_path):
    """Its class, its helpers and its globals go along, and the script is not run again: it has no __main__ guard."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "print(totals)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[2.0, 0.0]\n", "")


@pytest.mark.parametrize("name", ["__main__", "a_module_that_is_not_there"])
def test_an_environment_of_a_notebook_works_in_workers(name):
    """A cell's code belongs to no file that a worker could import."""
    cell = {"__name__": name}
    exec(SCRIPT, cell)
    assert cell["totals"] == [2.0, 0.0]


# ------------------------------------------------------------------------------------------ time


def test_the_clock_of_an_item_starts_in_its_worker():
    """Twelve naps of 0.25 s on two workers: the last ones wait longer than the limit of 1 s, and none is late."""
    with rlvr.Scorer(ENV, workers=2, wall_s=1.0) as scorer:
        naps = [scorer._threads.submit(scorer.score, TASK, "7@nap") for _ in range(4)]
        assert [s.outcome for s in scorer.stream(rows(*["7@nap"] * 8))] == ["correct"] * 8
        assert [nap.result().total for nap in naps] == [1.0] * 4


# -------------------------------------------------------------------------------- settings and ends


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"workers": -1}, "workers is -1; it must be a whole number"),
        ({"workers": 1.5}, r"workers is 1\.5"),
        ({"wall_s": 0}, "wall_s is 0; it must be a number of seconds above 0"),
        ({"wall_s": float("nan")}, "wall_s is nan"),
        ({"memory_mib": 0}, "memory_mib is 0"),
    ],
    ids=str,
)
def test_a_scorer_refuses_settings_that_cannot_work(settings, why):
    """Before a process is started."""
    with pytest.raises(UsageError, match=why):
        rlvr.Scorer(ENV, **settings)


def test_a_scorer_is_for_environments():
    """The class instead of an instance, or an id, is easily given."""
    for wrong in (Trials, "gsm8k-v4"):
        with pytest.raises(UsageError, match=r"is not an environment; rlvr\.make"):
            rlvr.Scorer(wrong)


def test_an_environment_that_judges_nothing_is_refused_at_once():
    """Each completion was UNSCORED; a verifier that is not in the reward is not read."""

    class Judged(rlvr.Environment):
        verifier = MathVerifier()

        def task(self, index):
            return rlvr.Task(str(index), "1+1?", reference="2")

    with pytest.raises(UsageError, match=r"reward = Correct\(.*its attribute verifier is not read"):
        rlvr.Scorer(Judged())
    right = Judged().with_reward(rlvr.Correct(MathVerifier()))
    [scored] = rlvr.score(right, [{"task": 0, "completion": "\\boxed{2}"}], workers=0)
    assert scored.outcome == "correct"


@pytest.mark.parametrize("method", ["observe", "aobserve", "score", "score_group"])
def test_an_environment_that_judges_by_another_method_needs_no_verify(method):
    """As one that hands over to another, such as that of an agent."""

    class Handing(rlvr.Environment):
        def task(self, index):
            return ENV.task(index)

    setattr(Handing, method, lambda self, task, completion: getattr(ENV, method)(task, completion))
    rlvr.Scorer(Handing(), workers=0).close()
    assert Handing().score(TASK, "7").total == 1


def test_an_environment_that_cannot_be_shipped_says_what_holds_it():
    """At once, and not from a worker."""
    env = Trials()
    env.lock = threading.Lock()
    with pytest.raises(UsageError, match=r"^Trials\(.*cannot be sent to a worker process"):
        rlvr.Scorer(env, workers=1)


def test_an_environment_that_cannot_be_rebuilt_is_an_error_of_the_run():
    """Not a file full of UNSCORED."""

    class Homesick(Trials):
        def __setstate__(self, state):
            raise RuntimeError("only at home")

    with pytest.raises(WorkerError, match="RuntimeError: only at home"):
        list(rlvr.score(Homesick(), rows("7"), workers=1))


def test_tasks_are_not_shipped_with_the_environment():
    """A data set of gigabytes stays here; a worker is sent the tasks it needs."""

    class Big:
        def __reduce__(self):
            raise AssertionError("shipped")

    env = rlvr.Environment.from_rows(
        [{"prompt": "?", "reference": "x", "big": Big()}], verifier=lambda c, r: c == r
    )
    assert env.size == 1
    assert [
        s.outcome for s in rlvr.score(env, [{"reference": "x", "completion": "x"}], workers=1)
    ] == ["correct"]


def test_a_closed_scorer_stays_closed(scorer):
    """Every way in says so, and starts nothing."""
    closed = rlvr.Scorer(ENV, workers=1)
    closed.close()
    closed.close()
    before = children(os.getpid())
    for use in (
        closed.warm,
        lambda: closed.score(TASK, "7"),
        lambda: closed.score_group(TASK, ["7", "8"]),
        lambda: asyncio.run(closed.ascore(TASK, "7")),
        lambda: list(closed.stream(rows("7"))),
    ):
        with pytest.raises(UsageError, match="closed; open a new one"):
            use()
    assert children(os.getpid()) == before


def test_close_tells_whoever_waits(fifo):
    """Stuck in a worker, queued behind it, or awaited: all get an error, and none of them a score."""
    scorer = rlvr.Scorer(ENV, workers=1)
    stream = scorer.stream(rows(f"7@freeze {fifo.path}", "7", "7"))
    with ThreadPoolExecutor(2) as threads:
        streaming = threads.submit(next, stream)
        at_work = fifo.pid()
        direct = threads.submit(scorer.score, TASK, "7")
        scorer.close()
        for waiting in (streaming, direct):
            with pytest.raises(UsageError, match="closed; open a new one"):
                waiting.result()
    assert ended(at_work)


def test_a_scorer_that_is_dropped_ends_its_workers_and_threads():
    """`close` may be forgotten."""
    others = set(threading.enumerate())
    scorer = rlvr.Scorer(ENV, workers=1).warm()
    assert [s.outcome for s in scorer.stream(rows("7"))] == ["correct"]
    workers = {worker._process.pid for worker in scorer.engine._pool._all}
    [thread] = set(threading.enumerate()) - others
    del scorer
    gc.collect()
    assert all(map(ended, workers))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_leaving_a_stream_early_harms_nothing(scorer):
    """A `break` in the loop; the scorer goes on for others."""
    for _ in scorer.stream(rows(*["7"] * 50)):
        break
    assert [s.outcome for s in scorer.stream(rows("7", "8"))] == ["correct", "wrong"]


def test_an_interrupted_program_does_not_wait_for_slow_items(fifo):
    """Ctrl-C in the body of the loop, while the next item is stuck that would have 10 minutes, twice."""
    code = """if True:
        import sys, rlvr
        from tests.environments import Trials
        rows = [{"task": 0, "completion": text} for text in ("0", "0@freeze " + sys.argv[1])]
        for scored in rlvr.score(Trials(), rows, workers=1, wall_s=600):
            sys.stdin.readline()
            raise KeyboardInterrupt
    """
    with python(code, fifo.path, stdin=subprocess.PIPE) as program:
        frozen = fifo.pid()
        assert program.communicate("go on\n", timeout=PATIENCE_S)[1].endswith("KeyboardInterrupt\n")
    assert ended(frozen)


def test_a_forked_child_can_score():
    """The threads that feed the workers are the parent's; the child starts its own."""
    code = textwrap.dedent("""
        import json, os, rlvr, warnings
        from tests.environments import Trials
        warnings.simplefilter("ignore")  # newer Pythons do not like forks
        rows = [{"task": 7, "completion": str(i)} for i in range(20)]
        scorer = rlvr.Scorer(Trials(), workers=1)
        def score():
            print(json.dumps([s.score.total for s in scorer.stream(rows)]), flush=True)
        score()
        if os.fork() == 0:
            score()
            scorer.close()
            os._exit(0)
        os.wait()
        score()
    """)
    done = run_python(code, timeout=60)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [float(i == 7) for i in range(20)]
    ] * 3
