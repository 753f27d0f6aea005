"""Memory of requests: each has a share, and all shares together have a limit."""

from __future__ import annotations

import threading

from rlvr.http.refused import Refused

__all__ = ["MIB", "Memory", "MemoryShare"]

MIB = 1 << 20
_RETRY_AFTER_S = 1


class Memory:
    """The bytes that the requests of a service hold.  Safe from any thread.

    Args:
        held_mib: greatest size of all shares together.
    """

    def __init__(self, held_mib: float) -> None:
        self._most, self._mib = held_mib * MIB, held_mib
        self._lock = threading.Lock()
        self.held = 0

    def change(self, share: MemoryShare, size: int, *, to: bool = False) -> None:
        """Change what a share holds.

        Args:
            share: of a request.
            size: in bytes; below 0 for memory that is free again.
            to: whether that is what it holds from now on, and not what is added.

        Raises:
            Refused: it would exceed the limit; nothing is changed then.
        """
        with self._lock:
            # What is less than before is always granted.
            over = size - share.held if to else size
            if over > 0 and self.held + over > self._most:
                raise Refused(
                    429,
                    "memory-full",
                    f"the requests under way have {self.held / MIB:.1f} MiB and {over / MIB:.1f} "
                    f"more would exceed the limit of {self._mib:g} MiB; ask again in "
                    f"{_RETRY_AFTER_S} s",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self.held += over
            share.held += over


class MemoryShare:
    """The memory of one request, until it is released.

    Args:
        memory: of the service.

    Attributes:
        held: bytes.
        taken_over: whether it outlives the request, as its job does.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.held = 0
        self.taken_over = False

    def add(self, size: int) -> None:
        """Hold more.

        Args:
            size: in bytes.

        Raises:
            Refused: the requests together would exceed the limit.
        """
        self._memory.change(self, size)

    def set(self, size: int) -> None:
        """Hold so much from now on.

        Args:
            size: in bytes.

        Raises:
            Refused: see `add`.
        """
        if size != self.held:
            self._memory.change(self, size, to=True)

    def release(self) -> None:
        """Hold nothing any more.  Idempotent."""
        self.set(0)
