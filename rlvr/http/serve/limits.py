"""The limits of the service: what it adds to those of every application."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.http.limits import HttpLimits

__all__ = ["ServiceLimits"]


@dataclass(frozen=True, kw_only=True)
class ServiceLimits(HttpLimits):
    """Sizes and times that requests must keep to.  A limit is a finite number above 0.

    Attributes:
        request_rows: Greatest number of rows in a request.
        queue_rows: Greatest number of rows of an environment that wait or are being scored; beyond
            it, status 429.
        request_s: Seconds within which a request must be answered.
        remembered_mib: Greatest size of the responses that are kept for requests sent again with
            the same id, in MiB.

    Raises:
        UsageError: a limit is no finite number above 0, or a request of the greatest size would not
            fit the queue.
    """

    request_rows: int = 4096
    queue_rows: int = 16384
    request_s: float = 600
    remembered_mib: float = 64

    def __post_init__(self) -> None:
        HttpLimits.__post_init__(self)
        self._require_room("request_rows", "queue_rows")
