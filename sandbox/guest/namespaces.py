"""The level "namespaces": a slot has a root, users, processes, a network and mounts of its own.

`Namespaces` and `restricted.Restricted` answer the same calls, in the order of this file.  Each
process of the sandbox (`keeper`, `zygote`, `box`, and the program's own, `user`) makes those of its
section.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from rlvr.sandbox.guest.linux import (
    CLONE_FILES,
    CLONE_FS,
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    ENDED,
    MS_RDONLY,
    child_waiter,
    childless,
    clone,
    die_with_parent,
    fork,
    oom_score,
    reap,
    signal_descriptor,
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

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RunLimits, SlotConfig

__all__ = ["LENT", "Namespaces"]

LENT: Final = ("stdin", "stdout", "stderr", "channel", "results", "bundle")
"""Descriptors of a program's process, from 0 on; it reads the last one, and closes it."""

_SLOT = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
_PROGRAM = 2  # number of the program's process: the box is 1, and starts none itself
_FORK = b"f"  # an order to the forker; any other byte is the code with which it ends
_ORDER_BYTES = 448  # a larger one would be malloc's, which has pages of its own
# that the program's process sets itself
_LIMITS = ("cpu_s", "disk", "memory", "output", "processes")
_FIRST_USER = 2_000_000_000  # far from the users of any host, also those that systemd hands out
# With them user numbers stay below 2**31, where programs that keep them in an int go wrong.
_USER_BITS = 27
_SOCKETS = "/proc/self/net/unix"  # the table of Unix sockets of the slot
# twice what a Unix socket's buffer is; programs cannot make it larger (sandbox/seccomp.py)
_SOCKET_BYTES = 416 << 10
_RINGS_MS = 100  # for the kernel's collector of rings of sockets, which works on its own time


class Namespaces:
    """One slot's, and one box's in it.

    Args:
        config: see `SlotPool`.

    Attributes:
        SCANS: it has limits that the kernel does not keep, so a run is looked at often even in a
            cgroup.
        FORKS_ASIDE: programs are forked by a process that is hardened already.
        ends: in a box: descriptors that are ready when a process of the run has ended.
        forked_cpu_s: in a box: CPU seconds of the programs that another process has waited for.
    """

    SCANS: Final = False
    FORKS_ASIDE: Final = True

    def __init__(self, config: SlotConfig) -> None:
        self.config = config
        self._folders = config["root"]["folders"]
        self._numbers = self._sockets = self._wake = -1
        self._running = False
        self.forked_cpu_s = 0.0

    # ----------------------------------------------------------------------------------- the keeper

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
        # Without this a process could drop groups that deny it a file (user_namespaces(7)).
        if os.geteuid() != 0:  # the kernel demands this of users without privileges
            _write(f"/proc/{pid}/setgroups", "deny")
        else:
            with contextlib.suppress(OSError):
                # Drawn, as programs can read it, and a process number of the host would be none of
                # their business
                user_number = int.from_bytes(os.urandom(4), "little") >> (32 - _USER_BITS)
                # Root may map any user; if it may not here (a nested namespace), its own is used
                # below.
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

    # ------------------------------------------------------------------------------------- a zygote

    def enter_slot(self) -> None:
        """Enter the slot's own root and user."""
        # now that we are in our cgroup: else its path, the host's, could be read inside
        # What is the root of /proc/self/cgroup is decided when the namespace is made.
        unshare(CLONE_NEWCGROUP)
        # Opened before the user changes: folders above them may be closed to others.
        sources = sources_of(self.config["root"])
        # an ordinary user's open nothing in a root of public files
        with contextlib.suppress(PermissionError):
            os.setgroups([])
        # All three ids, or it could change back; the group first, while it may still change it.
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        try:  # each writer's own namespace's
            # Opened while this /proc is the slot's own, since pid namespaces below have other ones.
            self._numbers = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without it, or a container's read-only /proc/sys
            self._numbers = -1
        build(self.config["root"], sources)
        socket.sethostname("box")

    def guard(self) -> None:
        """End with the parent; called by a zygote, once it has given up what it does not need."""
        die_with_parent()

    def start_box(self) -> int:
        """Fork a box; its pid, in the box 0."""
        return clone(CLONE_NEWNS)

    def end_boxes(self) -> None:
        """A box was killed from outside: end what it has left behind."""

    # ---------------------------------------------------------------------------------------- a box

    def enter_box(
        self, serial: int, harden: Callable[[], None], program: Callable[..., NoReturn]
    ) -> None:
        """Have what all runs of the box share, and part from the process that forks its programs.

        Each fork write-protects all pages of the one that forks, so that does nothing else.  It is
        outside of the programs' pid namespace, and shares the box's
        descriptors and working directory.

        Args:
            serial: of the box.
            harden: gives up what a program may not have.
            program: runs a program; it gets the arguments of `start`.
        """
        # A byte wakes the forker; the order itself is in a memfd, so that nothing is allocated.
        orders, self._wake = os.pipe()
        # One pipe for all reports: the fork's, then the end's.
        self._report, report = os.pipe()
        self._order = os.memfd_create("order")
        # Non-blocking, as `reap` also asks when nothing has ended.
        os.set_blocking(self._report, False)
        # The forker and its programs: they go first for want of memory, the box not before them.
        _set_oom_score(b"1000")
        # Children from here on are in the new namespace: the box is pid 1 of it.
        unshare(CLONE_NEWPID)
        # Without its box the forker is of no use; without the forker, the box
        if clone(CLONE_FILES | CLONE_FS, signal.SIGKILL):
            self._fork_programs(orders, report, harden, program)
        die_with_parent()
        _set_oom_score(b"500")  # for want of memory the kernel kills the highest first
        mount_proc(MS_RDONLY)  # or a program could lower its own oom_score_adj
        # Opened once: each look at it is one pread.
        self._sockets = os.open(_SOCKETS, os.O_RDONLY | os.O_CLOEXEC)
        self._orphans = signal_descriptor(signal.SIGCHLD)
        self.ends = self._report, self._orphans
        self._ended = select.poll()
        for fd in self.ends:
            self._ended.register(fd, select.POLLIN)

    def _fork_programs(
        self, orders: int, report: int, harden: Callable[[], None], program: Callable[..., NoReturn]
    ) -> NoReturn:
        """Fork a program for each order, and report how it ended."""
        try:
            # A session's interrupt goes to the programs alone.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            harden()
            ended, wait = child_waiter()
            while True:
                order = os.read(orders, 1)
                if order != _FORK:
                    # Any other byte is the code with which the box ends.
                    os._exit(order[0])
                if fork() == 0:
                    program(*marshal.loads(os.pread(self._order, _ORDER_BYTES, 0)))
                # Before it waits: the box knows from then on that the program's process exists.
                os.write(report, _FORK)
                wait()
                os.write(report, ended)
        finally:
            os._exit(1)

    def enter_run(self) -> None:
        """Have an empty scratch, and be in it."""
        fresh_scratch(self.config["disk"], self.config["files"], self._folders)
        os.chdir(WORK)

    def limit(self, limits: RunLimits) -> None:
        """Change the limits of the scratch.

        Args:
            limits: of the run.
        """
        # A remount costs a system call, so it is left out where the limits are the usual ones.
        if (limits["disk"], limits["files"]) != (self.config["disk"], self.config["files"]):
            limit_scratch(limits["disk"], limits["files"], self._folders)

    def start(self, limits: RunLimits, fds: Mapping[str, int], tell: int) -> int:
        """Have the program's process forked; its pid.

        Args:
            limits, fds, tell: see `user.main`.
        """
        every: Mapping[str, object] = limits
        process_limits = {name: every[name] for name in _LIMITS}
        # marshal and not JSON: no text of it stays in the forker's memory.
        order = marshal.dumps(
            (process_limits, {name: fds[name] for name in LENT if name in fds}, tell)
        )
        os.pwrite(self._order, order, 0)
        os.write(self._wake, _FORK)
        self._await_report()
        os.read(self._report, 1)
        self._running = True
        return _PROGRAM

    def _await_report(self) -> None:
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        poll.poll()

    def reap(self, wait: bool) -> tuple[int, int, int]:
        """A process of the run that has ended: its number, its wait status and the most KiB that it
        had; zeros if there is none.

        Args:
            wait: until one has ended, while there is any.
        """
        if self._running and wait:
            self._await_report()
        if self._running:
            with contextlib.suppress(BlockingIOError):
                figures = ENDED.unpack(os.read(self._report, ENDED.size))
                status, user_s, user_us, system_s, system_us, rss_kib = figures
                # Summed here, as the forker is no child of the box and its children's times are not
                # either.
                self.forked_cpu_s += user_s + system_s + (user_us + system_us) / 1e6
                self._running = False
                return _PROGRAM, status, rss_kib
        return reap(wait)

    def childless(self) -> bool:
        """Whether no process of the run is left: those whose parent has ended are children of the
        box."""
        return not self._running and childless()

    def hear(self) -> None:
        """Forget that a process has ended; `reap` says which."""
        # One read drops all pending signals; processes are counted by waitpid.
        with contextlib.suppress(BlockingIOError):
            os.read(self._orphans, 1024)

    def listening(self) -> int:
        """A descriptor that is ready when `answer` must be called; -1 for none."""
        return -1

    def answer(self) -> bool:
        """Answer what the run asks; False if it will ask nothing more."""
        return False

    def wait(self, timeout: float) -> None:
        """Until a process of the run ends.

        Args:
            timeout: seconds.
        """
        self._ended.poll(timeout * 1000)
        self.hear()

    def living(self) -> Iterator[int]:
        """Every process of the run: the box's pid namespace shows no others."""
        return (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the run; those that are being forked get it too.

        Args:
            number: of the signal.
        """
        with contextlib.suppress(ProcessLookupError):
            # -1: every process in the pid namespace but this one.
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
            # The first line is the table's heading.
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
            # Closing a socket starts the kernel's collector of rings.
            socket.socket(socket.AF_UNIX).close()
            # The partner's sockets are in the same table, so it need not be empty.
            if partner:
                return True
            time.sleep(0.001)
        return False

    def again(self) -> bool:
        """Whether the box is as good as new: let process numbers begin at 2 again, or a run could
        tell how many processes the run before had.  False where the kernel does not allow it.
        """
        try:
            # The kernel gives the next process this number plus one.
            return self._numbers >= 0 and os.pwrite(self._numbers, b"1", 0) == 1
        except OSError:
            return False

    def leave_box(self) -> None:
        """The box will end."""

    def end_box(self, code: int) -> NoReturn:
        """The box ends.

        Args:
            code: the exit code that the zygote gets.
        """
        if self._wake >= 0:
            os.write(self._wake, bytes([code]))  # the kernel ends us with the forker
            while True:
                signal.pause()
        os._exit(code)

    # ------------------------------------------------------------------------------------ a program

    def confine(self) -> None:
        """The program's process has unpacked its files: from here on it is the program's."""

    def processes(self, limits: RunLimits) -> int | None:
        """RLIMIT_NPROC; None where the kernel's count is not of the run alone.

        Args:
            limits: of the run.
        """
        # The kernel counts all processes of this user, the zygote's and box's too.
        return int(limits["processes"] + self.config["own_processes"])


def _set_oom_score(score: bytes) -> None:
    fd = oom_score()
    with contextlib.suppress(OSError):
        os.write(fd, score)
        os.close(fd)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
