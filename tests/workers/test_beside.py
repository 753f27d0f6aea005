"""Threads, programs and forks beside the caller, and the table of what is alive."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import pytest

from rlvr.cli import doctor
from rlvr.errors import UsageError
from rlvr.workers import (
    DaemonThread,
    ForkedChild,
    Lifeline,
    StartedProgram,
    Threads,
    WorkerPool,
    alive,
    run_program,
)
from rlvr.workers.loops import LoopThread
from tests.processes import PATIENCE_S, ended, python, run_python

SLEEP = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]


def setup():
    return abs


def listed() -> set[tuple[str, str, str]]:
    return {(row.kind, row.name, row.owner) for row in alive()}


def sleeper(**options) -> StartedProgram:
    return StartedProgram(SLEEP, name="sleeper", owner="a test", stdout=subprocess.PIPE, **options)


def test_the_table_has_each_kind_until_it_ends():
    """A thread, a loop, a worker, a program: with their numbers, and gone once they are."""
    before = listed()
    over = threading.Event()
    thread = DaemonThread(over.wait, name="waits", owner="a test")
    loop = LoopThread("test loop")
    program = sleeper()
    with WorkerPool(setup, spares=0) as pool:
        pool.warm()
        assert listed() - before == {
            ("thread", "rlvr-waits", "a test"),
            ("loop", "rlvr-test loop", "test loop"),
            ("program", "sleeper", "a test"),
            ("process", "worker", __name__),
        }
        numbers = {row.number for row in alive()}
        assert {thread.native_id, program.pid, *(w._process.pid for w in pool._all)} <= numbers
    over.set()
    thread.join()
    program.end()
    program.stdout.close()
    assert listed() - before == {("loop", "rlvr-test loop", "test loop")}
    assert loop.loop.is_running()  # as long as this process lives


def workers():
    return {row.number for row in alive() if row.name == "worker"}


def test_what_is_dropped_is_not_in_the_table():
    """It holds nothing: whoever started a thing may forget it."""
    over = threading.Event()
    DaemonThread(over.wait, name="dropped", owner="a test")
    assert ("thread", "rlvr-dropped", "a test") in listed()  # it runs, so it is not gone yet
    over.set()
    before = workers()
    pool = WorkerPool(setup, spares=0)
    pool.warm()
    [number] = workers() - before
    del pool
    gc.collect()
    assert ended(number)
    assert number not in workers()


def test_a_program_is_killed_with_what_it_started():
    """Also what is still there when its leader has ended, before that was waited for."""
    program = sleeper()
    inner = int(program.stdout.readline())
    program.end()
    program.stdout.close()
    assert ended(inner)
    assert program.end() == -signal.SIGKILL  # nothing is killed any more


def test_two_threads_may_end_a_program(monkeypatch):
    """One waits for it without reaping; the kill of another must not take the exit code from it."""
    program = sleeper()
    killer = threading.Timer(0.05, program.kill)
    killer.start()
    for _ in range(3):
        assert os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT).si_pid == program.pid
        program.kill()
    killer.join()
    assert program.end() == -signal.SIGKILL
    program.stdout.close()


def test_a_lifeline_ends_with_its_owner_whatever_ends_that():
    """After SIGKILL the reading end is at its end."""
    code = """if True:
        import os, subprocess, sys, time
        from rlvr.workers import Lifeline, StartedProgram
        line = Lifeline()
        argv = ["/bin/sh", "-c", "read -r _; exit"]
        program = StartedProgram(argv, name="reader", owner="a test", stdin=line.theirs)
        line.give()
        print(program.pid, flush=True)
        time.sleep(600)
    """
    owner = python(code, stdout=subprocess.PIPE)
    reader = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    assert ended(reader)
    line = Lifeline()
    line.say(b"x")
    assert os.read(line.theirs, 1) == b"x"
    line.close()
    line.close()


OWNER = """if True:
    import os, subprocess, sys, threading, time
    from pathlib import Path
    from rlvr.agents.programs import AgentCall, Command
    from rlvr.workers import ForkedChild, StartedProgram, alive, run_program
    argv = ["/bin/sh", "-c", "trap '' IO TERM HUP; sleep 600 & echo $$ $! > $0; wait; wait", sys.argv[2]]
    call = AgentCall("task", "prompt", "http://localhost", "key")
    fork = lambda: (Path(sys.argv[2]).write_text(str(os.getpid()) + chr(10)), time.sleep(600))
    start = {
        "program": lambda: StartedProgram(argv, name="p", owner="a test"),
        "group": lambda: StartedProgram(argv, name="p", owner="a test", group="group"),
        "run": lambda: run_program(argv, name="p", owner="a test", limit_s=None),
        "command": lambda: Command(argv=argv)(call),
        "fork": lambda: ForkedChild(fork, name="f", owner="a test"),
    }
    kept = []
    thread = threading.Thread(target=lambda: kept.append(start[sys.argv[1]]()), daemon=True)
    thread.start()
    if sys.argv[1] not in ("run", "command"):
        thread.join()  # the end of the thread that started it is not the end of its owner
    while not alive():
        time.sleep(0.01)
    print("started", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["program", "group", "run", "command", "fork"])
def test_nothing_outlives_an_owner_that_is_killed(kind, fifo):
    """An agent's command and a trainer's driver ran on after SIGKILL; signals that a program ignores
    are no way out."""
    with python(OWNER, kind, fifo.path, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == "started\n"
        pids = [int(pid) for pid in fifo.line().split()]
        assert not any(Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z" for pid in pids)
        owner.kill()
    assert all(map(ended, pids))


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_program_that_is_dropped_ends():
    """Popen kept it, and so its lifeline, until it ended by itself."""
    pid = StartedProgram(SLEEP, name="p", owner="a test", stdout=subprocess.DEVNULL).pid
    assert ended(pid)


def test_a_fork_that_the_system_refuses_leaves_nothing_open(monkeypatch):
    """A server that starts its processes again and again would run out of files."""

    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(BlockingIOError):
        ForkedChild(print, name="f", owner="a test")
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_program_may_be_over_before_its_owner_looks():
    """Where SIGCHLD is ignored nothing is left of it by then, not even its number."""
    code = """if True:
        import signal
        from rlvr.workers import run_program
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(20):
            run_program(["/bin/true"], name="true", owner="a test", limit_s=60)
        print("ended")
    """
    done = run_python(code)
    assert done.stdout == "ended\n", done.stderr


def test_run_program_gives_what_it_prints_and_kills_it_at_the_limit():
    """What it has started goes with it."""
    echo = "import sys; print(sys.stdin.read(), end='\\u00fc'); sys.exit(3)"
    argv = [sys.executable, "-X", "utf8", "-c", echo]
    run = partial(run_program, name="echo", owner="a test")
    done = run(argv, limit_s=PATIENCE_S, stdin=b"in")
    assert (done.stdout, done.stderr, done.returncode) == ("inü", "", 3)
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run(SLEEP, limit_s=0.2)
    assert ended(int(late.value.stdout))
    with pytest.raises(FileNotFoundError):
        run(["/no/such/program"], limit_s=1)


def test_a_fork_ends_with_its_function_and_owns_nothing_of_its_parent():
    """In it the table is empty, and a program of the parent's counts as ended."""
    program = sleeper()
    reader, writer = os.pipe()
    call = lambda: os.write(writer, f"{len(alive())} {program.number}".encode())  # noqa: E731
    child = ForkedChild(call, name="child", owner="a test")
    assert ("fork", "child", "a test") in listed()
    assert os.read(reader, 100) == b"0 None"
    assert os.waitpid(child.pid, 0)[1] == 0
    failing = ForkedChild(lambda: 1 / 0, name="failing", owner="a test")
    assert os.waitstatus_to_exitcode(os.waitpid(failing.pid, 0)[1]) == 1
    lasting = ForkedChild(lambda: signal.pause(), name="lasting", owner="a test")
    assert lasting.end() == -signal.SIGKILL
    assert "lasting" not in {row.name for row in alive()}
    assert program.number == program.pid
    program.end()
    program.stdout.close()
    os.close(reader)
    os.close(writer)


def test_an_exception_of_a_thread_goes_to_its_hook(monkeypatch):
    """None is lost, and no other thread sees it; by default the hook prints it."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    thread = DaemonThread(lambda: 1 / 0, name="fails", owner="a test")
    thread.join()
    assert [(one.exc_type, one.thread) for one in seen] == [(ZeroDivisionError, thread)]


def test_threads_start_no_more_than_they_need_and_lose_no_call():
    """One caller that waits each time needs one thread; idle ones end, and come back."""
    with Threads(8, "test", idle_s=0.01) as threads:
        for number in range(50):
            assert threads.submit(abs, -number).result() == number
        assert threads._queue.threads <= 2  # a thread may not have said yet that it is free
        gate = threading.Barrier(8)
        waits = [threads.submit(gate.wait, PATIENCE_S) for _ in range(8)]  # side by side, or never
        assert sorted(wait.result() for wait in waits) == list(range(8))
        for thread in [t for t in threading.enumerate() if t.name == "rlvr-test"]:
            thread.join(PATIENCE_S)
        assert (threads._queue.threads, threads._queue.spare) == (0, 0)
        assert list(threads.map(abs, [-1, 2, -3])) == [1, 2, 3]
    with pytest.raises(UsageError, match="this test is closed; open a new one"):
        threads.submit(abs, 1)


@pytest.mark.parametrize("cancel", [False, True])
def test_calls_that_wait_as_threads_close_are_not_begun(cancel):
    """Their futures say so: cancelled, as by an executor, or with the error that names what was closed."""
    over = threading.Event()
    threads = Threads(1, "test")
    begun, waiting = threads.submit(over.wait), threads.submit(abs, -1)
    while not begun.running():
        pass
    threads.close(cancel=cancel)
    over.set()
    assert begun.result(PATIENCE_S)
    with pytest.raises(CancelledError if cancel else UsageError):
        waiting.result(PATIENCE_S)
    assert waiting.cancelled() == cancel


@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_that_raises_keeps_nothing(awaited):
    """The future, its exception and the frames of the call were a cycle: a service held each refused
    body until the garbage collector came by."""

    class Given:
        def refuse(self):
            raise ZeroDivisionError

    async def wait(threads, given):
        with contextlib.suppress(ZeroDivisionError):
            await asyncio.wrap_future(threads.submit(given.refuse))

    def call(threads):
        given = Given()
        if awaited:
            asyncio.run(wait(threads, given))
        else:
            with contextlib.suppress(ZeroDivisionError):
                threads.submit(given.refuse).result()
        return weakref.ref(given)

    with Threads(1, "test") as threads:
        gc.disable()
        try:
            kept = call(threads)
            threads.submit(abs, 1).result()  # its thread has ended the call before
            assert kept() is None
        finally:
            gc.enable()


def test_sigusr1_prints_the_table_and_the_command_goes_on(say, monkeypatch):
    """By default the signal would end it."""
    written = []

    def examine(full=False):
        program = sleeper()
        monkeypatch.setattr(os, "write", lambda *to: written.append(to))
        os.kill(os.getpid(), signal.SIGUSR1)
        monkeypatch.undo()
        program.end()
        program.stdout.close()
        return [doctor.PartStatus("packages", "numpy", True, "1.0")]

    monkeypatch.setattr(doctor, "examine", examine)
    code, _ = say("doctor")
    assert code == 0
    [(fd, text)] = written
    assert fd == 2
    assert text.startswith(f"rlvr: process {os.getpid()} has ".encode())
    assert b"program sleeper (" in text
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
