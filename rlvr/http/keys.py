"""API keys: one, or several with names from a file that is read again when it changes."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rlvr.errors import UsageError

__all__ = ["Caller", "KeyCheck", "Keys", "LEAST_KEY_LETTERS", "given_key"]

LEAST_KEY_LETTERS = 16
"""Of a key where other machines can reach the service: shorter ones can be guessed."""

_RIGHTS = frozenset(("metrics", "score"))  # that routes ask for, see `rlvr.http.application.Route`
_COMMENT = re.compile(r"(?:^|[ \t])#.*", re.DOTALL)

_LOOK_S = 0.5  # between two readings of the file: a change holds within a second
_MOST_FILE_BYTES = 1 << 20

_log = logging.getLogger("rlvr.http")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the key; "" for the key without a name, and where no key is wanted.
        rights: what the key may ask for; None for everything.
    """

    name: str = ""
    rights: Set[str] | None = None


class KeyCheck(Protocol):
    """Who may ask.

    Attributes:
        challenge: the header `WWW-Authenticate` of a refusal.
        refusal: what a caller without a key is told.
    """

    challenge: str
    refusal: str

    @property
    def any(self) -> bool:
        """Whether a key is wanted at all."""

    def caller(self, authorization: str) -> object | None:
        """Who sends this header; None for nobody that may ask.

        Args:
            authorization: the value of the header `Authorization`; empty if there was none.
        """


@dataclass(frozen=True, slots=True)
class _Key:
    caller: Caller
    until: float | None  # seconds since 1970; None for ever


class Keys:
    """The keys that callers may send.

    Args:
        key: the only key, which has no name; None for none.
        file: a file with a name and a key in each line, and comments behind # at the beginning or
            behind a space.  Behind the key there may be `until=2027-01-31` or a time in ISO 8601,
            UTC unless it says otherwise, and `rights=score,metrics`.  The file is read again all
            the time: a key is revoked, added or replaced within a second.  A line that cannot be
            read loses its own key, and a file that cannot be read, or is gone or empty, all of
            them.
        schemes: of the header, in small letters.
        challenge, refusal: see `KeyCheck`.

    Raises:
        UsageError: at the start a key is blank or no header can carry it, a line is wrong, or the
            file cannot be read or holds no key.
    """

    def __init__(
        self,
        key: str | None = None,
        file: Path | None = None,
        *,
        schemes: Set[str] = frozenset({"bearer", "basic"}),
        challenge: str = "Bearer",
        refusal: str = (
            "this service wants its API key; send the header 'Authorization: Bearer KEY'"
        ),
    ) -> None:
        self.challenge, self.refusal = challenge, refusal
        self._schemes, self._file = schemes, file
        self._looked, self._least_letters = 0.0, 0
        self._text: str | None = None
        self._own = {} if key is None else {_check_key(key, "the API key"): _Key(Caller(), None)}
        self._named: dict[bytes, _Key] = {}
        if file is not None:
            self._text = _read(file)
            self._named = dict(self._keys(file, self._text, _raise))
            if not self._named:
                raise UsageError(f"{file} holds no key; write lines of a name and a key")

    @property
    def any(self) -> bool:
        """Whether a key is wanted at all."""
        return bool(self._own) or self._file is not None

    def require_letters(self, least: int, where: str) -> None:
        """Refuse keys that are too short, now and in each later content of the file.

        Args:
            least: letters of a key.
            where: the address that others can reach, for the error.

        Raises:
            UsageError: a key has fewer.
        """
        self._least_letters = least
        shortest = min(map(len, self._own | self._named), default=least)
        if shortest < least:
            raise UsageError(
                f"a key has {shortest} letters, and other machines can reach {where}; use {least} "
                f"or more, such as those of `openssl rand -hex 16`"
            )

    @property
    def problem(self) -> str:
        """Why no caller can be let in; "" if there is a key that holds."""
        if self._file is None:
            return ""
        self._look()
        current_time = time.time()
        holds = [
            key for key in self._named.values() if key.until is None or current_time < key.until
        ]
        return "" if holds or self._own else "no key of the key file holds"

    def caller(self, authorization: str) -> Caller | None:
        """The caller with this key; None if the header carries none that holds.

        The key may come as Bearer, or as the password of Basic, for callers that can be given a URL
        and nothing else: http://any:KEY@host.

        Args:
            authorization: the value of the header; empty if there was none.
        """
        key_bytes = given_key(authorization, self._schemes)
        if key_bytes is None:
            return None
        self._look()
        holder = None
        for key, entry in (*self._own.items(), *self._named.items()):
            # each one: the time says nothing of which it is
            if hmac.compare_digest(key_bytes, key):
                holder = entry
        # Looked at when it is used: a key ends by the clock, without an edit.
        if holder is None or (holder.until is not None and time.time() >= holder.until):
            return None
        return holder.caller

    def _look(self) -> None:
        """Read the file again.  Its content is compared: an edit within a tick of the clock keeps
        time and size."""
        looked_at = time.monotonic()
        if self._file is None or looked_at - self._looked < _LOOK_S:
            return
        self._looked = looked_at
        try:
            text = _read(self._file)
        # A file that has gone lets no caller in, rather than all.
        except UsageError as error:
            if self._text is not None:
                _log.error("no key holds any more: %s", error)
            self._text, self._named = None, {}
            return
        if text != self._text:
            self._text = text
            self._named = dict(
                self._keys(self._file, text, lambda why: _log.error("a key is left out: %s", why))
            )

    def _keys(
        self, file: Path, text: str, on_wrong: Callable[[str], None]
    ) -> Iterator[tuple[bytes, _Key]]:
        """The keys of a file's lines."""
        # A key that is there twice would be of two callers.
        keys_so_far = set(self._own)
        # By line ends alone: what else `splitlines` takes for one could hide a key in a comment.
        for number, line in enumerate(text.split("\n"), 1):
            words = _COMMENT.sub("", line).split()
            if not words:
                continue
            try:
                key, entry = _key_of(words)
                if len(key) < self._least_letters:
                    raise UsageError(f"the key has {len(key)} letters; use {self._least_letters}")
                if key in keys_so_far:
                    raise UsageError("this key is there twice; give each caller its own")
            except UsageError as error:
                on_wrong(f"{file}, line {number}: {error}")
                continue
            keys_so_far.add(key)
            yield key, entry


def given_key(
    authorization: str, schemes: Set[str] = frozenset({"bearer", "basic"})
) -> bytes | None:
    """The key in a header, see `Keys.caller`; None if it carries none.

    Args:
        authorization: the value of the header; empty if there was none.
        schemes: that are taken, in small letters.
    """
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() not in schemes:
        return None
    key_bytes = credentials.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            # The name before the colon does not matter (RFC 7617).
            return base64.b64decode(key_bytes, validate=True).partition(b":")[2]
        except binascii.Error:
            return None
    return key_bytes


def _key_of(words: list[str]) -> tuple[bytes, _Key]:
    """The key of a line.

    Raises:
        UsageError: it is none.
    """
    if len(words) < 2:
        raise UsageError("it has 1 word; write a name and a key")
    name, key, *options = words
    if not name.isprintable():
        raise UsageError("its name has signs that cannot be printed, or is not UTF-8")
    # Whether a part of the key or a comment was meant, a shorter key must not come of it.
    if "#" in key:
        raise UsageError("the key has a #; write a space before a comment, or another key")
    values: dict[str, str] = {}
    for word in options:
        what, equals, value = word.partition("=")
        if what not in ("until", "rights") or not equals or what in values:
            raise UsageError(
                f"{word[:40]!r} stands behind the key; until=2027-01-31 and rights=score,metrics "
                f"may, each once and without spaces"
            )
        values[what] = value
    until = _seconds(values["until"]) if "until" in values else None
    rights = frozenset(values["rights"].split(",")) if "rights" in values else None
    if rights is not None and not rights <= _RIGHTS:
        raise UsageError(
            f"rights={values['rights'][:40]}: write one or more of {','.join(sorted(_RIGHTS))}"
        )
    return _check_key(key, "the key"), _Key(Caller(name, rights), until)


def _seconds(text: str) -> float:
    try:
        time_of = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"until={text[:40]}: {error}; write until=2027-01-31T12:00:00") from None
    # Without a zone it is UTC, so that two machines agree.
    return (time_of if time_of.tzinfo else time_of.replace(tzinfo=UTC)).timestamp()


def _check_key(key: str, what: str) -> bytes:
    if not key.strip():
        raise UsageError(
            f"{what} is blank; set one of {LEAST_KEY_LETTERS} letters or more, or none at all"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(
            f"{what} has spaces, line ends or letters beyond ASCII; use letters and digits"
        )
    return key.encode()


def _read(file: Path) -> str:
    try:
        # What is opened is looked at, so that no other file takes its place in between; a pipe that
        # nothing is written to does not stop the service.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise UsageError(f"the file of keys, {file}, is no ordinary file, which it must be")
            content = opened.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the file of keys cannot be read: {error}") from error
    if len(content) > _MOST_FILE_BYTES:
        raise UsageError(f"the file of keys, {file}, has more than {_MOST_FILE_BYTES:,} bytes")
    return content.decode("utf-8", "surrogateescape")  # a line that is none loses its own key


def _raise(why: str) -> None:
    raise UsageError(why)
