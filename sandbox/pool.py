"""The slots of a sandbox: started when needed, replaced when they die, used
by one caller at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from rlvr.errors import IsolationUnavailable, SandboxFailed
from rlvr.sandbox import cgroups, remedies, seccomp
from rlvr.sandbox.guest.restricted import ABI
from rlvr.sandbox.levels import landlock_version
from rlvr.sandbox.records import Limits
from rlvr.sandbox.slots import CannotIsolate, Died, Keeper, NotTaken, RunRequest, Slot
from rlvr.sandbox.toolchains import Packages, Python, root_plan, search_path
from rlvr.workers import usable_cores

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotConfig, SlotMessage

__all__ = ["MIB", "SlotPool"]

_T = TypeVar("_T")

MIB: Final = 1 << 20
_STOCK: Final = 2  # boxes in readiness: a suite takes two at once
# the zygote, its boxes with their forkers, two that are not yet reaped, a suite's other program
_OWN_PROCESSES: Final = 2 * _STOCK + 5
# `nobody` and its group: as root, a sandbox would leave root's rights to a guest that gets out.
_UNPRIVILEGED: Final = 65534
_TRIES: Final = 3  # of runs that failed for any other reason than a kill from outside
# Doubled each time, so that a host that is busy for a while is not asked at once.
_PAUSE_S: Final = 0.01, 0.5  # between two attempts, at first and at last
_LEND_S: Final = 60.0  # in which a slot for a session is looked for
_SPARE_SLOTS: Final = 16  # idle ones beyond those of the workers; what sessions leave behind goes
# For the box of a session that was told to end; a slot that takes longer is not used again.
_ENDING_S: Final = 10.0
_GRACE_S: Final = 15.0  # beyond a run's wall limit, until its box is taken for dead
# What programs import often.  A library costs each run 20 µs, so those that few need are left out:
# cmath, unicodedata …
_PRELOAD: Final = (
    "abc argparse array ast bisect builtins calendar collections collections.abc contextlib copy "
    "dataclasses datetime decimal enum fractions functools heapq inspect io itertools json keyword "
    "locale math numbers operator pprint queue random re statistics string struct sys textwrap "
    "threading time timeit tokenize traceback types typing warnings weakref"
).split()


class SlotPool:
    """Up to `workers` slots under one keeper.  Thread-safe; in a forked child it starts over.

    Args:
        python: the interpreter of the programs.
        packages: what they may import beside the standard library.
        caches: folder inside a slot → folder of the host, bound read-only.
        limits: of most runs; others cost a remount of the scratch folder.
        workers: how many slots there may be.
        level: a key of `LEVELS`.

    Attributes:
        memory: "cgroup v1", "cgroup v2", or "" where this user may not make one.
    """

    def __init__(
        self,
        python: Python,
        packages: Packages,
        caches: Mapping[str, str],
        limits: Limits,
        workers: int,
        level: str,
        folders: Sequence[str] = (),
    ):
        self._python, self._packages, self._caches = python, packages, caches
        self._folders = tuple(folders)
        self._limits, self._workers, self._level = limits, workers, level
        self._hierarchy = _hierarchy()
        self.memory = f"cgroup v{self._hierarchy.version}" if self._hierarchy else ""
        self._forget()

    def _forget(self) -> None:
        # A fork copies the object; the processes belong to the parent.
        self._owner = os.getpid()
        # Re-entrant: starting a slot may bury others.
        self._lock = threading.RLock()
        # As many runs at once as there are workers; sessions do not count.
        self._free = threading.Semaphore(self._workers)
        self._idle: deque[Slot] = deque()
        self._live: set[Slot] = set()
        self._returned: deque[Slot] = deque()
        # Started with the first slot, so that a Sandbox costs nothing until it runs something.
        self._keeper: Keeper | None = None
        self._closed = threading.Event()  # of the slots there are now

    def run(
        self,
        build: Callable[[], Sequence[Sequence[RunRequest]]],
        limits: Sequence[Limits],
        wall_s: float,
        *,
        sent: Callable[[], None] = lambda: None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[list[SlotMessage], SlotMessage]]:
        """Run requests in one slot or in several; these take the place of one run among `workers`.

        Args:
            build: makes the requests of each slot; called again if a slot failed and others are
                tried.
            limits: of each slot: memory and processes, which its cgroup enforces.
            wall_s: wall seconds that the requests may take.
            sent: called once the requests have been sent, for descriptors that must then be closed
                here.
            look: called after 0.1 s, and again each time as long has passed as before.

        Returns:
            For each slot its replies, and what its cgroup counted.

        Raises:
            SandboxFailed: no slot could be started, or each one that was tried failed.
        """

        def work(slots: list[Slot]) -> list[tuple[list[dict[str, object]], SlotMessage]]:
            # All are sent before any reply is read: several slots work at the same time.
            for slot, requests in zip(slots, build(), strict=True):
                slot.send(requests)
            # Our copies of a pipe's ends go now; else neither side would read an end of file.
            sent()
            return [self._replies(slot, wall_s, look) for slot in slots]

        def attempt() -> list[tuple[list[dict[str, object]], dict[str, object]]]:
            slots, replies = self._lease(limits, work)
            # Only after success: `_lease` has buried those of an attempt that failed.
            for slot in slots:
                self._keep(slot)
            return replies

        self._require_own()
        with self._free:  # waiting for a turn takes none of the run's time
            return self._repeat_killed(attempt, wall_s)

    def _repeat_killed(self, attempt: Callable[[], _T], wall_s: float) -> _T:
        """What an attempt returns; those that a kill from outside ended are repeated while there is
        time.

        Any other failure says that something is wrong here: it is repeated twice.

        Args:
            attempt: raises SandboxFailed.
            wall_s: wall seconds in which another attempt begins.
        """
        closed, until, tries = self._closed, time.monotonic() + wall_s, 0
        pause_s, longest_s = _PAUSE_S
        while True:
            # The keeper before the attempt: if it is another one afterwards, it was killed
            # meanwhile.
            keeper = self._keeper
            try:
                return attempt()
            except SandboxFailed as error:
                gone = keeper is None or keeper is not self._keeper or not keeper.alive
                # A kill from outside is not counted: on a machine that is short of memory it comes
                # again.
                tries += not (isinstance(error, Died) or gone)
                late = time.monotonic() > until
                # The event is waited for: a program that exchanges time.sleep must not make us spin
                if tries == _TRIES or late or closed.wait(pause_s):
                    raise
                pause_s = min(2 * pause_s, longest_s)

    def lend(self, begin: Callable[[Slot], None], limits: Limits) -> Slot:
        """A slot that no run will use until `take_back`; it is none of the `workers`.

        Args:
            begin: sends the slot its request.
            limits: memory and processes, which the cgroup enforces.

        Raises:
            SandboxFailed: no slot could be started, or each one that was tried failed.
        """

        def attempt() -> Slot:
            [slot], _ = self._lease([limits], lambda slots: begin(slots[0]))
            return slot

        self._require_own()
        return self._repeat_killed(attempt, _LEND_S)

    def take_back(self, slot: Slot, wait: bool) -> None:
        """Take back a slot that was lent, once its box has ended.

        Args:
            slot: from `lend`; its box has been told to end.
            wait: False where no lock may be taken: the slot is then looked at when the next one is
                needed.
        """
        self._returned.append(slot)  # a deque needs no lock
        if wait:
            # Slots that other threads gave back are looked after by the next caller.
            self._take_in()

    def _take_in(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                slot = self._returned.popleft()
                try:
                    slot.replies(_ENDING_S)
                except SandboxFailed:
                    self._bury(slot)
                    continue
                self._keep(slot)

    def _lease(
        self, limits: Sequence[Limits], work: Callable[[list[Slot]], _T]
    ) -> tuple[list[Slot], _T]:
        """Slots for one use, and what `work` made of them; where it fails, they end with what they
        run.

        Args:
            limits: of each slot.
            work: gets the slots; no other caller has them.
        """
        slots: list[Slot] = []
        try:
            for slot_limits in limits:
                slots.append(self._idle_one() or self._start_slot())
                # Before the request: a program must not begin without its limit.
                self._limit(slots[-1], slot_limits)
            return slots, work(slots)
        except BaseException:  # a program that runs on would be in the next run's slot
            for slot in slots:
                self._bury(slot)
            raise

    def _keep(self, slot: Slot) -> None:
        """Have a slot ready for its next use, unless it ended or enough are ready."""
        with self._lock:
            # Idle slots cost memory, so only some beyond the workers are kept.
            keep = slot in self._live and len(self._idle) < self._workers + _SPARE_SLOTS
            if keep:
                self._idle.append(slot)
        if not keep:
            self._bury(slot)

    def _limit(self, slot: Slot, limits: Limits) -> None:
        # Without cgroups the box samples memory itself.
        if slot.cgroup is None:
            return
        try:
            # The zygote and its boxes count as processes of the cgroup too.
            slot.cgroup.limit(limits.memory_mib * MIB, limits.processes + _OWN_PROCESSES)
        except OSError as error:  # also where a keeper that was killed has taken the cgroup along
            raise NotTaken(f"the memory limit could not be set: {error}") from None
        slot.cgroup.mark()

    def _replies(
        self, slot: Slot, wall_s: float, look: Callable[[], None] | None = None
    ) -> tuple[list[dict[str, object]], dict[str, object]]:
        """The replies to what was sent to a slot, and what its cgroup counted."""
        group = slot.cgroup
        if group is None:
            return _alive(slot.replies(wall_s + _GRACE_S, look)), {"kills": 0, "peak": None}
        try:
            replies = slot.replies(wall_s + _GRACE_S, look)
        except SandboxFailed:
            # No kill by the kernel: the box was ended from outside, and the run is repeated.
            if not (kills := group.kills()):
                raise
            # the kernel took the zygote too: the memory was the program's all the same
            self._bury(slot)
            return [{"died": -signal.SIGKILL} for _ in range(slot.asked)], {
                "kills": kills,
                "peak": None,
            }
        kills = group.kills()
        return replies if kills else _alive(replies), {"kills": kills, "peak": group.peak()}

    def _require_own(self) -> None:
        # A child may use none of the parent's slots: two would read one socket.
        if os.getpid() != self._owner:  # forked: what we hold is the parent's
            for slot in self._live:
                # Descriptors are closed here, and no process is ended.
                slot.disown()
            if self._keeper:
                self._keeper.disown()
            self._forget()
        self._take_in()

    def _idle_one(self) -> Slot | None:
        with self._lock:
            # the one that ran last has the warmest caches
            return self._idle.pop() if self._idle else None

    def _start_slot(self) -> Slot:
        with self._lock:
            if self._keeper is None or not self._keeper.alive:
                # Slots die with their keeper.
                for slot in [*self._live]:
                    self._bury(slot)
                try:
                    self._keeper = Keeper(self._python, self._config())
                except CannotIsolate as error:
                    raise self._unavailable(error) from None
            group = self._hierarchy.create() if self._hierarchy else None
            try:
                slot = self._keeper.start_slot(group)
            except BaseException as error:
                # The cgroup was made for it alone.
                if group:
                    group.remove()
                if isinstance(error, CannotIsolate):
                    raise self._unavailable(error) from None
                raise
            self._live.add(slot)
            return slot

    def _unavailable(self, error: CannotIsolate) -> IsolationUnavailable:
        problem, remedy = f"no namespaces: {error}", remedies.of_namespaces()
        if self._level == "restricted":
            problem, remedy = f"no Landlock: {error}", remedies.of_landlock()
        return IsolationUnavailable("files", problem, remedy, waivable=False)

    def _bury(self, slot: Slot) -> None:
        # The lock makes sure that a slot is closed once.
        with self._lock:
            if slot not in self._live:
                return
            self._live.discard(slot)
            with contextlib.suppress(ValueError):
                self._idle.remove(slot)
        slot.close()

    def _config(self) -> SlotConfig:
        uid, gid = (
            (_UNPRIVILEGED, _UNPRIVILEGED) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        )
        limits, landlock = self._limits, landlock_version()
        return {
            "level": self._level,
            # Of the host, for scratches at the level "restricted".
            "scratch": tempfile.gettempdir(),
            "executable": self._python.executable,
            "path": search_path(self._python, self._packages),
            "preload": [*_PRELOAD, *self._packages.preload],
            "packages": list(self._packages.preload),
            "sites": list(self._packages.sites),
            "root": root_plan(self._python, self._packages, self._caches, self._folders),
            "landlock": landlock,
            "filter": seccomp.program(
                restricted=self._level == "restricted", landlock=landlock
            ).hex(),
            "forks": seccomp.forks(signals=landlock < ABI).hex(),
            "outer_uid": uid,
            "outer_gid": gid,
            "stock": _STOCK,
            "own_processes": _OWN_PROCESSES,
            "cores": usable_cores(),
            # No cgroup: boxes then look at memory themselves.
            "sampled": self._hierarchy is None,
            "disk": int(limits.disk_mib * MIB),
            "files": limits.files,
        }

    def close(self) -> None:
        """End every process; callers that wait for a run get `SandboxFailed`.  A later run starts
        new processes."""
        # The parent's; closing them would end its runs.
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed.set()  # wakes those that wait to try again
            # A new event: threads that waited on the old one are woken, later ones are not.
            self._closed = threading.Event()
            keeper, self._keeper = self._keeper, None
            live, self._live = self._live, set()
            self._idle.clear()
        # Outside of the lock: closing waits for processes to end.
        for slot in live:
            slot.close()
        if keeper:
            keeper.close()


def _alive(replies: list[dict[str, object]]) -> list[dict[str, object]]:
    """The replies; where a box cannot give one, the whole is tried again, as a program cannot kill
    its box."""
    for reply in replies:
        if "died" in reply:
            raise Died(f"its box was killed from outside (exit code {reply['died']})")
    return replies


# Found once: a look makes a cgroup and removes it.
@lru_cache(maxsize=1)
def _hierarchy() -> cgroups.Hierarchy | None:
    return cgroups.find()
