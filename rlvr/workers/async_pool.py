"""A pool for handlers that wait: each process awaits many items at once, and can
be killed at any moment.

    caller ─▶ AsyncPool.submit(item) ─▶ the least busy process ══ requests ═▶ child: await
                                                                              handler(item)
                                          ◀══ replies, as they get ready ══  of many items

An item's own exception or timeout is its own.  When a process dies or its event loop hangs, all
items in it are lost: the one whose step was running is to blame and is tried once more in a process
of its own; the others begin anew.

One event loop of this process (`loop_thread("workers")`) looks after all pools; no code of a
verifier runs in it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import pickle
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rlvr.errors import Unscored, WorkerDied, WorkerError, WorkerTimeout, foreign_code
from rlvr.validate import (
    require_optional_whole,
    require_processes,
    require_seconds,
    require_whole,
)
from rlvr.workers.async_process import GRACE_S, TICK_S, Mark
from rlvr.workers.framing import frame_payload
from rlvr.workers.loops import loop_thread
from rlvr.workers.pool import _STARTS, Handler, _is_error, _pool_closed, _Worker, name_of, ship
from rlvr.workers.threads import Threads

__all__ = ["AsyncPool"]

_T = TypeVar("_T")

_TRIES: Final = 2  # of an item that fails by itself
# times that an item may be lost by another's fault, until it gets a process of its own
_DISTURBED: Final = 3
# For the loop to tell the callers that wait; the processes were killed before.
_CLOSE_S: Final = 5.0


class AsyncPool:
    """Awaits items in killable processes, at most so many at once; safe from any
    thread, any number of callers.

    Args:
        setup: called once in each process; returns the handler, a coroutine function of an item.
        workers: how many processes share the items; there may be one more, for items that took
            others with them.
        at_once: how many items are awaited at once, in all processes together.
        wall_s: wall seconds of an item; the time in which another item's code holds the event loop
            does not count.
        memory_mib: see `WorkerPool`.
        recycle_after: a process is replaced after so many items.
        start_s: wall seconds within which a process must be ready.
        shared_fd: see `WorkerPool`.

    Raises:
        UsageError: a number that cannot work, or a `setup` that cannot be shipped.
    """

    def __init__(
        self,
        setup: Callable[[], Handler],
        *,
        workers: int = 1,
        at_once: int = 64,
        wall_s: float,
        memory_mib: int | None = None,
        recycle_after: int = 20_000,
        start_s: float = 60.0,
        shared_fd: int | None = None,
    ) -> None:
        self.workers = require_processes("workers", workers, 1)
        self._at_once = require_whole("at_once", at_once, 1)
        require_seconds("wall_s", wall_s)
        self._wall_s, self._start_s, self._recycle_after = wall_s, start_s, recycle_after
        self._memory_mib = require_optional_whole("memory_mib", memory_mib, 1, none="no limit")
        self._boot, self._owner, self._shared_fd = ship(setup), name_of(setup), shared_fd
        # One more than processes: the process that works apart starts beside them.
        self._starters = Threads(self.workers + 1, "async pool")
        self._closed = False
        # processes so far; how many of them died or were killed before their time
        self.started = self.lost = 0
        # Strong: the loop has a worker until it has ended.
        self._all: set[_AsyncWorker] = set()
        self._forget()
        _pools.add(self)
        weakref.finalize(
            self, _strike, self._all
        ).atexit = False  # for a pool that is dropped without being closed

    def _forget(self) -> None:
        """Start with no process: in a new pool, and in a forked child, where the workers and the
        loop are not."""
        for worker in self._all:
            worker.disown()
        self._all.clear()
        self._shared: list[_AsyncWorker] = []
        self._apart: _AsyncWorker | None = None
        # Locks of asyncio belong to the loop that first waits for them, which a child has not.
        self._one_apart = asyncio.Lock()
        self._slots = asyncio.Semaphore(self._at_once)

    def warm(self) -> None:
        """Start every process now and return once the first is ready.

        Raises:
            WorkerError: `setup` raised in the worker; its traceback is kept.
        """
        if self._closed:
            raise _pool_closed()
        loop_thread("workers").call(self._warm)

    async def _warm(self) -> None:
        while len(self._shared) < self.workers:
            self._shared.append(self._start())
        await self._shared[0].wait_started()

    def submit(self, item: object, then: Callable[[Any], _T]) -> Future[_T]:
        """Await an item as soon as there is room.

        Args:
            item: anything that cloudpickle can send.
            then: makes the future's result of the handler's value, or of the `Unscored` error that
                the item was lost to; quick, since it runs in the loop.

        Raises:
            UsageError: the item cannot be sent, or the pool is closed.
        """
        if self._closed:
            raise _pool_closed()
        return loop_thread("workers").submit(self._run, ship(item), then)

    def close(self) -> None:
        """Kill every process.  Idempotent; callers still waiting get a `UsageError`."""
        self._closed = True
        self._starters.close()
        _strike(self._all)
        if self._all:
            # The loop may hang in a handler's code of another pool; the processes are dead anyway.
            with suppress(FutureTimeout):
                loop_thread("workers").submit(self._shut).result(_CLOSE_S)

    async def _shut(self) -> None:
        for worker in [*self._all]:
            worker.lose(WorkerDied("the pool was closed"))

    async def _run(self, payload: bytes, then: Callable[[Any], _T]) -> _T:
        async with self._slots:
            return then(await self._try_call(payload))

    async def _try_call(self, payload: bytes) -> object:
        # An item's own failures and disturbances by others are counted apart.
        failed = disturbed = 0
        apart = False
        while True:
            if self._closed:
                raise _pool_closed()
            # Apart, only the item itself can be to blame.
            reply = await (self._asked_apart(payload) if apart else self._ask_shared(payload))
            if self._closed:
                raise _pool_closed()  # it was our own kill, which says nothing about the item
            if reply.lost is None:
                return reply.value
            if not reply.own:
                disturbed += 1
                # At the third time it may be what disturbs the others, without ever being seen.
                apart = disturbed == _DISTURBED
                continue
            failed += 1
            if failed == _TRIES:
                return reply.lost
            apart = apart or reply.harmful

    async def _ask_shared(self, payload: bytes) -> _Reply:
        """In a process with others."""
        for attempt in range(_STARTS):
            worker = self._least_busy()
            try:
                return await worker.ask(payload)
            except _NotStarted as error:
                # A set-up that raised would raise again; only a start that was killed is repeated.
                if attempt == _STARTS - 1 or not isinstance(error.cause, WorkerDied):
                    raise error.cause from None
        raise AssertionError("unreachable")

    async def _asked_apart(self, payload: bytes) -> _Reply:
        """In a process without others."""
        async with self._one_apart:
            if self._apart is None or not self._apart.fit:
                self._apart = self._start()
            try:
                return await self._apart.ask(payload)
            except _NotStarted as error:
                raise error.cause from None

    def _least_busy(self) -> _AsyncWorker:
        self._shared = [worker for worker in self._shared if worker.fit]
        # An idle process first: in a busy one, other items share the loop.
        idle = next((worker for worker in self._shared if not worker.load), None)
        if idle is not None:
            return idle
        if len(self._shared) < self.workers:
            self._shared.append(self._start())
            return self._shared[-1]
        return min(self._shared, key=lambda worker: worker.load)

    def _start(self) -> _AsyncWorker:
        if self._closed:
            raise _pool_closed()
        # the process has it until both ends are closed
        mark = tempfile.TemporaryFile()  # noqa: SIM115
        with mark:
            mark.truncate(8)
            worker = _AsyncWorker(
                self._boot,
                self._owner,
                self._memory_mib,
                mark.fileno(),
                self._wall_s,
                self._recycle_after,
                self._shared_fd,
            )
        self.started += 1
        self._all.add(worker)
        # Weakly: the loop has the worker, and a pool that is dropped without being closed must be
        # free to go.
        worker.begin(self._starters, self._start_s, weakref.WeakMethod(self._ended))
        return worker

    def _ended(self, worker: _AsyncWorker, before_its_time: bool) -> None:
        self._all.discard(worker)
        self.lost += before_its_time


class _NotStarted(Exception):
    """A process did not get ready.

    Args:
        cause: why.
    """

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Reply:
    """What has become of an item.

    Attributes:
        value: of the handler, if it was not lost.
        lost: why it was.
        own: whether that was its own doing, as far as we know.
        harmful: whether it took the process with it.
    """

    value: Any = None
    lost: Unscored | None = None
    own: bool = True
    harmful: bool = False


class _AsyncWorker(_Worker):
    """Our end of a process that awaits items.  Used in the loop alone, but
    for `strike` and `disown`."""

    def __init__(
        self,
        boot: bytes,
        owner: str,
        memory_mib: int | None,
        mark_fd: int,
        wall_s: float,
        recycle_after: int,
        shared_fd: int | None,
    ) -> None:
        self._mark = Mark(mark_fd)
        super().__init__(
            boot,
            owner,
            memory_mib,
            quiet=False,
            hash_seed=0,
            awaits=(mark_fd, wall_s),
            shared_fd=shared_fd,
        )
        self._wall_s, self._recycle_after = wall_s, recycle_after
        self._waiting: dict[int, asyncio.Future[_Reply]] = {}
        self._given_up: set[int] = set()
        self._frames: deque[memoryview] = deque()
        self._next = 0
        self._open = True
        self.load = 0  # items that are to be awaited here, also before it is ready

    def begin(
        self,
        threads: Threads,
        start_s: float,
        ended: weakref.WeakMethod[Callable[[_AsyncWorker, bool], None]],
    ) -> None:
        """Wait until it is ready, in a thread; `ended` is called once, with whether it died before
        its time."""
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._started = self._loop.create_task(self._get_ready(threads, start_s))

    async def _get_ready(self, threads: Threads, start_s: float) -> BaseException | None:
        # In a thread: waiting for a process to start must not stop the loop.
        with foreign_code() as errors:  # the set-up's; the callers that wait for it raise it
            await asyncio.wrap_future(threads.submit(self.wait_ready, start_s))
        for error in errors:
            self.fit = False
            self.lose(WorkerDied("it did not start"))
            return error
        # Only now: before it is ready, `wait_ready` reads the pipe itself.
        self._loop.add_reader(self._reply, self._read)
        self._silent_s, self._looked = 0.0, time.monotonic()
        self._loop.call_later(TICK_S, self._look)
        return None

    async def wait_started(self) -> None:
        """Raises what kept it from getting ready."""
        # Shielded: a caller that gives up must not cancel the start for all.
        error = await asyncio.shield(self._started)
        if error is not None:
            raise error

    async def ask(self, payload: bytes) -> _Reply:
        """What becomes of an item here.

        Raises:
            _NotStarted: the process did not get ready.
        """
        self.load += 1
        try:
            error = await asyncio.shield(self._started)
            if error is not None:
                raise _NotStarted(error)
            if not self._open:
                return _Reply(lost=WorkerDied("the worker process ended"), own=False)
            self._next += 1
            number = self._next
            # It takes no more after this one, and ends when its items have ended.
            self.fit = self.fit and number < self._recycle_after
            future: asyncio.Future[_Reply] = self._loop.create_future()
            self._waiting[number] = future
            # Silence counts from the first item on: an idle loop sends no ticks.
            self._silent_s = self._silent_s if len(self._waiting) > 1 else 0.0
            self._queue(number, payload)
            try:
                return await future
            except asyncio.CancelledError:
                if self._waiting.pop(number, None) is not None:
                    # Its reply may be under way; without this it would count as one that was not
                    # asked for.
                    self._given_up.add(number)
                    self._queue(number, None)
                raise
        finally:
            self.load -= 1
            self._end_if_spent()

    def _end_if_spent(self) -> None:
        if not (self.fit or self.load):
            # At its age an end is planned; earlier, something was wrong with it.
            self._end(before_its_time=self._next < self._recycle_after)

    def _queue(self, number: int, payload: bytes | None) -> None:
        self._frames.append(frame_payload(pickle.dumps((number, payload))))
        self._flush()

    def _flush(self) -> None:
        if not self._open:
            return
        try:
            while self._unsent or self._frames:
                if not self._unsent:
                    self._unsent = self._frames.popleft()
                self._push()
        except BlockingIOError:
            # The pipe is full: the loop calls again when there is room.
            self._loop.add_writer(self._request, self._flush)
        except WorkerDied as error:
            self.lose(error)
        else:
            self._loop.remove_writer(self._request)

    def _read(self) -> None:
        try:
            # As much as a pipe holds by default.
            chunk = os.read(self._reply, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        # Any byte is a sign of life, a tick too.
        self._silent_s = 0.0
        try:
            if not chunk:
                raise self._end_dead()
            self._buffer += chunk
            # An item's reply may end the process, and then the rest is of no use.
            while self._open and (frame := self._frame()) is not None:
                self._take(frame)
        except WorkerDied as error:
            self.lose(error)

    def _take(self, frame: bytes) -> None:
        """Give a reply to the caller that waits for it; another process may have written into the
        pipe."""
        try:
            kind, number, value = json.loads(frame)
        # RecursionError: a reply of brackets alone.
        except (ValueError, TypeError, RecursionError) as error:
            raise WorkerDied(f"a worker's reply cannot be read: {error}") from None
        if kind == "tick":
            return
        waited_for = isinstance(number, int) and (
            number in self._waiting or number in self._given_up
        )
        if (
            kind not in _KINDS
            or not waited_for
            or (kind in ("error", "last") and not _is_error(value))
        ):
            raise WorkerDied(
                f"a worker's reply is out of place: {kind!r:.40} to item {number!r:.20}"
            )
        self._given_up.discard(number)
        # It may have ignored being cancelled, or be out of memory: no more items.
        self.fit = self.fit and kind not in ("stuck", "last")
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            # Given up by its caller; the process was kept for it.
            self._end_if_spent()
            return
        if kind == "ok":
            future.set_result(_Reply(value))
        elif kind in ("late", "stuck"):
            future.set_result(_Reply(lost=_late()))
        else:
            future.set_result(_Reply(lost=WorkerError(*value), harmful=kind == "last"))

    def _look(self) -> None:
        """Whether its event loop has hung for longer than an item may take."""
        looked_at = time.monotonic()
        # The time in which this process was stopped, by Ctrl-Z for example, counts against no
        # limit.
        self._silent_s += min(looked_at - self._looked, 2 * TICK_S)
        self._looked = looked_at
        if not self._open:
            return
        if self._waiting and self._silent_s > self._wall_s + GRACE_S:
            self.lose(_late())
        else:
            self._loop.call_later(TICK_S, self._look)

    def lose(self, error: Unscored) -> None:
        """Kill it; all its items are lost, by the doing of the one whose step was running, if we
        know which."""
        if not self._open:
            return
        # In memory that both processes have, so it can be read after the worker's end too.
        guilty = self._mark.read()
        # Zero, or an item that has been answered: then any of them may be to blame.
        is_known = guilty in self._waiting
        waiting, self._waiting = self._waiting, {}
        self._end(before_its_time=True)
        for number, future in waiting.items():
            if not future.done():
                future.set_result(
                    _Reply(lost=error, own=not is_known or number == guilty, harmful=True)
                )

    def _end(self, *, before_its_time: bool) -> None:
        if self._open:
            self._open = self.fit = False
            # It may be killed before it was ready, when the loop does not read it yet.
            if self._reply >= 0:
                self._loop.remove_reader(self._reply)
                self._loop.remove_writer(self._request)
            self.kill()
            # A weak method: None once the pool is gone.
            if (ended := self._ended()) is not None:
                ended(self, before_its_time)


_KINDS: Final = frozenset(("ok", "error", "late", "stuck", "last"))


def _late() -> WorkerTimeout:
    return WorkerTimeout("it ran out of wall time")


def _strike(workers: set[_AsyncWorker]) -> None:
    """Kill processes; the loop sees them die and clears up."""
    for worker in [*workers]:
        # Without waiting: this runs at the interpreter's end too.
        worker.strike()


_pools: weakref.WeakSet[AsyncPool] = weakref.WeakSet()


@atexit.register
def _strike_all() -> None:
    for pool in list(_pools):
        _strike(pool._all)


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_forget_all)
