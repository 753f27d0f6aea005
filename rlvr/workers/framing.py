"""Frames: how messages are told apart on a pipe or a stream socket.  A frame is 4 bytes, the length
of the payload (little endian), and then the payload.

The guest of the sandbox imports this module too, also in the process of an untrusted program:
standard library only, any Python from 3.10 on.
"""

from __future__ import annotations

import builtins
import os
import struct

__all__ = ["FrameTooLong", "frame_payload", "read_frame", "take_frame", "write_all"]

# our own copy: in the sandbox, the program may change `builtins`
globals().update(__builtins__=dict(vars(builtins)))

_LENGTH = struct.Struct("<I")
_PART_BYTES = 1 << 20  # of one read: a length that is announced but never sent allocates no memory
_read, _write = os.read, os.write


class FrameTooLong(ValueError):
    """The other side announced a payload that is longer than allowed.

    Args:
        length: bytes that it announced; kept as an attribute.
    """

    def __init__(self, length: int) -> None:
        super().__init__(f"a frame of {length} bytes")
        self.length = length


def frame_payload(payload: bytes) -> memoryview:
    """The frame of a payload.

    Args:
        payload: less than 4 GiB.
    """
    return memoryview(_LENGTH.pack(len(payload)) + payload)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`, however many calls that takes.

    Args:
        fd: a descriptor in blocking mode.
        data: what to write.

    Raises:
        OSError: see `os.write`; a part may have been written.
    """
    # Slices of a view copy nothing, however large the payload.
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[_write(fd, unwritten) :]


def read_frame(fd: int, most: int | None = None) -> bytes | None:
    """The payload of the next frame; None if the stream ends before the frame does.

    Args:
        fd: a descriptor in blocking mode.
        most: bytes that the payload may have; None for no limit.

    Raises:
        FrameTooLong: it has more.
        OSError: see `os.read`.
    """
    header = _read_exactly(fd, _LENGTH.size)
    return None if header is None else _read_exactly(fd, _payload_length(header, most))


def take_frame(buffer: bytearray, most: int | None = None) -> bytes | None:
    """Remove the first frame from what was read so far and return its payload; None if it is not
    complete yet.

    Args:
        buffer: bytes in the order in which they were read, from the start of a frame.
        most: bytes that the payload may have; None for no limit.

    Raises:
        FrameTooLong: it has more.
    """
    if len(buffer) < _LENGTH.size:
        return None
    end = _LENGTH.size + _payload_length(buffer, most)
    if len(buffer) < end:
        return None
    payload = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return payload


def _payload_length(header: bytes | bytearray, most: int | None) -> int:
    (length,) = _LENGTH.unpack_from(header)
    # Before anything is read: memory must not be allotted by what the other side says.
    if most is not None and length > most:
        raise FrameTooLong(length)
    return int(length)


def _read_exactly(fd: int, count: int) -> bytes | None:
    parts = []
    while count:
        part = _read(fd, min(count, _PART_BYTES))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
