"""Which system calls a guest may make: an allow-list, compiled to a seccomp filter.

    ALLOW, FILTERED, …: name → rule ──▶ program("x86_64") ──▶ bytes
                                    ──▶ the guest: prctl(PR_SET_SECCOMP, …, bytes)

The namespaces decide what a call can reach; this list keeps guests away from the rest of the
kernel, where the next hole will be.  What is not on it gets ENOSYS, the answer of an older kernel:
libraries know it and fall back.  On it is what Python, C++, JavaScript and shell programs were seen
to need, and plain relatives of that.  Left out although some programs ask for them: inotify (it
tells what other runs do with shared files), splice (many holes; programs that use it copy instead),
memory policies, protection keys, System V IPC.

No filter can follow a pointer, so paths and the fields of structures are the mount namespace's
work, not ours. Every argument we do look at is 32 bits wide to the kernel (clone takes the low word
of its flags): the high word is ignored here because it is ignored there.

A rule that reads no argument costs next to nothing on Linux >= 5.11, which keeps those verdicts in
a bitmap. Elsewhere, and for the other rules, a call runs 10 to 17 instructions: the numbers form a
search tree, not a list.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlvr.errors import UsageError, brief

__all__ = [
    "ALLOW",
    "ASK",
    "KILL",
    "NUMBERS",
    "POLICY",
    "RESTRICTED",
    "Rule",
    "Switch",
    "UNSCOPED",
    "UNTRUNCATED",
    "forks",
    "program",
    "refuse",
]

# SECCOMP_RET_ALLOW, _KILL_PROCESS and _USER_NOTIF of linux/seccomp.h.
ALLOW: Final = 0x7FFF_0000
KILL: Final = 0x8000_0000  # the whole process, with SIGSYS
ASK: Final = 0x7FC0_0000  # whoever holds the filter's listener


def refuse(error: int) -> int:
    """The verdict that fails a call.

    Args:
        error: the errno; 0 for a call that succeeds without doing anything.
    """
    # SECCOMP_RET_ERRNO of linux/seccomp.h; the errno is in the low 16 bits.
    return 0x0005_0000 | error


@dataclass(frozen=True, slots=True)
class Switch:
    """A rule that depends on an argument of the call.

    Attributes:
        argument: its index, from 0.
        cases: value of the argument → rule.
        otherwise: the rule for every other value.
        mask: the bits of the argument that are compared.
    """

    argument: int
    cases: Mapping[int, Rule]
    otherwise: Rule
    mask: int = 0xFFFF_FFFF


Rule: TypeAlias = "int | Switch"
"""A verdict, or a test that leads to one."""


def _only(argument: int, values: str, error: int) -> Switch:
    return Switch(argument, {int(value, 0): ALLOW for value in values.split()}, refuse(error))


# -------------------------------------------------------- the list: name, x86_64 and aarch64 number

_ALLOWED: Final = """
    # reading and writing
    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
    pwritev 296 70, preadv2 327 286, pwritev2 328 287, lseek 8 62, sendfile 40 71,
    copy_file_range 326 285,
    # files and folders: the mount namespace decides which
    open 2 -, openat 257 56, creat 85 -, close 3 57, close_range 436 436, dup 32 23, dup2 33 -,
    dup3 292 24, pipe 22 -, pipe2 293 59, stat 4 -, lstat 6 -, fstat 5 80, newfstatat 262 79,
    statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -, faccessat 269 48, faccessat2 439 439,
    getdents 78 -, getdents64 217 61, readlink 89 -, readlinkat 267 78, getcwd 79 17, chdir 80 49,
    fchdir 81 50, umask 95 166, mkdir 83 -, mkdirat 258 34, rmdir 84 -, rename 82 -,
    renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36,
    unlink 87 -, unlinkat 263 35, truncate 76 45, ftruncate 77 46, fallocate 285 47, flock 73 32,
    chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -,
    fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88, getxattr 191 8,
    lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12, flistxattr 196 13,
    # memory
    brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, msync 26 227,
    membarrier 324 283,
    # waiting
    poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20,
    epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd 284 -,
    eventfd2 290 19, signalfd 282 -, signalfd4 289 74, timerfd_create 283 85,
    timerfd_settime 286 86, timerfd_gettime 287 87,
    # time
    time 201 -, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114,
    clock_nanosleep 230 115, nanosleep 35 101, alarm 37 -, getitimer 36 102, setitimer 38 103,
    timer_create 222 107, timer_settime 223 110, timer_gettime 224 108, timer_getoverrun 225 109,
    timer_delete 226 111, times 100 153, getrusage 98 165,
    # threads
    futex 202 98, set_robust_list 273 99, set_tid_address 218 96, rseq 334 293, sched_yield 24 124,
    getcpu 309 168, gettid 186 178, sched_getaffinity 204 123, sched_getparam 143 121,
    sched_getscheduler 145 120, sched_getattr 315 275, sched_get_priority_max 146 125,
    sched_get_priority_min 147 126, sched_rr_get_interval 148 127, getpriority 140 141,
    # processes: the pid namespace decides which
    fork 57 -, vfork 58 -, execve 59 221, exit 60 93, exit_group 231 94, wait4 61 260,
    waitid 247 95, pidfd_open 434 434, getpid 39 172, getppid 110 173, getpgid 121 155,
    getpgrp 111 -, getsid 124 156, setpgid 109 154, setsid 112 157, setrlimit 160 164,
    getrlimit 97 163, capget 125 90, getuid 102 174, geteuid 107 175, getgid 104 176,
    getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
    # signals
    kill 62 129, tkill 200 130, tgkill 234 131, pidfd_send_signal 424 424, rt_sigaction 13 134,
    rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133,
    rt_sigtimedwait 128 137, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
    sigaltstack 131 132, pause 34 -, restart_syscall 219 128,
    # local sockets
    bind 49 200, listen 50 201, accept 43 202, accept4 288 242, connect 42 203, getsockname 51 204,
    getpeername 52 205, sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212,
    shutdown 48 210,
    # the machine
    uname 63 160, sysinfo 99 179, getrandom 318 278,
"""

# Done by doing nothing: scratch is RAM, so there is nothing to wait for, while a sync(), or fsync()
# on a file that it may only read, would flush the host's disks as often as a guest likes, and
# fadvise() empties the host's page cache.
_DONE: Final = """
    sync 162 81, syncfs 306 267, fsync 74 82, fdatasync 75 83, sync_file_range 277 84,
    fadvise64 221 223, readahead 187 213,
"""

# The answer of a file system without attributes: shutil.copy2 and cp -p go on after this one, not
# after ENOSYS.
_UNSUPPORTED: Final = """
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
    fremovexattr 199 16,
"""

# EPERM, as for an ordinary user, so that the error says what is wrong.  The sched_* calls are among
# them because they work on any process of the same user, hence on pid 1, which watches the guest,
# and undo a pinning to cores.
_REFUSED: Final = """
    ptrace 101 117, mount 165 40, umount2 166 39, chroot 161 51, pivot_root 155 41, unshare 272 97,
    setns 308 268, capset 126 91, setuid 105 146, setgid 106 144, setreuid 113 145,
    setregid 114 143, setresuid 117 147, setresgid 119 149, setgroups 116 159,
    sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118,
    sched_setattr 314 274,
"""

# Each with a rule of its own, below.
_FILTERED: Final = """
    clone 56 220, socket 41 198, socketpair 53 199, setsockopt 54 208, ioctl 16 29, fcntl 72 25,
    prctl 157 167, arch_prctl 158 -, madvise 28 233, personality 135 92, prlimit64 302 261,
    getsockopt 55 209, setpriority 141 140, mknod 133 -, mknodat 259 33, memfd_create 319 279,
    clone3 435 435,
"""

# CLONE_NEW*, and CLONE_PARENT: the new process would be a child of pid 1 that pid 1 did not start.
# And CLONE_THREAD without CLONE_FILES: what such a thread holds is in no table of its process.
_CLONE_MASK: Final = 0x7E02_0000 | 0x8000 | 0x1_0000 | 0x400

_RULES: Final[Mapping[str, Rule]] = {
    "clone": Switch(
        0,
        # Plain forks and threads: CLONE_THREAD only with CLONE_FILES.
        dict.fromkeys((0, 0x400, 0x1_0400), ALLOW),
        refuse(errno.EPERM),
        mask=_CLONE_MASK,
    ),
    "clone3": refuse(errno.ENOSYS),  # its flags lie behind a pointer; libraries then use clone
    # AF_UNIX alone: the network namespace is empty, and the other families are a large part of the
    # kernel
    "socket": _only(0, "1", errno.EAFNOSUPPORT),
    "socketpair": _only(0, "1", errno.EAFNOSUPPORT),
    # SO_REUSEADDR BROADCAST RCVBUF KEEPALIVE LINGER REUSEPORT PASSCRED RCVTIMEO SNDTIMEO; never
    # ATTACH_FILTER SNDBUF does nothing: as large as hosts allow, buffers would be gigabytes that
    # only a cgroup counts
    "setsockopt": Switch(
        2,
        {7: refuse(0), **dict.fromkeys((2, 6, 8, 9, 13, 15, 16, 20, 21), ALLOW)},
        refuse(errno.ENOPROTOOPT),
    ),
    # Not PEERPIDFD: of a socket that the host made it would be the host's process.  Nor PEERSEC and
    # PEERGROUPS.
    "getsockopt": Switch(2, dict.fromkeys((77, 31, 59), refuse(errno.ENOPROTOOPT)), ALLOW),
    # TCGETS TIOCGPGRP TIOCOUTQ TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX TCGETS2: questions, and
    # flags of their own
    "ioctl": _only(
        1, "0x5401 0x540F 0x5411 0x5413 0x541B 0x5421 0x5450 0x5451 0x802C542A", errno.ENOTTY
    ),
    # DUPFD GETFD SETFD GETFL SETFL, GETLK SETLK SETLKW, DUPFD_CLOEXEC SETPIPE_SZ GETPIPE_SZ
    # GET_SEALS. Not OFD_SETLK: such locks live in descriptors that were sent, where pid 1 of the
    # run cannot count them. Not SETLEASE: the host's open() of such a file would wait for 45 s.
    # Not ADD_SEALS: output may be a memfd of ours.
    "fcntl": _only(1, "0 1 2 3 4 5 6 7 1030 1031 1032 1034", errno.EINVAL),
    # SET_ and GET_PDEATHSIG, GET_DUMPABLE, SET_ and GET_NAME, GET_SECCOMP, CAPBSET_READ,
    # GET_SECUREBITS, SET_ and GET_TIMERSLACK, SET_ and GET_NO_NEW_PRIVS, SVE_GET_VL.  Not SET_VMA:
    # its names are memory that no limit counts.
    "prctl": _only(0, "1 2 3 15 16 21 23 27 29 30 38 39 51", errno.EINVAL),
    # the thread pointer (SET_GS SET_FS GET_FS GET_GS) and wide registers (GET_XCOMP_SUPP
    # GET_XCOMP_PERM REQ_XCOMP_PERM)
    "arch_prctl": _only(0, "0x1001 0x1002 0x1003 0x1004 0x1021 0x1022 0x1023", errno.EINVAL),
    # Not MERGEABLE (the time to write a merged page tells what others hold), COLD, PAGEOUT and
    # COLLAPSE (they move the host's pages), HWPOISON.  102 and 103 are GUARD_INSTALL and
    # GUARD_REMOVE, for the stacks of threads.
    "madvise": _only(2, "0 1 2 3 4 8 9 10 11 14 15 16 17 18 19 22 23 102 103", errno.EINVAL),
    # the plain one, and the question which it is
    "personality": _only(0, "0 0xFFFFFFFF", errno.EPERM),
    # Of the caller alone: on pid 1 they work too, and a pid 1 that may open no file is our failure,
    # not the guest's Not HUGETLB: pages of a pool that the host has set aside, in no memory limit
    "mmap": Switch(3, {0x40000: refuse(errno.ENOMEM)}, ALLOW, mask=0x40000),
    # RLIMIT_CORE is 1, which keeps even a crash handler of the host's from seeing the program; 0
    # would not
    "prlimit64": Switch(
        0, {0: Switch(1, {4: Switch(2, {0: ALLOW}, refuse(0))}, ALLOW)}, refuse(errno.EPERM)
    ),
    "setrlimit": Switch(0, {4: refuse(0)}, ALLOW),
    "setpriority": Switch(0, {0: _only(1, "0", errno.EPERM)}, refuse(errno.EPERM)),
    # Named pipes alone; the type is in the mode
    "mknod": Switch(1, {0o010000: ALLOW}, refuse(errno.EPERM), mask=0o170000),
    "mknodat": Switch(2, {0o010000: ALLOW}, refuse(errno.EPERM), mask=0o170000),
    "memfd_create": refuse(errno.ENOSYS),  # see `program`
}


def _numbers(text: str) -> dict[str, tuple[int | None, int | None]]:
    rows = [
        row.split()
        for line in text.splitlines()
        if "#" not in line
        for row in line.split(",")
        if row.strip()
    ]
    return {name: (_number(x86_64), _number(aarch64)) for name, x86_64, aarch64 in rows}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


NUMBERS: Final[Mapping[str, tuple[int | None, int | None]]] = _numbers(
    "\n".join([_ALLOWED, _DONE, _UNSUPPORTED, _REFUSED, _FILTERED])
)
"""The calls the list names, with their numbers on x86_64 and aarch64; None where an
architecture has no such call."""

POLICY: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_numbers(_ALLOWED), ALLOW),
    **dict.fromkeys(_numbers(_DONE), refuse(0)),
    **dict.fromkeys(_numbers(_UNSUPPORTED), refuse(errno.EOPNOTSUPP)),
    **dict.fromkeys(_numbers(_REFUSED), refuse(errno.EPERM)),
    **_RULES,
}
"""The rule of each call; what is not here gets ENOSYS."""


RESTRICTED: Final[Mapping[str, Rule]] = {
    # Files that no mount hides or makes read-only: Landlock looks at what is opened, made or
    # removed, and not at these. They do nothing and say that it worked, as programs call them after
    # what did.
    **dict.fromkeys(
        (
            "chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat"
        ).split(),
        refuse(0),
    ),
    # Sockets of the host, by a path or a name: Landlock does not keep programs from those with a
    # path.  Two ends of one pair remain, and of the kinds that send to their other end only.
    **dict.fromkeys(
        "socket bind listen accept accept4 connect".split(), refuse(errno.EAFNOSUPPORT)
    ),
    "socketpair": Switch(
        0,
        {1: Switch(1, {1: ALLOW, 5: ALLOW}, refuse(errno.EPROTONOSUPPORT), mask=0xF)},
        refuse(errno.EAFNOSUPPORT),
    ),
    # A full disk of the host in less time than it takes to look
    "fallocate": refuse(errno.EOPNOTSUPP),
    # Descriptors on their way between processes: files and sockets that no look at a process would
    # find
    **dict.fromkeys("sendmsg recvmsg".split(), refuse(errno.EPERM)),
}
"""The rules that change at the level "restricted", where no mount, network and pid
namespace stand behind them."""

# O_TRUNC of a file that is not opened for writing, which Landlock's right to write does not see
_NO_TRUNCATION: Final = {0o1000: refuse(errno.EACCES), 0o1003: refuse(errno.EACCES)}

UNTRUNCATED: Final[Mapping[str, Rule]] = {
    "truncate": refuse(errno.EACCES),
    "open": Switch(1, _NO_TRUNCATION, ALLOW, mask=0o1003),
    "openat": Switch(2, _NO_TRUNCATION, ALLOW, mask=0o1003),
}
"""The rules beside them before Landlock's version 3, which cannot keep
files from being truncated."""

UNSCOPED: Final[Mapping[str, Rule]] = {"pidfd_send_signal": refuse(errno.ENOSYS)}
"""The rules beside them before Landlock's version 6, which cannot keep signals in."""

_FORKS: Final = ("clone", "fork", "vfork")
_SIGNALS: Final = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")


# ------------------------------------------------------------------------------------- the compiler

# AUDIT_ARCH_* of linux/audit.h.  The filter compares it first: system calls have other numbers on
# another architecture.
_AUDIT_ARCH: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_ALIASES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

# linux/bpf_common.h
_LOAD, _AND, _JUMP, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data

_Code: TypeAlias = list[bytes]


def program(
    arch: str | None = None, *, memfd: bool = False, restricted: bool = False, landlock: int = 6
) -> bytes:
    """The filter, as the kernel takes it: an array of struct sock_filter, eight bytes each.

    Args:
        arch: as `platform.machine()` names it; None for this machine.
        memfd: allow memfd_create.  Its pages belong to no process and to no mount, so only a memory
            cgroup counts them; without one a guest would hold as much RAM as it likes.
        restricted: with the rules of `RESTRICTED`.
        landlock: its version, on which those depend.

    Raises:
        UsageError: the list has no numbers for this machine.
    """
    machine = _known_machine(arch)
    policy = {
        **POLICY,
        **(RESTRICTED if restricted else {}),
        **(UNTRUNCATED if restricted and landlock < 3 else {}),
        **(UNSCOPED if restricted and landlock < 6 else {}),
        **({"memfd_create": ALLOW} if memfd else {}),
    }
    # x32's numbers have bit 30 set, so they are behind every number of the table.
    return _assemble_filter(machine, policy, refuse(errno.ENOSYS))


def forks(arch: str | None = None, *, signals: bool = False) -> bytes:
    """A filter that asks for each new process and thread, and allows all else.

    Args:
        arch: see `program`.
        signals: ask for each signal too.
    """
    names = _FORKS + (_SIGNALS if signals else ())
    return _assemble_filter(_known_machine(arch), dict.fromkeys(names, ASK), ALLOW)


def _known_machine(arch: str | None) -> str:
    machine = platform.machine() if arch is None else arch
    machine = _ALIASES.get(machine.lower(), machine)
    if machine not in _AUDIT_ARCH:
        raise UsageError(
            f"the machine is {brief(machine)}; the seccomp list has the numbers of "
            f"{' and '.join(_AUDIT_ARCH)}"
        )
    return machine


def _assemble_filter(machine: str, policy: Mapping[str, Rule], otherwise: Rule) -> bytes:
    column = list(_AUDIT_ARCH).index(machine)
    rules = {
        # None: this architecture has no such call, and libraries use another one.
        number: rule
        for name, rule in policy.items()
        if (number := NUMBERS[name][column]) is not None
    }
    return b"".join(
        [
            # A 32-bit call has numbers of its own, and no compiler of ours makes one
            # First of all: the number means nothing until the architecture is known.
            _op(_LOAD, _ARCH),
            _op(_IF_EQUAL, _AUDIT_ARCH[machine], then=1),
            _op(_RETURN, KILL),
            _op(_LOAD, _NR),
            *_search(_spans(rules, otherwise)),
        ]
    )


def _op(code: int, k: int, then: int = 0, other: int = 0) -> bytes:
    # struct sock_filter: code, jump if true, jump if false, operand.
    return struct.pack("<HBBI", code, then, other, k)


def _compile_rule(rule: Rule) -> _Code:
    if isinstance(rule, int):
        return [_op(_RETURN, rule)]
    mask = [] if rule.mask == 0xFFFF_FFFF else [_op(_AND, rule.mask)]
    return [
        # The low word of the argument: both machines are little-endian.
        _op(_LOAD, _ARGS + 8 * rule.argument),
        *mask,
        *_search(_spans(rule.cases, rule.otherwise)),
    ]


def _spans(cases: Mapping[int, Rule], otherwise: Rule) -> list[tuple[int, Rule]]:
    """All 32-bit values as spans of one rule each: (first value, rule), in order."""
    spans: list[tuple[int, Rule]] = []
    # A case is one value, so what follows it is another span.
    for first in sorted({0, *cases, *(value + 1 for value in cases if value < 0xFFFF_FFFF)}):
        rule = cases.get(first, otherwise)
        # Neighbours with one rule are one span, which makes the tree smaller.
        if not spans or spans[-1][1] != rule:
            spans.append((first, rule))
    return spans


def _search(spans: list[tuple[int, Rule]]) -> _Code:
    """Find the span of the loaded word by halving."""
    if len(spans) == 1:
        return _compile_rule(spans[0][1])
    middle = len(spans) // 2
    below, above = _search(spans[:middle]), _search(spans[middle:])
    first = spans[middle][0]
    if len(below) < 256:  # a conditional jump has eight bits, a plain one 32
        return [_op(_IF_AT_LEAST, first, then=len(below)), *below, *above]
    return [_op(_IF_AT_LEAST, first, other=1), _op(_JUMP, len(below)), *below, *above]
