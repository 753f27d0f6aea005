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
from contextlib import AbstractContextManager, suppress
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
    return _Timer() if is_main else _Watched()


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


class _Watched:
    """Of other threads, which a thread of ours watches.

    An exception that comes as `__exit__` begins leaves it watched until it is freed.

    Attributes:
        thread: that reads.
        began_s: the clock of that thread when it was first looked at; None before.
        is_late: whether `OutOfTime` was raised in it.
    """

    began_s: float | None = None
    is_late = _is_watched = False

    def __enter__(self) -> None:
        self.thread = threading.get_ident()
        self._is_watched = _WATCHER.add(self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._is_watched:
            return
        while self._is_watched:
            try:
                self.end()
            except OutOfTime as late:  # it was on its way
                error = late
        if isinstance(error, OutOfTime):
            raise DataError(str(error)) from error

    def end(self) -> None:
        """Watch it no more."""
        if self._is_watched:
            _WATCHER.remove(self)
            self._is_watched = False

    __del__ = end


class _Watcher:
    """Looks at the readings of other threads, and raises `OutOfTime` in those that take too long.
    Its thread runs while it is of use."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As if nothing was watched yet, such as in a forked child."""
        self._lock = threading.RLock()  # a reading may be freed while it is held
        # by thread; weakly, so that one whose end was interrupted is freed
        self._readings: dict[int, weakref.ref[_Watched]] = {}
        self._is_running = False
        # no time.sleep: whoever replaces that must not make us spin
        self._never = threading.Event()

    def add(self, reading: _Watched) -> bool:
        """Watch a reading; False if it is within another one, whose time ends sooner.

        Args:
            reading: of this thread.
        """
        with self._lock:
            if not self._is_running:
                DaemonThread(self._run, name="reading", owner="environment")
                self._is_running = True
            if self._of(reading.thread) is None:
                self._readings[reading.thread] = weakref.ref(reading)
                return True
            return False

    def remove(self, reading: _Watched) -> None:
        """Watch a reading of this thread no more.

        Args:
            reading: for which no `OutOfTime` is on its way afterwards; one that is raised here
                came meanwhile, and this is to be called again.
        """
        with self._lock:
            if self._of(reading.thread) in (reading, None):
                self._readings.pop(reading.thread, None)
            is_late, reading.is_late = reading.is_late, False
        if is_late:
            _let_come()

    def _of(self, thread: int) -> _Watched | None:
        reading = self._readings.get(thread)
        return None if reading is None else reading()

    def _run(self) -> None:
        while True:
            self._never.wait(_LOOK_S)
            with self._lock:
                # One that an exception ended as `__exit__` began, or that is gone,
                # is in nobody's way.
                for thread in self._readings.keys() - sys._current_frames().keys():
                    del self._readings[thread]
                if not self._readings:
                    self._is_running = False
                    return
                for thread in list(self._readings):
                    reading = self._of(thread)
                    if reading is not None:
                        self._look_at(reading)
                    del reading  # else it could not be freed while this thread waits

    def _look_at(self, reading: _Watched) -> None:
        """Its time counts from the first look: to ask for it at the beginning takes longer than a
        short reference."""
        clock_s = time.clock_gettime(time.pthread_getcpuclockid(reading.thread))
        if reading.began_s is None:
            reading.began_s = clock_s
        elif clock_s - reading.began_s > READ_CPU_S:
            reading.is_late = True
            _raise_in(reading.thread, _ReadTooLong)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _let_come() -> None:
    """Have an exception that may be on its way raised here, and drop it.

    To take it back instead, by NULL, would leave CPython's flag of such exceptions set, where there
    is none: all code is slower then, and hangs under `sys.settrace` (3.11).
    """
    with suppress(OutOfTime):
        for _ in range(100):  # each turn looks at the flag
            pass


_WATCHER = _Watcher()


os.register_at_fork(after_in_child=_WATCHER.begin)
