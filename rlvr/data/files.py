"""Files that are whole or absent, also after a power cut: what a name leads to was on the
disk before it got the name.

write PATH.partial ─▶ fsync ─▶ rename, or link where nothing may be replaced ─▶ fsync of the folder
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import select
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rlvr.errors import UsageError
from rlvr.workers.threads import Threads

__all__ = [
    "Checksummed",
    "lock_file",
    "open_input",
    "publish",
    "read_bounded",
    "real_path",
    "sync_file",
    "sync_folder",
    "whole_file",
    "whole_folder",
    "write_whole",
]

_LARGEST = 256 << 20  # bytes of an identity or a report
_WORTH_A_THREAD = 1 << 20  # bytes
_WRITER_S = 30.0  # for which a named pipe waits for its writer
_LOCK_S = 0.5  # `rlvr view` asks by a lock of an instant whether a file is being written


def sync_file(file: IO[bytes]) -> None:
    """Have the disk hold what was written; without it a power cut can leave an empty file under a
    new name.

    Args:
        file: open for writing.
    """
    file.flush()
    os.fsync(file.fileno())


def lock_file(file: IO[Any]) -> None:
    """Lock a file for the one process that writes it; the lock ends with that process, even if it
    is killed.

    Args:
        file: open.

    Raises:
        BlockingIOError: another process keeps a lock.
        OSError: the file system has no locks.
    """
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            # Asked again and again, and not waited for: another writer may hold it for hours.
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def sync_folder(folder: Path) -> None:
    """Have the disk hold the names in a folder: those that were made, and that others are gone.

    Args:
        folder: the folder.

    Raises:
        OSError: the disk failed; a file system that cannot sync folders is no error.
    """
    entry = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(entry)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot
            raise
    finally:
        os.close(entry)


def publish(partial: Path, path: Path, *, overwrite: bool) -> None:
    """Give a finished file its name, in one step.  The file itself must have been synced.

    Args:
        partial: its name until now, in the same folder.
        path: the name that it gets.
        overwrite: whether it may replace another file.

    Raises:
        UsageError: there is another file, and it may not be replaced; `partial` stays.
    """
    if overwrite:
        partial.replace(path)
    else:
        try:
            os.link(partial, path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise UsageError(
                f"{path} was made by another program meanwhile and is left as it is; what this run "
                f"wrote is whole and stands in {partial}: give it another name"
            ) from None
        except OSError:  # a file system without links
            if path.exists():
                raise UsageError(
                    f"{path} exists; what this run wrote stands in {partial}"
                ) from None
            # Without links nothing can refuse a file that another program makes just now.
            partial.replace(path)
        else:
            sync_folder(path.parent)  # or a power cut could take both names
            # another run may have seen that it is the output's second name
            partial.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def whole_file(path: Path, *, overwrite: bool = True) -> Iterator[IO[bytes]]:
    """A file to write, which gets its name when the block ends well; otherwise nothing is left of
    it.

    Args:
        path: the name that it gets.
        overwrite: whether it may replace another file.

    Raises:
        UsageError: see `publish`.
    """
    partial = Path(f"{path}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            # On the disk before it gets its name, or a power cut could leave it empty.
            sync_file(file)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    publish(partial, path, overwrite=overwrite)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when the block ends well; otherwise nothing is
    left of it.

    A folder that is there is replaced.  Unlike with files this takes two steps: between them the
    old one is `PATH.old`.

    Args:
        path: the name that it gets.
    """
    new, old = (Path(f"{path}{ending}") for ending in (".partial", ".old"))
    for left_behind in (new, old):
        shutil.rmtree(left_behind, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        # The files first, then the folder, and all before it gets its name.
        for written in new.rglob("*"):
            if written.is_file():
                with written.open("rb+") as file:
                    sync_file(file)
        sync_folder(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if path.exists():
        # In two steps: `rename` replaces no folder that is not empty.
        path.rename(old)
    new.rename(path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def open_input(path: Path) -> io.BufferedReader:
    """Open a file to read it from its beginning.

    Args:
        path: the file or pipe.

    Raises:
        OSError: it cannot be opened; when it is read, no program has opened a named pipe to write
            within 30 s.
    """
    if not path.is_fifo():
        return path.open("rb")
    # Otherwise opening would wait for a writer, for ever if none comes.
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return io.BufferedReader(_Pipe(file, path))


class _Pipe(io.RawIOBase):
    """A named pipe."""

    def __init__(self, file: io.FileIO, path: Path) -> None:
        self._file, self._path, self._is_open = file, path, False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int | None:
        if not self._is_open:
            poll = select.poll()
            poll.register(self._file, select.POLLIN)
            # Ends at the first bytes, and where a writer has gone: also before this pipe was
            # opened, if it has no name (`<(true)` of a shell).
            is_ready = bool(poll.poll(_WRITER_S * 1000))
            size = self._file.readinto(buffer)
            if size == 0 and not is_ready:
                why = f"a pipe that no program wrote to within {_WRITER_S:g} s; give a file"
                raise OSError(errno.EPIPE, why, str(self._path))
            self._is_open = True
            os.set_blocking(self._file.fileno(), True)
            if size is not None:  # None: a writer is there, which takes its time
                return size
        return self._file.readinto(buffer)


def real_path(path: Path) -> Path:
    """The path to which links lead; unlike `Path.resolve` no error where they lead in a circle.

    Args:
        path: of a file or folder, which need not exist.
    """
    return Path(os.path.realpath(path))


def read_bounded(path: Path) -> bytes:
    """The content of a file of which no more than 256 MiB are read.

    Args:
        path: the file, which may be a stranger's.

    Raises:
        UsageError: it has more.
    """
    with open_input(path) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise UsageError(f"{path} has more than {_LARGEST >> 20} MiB; rlvr writes no such file")
    return content


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; one that is there is replaced.

    Args:
        path: the file.
        data: its content.
    """
    with whole_file(path) as file:
        file.write(data)


class Checksummed:
    """A file that is written from its start to its end, with the checksum of what was written.

    Attributes:
        crc32: of all bytes so far.

    Args:
        file: where they go.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        # both are C code that lets other threads run
        self._beside = Threads(1, "checksum")
        self.crc32 = 0

    def write(self, data: bytes) -> int:
        """Write all of it.

        Args:
            data: bytes, or what has them in one piece, such as a memoryview.
        """
        # A hop to the thread costs more than the checksum of a small piece.
        if len(data) < _WORTH_A_THREAD:
            self.crc32 = zlib.crc32(data, self.crc32)
            return self._file.write(data)
        crc32 = self._beside.submit(zlib.crc32, data, self.crc32)
        try:
            return self._file.write(data)
        finally:
            # Also after an error: the caller may use the buffer for something else next.
            self.crc32 = crc32.result()

    def flush(self) -> None:
        """Hand it to the system."""
        self._file.flush()
