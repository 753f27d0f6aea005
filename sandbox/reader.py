"""The reader: a process of ours that reads what untrusted programs wrote, so
that the caller need not.

    caller ─ work, descriptors ─▶ pool's worker ─ fork ─▶ child: reads, compares,
           ◀─ records, what became of it ─┘                      and writes a record per case

No text is too dear to read: the kernel limits the child's memory and CPU time
(`workers.fork_server`).  A child that goes over them, or crashes by a signal of its own, was given
too much by the program, whose fault that is.  A child that was killed from outside, or got no CPU
time, says nothing: the work is done once more in a new one, and then it raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rlvr.errors import SandboxFailed, Unscored, UsageError, foreign_code
from rlvr.workers import WorkerPool, once_per_process, ship, usable_cores
from rlvr.workers.fork_server import OWN_FAULT, ChildLost, ForkServer
from rlvr.workers.framing import write_all

__all__ = ["CPU_S", "MEMORY_MIB", "Reading", "Work", "read_aside", "read_each", "warm_reader"]

CPU_S: Final = 10.0
"""CPU seconds for one piece of work; a program's largest honest output takes about half."""
MEMORY_MIB: Final = 1024
"""Private memory of the reader: two million values take a quarter of it."""
# A child that was killed from outside says nothing about the text: it is read once more.
_TRIES: Final = 2
_LOSSES: Final = 3  # of the things that are read together, until the rest counts as lost
_WALL: Final = 4.0, 5.0  # for each CPU second, and beside them: only a backstop
_TRACE: Final = 4000  # characters
_REASONS: Final = {
    "time": "reading it takes too much CPU time",
    "memory": "reading it takes too much memory",
    "crash": "reading it crashes a reader",
}

Work = Callable[..., Iterator[Any]]
"""Runs in the reader; yields what is to be known here, as JSON-able records."""


class Reading(NamedTuple):
    """What came of reading.

    Attributes:
        records: what the work yielded, up to its end or to its loss.
        lost: why it has no end, by the fault of what was read; "" if it has one.
        cpu_s: CPU seconds of the reader.
    """

    records: list[Any]
    lost: str
    cpu_s: float


def read_aside(work: Work, *args: Any, cpu_s: float = CPU_S, loads: bytes | None = None) -> Reading:
    """Do the work in the reader.

    Args:
        work: a function of a module, called with `args`.
        args: what can be pickled; outputs as `Output.lent`, which the caller keeps alive meanwhile.
        cpu_s: CPU seconds for it.
        loads: a pickle that the work loads, such as a comparator, whose modules are imported before
            the clock runs.

    Raises:
        SandboxFailed: the reader failed, with its traceback; or it was killed, or got no CPU time,
            twice.
        UsageError: the work raised one, about what the user gave it; or `args` cannot be sent.
    """
    item = work, ship(args), cpu_s, loads
    # Time for each attempt, and once more for its start.
    wall_s = _TRIES * (_WALL[0] * cpu_s + _WALL[1]) + _WALL[1]
    failure: Unscored | None = None
    for _ in range(_TRIES):
        [outcome] = _pool().run([item], wall_s=wall_s)
        if not isinstance(outcome, Unscored):
            break
        failure = outcome
    else:
        raise SandboxFailed(f"the reader failed: {failure}") from failure
    records, lost, facts = outcome
    # Raised here: what the caller gave was wrong, and the reader only found it.
    if "usage" in facts:
        raise UsageError(facts["usage"])
    if "fault" in facts:
        raise SandboxFailed(f"the reader failed: {facts['fault']}")
    # Lost from outside at each attempt: that is our fault, not the program's.
    if lost and lost not in OWN_FAULT:
        raise SandboxFailed(f"the reader was lost {_TRIES} times: {lost}")
    reason = _REASONS.get(lost, "")
    return Reading([json.loads(record) for record in records], reason, facts["cpu_s"])


def read_each(
    work: Work, n: int, *args: object, cpu_s: float = CPU_S, loads: bytes | None = None
) -> Reading:
    """`read_aside` for work that yields a record for each of `n` things, from a first one on, its
    last argument.

    Where reading one is lost, its record is the reason, a text, and the reader goes on with the
    next; after three losses the others' is the same.

    Args:
        work: see `read_aside`.
        n: how many records there are at most.
        args: the work's arguments but the last.
        cpu_s: CPU seconds until the first loss, and a quarter of that after each: many dear replies
            must not take so long that the scorer gives up on the completion.
        loads: see `read_aside`.

    Raises:
        SandboxFailed, UsageError: see `read_aside`.
    """
    records: list[object] = []
    lost, losses, used_s = "", 0, 0.0
    while len(records) < n:
        # A quarter of the time after each loss: three losses must not cost three limits.
        reading = read_aside(work, *args, len(records), cpu_s=cpu_s / 4**losses, loads=loads)
        records += reading.records
        used_s += reading.cpu_s
        lost = reading.lost
        if not lost:
            break
        losses += 1
        # After three losses the rest counts as lost, so that time is bounded.
        records += [lost] * (1 if losses < _LOSSES else n - len(records))
    return Reading(records, lost, used_s)


def warm_reader() -> None:
    """Start a reader now, so that the first verdict does not wait for it (a third of a second)."""
    _pool().warm()


class _Worker:
    """What runs in the pool's worker.  The records are written to a file
    that its children inherit."""

    def __init__(self) -> None:
        self._records = os.memfd_create("records")
        self._server = ForkServer(self._work)

    def handle(self, item: tuple[Work, bytes, float, bytes | None]) -> object:
        """Records, the reason of the loss or "", and what the child said."""
        work, args, cpu_s, loads = item
        # In the parent, once: each fork then has the modules loaded.
        if loads is not None:
            _import(loads)
        lost, facts, began = "", {}, time.monotonic()
        for _ in range(_TRIES):
            os.ftruncate(self._records, 0)
            # Children inherit the position of the file too.
            os.lseek(self._records, 0, os.SEEK_SET)
            try:
                facts = self._server.ask(
                    (work, args), cpu_s=cpu_s, wall_s=_WALL[0] * cpu_s + _WALL[1]
                )
                lost = ""
                break
            except ChildLost as loss:
                lost = loss.reason
                # The child cannot say what it used, so at most what the clock says.
                facts = {"cpu_s": min(cpu_s, time.monotonic() - began)}  # at most
                if lost in OWN_FAULT:
                    break
        written = os.pread(self._records, os.fstat(self._records).st_size, 0).decode("ascii")
        # The last line has no end if the child was killed as it wrote.
        return written.split("\n")[:-1], lost, facts

    def _work(self, request: tuple[Work, bytes]) -> dict[str, object]:
        """In the child."""
        work, args = request
        began = time.process_time()
        with foreign_code() as errors:  # ours: what guest bytes may raise, the work has caught
            for record in work(*pickle.loads(args)):  # noqa: S301  from our own process
                write_all(self._records, json.dumps(record).encode("ascii") + b"\n")
            # Only what is small crosses by the pipe; records are in the file.
            return {"cpu_s": time.process_time() - began}
        error = errors[0]
        if isinstance(error, MemoryError):
            # The fork server knows it, and says "memory".
            raise error
        if isinstance(error, UsageError):
            return {"usage": str(error)}
        return {"fault": "".join(traceback.format_exception(error))[-_TRACE:]}


@lru_cache(maxsize=16)
def _import(loads: bytes) -> None:
    with contextlib.suppress(Exception):  # the work will say so
        pickle.loads(loads)  # noqa: S301  from our own process


def _start() -> Callable[[Any], object]:
    return _Worker().handle


@once_per_process
def _pool() -> WorkerPool:
    return WorkerPool(_start, workers=usable_cores(), memory_mib=MEMORY_MIB, quiet=True)
