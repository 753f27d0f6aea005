r"""Rows in a file against rows in memory, and what a resume costs,
as the Markdown table of docs/benchmarks/scoring.md.

    python -m benchmarks.score_files --rows 1000000

The check compares two short texts, so what is measured is reading, records, writing and the pool.
The run is killed when 98 % are written (its last row waits for that), and then resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rlvr

WORKERS = 2
WAIT = "wait"  # the last completion: its verdict comes when a file is gone


class Same(rlvr.Environment):
    """Right if the completion is the reference."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(str(index), f"Say {index}.", reference=str(index))

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        while completion == WAIT and Path(task.reference).exists():
            time.sleep(0.1)
        right = completion == task.reference
        return rlvr.Verdict("correct" if right else "wrong", why="same" if right else "other")


def rows(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {
            "id": i,
            "prompt": f"Say {i}.",
            "reference": str(i),
            "completion": str(i - (i % 3 == 0)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--in-memory", type=int, default=100_000, help="rows of the side that holds them in memory"
    )
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
    print(
        f"| {WORKERS} workers | rows | s | rows per second | peak MiB of the main "
        "process |\n|---|--:|--:|--:|--:|"
    )
    print(
        f"| `Scorer.stream`, rows in memory | {asked.in_memory:,} | "
        f"{asked.in_memory / rate:.1f} | {rate:,.0f} | |"
    )
    with tempfile.TemporaryDirectory() as folder:
        gate, one, source, out = (
            Path(folder) / name for name in ("gate", "one.jsonl", "in.jsonl", "out.jsonl")
        )
        one.write_text(json.dumps(next(rows(1))) + "\n")
        start_s, _ = _scored(one, Path(folder) / "one-out.jsonl")
        gate.touch()
        with source.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(asked.rows))
            file.write(
                json.dumps({"id": "last", "prompt": "", "reference": str(gate), "completion": WAIT})
                + "\n"
            )
        # Those that are with the last row in a chunk come back with it.
        most = asked.rows * 49 // 50
        fresh_s, peak = _scored(source, out, killed_after=most)
        print(_line("`rlvr score`, fresh", most, fresh_s - start_s, peak), flush=True)
        before = Path(f"{out}.partial").read_bytes()
        gate.unlink()
        resumed_s, peak = _scored(source, out, "--resume")
        print(_line("`rlvr score --resume`, passed over", asked.rows, resumed_s - start_s, peak))
        assert out.read_bytes().startswith(before)
        assert out.read_bytes().count(b"\n") == asked.rows + 1
        print(f"\nStart-up, {start_s:.1f} s, is not counted.")


def _line(what: str, count: int, took_s: float, peak: float) -> str:
    return f"| {what} | {count:,} | {took_s:.1f} | {count / took_s:,.0f} | {peak:.0f} |"


def _scored(source: Path, out: Path, *flags: str, killed_after: int = 0) -> tuple[float, float]:
    """(seconds, peak MiB) of the command, start-up included; if so told,
    it is killed when it has written so many."""
    argv = [sys.executable, "-m", "rlvr", "score", f"{__file__}:Same", str(source), "-o", str(out)]
    began = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [*argv, "--workers", str(WORKERS), *flags],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    peak = written = seen = 0
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        status = Path(
            f"/proc/{pid}/status"
        ).read_text()  # not ru_maxrss: it begins with the memory of this process
        peak = max(
            [
                peak,
                *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")),
            ]
        )
        if killed_after and (partial := Path(f"{out}.partial")).exists():
            with partial.open("rb") as file:
                file.seek(seen)
                block = file.read()
            seen, written = seen + len(block), written + block.count(b"\n")
            if written >= killed_after:
                took_s = time.perf_counter() - began
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return took_s, peak / 1024
        time.sleep(0.05)
    assert done[1] == 0, done
    return time.perf_counter() - began, peak / 1024


if __name__ == "__main__":
    main()
