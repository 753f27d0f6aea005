"""The slots of a sandbox: started when needed, replaced when they die, used by one caller at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from rlvr.errors import IsolationUnavailable, SandboxFailed
from rlvr.sandbox import cgroups, seccomp
from rlvr.sandbox.records import Limits
from rlvr.sandbox.slots import Keeper, NoNamespaces, NotTaken, Request, Slot
from rlvr.sandbox.toolchains import Packages, Python, root_plan, search_path
from rlvr.workers import usable_cores

__all__ = ["MIB", "SlotPool"]

MIB: Final = 1 << 20
_STOCK: Final = 2  # boxes in readiness: a suite takes two at once
_OWN_PROCESSES: Final = _STOCK + 4  # the zygote, its boxes, one that is not yet reaped, the other program of a suite
_UNPRIVILEGED: Final = 65534
_TRIES: Final = 3  # of runs whose slot or box was killed from outside
_DEAD: Final = 50  # slots found dead before they took the run; idle ones that were killed, so they are no tries
_PRELOAD: Final = (
    "abc argparse array ast base64 bisect builtins calendar cmath collections collections.abc contextlib copy "
    "dataclasses datetime decimal enum fractions functools heapq inspect io itertools json keyword locale "
    "math numbers operator pprint queue random re statistics string struct sys textwrap threading time timeit "
    "tokenize traceback types typing unicodedata warnings weakref zlib"
).split()


class SlotPool:
    """Up to `workers` slots under one keeper.  Thread-safe; in a forked child it starts over.

    Args:
        python: the interpreter of the programs.
        packages: what they may import beside the standard library.
        caches: folder inside a slot → folder of the host, bound read-only.
        limits: of most runs; others cost a remount of the scratch folder.
        workers: how many slots there may be.

    Attributes:
        memory: "cgroup v1", "cgroup v2", or "" where this user may not make one.
    """

    def __init__(self, python: Python, packages: Packages, caches: Mapping[str, str], limits: Limits, workers: int):
        self._python, self._packages, self._caches = python, packages, caches
        self._limits, self._workers = limits, workers
        self._hierarchy = _hierarchy()
        self.memory = f"cgroup v{self._hierarchy.version}" if self._hierarchy else ""
        self._forget()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._free = threading.Semaphore(self._workers)
        self._idle: deque[Slot] = deque()
        self._live: set[Slot] = set()
        self._keeper: Keeper | None = None
        self._closings = 0

    def run(
        self,
        build: Callable[[], Sequence[Request]],
        limits: Limits,
        wall_s: float,
        *,
        sent: Callable[[], None] = lambda: None,
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Run the requests in one slot; returns its replies, and what its cgroup counted.

        Args:
            build: makes the requests; called again if the slot failed and another one is tried.
            limits: memory and processes, which the cgroup enforces.
            wall_s: wall seconds that the requests may take.
            sent: called once the requests have been sent, for descriptors that must then be closed here.

        Raises:
            SandboxFailed: no slot could be started, or each one that was tried failed.
        """
        closings = self._closings
        tries = dead = 0
        while True:
            try:
                with self._checkout() as slot:
                    try:
                        return self._run_in(slot, build(), limits, wall_s, sent)
                    except SandboxFailed:
                        self._bury(slot)
                        raise
            except SandboxFailed as error:
                taken = not isinstance(error, NotTaken)
                tries, dead = tries + taken, dead + (not taken)
                if tries == _TRIES or dead == _DEAD or self._closings != closings:
                    raise

    def _run_in(
        self, slot: Slot, requests: Sequence[Request], limits: Limits, wall_s: float, sent: Callable[[], None]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        group = slot.cgroup
        if group is None:
            return _alive(slot.run(requests, wall_s, sent)), {"kills": 0, "peak": None}
        try:
            group.limit(limits.memory_mib * MIB, limits.processes + _OWN_PROCESSES)
        except OSError as error:  # also where a keeper that was killed has taken the cgroup along
            raise NotTaken(f"the memory limit could not be set: {error}") from None
        group.mark()
        try:
            replies = slot.run(requests, wall_s, sent)
        except SandboxFailed:
            if not (kills := group.kills()):
                raise
            self._bury(slot)  # the kernel took the zygote too: the memory was the program's all the same
            return [{"died": -signal.SIGKILL} for _ in requests], {"kills": kills, "peak": None}
        kills = group.kills()
        return replies if kills else _alive(replies), {"kills": kills, "peak": group.peak()}

    @contextlib.contextmanager
    def _checkout(self) -> Iterator[Slot]:
        if os.getpid() != self._owner:  # forked: what we hold is the parent's
            for slot in self._live:
                slot.disown()
            if self._keeper:
                self._keeper.disown()
            self._forget()
        with self._free:
            slot = self._idle_one() or self._started()
            try:
                yield slot
            finally:
                with self._lock:
                    if slot in self._live:
                        self._idle.append(slot)

    def _idle_one(self) -> Slot | None:
        with self._lock:
            return self._idle.pop() if self._idle else None  # the one that ran last has the warmest caches

    def _started(self) -> Slot:
        with self._lock:
            if self._keeper is None or not self._keeper.alive:
                for slot in [*self._live]:
                    self._bury(slot)
                self._keeper = Keeper(self._python, self._config())
            group = self._hierarchy.create() if self._hierarchy else None
            try:
                slot = self._keeper.start_slot(group)
            except BaseException as error:
                if group:
                    group.remove()
                if isinstance(error, NoNamespaces):
                    found = f"no namespaces: {error}"
                    remedy = _NAMESPACES_REMEDY.format(root="" if os.geteuid() == 0 else ", or run as root")
                    raise IsolationUnavailable("files", found, remedy, waivable=False) from None
                raise
            self._live.add(slot)
            return slot

    def _bury(self, slot: Slot) -> None:
        with self._lock:
            self._live.discard(slot)
            with contextlib.suppress(ValueError):
                self._idle.remove(slot)
        slot.close()

    def _config(self) -> dict[str, Any]:
        uid, gid = (_UNPRIVILEGED, _UNPRIVILEGED) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        limits = self._limits
        return {
            "path": search_path(self._python, self._packages),
            "preload": [*_PRELOAD, *self._packages.preload],
            "packages": list(self._packages.preload),
            "root": root_plan(self._python, self._packages, self._caches),
            "filter": seccomp.program().hex(),
            "outer_uid": uid,
            "outer_gid": gid,
            "stock": _STOCK,
            "own_processes": _OWN_PROCESSES,
            "cores": usable_cores(),
            "sampled": self._hierarchy is None,
            "disk": int(limits.disk_mib * MIB),
            "files": limits.files,
        }

    def close(self) -> None:
        """End every process; callers that wait for a run get `SandboxFailed`.  A later run starts new processes."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closings += 1
            keeper, self._keeper = self._keeper, None
            live, self._live = self._live, set()
            self._idle.clear()
        for slot in live:
            slot.close()
        if keeper:
            keeper.close()


def _alive(replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies; where a box cannot give one, the whole is tried again, as a program cannot kill its box."""
    for reply in replies:
        if "died" in reply:
            raise SandboxFailed(f"its box was killed from outside (exit code {reply['died']})")
    return replies


_NAMESPACES_REMEDY: Final = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container: --security-opt seccomp=unconfined, and for root --cap-add SYS_ADMIN)"
    '{root}; score on another host with "rlvr serve" (docs/using/serving.md); '
    'or take less isolation by name: Sandbox(level="restricted"), docs/reference/sandbox.md'
)


@lru_cache(maxsize=1)
def _hierarchy() -> cgroups.Hierarchy | None:
    return cgroups.find()
