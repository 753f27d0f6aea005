"""A few daemon threads that run calls in the order in which they were submitted."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from rlvr.errors import UsageError

__all__ = ["Threads", "settle"]

_T = TypeVar("_T")
_Call: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Threads:
    """Runs calls in a few threads of its own; each is begun in the order in which it was submitted.

    Not a ThreadPoolExecutor: the interpreter joins those threads before it ends, so that Ctrl-C
    would wait for every slow call, and in a forked child they are missing for good.  These are
    daemon threads, and a forked child starts its own.

    Args:
        count: how many calls may run at once.
        owner: what the threads work for; it is named in the error after `close`, and in the
            threads' names.
    """

    def __init__(self, count: int, owner: str) -> None:
        self._count, self._owner = count, owner
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._started = 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, function: Callable[..., _T], *args: object) -> Future[_T]:
        """Call the function in the next thread that is free.

        Args:
            function: what to call.
            args: its arguments.

        Returns:
            A future of its result, or of the exception that it raises.

        Raises:
            UsageError: `close` was called; a future that was still waiting then gets the same
                error.
        """
        if self._pid != os.getpid():
            self._begin()
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise self._closed_error()
            self._calls.put((future, partial(function, *args)))
            if self._started < self._count:
                threading.Thread(
                    target=_work, args=(self._calls,), name=f"rlvr-{self._owner}", daemon=True
                ).start()
                self._started += 1
        return future

    def close(self) -> None:
        """Let the threads end after the calls that they have begun; the others are not begun any
        more."""
        with self._lock:
            self._closed = True
        with suppress(Empty):
            while True:
                if (call := self._calls.get_nowait()) is not None and call[
                    0
                ].set_running_or_notify_cancel():
                    call[0].set_exception(self._closed_error())
        self._calls.put(None)

    def _closed_error(self) -> UsageError:
        return UsageError(f"this {self._owner} is closed; open a new one")


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        _run(*call)
        del call  # or it would keep its owner alive while this thread waits
    calls.put(None)  # for the next thread


def _run(future: Future[object], function: Callable[[], object]) -> None:
    if future.set_running_or_notify_cancel():
        settle(future, function)


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
    else:
        future.set_result(result)
