r"""A pool, two services and a Ray cluster of two nodes on one machine, and 16 shards:
equal results, kills, rates.

    python -m benchmarks.engines rates       # wants an idle machine; with Ray installed also Ray
    python -m benchmarks.engines kills       # ray-kills with Ray installed
    python -m benchmarks.engines shards
    python -m benchmarks.engines code        # programs in the sandbox of a service, one run

Each engine has two workers in all.  A check takes some CPU milliseconds, so that it costs the same
whoever else runs.  Prints the Markdown lines of docs/using/many_machines.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import rlvr
from rlvr.data.rows import dump_row
from rlvr.scoring.engine import Engine
from rlvr.scoring.engines import RayCluster, Services
from rlvr.scoring.pool import Pool
from rlvr.scoring.records import provenance, record

PLACE = "benchmarks.engines:Busy"
KILLS = 10


class Busy(rlvr.Environment):
    """Right if the completion is the reference, after so many CPU milliseconds."""

    cpu_ms: float = 0.0

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(str(index), f"Say {index}.", reference=str(index))

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        until = time.thread_time() + self.cpu_ms / 1000
        while time.thread_time() < until:
            pass
        right = completion == task.reference
        return rlvr.Verdict("correct" if right else "wrong", why="same" if right else "other")


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "prompt": f"Say {i}.", "reference": str(i), "completion": str(i - (i % 3 == 0))}
        for i in range(count)
    ]


class Served:
    """`rlvr serve` with one worker in a process of its own,
    which can be killed and started anew at its port."""

    def __init__(self, env: str, option: str, workers: int = 1) -> None:
        self._env, self._flags, self.port = env, ["--workers", str(workers), "--option", option], 0
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "rlvr",
            "serve",
            self._env,
            "--port",
            str(self.port),
            *self._flags,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"on http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def services(cpu_ms: float) -> Iterator[tuple[Callable[[], Engine], Callable[[int], None]]]:
    """Two services: (makes the engine, kills one and starts it anew)."""
    served = [Served(PLACE, f"cpu_ms={cpu_ms}") for _ in range(2)]

    def again(number: int) -> None:
        served[number % 2].kill()
        served[number % 2].start()

    try:
        yield lambda: Services([f"http://127.0.0.1:{one.port}" for one in served]), again
    finally:
        for one in served:
            one.kill()


@contextmanager
def ray_cluster() -> Iterator[tuple[Callable[[], Engine], Any]]:
    """A head without CPUs and two nodes of one CPU: (makes the engine, the cluster)."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 << 20}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, **small)
    try:
        yield lambda: RayCluster(cluster.address), cluster
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


def records(
    scorer: rlvr.Scorer, rows: list[dict[str, Any]], at: Callable[[int], None] = lambda number: None
) -> list[bytes]:
    """The records of the rows; `at` is called with the number of each."""
    run, found = provenance(scorer.env, PLACE), []
    for number, scored in enumerate(scorer.stream(rows)):
        at(number)
        found.append(dump_row(record(scored, run)))
    return found


def rates(count: int, slow: int, cpu_ms: float, rounds: int) -> None:
    """Equal records of many quick rows, and rows per second of slow ones, the engines in turns."""
    quick, long = rows(count), rows(slow)
    with ExitStack() as stack:
        kinds: dict[str, Callable[[float], Engine]] = {"pool": lambda ms: Pool(workers=2)}
        served = {ms: stack.enter_context(services(ms))[0] for ms in (0.0, cpu_ms)}
        kinds["two services"] = lambda ms: served[ms]()
        if importlib.util.find_spec("ray"):
            make, _ = stack.enter_context(ray_cluster())
            kinds["Ray, two nodes"] = lambda ms: make()
        wanted: list[bytes] = []
        per_s: dict[str, list[float]] = {name: [] for name in kinds}
        same = {}
        scorers = {}
        for name, kind in kinds.items():
            with rlvr.Scorer(rlvr.make(PLACE, cpu_ms=0.0), engine=kind(0.0)) as scorer:
                got = records(scorer, quick)
            wanted = wanted or got
            same[name] = sum(a == b for a, b in zip(got, wanted, strict=True))
        for name, kind in kinds.items():
            scorers[name] = stack.enter_context(
                rlvr.Scorer(rlvr.make(PLACE, cpu_ms=cpu_ms), engine=kind(cpu_ms))
            )
            for _ in scorers[name].stream(long[: slow // 4]):  # so that chunks have their size
                pass
        for _ in range(rounds):
            for name, scorer in scorers.items():
                began = time.perf_counter()
                for _ in scorer.stream(long):
                    pass
                per_s[name].append(slow / (time.perf_counter() - began))
        load = os.getloadavg()[0]
    print(
        f"| engine | identical records of {count:,} | rows/s at {cpu_ms:g} ms, "
        f"median of {rounds} (all) | × the pool |"
    )
    print("|---|--:|--:|--:|")
    pool = statistics.median(per_s["pool"])
    for name, found in per_s.items():
        shown, middle = ", ".join(f"{rate:.0f}" for rate in found), statistics.median(found)
        print(f"| {name} | {same[name]:,} | {middle:.0f} ({shown}) | {middle / pool:.2f} |")
    print(f"load {load:.1f}")


def kills(count: int, cpu_ms: float, *, on_ray: bool) -> None:
    """Machines that die under load, ten times each."""
    asked = rows(count)
    env = rlvr.make(PLACE, cpu_ms=cpu_ms)
    with rlvr.Scorer(env, engine=Pool(workers=2)) as scorer:
        wanted = records(scorer, asked)
    every = count // (KILLS + 1)
    print("| what was killed | times | rows | identical |\n|---|--:|--:|--:|")

    def killing(name: str, make: Callable[[], Engine], kill: Callable[[int], None]) -> None:
        killed = 0

        def at(number: int) -> None:
            nonlocal killed
            if number and number % every == 0 and killed < KILLS:
                kill(killed)
                killed += 1

        with rlvr.Scorer(env, engine=make()) as scorer:
            holder.append(scorer)
            got = records(scorer, asked, at)
        same = sum(a == b for a, b in zip(got, wanted, strict=False))
        print(f"| {name} | {killed} | {len(got):,} | {same:,} |", flush=True)

    holder: list[rlvr.Scorer] = []
    if not on_ray:
        with services(cpu_ms) as (make, again):
            killing("a service, started anew", make, again)
        return
    import ray
    from ray._private.test_utils import get_other_nodes

    with ray_cluster() as (make, cluster):
        killing(
            "an actor", make, lambda k: ray.kill(holder[-1].engine._actors[k % 2], no_restart=False)
        )
        same, few = (
            0,
            count // 8,
        )  # a run for each node: one that comes later has no actor of this run
        for _ in range(KILLS):

            def at(number: int) -> None:
                if number == few // 2:
                    cluster.remove_node(
                        get_other_nodes(cluster, exclude_head=True)[0], allow_graceful=False
                    )

            with rlvr.Scorer(env, engine=make()) as scorer:
                same += records(scorer, asked[:few], at) == wanted[:few]
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            print(f"nodes so far: {same} runs of {few} rows identical", file=sys.stderr, flush=True)
    print(
        f"| a node | {KILLS} | {few:,} in each of {KILLS} runs | all of {same} runs |", flush=True
    )


def shards(count: int, cpu_ms: float, number: int = 16) -> None:
    """Sixteen shards, of which three are killed and resumed, against the bytes of one run."""
    with tempfile.TemporaryDirectory() as folder:
        source, whole, joined = (
            Path(folder) / name for name in ("in.jsonl", "whole.jsonl", "joined.jsonl")
        )
        source.write_bytes(b"".join(map(dump_row, rows(count))))
        command = [
            sys.executable,
            "-m",
            "rlvr",
            "score",
            PLACE,
            str(source),
            "--option",
            f"cpu_ms={cpu_ms}",
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*command, "-o", str(whole), "--workers", "2"], check=True, **quiet)
        outputs, killed = [], 0
        for i in range(1, number + 1):
            out = Path(folder) / f"part-{i}.jsonl"
            outputs.append(str(out))
            flags = ["-o", str(out), "--shard", f"{i}/{number}", "--workers", "1", "--resume"]
            if i in (2, 9, 16):
                partial = out.with_name(out.name + ".partial")
                with subprocess.Popen([*command, *flags], **quiet) as process:
                    while process.poll() is None and not (
                        partial.exists() and partial.stat().st_size
                    ):
                        time.sleep(0.01)
                    killed += process.poll() is None
                    process.kill()
            subprocess.run([*command, *flags], check=True, **quiet)
        subprocess.run(
            [sys.executable, "-m", "rlvr", "join", *outputs, "-o", str(joined)], check=True, **quiet
        )
        same = joined.read_bytes() == whole.read_bytes()
        print(
            f"{number} shards of {count:,} rows, {killed} killed and resumed: "
            f"{'identical' if same else 'NOT equal'}"
        )


def code(count: int) -> None:
    """Programs, which need the sandbox, scored by a service of two workers;
    this process needs no namespaces."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "problem.jsonl"
        test = (
            "def check(candidate):\n    assert [candidate(i) for i in range(9)] == "
            "[i * i for i in range(9)]\n"
        )
        problem = {
            "task_id": "A/0",
            "prompt": "def square(x):\n",
            "entry_point": "square",
            "test": test,
        }
        data.write_bytes(dump_row(problem))
        ends = (
            "    return x * x",
            "    return x + x",
            "    while True: pass",
            "    raise SystemExit(0)",
        )
        asked = [
            {"task": 0, "completion": ends[i % 100 if i % 100 < 4 else i % 2]} for i in range(count)
        ]
        env = rlvr.make("humaneval-v3", data=str(data))
        results = {}
        served = Served("humaneval-v3", f"data={data}", workers=2)
        try:
            for name, engine in (
                ("pool", Pool(workers=2)),
                ("a service of two workers", Services(f"http://127.0.0.1:{served.port}")),
            ):
                with rlvr.Scorer(env, engine=engine) as scorer:
                    scorer.score(env.task(0), ends[0])
                    began = time.perf_counter()
                    results[name] = [(one.outcome, one.score.total) for one in scorer.stream(asked)]
                    print(
                        f"{name}: {count / (time.perf_counter() - began):.1f} programs/s, "
                        f"{os.getloadavg()[0]:.1f} load"
                    )
        finally:
            served.kill()
        first, *others = results.values()
        print(
            f"{count} programs, {'equal' if all(one == first for one in others) else 'NOT equal'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("what", choices=("rates", "kills", "ray-kills", "shards", "code"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--slow-rows", type=int, default=1_000)
    parser.add_argument("--cpu-ms", type=float, default=5.0, help="of the slow rows")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.what == "rates":
        rates(asked.rows, asked.slow_rows, asked.cpu_ms, asked.rounds)
    elif asked.what in ("kills", "ray-kills"):
        kills(asked.rows, 1.0, on_ray=asked.what == "ray-kills")
    elif asked.what == "shards":
        shards(asked.rows, 0.5)
    else:
        code(200)


if __name__ == "__main__":
    from benchmarks import (
        engines,
    )  # the services must find the environment in a module of this name

    engines.main()
