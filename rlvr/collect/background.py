"""Runs scoring and the environment's calls in threads while the sampler works, and
measures what of it that hides."""

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

from rlvr.errors import UsageError
from rlvr.workers.threads import settle

__all__ = ["BackgroundCalls", "Timings"]

_T = TypeVar("_T")

_IDLE_S: Final = 1.0  # that a thread waits for the next call


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
    function: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class BackgroundCalls:
    """Runs calls in threads, in the order in which they are submitted, and measures their time.

    Args:
        count: most threads.
    """

    def __init__(self, count: int) -> None:
        self._free, self._idle, self._closed = count, 0, False
        self._queue: deque[_Call] = deque()
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)
        self._timings = Timings()

    def submit(self, function: Callable[..., _T], *args: object) -> Future[_T]:
        """Call a function as soon as a thread is free.

        Args:
            function: what is called.
            args: its arguments.

        Raises:
            UsageError: `close` was called.
        """
        call = _Call(partial(function, *args))
        with self._lock:
            if self._closed:
                raise UsageError("this collector is closed; open a new one")
            self._queue.append(call)
            self._called.notify()
            if self._free and len(self._queue) > self._idle:
                self._free -= 1
                # A daemon: at the end of the process, Ctrl-C must not wait for slow calls.
                threading.Thread(target=self._work, name="rlvr-collector", daemon=True).start()
        return call.future

    def wait(self, future: Future[_T]) -> None:
        """Wait until a call is done.

        Args:
            future: of the call.
        """
        with self.waiting():
            wait([future])

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
            self._called.notify_all()
        for call in waiting:
            call.future.cancel()

    def _work(self) -> None:
        """Do calls until there are none for a while: a thread for each would
        cost more than most calls."""
        while (call := self._next()) is not None:
            if call.future.set_running_or_notify_cancel():
                settle(call.future, partial(self._timed, call.function))
            del call

    def _next(self) -> _Call | None:
        with self._lock:
            self._idle += 1
            self._called.wait_for(lambda: self._queue or self._closed, _IDLE_S)
            self._idle -= 1
            if self._queue:
                return self._queue.popleft()
            self._free += 1
            return None

    def _timed(self, function: Callable[[], object]) -> object:
        started = time.monotonic()
        try:
            return function()
        finally:
            with self._lock:
                self._timings.scoring_s += time.monotonic() - started
