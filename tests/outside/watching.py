"""Processes seen from outside: their memory by /proc, their files by looking, their time by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.serve_abuse import KEY
from tests.processes import ROOT, children

MIB = 1 << 20
ECHO = '''
import json
from dataclasses import dataclass
from pathlib import Path

import rlvr
from rlvr.verifiers.base import BaseVerifier


@dataclass(frozen=True)
class Reads(BaseVerifier[str, str]):
    """Reads "endless" without end."""

    version = 1

    def read(self, reference):
        while reference == "endless":
            pass
        return str(reference)

    def extract(self, text, task):
        return text

    def judge(self, answer, reference):
        right = answer == reference
        return rlvr.Verdict(rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG, why="compared")


class Echo(rlvr.Environment):
    """Says whether the completion is the reference, which is the index of a task."""

    reward = rlvr.Correct(Reads())

    def task(self, index):
        return rlvr.Task(f"echo/{index}", f"Say {index}.", reference=str(index))
'''


def tree(pid: int) -> set[int]:
    """A process and all that descend from it."""
    pids, new = {pid}, {pid}
    while new:
        new = {child for parent in new for child in children(parent)} - pids
        pids |= new
    return pids


def peak_mib(pid: int) -> float:
    """The most memory that a process ever had; 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def resident_mib(pid: int) -> float:
    """The memory that a process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def files_under(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file with its size and time of change."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def rlvr(*argv: str | Path, cwd: Path, **options: str) -> subprocess.Popen[str]:
    """The command, in a folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "rlvr", *map(str, argv)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | options,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def peak_of(process: subprocess.Popen[str]) -> Iterator[list[float]]:
    """Watches a command; the list holds its greatest memory in MiB."""
    peak, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], peak_mib(process.pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def headers() -> dict[str, str]:
    """Of an honest request."""
    return {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
