"""One sandbox for each way to set it up, shared by all judges of this process."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from rlvr.sandbox import Sandbox

__all__ = ["shared_sandbox"]

_made: dict[tuple[Any, ...], Sandbox] = {}
_lock = threading.Lock()


def shared_sandbox(
    *,
    workers: int | str = "auto",
    python: str | None = None,
    packages: tuple[str, ...] = (),
    allow_missing: frozenset[str] = frozenset(),
) -> Sandbox:
    """The sandbox with these settings; made when it is first asked for, closed when the process ends.

    Raises:
        UsageError: a setting that cannot work.
    """
    key = os.getpid(), workers, python, packages, allow_missing  # a forked child makes its own
    with _lock:
        if key not in _made:
            _made[key] = sandbox = Sandbox(
                workers=workers, python=python, packages=packages, allow_missing=allow_missing
            )
            atexit.register(sandbox.close)
        return _made[key]


def _after_fork() -> None:
    """The lock may have been held by a thread that does not exist here."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
