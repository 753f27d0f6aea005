"""System calls that Python lacks.  Each raises an OSError that says what failed."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "CLONE_FILES",
    "CLONE_FS",
    "CLONE_NEWCGROUP",
    "CLONE_NEWIPC",
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "CLONE_NEWUTS",
    "ENDED",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "adopt_orphans",
    "bound_capabilities",
    "child_waiter",
    "childless",
    "clone",
    "detach",
    "die_with_parent",
    "drop_capabilities",
    "dumpable",
    "fork",
    "ioctl",
    "landlock_abi",
    "landlock_enter",
    "landlock_rule",
    "landlock_ruleset",
    "mount",
    "no_new_privileges",
    "oom_score",
    "pivot_root",
    "read_only",
    "reap",
    "remove_cgroup",
    "same_memory",
    "shared_memory",
    "signal_descriptor",
    "system_call_filter",
    "system_call_listener",
    "task_clock",
    "unshare",
]

# The kernel's numbers, of linux/sched.h, which Python's `os` has since 3.12 alone.
CLONE_FS: Final = 0x00000200
CLONE_FILES: Final = 0x00000400
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

ENDED: Final = struct.Struct("i4x5q104x")
"""What `child_waiter` writes: a wait status, seconds and microseconds of user and of
system time, and KiB at most."""

# The kernel's numbers, of linux/mount.h.
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

# A cgroup whose last process has just ended may be busy for some milliseconds more.
_ENDING_TRIES = 100  # half a second
# Of umount2(2); linux/fcntl.h; MOUNT_ATTR_… of linux/mount.h.
_MNT_DETACH = 2
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4

# linux/prctl.h and linux/seccomp.h.
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_SECCOMP_SET_MODE_FILTER = 1
# NEW_LISTENER; WAIT_KILLABLE_RECV, Linux 5.19
_SECCOMP_LISTENER, _SECCOMP_KILLABLE = 1 << 3, 1 << 5
# linux/capability.h: the version whose sets have 64 bits, in two words each.
_CAPABILITY_VERSION_3 = 0x20080522

# Only what is called by number; the two architectures that sandbox/seccomp.py knows.
_ARM = os.uname().machine == "aarch64"
_SYS_CLONE = 220 if _ARM else 56
_SYS_PIVOT_ROOT = 41 if _ARM else 155
_SYS_MOUNT_SETATTR = 442
_SYS_KCMP, _KCMP_VM = 272 if _ARM else 312, 1
_SYS_SECCOMP = 277 if _ARM else 317
_SYS_SIGNALFD4 = 74 if _ARM else 289
_SYS_PERF_EVENT_OPEN = 241 if _ARM else 298
_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_CREATE_RULESET_VERSION, _LANDLOCK_RULE_PATH_BENEATH = 1, 1
# SAME_EXEC_OFF, SUBDOMAINS_OFF: a signal to all would be a line for each
_LANDLOCK_RESTRICT_SELF_UNLOGGED = 1 | 4
# bytes of struct perf_event_attr; type and config below are PERF_TYPE_SOFTWARE, TASK_CLOCK
_PERF_ATTRIBUTES = 128
# linux/perf_event.h.
_PERF_INHERIT, _PERF_EXCLUDE_KERNEL, _PERF_EXCLUDE_HV, _PERF_CLOEXEC = 1 << 1, 1 << 5, 1 << 6, 8

_libc = ctypes.CDLL(None, use_errno=True)
# ctypes would pass a plain int as 32 bits, and the kernel reads a whole register.
_FORK = ctypes.c_ulong(signal.SIGCHLD)
# a child that forked without the GIL could not run Python
_holding_gil = ctypes.PyDLL(None, use_errno=True)


def _check_result(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def mount(
    source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None
) -> None:
    """mount(2).

    Args:
        source, target: what is mounted where.
        kind: the file system; None for a bind or a remount.
        flags: MS_ flags.
        data: options of the file system.
    """
    result = _libc.mount(
        _bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data)
    )
    _check_result(result, f"mount {kind or source} on {target}")


def read_only(target: str) -> None:
    """Make a mount and all mounts below it read-only, without set-user-id programs and devices.

    Args:
        target: the mount point.
    """

    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]

    attributes = Attributes(_ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = ctypes.c_char_p(os.fsencode(target))
    done = _libc.syscall(
        # -100 is AT_FDCWD: the path is absolute, so it is not used.
        _SYS_MOUNT_SETATTR,
        -100,
        path,
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        size,
    )
    if done < 0:  # before Linux 5.12: one mount at a time, and those below it keep what they have
        mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def detach(target: str) -> None:
    """Unmount lazily: umount2(2) with MNT_DETACH.

    Args:
        target: the mount point.
    """
    _check_result(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2).

    Args:
        new: the folder that becomes the root.
        old: the folder below it where the old root is put.
    """
    _check_result(_libc.syscall(_SYS_PIVOT_ROOT, os.fsencode(new), os.fsencode(old)), "pivot_root")


def unshare(flags: int) -> None:
    """unshare(2).

    Args:
        flags: CLONE_NEW… of the namespaces.
    """
    _check_result(_libc.unshare(flags), f"unshare {flags:#x}")


def clone(flags: int, ending: int = signal.SIGCHLD) -> int:
    """fork(2) into new namespaces.

    Python's own fork hooks do not run, so the caller must have one thread only.

    Args:
        flags: CLONE_NEW… of the namespaces, and what is shared; 0 for none.
        ending: the signal that this process gets when the child ends.

    Returns:
        The child's process number; in the child 0.
    """
    return _clone(ctypes.c_ulong(flags | ending))


def fork() -> int:
    """fork(2), at half the cost of `os.fork`, for hooks that one thread does not need.

    Returns:
        The child's process number; in the child 0.
    """
    return _clone(_FORK)


def _clone(flags: ctypes.c_ulong) -> int:
    # A null stack: the child goes on with a copy of the parent's, as after fork.
    child: int = _holding_gil.syscall(_SYS_CLONE, flags, None, None, None, None)
    return child if child >= 0 else _check_result(child, "clone")


def child_waiter() -> tuple[bytearray, Callable[[], None]]:
    """A buffer, and a function that waits for a child and writes there how it ended, as `ENDED`.

    Everything is prepared beforehand: each object that the caller would make is a page that it no
    longer shares with the programs that it forks.
    """
    buffer = bytearray(ENDED.size)
    address = (ctypes.c_char * ENDED.size).from_buffer(buffer)
    status, usage = ctypes.byref(address), ctypes.byref(address, 8)

    def wait() -> None:
        # -1: any child; 0: until one ends. `ctypes.PyDLL` keeps the GIL, which no other thread
        # needs.
        _check_result(_holding_gil.wait4(-1, status, 0, usage), "wait4")

    return buffer, wait


def reap(wait: bool) -> tuple[int, int, int]:
    """A child that has ended: its number, its wait status and the most KiB that it had; zeros if
    there is none.

    Args:
        wait: until one has ended, while there is any.
    """
    try:
        pid, status, usage = os.wait4(-1, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return 0, 0, 0
    return pid, status, usage.ru_maxrss


def remove_cgroup(folder: str) -> None:
    """Remove a cgroup.  That works once its last process is gone, which may take the kernel some
    milliseconds.

    Args:
        folder: its path.
    """
    for _ in range(_ENDING_TRIES):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.005)
        else:
            return


def childless() -> bool:
    """Whether this process has no child, not even one that has ended and was not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def oom_score() -> int:
    """A descriptor to set which process the kernel kills first for want of memory: the one with the
    highest number; -1 if it cannot be opened."""
    dumpable(True)  # or the file would belong to root
    try:
        return os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        dumpable(False)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Get a signal when the parent ends.  A change of user clears this, so call it afterwards.

    Args:
        number: of the signal.
    """
    _check_result(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, and not pid 1."""
    _check_result(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0 where it has none or a container does not let
    us ask."""
    return max(
        # A negative result is an errno: ENOSYS, EOPNOTSUPP or a filter's EPERM.
        0,
        int(_libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)),
    )


def landlock_ruleset(files: int, network: int, scoped: int) -> int:
    """A descriptor of a new set of rules, which allows nothing of what is named here.

    Args:
        files, network: LANDLOCK_ACCESS_FS_… and LANDLOCK_ACCESS_NET_… that need a rule from then
            on.
        scoped: LANDLOCK_SCOPE_… that end at the processes that enter it, and theirs.
    """
    attributes = struct.pack("<QQQ", files, network, scoped)
    descriptor = _libc.syscall(
        _SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0
    )
    return _check_result(descriptor, "landlock_create_ruleset")


def landlock_rule(ruleset: int, access: int, folder: int) -> None:
    """Allow some access to a file, or to a folder and everything below it.

    Args:
        ruleset: see `landlock_ruleset`.
        access: LANDLOCK_ACCESS_FS_….
        folder: a descriptor, of O_PATH.
    """
    # Packed without padding at its end: struct landlock_path_beneath_attr has 12 bytes.
    rule = struct.pack("<Qi", access, folder)
    added = _libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    _check_result(added, "landlock_add_rule")


def landlock_enter(ruleset: int) -> None:
    """Put this process under a set of rules for good, beside those it is under; it needs
    `no_new_privileges`.

    Args:
        ruleset: see `landlock_ruleset`; it is closed.
    """
    # The flag is of version 7; older kernels refuse bits that they do not know.
    unlogged = _LANDLOCK_RESTRICT_SELF_UNLOGGED if landlock_abi() >= 7 else 0
    _check_result(
        _libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, unlogged), "landlock_restrict_self"
    )
    # The process is under the rules now; the descriptor would only be inherited.
    os.close(ruleset)


def dumpable(yes: bool) -> None:
    """Whether other processes of the same user may open this process's files in /proc.

    Args:
        yes: True if they may.
    """
    _check_result(_libc.prctl(_PR_SET_DUMPABLE, int(yes), 0, 0, 0), "PR_SET_DUMPABLE")


def no_new_privileges() -> None:
    """PR_SET_NO_NEW_PRIVS of prctl(2): nothing that is executed gains privileges."""
    _check_result(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def same_memory(one: int, other: int) -> bool:
    """Whether two processes share one address space, as after vfork; False where the kernel does
    not say.

    Args:
        one, other: their process numbers.
    """
    return bool(_libc.syscall(_SYS_KCMP, one, other, _KCMP_VM, 0, 0) == 0)


def shared_memory() -> int:
    """Bytes of shared memory on the whole machine: sysinfo(2)'s sharedram, which /proc/meminfo
    calls Shmem."""
    info = (
        ctypes.c_ulong * 32
    )()  # uptime, 3 loads, totalram, freeram, sharedram …; the unit is a byte on 64 bits
    _check_result(_libc.sysinfo(ctypes.byref(info)), "sysinfo")
    return int(info[6])


def task_clock() -> int:
    """A descriptor whose 8 bytes are the CPU nanoseconds of this process and of all that descend
    from it from now on.

    It counts those that nobody waits for, too.  -1 where the kernel or a container does not allow
    it (kernel.perf_event_paranoid above 2); system time counts although the kernel is excluded, as
    users must.
    """
    flags = _PERF_INHERIT | _PERF_EXCLUDE_KERNEL | _PERF_EXCLUDE_HV
    # Zero sample period: it counts only. The third field is PERF_COUNT_SW_TASK_CLOCK.
    attributes = struct.pack("<IIQ24xQ", 1, _PERF_ATTRIBUTES, 1, flags).ljust(
        _PERF_ATTRIBUTES, b"\0"
    )
    # pid 0 is this process, CPU -1 any, group -1 none.
    return int(_libc.syscall(_SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, _PERF_CLOEXEC))


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_NO_CAPABILITIES = _Header(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()


def bound_capabilities() -> None:
    """No program that is executed gains capabilities from its file.  Those of this process stay."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # the kernel has no more of them, or this process may not drop any
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def drop_capabilities() -> None:
    """Drop all permitted, effective and inheritable capabilities for good."""
    header, none = _NO_CAPABILITIES
    _check_result(_libc.capset(ctypes.byref(header), none), "capset")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def _address_of(code: bytes) -> object:
    """The filter in memory, which the address keeps alive."""
    buffer: Any = ctypes.create_string_buffer(code, len(code))
    # A BPF instruction has 8 bytes; the kernel wants their number.
    return ctypes.byref(_Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p)))


def system_call_filter(code: bytes) -> Callable[[], None]:
    """A function that loads a seccomp filter; it needs `no_new_privileges`.

    Everything is prepared beforehand, since each run calls the function.

    Args:
        code: an array of struct sock_filter.
    """
    address = _address_of(code)

    def load() -> None:
        _check_result(
            _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, address, 0, 0), "PR_SET_SECCOMP"
        )

    return load


def system_call_listener(code: bytes) -> Callable[[], int]:
    """A function that loads a seccomp filter, and returns the descriptor at which its
    SECCOMP_RET_USER_NOTIF are asked.

    Args:
        code: see `system_call_filter`.
    """
    address = _address_of(code)

    def load() -> int:
        # Killable is newer than the listener; without it any signal withdraws a question.
        for flags in (_SECCOMP_LISTENER | _SECCOMP_KILLABLE, _SECCOMP_LISTENER):
            descriptor = _libc.syscall(_SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER, flags, address)
            if descriptor >= 0:
                break
        return _check_result(descriptor, "seccomp with a listener")

    return load


def ioctl(fd: int, request: int, data: bytearray) -> int:
    """ioctl(2), which a signal ends: Python's own may begin again.

    Args:
        fd: of what.
        request: its number.
        data: is read or written.

    Returns:
        0 or the errno.
    """
    buffer = (ctypes.c_char * len(data)).from_buffer(data)
    # The error number is returned, not raised: most of them are expected here.
    return ctypes.get_errno() if _libc.ioctl(fd, ctypes.c_ulong(request), buffer) < 0 else 0


def signal_descriptor(number: int) -> int:
    """A descriptor that can be read when a signal, which is blocked, is pending: signalfd(2).

    Args:
        number: of the signal.
    """
    # Signal n is bit n - 1 of a kernel's set.
    mask = struct.pack("<Q", 1 << (number - 1))
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    return _check_result(
        _libc.syscall(_SYS_SIGNALFD4, -1, mask, ctypes.c_size_t(len(mask)), flags), "signalfd"
    )
