r"""What a session costs, as docs/reference/sandbox.md and docs/benchmarks/sandbox.md report.

python -m benchmarks.sandbox_sessions
"""

import argparse
import contextlib
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlvr.sandbox import Sandbox

CODE = "x = 1"


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [
        other for child in children for other in below(int(child))
    ]


def held_mib(pids: list[int]) -> float:
    """MiB that processes hold, shared pages in parts."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kib += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return kib / 1024


def used_s(pids: list[int]) -> float:
    """CPU seconds that processes have used."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(
                map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
            )
    return ticks / os.sysconf("SC_CLK_TCK")


def milliseconds(seconds: list[float]) -> str:
    """Median and the slowest of a hundred."""
    cut = statistics.quantiles(seconds, n=100)
    return f"p50 {1000 * cut[49]:.2f} ms, p99 {1000 * cut[98]:.2f} ms"


def main() -> None:
    """Print one line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--open", type=int, default=64, help="sessions that are open at once")
    parser.add_argument("--calls", type=int, default=1000)
    args = parser.parse_args()
    with Sandbox() as sandbox:
        starts = []
        for _ in range(100):
            began = time.perf_counter()
            session = sandbox.session()
            starts.append(time.perf_counter() - began)
            session.close()
        print("start in an idle slot:", milliseconds(starts))
        sessions, starts = [], []
        for _ in range(args.open):
            began = time.perf_counter()
            sessions.append(sandbox.session())
            starts.append(time.perf_counter() - began)
        print(f"start of {args.open} at once, each in a new slot:", milliseconds(starts))
        for session in sessions:
            session.run(CODE)
        keeper = sandbox._pool._keeper.pid
        ours = [keeper, *below(keeper)]
        mib, before = held_mib(ours), used_s(ours)
        time.sleep(10.0)
        share = (used_s(ours) - before) / 10
        print(f"idle: {mib / args.open:.1f} MiB each, {share:.3f} of a core for all")
        calls = []
        for _ in range(args.calls):
            began = time.perf_counter()
            sessions[0].run(CODE)
            calls.append(time.perf_counter() - began)
        print("a call that does nothing:", milliseconds(calls))
        began = time.perf_counter()
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda session: [session.run(CODE) for _ in range(args.calls // args.open)],
                    sessions,
                )
            )
        made = args.open * (args.calls // args.open)
        print(f"calls a minute, 8 at once: {60 * made / (time.perf_counter() - began):,.0f}")
        for session in sessions:
            session.close()


if __name__ == "__main__":
    main()
