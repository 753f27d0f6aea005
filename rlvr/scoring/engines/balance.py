"""Which of several machines gets the next piece of work: the least loaded one that is
not left out for a while."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

__all__ = ["Balance", "ChosenPlace"]

# Seconds for which a machine that failed is left out, twice as long after each further failure:
# one that restarts is back soon, and one that is gone costs an attempt every ten seconds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0


@dataclass(frozen=True, slots=True)
class ChosenPlace:
    """A piece of work that one machine was chosen for.

    Attributes:
        place: of the machine, from 0.
        wait_s: seconds to wait before it is sent: all machines are left out.
        began_at: when it was chosen.
        is_trial: whether the machine failed and has not succeeded since.
    """

    place: int
    wait_s: float
    began_at: float
    is_trial: bool


@dataclass(slots=True)
class _Machine:
    load: int = 0
    pause_s: float = 0.0  # 0 while all is well
    lost_at: float = 0.0
    back_at: float = 0.0
    has_left: bool = False


class Balance:
    """The load of each machine, and which are left out after they failed.  Safe from any thread.

    A machine that failed is left out for a pause that doubles up to ten seconds, and then gets one
    piece of work; if that succeeds it is one of the others again.

    Args:
        count: number of machines.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._machines = [_Machine() for _ in range(count)]
        self._next = 0  # so that machines of equal load take turns

    def add(self) -> int:
        """One more machine; gives its place."""
        with self._lock:
            self._machines.append(_Machine())
            return len(self._machines) - 1

    def leave(self, place: int) -> None:
        """A machine has gone for good.

        Args:
            place: of the machine.
        """
        with self._lock:
            self._machines[place].has_left = True

    @property
    def load(self) -> int:
        """Pieces of work that are under way."""
        with self._lock:
            return sum(machine.load for machine in self._machines if not machine.has_left)

    def take(self) -> ChosenPlace:
        """Choose a machine; every slot is given back.

        Raises:
            LookupError: all have left.
        """
        with self._lock:
            now_s, count = time.monotonic(), len(self._machines)
            order = [(self._next + k) % count for k in range(count)]
            order = [place for place in order if not self._machines[place].has_left]
            if not order:
                raise LookupError("no machine is left")
            fit = [place for place in order if self._is_fit(self._machines[place], now_s)]
            if fit:
                place = min(fit, key=lambda place: self._machines[place].load)
            else:
                # None is fit: the one that comes back first, after a wait.
                place = min(order, key=lambda place: self._machines[place].back_at)
            self._next = place + 1
            machine = self._machines[place]
            machine.load += 1
            wait_s = 0.0 if fit else max(0.0, machine.back_at - now_s)
            return ChosenPlace(place, wait_s, now_s, is_trial=machine.pause_s > 0)

    def give_back(
        self, slot: ChosenPlace, *, is_lost: bool = False, at_least_s: float = 0.0
    ) -> None:
        """The work is done, or its machine failed.

        Args:
            slot: what `take` gave.
            is_lost: whether the machine failed.
            at_least_s: seconds for which it asked to be left alone.
        """
        with self._lock:
            machine = self._machines[slot.place]
            machine.load -= 1
            if not is_lost:
                # Work that began before the loss says nothing of the machine now.
                if slot.began_at >= machine.lost_at:
                    machine.pause_s = 0.0
                return
            # else it is one of many that were lost at the same time
            if slot.began_at >= machine.lost_at:
                machine.pause_s = min(2 * machine.pause_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
                machine.lost_at, machine.back_at = time.monotonic(), 0.0
            # Random, so that callers that failed together do not come back together.
            pause_s = max(at_least_s, machine.pause_s * random.uniform(0.5, 1))
            machine.back_at = max(machine.back_at, time.monotonic() + pause_s)

    def left_out(self) -> list[int]:
        """The machines that failed and have not succeeded since."""
        with self._lock:
            return [
                place
                for place, machine in enumerate(self._machines)
                if machine.pause_s and not machine.has_left
            ]

    def _is_fit(self, machine: _Machine, now: float) -> bool:
        # While it is on trial it gets no second piece.
        return not machine.pause_s or (now >= machine.back_at and not machine.load)
