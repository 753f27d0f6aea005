"""The level "namespaces": a slot has a root, users, processes, a network and mounts of its own.

`Namespaces` and `restricted.Restricted` answer the same calls, in the order of this file.  Each
process of the sandbox (`keeper`, `zygote`, `box`, and the program's own, `user`) makes those of its
section.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rlvr.sandbox.guest.linux import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_RDONLY,
    clone,
    die_with_parent,
    unshare,
)
from rlvr.sandbox.guest.root import (
    BOX,
    WORK,
    build,
    fresh_scratch,
    limit_scratch,
    mount_proc,
    remove_scratch,
    sources_of,
)

__all__ = ["Namespaces"]

_SLOT = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
_BOX = CLONE_NEWPID | CLONE_NEWNS
_FIRST_USER = 2_000_000_000  # far from the users of any host, also those that systemd hands out
_USER_BITS = 27
_SOCKETS = "/proc/self/net/unix"  # the table of Unix sockets of the slot
_SOCKET_BYTES = (
    416 << 10
)  # twice what a Unix socket's buffer is; programs cannot make it larger (sandbox/seccomp.py)
_RINGS_MS = 100  # for the kernel's collector of rings of sockets, which works on its own time


class Namespaces:
    """One slot's, and one box's in it.

    Args:
        config: see `SlotPool`.

    Attributes:
        SCANS: it has limits that the kernel does not keep, so a run is looked at often even in a
            cgroup.
    """

    SCANS: Final = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._folders = config["root"]["folders"]
        self._numbers = self._sockets = -1

    # ------------------------------------------------------------------------------------------- the keeper

    def begin(self) -> None:
        """Before the first slot."""

    def start_slot(self) -> int:
        """Fork a zygote; its pid, in the zygote 0."""
        return clone(_SLOT)

    def admit(self, pid: int) -> None:
        """Let a zygote go on.

        User 1000 of its namespace becomes a user outside.  Root gives each slot a user of its own,
        because the kernel counts some things by user (pipes, descriptors in flight, pending
        signals).  Where root is root of a container without such users, and for an ordinary user,
        it is `outer_uid`.

        Args:
            pid: the zygote's.
        """
        uid = self.config["outer_uid"]
        if os.geteuid() != 0:  # the kernel demands this of users without privileges
            _write(f"/proc/{pid}/setgroups", "deny")
        else:
            with contextlib.suppress(OSError):
                # Drawn, as programs can read it, and a process number of the host would be none of
                # their business
                user_number = int.from_bytes(os.urandom(4), "little") >> (32 - _USER_BITS)
                _write(f"/proc/{pid}/uid_map", f"1000 {_FIRST_USER + user_number} 1")
                uid = -1
        if uid >= 0:
            _write(f"/proc/{pid}/uid_map", f"1000 {uid} 1")
        _write(f"/proc/{pid}/gid_map", f"1000 {self.config['outer_gid']} 1")

    def end_slot(self, pid: int) -> None:
        """End a zygote and everything in its slot.

        Args:
            pid: the zygote's.
        """
        os.kill(pid, signal.SIGKILL)

    def ended(self, pid: int) -> None:
        """A zygote has ended.

        Args:
            pid: the zygote's.
        """

    def end(self) -> None:
        """After the last slot."""

    # ------------------------------------------------------------------------------------------- a zygote

    def enter_slot(self) -> None:
        """Enter the slot's own root and user."""
        unshare(
            CLONE_NEWCGROUP
        )  # now that we are in our cgroup: else its path, the host's, could be read inside
        sources = sources_of(self.config["root"])
        with contextlib.suppress(
            PermissionError
        ):  # an ordinary user's open nothing in a root of public files
            os.setgroups([])
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        try:  # each writer's own namespace's
            self._numbers = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without it, or a container's read-only /proc/sys
            self._numbers = -1
        build(self.config["root"], sources)
        socket.sethostname("box")

    def guard(self) -> None:
        """End with the parent; called by a zygote and by its boxes, once they have given up what
        they do not need."""
        die_with_parent()

    def start_box(self) -> int:
        """Fork a box; its pid, in the box 0."""
        return clone(_BOX)

    def end_boxes(self) -> None:
        """A box was killed from outside: end what it has left behind."""

    # ------------------------------------------------------------------------------------------- a box

    def enter_box(self, serial: int) -> None:
        """Have what all runs of the box share.

        Args:
            serial: of the box.
        """
        mount_proc(MS_RDONLY)  # or a program could lower its own oom_score_adj
        self._sockets = os.open(_SOCKETS, os.O_RDONLY | os.O_CLOEXEC)

    def enter_run(self) -> None:
        """Have an empty scratch, and be in it."""
        fresh_scratch(self.config["disk"], self.config["files"], self._folders)
        os.chdir(WORK)

    def limit(self, limits: Mapping[str, Any]) -> None:
        """Change the limits of the scratch.

        Args:
            limits: of the run.
        """
        if (limits["disk"], limits["files"]) != (self.config["disk"], self.config["files"]):
            limit_scratch(limits["disk"], limits["files"], self._folders)

    def start(self) -> int:
        """Fork the program's process; its pid, there 0."""
        return clone(
            0
        )  # os.fork() would cost twice as much, for hooks that one thread does not need

    def listening(self) -> int:
        """A descriptor that is ready when `answer` must be called; -1 for none."""
        return -1

    def answer(self) -> bool:
        """Answer what the run asks; False if it will ask nothing more."""
        return False

    def wait(self, timeout: float) -> None:
        """Until a child ends.

        Args:
            timeout: seconds.
        """
        signal.sigtimedwait([signal.SIGCHLD], timeout)

    def living(self) -> Iterator[int]:
        """Every process of the run: the box's pid namespace shows no others."""
        return (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the run; those that are being forked get it too.

        Args:
            number: of the signal.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)

    def crowded(self) -> str:
        """Whether the run has far too many processes: "processes" or "".  Asked first, as other
        looks take longer."""
        return ""

    def exceeded(self) -> str:
        """Another limit over which the run is that the kernel does not keep: "hidden", "disk" or
        "files"; else ""."""
        return ""

    def overfull(self) -> str:
        """Whether the scratch is over a limit that the kernel does not keep: "disk", "files" or
        ""."""
        return ""

    def scratch_bytes(self) -> int:
        """Bytes of memory that the scratch takes."""
        held = os.statvfs(BOX)  # the mount point, since the program may remove the folders below it
        return (held.f_blocks - held.f_bfree) * held.f_frsize

    def socket_bytes(self) -> int:
        """Bytes that the Unix sockets of the slot may hold at most."""
        with contextlib.suppress(OSError), open(_SOCKETS, "rb") as file:
            return (sum(1 for _ in file) - 1) * _SOCKET_BYTES
        return 0

    def leave_run(self, partner: bool) -> bool:
        """Remove the scratch and have the kernel free the run's sockets; False if some stay.

        Sockets that were sent through one another outlive their processes, with the files and locks
        that were sent along, until the kernel looks for such rings.  It does when a socket is
        closed.

        Args:
            partner: another box of the slot runs a program, which may still be using sockets: they
                are not counted.
        """
        os.chdir("/")
        remove_scratch(self._folders)  # before the reply: the next run may begin at once
        for _ in range(_RINGS_MS):
            if os.pread(self._sockets, 4096, 0).count(b"\n") == 1:  # the table's heading
                return True
            socket.socket(socket.AF_UNIX).close()
            if partner:
                return True
            time.sleep(0.001)
        return False

    def again(self) -> bool:
        """Whether the box is as good as new: let process numbers begin at 2 again, or a run could
        tell how many processes the run before had.  False where the kernel does not allow it.
        """
        try:
            return self._numbers >= 0 and os.pwrite(self._numbers, b"1", 0) == 1
        except OSError:
            return False

    def leave_box(self) -> None:
        """The box ends."""

    # ------------------------------------------------------------------------------------------- a program

    def confine(self) -> None:
        """The program's process has unpacked its files: from here on it is the program's."""

    def processes(self, limits: Mapping[str, Any]) -> int | None:
        """RLIMIT_NPROC; None where the kernel's count is not of the run alone.

        Args:
            limits: of the run.
        """
        return int(limits["processes"] + self.config["own_processes"])


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
