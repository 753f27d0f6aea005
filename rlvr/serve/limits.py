"""What one caller may ask of the service, and how long it may take."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from rlvr.errors import UsageError

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one caller may ask of the service, and how long it may take.

    Attributes:
        body_mib: of a request.
        request_rows: rows of a request.
        queue_rows: rows of an environment that wait or are being scored; beyond them the answer is 429.
        held_mib: of all request bodies that are being read or worked on; beyond them the answer is 429.
        body_s: seconds within which a request's body must have come.
        request_s: seconds within which a request must have been answered.
        drain_s: seconds that are left to the requests under way when the service is told to stop.
        remembered_mib: of answers that are kept for requests that come again with the same id.

    Raises:
        UsageError: a limit that is no number above 0, or a request that could never be queued.
    """

    body_mib: float = 32
    request_rows: int = 4096
    queue_rows: int = 16384
    held_mib: float = 256
    body_s: float = 60
    request_s: float = 600
    drain_s: float = 30
    remembered_mib: float = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not (0 < value < math.inf):  # false for NaN too
                raise UsageError(f"{field.name} is {value!r}; it must be a finite number above 0")
        for part, whole in (("request_rows", "queue_rows"), ("body_mib", "held_mib")):
            if getattr(self, part) > getattr(self, whole):
                raise UsageError(
                    f"{part} is {getattr(self, part)} and {whole} {getattr(self, whole)}; a request of the greatest "
                    f"size has to fit, so {whole} must be at least {part}"
                )
