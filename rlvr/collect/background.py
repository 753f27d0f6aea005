"""Runs scoring in threads while the sampler generates, and measures how much of its time that hides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rlvr.workers.threads import Threads

__all__ = ["BackgroundCalls", "Timings"]

_T = TypeVar("_T")


@dataclass(slots=True)
class Timings:
    """Where wall time went, in seconds.

    Attributes:
        generation_s: while the sampler was generating.
        scoring_s: spent on scores, or on an environment's steps, summed over the threads.
        scoring_wait_s: spent waiting for these after generation had ended.
    """

    generation_s: float = 0.0
    scoring_s: float = 0.0
    scoring_wait_s: float = 0.0


class BackgroundCalls:
    """Runs calls in threads and measures their time.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._threads = Threads(count, "collector")
        self._lock = threading.Lock()
        self._timings = Timings()

    def submit(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        """Call a function as soon as a thread is free.

        Args:
            function: what is called.
            args: its arguments.
        """
        return self._threads.submit(self._timed, function, *args)

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Count the time inside as the sampler's."""
        start = time.monotonic()
        yield
        self._timings.generation_s += time.monotonic() - start

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for results."""
        start = time.monotonic()
        yield
        self._timings.scoring_wait_s += time.monotonic() - start

    def take_timings(self) -> Timings:
        """The timings since the last call of this method; they start again at 0."""
        with self._lock:
            spent, self._timings = self._timings, Timings()
        return spent

    def close(self) -> None:
        """Start no further calls."""
        self._threads.close()

    def _timed(self, function: Callable[..., _T], *args: Any) -> _T:
        start = time.monotonic()
        try:
            return function(*args)
        finally:
            with self._lock:
                self._timings.scoring_s += time.monotonic() - start
