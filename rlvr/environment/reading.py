"""When and for how long a reference is read: it is data from a stranger, and
`read` may be code of a user.

Rows that are scored bring their references with them: the caller moves columns, and the worker
reads, where it can be killed.  Tasks of a data set are read once, when they are loaded.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import resource
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import ClassVar, Final, Self

from rlvr.errors import DataError, OutOfTime
from rlvr.workers.thread import DaemonThread

__all__ = [
    "READ_CPU_S",
    "ReadLater",
    "ReadingBudget",
    "is_read_later",
    "limited_reading",
]

READ_CPU_S: Final = 5.0
"""CPU seconds for one reference: a last resort, since verifiers bound
themselves by steps and sizes."""

_LOOK_S: Final = 0.2  # between two looks; of CPU time in the main thread
_SHORT_S: Final = 1e-3  # to a caller's timer that was due meanwhile
_is_later: ContextVar[bool] = ContextVar("references are read later", default=False)


class ReadLater:
    """Within it references are left unread, since the worker that judges will read them."""

    def __enter__(self) -> None:
        self._token = _is_later.set(True)

    def __exit__(self, *exc: object) -> None:
        _is_later.reset(self._token)


def is_read_later() -> bool:
    """Whether this is within a `ReadLater`."""
    return _is_later.get()


class ReadingBudget:
    """Within it the main thread stops to read sooner, so that a costly reference is put off.

    Args:
        cpu_s: CPU seconds for one reference.

    Attributes:
        is_spent: whether one took more: it says nothing of the reference.
    """

    def __init__(self, cpu_s: float) -> None:
        self.cpu_s, self.is_spent = cpu_s, False

    def __enter__(self) -> Self:
        self._token = _budget.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _budget.reset(self._token)


_budget: ContextVar[ReadingBudget | None] = ContextVar("a first attempt to read", default=None)


def limited_reading() -> AbstractContextManager[None]:
    """Refuse a reference that takes too much CPU time of this thread.  A call of C ends first, as
    with any signal.

    The context raises `DataError` if it did.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return _Timer() if is_main else _watched()


class _PutOff(BaseException):
    """A budget is spent.  No `OutOfTime`, which verifiers remember of a reference."""


class _ReadTooLong(OutOfTime):
    def __init__(self) -> None:
        super().__init__(f"it takes more than {READ_CPU_S:g} CPU s to read")


class _Timer:
    """Of the main thread, where signals arrive.  A timer of the caller goes on afterwards.

    An exception that comes as `__exit__` begins leaves it on until it is freed.
    """

    running: ClassVar[weakref.ref[_Timer] | None] = None
    _is_on = False

    def __enter__(self) -> None:
        self.budget, self._outer = _budget.get(), _Timer.running
        self.limit_s = READ_CPU_S if self.budget is None else self.budget.cpu_s
        self.began = time.thread_time()
        self._handler = _get_handler(signal.SIGVTALRM)
        if self._handler is not _look:
            _set_handler(signal.SIGVTALRM, _look)
        _Timer.running = weakref.ref(self)
        look_s = min(_LOOK_S, self.limit_s / 2)
        self._left_s, self._every_s = signal.setitimer(signal.ITIMER_VIRTUAL, look_s, look_s)
        self._is_on, self._began_user_s = True, _user_s() if self._left_s else 0.0

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end()
        if isinstance(error, (OutOfTime, _PutOff)):
            raise DataError(str(error)) from error

    def end(self) -> None:
        """Look no more."""
        if not self._is_on:
            return
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _Timer.running, self._is_on = self._outer, False
        if self._handler not in (_look, signal.SIG_DFL):
            _set_handler(signal.SIGVTALRM, self._handler)
        if self._left_s:
            left_s = max(self._left_s - (_user_s() - self._began_user_s), _SHORT_S)
            signal.setitimer(signal.ITIMER_VIRTUAL, left_s, self._every_s)

    __del__ = end


_ENDING: Final = (_Timer.__exit__.__code__, _Timer.end.__code__)


def _look(_: int, frame: FrameType | None) -> None:
    """Stays installed, since setting a handler takes longer than a short reference.  A signal that
    comes late, after the reading, ends nothing."""
    timer = None if _Timer.running is None else _Timer.running()
    if timer is None or (frame is not None and frame.f_code in _ENDING):
        return
    if time.thread_time() - timer.began > timer.limit_s:
        if timer.budget is None:
            raise _ReadTooLong
        timer.budget.is_spent = True
        raise _PutOff


# Python's own functions around these two make members of an enum.
_get_handler, _set_handler = inspect.unwrap(signal.getsignal), inspect.unwrap(signal.signal)


def _user_s() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


class _Watcher:
    """Within it a thread is watched by another, which raises `OutOfTime` in it and
    runs while it is of use."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As if nothing was watched yet, such as in a forked child."""
        self._lock = threading.Lock()
        self._began: dict[int, float] = {}  # thread → its clock at the beginning
        self._late: set[int] = set()  # threads in which it was raised
        self._is_running = False
        # no time.sleep: whoever replaces that must not make us spin
        self._never = threading.Event()

    def __enter__(self) -> None:
        with self._lock:
            if not self._is_running:
                DaemonThread(self._run, name="reading", owner="environment")
                self._is_running = True
            self._began[threading.get_ident()] = time.thread_time()

    def __exit__(self, *exc: object) -> None:
        """No `OutOfTime` is on its way afterwards; one that comes meanwhile is what this waits
        for."""
        thread = threading.get_ident()
        late: OutOfTime | None = None
        while True:
            try:
                with self._lock:
                    self._began.pop(thread, None)
                    if thread in self._late:
                        _raise_in(thread, None)
                        self._late.discard(thread)
                break
            except OutOfTime as error:
                late = error
        if late is not None:
            raise late

    def forget(self) -> None:
        """This thread is not watched any more, however its reading ended."""
        with self._lock:
            self._began.pop(threading.get_ident(), None)
            self._late.discard(threading.get_ident())

    def _run(self) -> None:
        while True:
            self._never.wait(_LOOK_S)
            with self._lock:
                # One that an exception ended as `__exit__` began, or that is gone,
                # is in nobody's way.
                for thread in self._began.keys() - sys._current_frames().keys():
                    del self._began[thread]
                if not self._began:
                    self._is_running = False
                    return
                for thread, began in self._began.items():
                    clock = time.pthread_getcpuclockid(thread)
                    if time.clock_gettime(clock) - began > READ_CPU_S:
                        self._late.add(thread)
                        _raise_in(thread, _ReadTooLong)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next instruction; None takes back one that has not
    come."""
    exception = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


_WATCHER = _Watcher()


class _Within(threading.local):
    reading = False


_WITHIN = _Within()


@contextmanager
def _watched() -> Iterator[None]:
    """Of other threads.
    A generator, which ends what an exception left open as `__exit__` began."""
    if _WITHIN.reading:  # an outer one, whose time ends sooner
        yield
        return
    _WITHIN.reading = True
    try:
        with _WATCHER:
            yield
    except BaseException as error:
        _WATCHER.forget()
        if isinstance(error, OutOfTime):
            raise DataError(str(error)) from error
        raise
    finally:
        _WITHIN.reading = False


def _begin_anew() -> None:
    _WATCHER.begin()
    _WITHIN.reading = False


os.register_at_fork(after_in_child=_begin_anew)
