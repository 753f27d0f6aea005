"""Whatever is started, asked, killed and closed, in any order: nothing is left, and no reply is another's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from concurrent.futures import Future
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlvr.errors import Unscored, UsageError
from rlvr.workers import AsyncPool, DaemonThread, StartedProgram, Threads, WorkerPool, alive
from rlvr.workers.fork_server import ChildLost, ForkServer
from tests.processes import PATIENCE_S, ended

KINDS = ("process", "program", "fork")
WAYS = ("square", "square", "raise", "fork", "fork, and die there", "end")


def handler():
    """Answers with the question beside the square, so that a reply shows to what it is one."""

    def square(asked):
        number, way = asked
        if way == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return [number, number * number]

    server = ForkServer(square)

    def answer(asked):
        number, way = asked
        if way == "raise":
            raise ValueError(f"of {number}")
        if way == "end":
            os._exit(3)
        if way.startswith("fork"):
            inner = "die" if way.endswith("die there") else "square"
            try:
                return server.ask((number, inner), cpu_s=60.0, wall_s=PATIENCE_S)
            except ChildLost as lost:
                return [number, lost.reason]
        return square(asked)

    return answer


def async_handler():
    answer = handler()

    async def answer_later(asked):
        return answer(asked)

    return answer_later


def fits(number: int, way: str, reply: object, disturbed: bool) -> bool:
    """Whether a reply is one to this question; one may be lost where a test has killed or closed."""
    if isinstance(reply, Unscored | UsageError):
        if own := re.search(r"ValueError: of (\d+)", str(reply)):
            return way == "raise" and int(own[1]) == number
        return disturbed or way == "end"
    lost = disturbed or way == "fork, and die there"
    return reply == [number, number * number] or (lost and reply == [number, "died"])


class Beside(RuleBasedStateMachine):
    """A pool, an async pool, threads and programs, each started at first need and again once it was
    closed."""

    def __init__(self) -> None:
        super().__init__()
        self.before = {row.number for row in alive() if row.kind in KINDS}
        self.pool: WorkerPool | None = None
        self.awaiting: AsyncPool | None = None
        self.threads: Threads | None = None
        self.programs: list[StartedProgram] = []
        self.asked: list[tuple[int, str, Future[object]]] = []
        self.pids: set[int] = set()
        self.over = threading.Event()
        self.serving: list[DaemonThread] = []
        self.number = 0
        self.disturbed = False  # since replies were waited for last

    def own(self) -> set[int]:
        """The processes that the table has of ours."""
        numbers = {row.number for row in alive() if row.kind in KINDS} - self.before
        self.pids |= numbers
        return numbers

    @rule(ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=4))
    def ask_pool(self, ways):
        self.pool = self.pool or WorkerPool(handler, workers=2, spares=0)
        self.threads = self.threads or Threads(3, "machine", idle_s=0.05)
        for way in ways:
            self.number += 1
            call = partial(self.pool.run, [(self.number, way)], wall_s=PATIENCE_S)
            self.asked.append((self.number, way, self.threads.submit(call)))

    @rule(ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=4))
    def ask_async_pool(self, ways):
        self.awaiting = self.awaiting or AsyncPool(async_handler, wall_s=PATIENCE_S)
        for way in ways:
            self.number += 1
            future = self.awaiting.submit((self.number, way), lambda reply: [reply])
            self.asked.append((self.number, way, future))

    @rule()
    def start_program(self):
        argv = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
        program = StartedProgram(argv, name="sleeper", owner="machine", stdout=subprocess.PIPE)
        self.programs.append(program)
        self.pids.add(int(program.stdout.readline()))

    @precondition(lambda self: len(self.serving) < 3)
    @rule()
    def start_thread(self):
        self.serving.append(DaemonThread(self.over.wait, name="serves", owner="machine"))

    @precondition(lambda self: self.own())
    @rule(draw=st.integers(0, 99))
    def kill_one(self, draw):
        """From outside, as the kernel's out-of-memory killer does."""
        numbers = sorted(self.own())
        os.kill(numbers[draw % len(numbers)], signal.SIGKILL)
        self.disturbed = ended(numbers[draw % len(numbers)])

    @precondition(lambda self: self.programs)
    @rule()
    def end_program(self):
        program = self.programs.pop()
        assert program.end() == -signal.SIGKILL
        program.stdout.close()

    @rule()
    def wait(self):
        """Each question has its own reply, or a loss."""
        asked, self.asked = self.asked, []
        for number, way, future in asked:
            error = future.exception(PATIENCE_S)
            reply = error if error is not None else future.result()[0]
            assert fits(number, way, reply, self.disturbed), (number, way, reply)
        self.disturbed = False

    @rule(which=st.sampled_from(("pool", "awaiting", "threads")))
    def close(self, which):
        thing = getattr(self, which)
        setattr(self, which, None)
        if thing is not None:
            self.own()
            thing.close()
            self.disturbed = True

    @invariant()
    def serving_threads_are_listed(self):
        numbers = {row.number for row in alive() if row.name == "rlvr-serves"}
        assert {thread.native_id for thread in self.serving} <= numbers

    def teardown(self):
        for which in ("pool", "awaiting", "threads"):
            self.close(which)
        while self.programs:
            self.end_program()
        self.wait()
        self.over.set()
        for thread in self.serving:
            thread.join(PATIENCE_S)
        assert not self.own()
        assert all(map(ended, self.pids))


Beside.TestCase.settings = settings(
    max_examples=6,
    stateful_step_count=10,
    suppress_health_check=list(HealthCheck),
)
test_in_any_order = Beside.TestCase
