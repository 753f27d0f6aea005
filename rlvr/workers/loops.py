"""Event loops beside the caller: coroutines that are awaited in this process, with a bound
on how many run at once.

A process has one loop for each purpose, in a daemon thread, for as long as it lives: a client that
a verifier keeps belongs to the loop in which it was made, and would be of no use in another.  So
callers may be in any thread, and also in a coroutine of another loop, such as a notebook's.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rlvr.errors import UsageError
from rlvr.workers.per_process import once_per_process
from rlvr.workers.thread import DaemonThread

__all__ = ["BoundedCalls", "LoopThread", "finish", "loop_thread", "take_ready"]

_T = TypeVar("_T")


def finish(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that waits for nothing, without an event loop.

    Args:
        coroutine: of code that is async in other cases.

    Raises:
        UsageError: it waits for something.
    """
    # Driven by hand: the first step must be the last.
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    name = getattr(coroutine, "__qualname__", "a coroutine")
    coroutine.close()
    raise UsageError(
        f"{name} waits for something that is async; score it with an environment or a Scorer"
    )


def take_ready(queue: SimpleQueue[_T], timeout_s: float) -> list[_T]:
    """What is in a queue; waits for the first one.

    Args:
        queue: what another thread fills.
        timeout_s: most wall seconds to wait.
    """
    ready: list[_T] = []
    # Empty ends both: the first wait, and the reading of what else is there.
    with suppress(Empty):
        ready.append(queue.get(timeout=timeout_s))
        while True:
            ready.append(queue.get_nowait())
    return ready


class LoopThread:
    """An event loop in a daemon thread of its own.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # A daemon: the interpreter does not wait for it at its end.
        self._thread = DaemonThread(self._run, name=name, owner=name, kind="loop")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:  # a SystemExit in a task ends `run_forever`, and its neighbours have to go on
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    def submit(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> Future[_T]:
        """Run a coroutine function in the loop; it sees the caller's context variables.

        Args:
            function: what to call.
            args: its arguments.

        Returns:
            A future of its result; cancelling it cancels the coroutine.
        """
        return asyncio.run_coroutine_threadsafe(function(*args), self.loop)

    def call(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Run a coroutine function in the loop and wait for its result.

        Args:
            function, args: see `submit`.

        Raises:
            UsageError: this is the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "async code asked for a score that waits in turn; await Scorer.ascore there"
            )
        future = self.submit(function, *args)
        try:
            return future.result()
        finally:
            future.cancel()  # after Ctrl-C; a future that is done stays as it is


@once_per_process
def loop_thread(name: str) -> LoopThread:
    """This process's event loop for a purpose.

    Args:
        name: "calls" for code of verifiers and rewards that runs in this process; "workers" for
            pools of processes.
    """
    return LoopThread(name)


class BoundedCalls:
    """Awaits coroutines in this process, at most so many at once; they are begun
    in the order of the calls.

    Args:
        at_once: how many.
        owner: what they work for; it is named in the error after `close`.
    """

    def __init__(self, at_once: int, owner: str) -> None:
        self._at_once, self._owner = at_once, owner
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # A semaphore of asyncio: coroutines of one thread wait for it.
        self._slots = asyncio.Semaphore(self._at_once)
        self._tasks: set[asyncio.Task[object]] = set()

    def submit(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> Future[_T]:
        """Await what a coroutine function gives, as soon as there is room.

        Args:
            function: what to call.
            args: its arguments.

        Raises:
            UsageError: `close` was called.
        """
        if self._pid != os.getpid():
            self._begin()  # the loop of the parent's is not here
        if self._closed:
            raise self._closed_error()
        return loop_thread("calls").submit(self._call_bounded, function, args)

    def close(self) -> None:
        """Cancel all calls; their callers get a `UsageError`.  Idempotent."""
        self._closed = True
        if self._tasks and self._pid == os.getpid():
            # From any thread: tasks may be touched in the loop's own only.
            loop_thread("calls").loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _call_bounded(
        self, function: Callable[..., Coroutine[Any, Any, _T]], args: tuple[object, ...]
    ) -> _T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with self._slots:
                # It may have been closed while this call waited for its turn.
                if self._closed:
                    raise self._closed_error()
                return await function(*args)
        except asyncio.CancelledError:
            if self._closed:
                raise self._closed_error() from None
            raise
        finally:
            self._tasks.discard(task)

    def _closed_error(self) -> UsageError:
        return UsageError(f"this {self._owner} is closed; open a new one")
