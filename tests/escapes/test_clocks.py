"""Attack family: time.  CPU seconds of all processes together, and the wall behind them."""

import dataclasses
from pathlib import Path

import pytest

from rlvr.sandbox import Limits
from tests.sandbox.sandboxes import SMALL

SHORT = Limits(
    cpu_s=0.3, wall_s=20.0, memory_mib=96, processes=16
)  # the wall is for a busy machine
PARANOID = Path(
    "/proc/sys/kernel/perf_event_paranoid"
)  # up to 2, users may count the CPU time of their descendants
SLEEPY = dataclasses.replace(SHORT, wall_s=0.4)


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "10 ** 10 ** 10",
        "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
        "sum(range(10 ** 12))",
        "import itertools; list(zip(itertools.count(), iter(int, 1)))[0] if 0 else sum(1 for _ in itertools.count())",
        "import ctypes; ctypes.CDLL(None).qsort",
    ][:5],
)
def test_an_endless_computation_ends_at_its_cpu_limit(host, source):
    """In bytecode, in one long C call, and in a regular expression."""
    run = host.run(source, limits=SHORT)
    assert run.ending == "TLE"
    assert "CPU" in run.why
    assert 0.25 < run.cpu_s < 1.0


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(60)",
        "input()\nimport threading; threading.Lock().acquire(); threading.Event().wait()",
        "import signal; signal.pause()",
        "import select; select.select([], [], [])",
        "import os; r, w = os.pipe(); os.read(r, 1)",
        "import socket; a, b = socket.socketpair(); a.recv(1)",
        "import os; os.mkfifo('f'); open('f')",
        "import fcntl, os\nf = open('f', 'w'); fcntl.flock(f, 2)\n"
        "if os.fork() == 0: fcntl.flock(open('f', 'w'), 2)\nelse: os.wait()",
    ],
)
def test_waiting_for_ever_ends_at_the_wall(host, source):
    """Sleeping, blocking on a pipe, a lock, a socket: no CPU is used."""
    run = host.run(source, "x\n", limits=SLEEPY)
    assert run.ending == "TLE"
    assert "wall" in run.why
    assert run.wall_s > 0.35


def test_cpu_time_of_children_counts(host):
    """The parent waits, its children work, each below the limit."""
    run = host.run(
        "import os, time\n"
        "def work():\n"
        "    while time.process_time() < 0.12: pass\n"
        "    os._exit(0)\n"
        "for _ in range(10):\n"
        "    if os.fork() == 0: work()\n"
        "    os.wait()",
        limits=SHORT,
    )
    assert run.ending == "TLE"
    assert run.cpu_s < 1.0


def test_cpu_time_of_children_that_nobody_waits_for_counts(host):
    """With SIGCHLD ignored the kernel forgets what a child used: a cgroup does not; without one, the wall ends it."""
    run = host.run(
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n"
        "    try: child = os.fork()\n"
        "    except OSError: child = None  # on a busy machine they are soon as many as may be\n"
        "    if child == 0:\n"
        "        while time.process_time() < 0.05: pass\n"
        "        os._exit(0)\n"
        "    time.sleep(0.05)",
        limits=SHORT if host.counted else dataclasses.replace(SHORT, wall_s=2.5),
    )
    assert run.ending == "TLE"
    if host.counted:
        assert "CPU" in run.why
        assert run.cpu_s < 1.5


def test_cpu_time_of_orphans_counts(host):
    """A worker whose parent has ended belongs to pid 1, who reaps it and its time."""
    run = host.run(
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork(): os._exit(0)\n"
        "        while time.process_time() < 0.06: pass\n"
        "        os._exit(0)\n"
        "    os.wait(); time.sleep(0.07)\n"
        "time.sleep(60)",
        limits=SHORT,
    )
    assert run.ending == "TLE"
    assert "CPU" in run.why


def test_cpu_time_of_threads_counts(host):
    """Four threads in C, where the interpreter's lock is free, use CPU time four times as fast."""
    run = host.run(
        "import hashlib, threading\n"
        "def work():\n    while True: hashlib.sha256(bytes(1 << 22))\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()",
        limits=SHORT,
    )
    assert run.ending == "TLE"
    assert run.cpu_s < 1.2


def test_cpu_time_in_the_kernel_counts(host):
    """System time is CPU time."""
    run = host.run(
        "import os\nf = os.open('/dev/zero', 0)\nwhile True: os.read(f, 1 << 22)", limits=SHORT
    )
    assert run.ending == "TLE"
    assert run.cpu_s < 1.0


def test_the_cpu_limit_cannot_be_raised(host):
    """RLIMIT_CPU only goes down, and pid 1 of the run counts for itself."""
    run = host.run(
        "import resource, signal\n"
        "try: resource.setrlimit(resource.RLIMIT_CPU, (10000, 10000)); print('raised')\n"
        "except ValueError: print('refused', flush=True)\n"
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "while True: pass",
        limits=SHORT,
    )
    assert (run.ending, run.text.partition("Traceback")[0]) == (
        "TLE",
        "refused\n",
    )  # a session shows what ended it


def test_a_lower_priority_hides_nothing(host):
    """nice 19 makes a program slower, not its clock."""
    run = host.run(
        "import os\ntry: os.nice(19)\nexcept OSError: pass\nwhile True: pass", limits=SHORT
    )
    assert run.ending == "TLE"


def test_a_storm_of_signals_to_pid_1_does_not_hold_it_up(host):
    """SIGCHLD wakes pid 1 of the run; a flood of them neither stops it from looking at the clock nor ends it."""
    run = host.run(
        "import os, signal\nwhile True:\n    for n in (17, 18, 10, 12, 15, 9, 19, 2, 3, 34, 64):\n"
        "        try: os.kill(os.getppid() or 1, n)\n        except PermissionError: pass",
        limits=SHORT,
    )
    assert (run.ending, run.why) == ("TLE", f"over {SHORT.cpu_s:g} CPU seconds")


def test_the_program_s_own_clock_is_not_ours(host):
    """Patched clocks in the program change nothing outside."""
    run = host.run(
        "import time, resource, os\n"
        "time.time = time.monotonic = time.process_time = lambda: 0.0\n"
        "time.clock_gettime = os.times = resource.getrusage = lambda *a: 0.0\n"
        "while True: pass",
        limits=SHORT,
    )
    assert run.ending == "TLE"


def test_timers_and_alarms_do_not_reach_us(host):
    """The program's alarm kills the program."""
    run = host.run(
        "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(9)",
        limits=SHORT,
    )
    assert (run.ending, run.signal) == ("RE", 14)


def test_a_loop_at_the_end_is_still_the_program(host):
    """atexit, __del__ and threads run within the same limits."""
    for source in (
        "import atexit\n@atexit.register\ndef f():\n    while True: pass",
        "class A:\n    def __del__(self):\n        while True: pass\na = A()",
        "import sys\nclass S:\n    def flush(self):\n        while True: pass\nsys.stdout = S()",
        "import sys\ndef hook(*a):\n    while True: pass\nsys.excepthook = hook\n1 / 0",
    ):
        assert host.run(source, limits=SHORT).ending == "TLE"


def test_a_program_that_compiles_for_ever_is_ended(host):
    """Work in the compiler is the program's work."""
    run = host.run(
        "x = " + "+".join(["(" * 60 + "1" + ")" * 60] * 30000),
        limits=dataclasses.replace(SMALL, cpu_s=0.3),
    )
    assert run.ending in ("TLE", "MLE", "CE", "RE")


def test_cpu_time_of_short_children_that_nobody_waits_for_counts(host):
    """With SIGCHLD ignored, the kernel forgets a child's time as it ends; the cgroup or its counter do not."""
    run = host.run(
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for _ in range(300):\n"
        "    if os.fork() == 0:\n"
        "        end = time.process_time() + 0.008\n"
        "        while time.process_time() < end: pass\n"
        "        os._exit(0)\n"
        "    time.sleep(0.009)",
        limits=dataclasses.replace(SHORT, wall_s=30.0),
    )
    if host.counted or int(PARANOID.read_text()) <= 2:
        assert run.ending == "TLE"
        assert "CPU" in run.why
        assert run.cpu_s < 1.5
