"""Scoring while the sampler is still busy, and the stopwatch that says how much of it could be hidden."""

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
    """Wall seconds.

    Attributes:
        generation_s: in which the sampler was at work.
        scoring_s: spent on scores, or on an environment's steps, added up over the threads.
        scoring_wait_s: in which nothing was left to do but wait for these; the rest of scoring_s was hidden.
    """

    generation_s: float = 0.0
    scoring_s: float = 0.0
    scoring_wait_s: float = 0.0


class BackgroundCalls:
    """Runs calls in `count` threads and takes the time; results may be read in any order."""

    def __init__(self, count: int) -> None:
        self._threads = Threads(count)
        self._lock = threading.Lock()
        self._timings = Timings()

    def submit(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        """Have it called as soon as a thread is free."""
        return self._threads.submit(self._timed, function, *args)

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Time in here is the sampler's."""
        start = time.monotonic()
        yield
        self._timings.generation_s += time.monotonic() - start

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in here goes by waiting for results."""
        start = time.monotonic()
        yield
        self._timings.scoring_wait_s += time.monotonic() - start

    def take_timings(self) -> Timings:
        """Where time went since this was asked last."""
        with self._lock:
            spent, self._timings = self._timings, Timings()
        return spent

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.close()

    def _timed(self, function: Callable[..., _T], *args: Any) -> _T:
        start = time.monotonic()
        try:
            return function(*args)
        finally:
            with self._lock:
                self._timings.scoring_s += time.monotonic() - start
