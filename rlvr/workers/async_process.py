"""The worker process's side of the async pool: an event loop that awaits many items at once.

    request pipe: pickles of (number, item as a pickle); with None in place of the item, that item
                  is given up
    reply pipe:   tick while items are under way, and for each item one of
                  ok | error | late (it ran out of time) | stuck (and ignores being cancelled) |
                  last (out of memory)

An item's time is wall time.  It stands still while a step of another item holds the loop, so that a
verifier that blocks costs its neighbours a delay and no verdict.  The number of the item whose step
is running is in memory shared with the pool, which can tell whose fault it is when this process
hangs or dies.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from json import dumps  # by name, here and below: a verifier may replace what stands in the modules
from mmap import mmap
from struct import Struct
from time import monotonic
from typing import Any, NoReturn, Protocol, TypeVar

from rlvr.errors import WorkerDied, describe_error
from rlvr.workers.framing import take_frame
from rlvr.workers.pool import REPLY_MIB
from rlvr.workers.threads import Threads

__all__ = ["GRACE_S", "Mark", "TICK_S", "run_beside", "serve_async"]

TICK_S = 0.25
"""Seconds between two signs of life."""
GRACE_S = 1.0
"""Seconds within which a cancelled item has to end."""

_T = TypeVar("_T")

_REPLY_LETTERS = (REPLY_MIB << 20) - 1000  # the rest is for the frame


class _Channel(Protocol):
    """The process's end of the pipes."""

    request: int

    def reply_to(self, kind: str, number: int, text: str) -> None: ...
    def end_a_fork(self, error: BaseException | None = None) -> None: ...


class Mark:
    """The number of the item whose step is running, in memory that two processes share; 0 for none.

    Args:
        fd: a descriptor of a file of at least 8 bytes.
    """

    _NUMBER = Struct("<q")

    def __init__(self, fd: int) -> None:
        # Shared by mmap: a step is noted without a system call.
        self._memory = mmap(fd, self._NUMBER.size)

    def write(self, number: int) -> None:
        """Set the number.

        Args:
            number: of the item.
        """
        self._NUMBER.pack_into(self._memory, 0, number)

    def read(self) -> int:
        """The number as it is now."""
        return int(self._NUMBER.unpack_from(self._memory)[0])


async def run_beside(call: Callable[[], _T]) -> _T:
    """Run what may take long in a thread of this process, one call at a time, so that the loop goes
    on; the item's time stands still meanwhile.

    Args:
        call: of the item whose code this is.
    """
    return await _ITEM.get().run_beside(call)


def serve_async(
    handler: Callable[[Any], Coroutine[Any, Any, object]],
    channel: _Channel,
    mark_fd: int,
    wall_s: float,
) -> NoReturn:
    """Await items until the request pipe ends; then end the process.

    Args:
        handler: a coroutine function of an item, whose result is JSON-able.
        channel: the pipes.
        mark_fd: see `Mark`.
        wall_s: wall seconds of an item.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    _Server(loop, handler, channel, Mark(mark_fd), wall_s).start()
    while True:
        # The loop is entered again: the other items are as they were.
        try:
            loop.run_forever()
        except (
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # of a task that an item started: it is the item's
            channel.end_a_fork(error)


class _Server:
    """The items under way."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Callable[[Any], Coroutine[Any, Any, object]],
        channel: _Channel,
        mark: Mark,
        wall_s: float,
    ) -> None:
        self.loop, self.handler, self.channel, self.mark, self.wall_s = (
            loop,
            handler,
            channel,
            mark,
            wall_s,
        )
        self.held_s = 0.0  # seconds that steps of items have held the loop
        self.thread = Threads(1, "async worker")  # for `run_beside`
        self.beside = 0  # the item that it is busy with
        self._items: dict[int, _Item] = {}
        self._buffer = bytearray()

    def start(self) -> None:
        self.loop.add_reader(self.channel.request, self._read)
        self._tick()

    def _tick(self) -> None:
        if self._items:
            self.channel.reply_to("tick", 0, "null")
        self.loop.call_later(TICK_S, self._tick)

    def _read(self) -> None:
        # A fork of an item that came back into the loop ends here.
        self.channel.end_a_fork()
        chunk = os.read(self.channel.request, 1 << 16)
        if not chunk:
            # The pool has closed its end; nothing waits for a reply.
            os._exit(0)
        self._buffer += chunk
        while (frame := take_frame(self._buffer)) is not None:
            # from our parent, over a pipe that no other process has
            number, payload = pickle.loads(frame)  # noqa: S301
            if payload is not None:
                self._items[number] = _Item(self, number, payload)
            elif number in self._items:
                self._items[number].give_up("late")

    def done(self, number: int, kind: str, text: str) -> None:
        """Reply to an item, once."""
        if self._items.pop(number, None) is not None:
            self.channel.reply_to(kind, number, text)


class _Item(Coroutine[Any, Any, None]):
    """An item's coroutine, wrapped: each step notes which item holds the loop, and for how long."""

    def __init__(self, server: _Server, number: int, payload: bytes) -> None:
        self._server, self._number = server, number
        # Others' time up to now is subtracted later.
        self._own_s, self._others_s = 0.0, server.held_s
        self._begun = monotonic()
        self._coroutine = self._answer(payload)
        self._late = ""
        self._beside_since: float | None = None
        # The limit at the earliest; at its end it may have time left.
        self._timer = server.loop.call_later(server.wall_s, self._look)
        self._task = server.loop.create_task(self)
        # cancelled before its first step, it never began to answer
        self._task.add_done_callback(self._give_no_answer)

    def _give_no_answer(self, _: object) -> None:
        self._timer.cancel()
        text = (
            "null" if self._late else dumps(["CancelledError", "by other code in its process", ""])
        )
        self._server.done(self._number, self._late or "error", text)

    async def _answer(self, payload: bytes) -> None:
        # The context variable is the task's own, so code below finds its item.
        _ITEM.set(self)
        try:
            item = pickle.loads(payload)  # noqa: S301  see `_Server._read`
            # NaN is no JSON, and a value that is no JSON is the handler's error, not a crash of the
            # loop.
            kind, text = "ok", dumps(await self._server.handler(item), allow_nan=False)
            if len(text) > _REPLY_LETTERS:
                raise WorkerDied(f"a reply has {len(text)} bytes; the limit is {REPLY_MIB} MiB")
        except MemoryError as error:
            error.__traceback__ = error.__context__ = None  # frees the memory that the reply needs
            self._server.done(self._number, "last", dumps(describe_error(error)))
            os._exit(0)  # nothing in this process can be trusted now
        except BaseException as error:  # noqa: BLE001  even SystemExit is the item's
            self._server.channel.end_a_fork(error)
            kind, text = "error", dumps(describe_error(error))
        self._timer.cancel()
        if self._late:  # whatever it made of being cancelled
            kind, text = self._late, "null"
        self._server.done(self._number, kind, text)

    async def run_beside(self, call: Callable[[], _T]) -> _T:
        """See the function; who holds the interpreter in C there is known by the mark, too."""
        server = self._server

        def run() -> _T:
            server.beside = self._number
            server.mark.write(self._number)
            try:
                return call()
            finally:
                server.beside = 0

        self._beside_since = monotonic()
        try:
            # In a copy of the caller's context, so that the thread sees its variables.
            return await asyncio.wrap_future(server.thread.submit(copy_context().run, run))
        finally:
            # As time of other items, it does not count against this item's limit.
            self._others_s -= self._beside_s()
            self._beside_since = None

    def _beside_s(self) -> float:
        return 0.0 if self._beside_since is None else monotonic() - self._beside_since

    def _look(self) -> None:
        """Whether its time is over: wall time, without that in which others held the loop."""
        others_s = self._server.held_s - self._others_s - self._own_s + self._beside_s()
        left_s = self._server.wall_s - (monotonic() - self._begun - others_s)
        if left_s > 0:
            self._timer = self._server.loop.call_later(left_s, self._look)
        else:
            self.give_up("late")

    def give_up(self, kind: str) -> None:
        self._late = kind
        self._timer.cancel()
        # An await raises CancelledError; a step that runs goes on.
        self._task.cancel()
        # One that catches it has a second; then its process takes no more items.
        self._timer = self._server.loop.call_later(
            GRACE_S, self._server.done, self._number, "stuck", "null"
        )

    def _step(self, step: Callable[..., object], *args: object) -> object:
        # Before the step: if it never returns, the mark says whose it is.
        self._server.mark.write(self._number)
        begun = monotonic()
        try:
            return step(*args)
        finally:
            held_s = monotonic() - begun
            self._own_s += held_s
            self._server.held_s += held_s
            # Back to what runs in the thread, or to none.
            self._server.mark.write(self._server.beside)

    def send(self, value: object) -> object:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: object) -> object:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise AssertionError("a task runs it")

    def __getattr__(self, name: str) -> Any:
        # cr_frame and its like, which libraries ask a task's coroutine for
        return getattr(self._coroutine, name)


_ITEM: ContextVar[_Item] = ContextVar("the item whose code runs")
