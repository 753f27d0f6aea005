"""Finds out which guarantees hold on this host, by attacking each of them from inside the sandbox.

A guarantee holds where its attack failed; the mechanism that keeps it is then named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlvr.errors import IsolationUnavailable
from rlvr.sandbox.attacks import LIMIT_ATTACKS, REACHING
from rlvr.sandbox.levels import Level
from rlvr.sandbox.records import Ending, Guarantee, Limits, Run

__all__ = ["PROMISES", "probe_guarantees"]

PROMISES: Final = {
    "files": "files of the host cannot be read, but for the system's own programs and libraries",
    "writes": "nothing of the host can be written",
    "names-unseen": "which files and folders the host has cannot be told",
    "environment": "the host's environment and open files do not reach the program",
    "network": "no connection, neither to this host nor beyond",
    "processes-unseen": "other processes cannot be seen",
    "processes-untouched": "other processes cannot be signalled, traced or read",
    "privileges": "no capability, and no way to gain one",
    "system-calls": "only the system calls that honest programs need",
    "cpu": "CPU time of all processes of a run together is limited",
    "wall": "wall time is limited",
    "memory": "memory of all processes of a run together is limited",
    "processes": "the number of processes and threads is limited",
    "output": "standard output and error are limited",
    "disk": "bytes and files in the scratch folder are limited",
    "fresh": "no run sees what an earlier one left",
    "tree": "no process outlives its run",
}

_REMEDY: Final = {
    "memory": (
        "give this user a cgroup with the memory controller (systemd: Delegate=yes; "
        "Docker: --cgroupns=private)"
    ),
    "system-calls": "use a kernel with CONFIG_SECCOMP_FILTER",
}
_LEVEL_REMEDY: Final = "use the level that has it, Sandbox(), on a host with namespaces"
_ROOT_REMEDY: Final = "see docs/reference/sandbox.md, 'What the host needs'"

_SMALL: Final = Limits(
    cpu_s=5.0, wall_s=20.0, memory_mib=64, output_mib=0.25, processes=12, disk_mib=2.0, files=64
)

# An attack that succeeds adds to `won` what it reached.
# The source is run as any program is; each attack reports by a name of PROMISES.
_ATTACKS: Final = r"""
import ctypes, errno, json, os, platform, socket, sys
canary = json.loads(sys.argv[1])
canary["scratch"] += [os.environ["TMPDIR"]] if "TMPDIR" in os.environ else []
won = {}
def attack(name):
    def run(function):
        if name in canary["skipped"]:
            return
        try:
            found = function()
        except (OSError, ValueError, OverflowError):
            found = None
        if found:
            won.setdefault(name, str(found))
    return run
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == "aarch64"

@attack("files")
def _():
    return open(canary["file"]).read() == canary["secret"] and "read " + canary["file"]
@attack("files")
def _():
    return open("/etc/shadow").read() and "read /etc/shadow"
@attack("names-unseen")
def _():
    return os.stat(canary["file"]) and "found " + canary["file"]
@attack("writes")
def _():
    with open(canary["target"], "w") as file:
        file.write("written")
    return False  # the host looks whether it is there
for change in (lambda path: os.chmod(path, 0o600), lambda path: os.utime(path, (1, 1)),
               lambda path: os.unlink(path), lambda path: os.truncate(path, 0),
               lambda path: os.close(os.open(path, os.O_TRUNC)),
               lambda path: os.rename(path, path + "2"), lambda path: os.link(path, path + "3")):
    @attack("writes")
    def _():
        change(canary["file"])  # the host looks whether it is as it was
for folder in canary["system"]:
    @attack("writes")
    def _():
        os.close(os.open(folder + "/rlvr-canary", os.O_CREAT | os.O_WRONLY))
        return "created a file in " + folder
@attack("environment")
def _():
    return canary["variable"] in os.environ and "read a variable of the host"
@attack("environment")
def _():
    fds = []
    for fd in range(3, 256):
        try:
            os.fstat(fd)
            fds.append(fd)
        except OSError:
            pass
    return fds and f"open descriptors {fds}"
@attack("network")
def _():
    socket.create_connection(("127.0.0.1", canary["port"]), timeout=1).close()
    return "connected to this host"
@attack("network")
def _():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + canary["abstract"])
    return "connected to an abstract socket of this host"
@attack("network")
def _():
    socket.socket(socket.AF_UNIX).connect(canary["socket"])
    return "connected to a socket file of this host"
@attack("network")
def _():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return one.sendto(b"x", canary["datagrams"]) and "sent a datagram to a socket file of this host"
@attack("network")
def _():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM) and "opened an internet socket"
@attack("processes-unseen")
def _():
    with open(f"/proc/{canary['pid']}/cmdline", "rb") as file:
        return canary["cmdline"].encode() in file.read() and "found our host process"
for pid in {canary["pid"], os.getppid()} - {0, 1, 2}:  # numbers that a pid namespace has too
    @attack("processes-untouched")
    def _():
        os.kill(pid, 0)
        return "may signal another process"
@attack("processes-unseen")
def _():
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    others = [pid for pid in pids if int(pid) not in (1, os.getpid())]
    return others and f"processes {others}"
@attack("processes-untouched")
def _():
    return libc.syscall(117 if ARM else 101, 16, 1, 0, 0) == 0 and "traced pid 1"
@attack("privileges")
def _():
    lines = open("/proc/self/status").read().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    kinds = ("CapEff", "CapPrm", "CapInh", "CapAmb")
    sets = {name: status[name].strip() for name in kinds if int(status[name], 16)}
    gains = status["NoNewPrivs"].strip() != "1"
    return (sets and f"capabilities {sets}") or (gains and "privileges can be gained")
@attack("privileges")
def _():
    os.setuid(0)
    return "became root"
@attack("privileges")
def _():
    return libc.unshare(0x10000000) == 0 and "made a user namespace"
@attack("system-calls")
def _():
    status = open("/proc/self/status").read()
    return "Seccomp:\t2" not in status and "no filter is on"
calls = dict(keyctl=(250, 219), bpf=(321, 280), perf_event_open=(298, 241), userfaultfd=(323, 282),
             io_uring_setup=(425, 425), mount=(165, 40), setns=(308, 268))
for name, numbers in calls.items():
    number = numbers[ARM]
    @attack("system-calls")
    def _():
        # with senseless arguments a call that exists fails in other ways
        failed = libc.syscall(number, -1, 0, 0, 0, 0) < 0
        refused = failed and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM)
        return not refused and name + " is let through"
for folder in canary["scratch"]:
    @attack("fresh")
    def _():
        name = os.path.join(folder, "rlvr-canary")
        if os.path.exists(name):
            return "a file of the run before in " + folder
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
@attack("disk")
def _():
    written = 0
    for folder in canary["scratch"]:
        try:
            with open(folder + "/big", "wb") as file:
                while written < canary["disk"] + (1 << 20):
                    written += file.write(bytes(1 << 16))
                    file.flush()
        except OSError:
            pass
    for folder in canary["scratch"]:
        if os.path.exists(folder + "/big"):
            os.unlink(folder + "/big")  # room for the next attack
    return written > canary["disk"] and f"wrote {written} bytes"
@attack("disk")
def _():
    for number in range(canary["files"] + 1):
        os.close(os.open(f"inode-{number}", os.O_CREAT | os.O_WRONLY))
    return f"made {canary['files']} files"
print(json.dumps(won))
"""

_LAST: Final = "print(json.dumps(won))"

_DAEMON: Final = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
"""
_BURN: Final = "import os\nos.fork()\nwhile True: pass"
_SLEEP: Final = "import time\ntime.sleep(60)"
_HOARD: Final = """
import os, time
reading, writing = os.pipe()
child = os.fork()  # each of the two stays under the limit
hoard = bytearray(44 << 20)
for i in range(0, len(hoard), 4096): hoard[i] = 1
os.close(writing)
os.read(reading, 1)  # until the other holds its own, however late
time.sleep(2)  # a limit that is sampled has to see both
"""
_FLOOD: Final = "while True: print('x' * 4096)"
_FORKS: Final = """
import os, time
made = 1
try:
    while made < 100:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    pass
print(made, flush=True)
"""


@dataclass(frozen=True, slots=True)
class _Canary:
    """What the attacks look for."""

    facts: Mapping[str, Any]
    target: Path
    secret: Path

    def changed(self) -> str:
        """What an attack has changed in the folder; "" for nothing."""
        if self.target.exists():
            return f"wrote {self.target}"
        if sorted(path.name for path in self.secret.parent.iterdir()) != [
            "datagrams",
            "secret",
            "socket",
        ]:
            return f"changed names in {self.secret.parent}"
        status = self.secret.stat()
        is_intact = self.secret.read_text() == self.facts["secret"]
        return (
            ""
            if is_intact and status.st_mode & 0o777 == 0o644 and status.st_mtime > 1
            else f"changed {self.secret}"
        )


def probe_guarantees(
    execute: Callable[..., Run], level: Level, memory: str, full: bool = False
) -> list[Guarantee]:
    """Every guarantee, with its mechanism or None.

    Args:
        execute: runs a header and files in a box; `Sandbox` gives its own method.
        level: what the guarantees rest on, and those that it does not give.
        memory: the kind of cgroup that counts memory, "" for none.
        full: try the attacks of `attacks` too.
    """
    if sys.platform != "linux":
        return _all_missing(
            f"this is {sys.platform}", "use Linux: a machine, a container or a virtual machine"
        )
    try:
        # The full list goes before the line that prints what was won.
        attacks = _ATTACKS.replace(_LAST, REACHING + _LAST) if full else _ATTACKS
        won = _run_attacks(execute, attacks, level.missing)
        weak = _limits_tried_hard(execute) if full else {}
    except IsolationUnavailable as error:
        return _all_missing(error.found, error.remedy)
    rests_on = _mechanisms(level, memory)
    guarantees = []
    # In the order of the table, so that output and docs agree.
    for name, promise in PROMISES.items():
        if name in level.missing:
            guarantees.append(Guarantee(name, promise, None, level.missing[name], _LEVEL_REMEDY))
        elif name in won:
            guarantees.append(
                Guarantee(name, promise, None, won[name], _REMEDY.get(name, _ROOT_REMEDY))
            )
        else:
            guarantees.append(
                Guarantee(
                    name, promise, rests_on[name], "the attacks failed", weak=weak.get(name, "")
                )
            )
    return guarantees


def _all_missing(found: str, remedy: str) -> list[Guarantee]:
    return [Guarantee(name, promise, None, found, remedy) for name, promise in PROMISES.items()]


def _mechanisms(level: Level, memory: str) -> dict[str, str]:
    rests_on = dict(level.rests_on)
    if memory:
        rests_on |= {"cpu": f"{rests_on['cpu']}; {memory} beside them", "memory": memory}
        rests_on["processes"] += f"; {memory}"
    return rests_on


def _run_attacks(
    execute: Callable[..., Run], attacks: str, skipped: Iterable[str]
) -> dict[str, str]:
    """What the attacks won, by guarantee."""
    won: dict[str, str] = {}
    with _canary() as canary:
        for _ in range(2):  # the second looks for what the first left
            won |= _try_attacks(execute, canary, attacks, skipped)
        if changed := canary.changed():
            won["writes"] = changed
    # those on missing ones too: what is over such a limit must end all the same
    won |= _limits_tried(execute)
    if outlived := _attack_by_daemon(execute):
        won["tree"] = outlived
    return won


def _try_attacks(
    execute: Callable[..., Run],
    canary: _Canary,
    attacks: str = _ATTACKS,
    skipped: Iterable[str] = (),
) -> dict[str, str]:
    facts = {
        **canary.facts,
        "skipped": list(skipped),
        "disk": int(_SMALL.disk_mib * 2**20),
        "files": _SMALL.files,
    }
    header = {"kind": "script", "main": "main.py", "args": [json.dumps(facts)]}
    run = execute(header, {"main.py": (attacks.encode(), 0o644)}, b"", _SMALL)
    try:
        outcomes: dict[str, str] = json.loads(run.stdout)
    except ValueError:
        return dict.fromkeys(
            PROMISES, f"the attacks ended {run.ending}: {run.why} {run.stderr[-300:]!r}"
        )
    return outcomes


def _limits_tried(execute: Callable[..., Run]) -> dict[str, str]:
    won = {}
    for name, source, limits, ending in (
        ("cpu", _BURN, dataclasses.replace(_SMALL, cpu_s=0.05), Ending.TLE),
        ("wall", _SLEEP, dataclasses.replace(_SMALL, wall_s=0.05), Ending.TLE),
        ("memory", _HOARD, _SMALL, Ending.MLE),
        ("output", _FLOOD, _SMALL, Ending.OLE),
    ):
        run = _script(execute, source, limits)
        if run.ending is not ending:
            won[name] = (
                f"the attack ended {run.ending} {run.why} after {run.cpu_s:.2f} CPU s, "
                f"{run.wall_s:.2f} s"
            )
    run = _script(execute, _FORKS, _SMALL)
    if not run.stdout.strip().isdigit() or int(run.stdout) > _SMALL.processes + 8:
        won["processes"] = f"{run.stdout.decode(errors='replace').strip() or run.why} processes"
    return won


def _limits_tried_hard(execute: Callable[..., Run]) -> dict[str, str]:
    """The limits that an attack got past without being noticed, and how."""
    won: dict[str, list[str]] = {}
    for attack in LIMIT_ATTACKS:
        run = _script(execute, attack.source, attack.limits)
        if run.ending not in attack.held:
            won.setdefault(attack.guarantee, []).append(f"{attack.what} (ended {run.ending})")
    return {name: ", ".join(ways) for name, ways in won.items()}


def _script(execute: Callable[..., Run], source: str, limits: Limits, **options: object) -> Run:
    header = {"kind": "script", "main": "main.py", "args": []}
    return execute(header, {"main.py": (source.encode(), 0o644)}, b"", limits, **options)


def _attack_by_daemon(execute: Callable[..., Run]) -> str:
    """A daemon holds one end of a pipe: when the run is over, the other end must find it closed."""
    reading_end, writing_end = os.pipe()
    try:
        _script(execute, _DAEMON, _SMALL, fds={"channel": writing_end})
        # Ours is closed first: only the daemon's copy is left.
        os.close(writing_end)
        writing_end = -1
        ended, _, _ = select.select([reading_end], [], [], 2.0)
        return "" if ended and not os.read(reading_end, 1) else "a daemon went on after its run"
    finally:
        for fd in (reading_end, writing_end):
            with contextlib.suppress(OSError):
                os.close(fd)


@contextlib.contextmanager
def _canary() -> Iterator[_Canary]:
    """A secret file, a writable place, a variable, two listening sockets and a process:
    ourselves."""
    name, secret = f"RLVR_CANARY_{secrets.token_hex(4)}", secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlvr-canary-")))
        folder.chmod(0o777)  # open to all, so that only the sandbox is in the way
        (folder / "secret").write_text(secret)
        (folder / "secret").chmod(0o644)
        inet = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind("\0" + name)
        unix.listen()
        for kind, path in ((socket.SOCK_STREAM, "socket"), (socket.SOCK_DGRAM, "datagrams")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            listener.bind(str(folder / path))
            (folder / path).chmod(0o777)
            if kind == socket.SOCK_STREAM:
                listener.listen()
        os.environ[name] = secret
        stack.callback(os.environ.pop, name)
        facts = {
            "file": str(folder / "secret"),
            "secret": secret,
            "target": str(folder / "written"),
            "variable": name,
            "port": inet.getsockname()[1],
            "abstract": name,
            "socket": str(folder / "socket"),
            "datagrams": str(folder / "datagrams"),
            "pid": os.getpid(),
            "cmdline": sys.executable,
            "system": ["/", "/etc", "/usr/bin", "/usr/lib"],
            "scratch": [".", "/tmp", "/dev/shm"],
        }
        yield _Canary(facts, folder / "written", folder / "secret")
