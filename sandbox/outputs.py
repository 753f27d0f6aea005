"""What a run wrote, kept in the kernel's memory until it is asked for.

A completion decides how much that is and what it contains.  So the process that trains or scores
only passes it on: to a file of the next program, or to the reader (`reader`), which may die of it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from rlvr.workers.framing import write_all

__all__ = ["Lent", "Output", "Readable", "memfd"]

_SMALL: Final = 1 << 16  # bytes that are kept here: a descriptor costs more than copying them
_PART: Final = 1 << 20  # characters that are encoded at once
_OPEN: Final = 128  # descriptors that outputs may hold; beyond that even large ones are kept here


@dataclass(frozen=True, slots=True)
class Lent:
    """A file in the memory of another process of ours, which keeps it open while we read.

    Attributes:
        pid, fd: the process, and its descriptor.
        size: bytes that count.
    """

    pid: int
    fd: int
    size: int

    def read(self) -> bytes:
        """The bytes.

        Raises:
            OSError: the process has closed it, or is gone.
        """
        # Through /proc: the reader is a process of the same user, and needs no message.
        with Path(f"/proc/{self.pid}/fd/{self.fd}").open("rb") as file:
            return file.read(self.size)


Readable: TypeAlias = "bytes | Lent"
"""What `Output.lent` returns."""


class Output:
    """Bytes that a program wrote.

    Args:
        data: the bytes; see `take` for those that are in a file.

    Attributes:
        size: how many there are.
    """

    __slots__ = ("_data", "_fd", "size")
    _open: ClassVar[int] = 0  # descriptors that outputs hold

    def __init__(self, data: bytes = b"") -> None:
        self._data: bytes | None = data
        self._fd = -1
        self.size = len(data)

    @classmethod
    def take(cls, fd: int, most: int) -> Output:
        """The content of a file in memory.

        Args:
            fd: its descriptor, which is the output's from now on.
            most: bytes that count.
        """
        # A file may be longer than its limit by what was written at once.
        size = min(os.fstat(fd).st_size, most)
        if size <= _SMALL or cls._open >= _OPEN:
            output = cls(os.pread(fd, size, 0) if size else b"")
            os.close(fd)
            return output
        # The class is given no bytes: they stay in the kernel.
        output = cls()
        output._data, output._fd, output.size = None, fd, size
        Output._open += 1
        return output

    @classmethod
    def of_text(cls, text: str | bytes | None) -> Output:
        """A text of ours, in a file where it is large.

        Args:
            text: text or bytes; lone surrogates become the bytes that they stand for.
        """
        text = text or b""
        if len(text) <= _SMALL:
            return cls(_encode_text(text))
        fd = memfd(b"")
        # In parts, as the encoded text would take as much memory again.
        for at in range(0, len(text), _PART):
            write_all(fd, _encode_text(text[at : at + _PART]))
        return cls.take(fd, os.fstat(fd).st_size)

    def read(self) -> bytes:
        """All the bytes, here."""
        return self._data if self._data is not None else os.pread(self._fd, self.size, 0)

    def tail(self, count: int) -> bytes:
        """The last bytes.

        Args:
            count: at most how many.
        """
        if self._data is not None:
            return self._data[-count:]
        return os.pread(self._fd, count, max(0, self.size - count))

    def head(self, count: int) -> bytes:
        """The first bytes.

        Args:
            count: at most how many.
        """
        return self._data[:count] if self._data is not None else os.pread(self._fd, count, 0)

    def part(self, begin: int, size: int) -> Output:
        """Some of the bytes, copied.

        Args:
            begin, size: which.
        """
        if self._data is not None:
            return Output(self._data[begin : begin + size])
        fd = memfd(b"")
        # sendfile copies in the kernel; it may send less than was asked.
        at, end = begin, begin + size
        while at < end:
            at += os.sendfile(fd, self._fd, at, end - at)
        return Output.take(fd, size)

    def copy_to(self, fd: int) -> None:
        """Append the bytes to a file, without reading them here where they are many.

        Args:
            fd: its descriptor.
        """
        if self._data is not None:
            write_all(fd, self._data)
            return
        at = 0
        while at < self.size:
            at += os.sendfile(fd, self._fd, at, self.size - at)

    def lent(self) -> Readable:
        """For another process of ours: the bytes, or where it finds them while this object
        lives."""
        if self._data is not None:
            return self._data
        return Lent(os.getpid(), self._fd, self.size)

    # Pickled as bytes: a descriptor means nothing in another process.
    def __reduce__(self) -> Any:
        return Output, (self.read(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self.read() == other.read()

    def __hash__(self) -> int:
        return hash(self.read())

    def __repr__(self) -> str:
        return repr(self.read()) if self.size <= 200 else f"<{self.size} bytes>"

    def __del__(self) -> None:
        # An object whose __init__ failed has no attributes.
        with contextlib.suppress(AttributeError, OSError):
            if self._fd >= 0:
                Output._open -= 1
                os.close(self._fd)


def _encode_text(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # of those that stand for no byte
        # surrogatepass keeps them as three bytes each, as `Program.contents` does.
        return text.encode("utf-8", "surrogatepass")


def memfd(content: bytes, *, name: str = "rlvr") -> int:
    """A descriptor of a new file in memory, positioned at its start.

    Args:
        content: what it contains.
        name: shown in /proc, for those who debug.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    write_all(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
