"""A child that can be lost: the worker loads SymPy once and forks; what a pair destroys is only the fork.

    pool ══▶ worker: imports done ──fork──▶ child: handles pairs      a killed child is replaced in milliseconds

The pool's own replacement would import SymPy anew, half a second in which the next pair waits.  The worker has one
thread and no locks, which is what makes forking safe here and nowhere else in rlvr.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["Lost", "Nursery", "OWN_FAULT"]

OWN_FAULT = ("time", "memory", "crash")
"""The reasons of `Lost` that say something about the request."""

_HEADER = struct.Struct("<I")
_OWN_DOING = frozenset({-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL})
_MARGIN_S = 3  # CPU seconds beyond the limit after which the kernel ends a child whose parent has died


class Lost(Exception):
    """The child ended before it answered; `reason` is `time` (CPU), `memory`, `crash`, `wall` or `died`.

    The first three are the request's own doing: a crash is a signal that a process raises against itself, such as
    the abort of a library that cannot allocate.  `died` is a kill from outside.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Nursery:
    """Runs a handler in a forked child, one request at a time.

    Args:
        handler: request → JSON-able reply.  What it raises, MemoryError excepted, ends the child.
    """

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handler = handler
        self._pid = 0
        self._requests = self._replies = -1

    def ask(self, request: Any, *, cpu_s: float, wall_s: float) -> Any:
        """The handler's reply.

        Raises:
            Lost: the child used up its time or memory, or crashed.
        """
        if not self._pid:
            self._fork()
        try:
            _write(self._requests, pickle.dumps((request, cpu_s)))
            self._wait(cpu_s, wall_s)
            reply = _read(self._replies)
        except BrokenPipeError:
            reply = None
        if reply is None:
            raise Lost("crash" if self.end() in _OWN_DOING else "died")
        kind, value = json.loads(reply)
        if kind == "memory":
            self.end()
            raise Lost("memory")
        return value

    def end(self) -> int:
        """Kill the child, if there is one; the next request forks another.

        Returns:
            What it ended with: an exit code, or minus a signal; its own if it had ended before.
        """
        if not self._pid:
            return 0
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._requests)
        os.close(self._replies)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _wait(self, cpu_s: float, wall_s: float) -> None:
        """Until the reply begins.  CPU time decides, since it does not depend on what else the machine does."""
        wall_until, cpu_until = time.monotonic() + wall_s, _cpu_s(self._pid) + cpu_s
        while True:
            wall_left, cpu_left = wall_until - time.monotonic(), cpu_until - _cpu_s(self._pid)
            if select.select([self._replies], [], [], max(0.0, min(wall_left, cpu_left)))[0]:
                return
            if min(wall_left, cpu_left) <= 0:
                self.end()
                raise Lost("time" if cpu_left <= 0 else "wall")

    def _fork(self) -> None:
        request_r, self._requests = os.pipe()
        self._replies, reply_w = os.pipe()
        gc.freeze()  # a collection would write to every page, and so copy it
        self._pid = os.fork()
        if not self._pid:
            os.close(self._requests)
            os.close(self._replies)
            _serve(self._handler, request_r, reply_w)
        os.close(request_r)
        os.close(reply_w)


def _serve(handler: Callable[[Any], Any], requests: int, replies: int) -> NoReturn:
    """The child's loop.  It ends with its parent: at the next read, or by the kernel if it is computing."""
    try:
        while (frame := _read(requests)) is not None:
            request, cpu_s = pickle.loads(frame)  # noqa: S301  from our parent, over a pipe nobody else has
            _bound_cpu(time.process_time() + cpu_s + _MARGIN_S)
            try:
                reply = ["reply", handler(request)]
            except MemoryError:
                reply = ["memory", None]
            _write(replies, json.dumps(reply).encode("ascii"))
    finally:
        os._exit(1)


def _bound_cpu(until_s: float) -> None:
    """Have the kernel end this process by then, unless an administrator has set it an earlier end."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(until_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 where the platform cannot tell, so that wall time decides (see workers.py)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _write(fd: int, payload: bytes) -> None:
    data = memoryview(_HEADER.pack(len(payload)) + payload)
    while data:
        data = data[os.write(fd, data) :]


def _read(fd: int) -> bytes | None:
    header = _exactly(fd, _HEADER.size)
    return None if header is None else _exactly(fd, _HEADER.unpack(header)[0])


def _exactly(fd: int, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = os.read(fd, count - len(parts))
        if not part:
            return None
        parts += part
    return parts
