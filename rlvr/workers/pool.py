"""The worker pool: processes that are kept ready, answer over pipes and can
be killed at any moment.

    caller ─▶ WorkerPool.run(items) ─▶ idle Worker ══ requests: cloudpickle, from us ══▶ child:
                                                   ◀══ replies: JSON, data only ═══ handler(item)

The caller's side uses no signals and no event loop, so it works the same in the main thread, in 32
threads and under asyncio.  Children are started with `subprocess` (vfork and exec): the calling
process, a trainer perhaps with 100 GB, never forks.  Replies are JSON because the child has read a
model's text: its reply must be data, not a pickle.

The caller decides what a killed item means: to the symbolic engine it is the answer's fault, to the
scorer it is ours.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from rlvr.errors import Unscored, UsageError, WorkerDied, WorkerError, WorkerTimeout
from rlvr.validate import (
    require_optional_whole,
    require_processes,
    require_seconds,
)
from rlvr.workers import clock
from rlvr.workers.closing import Closing
from rlvr.workers.framing import FrameTooLong, frame_payload, take_frame
from rlvr.workers.program import StartedProgram

__all__ = ["GivenUp", "Handler", "REPLY_MIB", "WorkerPool", "name_of", "ship", "usable_cores"]

Handler: TypeAlias = Callable[[Any], Any]
"""Runs in the worker: one item in, a JSON-able value out."""

REPLY_MIB = 64
"""The largest reply of a worker; a longer one is the loss of its item."""


def _text_entries(path: list[str]) -> list[str]:
    return [entry for entry in path if isinstance(entry, str)]  # as the import system does


# Before a user's file adds its folder, in which a `json.py` may stand.
_OWN_PATH: Final = _text_entries(sys.path)
_PIPE_BYTES = 1 << 18  # a user's pipes together may have 64 MiB: of 64 workers a quarter
_STARTS = 3  # how often workers may die before they begin an item, until the item counts as lost
_ASK_S = 0.1  # between two looks whether the caller has given up
# of a wait: a look that comes far later says that this process was stopped meanwhile
_SLICE_S = 1.0


class WorkerPool(Closing):
    """Runs items in killable processes; safe from any thread, any number of callers at once.

    Processes are started when callers need them.  They end with the pool, with the interpreter, and
    also when this process is killed with SIGKILL.

    Args:
        setup: called once in each worker; returns the handler.  Shipped with cloudpickle, so it may
            come from a script or a notebook.
        workers: how many items may run at once.
        spares: how many more processes are kept ready, once one was lost, to replace the next at
            once.
        memory_mib: limit on each worker's private memory (Linux: RLIMIT_DATA); beyond it the item
            gets a MemoryError. What a worker starts itself has a limit of its own, of the same
            size.
        recycle_after: a worker is replaced after so many items, so that leaks in a library stay
            small.
        start_s: wall seconds within which a worker must be ready.
        quiet: send what workers print to /dev/null instead of our stderr.
        hash_seed: PYTHONHASHSEED of the workers, on which the order of sets of texts depends.
        shared_fd: a descriptor that workers inherit under the same number; None for none.

    Raises:
        UsageError: a number that cannot work, or a `setup` that cannot be shipped.
    """

    def __init__(
        self,
        setup: Callable[[], Handler],
        *,
        workers: int = 1,
        spares: int = 1,
        memory_mib: int | None = None,
        recycle_after: int = 20_000,
        start_s: float = 60.0,
        quiet: bool = False,
        hash_seed: int = 0,
        shared_fd: int | None = None,
    ) -> None:
        self.workers, self.spares = (
            require_processes("workers", workers, 1),
            require_processes("spares", spares, 0),
        )
        self._memory_mib = require_optional_whole("memory_mib", memory_mib, 1, none="no limit")
        # Pickled once: every worker gets the same bytes.
        self._boot, self._owner = ship(setup), name_of(setup)
        self._recycle_after, self._start_s = recycle_after, start_s
        self._quiet, self._hash_seed, self._closed = quiet, hash_seed, False
        self._shared_fd = shared_fd
        # processes so far; how many of them died or were killed before their time
        self.started = self.lost = 0
        self._all: set[_Worker] = set()
        self._forget()
        _pools.add(self)
        # The set and not the pool: the finalizer must not keep the pool alive.
        weakref.finalize(
            self, _bury, self._all
        ).atexit = False  # for a pool that is dropped without being closed

    def _forget(self) -> None:
        """Start with no process: in a new pool, and in a forked child, where the workers are the
        parent's."""
        for worker in self._all:
            worker.disown()
        self._all.clear()
        self._idle: deque[_Worker] = deque()
        # A lock that another thread held at the fork would be held for ever.
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.workers)

    def warm(self) -> None:
        """Start every worker now and return once one of them is ready.

        Raises:
            WorkerError: `setup` raised in the worker; its traceback is kept.
        """
        with self._lock:
            self._top_up(self.workers)
        # Taken and given back: that waits for it to be ready.
        with self._checkout():
            pass

    def call(self, item: object, *, wall_s: float, cpu_s: float | None = None) -> Any:
        """Run one item; its time is counted from when the worker begins it.

        Args:
            item: anything that cloudpickle can send.
            wall_s: wall seconds until the worker is killed.
            cpu_s: CPU seconds until it is killed, where the platform can tell (Linux); None for no
                limit.  CPU time does not depend on what else the machine does, so give it wherever
                a limit decides a verdict.

        Raises:
            WorkerTimeout, WorkerDied, WorkerError: see `rlvr.errors`.
            UsageError: a limit that is not above 0, an item that cannot be sent, or the pool is
                closed.
        """
        [result] = self.run([item], wall_s=wall_s, cpu_s=cpu_s)
        if isinstance(result, Unscored):
            raise result
        return result

    def run(
        self,
        items: Sequence[Any],
        *,
        wall_s: float,
        cpu_s: float | None = None,
        on_result: Callable[[int, Any], None] | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Run items one after another; if one is lost, the others still run.

        Args:
            items: anything that cloudpickle can send.
            wall_s, cpu_s: limits of each item; see `call`.
            on_result: called in this thread with the place of an item and its result, as soon as
                that is there.
            give_up: called in this thread about ten times a second while an item takes long; once
                it returns True the worker is killed.

        Returns:
            One entry per item: the handler's value, or the `Unscored` error that ended it.

        Raises:
            UsageError: see `call`.
            GivenUp: `give_up` returned True.
        """
        require_seconds("wall_s", wall_s)
        require_seconds("cpu_s", cpu_s, or_none=True)
        results: list[object] = []

        def note(result: object) -> None:
            results.append(result)
            if on_result is not None:
                on_result(len(results) - 1, result)

        unbegun = 0
        while len(results) < len(items):
            # After a bad start the next item goes alone: it may be the one that cannot be unpacked.
            remaining = items[len(results) : len(results) + 1 if unbegun else None]
            # before a worker is taken, which would be lost if this raises
            request = frame_payload(ship(remaining))
            with self._checkout() as worker:
                begun, lost = worker.run(
                    request, len(remaining), wall_s, cpu_s, self._start_s, note, give_up
                )
            if lost is not None and self._closed:
                raise _pool_closed()  # it was our own kill, which says nothing about the item
            unbegun = 0 if begun else unbegun + 1
            # three times in a row: the item is to blame
            if lost is not None and (begun or unbegun == _STARTS):
                note(lost)
                unbegun = 0
        return results

    def close(self) -> None:
        """Kill every process.  Idempotent; callers still waiting get a `UsageError`."""
        with self._lock:
            self._closed = True
            # Told apart under the lock: a worker is idle or another thread's.
            idle, busy = list(self._idle), self._all.difference(self._idle)
            self._idle.clear()
            self._all.clear()
        # A busy one is struck and not waited for: its pipes belong to the thread that waits for
        # its reply, and a descriptor that is closed here could be another file's there.
        for worker in busy:
            worker.strike()  # the thread that waits for it sees it die and clears up
        for worker in idle:
            worker.kill()

    @contextlib.contextmanager
    def _checkout(self) -> Iterator[_Worker]:
        """A ready worker.  Afterwards it is idle again if it is fit for more items; else it is
        killed and replaced."""
        # The slot first, and the lock within it only for moments: a caller that waits for a worker
        # holds no lock, so that another can give one back.
        with self._slots:
            worker = self._take_ready()
            fit = False
            try:
                yield worker
                fit = worker.fit and worker.items < self._recycle_after
            finally:
                self._give(worker, fit)

    def _take_ready(self) -> _Worker:
        """A worker that is ready.  One may die while it starts, killed from outside; three in a row
        are an error."""
        for attempt in range(_STARTS):
            worker = self._take()
            try:
                worker.wait_ready(self._start_s)
                return worker
            except BaseException as error:
                # Given back as unfit, so that another is started.
                self._give(worker, False)
                if not isinstance(error, WorkerDied) or attempt == _STARTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _take(self) -> _Worker:
        with self._lock:
            # One that was killed from outside while it was idle costs no item, but only a look at
            # its pipe.
            for worker in [w for w in self._idle if w.is_gone()]:
                self._idle.remove(worker)
                self._all.remove(worker)
                self.lost += 1
                worker.kill()
            busy = len(self._all) - len(self._idle)
            # A spare costs a start and its memory; where workers do not die, none is needed.
            # One more than are busy, so that this caller has one.
            self._top_up(min(busy + 1, self.workers) + (self.spares if self.lost else 0))
            # If none is ready, the one that was started first is waited for.
            ready = next((w for w in self._idle if w.is_ready()), self._idle[0])
            self._idle.remove(ready)
            return ready

    def _give(self, worker: _Worker, fit: bool) -> None:
        with self._lock:
            if fit and not self._closed:
                # the next caller gets this one, whose caches are warm
                self._idle.appendleft(worker)
                return
            target = len(self._all)
            self._all.discard(worker)
            if not (worker.fit and worker.ready):  # else it was only due to be replaced
                self.lost += 1
                target = min(target, self.workers) + self.spares
        # Outside of the lock: waiting for a process takes milliseconds.
        worker.kill()
        with self._lock:
            # one that never got ready is not replaced: it would loop
            if not self._closed and worker.ready:
                self._top_up(target)

    def _top_up(self, wanted: int) -> None:
        if self._closed:
            raise _pool_closed()
        while len(self._all) < wanted:
            worker = _Worker(
                self._boot,
                self._owner,
                self._memory_mib,
                self._quiet,
                self._hash_seed,
                shared_fd=self._shared_fd,
            )
            self.started += 1
            self._all.add(worker)
            self._idle.append(worker)


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        # Of this process: a container or taskset may allow fewer than there are.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS cannot tell


class _Worker:
    """Our end of one process.  Used by one thread at a time."""

    def __init__(
        self,
        boot: bytes,
        owner: str,
        memory_mib: int | None,
        quiet: bool,
        hash_seed: int,
        awaits: tuple[int, float] | None = None,
        shared_fd: int | None = None,
    ) -> None:
        request_r, self._request = os.pipe()
        self._reply, reply_w = os.pipe()
        fds = (request_r, reply_w)
        passed = [*fds, *(() if awaits is None else awaits[:1])]
        passed += [] if shared_fd is None else [shared_fd]
        # The worker finds modules where we do, also those of a notebook.
        code = (
            f"import sys; sys.path[:] = {_OWN_PATH!r}; from rlvr.workers.process import serve; "
            f"sys.path[:] = {_text_entries(sys.path)!r}; serve(*{fds}, {memory_mib}, {awaits})"
        )
        try:
            self._process = StartedProgram(
                [sys.executable, "-c", code],
                name="worker",
                owner=owner,
                kind="process",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL
                if quiet
                else _stderr_fd(),  # our own stdout may be a data stream
                stderr=subprocess.DEVNULL if quiet else _stderr_fd(),
                pass_fds=passed,
                # its own group: Ctrl-C is ours to handle, and killing it takes its children
                group="session",
                env=os.environ | _environment(hash_seed),
            )
        except BaseException:
            self._close_fds()
            raise
        finally:
            # The child has them; ours would hide its end.
            os.close(request_r)
            os.close(reply_w)
        self._memory_mib = memory_mib
        # A worker may be full of requests while its reply does not fit into the pipe: neither end
        # may wait for the other.
        os.set_blocking(self._reply, False)
        os.set_blocking(self._request, False)
        # Linux: items of megabytes then pass in a few steps, not in hundreds
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # the user has used up what pipes may hold
                fcntl.fcntl(self._request, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._buffer = bytearray()
        self._awake = 0.0  # when we looked last
        self._stops: list[
            tuple[float, float]
        ] = []  # when this process was stopped: when that was noticed, how long
        self._number = 0  # of the request that was sent last: the set-up has 0
        self._unsent = frame_payload(boot)
        # a spare gets ready by itself; see `wait_ready`
        with contextlib.suppress(BlockingIOError, WorkerDied):
            self._push()
        self.ready = False
        self.fit = True
        self.items = 0
        self._poll = select.poll()
        self._poll.register(self._reply, select.POLLIN)

    def is_ready(self) -> bool:
        """True if it can begin an item now, or is about to say why it cannot."""
        return self.ready or bool(self._poll.poll(0))

    def is_gone(self) -> bool:
        """True if it was ready and has died since."""
        # POLLHUP: all ends of its side are closed.
        return self.ready and any(event & select.POLLHUP for _, event in self._poll.poll(0))

    def wait_ready(self, start_s: float) -> None:
        if self.ready:
            return
        since = self._begin()
        try:
            self._send(since, start_s)
            kind, _, _, value = self._receive(since, start_s, ("ready", "failed"), 0)
        except _Late:
            raise WorkerDied(f"a worker was not ready within {start_s:g} s") from None
        if kind != "ready":
            what, message, where = value
            if what == "MemoryError":
                message = (
                    f"{self._memory_mib} MiB are not enough to start a worker; raise memory_mib"
                )
            raise WorkerError(what, message, where)
        self.ready = True

    def run(
        self,
        request: memoryview,
        count: int,
        wall_s: float,
        cpu_s: float | None,
        start_s: float,
        note: Callable[[Any], None],
        give_up: Callable[[], bool] | None,
    ) -> tuple[bool, Unscored | None]:
        """Notes the results before a loss; returns (whether it began, the error that the next item
        was lost to)."""
        self._unsent = request
        self._number += 1
        done = 0
        begun = False
        # until the last reply is in, so that an interrupt leaves nothing half-read behind
        self.fit = False
        try:
            # The time for a worker to begin is not the item's.
            since = self._begin()
            self._send(since, start_s)
            kind, wall, cpu, value = self._receive(
                since, start_s, ("begin", "unread"), 0, give_up=give_up
            )
            if kind == "unread":
                return begun, WorkerError(*value)
            begun = True
            while done < count:
                # The worker's CPU clock at the end of the item before is where this one begins.
                cpu_until = None if cpu_s is None else cpu + cpu_s
                kinds = ("ok", "error", "last")
                kind, wall, cpu, value = self._receive(
                    wall, wall_s, kinds, done, cpu_until, give_up
                )
                self.items += 1
                done += 1
                note(value if kind == "ok" else WorkerError(*value))
                if kind == "last":  # it ran out of memory and will not go on
                    return begun, None
        except _Late as late:
            return begun, WorkerTimeout(
                str(late) if begun else f"a worker did not begin within {start_s:g} s"
            )
        except WorkerDied as died:
            return begun, died
        self.fit = True
        return begun, None

    def strike(self) -> None:
        """SIGKILL it and all processes that it started.  Any thread may call this."""
        self._process.kill()

    def kill(self) -> None:
        """Kill it, wait for its end, and close the pipes.  Only for the thread that uses it."""
        # The group is killed first, while its number is still ours.
        self.strike()
        self._process.wait()
        self._close_fds()

    def disown(self) -> None:
        """In a forked child: close our copies of the pipes; the worker is the parent's and goes
        on."""
        self._close_fds()

    def _close_fds(self) -> None:
        fds, self._request, self._reply = (self._request, self._reply), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def _left(self, since: float, seconds: float) -> float:
        """What is left of so many seconds, without those in which this process was stopped, by
        Ctrl-Z for example.

        What was stopped with it has not run either: that time counts against no limit.
        """
        before, self._awake = self._awake, time.monotonic()
        # More than two slices between two looks: this process was stopped.
        if self._awake - before > 2 * _SLICE_S:
            self._stops.append((self._awake, self._awake - before))
        return (
            since
            + seconds
            + sum(length for noticed, length in self._stops if noticed > since)
            - self._awake
        )

    def _begin(self) -> float:
        """A moment from which time is counted."""
        self._stops.clear()
        self._awake = time.monotonic()
        return self._awake

    def _send(self, since: float, seconds: float) -> None:
        """Write what is unsent, waiting for room in the pipe for so many seconds."""
        while self._unsent:
            try:
                self._push()
            except BlockingIOError:
                left = self._left(since, seconds)
                # Its request does not fit, as it reads nothing.
                if left <= 0:
                    raise _Late("it did not take its items") from None
                poll = select.poll()
                poll.register(self._request, select.POLLOUT)
                poll.poll(min(left, _SLICE_S) * 1000)

    def _push(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._request, self._unsent) :]
        except BlockingIOError:
            raise
        # EPIPE: it has closed its end.
        except OSError:
            raise self._end_dead() from None

    def _receive(
        self,
        since: float,
        wall_s: float,
        kinds: tuple[str, ...],
        item: int,
        cpu_until: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> tuple[str, float, float, Any]:
        """The next reply, within so many seconds since a moment.

        Returns kind, and the child's own monotonic and CPU clock, from which the next item is
        timed.

        Raises:
            WorkerDied: it has ended, or its reply is none of these kinds, or not to this request
                and item.
            GivenUp: `give_up` said so.
        """
        while True:
            frame = self._frame()
            if frame is not None:
                return self._check_frame(frame, kinds, item)
            self._await_reply(since, wall_s, cpu_until, give_up)
            try:
                chunk = os.read(self._reply, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                raise self._end_dead() from None
            if not chunk:
                raise self._end_dead()
            self._buffer += chunk

    def _await_reply(
        self,
        since: float,
        wall_s: float,
        cpu_until: float | None,
        give_up: Callable[[], bool] | None,
    ) -> None:
        """Wait until there is something to read, for a slice of time at most; see `_receive`.

        A reply that is already in the pipe counts, however late we look.
        """
        left = self._left(since, wall_s)
        # Read from outside, so a worker that is busy in C is limited too.
        cpu_left = left if cpu_until is None else cpu_until - clock.cpu_s(self._process.pid)
        # A caller that may give up is asked ten times a second.
        longest = _SLICE_S if give_up is None else _ASK_S
        if not self._poll.poll(max(0.0, min(left, cpu_left, longest)) * 1000):
            if give_up is not None and give_up():
                raise GivenUp
            if left <= 0:
                raise _Late("it ran out of wall time")
            if cpu_left <= 0:
                raise _Late("it ran out of CPU time")

    def _check_frame(
        self, frame: bytes, kinds: tuple[str, ...], item: int
    ) -> tuple[str, float, float, object]:
        """What the reply says, if it is the one that is due; another process may have written into
        the pipe."""
        try:
            kind, number, place, wall, cpu, value = json.loads(frame.decode())
        except (ValueError, TypeError, RecursionError) as error:
            raise WorkerDied(f"a worker's reply cannot be read: {error}") from None
        # Another process may have the pipe, of a program that the item started.
        if (number, place) != (self._number, item) or kind not in kinds:
            raise WorkerDied(
                f"a worker's reply is out of place: {kind!r:.40} to request {number!r:.20}, item "
                f"{place!r:.20}, where "
                f"{' or '.join(kinds)} to request {self._number}, item {item} was due"
            )
        clocks = (
            isinstance(wall, float)
            and isinstance(cpu, float)
            # Clocks of one machine: a time in the future is no clock.
            and wall <= time.monotonic()
            and cpu >= 0
        )
        if not clocks or (kind in _WITH_ERROR and not _is_error(value)):
            raise WorkerDied(
                f"a worker's reply {kind!r} to item {item} has not the shape that it must have"
            )
        return kind, wall, cpu, value

    def _frame(self) -> bytes | None:
        try:
            return take_frame(self._buffer, REPLY_MIB << 20)
        except FrameTooLong as error:
            raise WorkerDied(
                f"a worker's reply has {error.length} bytes; the limit is {REPLY_MIB} MiB"
            ) from None

    def _end_dead(self) -> WorkerDied:
        """The error for a worker that has closed its end of a pipe: it is ending by itself, or gets
        SIGKILL here."""
        # before we wait for it: afterwards, its group and all it has started is out of our reach
        self.strike()
        code = self._process.wait()
        signals = {s.value: s.name for s in signal.Signals}
        how = (
            f"killed by {signals.get(-code, f'signal {-code}')}"
            if code < 0
            else f"exit code {code}"
        )
        return WorkerDied(f"the worker process ended: {how}")


_WITH_ERROR = frozenset(("failed", "unread", "error", "last"))


def _is_error(value: object) -> bool:
    """The name, message and traceback of an exception."""
    return (
        isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)
    )


class GivenUp(Exception):
    """The caller of `WorkerPool.run` has given its items up."""


class _Late(Exception):
    """A deadline passed."""


def _pool_closed() -> UsageError:
    return UsageError("this worker pool is closed; open a new one")


def ship(value: object) -> bytes:
    """A value as it is sent to a worker.

    Args:
        value: anything that cloudpickle can send.

    Raises:
        UsageError: it cannot be sent.
    """
    import cloudpickle  # here, so that `import rlvr` stays light

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # a __reduce__ in the caller's code may raise anything
        # Of a setup the last argument is the caller's.
        shown = value.args[-1] if isinstance(value, partial) and value.args else value
        raise UsageError(
            f"{repr(shown)[:200]} cannot be sent to a worker process: {type(error).__name__}: "
            f"{str(error)[:200]}; keep "
            "locks, open files, generators and connections out of it"
        ) from error


def name_of(setup: Callable[..., object]) -> str:
    """What a pool's workers are listed under.

    Args:
        setup: of the pool.
    """
    function = getattr(setup, "func", setup)  # of a partial
    return str(getattr(function, "__module__", "")).removeprefix("rlvr.") or "a pool"


def _bury(workers: set[_Worker]) -> None:
    for worker in workers:
        worker.kill()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_forget_all)


def _environment(hash_seed: int) -> dict[str, str]:
    """One thread per worker, since the pool is the parallelism; a fixed hash seed, since verdicts
    must repeat; and files are read as here, also after `python -X utf8`."""
    # A library that starts a thread per core in each of as many workers as cores would be slower
    # than with one.
    threads = {
        name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }
    encoding = {"PYTHONUTF8": "1"} if sys.flags.utf8_mode else {}
    return {
        "PYTHONHASHSEED": str(hash_seed),
        "TOKENIZERS_PARALLELISM": "false",
        **threads,
        **encoding,
    }


def _stderr_fd() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # a notebook's, or none at all
        return subprocess.DEVNULL
