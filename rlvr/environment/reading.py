"""When and for how long a reference is read: it is data from a stranger, and `read` may be code of a user.

Rows that are scored bring their references with them: the caller moves columns, and the worker reads, where it can be
killed.  Tasks of a data set are read once, when they are loaded.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from rlvr.errors import DataError, OutOfTime

__all__ = ["READ_CPU_S", "is_read_later", "limited_reading", "read_later"]

READ_CPU_S: Final = 5.0
"""CPU seconds for one reference: a last resort, since verifiers bound themselves by steps and sizes."""

_LOOK_S: Final = 0.2  # of CPU time between two looks
_is_later: ContextVar[bool] = ContextVar("references are read later", default=False)


@contextmanager
def read_later() -> Iterator[None]:
    """Leave references unread meanwhile, since the worker that judges will read them."""
    token = _is_later.set(True)
    try:
        yield
    finally:
        _is_later.reset(token)


def is_read_later() -> bool:
    """Whether `read_later` is on."""
    return _is_later.get()


@contextmanager
def limited_reading() -> Iterator[None]:
    """Refuse a reference that takes too much CPU time of this thread; only in the main thread, as signals are.

    Raises:
        DataError: it did.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.thread_time()

    def look(_: int, frame: FrameType | None) -> None:
        if time.thread_time() - began > READ_CPU_S:
            raise OutOfTime(f"it takes more than {READ_CPU_S:g} CPU s to read")

    before: Any = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_S, _LOOK_S)
    try:
        yield
    except OutOfTime as error:
        raise DataError(str(error)) from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
