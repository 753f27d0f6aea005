"""A worker pool on `multiprocess` beside `rlvr.workers.WorkerPool`: does it do what ours does?

    python -m benchmarks.multiprocess_pool
    python -m benchmarks.multiprocess_pool --kills-of ours --kills 51  # a tenth of one row

`multiprocess` comes with `datasets`.  The pool here is the least that does a worker's job with its
spawn context: start, ask over a connection, kill at a limit, replace.  What is compared stands in
docs/decisions.md: the time of a start, CPU of an item, a kill at its limit, 510 SIGKILLs, a script
without a guard of `__main__`, and what is left when the owner is killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import multiprocess

from rlvr.workers import WorkerPool, alive

__all__ = ["MultiprocessPool"]

_STARTS = 20
_ITEMS = 3000
_LIMIT_S = 0.2


def _setup() -> Callable[[Any], Any]:
    def handle(item: Any) -> Any:
        if item == "hang":
            os.write(2, b"begun\n")
            time.sleep(600)
        if item == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    return handle


def _serve(connection: Any, setup: Callable[[], Callable[[Any], Any]]) -> None:
    handle = setup()
    connection.send(None)
    while True:
        connection.send(handle(connection.recv()))


class MultiprocessPool:
    """One process, replaced when it was lost.

    Args:
        setup: makes the handler.
    """

    def __init__(self, setup: Callable[[], Callable[[Any], Any]]) -> None:
        self._context, self._setup = multiprocess.get_context("spawn"), setup
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        self._connection, theirs = self._context.Pipe()
        arguments = (theirs, self._setup)
        self.process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self._connection.recv()

    def call(self, item: object, *, wall_s: float) -> object:
        """The reply, or why there is none; a process that is lost is replaced.

        Args:
            item: what the handler gets.
            wall_s: wall seconds until the process is killed.
        """
        self._connection.send(item)
        try:
            if self._connection.poll(wall_s):
                return self._connection.recv()
            lost = "late"
        except EOFError:
            lost = "died"
        self.close()
        self.start()
        return lost

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self._connection.close()


def _cpu_s() -> tuple[float, float]:
    """CPU seconds of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def _measure(open_pool: Callable[[], Any], lost: Callable[[Any, object], object]) -> list[str]:
    """Start, item, and kill at the limit; in CPU seconds of both sides."""
    pool = open_pool()
    pool.call(1, wall_s=60)
    pool.close()  # what is imported once is imported now
    begin = sum(_cpu_s())
    for _ in range(_STARTS):
        pool = open_pool()
        pool.call(1, wall_s=60)
        pool.close()
    started_s = (sum(_cpu_s()) - begin) / _STARTS
    pool = open_pool()
    here, there = _cpu_s()
    for number in range(_ITEMS):
        assert pool.call(number, wall_s=60) == number
    here = _cpu_s()[0] - here
    pool.close()
    there = _cpu_s()[1] - there - started_s
    pool = open_pool()
    pool.call(1, wall_s=60)
    begin_s = time.perf_counter()
    reply = lost(pool, "hang")
    killed_s = time.perf_counter() - begin_s - _LIMIT_S
    pool.close()
    return [
        f"{started_s * 1e3:.0f} ms",
        f"{here / _ITEMS * 1e6:.0f} + {max(0.0, there) / _ITEMS * 1e6:.0f} µs",
        f"{reply}, {killed_s * 1e3:.0f} ms after it by the clock, the next process included",
    ]


def _kill(open_pool: Callable[[], Any], lost: Callable[[Any, object], object], times: int) -> str:
    """SIGKILLs of the process in the middle of an item; in CPU seconds of both sides."""
    pool = open_pool()
    pool.call(1, wall_s=60)
    begin = sum(_cpu_s())
    replies = Counter(map(str, (lost(pool, "die") for _ in range(times))))
    kept = pool.call(7, wall_s=60)
    pool.close()
    kill_s = (sum(_cpu_s()) - begin) / times
    return f"{kill_s * 1e3:.0f} ms each; {dict(replies)}; then 7 gives {kept}"


def _lost_of_ours(pool: WorkerPool, item: object) -> object:
    [result] = pool.run([item], wall_s=_LIMIT_S if item == "hang" else 60)
    return type(result).__name__


def _lost_of_theirs(pool: MultiprocessPool, item: object) -> object:
    return pool.call(item, wall_s=_LIMIT_S if item == "hang" else 60)


_UNGUARDED = {
    "rlvr.workers": """
from rlvr.workers import WorkerPool
print("top", flush=True)
pool = WorkerPool(lambda: abs)
print(pool.call(-3, wall_s=60), flush=True)
pool.close()
""",
    "multiprocess": """
from benchmarks.multiprocess_pool import MultiprocessPool
print("top", flush=True)
pool = MultiprocessPool(lambda: abs)
print(pool.call(-3, wall_s=60), flush=True)
pool.close()
""",
}


def _without_guard(name: str) -> str:
    """What a script prints that has no `if __name__ == "__main__"`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(_UNGUARDED[name], encoding="utf-8")
        path = os.pathsep.join(map(str, [Path.cwd(), *sys.path]))
        try:
            done = subprocess.run(
                [sys.executable, script],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=30,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
    said = " ".join(done.stdout.split())
    error = done.stderr.strip().splitlines()[-1:] or [""]
    return f"prints {said!r}, exit code {done.returncode} {error[0][:60]}"


def _left_by_sigkill(name: str) -> str:
    """What lives on five seconds after the owner was killed in the middle of an item."""
    code = _UNGUARDED[name].replace("lambda: abs", "_setup").replace("-3", '"hang"')
    code = "from benchmarks.multiprocess_pool import _setup\n" + code
    guarded = f"def main():\n    exec({code!r}, globals())\nif __name__ == '__main__': main()"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(guarded, encoding="utf-8")
        path = os.pathsep.join(map(str, [Path.cwd(), *sys.path]))
        owner = subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert owner.stderr is not None
        begun = owner.stderr.readline()
        assert begun == b"begun\n", begun
        beside = _children(owner.pid)
        owner.kill()
        owner.wait()
        time.sleep(5)
        left = [pid for pid in beside if Path(f"/proc/{pid}").exists()]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    return f"{len(left)} of {len(beside)} live on"


def _children(parent: int) -> list[int]:
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = stat.read_text(encoding="utf-8").split(" ", 1)
        except OSError:  # it has just ended
            continue
        if int(rest.rpartition(")")[2].split()[1]) == parent:
            pids.append(int(number))
    return pids


_POOLS: dict[str, tuple[Callable[[], Any], Callable[[Any, object], object]]] = {
    "ours": (lambda: WorkerPool(_setup), _lost_of_ours),
    "multiprocess": (lambda: MultiprocessPool(_setup), _lost_of_theirs),
}


def main() -> None:
    """Print both, row by row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=510)
    parser.add_argument("--kills-of", choices=_POOLS, help="measure nothing else")
    args = parser.parse_args()
    if args.kills_of:
        print(args.kills, "SIGKILLs, CPU |", _kill(*_POOLS[args.kills_of], args.kills))
        return
    ours = [*_measure(*_POOLS["ours"]), _kill(*_POOLS["ours"], args.kills)]
    processes = len(alive())
    theirs = [*_measure(*_POOLS["multiprocess"]), _kill(*_POOLS["multiprocess"], args.kills)]
    beside = len(_children(os.getpid()))
    names = ["start, CPU", "an item, CPU here + there", "kill at a limit"]
    names.append(f"{args.kills} SIGKILLs, CPU")
    rows = list(zip(names, ours, theirs, strict=True))
    rows.append(("processes left beside", str(processes), f"{beside} (resource tracker)"))
    for name, function in (("no guard", _without_guard), ("owner killed", _left_by_sigkill)):
        rows.append((name, function("rlvr.workers"), function("multiprocess")))
    for row in rows:
        print(" | ".join(row))


if __name__ == "__main__":
    main()
