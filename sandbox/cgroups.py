"""One cgroup per slot, in version 1 or 2: memory and processes of a run, and a CPU clock
that counts each of them.

    find() ──▶ Hierarchy ──create()──▶ Cgroup    None where this user may not make any

Version 1 has a tree for each controller; version 2 has one tree, whose folders pass controllers on
only while no process sits in them.  So we look upwards from where we are for the first folder in
which it works.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rlvr.sandbox.guest.linux import remove_cgroup

__all__ = ["Cgroup", "Hierarchy", "find"]

_SPARE_MIB = 8  # what the zygote and its boxes may come to use beyond what they had at the start
# the program's own limit is RLIMIT_NPROC: whatever it takes, the zygote can still fork
_SPARE_PROCESSES = 8
# Looks, a millisecond apart, for memory that the kernel frees late.
_LATE_MS = 100
_numbers = itertools.count()

_Mount: TypeAlias = tuple[str, str, Path, str]
"""File system, root, mount point, super options."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where cgroups can be made: a folder for each controller, in version 2 the same one for all.

    Attributes:
        version: 1 or 2.
        memory, pids, cpu: the folder of the controller; None where it is not available.
    """

    version: int
    memory: Path
    pids: Path | None
    cpu: Path | None

    def create(self) -> Cgroup:
        """A new cgroup.

        Raises:
            OSError: the kernel does not allow it.
        """
        # The pid in the name lets `sweep` tell whose cgroup it is; the number, which slot's.
        name = f"rlvr-{os.getpid()}-{next(_numbers)}"
        folders = {controller: parent / name for controller, parent in self._parents()}
        # In version 2 all three are one folder, which can be made only once.
        for folder in set(folders.values()):
            folder.mkdir()
        return Cgroup(self.version, folders["memory"], folders.get("pids"), folders.get("cpu"))

    def _parents(self) -> Iterator[tuple[str, Path]]:
        for controller in ("memory", "pids", "cpu"):
            if (parent := getattr(self, controller)) is not None:
                yield controller, parent

    def sweep(self) -> None:
        """Remove the cgroups of processes that were killed together with their keeper."""
        for _, parent in set(self._parents()):
            for folder in parent.glob("rlvr-*-*"):
                pid = folder.name.split("-")[1]
                if not Path("/proc", pid).exists():
                    with contextlib.suppress(OSError):
                        folder.rmdir()


class Cgroup:
    """The cgroup of a slot.  The zygote and its boxes are in it too.

    Args:
        version: 1 or 2.
        memory, pids, cpu: the folders of these controllers, in version 2 the same one; None where
            there is none.

    Attributes:
        base: bytes that the zygote and its boxes use by themselves.
    """

    def __init__(self, version: int, memory: Path, pids: Path | None, cpu: Path | None) -> None:
        self.version, self.memory, self.pids = version, memory, pids
        # A cgroup is removed by its folder, so one that serves three controllers stands here once.
        self.folders = sorted({str(folder) for folder in (memory, pids, cpu) if folder is not None})
        self.procs = [f"{folder}/cgroup.procs" for folder in self.folders]
        self.base = 0
        self._limit = (0, 0)
        self._kills_before = self._used_before = self._stays = 0
        if version == 2:
            # Version 2 limits swap apart; without this a program would get the host's swap on top.
            _write(memory / "memory.swap.max", 0)
        self._limit_file = memory / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        self._swap_file = memory / "memory.memsw.limit_in_bytes"
        self._used_file = memory / ("memory.current" if version == 2 else "memory.usage_in_bytes")
        self._peak_file = memory / ("memory.peak" if version == 2 else "memory.max_usage_in_bytes")
        self._events_file = memory / ("memory.events" if version == 2 else "memory.oom_control")
        usage = cpu and str(cpu / ("cpu.stat" if version == 2 else "cpuacct.usage"))
        # what a box reads: CPU time, and kills for lack of memory
        self.meters = [usage or "", str(self._events_file)]

    def settle(self) -> None:
        """Measure `base`, once the zygote is ready."""
        # What is used now is the zygote's own; the limit of a run is counted from here.
        self.base = self._read_used() + (_SPARE_MIB << 20)

    def limit(self, memory: int, processes: int) -> None:
        """Set the limits of the next run.

        Args:
            memory: bytes.
            processes: how many processes and threads.

        Raises:
            OSError: the kernel refused them; nothing may run then.
        """
        # What the previous run still holds is not this program's: its limit is raised by that.
        memory += self._left()
        if (memory, processes) == self._limit:
            return
        value = memory + self.base
        # The limit with swap may never be below the one without, so the right order depends on the
        # old values
        for _ in range(2):
            _write(self._swap_file, value)
            _write(self._limit_file, value)
        # `_write` ignores errors, so what the kernel took is read back.
        limit_text = _read(self._limit_file).strip()
        if not limit_text.isdigit() or int(limit_text) > value:
            raise OSError(f"{self._limit_file} says {limit_text!r} after {value} was written to it")
        if self.pids is not None:
            _write(self.pids / "pids.max", processes + _SPARE_PROCESSES)
        self._limit = memory, processes

    def mark(self) -> None:
        """Begin to measure a run, for `kills` and `peak`."""
        # In version 1 any number that is written resets the peak.
        _write(self._peak_file, 0)
        self._kills_before = self._count_killed()
        self._used_before = self._read_used()

    def kills(self) -> int:
        """How often the kernel killed a process here for lack of memory, since `mark`."""
        # a cgroup that close() has removed counts none
        return max(0, self._count_killed() - self._kills_before)

    def peak(self) -> int | None:
        """Peak bytes since `mark`, beyond what was used then; None where that is not counted.

        In version 2 the peak can be reset only since Linux 6.12 and only for one descriptor: there,
        it is not counted.
        """
        return (
            None
            if self.version == 2
            else max(0, int(_read(self._peak_file) or 0) - self._used_before)
        )

    def _count_killed(self) -> int:
        match = re.search(r"^oom_kill (\d+)", _read(self._events_file), re.MULTILINE)
        # Version 1 and 2 have the same line in these two files.
        return int(match[1]) if match else 0

    def _left(self) -> int:
        """Bytes that the previous run still holds, in whole MiB: its output, which the host is
        still reading.

        Page tables and the like are freed some milliseconds late.  We wait for that, or they would
        count for the next run.  What stays, such as the names of files that were looked up, the
        kernel can take back when it must.
        """
        shared = 0
        for _ in range(_LATE_MS):
            if (left := self._read_used() - self.base) <= 0:
                return 0
            fields = re.findall(
                r"^(shmem|(?:in)?active_file) (\d+)",
                # Page cache and shared memory: a program's output is a memfd, which counts as
                # shmem.
                _read(self.memory / "memory.stat"),
                re.MULTILINE,
            )
            stat = {name: int(value) for name, value in fields}
            shared = stat.get("shmem", 0)
            # What is left now is the kernel's: page tables, slabs, buffers of sockets.
            left -= sum(stat.values())
            if left <= self._stays:
                break
            time.sleep(0.001)
        else:
            # It did not go away in the time that it may take: next time it is not waited for again.
            self._stays = left
        # Whole MiB, so that `limit` finds the same numbers and writes nothing in most runs.
        return shared >> 20 << 20

    def _read_used(self) -> int:
        return int(_read(self._used_file) or 0)

    def remove(self) -> None:
        """Remove the folders.  That works once the zygote is gone, which takes the kernel some
        milliseconds."""
        for folder in self.folders:
            remove_cgroup(folder)


def find() -> Hierarchy | None:
    """The hierarchy that works here, found by making a cgroup in it; None if there is none."""
    mounts = list(_mounts())
    own_paths = _own_paths()
    for candidate in (*_version_2(mounts, own_paths), *_version_1(mounts, own_paths)):
        with contextlib.suppress(OSError):
            trial = candidate.create()
            # A folder may exist and still refuse a limit, as in some containers, so one is set.
            try:
                trial.limit(1 << 30, 1000)
            finally:
                trial.remove()
            candidate.sweep()
            return candidate
    return None


def _version_2(mounts: list[_Mount], own: dict[str, str]) -> Iterator[Hierarchy]:
    for kind, root, point, _ in mounts:
        if kind != "cgroup2" or "" not in own:
            continue
        folder = _within(point, root, own[""])
        # From where we are up to the mount's root: the nearest that passes controllers on.
        for parent in (folder, *folder.parents):
            if not parent.is_relative_to(point):
                break
            passed_on = _read(parent / "cgroup.subtree_control").split()
            if "memory" not in passed_on:
                with contextlib.suppress(OSError):  # only a folder without processes of its own may
                    (parent / "cgroup.subtree_control").write_text("+memory +pids")
                passed_on = _read(parent / "cgroup.subtree_control").split()
            if "memory" in passed_on and os.access(parent, os.W_OK):
                yield Hierarchy(2, parent, parent if "pids" in passed_on else None, parent)


def _version_1(mounts: list[_Mount], own: dict[str, str]) -> Iterator[Hierarchy]:
    paths: dict[str, Path] = {}
    # One mount can serve several controllers: cpu,cpuacct.
    for kind, root, point, options in mounts:
        if kind == "cgroup":
            for controller in options.split(","):
                if controller in own:
                    paths[controller] = _within(point, root, own[controller])
    if "memory" in paths and os.access(paths["memory"], os.W_OK):
        yield Hierarchy(1, paths["memory"], paths.get("pids"), paths.get("cpuacct"))


def _within(point: Path, root: str, path: str) -> Path:
    """Our cgroup as a folder; in a container, `root` is the part of its path that the mount leaves
    out."""
    if path == root or path.startswith(root.rstrip("/") + "/"):
        path = path[len(root.rstrip("/")) :]
    folder = point / path.lstrip("/")
    return folder if folder.is_dir() else point


def _mounts() -> Iterator[_Mount]:
    """Each cgroup mount; see proc_pid_mountinfo(5)."""
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        # The fields before " - " vary in number (proc_pid_mountinfo(5)), those after it do not.
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, root, point, *_ = left.split()
            yield kind, root, Path(point), options


def _own_paths() -> dict[str, str]:
    """controller → our cgroup; version 2's is under ""."""
    paths = {}
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _read(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:  # several of them are read in each run
            return file.read().decode()
    except OSError:
        return ""


def _write(path: Path, value: int) -> None:
    with contextlib.suppress(OSError):
        path.write_text(str(value))
