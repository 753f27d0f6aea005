"""A few daemon threads that run calls in the order in which they were submitted."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from rlvr.errors import UsageError
from rlvr.workers.closing import Closing
from rlvr.workers.thread import DaemonThread

__all__ = ["Threads", "settle"]

_S = TypeVar("_S")
_T = TypeVar("_T")
_Call: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Threads(Closing):
    """Runs calls in a few threads of its own; each is begun in the order in which it was submitted.

    Not a ThreadPoolExecutor: the interpreter joins those threads before it ends, so that Ctrl-C
    would wait for every slow call, and in a forked child they are missing for good.  These are
    daemon threads, and a forked child starts its own.

    Args:
        count: how many calls may run at once.
        owner: what the threads work for; it is named in the error after `close`, and in the
            threads' names.
        idle_s: seconds after which a thread without a call ends; None for never.
    """

    def __init__(self, count: int, owner: str, *, idle_s: float | None = None) -> None:
        self._count, self._owner, self._idle_s = count, owner, idle_s
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue = _Queue(self._count, self._idle_s)
        # A weak owner: None ends the threads, one after the other.
        weakref.finalize(self, self._queue.calls.put, None).atexit = False

    def submit(self, function: Callable[..., _T], *args: object) -> Future[_T]:
        """Call the function in the next thread that is free.

        Args:
            function: what to call.
            args: its arguments.

        Returns:
            A future of its result, or of the exception that it raises.

        Raises:
            UsageError: `close` was called.
        """
        # In a fork the threads are gone; the queue begins anew.
        if self._pid != os.getpid():
            self._begin()
        future: Future[_T] = Future()
        queue = self._queue
        with queue.lock:
            if self._closed:
                raise self._closed_error()
            # A thread more only where none is free and there may be more.
            if queue.threads < queue.most and queue.spare <= 0:
                DaemonThread(_work, queue, name=self._owner, owner=self._owner)
                queue.threads += 1
            elif queue.counts():
                queue.spare -= 1
            queue.calls.put((future, partial(function, *args)))
        return future

    def map(self, function: Callable[[_S], _T], values: Iterable[_S]) -> Iterator[_T]:
        """The results of a function for several values, in their order.

        Args:
            function: what to call.
            values: its argument in each call; all calls are submitted at once.
        """
        futures = [self.submit(function, value) for value in values]
        return (future.result() for future in futures)

    def close(self, *, cancel: bool = False) -> None:
        """Let the threads end after the calls that they have begun; the others are not begun any
        more.

        Args:
            cancel: the futures of the others are cancelled, as those of an executor; else they get
                a `UsageError`, which says what was closed.
        """
        if self._pid != os.getpid():  # the parent may have held the lock as it forked
            self._begin()
        with self._queue.lock:
            self._closed = True
        with suppress(Empty):
            while True:
                call = self._queue.calls.get_nowait()
                # Cancelled ones need no error: their callers know.
                if call is None or (cancel and call[0].cancel()):
                    continue
                # Cancelled meanwhile: it may not be set any more.
                if call[0].set_running_or_notify_cancel():
                    call[0].set_exception(self._closed_error())
        self._queue.calls.put(None)

    def _closed_error(self) -> UsageError:
        return UsageError(f"this {self._owner} is closed; open a new one")


class _Queue:
    """What the threads share with their owner, which may be dropped before they end.

    Args:
        most, idle_s: see `Threads`.

    Attributes:
        spare: threads that wait for a call, less the calls that wait for a thread.
        threads: how many there are.
    """

    def __init__(self, most: int, idle_s: float | None) -> None:
        self.most, self.idle_s = most, idle_s
        self.lock = threading.Lock()
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.spare = self.threads = 0

    def counts(self) -> bool:
        """Whether `spare` is read again.  Once all threads are there and none ends, it is not, and
        a thread that takes the lock after each call costs half a microsecond of it."""
        return self.idle_s is not None or self.threads < self.most


def _work(queue: _Queue) -> None:
    while True:
        try:
            call = queue.calls.get(timeout=queue.idle_s)
        except Empty:
            with queue.lock:
                if queue.spare > 0:  # else a call is on its way
                    queue.spare -= 1
                    queue.threads -= 1
                    return
            continue
        if call is None:
            queue.calls.put(None)  # for the next thread
            return
        if call[0].set_running_or_notify_cancel():
            settle(*call)
        del call  # or it would keep its owner alive while this thread waits
        if queue.counts():
            with queue.lock:
                queue.spare += 1


def settle(future: Future[_T], function: Callable[[], _T]) -> None:
    """Make a call, and give what it returns or raises to the caller that reads the future.

    Args:
        future: neither done nor cancelled.
        function: what to call.
    """
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  it belongs to the caller that reads the future
        future.set_exception(error)
        del future, function  # this frame is in its traceback: a cycle that holds the arguments
    else:
        future.set_result(result)
