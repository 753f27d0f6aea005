"""The one killable-worker mechanism: warm processes that answer over pipes and can be killed at any moment.

    caller ──▶ WorkerPool.run(items) ──▶ idle Worker ══ requests: cloudpickle, from us ══▶ child: handler(item)
                                                     ◀══ replies: JSON, data only ═════════

No signals and no event loop are involved on the caller's side, so the main thread, 32 threads and asyncio see the
same thing.  Children are started with `subprocess` (vfork and exec): the calling process, a trainer perhaps with
100 GB, never forks.  Replies are JSON because the child has read a model's text: what it says is data.

What a killed item means is the caller's to say: the symbolic engine calls it the answer's fault, the scorer ours.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from rlvr.errors import Unscored, UsageError, WorkerDied, WorkerError, WorkerTimeout

__all__ = ["Handler", "WorkerPool"]

Handler: TypeAlias = Callable[[Any], Any]
"""Runs in the worker: one item in, a JSON-able value out."""

_HEADER = struct.Struct("<I")  # a frame is its length in bytes, then the bytes
_REPLY_MIB = 64
_STARTS = 3  # how often a worker may die before it has begun an item, until we give up


class WorkerPool:
    """Runs items in killable processes; safe from any thread, any number of callers at once.

    Processes start as callers need them, up to `workers` at work, plus `spares` that are already warm when a
    killed one must be replaced.  They end with the pool, with the interpreter, and if this process is SIGKILLed.

    Args:
        setup: called once in each worker; returns the handler.  Shipped with cloudpickle, so it may come from a
            script or a notebook.
        workers: how many items may run at once.
        spares: how many more processes are kept warm.
        memory_mib: limit on each worker's private memory (Linux: RLIMIT_DATA); beyond it the item gets a MemoryError.
        recycle_after: a worker is replaced after so many items, so that leaks in a library stay small.
        start_s: wall seconds within which a worker must be ready.
        quiet: send what workers print to /dev/null instead of our stderr.
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
    ) -> None:
        if workers < 1 or spares < 0:
            raise UsageError(f"workers={workers}, spares={spares}: at least one worker and no fewer than 0 spares")
        import cloudpickle  # here, so that `import rlvr` stays light

        self.workers, self.spares = workers, spares
        self._boot = cloudpickle.dumps(setup)
        self._memory_mib, self._recycle_after, self._start_s = memory_mib, recycle_after, start_s
        self._quiet = quiet
        self._closed = False
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        """Start with no process at all: at birth, and in a forked child, where the workers are the parent's."""
        for worker in getattr(self, "_all", ()):
            worker.disown()
        self._all: set[_Worker] = set()
        self._idle: deque[_Worker] = deque()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.workers)

    def warm(self) -> None:
        """Start every process now and return once one of them is ready.

        Raises:
            WorkerError: `setup` raised in the worker; its traceback is kept.
        """
        with self._lock:
            self._top_up(self.workers + self.spares)
        with self._checkout():
            pass

    def call(self, item: Any, *, wall_s: float, cpu_s: float | None = None) -> Any:
        """Run one item; the clocks start when its worker starts on it.

        Args:
            item: anything cloudpickle can ship.
            wall_s: wall seconds until the worker is killed.
            cpu_s: CPU seconds until it is killed, where the platform can tell; unlike wall time it does not
                depend on what else the machine is doing, so give it wherever a limit decides a verdict.

        Raises:
            WorkerTimeout, WorkerDied, WorkerError: see `rlvr.errors`.
        """
        [result] = self.run([item], wall_s=wall_s, cpu_s=cpu_s)
        if isinstance(result, Unscored):
            raise result
        return result

    def run(self, items: Sequence[Any], *, wall_s: float, cpu_s: float | None = None) -> list[Any]:
        """Run items one after another; a lost one costs itself alone.

        Returns:
            One entry per item: the handler's value, or the `Unscored` error that ended it.
        """
        results: list[Any] = []
        unbegun = 0
        while len(results) < len(items):
            with self._checkout() as worker:
                begun, done, lost = worker.run(items[len(results) :], wall_s, cpu_s, self._start_s)
            results += done
            if begun and lost is not None:
                results.append(lost)
            unbegun = 0 if begun else unbegun + 1
            if unbegun == _STARTS:  # killed from outside while idle is bad luck; three times is not
                raise lost or WorkerDied("a worker died three times before it began")
        return results

    def close(self) -> None:
        """Kill every process.  Idempotent; callers still waiting get `WorkerDied`."""
        with self._lock:
            self._closed = True
            idle, busy = list(self._idle), self._all.difference(self._idle)
            self._idle.clear()
            self._all.clear()
        for worker in busy:
            worker.strike()  # the thread that waits for it sees it die and clears up
        for worker in idle:
            worker.kill()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _checkout(self) -> Iterator[_Worker]:
        """Lend a ready worker; what comes back fit goes to the idle ones, anything else is killed and replaced."""
        with self._slots:
            worker = self._take()
            fit = False
            try:
                worker.wait_ready(self._start_s)
                yield worker
                fit = worker.fit and worker.items < self._recycle_after
            finally:
                self._give(worker, fit)

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise UsageError("this worker pool is closed; open a new one")
            busy = len(self._all) - len(self._idle)
            self._top_up(min(busy + 1, self.workers) + self.spares)
            ready = next((w for w in self._idle if w.is_ready()), self._idle[0])
            self._idle.remove(ready)
            return ready

    def _give(self, worker: _Worker, fit: bool) -> None:
        with self._lock:
            if fit and not self._closed:
                self._idle.append(worker)
                return
            wanted = len(self._all)
            self._all.discard(worker)
            if not self._closed and worker.ready:  # one that never got ready is not replaced: it would loop
                self._top_up(wanted)
        worker.kill()

    def _top_up(self, wanted: int) -> None:
        while len(self._all) < wanted:
            worker = _Worker(self._boot, self._memory_mib, self._quiet)
            self._all.add(worker)
            self._idle.append(worker)


class _Worker:
    """Our end of one process.  Used by one thread at a time."""

    def __init__(self, boot: bytes, memory_mib: int | None, quiet: bool) -> None:
        request_r, self._request = os.pipe()
        self._reply, reply_w = os.pipe()
        # The child dies with us: only we hold the write end, and its closing is a signal to the child (`_die_with`).
        lifeline_r, self._lifeline = os.pipe()
        fds = (request_r, reply_w, lifeline_r)
        code = f"import sys; sys.path[:] = {sys.path!r}; from rlvr.workers import _serve; _serve(*{fds}, {memory_mib})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else _stderr_fd(),  # our own stdout may be a data stream
                stderr=subprocess.DEVNULL if quiet else _stderr_fd(),
                pass_fds=fds,
                start_new_session=True,  # its own group: Ctrl-C is ours to handle, and killing it takes its children
                env=os.environ | _environment(),
            )
        finally:
            for fd in fds:
                os.close(fd)
        os.set_blocking(self._reply, False)
        os.set_blocking(self._request, False)
        self._buffer = bytearray()
        self._boot: bytes | None = boot
        self.ready = False
        self.fit = True
        self.items = 0
        self._poll = select.poll()
        self._poll.register(self._reply, select.POLLIN)

    def is_ready(self) -> bool:
        """True if it need not be waited for."""
        return self.ready or bool(self._poll.poll(0))

    def wait_ready(self, start_s: float) -> None:
        if self.ready:
            return
        until = time.monotonic() + start_s
        try:
            if self._boot is not None:
                boot, self._boot = self._boot, None
                self._send(boot, until)
            kind, _, _, value = self._receive(until)
        except _Late:
            raise WorkerDied(f"a worker was not ready within {start_s:g} s") from None
        if kind != "ready":
            raise WorkerError(*value)
        self.ready = True

    def run(
        self, items: Sequence[Any], wall_s: float, cpu_s: float | None, start_s: float
    ) -> tuple[bool, list[Any], Unscored | None]:
        """Returns (it began, what the items before the loss came to, what the next one was lost to)."""
        import cloudpickle

        request = cloudpickle.dumps(items)  # an item that cannot be shipped is the caller's error: it raises
        done: list[Any] = []
        begun = False
        self.fit = False  # until the last reply is in, so that an interrupt leaves nothing half-read behind
        try:
            until = time.monotonic() + start_s
            self._send(request, until)
            _, wall, cpu, _ = self._receive(until)
            begun = True
            while len(done) < len(items):
                kind, wall, cpu, value = self._receive(wall + wall_s, None if cpu_s is None else cpu + cpu_s)
                self.items += 1
                done.append(value if kind == "ok" else WorkerError(*value))
                if kind == "last":  # it ran out of memory and will not go on
                    return begun, done, None
        except _Late as late:
            return begun, done, WorkerTimeout(str(late) if begun else f"a worker did not begin within {start_s:g} s")
        except WorkerDied as died:
            return begun, done, died
        self.fit = True
        return begun, done, None

    def strike(self) -> None:
        """SIGKILL it and whatever it started.  Any thread may call this."""
        if self._process.returncode is None:
            # The group outlives its leader, and the leader's pid is ours until we have waited for it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def kill(self) -> None:
        """Strike, wait, and close the pipes.  Only for the thread that uses it."""
        self.strike()
        self._process.wait()
        self._close_fds()

    def disown(self) -> None:
        """In a forked child: let go of the parent's worker without harming it."""
        self._process.returncode = 0
        self._close_fds()

    def _close_fds(self) -> None:
        fds, self._request, self._reply, self._lifeline = (self._request, self._reply, self._lifeline), -1, -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def _send(self, payload: bytes, until: float) -> None:
        data = memoryview(_HEADER.pack(len(payload)) + payload)
        poll = select.poll()
        poll.register(self._request, select.POLLOUT)
        while data:
            try:
                data = data[os.write(self._request, data) :]
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0:
                    raise _Late("it did not take its items") from None
                poll.poll(left * 1000)
            except OSError:
                raise self._died() from None

    def _receive(self, wall_until: float, cpu_until: float | None = None) -> tuple[str, float, float, Any]:
        """The next reply: kind, and the child's own monotonic and CPU clock, from which the next item is timed."""
        while True:
            frame = self._frame()
            if frame is not None:
                kind, wall, cpu, value = json.loads(frame)
                return kind, wall, cpu, value
            left = wall_until - time.monotonic()
            cpu_left = left if cpu_until is None else cpu_until - self._cpu_s()
            # A reply that is already in the pipe counts, however late we come to look.
            if not self._poll.poll(max(0.0, min(left, cpu_left)) * 1000):
                if left <= 0:
                    raise _Late("it ran out of wall time")
                if cpu_left <= 0:
                    raise _Late("it ran out of CPU time")
                continue
            try:
                chunk = os.read(self._reply, 1 << 16)
            except OSError:
                raise self._died() from None
            if not chunk:
                raise self._died()
            self._buffer += chunk

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        if size > _REPLY_MIB << 20:
            raise WorkerDied(f"a worker's reply has {size} bytes; the limit is {_REPLY_MIB} MiB")
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return frame

    def _cpu_s(self) -> float:
        """CPU seconds of the whole process; -inf where the platform cannot tell, so that only wall time counts."""
        try:
            # The kernel's clock id of another process: its inverted pid above three bits, the lowest two of which
            # ask for scheduled time (clock_getcpuclockid(3); Python wraps it for threads only).
            return time.clock_gettime((~self._process.pid << 3) | 2)
        except OSError:
            return float("-inf")

    def _died(self) -> WorkerDied:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may close its pipe and live on
            self._process.wait(0.2) if self._process.returncode is None else None
        code = self._process.returncode
        if code is None:
            return WorkerDied("the worker closed its pipe")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return WorkerDied(f"the worker process ended: {how}")


class _Late(Exception):
    """A deadline passed."""


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_forget_all)


def _environment() -> dict[str, str]:
    """One thread per worker, since the pool is the parallelism; a fixed hash seed, since verdicts must repeat."""
    threads = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"} | threads


def _stderr_fd() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # a notebook's, or none at all
        return subprocess.DEVNULL


# ---------------------------------------------------------------------------------------- in the worker process


def _serve(request: int, reply: int, lifeline: int, memory_mib: int | None) -> NoReturn:
    """The child's main loop; ends when the request pipe does."""
    for fd in (request, reply, lifeline):
        os.set_inheritable(fd, False)  # not for programs that a verifier may start
    _die_with(lifeline)
    handler: Handler | None = None
    while (frame := _read_frame(request)) is not None:
        if handler is None:
            try:
                if memory_mib is not None:
                    _limit_memory(memory_mib)
                handler = pickle.loads(frame)()  # noqa: S301  from our parent, over a pipe nobody else has
            except BaseException as error:  # noqa: BLE001  it is reported
                _reply(reply, "failed", _described(error))
                break
            _reply(reply, "ready", None)
        else:
            _answer(handler, frame, reply)
    os._exit(0)


def _answer(handler: Handler, frame: bytes, reply: int) -> None:
    items: Sequence[Any] = pickle.loads(frame)  # noqa: S301  see above
    _reply(reply, "begin", None)
    for item in items:
        try:
            # NaN is no JSON, and a value that is no JSON is the handler's error, not a crash of the loop.
            kind, value = "ok", handler(item)
            text = json.dumps(value, allow_nan=False)
        except MemoryError as error:
            _reply(reply, "last", _described(error))  # nothing in this process can be trusted now
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  even SystemExit is the item's
            kind, text = "error", json.dumps(_described(error))
        _send_text(reply, kind, text)


def _described(error: BaseException) -> tuple[str, str, str]:
    return type(error).__name__, str(error), "".join(traceback.format_exception(error))


def _reply(fd: int, kind: str, value: Any) -> None:
    _send_text(fd, kind, json.dumps(value))


def _send_text(fd: int, kind: str, text: str) -> None:
    payload = f'["{kind}",{time.monotonic()},{time.process_time()},{text}]'.encode("ascii")
    data = memoryview(_HEADER.pack(len(payload)) + payload)
    while data:
        data = data[os.write(fd, data) :]


def _read_frame(fd: int) -> bytes | None:
    header = _read_exactly(fd, _HEADER.size)
    return None if header is None else _read_exactly(fd, _HEADER.unpack(header)[0])


def _read_exactly(fd: int, size: int) -> bytes | None:
    parts, left = [], size
    while left:
        part = os.read(fd, min(left, 1 << 20))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _limit_memory(memory_mib: int) -> None:
    import resource

    # RLIMIT_DATA counts what is really written to; RLIMIT_AS would count the address space that numpy and
    # thread stacks only reserve.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mib << 20, memory_mib << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with(lifeline: int) -> None:
    """End this process when the other end of the pipe closes, that is when our parent dies, however it dies.

    On Linux the kernel sends SIGIO, whose default action ends us even inside a C loop that holds the GIL.
    PR_SET_PDEATHSIG is no help: it fires when the *thread* that started us ends.  Elsewhere a thread waits.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # it closed before we had armed the signal
            os._exit(0)
        return
    threading.Thread(target=lambda: os._exit(os.read(lifeline, 1) != b""), daemon=True).start()
