"""Requests that are not answered with what they ask for."""

from __future__ import annotations

__all__ = ["Refused"]

# The rest of the body is not read, or another service takes over.
_CLOSING = (401, 408, 413, 431, 503)


class Refused(Exception):
    """A request that is not answered with what it asks for.  The message is one line: the
    value, the rule and the fix.

    Args:
        status: the HTTP status.
        reason: short and stable, counted in the metrics.
        message: what the caller is told.
        retry_after_s: seconds after which the request may be sent again; None if it would be
            refused again.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return self.status in _CLOSING
