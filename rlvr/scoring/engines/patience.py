"""How long work that no machine does is tried again: a time, whatever the number
of machines and attempts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlvr.validate import require_number

__all__ = ["PATIENCE_S", "Patience", "require_patience"]

PATIENCE_S = 300.0
"""Seconds in which a service is started anew on another machine, or a cluster adds a node."""

_SHOWN = 8  # machines that an error names


class Patience:
    """The patience with one piece of work.  It runs from the first failure on, and
    anew after each success.

    Args:
        seconds: how long the work is tried again; 0 for one attempt.
        names: of the machines, as errors show them.
    """

    def __init__(self, seconds: float, names: Sequence[str]) -> None:
        self._seconds, self._names = seconds, names
        self._since: float | None = None  # the first failure since the last success
        self._problems: dict[int, str] = {}

    def failed(self, place: int, problem: str) -> None:
        """Note a failure.

        Args:
            place: of the machine among the names.
            problem: what happened.
        """
        # Put at the end, so that an error names the latest ones.
        self._problems.pop(place, None)
        self._problems[place] = problem
        if self._since is None:
            self._since = time.monotonic()

    def succeeded(self) -> None:
        """Begin anew: a part of the work was done."""
        self._since = None
        self._problems.clear()

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        waited_s = 0.0 if self._since is None else time.monotonic() - self._since
        return max(0.0, self._seconds - waited_s)

    @property
    def is_spent(self) -> bool:
        """Whether the work is given up."""
        return self._since is not None and not self.left_s

    def __str__(self) -> str:
        """What failed, for an error: the time, and the last problem of each machine."""
        waited_s = 0.0 if self._since is None else time.monotonic() - self._since
        last = list(self._problems.items())[-_SHOWN:]
        problems = "; ".join(f"{self._names[place]}: {problem}" for place, problem in last)
        unshown = len(self._problems) - len(last)
        return f"no answer in {waited_s:.0f} s: {problems}" + (
            f"; and {unshown} more" if unshown else ""
        )


def require_patience(seconds: float) -> float:
    """The seconds, if they are some.

    Args:
        seconds: 0 for one attempt.

    Raises:
        UsageError: they are no number, or below 0.
    """
    return require_number("patience_s", seconds, 0)
