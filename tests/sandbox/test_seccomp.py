"""The system call filter, each of its verdicts, by a small interpreter of its own (test_seccomp_kernel: by Linux)."""

import errno
import functools
import platform
import re
import signal
import struct
from pathlib import Path

import pytest

from rlvr.errors import UsageError
from rlvr.sandbox import seccomp

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHES = list(AUDIT_ARCH)
HIGH = 0xDEAD_BEEF << 32  # the kernel does not look there, so it must not change a verdict
OK = 0x7FFF0000
WITHOUT = [
    0,
    1 << 31,
    0xFFFF_FFFF,
    (1 << 64) - 1,
]  # arguments that a rule without arguments must not mind


@functools.cache
def unpacked(code: bytes) -> list[tuple[int, int, int, int]]:
    """(operation, jump if true, jump if false, constant) of each instruction."""
    instructions = list(struct.iter_unpack("<HBBI", code))
    assert 0 < len(instructions) <= 4096  # BPF_MAXINSNS
    return instructions


def verdict(code: bytes, nr: int, args: tuple[int, ...] = (), *, arch: int) -> tuple[int, int]:
    """Run classic BPF on one call: (what it returns, instructions executed).  Knows what we emit and nothing else."""
    words = [word % (1 << 64) for word in (*args, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", nr, arch, 0x7F00_0000_0000, *words)
    instructions = unpacked(code)
    at = steps = word = 0
    while True:
        op, then, other, k = instructions[at]
        at, steps = at + 1, steps + 1
        match op:
            case 0x20:
                (word,) = struct.unpack_from("<I", data, k)
            case 0x54:
                word &= k
            case 0x05:
                at += k
            case 0x15:
                at += then if word == k else other
            case 0x35:
                at += then if word >= k else other
            case 0x06:
                return k, steps
            case _:
                raise AssertionError(f"instruction {op:#x}")


program = functools.cache(seccomp.program)  # hundreds of tests ask for the same few


def said(name: str, *args: int, machine: str = "x86_64", **options: bool) -> int:
    """What a call gets: 0 when it is let through, an errno, or -1 when it succeeds without the kernel."""
    nr = seccomp.NUMBERS[name][ARCHES.index(machine)]
    assert nr is not None
    return answer(verdict(program(machine, **options), nr, args, arch=AUDIT_ARCH[machine])[0])


def answer(value: int) -> int:
    if value == OK:
        return 0
    assert value & 0xFFFF_0000 == 0x0005_0000, hex(value)
    return value & 0xFFFF or -1


def both(name: str) -> list[str]:
    return [
        machine for machine, nr in zip(ARCHES, seccomp.NUMBERS[name], strict=True) if nr is not None
    ]


# ---------------------------------------------------------------------------------------- the table

# What a guest must not reach: name, x86_64 and aarch64 number.  The list does not name most of them.
DENIED = """
    process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272, process_madvise 440 440,
    ptrace 101 117, seccomp 317 277, landlock_create_ruleset 444 444, get_robust_list 274 100,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, open_tree 428 428,
    move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
    name_to_handle_at 303 264, open_by_handle_at 304 265, execveat 322 281, quotactl 179 60, quotactl_fd 443 443,
    add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282,
    io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, io_setup 206 0, io_submit 209 2,
    fanotify_init 300 262, fanotify_mark 301 263, inotify_init1 294 26, inotify_add_watch 254 27,
    init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
    reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, syslog 103 116, sethostname 170 161,
    setdomainname 171 162, settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266,
    iopl 172 -, ioperm 173 -, modify_ldt 154 -, uselib 134 -, ustat 136 -, sysfs 139 -, _sysctl 156 -,
    shmget 29 194, shmat 30 196, semget 64 190, semop 65 193, msgget 68 186, msgsnd 69 189, mq_open 240 180,
    memfd_create 319 279, memfd_secret 447 447, vmsplice 278 75, splice 275 76, tee 276 77, clone3 435 435,
    set_mempolicy 238 237, mbind 237 235, migrate_pages 256 238, move_pages 279 239, remap_file_pages 216 234,
    ioprio_set 251 30, sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setattr 314 274,
    setuid 105 146, setgid 106 144, setresuid 117 147, setgroups 116 159, setfsuid 122 151, capset 126 91,
    lookup_dcookie 212 18, nfsservctl 180 42, process_mrelease 448 448
"""
DENIED = [tuple(row.split()) for row in DENIED.split(",")]

# Those that get EPERM.
FORBIDDEN = {
    "ptrace", "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "sched_setaffinity",
    "sched_setscheduler", "sched_setattr", "setuid", "setgid", "setresuid", "setgroups", "capset",
}  # fmt: skip


def headers() -> list[tuple[str, dict[str, int]]]:
    """The kernel's own numbers, where its headers are installed: (machine, name → number)."""
    found = []
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if platform.machine() == "x86_64" and Path(path).exists():
            text = Path(path).read_text(encoding="utf-8")
            found.append(
                (
                    "x86_64",
                    {n: int(v) for n, v in re.findall(r"^#define __NR_(\w+)\s+(\d+)$", text, re.M)},
                )
            )
            break
    generic = Path("/usr/include/asm-generic/unistd.h")  # aarch64 uses it as it stands
    if generic.exists():
        text = generic.read_text(encoding="utf-8")
        numbers = {n: int(v) for n, v in re.findall(r"^#define (__NR\w+)\s+(\d+)$", text, re.M)}
        for name, other in re.findall(r"^#define (__NR_\w+)\s+(__NR3264_\w+)$", text, re.M):
            if other in numbers:
                numbers.setdefault(name, numbers[other])
        found.append(
            (
                "aarch64",
                {n[5:]: v for n, v in numbers.items() if n.startswith("__NR_") and v < 1000},
            )
        )
    return found


@pytest.mark.skipif(not headers(), reason="no kernel headers here")
def test_the_numbers_are_the_kernels():
    """A typo here opens another call than the one it names."""
    for machine, kernel in headers():
        column = ARCHES.index(machine)
        ours = {
            name: numbers[column] for name, numbers in seccomp.NUMBERS.items() if name in kernel
        }
        assert len(ours) > 170
        assert ours == {name: kernel[name] for name in ours}
        theirs = {row[0]: row[1 + column] for row in DENIED if row[0] in kernel}
        assert theirs == {name: str(kernel[name]) for name in theirs}
        gone = {
            name for name, numbers in seccomp.NUMBERS.items() if numbers[column] is not None
        } - set(kernel)
        assert not {
            name for name in gone if seccomp.NUMBERS[name][column] < 300
        }  # old ones are in every header


def test_every_name_has_one_rule_and_one_number():
    """Two names with one number would leave the verdict to their order."""
    assert set(seccomp.POLICY) == set(seccomp.NUMBERS)
    for column in range(len(ARCHES)):
        numbers = [pair[column] for pair in seccomp.NUMBERS.values() if pair[column] is not None]
        assert len(numbers) == len(set(numbers))
        assert len(numbers) > 170


# ------------------------------------------------------------------------------------ every verdict


@pytest.mark.parametrize("machine", ARCHES)
def test_every_number_gets_the_verdict_of_its_name(machine):
    """All numbers that there are, named or not, with arguments that must not matter."""
    code, column = seccomp.program(machine), ARCHES.index(machine)
    plain = {
        numbers[column]: seccomp.POLICY[name]
        for name, numbers in seccomp.NUMBERS.items()
        if isinstance(seccomp.POLICY[name], int)
    }
    tested = {
        numbers[column] for name, numbers in seccomp.NUMBERS.items() if numbers[column] not in plain
    }
    for nr in {*range(2048), 0x3FFF_FFFF, 0x7FFF_FFFF, 0xFFFF_FFFF} - tested:
        for word in WITHOUT:
            got, _ = verdict(code, nr, (word,) * 6, arch=AUDIT_ARCH[machine])
            assert got == plain.get(nr, 0x0005_0000 | errno.ENOSYS), nr


@pytest.mark.parametrize("machine", ARCHES)
def test_what_a_guest_must_not_reach_is_out_of_reach(machine):
    """By number, so that a name that gets onto the list by accident is found here."""
    for name, *numbers in DENIED:
        number = numbers[ARCHES.index(machine)]
        if number == "-":
            assert machine == "aarch64", name
            continue
        for word in WITHOUT:
            got, _ = verdict(program(machine), int(number), (word,) * 6, arch=AUDIT_ARCH[machine])
            assert answer(got) == (errno.EPERM if name in FORBIDDEN else errno.ENOSYS), name


@pytest.mark.parametrize("machine", ARCHES)
def test_a_call_of_another_architecture_kills(machine):
    """Its numbers mean other calls: 32-bit 11 is execve, which is munmap in ours."""
    for arch in (0x4000_0003, 0x4000_0028, 0, 0xFFFF_FFFF, *AUDIT_ARCH.values()):
        for nr in range(512):
            got, _ = verdict(program(machine), nr, arch=arch)
            assert (got == seccomp.KILL) == (arch != AUDIT_ARCH[machine])


def test_x32_numbers_do_not_exist():
    """They come with x86_64's architecture, and call the same functions."""
    code = seccomp.program("x86_64")
    for nr in (*range(0x4000_0000, 0x4000_0400), 0x8000_0000, 0xFFFF_FFFF):
        assert answer(verdict(code, nr, arch=AUDIT_ARCH["x86_64"])[0]) == errno.ENOSYS


# ---------------------------------------------------------------------------------------- arguments

CLONE_THREAD_FLAGS = 0x003D_0F00  # what pthread_create passes
ARGUMENTS = [
    (
        "clone",
        0,
        [
            CLONE_THREAD_FLAGS,
            signal.SIGCHLD,
            0x4100 | signal.SIGCHLD,
            0x0120_0011,
            0x1000,
            0x8000_0000,
        ],
        0,
    ),
    (
        "clone",
        0,
        [1 << bit for bit in (15, 16, 17, 25, 26, 27, 28, 29, 30)],
        errno.EPERM,
    ),  # PARENT, NEWNS … NEWNET
    ("clone", 0, [CLONE_THREAD_FLAGS | 1 << 28, 0x7E02_0000, 0xFFFF_FFFF], errno.EPERM),
    ("socket", 0, [1], 0),
    (
        "socket",
        0,
        [0, 2, 10, 15, 16, 17, 38, 40, 44, 0xFFFF_FFFF],
        errno.EAFNOSUPPORT,
    ),  # INET … ALG VSOCK XDP
    ("socketpair", 0, [1], 0),
    ("socketpair", 0, [0, 2, 30, 0x8000_0001], errno.EAFNOSUPPORT),
    ("setsockopt", 2, [2, 6, 8, 9, 13, 15, 16, 20, 21], 0),
    ("setsockopt", 2, [7], -1),  # succeeds without doing anything
    (
        "setsockopt",
        2,
        [0, 26, 27, 36, 50, 51, 52, 0xFFFF_FFFF],
        errno.ENOPROTOOPT,
    ),  # ATTACH_FILTER and its kin
    ("ioctl", 1, [0x5401, 0x540F, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A], 0),
    (
        "ioctl",
        1,
        [0, 0x5400, 0x5402, 0x5410, 0x5412, 0x5414, 0x541C, 0x5422, 0x5452, 0x80047601],
        errno.ENOTTY,
    ),
    (
        "ioctl",
        1,
        [0x4B4D, 0x40049409, 0xC0185879, 0xB701, 0x8008B705, 0xFFFF_FFFF],
        errno.ENOTTY,
    ),  # ns and pid of fds
    ("fcntl", 1, [*range(8), 1030, 1031, 1032, 1034], 0),
    (
        "fcntl",
        1,
        [8, 9, 10, 11, 15, 16, 36, 37, 38, 1024, 1025, 1026, 1033, 1036, 0xFFFF_FFFF],
        errno.EINVAL,
    ),
    ("prctl", 0, [1, 2, 3, 15, 16, 21, 23, 27, 29, 30, 38, 39, 51], 0),
    (
        "prctl",
        0,
        [0, 4, 8, 14, 22, 24, 28, 31, 35, 36, 41, 47, 53, 59, 62, 67, 0x53564D41, 0x59616D61],
        errno.EINVAL,
    ),
    ("arch_prctl", 0, [0x1001, 0x1002, 0x1003, 0x1004, 0x1021, 0x1022, 0x1023], 0),
    (
        "arch_prctl",
        0,
        [0, 0x1011, 0x1012, 0x1024, 0x2001, 0x3001, 0x5001, 0x5003, 0xFFFF_FFFF],
        errno.EINVAL,
    ),
    ("madvise", 2, [0, 1, 2, 3, 4, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 22, 23, 102, 103], 0),
    ("madvise", 2, [5, 6, 7, 12, 13, 20, 21, 24, 25, 100, 101, 104, 0xFFFF_FFFF], errno.EINVAL),
    ("personality", 0, [0, 0xFFFF_FFFF], 0),
    ("personality", 0, [1, 8, 0x0004_0000, 0x0040_0000, 0x0010_0000, 0xFFFF_FFFE], errno.EPERM),
    ("prlimit64", 0, [0], 0),
    ("prlimit64", 0, [1, 2, 0x7FFF_FFFF, 0xFFFF_FFFF], errno.EPERM),
    ("mknod", 1, [0o010644, 0o010000], 0),
    ("mknod", 1, [0o020666, 0o060666, 0o100644, 0o140644, 0o666, 0, 0o170000], errno.EPERM),
    ("mknodat", 2, [0o010644, 0o017777], 0),
    ("mknodat", 2, [0o020666, 0o060666, 0o100644, 0o030644, 0xFFFF_FFFF], errno.EPERM),
]


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: f"{row[0]}-{row[3]}")
def test_an_argument_decides(row):
    """Whatever stands in the other arguments and in the high word, which the kernel does not read either."""
    name, argument, values, expected = row
    for machine in both(name):
        for value in values:
            for others in (0, 1, (1 << 64) - 1):
                for high in (0, HIGH, 1 << 32, 0xFFFF_FFFF << 32):
                    args = [others] * 6
                    args[argument] = value | high
                    assert said(name, *args, machine=machine) == expected, (
                        machine,
                        hex(value),
                        hex(high),
                    )


def test_priorities_are_changed_of_oneself_alone():
    """setpriority works on all processes of a user: the one that watches the guest would fall asleep."""
    for machine in ARCHES:
        assert said("setpriority", 0, 0, 19, machine=machine) == 0
        assert said("setpriority", HIGH, HIGH, 19, machine=machine) == 0
        for which, who in ((0, 1), (1, 0), (1, 1), (2, 0), (2, 1000), (0, 0xFFFF_FFFF)):
            assert said("setpriority", which, who, 19, machine=machine) == errno.EPERM


def test_no_huge_pages_of_the_hosts_pool():
    """They are in no cgroup and in no resident size."""
    for machine in ARCHES:
        for flags in (0x22, 0x1022, 0x2_0022, HIGH | 0x22, 0x4022):
            assert said("mmap", 0, 4096, 3, flags, machine=machine) == 0
            assert said("mmap", 0, 4096, 3, flags | 0x4_0000, machine=machine) == errno.ENOMEM


def test_a_socket_does_not_tell_who_is_at_the_other_end():
    """SO_PEERPIDFD, SO_PEERSEC and SO_PEERGROUPS of a socket that the host made; SO_PEERCRED says 0 there."""
    for machine in ARCHES:
        for option in (77, 31, 59):
            assert said("getsockopt", 3, 1, HIGH | option, machine=machine) == errno.ENOPROTOOPT
        for option in (3, 4, 7, 8, 17, 30, 38, 39):
            assert said("getsockopt", 3, 1, option, machine=machine) == 0


def test_a_core_limit_is_read_and_never_set():
    """Setting it succeeds without doing anything: from 0, which many programs set, a piped core pattern would dump."""
    for machine in ARCHES:
        for resource in range(16):
            assert said("prlimit64", 0, resource, 0, machine=machine) == 0
            set_for_nothing = -1 if resource == 4 else 0
            assert said("prlimit64", 0, resource, HIGH + 8, machine=machine) == set_for_nothing
            assert said("setrlimit", resource, 8, machine=machine) == set_for_nothing


def test_every_rule_with_arguments_is_tested_here():
    """Who adds a rule adds its row."""
    tested = {name for name, rule in seccomp.POLICY.items() if isinstance(rule, seccomp.Switch)}
    assert tested == {row[0] for row in ARGUMENTS} | {
        "getsockopt",
        "mmap",
        "setpriority",
        "setrlimit",
    }
    for name in tested - {"clone", "getsockopt", "mmap", "setpriority", "setrlimit"}:
        rule = seccomp.POLICY[name]
        shown = {
            value & rule.mask
            for row in ARGUMENTS
            if row[0] == name and row[3] <= 0
            for value in row[2]
        }
        assert shown == set(rule.cases)


def test_a_memfd_is_allowed_on_request():
    """Only where something counts its pages."""
    for machine in ARCHES:
        assert said("memfd_create", machine=machine) == errno.ENOSYS
        assert said("memfd_create", machine=machine, memfd=True) == 0


def test_a_sync_succeeds_without_the_kernel():
    """The guest's files are in RAM; the disks that it would flush are the host's."""
    for name in (
        "sync",
        "syncfs",
        "fsync",
        "fdatasync",
        "sync_file_range",
        "fadvise64",
        "readahead",
    ):
        assert {said(name, 1, 2, 3, machine=machine) for machine in both(name)} == {-1}


# ------------------------------------------------------------------------------- the program itself


@pytest.mark.parametrize("machine", ARCHES)
def test_a_call_costs_few_instructions(machine):
    """Every call of every run pays them; a list would cost 200 for the last."""
    code, column = seccomp.program(machine), ARCHES.index(machine)
    for name, numbers in seccomp.NUMBERS.items():
        if (nr := numbers[column]) is not None:
            plain = isinstance(seccomp.POLICY[name], int)
            assert verdict(code, nr, arch=AUDIT_ARCH[machine])[1] <= (12 if plain else 20), name


def test_jumps_reach_over_long_lists():
    """A conditional jump has eight bits: beyond 255 instructions it needs a plain one beside it."""
    cases = {n: n for n in range(1, 2000, 2)}
    code = b"".join(seccomp._compile_rule(seccomp.Switch(1, cases, 0)))
    for n in range(2002):
        got, steps = verdict(code, 0, (7, n | HIGH), arch=0)
        assert (got, steps < 32) == (cases.get(n, 0), True)


def test_the_last_word_has_nothing_after_it():
    """0xFFFFFFFF + 1 does not fit into an instruction."""
    code = b"".join(seccomp._compile_rule(seccomp.Switch(0, {0: 5, 0xFFFF_FFFF: 6}, 7)))
    assert [verdict(code, 0, (n,), arch=0)[0] for n in (0, 1, 0xFFFF_FFFE, 0xFFFF_FFFF)] == [
        5,
        7,
        7,
        6,
    ]


def test_a_machine_is_named_as_python_names_it():
    """None is this one; macOS and BSD have other names for the same."""
    assert seccomp.program("arm64") == seccomp.program("aarch64") != seccomp.program("x86_64")
    assert seccomp.program("AMD64") == seccomp.program("x86_64")
    if platform.machine() in ARCHES:
        assert seccomp.program() == seccomp.program(platform.machine())


@pytest.mark.parametrize("machine", ["riscv64", "i686", "", "aarch64_be", "x86_64 "])
def test_an_unknown_machine_is_refused_by_name(machine):
    """No numbers, no filter: never the wrong one."""
    with pytest.raises(UsageError, match=re.escape(repr(machine))):
        seccomp.program(machine)


# ------------------------------------------------------------------------------- without namespaces


@pytest.mark.parametrize("machine", ARCHES)
def test_without_a_network_namespace_only_ends_of_a_pair_are_sockets(machine):
    """Stream and seqpacket, with any flags: a datagram socket of a pair would send to any socket file."""
    asked = functools.partial(said, machine=machine, restricted=True)
    for flags in (0, 0o2000000, 0o4000):
        assert [asked("socketpair", 1, kind | flags) for kind in (1, 5)] == [0, 0]
        assert [asked("socketpair", 1, kind | flags) for kind in (2, 3)] == [
            errno.EPROTONOSUPPORT
        ] * 2
    assert (
        asked("socketpair", 2, 1)
        == asked("socket", 1, 1)
        == asked("connect", 3)
        == errno.EAFNOSUPPORT
    )
    assert asked("sendmsg") == errno.EPERM


@pytest.mark.parametrize("machine", ARCHES)
def test_without_mounts_what_landlock_does_not_see_is_not_done(machine):
    """Modes, owners and times; what is not named keeps its rule."""
    for name in ("fchmod", "fchmodat", "fchown", "fchownat", "utimensat"):
        assert said(name, machine=machine, restricted=True) == -1
        assert said(name, machine=machine) == 0
    assert said("fallocate", machine=machine, restricted=True) == errno.EOPNOTSUPP
    assert said("ptrace", machine=machine, restricted=True) == errno.EPERM


@pytest.mark.parametrize("machine", ARCHES)
def test_every_way_to_start_a_process_or_thread_is_asked_about(machine):
    """clone3 is refused by the other filter, whose word is the stronger one."""
    code, column = seccomp.forks(machine), ARCHES.index(machine)
    for name, numbers in seccomp.NUMBERS.items():
        if numbers[column] is not None:
            wanted = seccomp.ASK if name in ("clone", "fork", "vfork") else OK
            assert verdict(code, numbers[column], arch=AUDIT_ARCH[machine])[0] == wanted
