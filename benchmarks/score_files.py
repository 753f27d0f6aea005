r"""Rows in a file against rows in memory, and what a resume costs, as the Markdown table of docs/benchmarks/scoring.md.

    python -m benchmarks.score_files --rows 1000000

The check compares two short texts, so what is measured is reading, records, writing and the pool.  The stopped run is
made by cutting the output of a whole one in half.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rlvr

WORKERS = 2


class Same(rlvr.SingleTurnEnv):
    """Right if the completion is the reference."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(str(index), f"Say {index}.", reference=str(index))

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        right = completion == task.reference
        return rlvr.Verdict("correct" if right else "wrong", why="same" if right else "other")


def rows(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"id": i, "prompt": f"Say {i}.", "reference": str(i), "completion": str(i - (i % 3 == 0))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--in-memory", type=int, default=100_000, help="rows of the side that holds them in memory")
    asked = parser.parse_args()
    listed = list(rows(asked.in_memory))
    with rlvr.Scorer(Same(), workers=WORKERS) as scorer:
        for _ in scorer.stream(listed[:5_000]):
            pass
        began = time.perf_counter()
        for _ in scorer.stream(listed):
            pass
        rate = len(listed) / (time.perf_counter() - began)
    del listed
    print(f"| {WORKERS} workers | rows | s | rows per second | peak MiB of the main process |\n|---|--:|--:|--:|--:|")
    print(f"| `Scorer.stream`, rows in memory | {asked.in_memory:,} | {asked.in_memory / rate:.1f} | {rate:,.0f} | |")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        with source.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(asked.rows))
        fresh_s, peak = _scored(source, out)
        print(_line("`rlvr score`, fresh", asked.rows, fresh_s, peak), flush=True)
        whole = out.read_bytes()
        half = asked.rows // 2
        with out.open("rb") as file, Path(f"{out}.partial").open("wb") as kept:
            kept.writelines(itertools.islice(file, half))
        out.unlink()
        resumed_s, peak = _scored(source, out, "--resume")
        print(_line("`rlvr score --resume`, after half of them", asked.rows - half, resumed_s, peak))
        assert out.read_bytes() == whole
        print(f"\nThe resume added {resumed_s - fresh_s * (asked.rows - half) / asked.rows:.1f} s.")


def _line(what: str, count: int, took_s: float, peak: float) -> str:
    return f"| {what} | {count:,} | {took_s:.1f} | {count / took_s:,.0f} | {peak:.0f} |"


def _scored(source: Path, out: Path, *flags: str) -> tuple[float, float]:
    """(seconds, peak MiB) of the command, start-up included."""
    argv = [sys.executable, "-m", "rlvr", "score", f"{__file__}:Same", str(source), "-o", str(out)]
    began = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [*argv, "--workers", str(WORKERS), *flags],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    peak = 0
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        status = Path(f"/proc/{pid}/status").read_text()  # not ru_maxrss: it begins with the memory of this process
        peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
        time.sleep(0.05)
    assert done[1] == 0, done
    return time.perf_counter() - began, peak / 1024


if __name__ == "__main__":
    main()
