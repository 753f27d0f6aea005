"""The limits of the service: sizes and times that requests must keep to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rlvr.errors import UsageError
from rlvr.validate import require_number

__all__ = ["ServiceLimits"]


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """Sizes and times that requests must keep to.  A limit is a finite number above 0.

    Attributes:
        body_mib: Greatest size of a request's body, in MiB.
        request_rows: Greatest number of rows in a request.
        queue_rows: Greatest number of rows of an environment that wait or are being scored; beyond it, status 429.
        body_values: Greatest number of values in a request's body: texts, and items of lists and objects.
        held_mib: Memory for the rows of all requests and the answers that are not read yet, in MiB; beyond it, 429.
        body_s: Seconds within which the body of a request must arrive.
        request_s: Seconds within which a request must be answered.
        drain_s: Seconds that requests under way get to finish when the service is told to stop.
        stall_s: Seconds within which a caller must read the next part of its answer, or is cut off.
        head_s: Seconds within which a connection must send the head of a request.
        connections: Greatest number of connections; beyond it the longest idle one is closed, and if none is idle, 503.
        peer_connections: The same for the connections of one address.
        remembered_mib: Greatest size of the responses that are kept for requests sent again with the same id, in MiB.

    Raises:
        UsageError: a limit is no finite number above 0, or a request of the greatest size would not fit the queue.
    """

    body_mib: float = 32
    request_rows: int = 4096
    queue_rows: int = 16384
    body_values: int = 200_000
    held_mib: float = 256
    body_s: float = 60
    request_s: float = 600
    drain_s: float = 30
    stall_s: float = 30
    head_s: float = 10
    connections: int = 1000
    peer_connections: int = 500
    remembered_mib: float = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            require_number(field.name, getattr(self, field.name), above=0)
        for part, whole in (("request_rows", "queue_rows"), ("body_mib", "held_mib")):
            if getattr(self, part) > getattr(self, whole):
                raise UsageError(
                    f"{part} is {getattr(self, part)} and {whole} {getattr(self, whole)}; a request of the greatest "
                    f"size has to fit, so {whole} must be at least {part}"
                )
