"""The symbolic engine, from the caller's side: a killable worker that is started when first needed.

A limit reached in the worker is the answer's fault and a verdict: a model must not be able to buy a pause by writing
what nobody can evaluate.  A reference that cannot be read, and a worker that cannot start, are ours and raise.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

from rlvr.errors import DataError, Unscored, WorkerError
from rlvr.verifiers.math.engine import Reply, Request, start
from rlvr.verifiers.math.normal import Decision
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.workers import WorkerPool

__all__ = ["CPU_S", "MEMORY_MIB", "WALL_S", "check_reference", "decide", "warm"]

CPU_S = 1.0
"""CPU seconds for one pair; the clock that decides, since it does not depend on what else the machine does."""
WALL_S = 10.0
"""Wall seconds for one pair: only a backstop."""
MEMORY_MIB = 512
_OUR_S = 20.0  # for a reference alone: it is trusted, and a slow machine must not make it look unreadable

_lock = threading.Lock()
_pool: WorkerPool | None = None


def decide(answer: str, reference: str, policy: MathPolicy) -> Decision:
    """Hold an answer that the normal form left undecided against its reference.

    Raises:
        DataError: the reference cannot be read.
        Unscored: no worker can be started.
    """
    reply = _call((answer, reference, policy), CPU_S, WALL_S)
    if isinstance(reply, Unscored):
        check_reference(reference)  # if it was not the answer, this raises
        return Decision(False, f"too-hard: {_cause(reply)}")
    equal, reason = reply
    if equal is None:
        raise _unreadable(reference, reason)
    return Decision(equal, reason)


@lru_cache(maxsize=4096)
def check_reference(reference: str) -> None:
    """Return if the symbolic engine can read the reference.

    Raises:
        DataError: it cannot, or not in bounded time.
    """
    reply = _call((None, reference, MathPolicy()), _OUR_S, _OUR_S)
    if isinstance(reply, Unscored):
        raise _unreadable(reference, _cause(reply)) from reply
    if reply[0] is None:
        raise _unreadable(reference, reply[1])


def warm() -> None:
    """Start the worker now, so that the first answer does not wait for it (about a second)."""
    _workers().warm()


def _call(request: Request, cpu_s: float, wall_s: float) -> Reply | Unscored:
    """What ended the request, as a value; what kept it from beginning raises."""
    [reply] = _workers().run([request], wall_s=wall_s, cpu_s=cpu_s)
    return reply if isinstance(reply, Unscored) else (reply[0], reply[1])


def _workers() -> WorkerPool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = WorkerPool(start, workers=1, spares=1, memory_mib=MEMORY_MIB, quiet=True)
        return _pool


def _after_fork() -> None:
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)  # the lock may be held, and the workers are the parent's


def _cause(error: Unscored) -> str:
    return f"{error.reason} {error.kind}" if isinstance(error, WorkerError) else error.reason


def _unreadable(reference: str, reason: str) -> DataError:
    return DataError(
        f"the reference {reference[:200]!r} cannot be read ({reason}); give a number, plain LaTeX, a list or words"
    )
