"""How workers end, and with what: the pool, the program, the process that started it; threads and forks."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlvr.errors import UsageError, WorkerDied, WorkerTimeout
from rlvr.workers import WorkerPool
from rlvr.workers import pool as workers
from tests.environments import acting
from tests.processes import children, ended, python, run_python

WALL_S = 60.0  # never reached by what is expected to succeed


def pids(pool: WorkerPool) -> set[int]:
    return {worker._process.pid for worker in pool._all}


# ------------------------------------------------------------------------------------------ ending


def test_close_ends_idle_and_busy_workers(fifo):
    """A caller that waits for an item is told that the pool was closed: the kill says nothing about the item."""
    pool = WorkerPool(acting, workers=1, spares=1)
    pool.run(["@kill", 1], wall_s=WALL_S)  # now it keeps a spare
    with ThreadPoolExecutor(2) as threads:
        busy = threads.submit(pool.call, f"@freeze {fifo.path}", wall_s=WALL_S)
        at_work = fifo.pid()
        queued = threads.submit(pool.call, 1, wall_s=WALL_S)
        everyone = pids(pool)
        pool.close()
        for waiting in (busy, queued):
            with pytest.raises(UsageError, match="this worker pool is closed; open a new one"):
                waiting.result()
    assert at_work in everyone
    assert len(everyone) == 2
    assert all(map(ended, everyone))


def test_a_closed_pool_stays_closed():
    """Closing twice is fine; using it or warming it starts nothing."""
    pool = WorkerPool(acting)
    pool.close()
    pool.close()
    before = children(os.getpid())
    for use in (pool.warm, lambda: pool.call(1, wall_s=WALL_S)):
        with pytest.raises(UsageError, match="closed"):
            use()
    assert children(os.getpid()) <= before


def test_a_pool_that_is_dropped_ends_its_workers():
    """`close` may be forgotten."""
    pool = WorkerPool(acting, workers=2)
    pool.warm()
    workers = pids(pool)
    del pool
    gc.collect()
    assert len(workers) == 2
    assert all(map(ended, workers))


def test_an_interrupt_takes_the_worker_with_it(pool, fifo, monkeypatch):
    """Ctrl-C while we wait for a reply: half of it may be read, so that this worker can never be used again."""
    stuck = []
    pool.call(1, wall_s=WALL_S)  # there is one that is ready

    def interrupted(self, *args, **named):
        stuck.append(fifo.pid())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workers._Worker, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.call(f"@freeze {fifo.path}", wall_s=WALL_S)
    assert ended(*stuck)
    assert pool.call(1, wall_s=WALL_S) == 1


def test_what_a_worker_started_ends_with_it(pool, tmp_path):
    """Killed by us, it takes its whole process group along."""
    child = pool.call("@start", wall_s=WALL_S)
    with pytest.raises(WorkerTimeout):
        pool.call("@pause", wall_s=0.1)  # on the same worker: a single caller keeps it
    assert ended(child)


def test_what_a_worker_started_ends_with_it_also_when_it_ends_itself(pool, tmp_path):
    """The group is struck before the worker is waited for and its number goes out of our hands."""
    with pytest.raises(WorkerDied, match="exit code 3"):
        pool.call(f"@start-and-die {tmp_path / 'log'}", wall_s=WALL_S)
    child = (tmp_path / "log").read_text().split()[-1]
    assert ended(int(child))


PARENT = """if True:
    import signal, sys, threading
    from rlvr.workers import WorkerPool
    from tests.environments import acting
    pool = WorkerPool(acting, workers=2)

    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # which workers inherit
        pool.warm()
        print(pool.call("@start", wall_s=60), flush=True)
        pool.call("@freeze " + sys.argv[1], wall_s=600)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
"""


def test_no_worker_outlives_a_parent_that_is_killed(fifo):
    """SIGKILL leaves no time to tidy up; a worker may be stuck in C with the interpreter locked, and have started a
    program of its own."""
    with python(PARENT, fifo.path, stdout=subprocess.PIPE) as parent:
        program = int(parent.stdout.readline())
        frozen = fifo.pid()
        workers = children(parent.pid)
        assert program in children(frozen)
        parent.kill()
    assert frozen in workers
    assert len(workers) == 2
    assert all(map(ended, [program, *workers]))


def test_workers_end_with_the_interpreter(fifo):
    """The pool was not closed, and a thread is still waiting for an item."""
    code = """if True:
        import sys, threading
        from rlvr.workers import WorkerPool
        from tests.environments import acting
        pool = WorkerPool(acting, spares=1)
        threading.Thread(target=pool.call, args=["@freeze " + sys.argv[1]], kwargs={"wall_s": 600}, daemon=True).start()
        sys.stdin.readline()
    """
    with python(code, fifo.path, stdin=subprocess.PIPE) as parent:
        frozen = fifo.pid()
        workers = children(parent.pid)
        parent.stdin.close()
        assert parent.wait(60) == 0
    assert frozen in workers
    assert all(map(ended, workers))


# -------------------------------------------------------------------------------- threads and forks


def test_many_threads_share_few_workers(pool):
    """32 callers of two processes; every one gets its own answer."""
    with ThreadPoolExecutor(32) as threads:
        got = list(threads.map(lambda i: pool.run([i, f"{i}"], wall_s=WALL_S), range(320)))
    assert got == [[i, f"{i}"] for i in range(320)]
    assert len(pids(pool)) <= 3  # a spare among them, if a test before has lost a worker


def test_threads_lose_no_item_to_one_another(pool):
    """Eight callers, each of which loses a worker in the middle of its items."""
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda i: pool.run([i, "@kill", -i], wall_s=WALL_S), range(8)))
    assert [(first, last) for first, _, last in got] == [(i, -i) for i in range(8)]
    assert all(isinstance(lost, WorkerDied) for _, lost, _ in got)


def test_a_forked_child_has_workers_of_its_own():
    """Two processes on the same pipes would read each other's replies; and the child's end is not the parent's."""
    code = """if True:
        import json, os, warnings
        from rlvr.workers import WorkerPool
        from tests.environments import acting
        warnings.simplefilter("ignore")  # newer Pythons do not like forks
        pool = WorkerPool(acting)
        mine = pool.call("@pid", wall_s=60)
        if os.fork() == 0:
            theirs = [pool.call("@pid", wall_s=60), pool.call("@pid", wall_s=60)]
            pool.close()
            print(json.dumps(theirs), flush=True)
            os._exit(0)
        os.wait()
        print(json.dumps([mine, pool.call("@pid", wall_s=60)]))
    """
    done = run_python(code)
    theirs, mine = map(json.loads, done.stdout.splitlines())
    assert mine[0] == mine[1] != theirs[0] == theirs[1]
    assert ended(theirs[0])
    assert ended(mine[0])


# ----------------------------------------------------------------------------- stopped by the shell


@pytest.mark.slow
def test_a_run_that_is_stopped_for_longer_than_the_wall_limit_goes_on(tmp_path, fifo):
    """Ctrl-Z, or a batch system that suspends the job: its workers did not run either."""
    code = (
        "import sys\nfrom rlvr.workers import WorkerPool\nfrom tests.environments import acting\n"
        "with WorkerPool(acting) as pool:\n    print(pool.run([1, f'@await {sys.argv[1]}', 2], wall_s=3.0))\n"
    )
    with python(code, fifo.path, stdout=subprocess.PIPE) as process:
        worker = fifo.pid()
        for pid in (process.pid, worker):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4.5)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.2)  # it looks before its worker can say anything
        with contextlib.suppress(ProcessLookupError):  # what came of it is said below
            os.kill(worker, signal.SIGCONT)
        Path(f"{fifo.path}.open").touch()
        out, error = process.communicate(timeout=60)
    assert out.strip() == f"[1, '@await {fifo.path}', 2]", error
