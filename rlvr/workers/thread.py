"""A thread that runs one function to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rlvr.workers.alive import watch

__all__ = ["DaemonThread"]

_LONGEST_NAME = 60


class DaemonThread(threading.Thread):
    """A thread that has been started, and for which the interpreter does not wait at its end.

    Whoever asked it for something gets exceptions through a future.  One that the function lets
    through is printed to stderr with the thread's name, by `threading.excepthook`.

    A forked child does not have it; what it serves there has to start its own.

    Args:
        function: what it runs.
        args: the function's arguments.
        name: what it is; the thread is called `rlvr-NAME`.
        owner: what it works for.
        kind: "loop" if it runs an event loop.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *args: object,
        name: str,
        owner: str,
        kind: str = "thread",
    ) -> None:
        label = f"rlvr-{name}"[:_LONGEST_NAME]
        super().__init__(target=function, args=args, name=label, daemon=True)
        self.kind, self.label, self.owner = kind, label, owner
        self.since = time.monotonic()
        watch(self)
        self.start()

    @property
    def number(self) -> int | None:
        """As the system counts threads; None once it has ended."""
        return self.native_id if self.is_alive() else None

    def disown(self) -> None:
        """Nothing: `threading` knows that a forked child does not have it."""
