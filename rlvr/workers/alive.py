"""One table of what runs beside the caller in this process."""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Alive", "Beside", "alive", "describe_alive", "watch"]


class Beside(Protocol):
    """Something that runs beside the caller.

    Attributes:
        kind: thread, loop, process (answers requests), program, or fork.
        label: what it is.
        owner: what it works for.
        since: when it was started, by the monotonic clock.
    """

    kind: str
    label: str
    owner: str
    since: float

    @property
    def number(self) -> int | None:
        """Of the process, or of the thread as the system counts them; None once it has ended."""

    def disown(self) -> None:
        """Called in a forked child: it is the parent's."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A row of the table.

    Attributes:
        kind, name, owner: see `Beside`.
        number: of the process or thread.
        age_s: seconds since it was started.
    """

    kind: str
    name: str
    number: int
    owner: str
    age_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.number}) of {self.owner}, {self.age_s:.1f} s"


# Weak: what is dropped is in no table.
# A dict, since a signal's handler can list one at any moment.
_started: dict[int, weakref.ref[Beside]] = {}


def watch(started: Beside) -> None:
    """Put something into the table; it leaves it when it has ended, or is dropped.

    Args:
        started: what was started.
    """
    # Its number is free again only once it is gone, which takes it out of the table first.
    # The callback holds the dict and no object, so nothing is kept alive by it.
    key = id(started)
    _started[key] = weakref.ref(started, lambda _: _started.pop(key, None))


def alive() -> list[Alive]:
    """What runs beside the caller in this process, the oldest first.

    A process is listed until it was waited for.
    """
    rows = []
    now_s = time.monotonic()
    # A copy: an object may be collected meanwhile, which changes the dict.
    for reference in list(_started.values()):
        started = reference()
        number = None if started is None else started.number
        if started is not None and number is not None:
            age_s = now_s - started.since
            # One line each, whatever a label contains.
            label = " ".join(started.label.split())
            rows.append(Alive(started.kind, label, number, started.owner, age_s))
    return sorted(rows, key=lambda row: -row.age_s)


def describe_alive() -> str:
    """The table as text, with a line that says whose it is."""
    rows = alive()
    lines = [f"process {os.getpid()} has {len(rows)} things beside it", *map(str, rows)]
    return "\n  ".join(lines)


def _forget() -> None:
    # What the parent started is not here; its numbers may be those of other processes.
    for reference in list(_started.values()):
        if (started := reference()) is not None:
            started.disown()
    _started.clear()


os.register_at_fork(after_in_child=_forget)
