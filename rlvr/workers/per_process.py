"""Things that a process makes once, at their first use: pools of workers, sandboxes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["once_per_process"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_lock = threading.RLock()  # one for all: what is being made may need another such thing


def once_per_process(make: Callable[_P, _T]) -> Callable[_P, _T]:
    """A decorator: the function runs once for each set of arguments, and later calls get what it
    returned.

    Unlike `functools.cache` it never runs twice at once, whatever the threads do, and a forked
    child makes its own: what the parent made holds processes and pipes that are the parent's.

    Args:
        make: a function of hashable arguments.
    """
    results: dict[tuple[object, ...], _T] = {}

    @wraps(make)
    def get(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # With the process's number, so that a fork makes its own.
        key = os.getpid(), args, tuple(sorted(kwargs.items()))
        with _lock:
            # what a parent made stays in here unused: it is not this process's to close
            if key not in results:
                results[key] = make(*args, **kwargs)
            return results[key]

    return get


def _after_fork() -> None:
    """Replace the lock: a thread that does not exist in this process may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
