"""Runs each request in a forked child that can be killed.  The worker loads its
libraries once, and forks.

    pool ══▶ worker: imports done ──fork──▶ child: handles requests
                                            a killed child is replaced in milliseconds

Without the fork, the pool would replace the whole worker and import SymPy again: half a second in
which the next request waits.  The worker has one thread and no locks, which is what makes forking
safe here and nowhere else in rlvr.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from rlvr.workers import clock
from rlvr.workers.framing import frame_payload, read_frame, write_all
from rlvr.workers.program import ForkedChild

__all__ = ["ChildLost", "ForkServer", "OWN_FAULT"]

OWN_FAULT = ("time", "memory", "crash")
"""The reasons of `ChildLost` for which the request itself is to blame."""

_CRASHES = frozenset(
    {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL}
)
# CPU seconds beyond the limit after which the kernel ends a child whose parent has died
_MARGIN_S = 3


class ChildLost(Exception):
    """The child ended, or was killed at a limit, before it answered.

    Attributes:
        reason: `time` (CPU), `memory` or `crash`, which are the request's own fault; `wall` or
            `died`, which are not. A crash is a signal that a process raises against itself, such as
            the abort of a library that cannot allocate; `died` is any other end, such as a kill
            from outside.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ForkServer:
    """Runs a handler in a forked child, one request at a time.

    Args:
        handler: request → JSON-able reply.  Any exception but MemoryError ends the child.
        is_spent: asked in the child after each reply; a child that says True handles no further
            request.
    """

    def __init__(
        self, handler: Callable[[Any], object], is_spent: Callable[[], bool] = lambda: False
    ) -> None:
        self._handler, self._is_spent = handler, is_spent
        self._child: ForkedChild | None = None
        self._number = 0
        self._requests = self._replies = -1

    def ask(self, request: object, *, cpu_s: float, wall_s: float) -> Any:
        """The handler's reply.

        Args:
            request: anything that can be pickled.
            cpu_s: CPU seconds after which the child is killed.
            wall_s: wall seconds after which it is killed.

        Raises:
            ChildLost: the child used up its time or memory, crashed or was killed.
        """
        if self._child is None:
            self._fork()
        # A reply of an earlier child, or of a process that it left behind, has another number.
        self._number += 1
        try:
            write_all(self._requests, frame_payload(pickle.dumps((self._number, request, cpu_s))))
            self._wait(cpu_s, wall_s)
            reply = read_frame(self._replies)
        except BrokenPipeError:
            reply = None
        if reply is None:
            raise ChildLost("crash" if self.end() in _CRASHES else "died")
        number, kind, value = json.loads(reply)
        # Out of memory, or another process's reply: the child cannot be used any more.
        if kind == "memory" or number != self._number:
            self.end()
            raise ChildLost("memory" if number == self._number else "died")
        if kind == "last":
            self.end()
        return value

    def end(self) -> int:
        """Kill the child, if there is one; the next request forks another.

        Returns:
            The child's exit code, or minus the signal that ended it; 0 if there was no child.
        """
        if self._child is None:
            return 0
        code = self._child.end()
        self._child = None
        os.close(self._requests)
        os.close(self._replies)
        return code

    def _wait(self, cpu_s: float, wall_s: float) -> None:
        """Until the reply begins.  CPU time decides, since it does not depend on what else the
        machine does."""
        assert self._child is not None
        pid = self._child.pid
        wall_until, cpu_until = time.monotonic() + wall_s, clock.cpu_s(pid) + cpu_s
        while True:
            wall_left, cpu_left = wall_until - time.monotonic(), cpu_until - clock.cpu_s(pid)
            # Until whichever limit comes first; CPU time cannot pass faster than wall time with one
            # thread.
            if select.select([self._replies], [], [], max(0.0, min(wall_left, cpu_left)))[0]:
                return
            if min(wall_left, cpu_left) <= 0:
                self.end()
                raise ChildLost("time" if cpu_left <= 0 else "wall")

    def _fork(self) -> None:
        request_r, self._requests = os.pipe()
        self._replies, reply_w = os.pipe()

        def serve() -> NoReturn:
            # The parent's ends, which would keep the pipes open after its death.
            os.close(self._requests)
            os.close(self._replies)
            _serve(self._handler, self._is_spent, request_r, reply_w)

        gc.freeze()  # a collection would write to every page, and so copy it
        self._child = ForkedChild(serve, name="request handler", owner="fork server")
        os.close(request_r)
        os.close(reply_w)


def _serve(
    handler: Callable[[Any], object], is_spent: Callable[[], bool], requests: int, replies: int
) -> NoReturn:
    """The child's loop.  It ends with its parent: at the next read, or by the kernel if it is
    computing."""
    pid = os.getpid()
    try:
        while (frame := read_frame(requests)) is not None:
            # from our parent, over a pipe that no other process has
            number, request, cpu_s = pickle.loads(frame)  # noqa: S301
            # Measured from now: the child has used time for earlier requests.
            _bound_cpu(time.process_time() + cpu_s + _MARGIN_S)
            try:
                value = handler(request)
                reply = [number, "last" if is_spent() else "reply", value]
            except MemoryError:
                reply = [number, "memory", None]
            if os.getpid() != pid:
                os._exit(0)  # the handler has forked, and this is not the process that was asked
            write_all(replies, frame_payload(json.dumps(reply).encode("ascii")))
    # Whatever the handler raised: the parent sees the pipe end.
    finally:
        os._exit(1)


def _bound_cpu(until_s: float) -> None:
    """Have the kernel end this process by then, unless an administrator has set it an earlier
    end."""
    # A soft limit may be raised again for the next request; the hard one is left alone.
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(until_s) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )
