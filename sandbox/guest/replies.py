"""A box's reply to the host: one record of fixed size in one buffer, which is
zeroed when it has been sent.

Programs are forked from a box.  A reply in JSON would stay in freed memory of the box, and the next
program could read there how the one before had ended.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Final

__all__ = ["Buffer", "RECORD", "TOLD", "unpack_reply"]

TOLD: Final = 4096  # bytes of what a program's process tells its box
_KILLED: Final = (
    "",
    "cpu",
    "wall",
    "memory",
    "output",
    "disk",
    "files",
    "processes",
    "hidden",
    "partner",
)
_RECORD = struct.Struct("<BQiBQdddBH")
RECORD: Final = _RECORD.size
"""Bytes of a reply without what was told."""
_MARK = 1  # the first byte: what the zygote sends is JSON


class Buffer:
    """The memory of one box for all its replies."""

    def __init__(self) -> None:
        self._bytes = bytearray(_RECORD.size + TOLD)
        self._told = 0

    def listen(self, pipe: int) -> None:
        """Take in what the program's process told.

        Args:
            pipe: its reading end.
        """
        # Into the buffer itself: no object with the program's text is made.
        self._told = os.readv(pipe, [memoryview(self._bytes)[_RECORD.size :]])

    def told(self, text: bytes) -> bool:
        """True if that is what was told.

        Args:
            text: at most some bytes.
        """
        return self._told == len(text) and self._bytes.startswith(text, _RECORD.size)

    @property
    def silent(self) -> bool:
        """Nothing was told."""
        return not self._told

    def text(self) -> str:
        """What was told."""
        return self._bytes[_RECORD.size : _RECORD.size + self._told].decode(errors="replace")

    def filled(self, reply: Mapping[str, object]) -> memoryview:
        """The reply, to be sent.

        Args:
            reply: by name; `unpacked` returns the same.
        """
        _RECORD.pack_into(
            self._bytes,
            0,
            _MARK,
            reply["id"],
            reply["status"],
            _KILLED.index(reply["killed"]),
            reply["rss_kib"],
            reply["cpu_s"],
            reply["wall_s"],
            reply.get("starved_s", 0.0),
            reply.get("case", 0),
            self._told,
        )
        return memoryview(self._bytes)[: _RECORD.size + self._told]

    def wipe(self) -> None:
        """Zero it."""
        # In place, as a new object would leave the old bytes in freed memory.
        self._bytes[:] = bytes(len(self._bytes))
        self._told = 0


def unpack_reply(message: bytes) -> dict[str, object]:
    """The message, on the host: a box's reply, or what a zygote says in JSON.

    Args:
        message: what was sent.

    Returns:
        By name; "case" is the number of the run, when a request asked for several.
    """
    # JSON begins with "{", never with the mark.
    if message[0] != _MARK:
        message_dict: dict[str, object] = json.loads(message)
        return message_dict
    _, number, status, killed, rss_kib, cpu_s, wall_s, starved_s, case, text_size = (
        _RECORD.unpack_from(message)
    )
    text = message[_RECORD.size : _RECORD.size + text_size].decode(errors="replace")
    return {
        "id": number,
        "status": status,
        "killed": _KILLED[killed],
        "rss_kib": rss_kib,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "starved_s": starved_s,
        "case": case,
        "told": text,
    }
