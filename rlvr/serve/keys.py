"""API keys: one, or several with names from a file that is read again when it changes."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import time
from pathlib import Path

from rlvr.errors import UsageError

__all__ = ["Keys", "LEAST_KEY_LETTERS", "given_key"]

LEAST_KEY_LETTERS = 16
"""Of a key where other machines can reach the service: shorter ones can be guessed."""

_LOOK_S = 1.0

_log = logging.getLogger("rlvr.serve")


class Keys:
    """The keys that callers may send.

    Args:
        key: the only key, which has no name; None for none.
        file: a file with a name and a key in each line, and comments behind #.  It is read again when it changes, so
            that a key is revoked by removing its line; while it cannot be read the keys stay as they were.

    Raises:
        UsageError: a key is blank or no header can carry it, or the file cannot be read or holds no key.
    """

    def __init__(self, key: str | None = None, file: Path | None = None) -> None:
        self._file = file
        self._looked = 0.0
        self._stamp: tuple[int, int, int] | None = None
        self._own = {} if key is None else {_checked(key, "the API key"): ""}
        self._named: dict[bytes, str] = {}
        if file is not None:
            self._read(file)

    @property
    def any(self) -> bool:
        """Whether a key is wanted at all."""
        return bool(self._own) or self._file is not None

    @property
    def shortest(self) -> int:
        """Letters of the shortest key."""
        return min(map(len, self._own | self._named), default=0)

    def caller(self, authorization: str) -> str | None:
        """The name of the caller; empty for the key without a name, None if the header carries no key.

        The key may come as Bearer, or as the password of Basic, for callers that can be given a URL and nothing else:
        http://any:KEY@host.

        Args:
            authorization: the value of the header; empty if there was none.
        """
        given = given_key(authorization)
        if given is None:
            return None
        self._look()
        found = None
        for key, name in (*self._own.items(), *self._named.items()):
            if hmac.compare_digest(
                given, key
            ):  # each of them, so that the time says nothing of which it is
                found = name
        return found

    def _look(self) -> None:
        """Read the file again if it has changed."""
        now = time.monotonic()
        if self._file is None or now - self._looked < _LOOK_S:
            return
        try:
            if _stamp(self._file) != self._stamp:
                self._read(self._file)
        except (OSError, UsageError) as error:
            _log.error("the keys stay as they were: %s", error)
        self._looked = now

    def _read(self, file: Path) -> None:
        try:
            self._stamp = _stamp(file)
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the file of keys cannot be read: {error}") from error
        named: dict[bytes, str] = {}
        for number, line in enumerate(lines, 1):
            parts = line.partition("#")[0].split()
            if parts and len(parts) != 2:
                raise UsageError(
                    f"{file}, line {number}, has {len(parts)} words; write a name and a key"
                )
            if parts:
                key = _checked(parts[1], f"{file}, line {number}: the key")
                if key in named or key in self._own:
                    raise UsageError(
                        f"{file}, line {number}: this key is there twice; give each caller its own"
                    )
                named[key] = parts[0]
        if not named:
            raise UsageError(f"{file} holds no key; write lines of a name and a key")
        self._named = named


def given_key(authorization: str) -> bytes | None:
    """The key in a header, see `Keys.caller`; None if it carries none.

    Args:
        authorization: the value of the header; empty if there was none.
    """
    scheme, _, credentials = authorization.partition(" ")
    given = credentials.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return None
    return given if scheme.lower() == "bearer" else None


def _checked(key: str, what: str) -> bytes:
    if not key.strip():
        raise UsageError(
            f"{what} is blank; set one of {LEAST_KEY_LETTERS} letters or more, or none at all"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(
            f"{what} has spaces, line ends or letters beyond ASCII; use letters and digits"
        )
    return key.encode()


def _stamp(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
