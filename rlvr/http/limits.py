"""Limits of an application: sizes and times that its requests must keep to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rlvr.errors import UsageError
from rlvr.validate import require_number

__all__ = ["HttpLimits"]


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Sizes and times that requests must keep to.  A limit is a finite number above 0.

    Attributes:
        body_mib: Greatest size of a request's body, in MiB.
        body_values: Greatest number of values in a request's body: texts, and items of lists and
            objects.
        held_mib: Memory for the rows of all requests and the answers that are not read yet, in MiB;
            beyond it, 429.
        body_s: Seconds within which the body of a request must arrive.
        drain_s: Seconds that requests under way get to finish when the service is told to stop.
        stall_s: Seconds within which a caller must read the next part of its answer, or is cut off.
        head_s: Seconds within which a connection must send the head of a request.
        connections: Greatest number of connections; beyond it the longest idle one is closed, and
            if none is idle, 503.
        peer_connections: The same for the connections of one address.

    Raises:
        UsageError: a limit is no finite number above 0, or a body of the greatest size would not
            fit the memory.
    """

    body_mib: float = 32
    body_values: int = 200_000
    held_mib: float = 256
    body_s: float = 60
    drain_s: float = 30
    stall_s: float = 30
    head_s: float = 10
    connections: int = 1000
    peer_connections: int = 500

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            require_number(field.name, getattr(self, field.name), above=0)
        self._require_room("body_mib", "held_mib")

    def _require_room(self, part: str, whole: str) -> None:
        """Refuse limits by which a request of the greatest size would never be taken.

        Raises:
            UsageError: they are such.
        """
        if getattr(self, part) > getattr(self, whole):
            raise UsageError(
                f"{part} is {getattr(self, part)} and {whole} {getattr(self, whole)}; a request of "
                f"the greatest size has to fit, so {whole} must be at least {part}"
            )
