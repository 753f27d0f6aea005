"""A few daemon threads that run calls in order: the scorer's side of its worker processes."""

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

__all__ = ["Threads"]

_T = TypeVar("_T")
_Call: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Threads:
    """Runs calls in a few threads of its own, in order.

    Not a ThreadPoolExecutor: the interpreter joins those threads before it ends, so that Ctrl-C would wait for every
    slow item, and a forked child lacks them for good.  These are daemons, started wherever they are missing.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._started = 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, function: Callable[..., _T], *args: Any) -> Future[_T]:
        """Have it called when a thread is free.

        Raises:
            UsageError: `close` was called; a future that was still waiting then gets the same.
        """
        if self._pid != os.getpid():
            self._begin()
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise _scorer_closed()
            self._calls.put((future, partial(function, *args)))
            if self._started < self._count:
                threading.Thread(target=_work, args=(self._calls,), name="rlvr-scorer", daemon=True).start()
                self._started += 1
        return future

    def close(self) -> None:
        """Let the threads end; what none of them has begun is not begun any more."""
        with self._lock:
            self._closed = True
        with suppress(Empty):
            while True:
                if (call := self._calls.get_nowait()) is not None and call[0].set_running_or_notify_cancel():
                    call[0].set_exception(_scorer_closed())
        self._calls.put(None)


def _scorer_closed() -> UsageError:
    return UsageError("this scorer is closed; open a new one")


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        _run(*call)
        del call  # or it would keep its scorer alive while this thread waits
    calls.put(None)  # for the next thread


def _run(future: Future[Any], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  for whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)
