"""A run, seen from pid 1 of its pid namespace: its clocks, its memory, its end.

Nothing here rests on what the program says of itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import signal
import stat
import struct
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rlvr.sandbox.guest import user
from rlvr.sandbox.guest.linux import same_memory, shared_memory
from rlvr.sandbox.guest.namespaces import Namespaces
from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.restricted import Restricted
from rlvr.workers import clock

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotConfig, SlotMessage

__all__ = ["Watch"]

_POLL_S = 0.01  # how often memory and output are looked at where no kernel limit watches them
# The same where kernel limits watch them.
_POLL_MAX_S = 0.25
# allowed between the clocks: the cgroup's also counts the zygote's work on the next box
_EVADED_S = 0.25
# how often threads are asked how long they waited for a core; those that end between are missed
_WAITED_S = 0.25
# how often, and for how much of the time, it is looked at what is dear to find
_SELDOM_S, _SELDOM_SHARE = (0.1, 0.05)
_MAPPING_BYTES = 300  # struct vm_area_struct, and its share of a tree of them
# on parts of files, of all processes together: 192 bytes each that the kernel charges to nobody
_LOCKS = 1 << 14
_CLOCK = struct.Struct("<d")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Watch:
    """One run: the program is started, watched and ended.

    Args:
        request: the message that the box received.
        fds: its descriptors, in the order of the names in the message.
        meters: see `box.main`.
        config: see `SlotPool`.
        level: sets the run apart from the host.

    Attributes:
        over: the run ended by itself and left no process behind, so the box may be used again.
    """

    def __init__(
        self,
        request: SlotMessage,
        fds: list[int],
        meters: list[int],
        config: SlotConfig,
        level: Namespaces | Restricted,
    ) -> None:
        self.level = level
        self.request, self.config, self.limits = request, config, request["limits"]
        self.fds = dict(zip(request["fds"], fds, strict=True))
        # CPU time and events of the cgroup; without the first, a clock of the kernel's.
        self.usage, self.events, *exact = meters
        self.exact = exact[0] if exact else -1
        # Looked for seldom: /proc/PID/maps of many mappings takes milliseconds.
        self.mapped = _Seldom(
            lambda: sum(map(_mappings, map(_member, level.living()))) * _MAPPING_BYTES
        )
        self.locked = _Seldom(lambda: sum(map(_locks, map(_member, level.living()))))
        self.killed = ""
        self.over = False
        # Blocks of the lent files now: only what is added counts as output.
        self.given = self._held()
        # Of the whole machine, so only its growth can be this run's.
        self.shared = shared_memory() if config["sampled"] else 0
        self._often = config["sampled"] or level.SCANS
        # The counters are of all the box's children, of earlier runs too.
        self.reaped_before = self._all_reaped_cpu()
        self.rss_kib = 0
        # size of the results, and the clock when they last grew
        self.answered, self.answered_cpu_s = (0, 0.0)
        self.threads: dict[
            str, tuple[float, float]
        ] = {}  # thread → seconds on a core, seconds waiting for one
        self.waited, self.waited_at = 0.0, 0.0
        self.poll = select.poll()  # of runs that wait for more than their end
        # seconds in which it had to wait for another program, which count for that one
        self.idle = 0.0

    def reply(self, buffer: Buffer) -> SlotMessage:
        """Run it, and return the reply to the host but for what the program's process told, which
        is in the buffer."""
        notice = self._start(self.fds)
        status = self._wait()
        wall = time.monotonic() - self.started
        self.killed = self.killed or self.level.overfull()  # since the last look
        self._end_all()
        cpu = max(self._reaped_cpu(), self._seen_cpu())
        evaded = self._usage() - self.usage_before
        # The cgroup's clock has other work in it: a difference must be large to count.
        if self.exact >= 0 or evaded > 2 * cpu + _EVADED_S + self.request.get("partner_cpu_s", 0.0):
            cpu = max(cpu, evaded)  # its children were not waited for, as it ignores SIGCHLD
        if not self.killed and cpu > self.limits["cpu_s"]:
            self.killed = "cpu"
        if "artifact" in self.fds and not self.killed and status == 0:
            # Only now: a file of a run that failed is of no use.
            self._collect(self.request["collect"])
        self._listen_to(notice, buffer)
        return {
            "id": self.request["id"],
            "rss_kib": self.rss_kib,
            "status": status,
            "killed": self.killed,
            "cpu_s": cpu,
            "wall_s": wall,
            "starved_s": self.waited,
        }

    def _start(self, fds: Mapping[str, int]) -> int:
        """Start the program with these descriptors; returns one from which `_listen_to` reads why
        it could not run."""
        self.level.limit(self.limits)
        notice, tell = os.pipe()
        # Before the start, so that nothing of the run is missed.
        self.usage_before, self.kills_before = self._usage(), self._kills()
        self.started = time.monotonic()
        self.pid = self.level.start(self.limits, fds, tell)
        # Ours; its end shows when the program's process has closed the other.
        os.close(tell)
        return notice

    def _listen_to(self, told: int, buffer: Buffer) -> None:
        """Take in what the program's process told before the program's first instruction; nothing
        if all went well."""
        buffer.listen(told)
        os.close(told)
        if buffer.told(user.FULL):
            self.killed = "disk"  # its files, a binary perhaps, are larger than the scratch

    def _listen_too(self, *fds: int) -> None:
        """Poll these descriptors, what the level has to answer, and the ends of processes; for runs
        that wait for more than their end."""
        for fd in (*fds, self.level.listening(), *self.level.ends):
            if fd >= 0:
                self.poll.register(fd, select.POLLIN)

    def _poll_ready(self, seconds: float) -> dict[int, int]:
        """What is ready in `poll`, without what the level answers at once."""
        ready = dict(self.poll.poll(seconds * 1000))
        listener = self.level.listening()
        # POLLHUP: no process is left that could ask.
        if (event := ready.pop(listener, 0)) and (
            event & select.POLLHUP or not self.level.answer()
        ):
            self.poll.unregister(listener)
        return ready

    def _wait(self) -> int:
        """Until the program ends or is over a limit; its wait status."""
        while True:
            timeout = self._pause()
            if timeout > 0:
                self.level.wait(timeout)
            status = self._own_end()
            if status is not None:
                return status
            self.killed = self._exceeded()
            if self.killed:
                return self._end_all()

    def _reap_child(self, wait: bool = False) -> tuple[int, int]:
        """Number and wait status of a process that has ended; the number is 0 if there is none.

        Args:
            wait: until one has ended, while there is any.
        """
        pid, status, rss_kib = self.level.reap(wait)
        # The most that any process had; the sum is watched elsewhere.
        self.rss_kib = max(self.rss_kib, rss_kib)
        return pid, status

    def _own_end(self) -> int | None:
        """Reap what has ended; the program's wait status if it was among them."""
        pid = 1
        # All that have ended, as a signal stands for any number of them.
        while pid > 0:
            pid, status = self._reap_child()
            if pid == self.pid:
                return status
        return None

    def _reaped_cpu(self) -> float:
        return self._all_reaped_cpu() - self.reaped_before

    def _all_reaped_cpu(self) -> float:
        """CPU seconds of all processes that this box or its forker has waited for."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime + self.level.forked_cpu_s

    def _pause(self) -> float:
        """Seconds in which no limit can be exceeded; with all cores at work, CPU time runs that
        many times faster."""
        past = time.monotonic() - self.started
        wall: float = self.limits["wall_s"] + self.waited + self.idle - past
        # looking is slow, and most programs end before the first time
        used = self._cpu() if past > _POLL_S else 0.0
        cpu: float = (
            min(self.limits["cpu_s"], self.answered_cpu_s + self._case_cpu_s()) - used
        ) / self.config["cores"]
        # At least a millisecond, or a limit that is nearly reached would be asked for in a loop.
        return max(0.001, min(wall, max(cpu, _POLL_S), _POLL_S if self._often else _POLL_MAX_S))

    def _exceeded(self) -> str:
        # The cheapest look comes first: with thousands of processes all others are slow.
        if self.level.crowded():
            return "processes"
        # The host wrote there: it has seen an answer that decides.
        if "halt" in self.fds and os.pread(self.fds["halt"], 1, 0) != b"\0":
            return "partner"
        past, limit = time.monotonic() - self.started - self.idle, self.limits["wall_s"]
        # Time without a core is counted only when it matters, as it takes a look at each thread.
        if past > limit + self.waited:
            # bounded, as threads can keep one another waiting
            self.waited = min(self._count_starved(), limit)
        if past > limit + self.waited:
            return "wall"
        if past > self.waited_at + _WAITED_S:
            self.waited_at, self.waited = past, min(self._count_starved(), limit)
        cpu = self._cpu()
        if cpu > self.limits["cpu_s"]:
            return "cpu"
        if self._case_cpu_s() < math.inf:
            size = os.fstat(self.fds["results"]).st_size
            if size != self.answered:
                # A reply more: the next call's clock begins.
                self.answered, self.answered_cpu_s = size, cpu
            elif cpu > self.answered_cpu_s + self._case_cpu_s():
                return "cpu"
        if any(
            os.fstat(self.fds[name]).st_size > self.limits["output"]
            for name in ("stdout", "stderr")
        ):
            return "output"
        return self._out_of_bounds()

    def _out_of_bounds(self) -> str:
        """ "memory", or another limit on what the run holds at once; "" for none."""
        over = self.config["sampled"] and self._memory() > self.limits["memory"]
        if over or self.out_of_memory() or self.locked.figure() > _LOCKS:
            return "memory"
        return self.level.exceeded()

    def _case_cpu_s(self) -> float:
        """The limit on one call among several in a run.  A call is over when the size of the
        results grows."""
        return float(self.request.get("case_cpu_s") or math.inf)

    def _cpu(self) -> float:
        """CPU seconds so far: of processes that ended and were waited for, and of those that
        run."""
        total = self._reaped_cpu()
        for pid in self.level.living():
            with contextlib.suppress(OSError, ValueError):
                if pid != self.pid:
                    total += _cpu_by_ticks(pid)
                    continue
                total += clock.cpu_s(pid)  # exact, unlike the ticks
                total += _cpu_by_ticks(pid, own=False)
        evaded = self._usage() - self.usage_before
        if self.exact >= 0:
            return max(total, evaded)
        if self.usage < 0:
            self._look_at_threads()
            return max(total, self._seen_cpu())
        partner_s: float = self.request.get("partner_cpu_s", 0.0)
        # As in `reply`: the counter has other work in it, so a difference must be large to count.
        return max(total, (evaded - _EVADED_S - partner_s) / 2)

    def _seen_cpu(self) -> float:
        """CPU seconds that threads were seen to have: also those of children
        that nothing waited for."""
        return sum(ran for ran, _ in self.threads.values())

    def _look_at_threads(self) -> None:
        """Note how long each thread that lives has been on a core, and has waited for one."""
        for pid in self.level.living():
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                        times = file.read().split()
                    # Nanoseconds on a core, and nanoseconds in the run queue.
                    self.threads[thread] = int(times[0]) / 1e9, int(times[1]) / 1e9

    def _count_starved(self) -> float:
        """Seconds in which the program could have run and had no core; its wall clock stands still
        meanwhile.

        The kernel keeps them for each thread that lives.  Those that ended since the last look are
        taken to have waited as long, for each second on a core, as the others did.  A kernel that
        does not keep them shows zeros.
        """
        self._look_at_threads()
        ran = self._seen_cpu()
        waited = sum(waited for _, waited in self.threads.values())
        cpu = self._cpu()
        # Children that were not seen waited in proportion: of their time only the CPU is known.
        own_s: float = waited * max(1.0, cpu / ran) if ran and cpu > _WAITED_S else waited
        if "clocks" not in self.fds:
            return own_s
        # two programs wait for each other: each has the other's time as well
        # Two places of 8 bytes; each side writes its own and reads the other's.
        at = self.request["clock"] * _CLOCK.size
        os.pwrite(self.fds["clocks"], _CLOCK.pack(own_s), at)
        partner_s: float = _CLOCK.unpack(
            os.pread(self.fds["clocks"], _CLOCK.size, _CLOCK.size - at)
        )[0]
        return own_s + partner_s

    def _kills(self) -> bytes:
        """How often the kernel killed for want of memory in the slot's cgroup, as text.

        It may have killed only a part of the run; the rest could wait for that for ever.
        """
        return (
            # Compared as text: the number itself is not needed.
            os.pread(self.events, 512, 0).partition(b"oom_kill ")[2].split(b"\n")[0]
            if self.events >= 0
            else b""
        )

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the run for want of memory."""
        return self._kills() != self.kills_before

    def _usage(self) -> float:
        """CPU seconds of the slot, or of all our descendants, without our own; 0 where neither is
        counted."""
        if self.exact >= 0:
            # Our own time is subtracted: the clock began with this process.
            return int.from_bytes(os.read(self.exact, 8), "little") / 1e9 - time.process_time()
        if self.usage < 0:
            return 0.0
        text = os.pread(self.usage, 128, 0)
        # Version 2 counts microseconds in a table, version 1 nanoseconds in a line.
        used = int(text.split()[1]) / 1e6 if text.startswith(b"usage_usec") else int(text) / 1e9
        return used - time.process_time()

    def _memory(self) -> int:
        """Bytes of the run's processes, scratch, output and sockets.

        Shared pages are counted once only where the quick sum is over the limit, since that takes
        longer.
        """
        extra = (
            self.mapped.figure()
            + self.level.scratch_bytes()
            + self._held()
            - self.given
            + self.level.socket_bytes()
        )
        quick = extra + sum(_resident(pid) for pid in self.level.living())
        # Shared pages are in it as often as they are mapped, so it is never too small.
        if quick > self.limits["memory"]:
            distinct: list[int] = []
            for pid in map(_member, self.level.living()):
                # After vfork two processes have one memory, which must count once.
                if not any(same_memory(pid, process) for process in distinct):
                    distinct.append(pid)
            return extra + sum(_proportional(pid) for pid in distinct)
        # Pages of a shared mapping may be held without being in any process's count: then the whole
        # host's has grown
        grown = shared_memory() - self.shared
        if grown > self.limits["memory"] + extra and any(
            _shares(_member(pid)) for pid in self.level.living()
        ):
            return grown
        return quick

    def _held(self) -> int:
        """Bytes of the files that the host lent."""
        return sum(os.fstat(fd).st_blocks * 512 for fd in self.fds.values())

    def _end_all(self) -> int:
        """Kill and reap every process that is left; the program's wait status if it was among them,
        else 0."""
        status = 0
        # Nothing was killed and nothing is left: the box can be used again.
        self.over = not self.killed and self.level.childless()
        # Once is enough: whatever is being forked gets the signal too.
        if not self.over:
            self.level.signal_all(signal.SIGKILL)
        while True:
            pid, ended = self._reap_child(wait=True)
            if pid == 0:
                return status
            if pid == self.pid:
                status = ended

    def _collect(self, name: str) -> None:
        """Copy one file of the scratch folder into the host's memfd; nothing if it is no regular
        file."""
        try:
            # relative to the folder that we are in: the program may have changed the path to it
            # No link, and no wait at a FIFO: the name is the program's to choose.
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        try:
            status = os.fstat(source)
            if stat.S_ISREG(status.st_mode) and status.st_size <= self.limits["disk"]:
                left = status.st_size
                while left > 0:
                    sent = os.sendfile(self.fds["artifact"], source, None, left)
                    # The file became shorter meanwhile.
                    if not sent:
                        break
                    left -= sent
        finally:
            os.close(source)


class _Seldom:
    """What the kernel holds for all processes and no status shows; looked for now and then.

    Args:
        find: looks for it.
    """

    def __init__(self, find: Callable[[], int]) -> None:
        self._find = find
        self._found, self._at, self._took = 0, 0.0, 0.0

    def figure(self) -> int:
        """As found at the last look."""
        measured_at = time.monotonic()
        # At most a twentieth of the time goes into looking.
        if measured_at > self._at + max(_SELDOM_S, self._took / _SELDOM_SHARE):
            self._found = self._find()
            self._at = time.monotonic()
            self._took = self._at - measured_at
        return self._found


def _stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on; the name before it may contain spaces and brackets."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _cpu_by_ticks(pid: int, own: bool = True) -> float:
    # Fields 14 to 17 of proc(5): user, system, and those of children that were waited for.
    utime, stime, cutime, cstime = (int(ticks) for ticks in _stat(pid)[11:15])
    return (cutime + cstime + (utime + stime if own else 0)) * _TICK_S


def _member(pid: int) -> int:
    """A thread that lives: where the main one has ended, /proc/PID shows nothing of what the others
    hold."""
    with contextlib.suppress(OSError, IndexError):
        if _stat(pid)[0] == b"Z":
            threads = (int(name) for name in os.listdir(f"/proc/{pid}/task"))
            return next((thread for thread in threads if _stat(thread)[0] not in b"ZX"), pid)
    return pid


def _resident(pid: int) -> int:
    """Bytes in RAM and in swap, and of page tables."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        resident = (
            sum(_kib(line) for line in file if line.startswith((b"VmRSS:", b"VmSwap:", b"VmPTE:")))
            << 10
        )
        # The main thread has ended: what the others hold is shown by theirs.
        return resident or (_resident(member) if (member := _member(pid)) != pid else 0)
    return 0


def _proportional(pid: int) -> int:
    """The same, with a page that n processes share counted as 1/n in each."""
    total = 0
    for name, prefixes in (("smaps_rollup", (b"Pss:", b"SwapPss:")), ("status", (b"VmPTE:",))):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/{name}", "rb") as file:
            total += sum(_kib(line) for line in file if line.startswith(prefixes)) << 10
    return total


def _mappings(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        # In parts: the list may be many megabytes long.
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 16), b""))
    return 0


def _locks(pid: int) -> int:
    """How many parts of files it has locked: a lock is gone when any descriptor of its file is
    closed."""
    total = 0
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                total += sum(line.startswith(b"lock:") for line in file)
    return total


def _kib(line: bytes) -> int:
    return int(line.split()[1])


def _shares(pid: int) -> bool:
    """Whether it has a shared anonymous mapping, which no fstat shows."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return any(b"s " in line[:40] and b"/dev/zero" in line for line in file)
    return False
