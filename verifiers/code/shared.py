"""Sandboxes that all judges of this process share, one for each combination of settings."""

from __future__ import annotations

import atexit

from rlvr.sandbox import Sandbox
from rlvr.workers import once_per_process

__all__ = ["shared_sandbox"]


def shared_sandbox(
    *,
    workers: int | str = "auto",
    python: str | None = None,
    packages: tuple[str, ...] = (),
    allow_missing: frozenset[str] = frozenset(),
    level: str = "namespaces",
) -> Sandbox:
    """The sandbox with these settings; made at the first call, closed when the process ends.

    Args:
        workers, python, packages, allow_missing, level: see `rlvr.sandbox.Sandbox`.

    Raises:
        UsageError: a setting cannot work.
    """
    return _sandbox(workers, python, packages, allow_missing, level)


@once_per_process
def _sandbox(
    workers: int | str,
    python: str | None,
    packages: tuple[str, ...],
    allow_missing: frozenset[str],
    level: str,
) -> Sandbox:
    sandbox = Sandbox(
        workers=workers, python=python, packages=packages, allow_missing=allow_missing, level=level
    )
    atexit.register(sandbox.close)
    return sandbox
