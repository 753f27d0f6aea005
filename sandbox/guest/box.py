"""A box: pid 1 of a pid namespace, for one run after another.  It is ours, and it outlives every process of a run.

It waits on the slot's socket, so that a request finds everything mounted.  Signals from inside do not reach it: the
kernel keeps pid 1 from any that it does not handle, SIGKILL and SIGSTOP among them.

A run finds nothing of the one before.  Every process of that is gone before its reply is sent; the scratch is another;
process numbers begin anew; and what was sent for it never came into our memory, which the next program is forked from:
a program's own process reads its files.  A box whose run was not over by itself ends, and its namespaces with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import resource
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from rlvr.sandbox.guest import user
from rlvr.sandbox.guest.linux import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    MS_RDONLY,
    clone,
    detach,
    dumpable,
    same_memory,
    shared_memory,
)
from rlvr.sandbox.guest.root import BOX, WORK, fresh_scratch, limit_scratch, mount_proc
from rlvr.workers import clock

__all__ = ["HUNG_UP", "NAMESPACES", "TAKEN", "main", "prepare"]

NAMESPACES = CLONE_NEWPID | CLONE_NEWNS
TAKEN = struct.Struct("<ii")  # what the zygote is told: serial number of the box, id of the request
HUNG_UP = 3  # exit code: the host closed its end, or the slot is of no more use

_RUNS = 500  # of one box: whatever a run may leave in it is gone after so many
_FDS = 8
_REQUEST_BYTES = 1 << 16
_POLL_S = 0.01  # how often memory and output are looked at where no kernel limit watches them
_POLL_MAX_S = 0.25
_RINGS_MS = 100  # for the kernel's collector of rings of sockets, which works on its own time
_EVADED_S = 0.25  # the cgroup's clock also counts the zygote's work on the next box
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_SOCKET_BYTES = 416 << 10  # twice what a Unix socket's buffer is; programs cannot make it larger (sandbox/seccomp.py)
_SOCKETS = "/proc/self/net/unix"
_OOM_BOX, _OOM_PROGRAM = b"500", b"1000"  # whom the kernel kills first; the zygote, at 0, goes last


def prepare(config: Mapping[str, Any]) -> None:
    """See `user.prepare`."""
    user.prepare(config)


def main(
    slot: socket.socket, note: int, serial: int, numbers: int, meters: list[int], config: Mapping[str, Any]
) -> NoReturn:
    """Run one request after another.  An exception ends it with code 1, and the zygote tells the host."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.disable()  # when programs collect does not depend on what we did before
        score = _oom_score()
        mount_proc(MS_RDONLY)  # or a program would take back its place among those to be killed first
        sockets = os.open(_SOCKETS, os.O_RDONLY | os.O_CLOEXEC)
        for _ in range(_RUNS):
            fresh_scratch(config["disk"], config["files"])
            os.chdir(WORK)
            random.seed()  # what the program draws; else every run would draw the zygote's numbers
            message, fds, _, _ = socket.recv_fds(slot, _REQUEST_BYTES, _FDS)
            if not message:
                os._exit(HUNG_UP)
            request = json.loads(message)
            os.write(note, TAKEN.pack(serial, request["id"]))
            run = _Run(request, fds, meters, score, config)
            reply = json.dumps(run.reply()).encode()
            os.chdir("/")
            detach(BOX)  # before the reply: it is memory, and the next run may begin at once
            clean = _sockets_gone(sockets, "partner_cpu_s" in request)
            slot.send(reply)
            if not clean:
                os._exit(HUNG_UP)  # and the slot with us: its network namespace is not as it was
            if not (run.over and _renumbered(numbers)):
                break
            for fd in fds:
                os.close(fd)
        code = 0
    except BaseException:  # noqa: BLE001  ours, whatever it is: the zygote tells the host
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _renumbered(numbers: int) -> bool:
    """The next process gets number 2 again, or a run could tell how many the one before had."""
    try:
        return numbers >= 0 and os.pwrite(numbers, b"1", 0) == 1
    except OSError:
        return False


def _sockets_gone(table: int, partner: bool) -> bool:
    """Sockets that were sent to one another outlive their processes, and so does what was sent with them, files and
    locks of files among it, until the kernel looks for such rings: when a socket is closed.  The partner's may live."""
    for _ in range(_RINGS_MS):
        if os.pread(table, 4096, 0).count(b"\n") == 1:  # its heading; what the host made is in the host's namespace
            return True
        socket.socket(socket.AF_UNIX).close()
        if partner:
            return True
        time.sleep(0.001)
    return False


def _oom_score() -> int:
    """Our place among those whom the kernel kills for memory, opened so that we can change it; -1 if that fails."""
    dumpable(True)  # or the file would be root's
    try:
        return os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        dumpable(False)


class _Run:
    """One request.

    Attributes:
        over: the run ended by itself and left no process behind.
    """

    def __init__(
        self, request: dict[str, Any], fds: list[int], meters: list[int], score: int, config: Mapping[str, Any]
    ) -> None:
        self.request, self.config, self.limits = request, config, request["limits"]
        self.fds = dict(zip(request["fds"], fds, strict=True))
        (self.usage, self.events), self.score = meters, score
        self.killed = ""
        self.over = False
        self.given = self._held()
        self.shared = shared_memory() if config["sampled"] else 0
        self.reaped_before = _reaped_cpu()
        self.rss_kib = 0
        self.answered, self.answered_cpu_s = 0, 0.0  # size of the results, and the clock when they last grew

    def reply(self) -> dict[str, Any]:
        """Run it; what the host is told."""
        if [self.limits["disk"], self.limits["files"]] != [self.config["disk"], self.config["files"]]:
            limit_scratch(self.limits["disk"], self.limits["files"])
        told, tell = os.pipe()
        self.usage_before, self.kills_before = self._usage(), self._kills()
        self._oom(_OOM_PROGRAM)
        self.started = time.monotonic()
        self.pid = clone(0)  # os.fork() would cost twice as much, for hooks that one thread does not need
        if self.pid == 0:
            user.main(self.request, self.fds, tell, self.config)
        self._oom(_OOM_BOX)
        os.close(tell)
        status = self._wait()
        wall = time.monotonic() - self.started
        self._end_all()
        cpu = self._reaped_cpu()
        evaded = self._usage() - self.usage_before
        if evaded > 2 * cpu + _EVADED_S + self.request.get("partner_cpu_s", 0.0):
            cpu = evaded  # its children ended unseen, by ignoring SIGCHLD
        if not self.killed and cpu > self.limits["cpu_s"]:
            self.killed = "cpu"
        if "artifact" in self.fds and not self.killed and status == 0:
            self._collect(self.request["collect"])
        said = os.read(told, 4096).decode(errors="replace")
        os.close(told)
        if said == user.FULL:
            self.killed = "memory"  # a program may be larger than its scratch: a binary, say
        return {
            "id": self.request["id"],
            "rss_kib": self.rss_kib,
            "status": status,
            "killed": self.killed,
            "told": said,
            "cpu_s": cpu,
            "wall_s": wall,
        }

    def _oom(self, score: bytes) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self.score, score, 0)

    def _wait(self) -> int:
        """Until the program ends or is over a limit; its wait status."""
        while True:
            timeout = self._pause()
            if timeout > 0:
                signal.sigtimedwait([signal.SIGCHLD], timeout)
            while True:
                pid, status = self._reaped(os.WNOHANG)
                if pid == self.pid:
                    return status
                if pid == 0:
                    break
            self.killed = self._exceeded()
            if self.killed:
                return self._end_all()

    def _reaped(self, options: int) -> tuple[int, int]:
        pid, status, usage = os.wait4(-1, options)
        self.rss_kib = max(self.rss_kib, usage.ru_maxrss)
        return pid, status

    def _reaped_cpu(self) -> float:
        return _reaped_cpu() - self.reaped_before

    def _pause(self) -> float:
        """How long nothing can go over a limit; with every core at work, CPU time runs that much faster."""
        past = time.monotonic() - self.started
        wall: float = self.limits["wall_s"] - past
        used = self._cpu() if past > _POLL_S else 0.0  # most programs are done before the first look, which is dear
        cpu: float = (min(self.limits["cpu_s"], self.answered_cpu_s + self._case_cpu_s()) - used) / self.config["cores"]
        return max(0.001, min(wall, max(cpu, _POLL_S), _POLL_S if self.config["sampled"] else _POLL_MAX_S))

    def _exceeded(self) -> str:
        if time.monotonic() - self.started > self.limits["wall_s"]:
            return "wall"
        cpu = self._cpu()
        if cpu > self.limits["cpu_s"]:
            return "cpu"
        if self._case_cpu_s() < math.inf:
            size = os.fstat(self.fds["results"]).st_size
            if size != self.answered:
                self.answered, self.answered_cpu_s = size, cpu
            elif cpu > self.answered_cpu_s + self._case_cpu_s():
                return "cpu"
        if any(os.fstat(self.fds[name]).st_size > self.limits["output"] for name in ("stdout", "stderr")):
            return "output"
        over = self.config["sampled"] and self._memory() > self.limits["memory"]
        if over or self._kills() != self.kills_before:
            return "memory"
        return ""

    def _case_cpu_s(self) -> float:
        """The limit on one call among several in a run; what tells them apart is that each writes a reply."""
        return float(self.request.get("case_cpu_s") or math.inf)

    def _cpu(self) -> float:
        """CPU seconds so far: of the dead that were waited for, and of the living."""
        total = self._reaped_cpu()
        for pid in _living():
            with contextlib.suppress(OSError, ValueError):
                if pid != self.pid:
                    total += _cpu_by_ticks(pid)
                    continue
                total += clock.cpu_s(pid)  # exact, unlike the ticks
                total += _cpu_by_ticks(pid, own=False)
        evaded: float = self._usage() - self.usage_before - _EVADED_S - self.request.get("partner_cpu_s", 0.0)
        return max(total, evaded / 2)

    def _kills(self) -> bytes:
        """How often the kernel killed for memory in the slot's cgroup: the rest of the run may wait for ever."""
        return os.pread(self.events, 512, 0).partition(b"oom_kill ")[2].split(b"\n")[0] if self.events >= 0 else b""

    def _usage(self) -> float:
        """CPU seconds of the slot's cgroup; 0 where there is none."""
        if self.usage < 0:
            return 0.0
        text = os.pread(self.usage, 128, 0)
        return int(text.split()[1]) / 1e6 if text.startswith(b"usage_usec") else int(text) / 1e9

    def _memory(self) -> int:
        """Bytes of the run's processes, scratch, output and sockets.  Shared pages are counted once, which takes
        longer: only where the quick sum is over the limit."""
        held = os.statvfs(BOX)  # a mount point: the folders below it, the program may remove
        extra = (held.f_blocks - held.f_bfree) * held.f_frsize + self._held() - self.given + _socket_bytes()
        quick = extra + sum(_resident(pid) for pid in _living())
        if quick > self.limits["memory"]:
            distinct: list[int] = []
            for pid in _living():
                if not any(same_memory(pid, other) for other in distinct):
                    distinct.append(pid)
            return extra + sum(_proportional(pid) for pid in distinct)
        # Pages of a shared mapping may be in nobody's sight and still held: then the whole host's count has grown
        grown = shared_memory() - self.shared
        if grown > self.limits["memory"] + extra and any(_shares(pid) for pid in _living()):
            return grown
        return quick

    def _held(self) -> int:
        """Bytes of the files that the host lent."""
        return sum(os.fstat(fd).st_blocks * 512 for fd in self.fds.values())

    def _end_all(self) -> int:
        """Kill whatever is left and wait for it; the program's own wait status if it was among them."""
        status = 0
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            self.over = not self.killed
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, ended = self._reaped(0)
                if pid == self.pid:
                    status = ended
        return status

    def _collect(self, name: str) -> None:
        """Copy one file of the scratch folder to the host, who gave a memfd for it; nothing if it is none."""
        try:
            # we are in its folder, whatever the program has made of the path to it
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        try:
            found = os.fstat(source)
            if stat.S_ISREG(found.st_mode) and found.st_size <= self.limits["disk"]:
                left = found.st_size
                while left > 0:
                    sent = os.sendfile(self.fds["artifact"], source, None, left)
                    if not sent:
                        break
                    left -= sent
        finally:
            os.close(source)


def _reaped_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _living() -> Iterator[int]:
    """Every process of the run: our own pid namespace shows no others."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")


def _stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on: the name before it may hold anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _cpu_by_ticks(pid: int, own: bool = True) -> float:
    utime, stime, cutime, cstime = (int(ticks) for ticks in _stat(pid)[11:15])
    return (cutime + cstime + (utime + stime if own else 0)) * _TICK_S


def _resident(pid: int) -> int:
    """Pages in RAM and in swap, and the tables that lead to them."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        return sum(_kib(line) for line in file if line.startswith((b"VmRSS:", b"VmSwap:", b"VmPTE:"))) << 10
    return 0


def _proportional(pid: int) -> int:
    """The same, with a page that n processes share counted as 1/n in each."""
    total = 0
    for name, wanted in (("smaps_rollup", (b"Pss:", b"SwapPss:")), ("status", (b"VmPTE:",))):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/{name}", "rb") as file:
            total += sum(_kib(line) for line in file if line.startswith(wanted)) << 10
    return total


def _kib(line: bytes) -> int:
    return int(line.split()[1])


def _shares(pid: int) -> bool:
    """Whether it has a shared mapping without a file, which no fstat shows."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return any(b"s " in line[:40] and b"/dev/zero" in line for line in file)
    return False


def _socket_bytes() -> int:
    """What the Unix sockets of the slot may hold."""
    with contextlib.suppress(OSError), open(_SOCKETS, "rb") as file:
        return (sum(1 for _ in file) - 1) * _SOCKET_BYTES
    return 0
