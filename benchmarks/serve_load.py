"""Time to score over HTTP, and a check that no request is lost,
as the Markdown of docs/benchmarks/service.md.

    python -m benchmarks.serve_load --data example_model_solutions.jsonl

Starts `rlvr serve` on a free port of this machine, with two workers, and asks it with `rlvr.client`
from this process, so that caller, service and workers share the machine.  Each line is one bounded
run; GSM8K needs `--data`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.common import gsm8k_solutions
from rlvr.client import Client, ServedScore

TRIVIAL = '''
import rlvr

class Echo(rlvr.Environment):
    """Says that the completion is the index of the task."""

    reward = rlvr.Correct(lambda completion, reference: completion == str(reference))

    def task(self, index):
        return rlvr.Task(f"echo/{index}", f"Say {index}.", reference=index)
'''
RUNS = [(1, 1), (1, 8), (8, 4), (64, 4), (512, 4)]  # rows per request, callers
KILLS = 20


@contextmanager
def served(env: str) -> Iterator[tuple[str, int]]:
    """The service's address and its process."""
    command = [sys.executable, "-m", "rlvr", "serve", env, "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"on (http://\S+),", process.stdout.readline())
            if found is None:
                raise SystemExit(f"{' '.join(command)} did not start; see above")
            yield found[1], process.pid
        finally:
            process.terminate()


def ask(
    url: str, env: str, rows: list[dict], batch: int, callers: int
) -> tuple[float, list[float], list[ServedScore]]:
    """Seconds for all rows, seconds of each request, and the replies in the order of the rows."""
    share = -(-len(rows) // callers)
    found: list[list[ServedScore]] = [[] for _ in range(callers)]
    took: list[float] = []

    def call(number: int) -> None:
        mine = rows[number * share : (number + 1) * share]
        for at in range(0, len(mine), batch):
            start = perf_counter()
            found[number] += client.score(env, mine[at : at + batch])
            took.append(perf_counter() - start)

    with Client(url, batch=batch) as client:
        client.score(env, rows[:1])
        threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
        start = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return perf_counter() - start, took, [reply for replies in found for reply in replies]


def load(url: str, env: str, seconds: float) -> None:
    print("| rows per request | callers | requests/s | scores/s | median request, ms | 99th % |")
    print("|--:|--:|--:|--:|--:|--:|")
    for batch, callers in RUNS:
        rows = [{"task": i, "completion": str(i)} for i in range(callers * batch * 2)]
        warm, _, _ = ask(url, env, rows, batch, callers)
        rows = [
            {"task": i, "completion": str(i)}
            for i in range(int(len(rows) * min(max(seconds / warm, 1), 500)))
        ]
        took, requests, replies = ask(url, env, rows, batch, callers)
        assert [reply.score and reply.score.verdict.correct for reply in replies] == [True] * len(
            rows
        )
        slow = sorted(requests)[int(len(requests) * 0.99)]
        print(
            f"| {batch} | {callers} | {len(requests) / took:,.0f} | {len(rows) / took:,.0f} |",
            end=" ",
        )
        print(f"{statistics.median(requests) * 1e3:.1f} | {slow * 1e3:.1f} |", flush=True)


def children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:  # a thread that has just ended
        return []


def killing(url: str, env: str, service: int) -> None:
    """Workers are killed, one after the other, while four callers ask;
    spares and replacements among them."""
    rows = [{"task": i, "completion": str(i)} for i in range(20_000)]
    stop, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not stop.wait(0.25) and len(killed) < KILLS:
            workers = [
                int(pid)
                for task in Path(f"/proc/{service}/task").iterdir()
                for pid in children(task)
            ]
            if workers:
                with suppress(ProcessLookupError):  # the service has just replaced it
                    os.kill(workers[0], signal.SIGKILL)
                    killed.append(workers[0])

    killer = threading.Thread(target=kill)
    killer.start()
    took, requests, replies = ask(url, env, rows, 50, 4)
    stop.set()
    killer.join()
    right = sum(bool(reply.score and reply.score.verdict.correct) for reply in replies)
    unscored = sum(bool(reply.score and reply.score.total is None) for reply in replies)
    print(
        f"\n{len(killed)} workers killed with SIGKILL during {took:.1f} s: "
        f"{len(requests)} requests, each answered; of",
        end=" ",
    )
    print(
        f"{len(rows):,} completions {right:,} scored right, {unscored} unscored, "
        f"{len(rows) - right - unscored} lost."
    )


def gsm8k(data: Path) -> None:
    """Real completions over HTTP, beside what `rlvr score` writes for the same rows."""
    rows = [
        {
            **{column: problem[column] for column in ("question", "ground_truth")},
            "id": name,
            "completion": said["solution"],
        }
        for name, problem, said in gsm8k_solutions(data)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "rows.jsonl"), Path(folder, "scored.jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "rlvr",
            "score",
            "gsm8k-v4",
            source,
            "-o",
            target,
            "--workers",
            "2",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        recorded = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    with served("gsm8k-v4") as (url, _):
        took, _, replies = ask(url, "gsm8k-v4", rows, 512, 4)
    from rlvr.records import score_from

    same = sum(
        reply.id == row["id"] and reply.score == score_from(row)
        for reply, row in zip(replies, recorded, strict=True)
    )
    print(
        f"\nGSM8K: {len(rows):,} real completions, "
        f"{len(rows) / took:,.0f} per second in requests of 512 by 4 callers;",
        end=" ",
    )
    print(f"{same:,} scores equal, to the last field, those that `rlvr score` writes.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="example_model_solutions.jsonl of openai/grade-school-math"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="that each line of the table takes, roughly"
    )
    args = parser.parse_args()
    if args.data and not args.data.is_file():
        parser.error(
            f"--data {args.data}: no such file; docs/benchmarks/service.md says where it comes from"
        )
    named = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("rlvr", "fastapi", "uvicorn")
    )
    cpu = re.search("model name\t: (.*)", Path("/proc/cpuinfo").read_text())
    print(
        f"{datetime.date.today()}; {named}; Python {platform.python_version()}; "
        f"{os.cpu_count()} cores of",
        end=" ",
    )
    print(
        f"{cpu[1] if cpu else platform.machine()}; "
        f"load average at the start {os.getloadavg()[0]:.1f}.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "echo_env.py").write_text(TRIVIAL, encoding="utf-8")
        env = f"{folder}/echo_env.py:Echo"
        with served(env) as (url, service):
            load(url, env, args.seconds)
            sleep(0.2)
            killing(url, env, service)
    if args.data:
        gsm8k(args.data)


if __name__ == "__main__":
    main()
