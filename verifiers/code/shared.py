"""Sandboxes that all judges of this process share, one for each combination of settings."""

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
    """The sandbox with these settings; made at the first call, closed when the process ends.

    Args:
        workers, python, packages, allow_missing: see `rlvr.sandbox.Sandbox`.

    Raises:
        UsageError: a setting cannot work.
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
    """Replace the lock: a thread that does not exist in this process may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
