"""One thread that works on the requests of all agents with one sampler, which no other
thread touches meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rlvr.errors import RlvrError, SamplingFailed, UsageError, foreign_code
from rlvr.samplers.protocol import Request, Sample, Sampler
from rlvr.workers.thread import DaemonThread

__all__ = ["Order", "SamplerThread"]


class Order(Protocol):
    """What an agent asks for.  All methods are called in the sampler's thread."""

    def request(self, id: int) -> Request | None:
        """The request; None for one that has to wait until another one is finished.

        Raises:
            Exception: there is none; the asker gets this.
        """

    def finished(self, sample: Sample) -> object:
        """Take in the sample; what this returns is what the asker gets."""

    def dropped(self) -> None:
        """There will be no sample."""


@dataclass(slots=True, eq=False)
class _Open:
    order: Order
    future: Future[object] = field(default_factory=Future)
    id: int | None = None  # once the sampler has it


class SamplerThread:
    """Samples what is ordered.  Close it.

    Args:
        sampler: used in this object's thread alone while something is asked for, and until `settle`
            or `close`.

    Attributes:
        error: what ended the thread; None while it works.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.error: BaseException | None = None
        self._news: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._open: dict[int, _Open] = {}
        self._waiting: list[_Open] = []
        self._ids = itertools.count()
        self._closing = False
        self._thread = DaemonThread(self._work, name="agents-sampler", owner="agents")

    def ask(self, order: Order) -> Future[Any]:
        """Order a completion; the future gives what `order.finished` returns.  Cancelling it aborts
        the request.

        Args:
            order: what is asked for.
        """
        request = _Open(order)

        def cancelled(done: Future[object]) -> None:
            if done.cancelled():
                self._news.put(lambda: self._abort(request))

        request.future.add_done_callback(cancelled)
        self._news.put(lambda: self._begin(request))
        if self.error is not None:  # the thread has ended, or ends just now
            self._fail(request, self._error_at_end())
        return request.future

    def settle(self) -> None:
        """Wait until what was cancelled is aborted; while nothing is asked, another thread may then
        use the sampler."""
        settled = threading.Event()
        self._news.put(settled.set)
        while not settled.wait(0.05) and self.error is None:
            pass

    def close(self) -> None:
        """Abort what is under way and end the thread.  Idempotent."""
        self._closing = True
        self._news.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        # The sampler's errors are raised where rollouts are collected.
        with foreign_code(BaseException) as errors:
            while self._heard():
                if self._open:
                    for name, outcome in self.sampler.poll():
                        self._finish(name, outcome)
            self.sampler.abort(list(self._open))
        closed = UsageError("this endpoint is closed; open another one")
        self.error = errors[0] if errors else closed
        for request in [*self._open.values(), *self._waiting]:
            self._fail(request, self._error_at_end())
        while not self._news.empty():
            if (news := self._news.get()) is not None:
                news()

    def _error_at_end(self) -> RlvrError:
        if isinstance(self.error, UsageError):
            return self.error
        return SamplingFailed(f"the sampler failed: {type(self.error).__name__}: {self.error}")

    def _heard(self) -> bool:
        """Take in what is new, waiting for it if there is nothing else to do; False to end."""
        try:
            news = self._news.get(block=not self._open)
            while news is not None:
                news()
                news = self._news.get_nowait()
        except Empty:
            return not self._closing
        return False

    def _begin(self, one: _Open) -> None:
        if one.future.cancelled():
            return
        if self.error is not None:
            self._fail(one, self._error_at_end())
            return
        number = next(self._ids)
        with foreign_code() as errors:  # the sampler's; the asker gets the error
            request = one.order.request(number)
            if request is None:
                self._waiting.append(one)
                return
            self.sampler.submit(request)
        for error in errors:
            one.order.dropped()
            self._fail(one, error)
            return
        one.id = number
        self._open[number] = one

    def _finish(self, name: Any, found: Sample | SamplingFailed) -> None:
        request = self._open.pop(name)
        if isinstance(found, SamplingFailed):
            request.order.dropped()
            self._fail(request, found)
        else:
            result = request.order.finished(found)
            with suppress(InvalidStateError):  # its asker has just left
                request.future.set_result(result)
        self._retry()

    def _abort(self, one: _Open) -> None:
        if one in self._waiting:
            self._waiting.remove(one)
        if one.id is None or self._open.pop(one.id, None) is None:
            return
        self.sampler.abort([one.id])
        one.order.dropped()
        self._retry()

    def _retry(self) -> None:
        """Begin what has waited for another request."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._begin(request)

    @staticmethod
    def _fail(one: _Open, error: BaseException) -> None:
        with suppress(InvalidStateError):
            one.future.set_exception(error)
