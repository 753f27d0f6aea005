"""References are read where a worker can be killed, within CPU time, and a row with another one is left out."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import rlvr
import rlvr.client
from rlvr.environment import reading
from rlvr.errors import DataError, DataWarning
from rlvr.workers.threads import Threads
from tests.processes import run_python
from tests.scoring.animals import LIMIT_S, Animals, Awaited, Gates, Questions, Reads, spend
from tests.scoring.test_services import service_of

ROWS = [
    {"id": i, "reference": reference, "completion": "cat"}
    for i, reference in enumerate(("cat", "bad", "endless", "odd", "endless", "dog"))
]
OUTCOMES = [(0, "correct"), (3, "unscored"), (5, "wrong")]
REFUSED = [(2, "no such animal"), (3, "it takes more than"), (5, "it takes more than")]


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr(reading, "READ_CPU_S", LIMIT_S)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_whose_reference_cannot_be_read_is_left_out(workers):
    """One that fails only when it judges is our failure, not the answer's."""
    refused = []
    with rlvr.Scorer(Animals(), workers=workers) as scorer:
        scored = list(scorer.stream(ROWS, on_error=lambda *one: refused.append(one)))
        assert scorer.processes[1] == 0  # no worker was lost
    assert [(one.item.id, one.outcome.value) for one in scored] == OUTCOMES
    assert [(number, str(why)[:18].strip()) for number, why in refused] == [
        (number, why[:18]) for number, why in REFUSED
    ]


def test_a_service_says_which_references_cannot_be_read():
    """Also to a scorer elsewhere, which leaves the same rows out."""
    refused = []
    with (
        service_of(Animals()) as url,
        rlvr.Scorer(Animals(), engine=rlvr.scoring.engines.Services(url)) as scorer,
    ):
        scored = list(scorer.stream(ROWS, on_error=lambda *one: refused.append(one)))
    assert [(one.item.id, one.outcome.value) for one in scored] == OUTCOMES
    assert [number for number, _ in refused] == [number for number, _ in REFUSED]


@pytest.mark.parametrize("kind", [Gates, Awaited])
def test_references_that_take_long_hold_up_no_other_caller(kind, tmp_path):
    """However many requests have one, a worker is left for those that have none; their turn comes all the same."""
    gate = str(tmp_path / "gate")
    slow = [{"reference": gate, "completion": gate}]
    replies = []

    def ask_slowly():
        with rlvr.client.Client(url) as client:
            replies.extend(client.score(None, slow))

    with service_of(kind(), workers=2) as url, rlvr.client.Client(url) as client:
        threads = [threading.Thread(target=ask_slowly, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            [reply] = client.score(None, [{"reference": "cat", "completion": "cat"}])
            assert reply.score.total == 1.0
        assert not replies
        Path(gate).touch()
        for thread in threads:
            thread.join()
        mixed = client.score(None, [*slow, {"reference": "cat", "completion": "dog"}, *slow])
    assert [reply.score.total for reply in replies] == [1.0] * 4
    assert [reply.score.total for reply in mixed] == [1.0, 0.0, 1.0]


def test_a_reference_that_takes_long_stops_no_other_in_its_process(tmp_path):
    """The first one is read only when the second is judged, in the one worker; its time stands still meanwhile."""
    gate = str(tmp_path / "gate")
    rows = [{"reference": one, "completion": gate} for one in (gate, "opens")]
    with rlvr.Scorer(Awaited(), workers=1, wall_s=10) as scorer:
        assert [one.score.total for one in scorer.stream(rows)] == [1.0, 0.0]
        assert scorer.processes == (1, 0)


COLUMNS = [{"id": 0, "animal": "cat"}, {"id": 1, "reference": "endless"}]
COLUMNS += [{"id": i, "animal": one} for i, one in enumerate(("endless", "bad", "odd", "dog"), 2)]
COLUMNS = [{**row, "completion": "cat"} for row in COLUMNS]
MADE = [(0, "correct", "cat"), (5, "wrong", "dog")]


@pytest.mark.parametrize("served", [False, True])
def test_tasks_are_made_of_columns_by_the_worker(served):
    """The caller's process, such as a service's, runs no code of an environment on them before a worker did."""
    refused = []
    with service_of(Questions()) as url:
        engine = rlvr.scoring.engines.Services(url) if served else None
        with rlvr.Scorer(Questions(), workers=None if served else 1, engine=engine) as scorer:
            scored = list(scorer.stream(COLUMNS, on_error=lambda *one: refused.append(one)))
        with rlvr.client.Client(url) as client:
            replies = client.score(None, COLUMNS)
    assert [(one.item.id, one.outcome.value, one.item.task.reference) for one in scored] == MADE
    assert [number for number, _ in refused] == [2, 3, 4, 5]
    assert [bool(one.score) for one in replies] == [True, False, False, False, False, True]
    for errors in ([str(why) for _, why in refused], [one.error for one in replies[1:5]]):
        assert "it takes more than" in errors[0]
        assert "it takes more than" in errors[1]
        assert "no such animal" in errors[2]
        assert "ValueError: no such column" in errors[3]


def test_a_task_that_was_drawn_is_unscored():
    """A trainer that drew it has a group to fill: no error ends its run."""
    with rlvr.Scorer(Animals(), workers=1) as scorer:
        one, other = (scorer.score(task, "a") for task in Animals().tasks())
    assert one.total == 1.0
    assert other.total is None
    assert "no such animal" in other.verdict.why


@pytest.mark.parametrize("threads", [0, 1])
def test_tasks_are_read_within_time_in_any_thread(threads):
    """An endless reference in a data set is left out before a task is drawn.

    Signals reach the main thread alone, and a notebook or a server loads its data in another one.
    """
    rows = [{"prompt": "p", "reference": "cat"}] * 40 + [{"prompt": "p", "reference": "endless"}]
    env = rlvr.Environment.from_rows(rows, verifier=Reads())
    with pytest.warns(DataWarning, match="1 of 41 rows .* more than 0.3 CPU s to read"):
        size = Threads(1, "test").submit(lambda: env.size).result() if threads else env.size
    assert size == 40


def test_a_timer_of_the_caller_goes_on():
    """The limit of reading has the only timer of its kind; a program may have set it before."""
    rung = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.3, 0.05)
        with reading.limited_reading():
            spend(0.1)
        left, every = signal.getitimer(signal.ITIMER_VIRTUAL)
        assert 0 < left <= 0.25
        assert every == 0.05
        spend(0.5)
        assert rung
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_a_tick_that_comes_late_ends_nothing():
    """Other threads get it first; the handler stays, as setting one takes longer than a reading."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            with reading.limited_reading():
                pass
            signal.raise_signal(signal.SIGVTALRM)
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_reading_whose_end_is_interrupted_does_not_go_on(monkeypatch):
    """An exception may come as `__exit__` begins, which then has done nothing."""
    monkeypatch.setattr(reading._Timer, "__exit__", lambda *_: None)
    with reading.limited_reading():
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert reading._Timer.running is None


def test_a_reading_of_a_thread_whose_end_is_interrupted_does_not_go_on(monkeypatch):
    """The next one in that thread has its own limit, and nothing is raised in between."""
    monkeypatch.setattr(reading, "READ_CPU_S", 0.3)

    def read():
        reading.limited_reading().__enter__()
        spend(0.5)
        with pytest.raises(DataError, match=r"0\.3 CPU s"), reading.limited_reading():
            spend(5)
        return reading._WATCHER._readings

    assert Threads(1, "test").submit(read).result() == {}


def test_after_a_reading_that_was_late_a_process_can_be_traced():
    """By a debugger, coverage or Hypothesis: the flag of an exception that is on its way is not left behind.

    In a process of its own, which would hang.
    """
    program = (
        "import sys; from rlvr.environment import reading; from rlvr.errors import DataError\n"
        "from rlvr.workers.threads import Threads\n"
        "reading.READ_CPU_S = 0.2\n"
        "def late():\n"
        "    try:\n"
        "        with reading.limited_reading():\n"
        "            while True: pass\n"
        "    except DataError as error: return str(error)\n"
        "print(Threads(1, 'test').submit(late).result())\n"
        "called = []\n"
        "sys.settrace(lambda frame, event, _: called.append(event))\n"
        "(lambda: None)()\n"
        "sys.settrace(None); print(called)\n"
    )
    ended = run_python(program, timeout=300)
    assert ended.stdout == "it takes more than 0.2 CPU s to read\n['call']\n", ended


def test_where_nothing_is_read_nothing_is_limited(monkeypatch):
    """A limit costs a row more than a verdict of a simple environment."""
    monkeypatch.setattr(signal, "setitimer", None)
    task = rlvr.Task("t", "p", "cat")
    rows = [{"prompt": "p", "reference": "cat"}]
    rlvr.Environment.from_rows(rows, verifier=lambda text, cat: text == cat).read_task(task)
    with pytest.raises(TypeError):
        rlvr.Environment.from_rows(rows, verifier=Reads()).read_task(task)


def test_a_reference_that_was_read_is_not_limited_again(monkeypatch):
    """Completions of a group share it; the limit costs more than a verdict of a simple answer."""
    env = rlvr.make("arithmetic-v1")
    task, odd = env.task(0), rlvr.Task("odd", "?", reference=object())
    env.read_task(task)
    monkeypatch.setattr(signal, "setitimer", None)
    env.read_task(task)
    for other in (replace(task, reference=31_415_926), odd):
        with pytest.raises(TypeError):
            env.read_task(other)


@pytest.mark.parametrize("threads", [False, True])
def test_a_reading_within_another_does_not_end_its_limit(threads, monkeypatch):
    """A verifier may read a reference by another one's `read`; what follows is limited too."""
    monkeypatch.setattr(reading, "READ_CPU_S", 0.3)

    def read():
        with reading.limited_reading():
            with reading.limited_reading():
                pass
            spend(5)

    began = time.process_time()
    with pytest.raises(DataError, match=r"0\.3 CPU s"):
        Threads(1, "test").submit(read).result() if threads else read()
    assert time.process_time() - began < 4


def test_a_watcher_that_cannot_start_leaves_no_reading_unlimited(monkeypatch):
    """At the limit of processes a thread cannot start; the readings after it had no limit."""
    monkeypatch.setattr(reading, "READ_CPU_S", 0.3)

    def read():
        with reading.limited_reading():
            spend(5)

    def fails(*_, **__):
        raise RuntimeError("can't start new thread")

    with Threads(1, "test") as one:
        with monkeypatch.context() as patch:
            patch.setattr(reading, "DaemonThread", fails)
            patch.setattr(reading._WATCHER, "_is_running", False)
            with pytest.raises(RuntimeError, match="new thread"):
                one.submit(read).result()
        with pytest.raises(DataError, match=r"0\.3 CPU s"):
            one.submit(read).result()


def test_the_thread_that_watches_others_ends_when_there_are_none():
    """It would take the interpreter from the rows five times a second for ever."""

    def read():
        with reading.limited_reading():
            return [thread for thread in threading.enumerate() if thread.name == "rlvr-reading"]

    for _ in range(2):
        [watching] = Threads(1, "test").submit(read).result()
        watching.join(60)
        assert not watching.is_alive()
