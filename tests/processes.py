"""Watching processes by events: what the tests wait for has happened, or the test fails."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120.0  # only a failing test waits so long


def ended(pid: int) -> bool:
    """Wait until a process is no more (or a zombie); False if it lives on."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], PATIENCE_S)[0])
    finally:
        os.close(fd)


def run_python(code: str, *argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter; options are those of `subprocess.run`."""
    command = [sys.executable, "-c", code, *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def children(parent: int) -> set[int]:
    """Living child processes."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" ", 1)
        except OSError:  # it has just ended
            continue
        state, ppid = rest.rpartition(")")[2].split()[:2]
        if int(ppid) == parent and state != "Z":
            found.add(int(pid))
    return found


class Fifo:
    """A named pipe: a process that writes a line into it tells the test that it has come so far."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._lines: list[str] = []

    def line(self) -> str:
        """The next line, waited for."""
        while not self._lines:
            assert select.select([self._fd], [], [], PATIENCE_S)[0], (
                f"no line was written into {self.path.name}"
            )
            self._lines += (
                os.read(self._fd, 4096).decode().splitlines()
            )  # writes of a line are atomic
        return self._lines.pop(0)

    def pid(self) -> int:
        """Who wrote the next line."""
        return int(self.line().split()[0])

    def close(self) -> None:
        os.close(self._fd)


def in_turn(rows: Iterable[object], every: int) -> list:
    """The rows of a table, of which all but the first of each so many are slow."""
    return [
        pytest.param(row, marks=[pytest.mark.slow] * (i % every > 0)) for i, row in enumerate(rows)
    ]


def one_in_six(rows: Iterable[str], columns: Iterable[str]) -> list:
    """All pairs of a row and a column; five of six are slow, in diagonals, so that each row and column is tried."""
    return [
        pytest.param(row, column, marks=[pytest.mark.slow] * ((i + j) % 6 > 0))
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


def python(code: str, *args: str | Path, **options) -> subprocess.Popen[str]:
    """A fresh interpreter in the repo root that runs this code."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        **options,
    )
