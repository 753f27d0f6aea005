"""The attacks of `Sandbox.check(full=True)`, beside those that every start tries (`probe`)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from rlvr.sandbox.records import Ending, Limits

__all__ = ["LIMIT_ATTACKS", "LimitAttack", "REACHING"]

REACHING: Final = r"""
SYS = lambda x86, arm: arm if ARM else x86
def call(number, *args):
    return libc.syscall(number, *args)
for name in ("/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/root/etc/shadow",
             "/proc/1/cwd/.", "/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmsg", "/dev/vda",
             "/dev/sda", "/sys/kernel", "/proc/sysrq-trigger", "/run", "/etc/hostname",
             "/etc/machine-id"):
    @attack("files")
    def _():
        if os.path.isdir(name):
            return os.listdir(name) and "listed " + name
        with open(name, "rb", buffering=0) as file:
            return file.read(1) and "read " + name
for kind in ("mem", "mountinfo", "mounts"):
    @attack("environment")
    def _():
        shown = kind != "mem" and "/.cache/" in open("/proc/self/" + kind).read()
        return shown and "a path of the host in " + kind
@attack("environment")
def _():
    one, other = socket.socketpair()
    return one.getsockopt(socket.SOL_SOCKET, 77, 4) and "a handle of the peer's process"
for target in (sys.executable, os.__file__, "/bin/sh", "/etc/passwd", "/proc/sys/kernel/hostname",
               "/proc/1/oom_score_adj"):
    @attack("writes")
    def _():
        os.close(os.open(target, os.O_WRONLY))
        return "opened " + target + " for writing"
    @attack("writes")
    def _():
        os.link(target, "linked")
        with open("linked", "ab"):
            return "a writable link to " + target
@attack("writes")
def _():
    os.mknod("disk", 0o060600, os.makedev(254, 0))
    return "made a device"
for family in (2, 10, 16, 17, 38, 40, 44):
    @attack("network")
    def _():
        kind = socket.SOCK_RAW if family == 16 else socket.SOCK_DGRAM
        return socket.socket(family, kind) and f"a socket of family {family}"
@attack("processes-untouched")
def _():
    fd = call(SYS(434, 434), 1, 0)
    return fd >= 0 and call(SYS(438, 438), fd, 0, 0) >= 0 and "took a descriptor of pid 1"
@attack("processes-untouched")
def _():
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    return call(SYS(310, 270), 1, vector, 1, vector, 1, 0) >= 0 and "read the memory of pid 1"
@attack("privileges")
def _():
    for name, number, args in (
        ("setresuid", SYS(117, 147), (0, 0, 0)), ("setgid", SYS(106, 144), (0,)),
        ("setgroups", SYS(116, 159), (0, 0)), ("chroot", SYS(161, 51), (b".",)),
    ):
        if call(number, *args) == 0:
            return name + " succeeded"
@attack("privileges")
def _():
    for flag in (0x20000, 0x2000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        if call(SYS(272, 97), flag) == 0:
            return f"unshare {flag:#x} succeeded"
forbidden = dict(
    add_key=SYS(248, 217), keyctl=SYS(250, 219), fanotify_init=SYS(300, 262),
    open_by_handle_at=SYS(304, 265), kexec_load=SYS(246, 104), init_module=SYS(175, 105),
    delete_module=SYS(176, 106), swapon=SYS(167, 224), quotactl=SYS(179, 60), memfd_secret=447,
    open_tree=428, move_mount=429, fsopen=430, fsmount=432, mount_setattr=442, io_uring_enter=426,
    io_uring_register=427, process_madvise=440, settimeofday=SYS(164, 170),
    sethostname=SYS(170, 161), syslog=SYS(103, 116), acct=SYS(163, 89), move_pages=SYS(279, 239),
    kcmp=SYS(312, 272), pidfd_getfd=438, sched_setaffinity=SYS(203, 122),
)
for name, number in forbidden.items():
    @attack("system-calls")
    def _():
        failed = call(number, -1, 0, 0, 0, 0) < 0
        refused = failed and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM)
        return not refused and name + " is let through"
@attack("system-calls")
def _():
    return not ARM and call(0x40000000 | 39) > 0 and "x32 calls are let through"
"""
"""Goes behind the attacks of `probe`: reaches for what is not a limit."""


@dataclass(frozen=True, slots=True)
class LimitAttack:
    """A program that tries to get past a limit.

    Attributes:
        guarantee: which.
        what: the way, in a few words.
        source: in Python.
        limits: of its run.
        held: the endings that show that the limit holds.
    """

    guarantee: str
    what: str
    source: str
    limits: Limits
    held: tuple[Ending, ...]


# Small enough that a machine is asked for seconds, and far enough above what the attack's own
# imports take that a TLE comes from the attack.
_CPU: Final = Limits(cpu_s=0.1, wall_s=8.0, memory_mib=64, processes=16)
_MEMORY: Final = Limits(cpu_s=4.0, wall_s=10.0, memory_mib=48, processes=24, disk_mib=500.0)
_OVER: Final = (Ending.MLE, Ending.RE)
_LIBC: Final = (
    "import ctypes, mmap, os, socket, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "libc.mmap.restype = ctypes.c_void_p\n"
    "def touch(m):\n    for i in range(0, len(m), 4096): m[i] = 1\n"
)


# The pause at the end gives a sampled memory limit time to see what was taken.
def _memory(what: str, source: str, limits: Limits = _MEMORY) -> LimitAttack:
    return LimitAttack(
        "memory", what, _LIBC + source + "\ntime.sleep(0.6)\nprint('unnoticed')", limits, _OVER
    )


LIMIT_ATTACKS: Final = (
    LimitAttack(
        "cpu",
        "short children that are not waited for",
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in "
        "range(60):\n"
        "    if os.fork() == 0:\n        end = time.process_time() + 0.008\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    time.sleep(0.009)",
        _CPU,
        (Ending.TLE,),
    ),
    LimitAttack(
        "cpu",
        "orphans",
        "import os, time\nfor _ in range(30):\n    if os.fork() == 0:\n        if os.fork(): "
        "os._exit(0)\n"
        "        end = time.process_time() + 0.02\n        while time.process_time() < end: pass\n "
        "       os._exit(0)\n"
        "    os.wait(); time.sleep(0.02)",
        _CPU,
        (Ending.TLE,),
    ),
    _memory(
        "many small processes",
        "for _ in range(8):\n    if os.fork() == 0:\n"
        "        m = bytearray(12 << 20); touch(m); time.sleep(5); os._exit(0)",
    ),
    _memory(
        "files in scratch",
        "f = open('/tmp/big', 'wb')\nfor _ in range(80): f.write(bytes(1 << 20)); f.flush()",
    ),
    _memory("a shared mapping", "m = mmap.mmap(-1, 80 << 20); touch(m)"),
    _memory(
        "shared mappings out of sight",
        "m = []\nfor _ in range(8): m.append(mmap.mmap(-1, 10 << 20)); touch(m[-1]); "
        "m[-1].madvise(mmap.MADV_DONTNEED)",
    ),
    _memory(
        "memory of a thread that outlives the main one",
        "import platform, threading\ndef work():\n    m = bytearray(80 << 20); touch(m); "
        "time.sleep(1); os._exit(0)\n"
        "threading.Thread(target=work).start()\nlibc.syscall(93 if platform.machine() == 'aarch64' "
        "else 60, 0)",
    ),
    _memory(
        "page tables",
        "for _ in range(2):\n    size = 40 << 30\n"
        "    m = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))\n"
        "    for at in range(0, size, 2 << 20): ctypes.c_char.from_address(m + at).value",
    ),
    _memory(
        "mappings without pages",
        "for _ in range(3): os.fork()\n"
        "m = libc.mmap(None, ctypes.c_size_t(1 << 30), 1, 0x4022, -1, ctypes.c_long(0))\n"
        "for n in range(32000):\n    libc.mprotect(ctypes.c_void_p(m + 8192 * n), "
        "ctypes.c_size_t(4096), 3)",
    ),
    _memory(
        "buffers of sockets",
        "pairs = []\nfor _ in range(2): os.fork()\ntry:\n    while True:\n        "
        "pairs.append(socket.socketpair())\n"
        "        for one in pairs[-1]:\n            one.setblocking(False)\n            try:\n"
        "                while True: one.send(bytes(1 << 16))\n            except BlockingIOError: "
        "pass\n"
        "except OSError: pass",
    ),
    _memory(
        "locks of files",
        "import fcntl\nfor _ in range(2): os.fork()\nfor n in range(60):\n"
        "    f = os.open(f'l{os.getpid()}-{n}', os.O_RDWR | os.O_CREAT)\n"
        "    for at in range(0, 2400, 2): fcntl.lockf(f, fcntl.LOCK_EX, 1, at)",
        dataclasses.replace(_MEMORY, cpu_s=6.0),
    ),
)
