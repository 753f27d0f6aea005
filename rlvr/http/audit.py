"""A log of requests: who asked for what, what became of it, and by what it was
decided; no key and no text."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rlvr.errors import UsageError

__all__ = ["AuditLog"]

_log = logging.getLogger("rlvr.http")


class AuditLog:
    """Lines of JSON in a file of bounded size: time, caller, method, path, status, ms.

    A full file becomes `FILE.1`, in place of the one before, so the two have at most twice the
    size.  Several processes may write one file: a line is one write.  A line that cannot be written
    is lost; the first is reported.  A pipe whose reader does not read loses lines, too: no request
    waits for it.

    Args:
        path: the file; lines are added to what it has.
        most_bytes: of the file.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, most_bytes: int = 64 << 20) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._has_failed = self._is_cut_off = False
        try:
            self._fd = self._opened()
        except OSError as error:
            raise UsageError(f"the audit log {path} cannot be written: {error.strerror}") from None

    def write(
        self,
        caller: str,
        method: str,
        path: str,
        status: int,
        took_s: float,
        more: Mapping[str, object],
    ) -> None:
        """Add a line.

        Args:
            caller: name of the key.
            method: of the request.
            path: of the route, not as it was asked for.
            status: of the response.
            took_s: seconds.
            more: what the application adds.
        """
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "caller": caller,
            # Of the client's choosing, so it is cut.
            "method": method[:20],
            "path": path,
            "status": status,
            "ms": round(1000 * took_s, 1),
            **more,
        }
        line = json.dumps(entry).encode() + b"\n"
        try:
            self._make_room()
            self._append(line)
        except OSError as error:
            # Said once: a full disk must not fill the log.
            if not self._has_failed:
                self._has_failed = True
                _log.warning("the audit log %s cannot be written: %s", self._path, error.strerror)

    def _append(self, line: bytes) -> None:
        if self._is_cut_off:  # the line before, which is lost; this one is none of it
            line = b"\n" + line
        # One write a line: O_APPEND keeps lines of several processes apart only if each is whole.
        written = os.write(self._fd, line)
        self._is_cut_off = written < len(line)
        if self._is_cut_off:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._fd)

    def _opened(self) -> int:
        # O_NONBLOCK: opening a FIFO without a reader must not stop the service.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o600)

    def _make_room(self) -> None:
        """Begin a new file where this one is full, unless another process has."""
        own_file = os.fstat(self._fd)
        # Without a name any more it was rotated by another process: then ours is the old one.
        if own_file.st_size < self._most_bytes and own_file.st_nlink:
            return
        # Of two processes one renames it: the other would put the new file in place of this one.
        with suppress(FileNotFoundError, BlockingIOError):
            self._lock()
            if os.path.samestat(own_file, self._path.stat()):
                self._path.replace(Path(f"{self._path}.1"))
        # Opened before the other is closed: if that fails, lines still go somewhere.
        before, self._fd = self._fd, self._opened()
        os.close(before)

    def _lock(self) -> None:
        """Lock the file; without effect in a file system that has no locks.

        Raises:
            BlockingIOError: another process has.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
