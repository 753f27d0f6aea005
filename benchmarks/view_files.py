"""How fast `rlvr view` is on 1 GB of scored JSONL and on a run of 1,000 steps × 512 rollouts.

    python -m benchmarks.view_files FOLDER [--gigabytes 1] [--steps 1000] [--rollouts 512]
        [--only file|run]

It makes both in FOLDER unless they are there (1.5 GB), starts the command on each, and asks for its
pages one after the other as a browser does.  The files are read once before, so that the disk is
not what is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlvr.data.rollouts import write_rollouts
from rlvr.data.rows import Journal
from tests.viewer.made import record

_WORDS = [f"w{i:x}" for i in range(0, 60000, 7)]
_REASONS = ("different-number", "no-box", "other-unit", "not-simplified", "timeout")


def make_file(path: Path, size: int) -> None:
    """Scored completions as `rlvr score` writes them, with checksums."""
    draw = random.Random(0)
    text = " ".join(draw.choices(_WORDS, k=40_000))
    with Journal(path, checksums=True) as journal:
        number = written = 0
        while written < size:
            begin = draw.randrange(len(text) - 4000)
            right = draw.random() < 0.6
            row = record(
                number,
                outcome="correct" if right else "wrong",
                total=float(right),
                value=float(right),
                parts={"correct": float(right), "format": -0.1 * (number % 2)},
                why="" if right else f"{draw.choice(_REASONS)}: {number} is not {number + 1}",
                completion=f"{text[begin : begin + draw.randrange(400, 4000)]} \\boxed{{{number}}}",
                length_tokens=draw.randrange(100, 1000),
                truncated=draw.random() < 0.05,
                task=f"sums/{number // 8}",
                prompt=text[begin : begin + 200],
                env=draw.choice(("arithmetic-v1", "math-v4")),
                config={"difficulty": 1},
                rlvr="0.2.0",
            )
            journal.write(row)
            written, number = written + len(json.dumps(row)) + 30, number + 1
        journal.finish()


def make_run(run: Path, steps: int, rollouts: int) -> None:
    """A run with metrics of every step and the rollouts of every step."""
    draw = random.Random(1)
    text = " ".join(draw.choices(_WORDS, k=40_000))
    (run / "rollouts").mkdir(parents=True)
    (run / "config.json").write_text(
        json.dumps({"settings": {"lr": 1e-6}, "versions": {"rlvr": "0.2.0"}})
    )
    names = (
        "accuracy reward reward/correct reward/format length truncated unscored entropy kl "
        "clipped_low clipped_high waste staleness loss grad_norm lr step_s generation_s update_s "
        "memory_mib"
    ).split()
    lines = [
        json.dumps({"step": step, **{name: draw.random() for name in names}})
        for step in range(steps + 1)
    ]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    for step in range(1, steps + 1):
        rows = []
        for i in range(rollouts):
            right, begin = draw.random() < step / steps, draw.randrange(len(text) - 1500)
            rows.append(
                {
                    "task": f"sums/{(step * rollouts // 8 + i // 8) % 5000}",
                    "env": "arithmetic-v1",
                    "rollout": i % 8,
                    "prompt": text[begin : begin + 100],
                    "completion": text[begin : begin + draw.randrange(200, 1500)],
                    "length_tokens": 300,
                    "truncated": False,
                    "outcome": "correct" if right else "wrong",
                    "why": "" if right else "different-number",
                    "answer": "7",
                    "score": float(right),
                    "parts": {"correct": float(right), "format": 0.0},
                    "advantage": float(right) - 0.5,
                    "dropped": "",
                    "detail": "{}",
                    "weights_version": step - 1,
                    "reference": "8",
                }
            )
        write_rollouts(run / "rollouts" / f"step-{step:08d}.parquet", rows)


@contextmanager
def viewer(path: Path) -> Iterator[tuple[str, int, float]]:
    """The address of a viewer, its process, and when it was started."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "rlvr", "view", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0], process.pid, started
        finally:
            process.terminate()


def page(address: str) -> tuple[str, float]:
    """A page, and the seconds that it took."""
    started = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        text = answer.read().decode()
    return text, time.perf_counter() - started


def whole(address: str) -> str:
    """A page once all has been read, asked for as it asks the browser to."""
    while "Still reading" in (text := page(address)[0]):
        time.sleep(0.5)
    return text


def memory(pid: int) -> float:
    """The process's peak memory in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def say(what: str, value: float, unit: str = "s") -> None:
    print(f"{what:60} {value:8.2f} {unit}", flush=True)


def measure_file(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
    print(f"{path.name}: {path.stat().st_size / 1e9:.2f} GB")
    with viewer(path) as (address, pid, started):
        page(address)
        say("first page, from the start of the command", time.perf_counter() - started)
        whole(f"{address}0/rows?outcome=wrong&reason=no-box")
        say("all counts and a filter, from the start of the command", time.perf_counter() - started)
        for name, query in {
            "counts again": "",
            "filter, later": "outcome=wrong&reason=timeout",
            "filter by part and length, later": "part=format&part_max=-0.05&length_min=500",
            "longest first": "order=longest",
            "page 1,000": "page=1000",
            "search for a rare text, the first time": "q=boxed%7B123456%7D",
            "search for a rare text, later": "q=boxed%7B123456%7D",
            "search for a frequent text, the first time": "q=w1c",
        }.items():
            say(name, page(f"{address}0/rows?{query}")[1])
        say("a row", page(f"{address}0/row/200000")[1])
        say("a group", page(f"{address}0/group?task=sums/20000&env=math-v4")[1])
        say("peak memory of the server", memory(pid), "MiB")


def measure_run(run: Path) -> None:
    print(f"{run.name}: {len(list((run / 'rollouts').iterdir()))} steps with rollouts")
    for path in (run / "rollouts").iterdir():
        path.read_bytes()
    with viewer(run) as (address, pid, started):
        page(address)
        say("curves, from the start of the command", time.perf_counter() - started)
        say("curves, later", page(f"{address}0/")[1])
        task = "sums/" + str((500 * 64 + 3) % 5000)
        group = f"{address}0/group?task={task}&env=arithmetic-v1&step=500"
        say("a group, while the rest is being read", page(group)[1])
        whole(f"{address}0/rows")
        say("all steps read, from the start of the command", time.perf_counter() - started)
        say("a group, later", page(group)[1])
        say("rollouts of a step", page(f"{address}0/rows?step=80")[1])
        say("a task across steps", page(f"{address}0/rows?task={task}")[1])
        say("search, the first time", page(f"{address}0/rows?q=w1c2+w")[1])
        say("peak memory of the server", memory(pid), "MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=512)
    parser.add_argument("--only", choices=("file", "run", "make"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    scored, run = given.folder / "scored.jsonl", given.folder / "run"
    if not scored.exists():
        make_file(scored, int(given.gigabytes * 1e9))
    if not run.exists():
        make_run(run, given.steps, given.rollouts)
    if given.only in (None, "file"):
        measure_file(scored)
    if given.only in (None, "run"):
        measure_run(run)


if __name__ == "__main__":
    main()
