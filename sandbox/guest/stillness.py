"""Is a program waiting, and can it go on by itself?  Read from the states of its threads in /proc.

A thread waits *for good* in a system call that ends only when another process does something: a
read, a poll without a timeout, a lock, a child's end.  When all threads of two programs that talk
to each other wait for good, and none of them has run between two looks, neither will ever go on.  A
sleep is no such wait: it ends by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["BUSY", "DROWSY", "QUIET", "Stillness", "look"]

BUSY: Final = 0  # a thread runs, or will go on by itself
DROWSY: Final = 1  # as quiet, but some threads have timers, as those of a Java machine
QUIET: Final = 2  # every thread waits for good

_ARM = os.uname().machine == "aarch64"


def _numbers(text: str) -> set[int]:
    """Numbers of this machine from names with their x86_64 and aarch64 numbers; "-" for none."""
    columns = (entry.split()[2 if _ARM else 1] for entry in text.split(","))
    return {int(number) for number in columns if number != "-"}


# Calls that wait without a limit for what another process does.
_READS = _numbers("read 0 63, readv 19 65, recvfrom 45 207, recvmsg 47 212")
# A write to a full pipe waits as a read from an empty one does.
_WRITES = _numbers("write 1 64, writev 20 66, sendto 44 206, sendmsg 46 211, sendfile 40 71")
_OTHERS = _numbers(
    "open 2 -, openat 257 56, accept 43 202, accept4 288 242, connect 42 203, wait4 61 260, waitid "
    "247 95, "
    "flock 73 32, fcntl 72 25, pause 34 -, rt_sigsuspend 130 133"
)
_TIMEOUTS: Final = {  # call → the argument that points to its time limit
    **dict.fromkeys(_numbers("select 23 -, pselect6 270 72"), 4),
    **dict.fromkeys(_numbers("ppoll 271 73, rt_sigtimedwait 128 137"), 2),
    **dict.fromkeys(_numbers("futex 202 98, epoll_pwait2 441 441"), 3),
}
# poll and epoll take the limit as a C int, in the register's low half.
_MILLISECONDS: Final = {  # call → the argument with its time limit, where less than 0 is none
    **dict.fromkeys(_numbers("poll 7 -"), 2),
    **dict.fromkeys(_numbers("epoll_wait 232 -, epoll_pwait 281 22"), 3),
}
# Those among them that may wait for the pipe and for other things at once.
_POLLS = _numbers(
    "poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_wait 232 -, epoll_pwait 281 22, "
    "epoll_pwait2 441 441"
)


class Stillness(NamedTuple):
    """What a look at all threads of a program has found.

    Attributes:
        state: `BUSY`, `DROWSY` or `QUIET`.
        asks: a thread waits for what the pipe brings.
        talks: a thread waits in a read, a write or a poll, of whatever.
        mark: changes when any thread has run.
    """

    state: int
    asks: bool
    talks: bool
    mark: int


_RUNS = Stillness(BUSY, False, False, 0)


def look(pids: Iterable[int], pipe: int) -> Stillness | None:
    """What all threads of these processes are doing.

    Args:
        pids: the processes.
        pipe: inode of the pipe that is their standard input.

    Returns:
        What was found; None where the kernel does not say in which call a thread waits.
    """
    mark = 0
    asks = talks = timed = False
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it has just ended
        for thread in threads:
            folder = f"/proc/{pid}/task/{thread}/"
            state = _read(folder + "stat").rpartition(b")")[2][1:2]
            # Z and X: it has ended, and only its number is left.
            if state in b"ZX" or not state:
                continue
            if state in b"Tt":
                # Stopped: it goes on only if another process says so.
                mark = hash((thread, mark))
                continue
            # S sleeps; I is an idle thread of the kernel's; R runs, and D waits for a disk.
            if state not in b"SI":
                return _RUNS
            call = _read(folder + "syscall")
            if not call:
                # The thread is there and its call cannot be read: the kernel does not show it.
                if os.path.exists(folder):
                    return None
                continue
            # With schedstat: the same call at two looks counts only if the thread has not run
            # between.
            mark = hash((call, _read(folder + "schedstat"), mark))
            words = call.split()
            if len(words) < 7:
                return _RUNS  # "running", or asleep outside of a call: a page is being read
            number, args = int(words[0]), [int(word, 16) for word in words[1:7]]
            if number in _READS:
                where = _file(pid, args[0])
                # Only the pipe of the standard input: that is what the other side writes to.
                asks |= where == f"pipe:[{pipe}]"
                talks = True
                timed |= where.startswith("anon_inode")  # perhaps a timer
            elif number in _POLLS:
                asks = talks = True
                timed |= _has_timeout(number, args) or _has_timer(pid)
            elif number in _WRITES:
                talks = True
            elif number not in _OTHERS:
                timed |= _has_timeout(number, args)
    if not timed:
        return Stillness(QUIET, asks, talks, mark)
    # A timer may wake it, but it asks for input as well: the talk can be stuck all the same.
    return Stillness(DROWSY, asks, talks, mark) if asks else _RUNS


def _has_timeout(number: int, args: list[int]) -> bool:
    if number in _MILLISECONDS:
        # The sign bit of a 32-bit int: negative means no limit.
        return not args[_MILLISECONDS[number]] & 0x8000_0000
    return number not in _TIMEOUTS or args[_TIMEOUTS[number]] != 0


def _has_timer(pid: int) -> bool:
    """Whether it holds a timer that can be polled."""
    with contextlib.suppress(OSError):
        return any("timerfd" in _file(pid, int(fd)) for fd in os.listdir(f"/proc/{pid}/fd"))
    return False


def _file(pid: int, fd: int) -> str:
    with contextlib.suppress(OSError):
        # A descriptor is an int; the upper half of the register may hold anything.
        return os.readlink(f"/proc/{pid}/fd/{fd & 0xFFFF_FFFF}")
    return ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""
