"""Runs scoring and the environment's calls in threads while the sampler works, and
measures what of it that hides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from rlvr.workers.threads import Threads

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


class BackgroundCalls:
    """Runs calls in threads, in the order in which they are submitted, and measures their time.

    Args:
        count: most threads.
    """

    def __init__(self, count: int) -> None:
        self._threads = Threads(count, "collector", idle_s=_IDLE_S)
        self._lock = threading.Lock()
        self._timings = Timings()

    def submit(self, function: Callable[..., _T], *args: object) -> Future[_T]:
        """Call a function as soon as a thread is free.

        Args:
            function: what is called.
            args: its arguments.

        Raises:
            UsageError: `close` was called.
        """
        return self._threads.submit(self._run_timed, partial(function, *args))

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
        # Swapped under the lock: threads that end meanwhile
        # add to one of the two, never to neither.
        with self._lock:
            spent, self._timings = self._timings, Timings()
        return spent

    def close(self) -> None:
        """Start no further calls; those that wait are cancelled."""
        # Calls that have begun cannot be stopped, and end in their threads.
        self._threads.close(cancel=True)

    def _run_timed(self, function: Callable[[], _T]) -> _T:
        started = time.monotonic()
        try:
            return function()
        finally:
            with self._lock:
                self._timings.scoring_s += time.monotonic() - started
