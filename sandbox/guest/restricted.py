"""The level "restricted", for hosts without namespaces: Landlock, seccomp and sampling.

    keeper      scope                                     a scope: no signal leaves it
    └ zygote    scope, reads only what programs need
      └ box     scope, writes only to its scratch
        └ run   scope, reads and writes only its own

Each process is under the rules of those above it too.  A signal to all, which a process in a scope
sends, reaches the processes of that scope and of those in it, at once and also those that are being
forked: what pid 1 can do in a pid namespace.  Orphans become children of the box.

For each new process and thread the kernel asks the box, which counts (seccomp's listener).  Memory
and files are looked at every 10 ms.

Before Linux 6.12 Landlock has no scopes.  Then a box is asked for each signal of its run too, and
lets those to the run's own processes through; a signal to all goes to all descendants, again and
again until no new ones are found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from rlvr.sandbox.guest.linux import (
    adopt_orphans,
    childless,
    die_with_parent,
    drop_capabilities,
    dumpable,
    fork,
    ioctl,
    landlock_enter,
    landlock_rule,
    landlock_ruleset,
    no_new_privileges,
    oom_score,
    reap,
    signal_descriptor,
    system_call_listener,
)

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RootPlan, RunLimits, SlotConfig

__all__ = ["ABI", "Restricted"]

ABI = 6
"""The version of Landlock from which on signals and abstract sockets have scopes: Linux 6.12."""

# linux/landlock.h
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
# to move between folders, which no process may that is under one set of rules without it
_REFER = 1 << 13
_FILES = (1 << 15) - 1  # all that there are in version 3
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _FILES & ~_READ
_SCRATCH = _FILES & ~(_MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK)
_OF_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE  # a rule for a file may name no other

_OPENSSL = "/etc/ssl/openssl.cnf"  # node goes on without it, but not where it may not open it
_DEVICES = ("null", "zero", "full", "random", "urandom")
# of /proc/self
_OWN = ("cmdline", "comm", "environ", "fd", "limits", "maps", "mem", "stat", "statm", "status")
_FOLDERS = ("home", "tmp")
_SPARE_BYTES = 1 << 16  # for the program's own files, beside one that is as large as may be
_SPARE_TASKS = 2  # beyond the limit, as RLIMIT_NPROC of the other level has some too
_PATH_BYTES = 3000  # of a path in the scratch; a longer one could not be looked at
# More files than any limit allows, so that a folder that cannot be counted is too full.
_UNKNOWN = 1 << 62
_FRESH_S = 0.002  # for which a list of processes is good
# Least time between two scans of the scratch; also 20 times what the last one took, so that scans
# take at most a twentieth of a core.
_SCAN_S = 0.01
_SOCKET_BYTES = 416 << 10  # as in `namespaces`
# bytes of struct seccomp_notif, which begins with a number that the answer repeats
_NOTIFICATION = 80
_ASKED = struct.Struct("<8xI4xi12xi4xi4x")  # of it: thread, number of the call, two arguments
_ARM = os.uname().machine == "aarch64"
# asm/unistd.h, as the numbers of `_SIGNAL_CALLS`.
_KILL, _TKILL = (129, 130) if _ARM else (62, 200)
# Also tgkill, rt_sigqueueinfo and rt_tgsigqueueinfo.
_SIGNAL_CALLS = {_KILL, _TKILL, *((131, 138, 240) if _ARM else (234, 129, 297))}
_ANSWER = struct.Struct("<8sqiI")  # struct seccomp_notif_resp; the last is 1 to let the call go on
# SECCOMP_IOCTL_NOTIF_RECV and _SEND of linux/seccomp.h; their sizes are a part of the numbers.
_NOTIF_RECV, _NOTIF_SEND = 0xC050_2100, 0xC018_2101
# The ioctl blocks where the question was withdrawn; a timer's signal ends it.
_RECEIVE_S = 0.005


class Restricted:
    """See `namespaces.Namespaces`, which explains each call."""

    SCANS: Final = True
    FORKS_ASIDE: Final = False
    forked_cpu_s: Final = 0.0

    def __init__(self, config: SlotConfig) -> None:
        self.config = config
        self._scoped = self._spoilt = False
        self._abi: int = config["landlock"]
        # The right to move between folders is new in version 2, the one to truncate in 3
        # Bits are in the order of their versions, so a shift drops those that are too new.
        self._known_files = _FILES if self._abi >= 3 else _FILES >> (3 - self._abi)
        self._base = self._scratch = ""
        self._rules: list[tuple[int, int]] = []  # access, descriptor
        self._tasks: tuple[float, list[int], int] = (0.0, [], 0)  # when, processes, threads
        self._scanned_at = self._scan_s = 0.0
        self._hidden: set[int] = set()
        self._limits: RunLimits  # of the run

    # ----------------------------------------------------------------------------------- the keeper

    def begin(self) -> None:
        """Enter a scope, and make the folder of the scratches."""
        if self._abi < 1:
            raise OSError("the kernel has none, or a container does not let us ask (Linux 5.13)")
        # CONFIG_PROC_CHILDREN; in another pid namespace's /proc the numbers would be others.
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            raise OSError(
                "/proc does not list the children of a process, or it is another pid namespace's"
            )
        no_new_privileges()
        # Processes whose parent ends come here, and can be found and killed.
        adopt_orphans()
        if self._abi >= ABI:
            # Any set of rules forbids moving files between folders, for all processes below, unless
            # it allows that.
            ruleset = self._ruleset(_REFER)
            with _opened("/") as fd:
                landlock_rule(ruleset, _REFER, fd)
            self._enter(ruleset)
        self._ask = system_call_listener(bytes.fromhex(self.config["forks"]))
        import tempfile  # not above: its five libraries would make each fork of a run dearer

        self._base = tempfile.mkdtemp(prefix="rlvr-", dir=self.config["scratch"])

    def start_slot(self) -> int:
        return fork()

    def admit(self, pid: int) -> None:
        """There are no users to map."""

    def end_slot(self, pid: int) -> None:
        # The zygote kills what is below it first; with SIGKILL it could not.
        os.kill(pid, signal.SIGTERM)  # see `guard`

    def ended(self, pid: int) -> None:
        _remove(f"{self._base}/{pid}")

    def end(self) -> None:
        self.signal_all(signal.SIGKILL)
        # Until there are none: also those that were being forked.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        _remove(self._base)

    # ------------------------------------------------------------------------------------- a zygote

    def enter_slot(self) -> None:
        """Read nothing but the programs and libraries of the plan, /proc, and the scratches of this
        slot."""
        self._base = f"{self._base}/{os.getpid()}"
        os.mkdir(self._base, 0o700)
        plan = self.config["root"]
        ruleset = self._ruleset(_READ | _REFER)
        for path, access in [
            *_readable(plan),
            (_OPENSSL, _READ),
            ("/proc", _READ),
            (self._base, _READ | _REFER),
        ]:
            with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
                # A rule may name only what its file can have, or the kernel refuses the rule.
                landlock_rule(ruleset, access & self._allowed_rights(fd), fd)
        paths = {
            os.path.realpath(source)
            for source, _ in (*plan["binds"], *plan["caches"], *plan["packages"])
        }
        paths |= {path for path in (_OPENSSL,) if os.path.exists(path)}
        # O_PATH: a rule needs no right to read the file itself.
        self._rules = [(_READ, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in sorted(paths)]
        for name in _DEVICES:
            fd = os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)
            landlock_rule(ruleset, _READ_FILE, fd)
            self._rules.append((_READ_FILE | _WRITE_FILE | _TRUNCATE, fd))
        os.environ["PATH"] += ":" + os.path.dirname(self.config["executable"])
        adopt_orphans()
        self._enter(ruleset)
        drop_capabilities()

    def guard(self) -> None:
        """At a SIGTERM, the keeper's or for the parent's end, kill all that is below and end."""
        parent = os.getppid()
        signal.signal(signal.SIGTERM, self._end_with_all)
        die_with_parent(signal.SIGTERM)
        # The parent may have ended before the signal was asked for: then none will come.
        if os.getppid() != parent:
            self._end_with_all()

    def _end_with_all(self, *_: object) -> NoReturn:
        self.signal_all(signal.SIGKILL)
        os._exit(1)

    def start_box(self) -> int:
        return fork()

    def end_boxes(self) -> None:
        # its run may have processes left, which no other scope holds
        self.signal_all(signal.SIGKILL)

    # ---------------------------------------------------------------------------------------- a box

    def enter_box(
        self, serial: int, harden: Callable[[], None], program: Callable[..., NoReturn]
    ) -> None:
        """Write to nothing but the box's scratch."""
        self._program, self._score = program, oom_score()
        self._scratch = f"{self._base}/{serial}"
        os.mkdir(self._scratch, 0o700)
        ruleset = self._ruleset(_WRITE)
        for access, fd in self._rules:
            if access & _WRITE:
                landlock_rule(ruleset, access & _WRITE & self._known_files, fd)
        with _opened(self._scratch) as fd:
            landlock_rule(ruleset, _WRITE & self._known_files, fd)
        adopt_orphans()
        self._enter(ruleset)
        self.guard()
        self._ended = signal_descriptor(signal.SIGCHLD)
        self.ends = (self._ended,)
        signal.signal(signal.SIGALRM, lambda *_: None)  # it ends a system call, see `answer`
        for name in _FOLDERS:
            os.mkdir(f"{self._scratch}/{name}", 0o700)
            self._rules.append(
                (_SCRATCH, os.open(f"{self._scratch}/{name}", os.O_PATH | os.O_CLOEXEC))
            )
        os.environ["HOME"] = os.environ["TMPDIR"] = f"{self._scratch}/tmp"

    def enter_run(self) -> None:
        os.chdir(f"{self._scratch}/home")
        self._forks = -1
        self._tasks, self._scanned_at, self._hidden = (0.0, [], 0), 0.0, set()

    def limit(self, limits: RunLimits) -> None:
        self._limits = limits  # they are looked at

    def start(self, limits: RunLimits, fds: Mapping[str, int], tell: int) -> int:
        parent_end, child_end = socket.socketpair()
        self._set_oom_score(b"1000")
        # or the program's process, until it says so itself, would look as one that hides
        dumpable(True)
        # A plain fork: there is no namespace in which a helper could fork for it.
        pid = fork()
        if pid == 0:
            self._asks = child_end
            self._program(limits, fds, tell)
        self._set_oom_score(b"500")  # for want of memory the kernel kills the highest first
        dumpable(False)
        child_end.close()
        with parent_end:
            # It is sent by the program's process, which alone can install its own listener.
            listeners = socket.recv_fds(parent_end, 1, 1)[1]  # none if it failed before
        [self._forks] = listeners or [-1]
        self._ready = select.poll()
        for fd in (self._forks, self._ended):
            if fd >= 0:
                self._ready.register(fd, select.POLLIN)
        return pid

    def _set_oom_score(self, score: bytes) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._score, score, 0)

    def reap(self, wait: bool) -> tuple[int, int, int]:
        return reap(wait)

    def childless(self) -> bool:
        return childless()

    def hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._ended, 1024)

    def listening(self) -> int:
        return self._forks

    def answer(self) -> bool:
        """Let a call of the run go on, or have it fail."""
        request = bytearray(_NOTIFICATION)
        # A question that is withdrawn now would keep us waiting
        # Repeated: a signal that comes before the ioctl would be lost.
        signal.setitimer(signal.ITIMER_REAL, _RECEIVE_S, _RECEIVE_S)
        failed = ioctl(self._forks, _NOTIF_RECV, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if failed:
            # ENOTCONN or EBADF: no process is left that could ask.
            return failed not in (errno.ENOTCONN, errno.EBADF)
        task, number, *args = _ASKED.unpack_from(request)
        if number in _SIGNAL_CALLS:
            goes_on, error = self._judge_signal(task, number, *args)
        else:
            goes_on, error = self._judge_fork()
        # The first 8 bytes are the question's number.
        reply = _ANSWER.pack(bytes(request[:8]), 0, -error, int(goes_on))
        # fails where the one who asked was killed
        ioctl(self._forks, _NOTIF_SEND, bytearray(reply))
        return True

    def _judge_fork(self) -> tuple[bool, int]:
        """Whether the run may have one more process or thread; else its call
        fails as with RLIMIT_NPROC.

        Those that were let through and are not there yet are not counted: a run may have twice its
        limit for a moment.
        """
        # Zero forces a fresh look: the list may be 2 ms old.
        self._tasks = 0.0, [], 0
        full = self._look_at_descendants()[2] >= self._limits["processes"] + _SPARE_TASKS
        return not full, errno.EAGAIN if full else 0

    def _judge_signal(self, task: int, call: int, target: int, number: int) -> tuple[bool, int]:
        """Whether a signal goes to a process of the run; one to all is sent here.

        A number whose process ends now, and is another's at once, would get the signal: numbers
        come again only after all others.

        Args:
            task: the thread that asks.
            call: kill, tkill, tgkill, or with a value.
            target: the process, thread or group that it names.
            number: of the signal; of tgkill and the like a thread, which must be in the process.
        """
        # A thread of the target asks: a process may signal itself.
        if target > 0 and os.path.exists(f"/proc/{target}/task/{task}"):
            return True, 0  # its own
        self._tasks = 0.0, [], 0
        processes = self._look_at_descendants()[1]
        if call == _TKILL:
            is_known = any(os.path.exists(f"/proc/{pid}/task/{target}") for pid in processes)
        elif target > 0 or call != _KILL:
            is_known = target in processes
        elif target == -1:
            if not 0 <= number <= signal.SIGRTMAX:
                return False, errno.EINVAL
            process = next(
                (pid for pid in processes if os.path.exists(f"/proc/{pid}/task/{task}")), 0
            )
            # Not let through: the kernel would signal every process of this user.
            return False, 0 if self._signal_descendants(number, but=process) else errno.ESRCH
        else:  # groups do not reach beyond a session, which each run begins
            group = -target or os.getpgid(task)
            is_known = any(_group_of(pid) == group for pid in processes)
        return is_known, 0 if is_known else errno.EPERM

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while (
            left := deadline - time.monotonic()
        ) > 0:  # then the run is looked at, however much it asks
            ready = dict(self._ready.poll(left * 1000))
            if not ready:
                return
            if self._ended in ready:
                self.hear()
                return
            # POLLHUP: all that were under the filter have ended.
            if ready[self._forks] & select.POLLHUP or not self.answer():
                self._ready.unregister(self._forks)

    def living(self) -> Iterator[int]:
        return iter(self._look_at_descendants()[1])

    def _look_at_descendants(self) -> tuple[float, list[int], int]:
        """The descendants of this process, and how many threads they have."""
        if time.monotonic() > self._tasks[0] + _FRESH_S:
            pids: list[int] = []
            threads, todo = 0, [os.getpid()]
            while todo:
                pid = todo.pop()
                with contextlib.suppress(OSError):
                    for thread in os.listdir(f"/proc/{pid}/task"):
                        threads += 1
                        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                            todo += map(int, file.read().split())
                pids.append(pid)
            # Without this process and its one thread.
            self._tasks = time.monotonic(), pids[1:], threads - 1
        return self._tasks

    def signal_all(self, number: int) -> None:
        if self._abi < ABI:
            self._signal_descendants(number)
            return
        if not self._scoped:
            # Never without a scope: this would end the user's session on the host.
            raise RuntimeError("out of a scope, every process of this user would get the signal")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)

    def _signal_descendants(self, number: int, but: int = 0) -> int:
        """Signal each descendant once, but for one; how many there were.

        None of them can get a process more meanwhile, as they would have to ask us; those that were
        let through before are found by a further look.
        """
        signalled: set[int] = set()
        while True:
            self._tasks = 0.0, [], 0
            unsignalled = set(self._look_at_descendants()[1]) - signalled - {but}
            if not unsignalled:
                return len(signalled)
            for pid in unsignalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled |= unsignalled

    def _ruleset(self, files: int, network: int = 0) -> int:
        """A new set of rules, with the rights that this version has."""
        return landlock_ruleset(
            files & self._known_files,
            network if self._abi >= 4 else 0,
            _SCOPES if self._abi >= ABI else 0,
        )

    def _allowed_rights(self, fd: int) -> int:
        """What a rule for this file or folder may name."""
        rights = _FILES if stat.S_ISDIR(os.fstat(fd).st_mode) else _OF_FILE
        return rights & self._known_files

    def _enter(self, ruleset: int) -> None:
        """Enter a scope, and see that it is one: a signal to all must never leave it."""
        landlock_enter(ruleset)
        if self._abi < ABI:
            return
        try:
            # Signal 0 only asks; the parent is outside, so it has to be refused.
            os.kill(os.getppid(), 0)
        except PermissionError:
            self._scoped = True
            return
        raise OSError("Landlock does not keep signals in here")

    def crowded(self) -> str:
        return (
            "processes"
            if self._look_at_descendants()[2] > 2 * (self._limits["processes"] + _SPARE_TASKS)
            else ""
        )

    def exceeded(self) -> str:
        if self._hides(self._look_at_descendants()[1]):
            return "hidden"
        checked_at = time.monotonic()
        if checked_at > self._scanned_at + max(_SCAN_S, 20 * self._scan_s):
            over = self.overfull()
            self._scanned_at = time.monotonic()
            self._scan_s = self._scanned_at - checked_at
            return over
        return ""

    def overfull(self) -> str:
        # The two folders of the scratch are ours.
        limit = self._limits["files"] + len(_FOLDERS)
        used, files = _scan(self._scratch, limit)
        if files > limit:
            return "files"
        return (
            "disk"
            if used + self._count_deleted(self._look_at_descendants()[1])
            > self._limits["disk"] + _SPARE_BYTES
            else ""
        )

    def _hides(self, processes: list[int]) -> bool:
        """Whether one executes a file that it may not read: the kernel then closes its /proc to us.

        Told by two looks, as a process may look so for a moment while it executes another program.
        """
        before, self._hidden = self._hidden, set()
        for pid in processes:
            try:
                os.close(os.open(f"/proc/{pid}/maps", os.O_RDONLY))
            except PermissionError:
                self._hidden.add(pid)
            except OSError:
                pass
        return bool(before & self._hidden)

    def _count_deleted(self, processes: list[int]) -> int:
        """Bytes of files of the scratch that have no name any more, but are open or mapped."""
        device, sizes = os.stat(self._scratch).st_dev, {}
        for status in self._open_files(processes):
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_dev == device:
                sizes[status.st_ino] = status.st_blocks * 512
        for pid in processes:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
                for line in file:
                    if line.endswith(b"(deleted)\n") and os.fsencode(self._scratch) in line:
                        span, _, offset, _, number, *_ = line.split()
                        # The mapping's end in the file: a mapped file that was deleted holds at
                        # least that.
                        first, last = (int(address, 16) for address in span.split(b"-"))
                        end = int(offset, 16) + last - first
                        sizes[int(number)] = max(sizes.get(int(number), 0), end)
        return sum(sizes.values())

    def _open_files(self, processes: list[int]) -> Iterator[os.stat_result]:
        for pid in processes:
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        yield os.stat(f"/proc/{pid}/fd/{name}")

    def scratch_bytes(self) -> int:
        return 0  # it is no memory of ours

    def socket_bytes(self) -> int:
        sockets = {
            status.st_ino
            for status in self._open_files(self._look_at_descendants()[1])
            if stat.S_ISSOCK(status.st_mode)
        }
        return len(sockets) * _SOCKET_BYTES

    def leave_run(self, partner: bool) -> bool:
        os.chdir("/")
        # The listener's end lets calls of processes that are still there fail.
        if self._forks >= 0:
            os.close(self._forks)
        try:
            for name in _FOLDERS:
                _empty(f"{self._scratch}/{name}")
        except OSError:  # of whatever it made: the keeper removes it with the slot
            self._spoilt = True
        return True

    def again(self) -> bool:
        return not self._spoilt

    def leave_box(self) -> None:
        with contextlib.suppress(OSError):
            for name in _FOLDERS:
                os.rmdir(f"{self._scratch}/{name}")
            os.rmdir(self._scratch)

    def end_box(self, code: int) -> NoReturn:
        os._exit(code)

    # ------------------------------------------------------------------------------------ a program

    def confine(self) -> None:
        """Reach nothing but the plan's programs and libraries, devices without harm, its scratch,
        and its own /proc."""
        ruleset = self._ruleset(_FILES, _TCP)
        for access, fd in self._rules:
            landlock_rule(ruleset, access & self._allowed_rights(fd), fd)
        own_proc = f"/proc/{os.getpid()}"
        for name in _OWN:
            fd = os.open(f"{own_proc}/{name}", os.O_PATH)
            landlock_rule(ruleset, (_READ_FILE | _READ_DIR) & self._allowed_rights(fd), fd)
            os.close(fd)
        landlock_enter(ruleset)
        # The listener goes to the box, which has to answer from the first fork on.
        socket.send_fds(self._asks, [b"."], [self._ask()])
        self._asks.close()
        for number in (signal.SIGTERM, signal.SIGALRM):  # which the box handles
            signal.signal(number, signal.SIG_DFL)

    def processes(self, limits: RunLimits) -> int | None:
        return None  # the kernel counts by user, who has other processes; see `answer`


def _group_of(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_PATH)
    # O_PATH opens a folder without the right to list it.
    try:
        yield fd
    finally:
        os.close(fd)


def _readable(plan: RootPlan) -> Iterator[tuple[str, int]]:
    """Path and access of all that programs may read, without the folders that the plan hides.

    A rule holds for a whole tree, so a folder with hidden ones below it is taken apart.  Names in a
    hidden folder can be listed; its files cannot be read.
    """
    hidden = {os.path.realpath(path) for path in plan["empty"] if os.path.isdir(path)}

    def parts(path: str) -> Iterator[tuple[str, int]]:
        if path in hidden:
            return
        if not any(hidden_path.startswith(path + "/") for hidden_path in hidden):
            yield path, _READ
            return
        yield path, _READ_DIR
        for entry in os.scandir(path):
            if not entry.is_symlink():  # what it leads to has a rule of its own, or none
                yield from parts(entry.path)

    for source, _ in (*plan["binds"], *plan["caches"]):
        yield from parts(os.path.realpath(source))
    for source, _ in plan["packages"]:
        yield os.path.realpath(source), _READ


def _scan(folder: str, most: int) -> tuple[int, int]:
    """Bytes of files below a folder, number of files and folders; what cannot be looked at is more
    than any limit."""
    used, files, todo = 0, 0, [folder]
    # where a folder is exchanged for a link, what is below may be large
    while todo and files <= most:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    files += 1
                    if len(entry.path) > _PATH_BYTES:
                        return used, _UNKNOWN
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                        else:
                            used += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue
        except OSError:  # the program took our right to read it away
            return used, _UNKNOWN
    return used, files


def _remove(folder: str) -> None:
    """Remove a folder and all in it, if it can be."""
    with contextlib.suppress(OSError):
        _empty(folder)
        os.rmdir(folder)


def _empty(folder: str) -> None:
    """Remove all in a folder, however deep; no process is left that could change it meanwhile."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    number = 0
    try:
        # Listed again, as what lay deeper has been moved up meanwhile.
        while names := os.listdir(top):
            for name in names:
                if _unlink_name(name, top):
                    continue
                os.chmod(name, 0o700, dir_fd=top)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:  # what is in it comes up, so that no path gets long
                    for below in os.listdir(inner):
                        if not _unlink_name(below, inner):
                            os.chmod(below, 0o700, dir_fd=inner)
                            number += 1
                            os.rename(
                                below,
                                # Drawn, since the program may have made files of any name.
                                f"{os.urandom(8).hex()}{number}",
                                src_dir_fd=inner,
                                dst_dir_fd=top,
                            )
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _unlink_name(name: str, folder: int) -> bool:
    """Whether it was removed, as anything but a folder is."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True
