"""Runs scoring and the environment's calls in threads while the sampler works, and measures what of it that hides."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from rlvr.errors import RlvrError, UsageError

__all__ = ["BackgroundCalls", "CallTimeout", "Timings"]

_T = TypeVar("_T")

_LOST: Final = 1000  # calls over their limit that may still run; each holds a thread


class CallTimeout(RlvrError):
    """A call took longer than its limit.

    Args:
        limit_s: the limit.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"a call of the environment took more than {limit_s:g} s")
        self.limit_s = limit_s


@dataclass(slots=True)
class Timings:
    """Where wall time went, in seconds.

    Attributes:
        generation_s: while the sampler was generating.
        scoring_s: spent on scores, or on an environment's steps, summed over the threads.
        scoring_wait_s: spent waiting for these while the sampler did nothing.
    """

    generation_s: float = 0.0
    scoring_s: float = 0.0
    scoring_wait_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Call:
    """A call; `started` is the time at which its thread began it, `lost` is True once it is over its limit."""

    function: Callable[[], Any]
    limit_s: float | None
    future: Future[Any] = field(default_factory=Future)
    started: float | None = None
    lost: bool = False


class BackgroundCalls:
    """Runs calls in threads, in the order in which they are submitted, and measures their time.

    A thread cannot be ended from outside.  So a call that passes its limit gives its place to another thread, and its
    result is not waited for; the thread ends with the call.

    Args:
        count: most threads, apart from those of calls over their limit.
    """

    def __init__(self, count: int) -> None:
        self._free, self._closed = count, False
        self._queue: deque[_Call] = deque()
        self._limited: set[_Call] = set()  # running ones with a limit
        self._lost = 0
        self._lock = threading.Lock()
        self._timings = Timings()

    def submit(
        self, function: Callable[..., _T], *args: Any, limit_s: float | None = None
    ) -> Future[_T]:
        """Call a function as soon as a thread is free.

        Args:
            function: what is called.
            args: its arguments.
            limit_s: most wall seconds from its start; None for no limit.  Over it, the future gets `CallTimeout` when
                `expire` or `wait` is called next.

        Raises:
            UsageError: `close` was called.
        """
        call = _Call(partial(function, *args), limit_s)
        with self._lock:
            if self._closed:
                raise UsageError("this collector is closed; open a new one")
            self._queue.append(call)
            self._begin_next()
        return call.future

    def expire(self) -> float | None:
        """Give up running calls that are over their limit; returns the seconds to the next limit, None for none.

        Raises:
            RlvrError: a thousand calls were given up and are still running.
        """
        now, overdue, next_s = time.monotonic(), list[_Call](), None
        with self._lock:
            for call in list(self._limited):
                assert call.started is not None
                assert call.limit_s is not None
                left_s = call.started + call.limit_s - now
                if left_s > 0:
                    next_s = left_s if next_s is None else min(next_s, left_s)
                    continue
                self._limited.remove(call)
                call.lost = True
                self._lost += 1
                overdue.append(call)
                self._free += 1
            self._begin_next()
            lost = self._lost
        for call in overdue:
            call.future.set_exception(CallTimeout(call.limit_s or 0.0))
        if lost >= _LOST:
            raise RlvrError(
                f"{lost} calls of the environment are still running after their time limit, and threads cannot be "
                "ended; bound the time of reset and step in the environment itself"
            )
        return next_s

    def wait(self, future: Future[_T]) -> None:
        """Wait until a call is done or given up.

        Args:
            future: of the call.
        """
        with self.waiting():
            while not future.done():
                next_s = self.expire()
                wait([future], timeout=1.0 if next_s is None else min(1.0, next_s))

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Count the time inside as the sampler's."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._timings.generation_s += time.monotonic() - start

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for results."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._timings.scoring_wait_s += time.monotonic() - start

    def take_timings(self) -> Timings:
        """The timings since the last call of this method; they start again at 0."""
        with self._lock:
            spent, self._timings = self._timings, Timings()
        return spent

    def close(self) -> None:
        """Start no further calls; those that wait are cancelled."""
        with self._lock:
            self._closed, waiting, self._queue = True, self._queue, deque()
        for call in waiting:
            call.future.cancel()

    def _begin_next(self) -> None:
        """Start threads for waiting calls, while there may be more.  The lock is held."""
        while self._queue and self._free:
            self._free -= 1
            # A daemon: at the end of the process, Ctrl-C must not wait for slow calls.
            threading.Thread(
                target=self._work, args=(self._queue.popleft(),), name="rlvr-collector", daemon=True
            ).start()

    def _work(self, call: _Call | None) -> None:
        while call is not None:
            if call.future.set_running_or_notify_cancel():
                self._run(call)
            with self._lock:
                if call.lost:  # its place has been given away
                    self._lost -= 1
                    return
                self._limited.discard(call)
                call = self._queue.popleft() if self._queue else None
                self._free += call is None

    def _run(self, call: _Call) -> None:
        call.started = started = time.monotonic()
        if call.limit_s is not None:
            with self._lock:
                self._limited.add(call)
        result, error = None, None
        try:
            result = call.function()
        except BaseException as raised:  # noqa: BLE001  it belongs to the caller that reads the future
            error = raised
        took_s = time.monotonic() - started
        with self._lock:
            self._timings.scoring_s += took_s
            self._limited.discard(call)
            if call.lost:
                return
        if call.limit_s is not None and took_s > call.limit_s:
            error = CallTimeout(call.limit_s)
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(result)
