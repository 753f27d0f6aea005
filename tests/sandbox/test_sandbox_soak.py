"""What is left after many runs, and after every kind of sudden death: nothing."""

import asyncio
import contextlib
import dataclasses
import gc
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlvr.sandbox import Limits, Program, ProgramCall, Run, Sandbox, TestSuite
from tests.sandbox.sandboxes import descendants, keeper_of

LIMITS = Limits(cpu_s=0.3, wall_s=1.0, memory_mib=96, output_mib=1.0, processes=16, disk_mib=8.0)
HELLO = Program("python", "print(int(input()) + 1)")
MIXED = [
    HELLO,
    Program("python", "while True: pass"),
    Program("python", "a = []\nwhile True: a.append(bytearray(1 << 20))"),
    Program("python", "while True: print('x' * 9999)"),
    Program("python", "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(60)"),
    Program("python", "import os\nos.kill(os.getpid(), 11)"),
    Program("python", "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))"),
    Program("python", "print("),
    Program(
        "python",
        "import socket\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [a.fileno(), b.fileno()])",
    ),
    Program("bash", "sleep 60 & echo hi"),
]


_others: set[str] = set()


@pytest.fixture(scope="module", autouse=True)
def temporary(tmp_path_factory):
    """Verifiers of other tests keep a sandbox for the life of this process, and other processes use /tmp."""
    _others.update(cgroups(os.getpid()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield Path(tempfile.tempdir)


def cgroups(pid: int) -> list[str]:
    """Folders of a process's sandboxes in every hierarchy."""
    return [
        f
        for f, folders, _ in os.walk("/sys/fs/cgroup")
        if re.search(rf"/rlvr-{pid}-\d+$", f) and f not in _others
    ]


def census(sandbox: Sandbox) -> dict[str, object]:
    """Everything that a run could leave behind on this machine, once it has come to rest."""
    keeper = keeper_of(sandbox)
    deadline = time.monotonic() + 5.0
    while (
        len(processes := descendants(keeper)) != 3 * len(zygotes(sandbox))
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    return {
        "processes": sorted(processes.values()),
        "descriptors": entries("/proc/self/fd"),
        "of the keeper": entries(f"/proc/{keeper}/fd"),
        "of its zygotes": sorted(
            entries(f"/proc/{pid}/fd") for pid in processes if parent(pid) == keeper
        ),
        "threads": threading.active_count(),
        "mounts": [
            line for line in mounts("self") if "rlvr" in line or tempfile.gettempdir() in line
        ],
        "mounts of the keeper": len(mounts(keeper))
        - len(mounts("self")),  # others may mount something meanwhile
        "cgroups": len(cgroups(os.getpid())),
        "files": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
    }


def entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def mounts(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/mountinfo").read_text().splitlines()


def parent(pid: int) -> int:
    """0 for one that has just ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def zygotes(sandbox: Sandbox, within_s: float = 2.0) -> list[int]:
    """The keeper's children: at least one after a run, but a list of /proc can miss one while others end."""
    deadline = time.monotonic() + within_s
    while True:
        found = [
            pid for pid in descendants(keeper_of(sandbox)) if parent(pid) == keeper_of(sandbox)
        ]
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def working(sandbox: Sandbox) -> list[int]:
    """Processes of programs: those below a box."""
    ours = {0, keeper_of(sandbox), *zygotes(sandbox)}
    return [pid for pid in descendants(keeper_of(sandbox)) if parent(pid) not in ours]


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    """Whether none of them lives; a zombie that waits for its parent is no process any more."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        alive = []
        for pid in pids:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    alive.append(pid)
        if not alive:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def sandbox():
    with Sandbox(limits=LIMITS, workers=2) as sandbox:
        yield sandbox


@pytest.mark.slow
def test_300_mixed_runs_leave_nothing(sandbox):
    """Honest, killed, crashed and flooding ones, two at a time: every count is what it was after the first few."""

    def round_of(runs: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            endings = [
                run.ending
                for run in pool.map(lambda i: sandbox.run(MIXED[i % len(MIXED)], "41"), range(runs))
            ]
        assert "IE" not in endings
        assert {"OK", "TLE", "MLE", "OLE", "RE", "CE"} <= set(endings)

    quick = [p for p in MIXED if "while True: pass" not in p.contents().get(p.main, b"").decode()]
    round_of(20)
    before = census(sandbox)
    round_of(20)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda i: sandbox.run(quick[i % len(quick)], "41"), range(280)))
    assert census(sandbox) == before


@pytest.mark.slow
def test_memory_of_the_slots_does_not_grow(sandbox):
    """A program that needs most of its limit has it after many runs as after the first."""
    near = Program(
        "python", "m = bytearray(70 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\nprint('ok')"
    )
    for round_ in range(4):
        assert {sandbox.run(near).text for _ in range(4)} == {"ok\n"}, round_
        for _ in range(40):
            sandbox.run(HELLO, "1")


@pytest.mark.slow
def test_no_false_tle_under_load():
    """16 in flight, each needs half of its CPU limit: the clock that decides does not see the others."""
    burn = Program("python", "import time\nwhile time.process_time() < 0.25: pass\nprint('done')")
    limits = Limits(cpu_s=0.5, wall_s=300.0, memory_mib=96)
    with Sandbox(limits=limits, workers=16) as sandbox, ThreadPoolExecutor(16) as pool:
        runs = list(pool.map(lambda _: sandbox.run(burn), range(16)))
    assert [(run.ending, run.text) for run in runs] == [("OK", "done\n")] * 16, {
        run.why for run in runs
    }


def test_a_box_keeps_nothing_of_its_runs(sandbox):
    """It serves hundreds, with a limit of 256 descriptors: what one kept, a compiler's file among it, would be all."""
    before = 0
    for n in range(12):
        if n == 3:  # each kind of run was made by each box
            before = _descriptors(sandbox)
        compiled = sandbox.run(Program("cpp", f"int main() {{ return {n} - {n}; }}"))
        assert (compiled.ending, compiled.why) == ("OK", "")
        sandbox.call(Program("python", "def f(x): return x"), [ProgramCall("f", (n,))])
        sandbox.test(
            Program("python", "def f(x): return x"), TestSuite("asserts", "assert f(1) == 1")
        )
    deadline = time.monotonic() + 20.0  # a box closes a run's descriptors after its reply
    while (most := _descriptors(sandbox)) > before:
        assert time.monotonic() < deadline, (before, most)
        time.sleep(0.02)


def _descriptors(sandbox) -> int:
    """The most that a box holds open."""
    slots = zygotes(sandbox)
    boxes = [pid for pid in descendants(keeper_of(sandbox)) if parent(pid) in slots]
    return max(entries(f"/proc/{pid}/fd") for pid in boxes)


def test_a_zygote_killed_between_two_runs_is_replaced(sandbox):
    """Only the keeper notices."""
    sandbox.run(HELLO, "1")
    for pid in zygotes(sandbox):
        os.kill(pid, signal.SIGKILL)
    assert [sandbox.run(HELLO, "1").text for _ in range(3)] == ["2\n"] * 3
    assert len(census(sandbox)["processes"]) <= 6


def test_a_zygote_killed_during_a_run_is_replaced(sandbox):
    """The run is tried once more in a new slot; what the old one had is gone."""
    slow = Program("python", "import time\ntime.sleep(0.4)\nprint('slept')")
    sandbox.run(HELLO, "1")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sandbox.run, slow)
        time.sleep(0.15)
        old = list(descendants(keeper_of(sandbox)))
        for pid in zygotes(sandbox):
            os.kill(pid, signal.SIGKILL)
        assert future.result().text == "slept\n"
    assert gone(old)
    sandbox.run(
        HELLO, "1"
    )  # on a busy machine they were killed after the run, and not replaced until now
    assert len(cgroups(os.getpid())) <= 3 * len(zygotes(sandbox))


def test_a_zygote_killed_during_a_suite_is_replaced(sandbox):
    """What the first try said of the tests does not stand before what the second says."""
    program = Program("python", "import time\ndef f(x):\n    time.sleep(0.2)\n    return x")
    suite = TestSuite("asserts", "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3")
    sandbox.run(HELLO, "1")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sandbox.test, program, suite)
        time.sleep(0.35)
        for pid in zygotes(sandbox):
            os.kill(pid, signal.SIGKILL)
        tested = future.result()
    assert (tested.done, [case.outcome for case in tested.cases]) == (True, ["pass"] * 3)


@pytest.mark.parametrize("kills", [1, 3, float("inf")])
def test_a_box_killed_during_a_run_is_ours_to_answer_for(sandbox, kills):
    """Pid 1 of a run that is killed from outside: tried again while the wall budget lasts, then IE."""
    sandbox.run(HELLO, "1")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            sandbox.run, Program("python", "import time\ntime.sleep(0.9)\nprint('slept')")
        )
        done = set()
        while len(done) < kills and not future.done():
            for pid in working(sandbox):
                with contextlib.suppress(OSError):
                    if (box := parent(pid)) not in done and parent(box) in zygotes(sandbox):
                        done.add(box)
                        os.kill(box, signal.SIGKILL)
            time.sleep(0.02)
        run = future.result()
    assert (run.ending, run.text) == (("IE", "") if kills > 3 else ("OK", "slept\n"))
    assert sandbox.run(HELLO, "1").text == "2\n"


def test_a_box_killed_as_it_waits_ends_its_slot(sandbox):
    """It may have been woken for a request that no other box would see: that run waited for all its wall time."""
    sandbox.run(HELLO, "1")
    [zygote] = zygotes(sandbox)
    box = next(pid for pid in descendants(zygote) if parent(pid) == zygote)
    os.kill(box, signal.SIGKILL)
    assert gone([zygote])
    assert sandbox.run(HELLO, "1").text == "2\n"


def test_slots_that_died_while_idle_are_no_tries():
    """Any number of them: the run goes to one that lives."""
    with Sandbox(limits=LIMITS, workers=5) as sandbox:
        with ThreadPoolExecutor(5) as pool:
            list(
                pool.map(
                    lambda _: sandbox.run(Program("python", "import time; time.sleep(0.3)")),
                    range(5),
                )
            )
        idle = zygotes(sandbox)
        assert len(idle) == 5
        for pid in idle:
            os.kill(pid, signal.SIGKILL)
        assert gone(idle)
        assert sandbox.run(HELLO, "1").text == "2\n"


@pytest.mark.slow
def test_random_kills_fail_no_run(sandbox):
    """A process of the sandbox is killed every 150 ms, boxes and zygotes first; every run still says what it is.

    No run meets two kills, however long it takes on a busy machine: it is tried twice.
    """
    over = threading.Event()
    kills = 0
    in_flight: dict[int, int] = {}  # number of a run → kills before it began

    def one(number: int) -> Run:
        in_flight[number] = kills
        try:
            return sandbox.run(HELLO, str(number))
        finally:
            del in_flight[number]

    def kill() -> None:
        nonlocal kills
        while not over.wait(0.15):
            if any(before < kills for before in list(in_flight.values())):
                continue
            ours = [*zygotes(sandbox, 0.1), *(pid for pid in descendants(keeper_of(sandbox)))]
            with contextlib.suppress(OSError, IndexError):
                os.kill(random.Random(kills).choice(ours), signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(one, range(600)))
            while kills <= 10:
                runs += pool.map(one, range(100))
    finally:
        over.set()
        killer.join()
    assert not [run for run in runs if run.ending == "IE"]


@pytest.mark.parametrize("during", [False, True])
def test_a_keeper_that_is_killed_is_replaced(sandbox, during):
    """All slots die with it; the next run starts another, and the cgroups of the first are gone."""
    sandbox.run(HELLO, "1")
    old = [keeper_of(sandbox), *descendants(keeper_of(sandbox))]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            sandbox.run, Program("python", "import time\ntime.sleep(0.4)\nprint('slept')")
        )
        time.sleep(0.15 if during else 0.7)
        os.kill(old[0], signal.SIGKILL)
        assert future.result().text == "slept\n"
    assert (
        sandbox.run(HELLO, "1").text == "2\n"
    )  # perhaps in a slot that has not seen its keeper's end yet
    assert gone(old[1:])
    assert sandbox.run(HELLO, "1").text == "2\n"
    assert len(cgroups(os.getpid())) <= 3 * len(zygotes(sandbox))


_PARENT = """
import sys, threading, time
from rlvr.sandbox import Limits, Program, Sandbox
sandbox = Sandbox(workers=3, limits=Limits(cpu_s=30, wall_s=60)).warm()
bad = "import os, time\\nfor _ in range(5):\\n    if os.fork() == 0: os.setsid(); break\\nwhile True: time.sleep(1)"
for _ in range(3):
    threading.Thread(target=sandbox.run, args=(Program("python", bad),)).start()
time.sleep(0.4)
print(sandbox._pool._keeper.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_killed_leaves_nothing(number, temporary):
    """No process, no cgroup, no file: the keeper sees that its parent is gone."""
    before = set(temporary.iterdir())
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as host:
        keeper = int(host.stdout.readline())
        all_of_it = [keeper, *descendants(keeper)]
        assert len(all_of_it) > 15
        host.send_signal(number)
    assert gone(all_of_it)
    deadline = time.monotonic() + 5.0
    while cgroups(host.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert cgroups(host.pid) == []
    assert set(temporary.iterdir()) == before


_FORKED = """
import os, sys
from rlvr.sandbox import Program, Sandbox
hello = Program("python", "print(int(input()) + 1)")
with Sandbox(workers=2) as sandbox:
    assert sandbox.run(hello, "1").text == "2\\n"
    child = os.fork()
    if child == 0:
        assert sandbox.run(hello, "2").text == "3\\n"
        sandbox.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sandbox.run(hello, "3").text == "4\\n"
    child = os.fork()
    if child == 0:
        os._exit(0)  # and one that never uses it
    os.waitpid(child, 0)
    assert sandbox.run(hello, "4").text == "5\\n"
    keeper = sandbox._pool._keeper.pid
assert not os.path.exists(f"/proc/{keeper}")
print("good")
"""


def test_a_fork_of_the_parent_has_a_sandbox_of_its_own():
    """The child starts over; what it does, closing included, is nothing to the parent's slots."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", _FORKED],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("good\n", "")


def test_a_parent_that_is_killed_while_its_fork_lives_leaves_nothing():
    """The fork holds the keeper's socket open; the keeper looks who its parent is."""
    script = _PARENT.replace(
        "print(sandbox", "import os\nif os.fork() == 0: time.sleep(8); os._exit(0)\nprint(sandbox"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    keeper = int(host.stdout.readline())
    all_of_it = [keeper, *descendants(keeper)]
    host.kill()
    host.wait()
    host.stdout.close()
    assert gone(all_of_it)


@pytest.mark.slow
def test_32_threads_share_two_slots(sandbox):
    """Each gets the answer to its own program."""
    with ThreadPoolExecutor(32) as pool:
        texts = list(pool.map(lambda n: sandbox.run(HELLO, str(n)).text, range(200)))
    assert texts == [f"{n + 1}\n" for n in range(200)]
    assert len(zygotes(sandbox)) <= 2


def test_a_pickled_sandbox_is_one_with_the_same_settings(sandbox):
    """What goes to a worker is its settings; the copy starts slots of its own."""
    sandbox.run(HELLO, "1")
    with pickle.loads(pickle.dumps(sandbox)) as copy:
        assert (copy.limits, copy.workers) == (sandbox.limits, sandbox.workers)
        assert copy.run(HELLO, "5").text == "6\n"
        assert keeper_of(copy) != keeper_of(sandbox)
    assert sandbox.run(HELLO, "1").text == "2\n"


def test_a_closed_sandbox_starts_afresh(sandbox):
    """close() ends all processes, twice is as good as once, and a run after it is a run."""
    sandbox.run(HELLO, "1")
    old = [keeper_of(sandbox), *descendants(keeper_of(sandbox))]
    sandbox.close()
    sandbox.close()
    assert gone(old)
    assert cgroups(os.getpid()) == []
    assert sandbox.run(HELLO, "1").text == "2\n"


def test_closing_during_a_run_ends_it():
    """The run ends IE, since it is no fault of the program; nothing goes on afterwards."""
    sandbox = Sandbox(limits=dataclasses.replace(LIMITS, wall_s=60.0), workers=1).warm()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sandbox.run, Program("python", "import time\ntime.sleep(60)"))
        while not working(sandbox) and not future.done():
            time.sleep(0.02)
        old = [keeper_of(sandbox), *descendants(keeper_of(sandbox))]
        sandbox.close()
        assert future.result().ending == "IE"
    assert gone(old)
    assert sandbox._pool._keeper is None
    assert cgroups(os.getpid()) == []


def test_a_sandbox_that_is_forgotten_goes():
    """Without close(), the garbage collector ends its processes."""
    sandbox = Sandbox(limits=LIMITS, workers=1).warm()
    old = [keeper_of(sandbox), *descendants(keeper_of(sandbox))]
    del sandbox
    gc.collect()
    assert gone(old)


def test_asyncio_runs_side_by_side(sandbox):
    """Twenty at once from one event loop, which stays free."""

    async def main() -> list[str]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        runs = await asyncio.gather(*(sandbox.arun(HELLO, str(n)) for n in range(20)))
        ticking.cancel()
        assert ticks > 3
        return [run.text for run in runs]

    assert asyncio.run(main()) == [f"{n + 1}\n" for n in range(20)]


def test_run_many_keeps_the_order_and_takes_jobs_as_needed(sandbox):
    """An endless generator of jobs is read only a little ahead."""
    taken = 0

    def jobs():
        nonlocal taken
        while True:
            taken += 1
            yield HELLO, str(taken)

    runs = sandbox.run_many(jobs())
    assert [next(runs).text for _ in range(10)] == [f"{n + 2}\n" for n in range(10)]
    runs.close()
    assert taken <= 10 + 2 * sandbox.workers + 1
