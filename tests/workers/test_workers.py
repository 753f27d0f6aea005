"""Killable workers: what an item does costs that item alone, and no process outlives its purpose."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlvr.errors import UsageError, WorkerDied, WorkerError, WorkerTimeout
from rlvr.workers import WorkerPool, usable_cores
from rlvr.workers import pool as workers
from rlvr.workers.pool import GivenUp
from tests.environments import acting
from tests.processes import PATIENCE_S, ended, run_python

WALL_S = 60.0  # never reached by what is expected to succeed


def pids(pool: WorkerPool) -> set[int]:
    return {worker._process.pid for worker in pool._all}


# ------------------------------------------------------------------------------------------ items


@pytest.mark.parametrize(
    "item",
    [None, 0, "", "\ud800\x00", "ä" * 1_000_000, [1.5, {"a": [True, None]}]],
    ids=lambda i: ascii(i)[:9],
)
def test_an_item_goes_there_and_comes_back(pool, item):
    """Lone surrogates, NUL and a megabyte are ordinary model output."""
    assert pool.call(item, wall_s=WALL_S) == item


def test_replies_are_what_json_makes_of_them(pool):
    """The worker has read a model's text: what it says is data, never an object."""
    assert pool.call({1: (2, 3)}, wall_s=WALL_S) == {"1": [2, 3]}


@pytest.mark.parametrize(
    ("item", "error", "text"),
    [
        ("@raise", WorkerError, "RuntimeError: as asked"),
        ("@exit", WorkerError, "SystemExit: 3"),
        ("@hoard", WorkerError, "MemoryError"),
        ("@kill", WorkerDied, "the worker process ended: killed by SIGKILL"),
        ("@close", WorkerDied, "the worker process ended: killed by SIGKILL"),
        ("@forge", WorkerDied, "a worker's reply cannot be read"),
        (float("nan"), WorkerError, "ValueError: Out of range float values are not JSON compliant"),
        ({1, 2}, WorkerError, "TypeError: Object of type set is not JSON serializable"),
    ],
    ids=str,
)
def test_whatever_an_item_does_has_a_name(pool, item, error, text):
    """The caller can tell an exception from a crash, and read what it was."""
    with pytest.raises(error, match=text):
        pool.call(item, wall_s=WALL_S)


def test_a_lost_item_costs_itself_alone(pool):
    """Those before it in the same request keep their results, those after it get another worker."""
    got = pool.run(
        [1, "@kill", 2, "@raise", 3, "@hoard", 4, "@exit", 5, "@forge", 6], wall_s=WALL_S
    )
    assert got[::2] == [1, 2, 3, 4, 5, 6]
    assert [type(lost) for lost in got[1::2]] == [
        WorkerDied,
        WorkerError,
        WorkerError,
        WorkerError,
        WorkerDied,
    ]


def test_memory_used_up_in_small_pieces_is_still_reported():
    """At the limit there is no room for a traceback: what filled it has to go before we say so."""
    with (
        WorkerPool(acting, spares=0, memory_mib=96, quiet=True) as pool,
        pytest.raises(WorkerError, match=r"^MemoryError$"),
    ):
        pool.call("@hoard-little-by-little", wall_s=WALL_S)


def test_a_worker_that_ran_out_of_memory_is_not_used_again(pool):
    """Nothing in such a process can be trusted."""
    before = pids(pool)
    assert isinstance(pool.run(["@hoard"], wall_s=WALL_S)[0], WorkerError)
    assert len(before - pids(pool)) == 1


def test_a_long_message_is_cut():
    """A verifier that raises KeyError(completion) must not write a megabyte into every record."""

    def setup():
        def handle(item):
            raise KeyError("x" * 1_000_000)

        return handle

    with WorkerPool(setup, spares=0) as pool:
        [error] = pool.run([0], wall_s=WALL_S)
    assert len(str(error)) < 600
    assert len(error.traceback) < 21_000
    assert error.kind == "KeyError"
    assert "in handle" in error.traceback


def test_an_exception_without_a_text_is_reported_all_the_same():
    """`__str__` may raise, too."""

    def setup():
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError

        def handle(item):
            raise Mute

        return handle

    with WorkerPool(setup, spares=0) as pool, pytest.raises(WorkerError, match="Mute: "):
        pool.call(0, wall_s=WALL_S)


class Unpackable:
    """Can be packed here, and raises where it is unpacked."""

    def __reduce__(self):
        return int, ("no number",)


def test_an_item_that_cannot_be_unpacked_costs_itself_alone(pool):
    """It is found among those it was sent with, by sending them alone after a bad start."""
    got = pool.run([1, 2, Unpackable(), 3], wall_s=WALL_S)
    assert got[:2] + got[3:] == [1, 2, 3]
    assert str(got[2]).startswith("ValueError: invalid literal for int()")


def test_an_item_that_cannot_be_packed_is_the_callers_error(pool):
    """It never left this process; the message says what to keep out of it."""
    with pytest.raises(
        UsageError,
        match=r"cannot be sent to a worker process: TypeError: cannot pickle .*; keep locks",
    ):
        pool.run([1, threading.Lock()], wall_s=WALL_S)
    assert pool.call(1, wall_s=WALL_S) == 1


# ------------------------------------------------------------------------------------------ limits


def test_a_loop_runs_out_of_cpu_time(pool):
    """0.2 s of work at full speed, and it does not matter how fast the wall clock goes meanwhile."""
    with pytest.raises(WorkerTimeout, match="it ran out of CPU time"):
        pool.call("@hang", wall_s=WALL_S, cpu_s=0.2)


def test_a_sleeper_runs_out_of_wall_time(pool):
    """It uses no CPU, so only the wall clock can end it."""
    with pytest.raises(WorkerTimeout, match="it ran out of wall time"):
        pool.call("@pause", wall_s=0.3, cpu_s=WALL_S)


def test_a_nap_costs_no_cpu_time(pool):
    """0.25 s asleep under a limit of 0.2 s of CPU."""
    assert pool.call("@nap", wall_s=WALL_S, cpu_s=0.2) == "@nap"


def test_c_code_that_holds_the_interpreter_lock_is_killed_too(pool):
    """No signal handler and no thread of the worker could run there."""
    with pytest.raises(WorkerTimeout):
        pool.call("@freeze", wall_s=0.3)


def test_each_item_has_the_whole_of_its_time():
    """Six naps of 0.25 s are 1.5 s on one worker: more than the limit of 1 s together, far less each."""
    with WorkerPool(acting, spares=0) as pool:
        assert pool.run(["@nap"] * 6, wall_s=1.0) == ["@nap"] * 6


def test_waiting_for_a_worker_does_not_count():
    """Six callers of one worker: the last one waits 1.25 s for its turn, and its second has not begun."""
    with WorkerPool(acting, spares=0) as pool, ThreadPoolExecutor(6) as threads:
        assert (
            list(threads.map(lambda item: pool.call(item, wall_s=1.0), ["@nap"] * 6))
            == ["@nap"] * 6
        )


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_is_above_zero(pool, limit):
    """Under NaN no clock would ever run out."""
    with pytest.raises(UsageError, match=r"wall_s is .*; it must be a number of seconds above 0"):
        pool.call(1, wall_s=limit)
    with pytest.raises(UsageError, match="cpu_s is "):
        pool.call(1, wall_s=1.0, cpu_s=limit)


@pytest.mark.parametrize("limit", [1e9, float("inf")])
def test_a_limit_may_be_as_good_as_none(pool, limit):
    """poll(2) takes no more than 24 days at once."""
    assert pool.call(1, wall_s=limit, cpu_s=limit) == 1


@pytest.mark.parametrize(
    "numbers",
    [
        {"workers": 0},
        {"workers": 1.5},
        {"workers": None},
        {"workers": 10**9},
        {"spares": -1},
        {"memory_mib": 0},
    ],
    ids=str,
)
def test_a_pool_refuses_numbers_that_cannot_work(numbers):
    """The value and the rule are named."""
    [(name, value)] = numbers.items()
    with pytest.raises(
        UsageError, match=f"{name} is {value!r}; it must be a whole number (of|from)"
    ):
        WorkerPool(acting, **numbers)


def test_a_limit_we_live_under_ourselves_is_kept(tmp_path):
    """A worker may not ask for more than its parent has, as the symbolic engine inside of a scorer does."""
    code = """if True:
        import resource
        from rlvr.workers import WorkerPool
        from tests.environments import acting
        resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
        with WorkerPool(acting, memory_mib=1 << 20) as pool:
            print(pool.run([1, "@hoard"], wall_s=60))
    """
    done = run_python(code)
    assert done.stdout == "[1, WorkerError('MemoryError')]\n", done.stderr


def test_a_worker_reads_files_as_its_parent_does():
    """`-X utf8` reaches no child by itself; the identity of scores names the parent's encoding."""
    code = """if True:
        import locale
        from rlvr.workers import WorkerPool
        setup = lambda: lambda _: __import__("locale").getpreferredencoding(False)
        with WorkerPool(setup) as pool:
            print(locale.getpreferredencoding(False), *pool.run([1], wall_s=60))
    """
    argv, variables = [sys.executable, "-X", "utf8", "-c", code], {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True)
    assert done.stdout == "utf-8 utf-8\n", done.stderr


# ----------------------------------------------------------------------------------------- starting


def test_spares_get_ready_by_themselves_once_a_worker_was_lost(fifo):
    """A spare that has yet to import the verifier when it is needed is no spare; without a loss none is needed."""

    path = fifo.path

    def setup():
        with path.open("w") as file:
            file.write("ready\n")
        return lambda item: item and os._exit(item)

    with WorkerPool(setup, workers=1, spares=2) as pool:
        pool.call(0, wall_s=WALL_S)
        assert pool.started == 1
        pool.run([3, 0], wall_s=WALL_S)
        assert [fifo.line() for _ in range(4)] == ["ready"] * 4
        assert pool.started == 4


def test_a_killed_worker_is_replaced(pool):
    """By as many as there are workers, and by a spare, as often as it happens."""
    pool.warm()
    for _ in range(2):
        before = pids(pool)
        pool.run(["@kill"], wall_s=WALL_S)
        assert len(pids(pool)) == 3
        assert pids(pool) != before


def test_workers_that_were_killed_while_idle_are_replaced_unnoticed(pool):
    """By an administrator or for want of memory: says nothing about the next item, which is lost to none of them."""
    pool.warm()
    pool.call(1, wall_s=WALL_S)
    idle = pids(pool)
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    assert all(map(ended, idle))
    assert pool.call(1, wall_s=WALL_S) == 1


def test_a_setup_that_dies_is_tried_three_times(tmp_path):
    """It may have been killed from outside; if it does so every time, it is the setup."""
    log = tmp_path / "log"

    def setup():
        with log.open("a") as file:
            file.write("started\n")
        os._exit(4)

    with WorkerPool(setup, spares=0) as pool, pytest.raises(WorkerDied, match="exit code 4"):
        pool.call(1, wall_s=WALL_S)
    assert log.read_text() == "started\n" * 3


def test_a_reply_has_an_end(pool, monkeypatch):
    """A worker cannot fill our memory: beyond 64 MiB, here 1, it is killed."""
    monkeypatch.setattr(workers, "REPLY_MIB", 1)
    [error] = pool.run(["x" * 2_000_000], wall_s=WALL_S)
    assert isinstance(error, WorkerDied)
    assert "reply has 20000" in str(error)
    assert "the limit is 1 MiB" in str(error)


def test_lost_workers_leave_no_open_files(pool):
    """Three pipes each: a night of hostile completions would otherwise use up the descriptors."""
    pool.run(["@kill"] * 2, wall_s=WALL_S)
    before = len(list(Path("/proc/self/fd").iterdir()))
    pool.run(["@kill"] * 5, wall_s=WALL_S)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_single_caller_keeps_its_worker(pool):
    """Its caches are warm: a compiled reference, a parsed pattern."""
    assert len({pool.call("@pid", wall_s=WALL_S) for _ in range(5)}) == 1


def test_workers_are_recycled():
    """After two items each, so that what a library leaks stays small."""
    with WorkerPool(acting, spares=0, recycle_after=2) as pool:
        seen = [pool.call("@pid", wall_s=WALL_S) for _ in range(5)]
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4]


def test_a_setup_that_raises_is_reported():
    """With the traceback: it happened in a process without a terminal."""

    def setup():
        raise ImportError("no module named 'chess'")

    with (
        WorkerPool(setup, quiet=True) as pool,
        pytest.raises(WorkerError, match="ImportError: no module") as caught,
    ):
        pool.warm()
    assert "in setup" in caught.value.traceback


def test_a_setup_must_return_a_handler():
    """`return` is easily forgotten."""
    with (
        WorkerPool(lambda: None) as pool,
        pytest.raises(WorkerError, match="setup returned None; it must return the handler"),
    ):
        pool.call(1, wall_s=WALL_S)


def test_a_setup_that_cannot_be_packed_is_the_callers_error():
    """An open file, a lock, a connection."""
    lock = threading.Lock()
    with pytest.raises(UsageError, match="cannot be sent to a worker process"):
        WorkerPool(lambda: lock)


def test_a_setup_larger_than_a_pipe_is_taken():
    """64 KiB fit into a pipe; the rest has to wait for a reader."""
    table = os.urandom(1 << 20)

    def setup():
        return lambda item: len(table)

    with WorkerPool(setup) as pool:
        assert pool.call(0, wall_s=WALL_S) == 1 << 20


def test_a_setup_that_is_too_slow_is_given_up():
    """Rather than waited for without end."""

    def setup():

        signal.pause()

    with (
        WorkerPool(setup, spares=0, start_s=0.3) as pool,
        pytest.raises(WorkerDied, match=r"not ready within 0\.3 s"),
    ):
        pool.warm()


def test_workers_think_alike():
    """One hash seed for all of them, since the order of a set may decide a verdict; and one thread each."""

    def setup():
        import os

        return lambda item: [hash("rlvr"), os.environ["OMP_NUM_THREADS"]]

    with WorkerPool(setup, spares=0) as one, WorkerPool(setup, spares=0) as other:
        first, second = one.call(0, wall_s=WALL_S), other.call(0, wall_s=WALL_S)
    assert first == second
    assert first[1] == os.environ.get("OMP_NUM_THREADS", "1")


def test_what_a_worker_prints_stays_off_our_stdout():
    """stdout may be a data stream."""

    def setup():
        def handle(item):
            print("chatter")

        return handle

    code = """if True:
        import pickle, sys
        from rlvr.workers import WorkerPool
        with WorkerPool(pickle.loads(sys.stdin.buffer.read()), spares=0) as pool:
            print(pool.call(0, wall_s=60))
    """
    import cloudpickle

    done = subprocess.run(
        [sys.executable, "-c", code], input=cloudpickle.dumps(setup), capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"None\n", b"chatter\n")


def test_there_is_at_least_one_core(monkeypatch):
    """Also where the system cannot say which ones we may use."""
    assert 1 <= usable_cores() <= os.cpu_count()
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()


def test_what_is_no_text_on_the_path_stays_at_home(monkeypatch, tmp_path):
    """Python itself passes over a Path in sys.path; in a worker's first line it would be a NameError."""
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, None])
    with WorkerPool(acting, spares=0) as pool:
        assert pool.call(1, wall_s=WALL_S) == 1


def test_an_item_that_cannot_be_shipped_costs_no_worker(pool):
    """It is the caller's error, and the worker has not seen it."""
    before = pool.call("@pid", wall_s=WALL_S)
    with pytest.raises(UsageError, match="cannot be sent to a worker process"):
        pool.call(threading.Lock(), wall_s=WALL_S)
    assert pool.call("@pid", wall_s=WALL_S) == before


def test_results_come_one_by_one(fifo):
    """The first is told while the second is still at work; a lost one is told in its place."""
    told: list[tuple[int, object]] = []
    with WorkerPool(acting) as pool:
        results = pool.run(
            [1, "@kill", 3], wall_s=PATIENCE_S, on_result=lambda *one: told.append(one)
        )
    assert told == list(enumerate(results))
    assert isinstance(told[1][1], WorkerDied)


def test_a_caller_that_gives_up_frees_the_worker(fifo):
    """The worker is killed in the midst of an item, and the next caller gets another one at once."""
    told: list[tuple[int, object]] = []
    with WorkerPool(acting) as pool:
        with pytest.raises(GivenUp):
            pool.run(
                [1, "@hang"],
                wall_s=1e6,
                on_result=lambda *one: told.append(one),
                give_up=lambda: bool(told),
            )
        assert told == [(0, 1)]
        assert pool.lost == 1
        assert pool.call(2, wall_s=PATIENCE_S) == 2
