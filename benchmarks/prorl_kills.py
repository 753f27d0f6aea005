"""A long run of ProRL that is killed at random moments, against one that is not:
docs/benchmarks/trainer.md.

    OMP_NUM_THREADS=1 python -m benchmarks.prorl_kills [--steps 500] [--kills 5]

Both run at once, from one tiny model with random weights.  Compared to the last bit: weights,
reference, optimiser and all else of the last checkpoint, and the metrics of every step but seconds
and bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import rlvr
from benchmarks.trainer_vs_trl import about
from rlvr.train import checkpoint
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

SETTINGS = """--env benchmarks/prorl_kills.py:Near --chat off --workers 0 --algorithm prorl
--prompts 8 --group-size 8
--max-tokens 4 --lr 1e-3 --validation-every 10 --validation-tasks 64 --checkpoint-every 20"""


class Near(rlvr.Environment):
    """Begin with a digit that is at most 2 from the sum of two, on a ring of ten: chance is a
    half."""

    reward = rlvr.Correct(
        lambda completion, reference: (
            completion[:1].isdigit() and (int(completion[0]) - int(reference) + 2) % 10 < 5
        )
    )

    def task(self, index: int) -> rlvr.Task:
        a, b = rlvr.seeded("benchmarks/near", self.split, index).choices(range(10), k=2)
        return rlvr.Task(f"near/{self.split}/{index}", f"{a}+{b}=", reference=(a + b) % 10)


def start(model: Path, run: Path, steps: int) -> subprocess.Popen[bytes]:
    """The run in a process of its own; it goes on from its newest checkpoint."""
    more = ["--model", model, "--run", run, "--steps", str(steps)]
    run.mkdir(parents=True, exist_ok=True)
    with (run.parent / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rlvr", "train", *SETTINGS.split(), *more],
            stdout=log,
            stderr=log,
        )


def metrics(run: Path) -> list[dict[str, Any]]:
    """Of the steps that are written whole."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def with_kills(model: Path, run: Path, steps: int, moments: list[float]) -> list[int]:
    """The run, killed where these shares of the steps are done and up to 2 s later;
    steps done at each kill."""
    done = []
    for share in moments:
        process = start(model, run, steps)
        while process.poll() is None and len(metrics(run)) < share * steps:
            time.sleep(0.2)
        time.sleep(2 * (share * 1000 % 1))
        assert process.poll() is None, "the run ended before its kill"
        process.kill()
        process.wait()
        done.append(len(metrics(run)))
    assert start(model, run, steps).wait() == 0
    return done


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two states differ in as much as a bit; seconds and bytes are left out."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [path]
    if isinstance(a, dict) and a.keys() == b.keys():
        compared = [key for key in a if not str(key).endswith(("_s", "_mib"))]
        return [one for key in compared for one in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list | tuple) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [one for i, (x, y) in pairs for one in differences(x, y, f"{path}/{i}")]
    return [] if a == b or a != a else [path]


def main() -> None:
    """Print what the runs were, and where they differ; exit code 1 if they do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the runs; a new one if it is not given")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp())
    model = folder / "model"
    Policy(*tiny("0123456789+=", hidden=32, layers=2, heads=2, family="llama")).save(model)
    draw = random.Random(0)
    moments = sorted(draw.random() for _ in range(args.kills))
    undisturbed = start(model, folder / "undisturbed", args.steps)
    killed_at = with_kills(model, folder / "killed", args.steps, moments)
    assert undisturbed.wait() == 0
    runs = [folder / name for name in ("undisturbed", "killed")]
    logs = [metrics(run) for run in runs]
    last = f"checkpoints/step-{args.steps:08d}.pt"
    states = [checkpoint.load_checkpoint(run / last) for run in runs]
    differing = differences(logs[0], logs[1], "metrics") + differences(*states, "checkpoint")
    resets = [row["step"] for row in logs[0] if row.get("reset")]
    held = [row["held_mib"] for row in logs[0][1:]][args.steps // 10 :]
    print(f"{about('torch', 'transformers')}\n{args.steps} steps; resets after {resets}")
    print(f"killed after {killed_at}; differing: {differing or 'nothing'}")
    print(f"held from a tenth of the steps on: {min(held):.0f} to {max(held):.0f} MiB")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
