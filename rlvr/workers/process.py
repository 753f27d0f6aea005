"""The worker process's side of the pool: a loop that answers items until its request pipe ends.

    request pipe: a pickle of `setup`, then pickles of lists of items
    reply pipe:   ready | failed, then for each list: begin | unread, and for each item:
                  ok | error | last

A reply carries the number of its request and of its item, so that the pool can tell one that is out
of place, and this process's monotonic and CPU clock, so that an item's time is counted from where
the one before it ended.

A worker of an `AsyncPool` goes on in `async_process` after its set-up.

Only this process replies.  One that a handler forks and that comes back here ends at once: its
replies would be taken for those of the items that its parent is still working on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from json import JSONEncoder, dumps  # by name, as below: a verifier may replace what modules have
from time import monotonic, process_time, sleep
from typing import Any, NoReturn

from rlvr.errors import describe_error, foreign_code
from rlvr.workers.framing import frame_payload, read_frame, write_all
from rlvr.workers.thread import DaemonThread

__all__ = ["serve"]

# What a small item needs for itself: its text, a parsed tree, the reply.
_ROOM_MIB = 8
_LOOK_S = 1.0  # between two looks whether the parent is still there

_to_json = JSONEncoder(allow_nan=False).encode


def serve(
    request: int,
    reply: int,
    memory_mib: int | None,
    awaits: tuple[int, float] | None = None,
) -> NoReturn:
    """The main loop of a worker process; ends when the request pipe does.

    Args:
        request, reply: descriptors of the pipes.
        memory_mib: limit on private memory; None for no limit.
        awaits: of a worker of an `AsyncPool`, (descriptor of its mark, wall seconds of an item).
    """
    for fd in (request, reply, *(() if awaits is None else awaits[:1])):
        # A program that inherits them could answer in our name.
        os.set_inheritable(fd, False)  # not for programs that a verifier may start
    if sys.platform != "linux":  # there the kernel kills us, see `Lifeline`
        DaemonThread(_end_with_parent, os.getppid(), name="lifeline", owner="worker")
    channel = _Channel(request, reply)
    handler: Callable[[Any], Any] | None = None
    while (frame := channel.next_request()) is not None:
        if handler is None:
            # All kinds: a set-up may raise SystemExit.
            with foreign_code(BaseException) as errors:
                # Before anything is imported, so that imports count as well.
                if memory_mib is not None:
                    _limit_memory(memory_mib)
                # from our parent, over a pipe that no other process has
                handler = pickle.loads(frame)()  # noqa: S301
                if not callable(handler):
                    raise TypeError(
                        f"setup returned {handler!r}; it must return the handler, a function of an "
                        f"item"
                    )
                if memory_mib is not None:
                    # a worker without room for an item would fail at every one
                    # Tried once: the memory is free again at once.
                    bytearray(_ROOM_MIB << 20)
            if errors:
                error = _or_memory(errors[0], memory_mib)
                try:
                    description = describe_error(error)
                except MemoryError:  # a traceback needs memory too
                    description = (type(error).__name__, "", "")
                channel.reply("failed", description)
                break
            assert handler is not None
            channel.reply("ready", None)
            if awaits is not None:
                from rlvr.workers.async_process import serve_async

                serve_async(handler, channel, *awaits)
        else:
            _answer(handler, frame, channel)
    os._exit(0)


class _Channel:
    """This process's end of the pipes; of no use to one that it has forked."""

    def __init__(self, request: int, reply: int) -> None:
        self.request, self._reply = request, reply
        self._pid = os.getpid()
        self._number = -1  # of the request: the set-up has 0
        self._item = 0
        # so that a reader of ours sees our end, whoever lives on
        os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        for fd in (self.request, self._reply):
            with contextlib.suppress(OSError):
                os.close(fd)

    def next_request(self) -> bytes | None:
        """The next frame; None at the end of the pipe."""
        self.end_a_fork()
        self._number += 1
        self._item = 0
        return read_frame(self.request)

    def reply(self, kind: str, value: object) -> None:
        """Send a value that is JSON."""
        self.reply_text(kind, dumps(value))

    def reply_text(self, kind: str, text: str) -> None:
        """Send a value that has become JSON already."""
        self.end_a_fork()
        payload = f'["{kind}",{self._number},{self._item},{monotonic()},{process_time()},{text}]'
        self._item += kind in ("ok", "error", "last")
        write_all(self._reply, frame_payload(payload.encode("ascii")))

    def reply_to(self, kind: str, number: int, text: str) -> None:
        """Send what has become of an item, which need not be the one that came first; a value is
        JSON already."""
        self.end_a_fork()
        write_all(self._reply, frame_payload(f'["{kind}",{number},{text}]'.encode("ascii")))

    def end_a_fork(self, error: BaseException | None = None) -> None:
        """Nothing in the worker itself; the end of any other process.

        Args:
            error: the exception that ends it, if any.
        """
        if os.getpid() != self._pid:
            os._exit(0 if error is None else _exit_code(error))


def _or_memory(error: BaseException, memory_mib: int | None) -> BaseException:
    """Why the set-up failed: out of memory an import may raise anything, such as a ValueError of
    the compiler's."""
    if memory_mib is not None:
        try:
            bytearray(_ROOM_MIB << 20)
        except MemoryError as first:
            first.__cause__ = error  # so that what the set-up raised is in the traceback
            return first
    return error


def _answer(handler: Callable[[Any], object], frame: bytes, channel: _Channel) -> None:
    items: Sequence[object] = ()
    # BaseException: unpickling runs code of the caller's.
    with foreign_code(BaseException) as errors:
        items = pickle.loads(frame)  # noqa: S301  see above
    if errors:
        channel.reply("unread", describe_error(errors[0]))
        os._exit(0)
    channel.reply("begin", None)
    for item in items:
        try:
            # NaN is no JSON, and a value that is no JSON is the handler's error, not a crash of the
            # loop.
            kind, value = "ok", handler(item)
            text = _to_json(value)
        except MemoryError as error:
            error.__traceback__ = error.__context__ = None  # frees the memory that the reply needs
            # nothing in this process can be trusted now
            channel.reply("last", describe_error(error))
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  even SystemExit is the item's
            channel.end_a_fork(error)
            kind, text = "error", dumps(describe_error(error))
        channel.reply_text(kind, text)


def _exit_code(error: BaseException) -> int:
    """What a process that this exception ends would exit with."""
    code = error.code if isinstance(error, SystemExit) else 1
    # As the interpreter does: a text is 1, None is 0.
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _limit_memory(memory_mib: int) -> None:
    import resource

    # RLIMIT_DATA counts private memory that can be written to; RLIMIT_AS would count also the
    # libraries and the address space that allocators only reserve.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory_mib << 20 if hard == resource.RLIM_INFINITY else min(memory_mib << 20, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))  # a sandbox's programs have their own
    # A core file would take the time and the disk of a killed worker.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        sleep(_LOOK_S)
    os._exit(0)
