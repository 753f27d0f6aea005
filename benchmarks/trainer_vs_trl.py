r"""rlvr's trainer beside TRL's GRPOTrainer, as the Markdown tables of docs/benchmarks/trainer.md.

    python -m benchmarks.trainer_vs_trl steps --scenario skewed --steps 30
    python -m benchmarks.trainer_vs_trl learning --seeds 5

With `--beside FOLDER` another checkout with its .venv is one more side, such as the last release's.
The interpreter has rlvr[train] and trl.  Each side runs in a process of its own on the same core
with one thread, in float32.  Sides take turns step by step, so that a slow second of the machine
falls on all of them, and a ratio is the median of the steps' ratios.  Both sides have the same
model, prompts per step, group size, token limit, learning rate, loss (DAPO's, clip 0.2 and 0.28,
one update a step) and the same function as reward.  See `benchmarks.trainer_tasks` for how lengths
come about.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainer_sides import WINDOW, Job
from benchmarks.trainer_tasks import warm_started

PROMPTS = {"skewed": 8, "uniform": 16}
SIDES = {"skewed": ("rlvr", "trl"), "uniform": ("rlvr", "trl", "plain")}
NAMES = {
    "rlvr": "rlvr",
    "rlvr-dynamic": "rlvr, with dynamic sampling",
    "trl": "TRL, `GRPOTrainer`",
    "plain": "hand-written PyTorch",
    "beside": "rlvr of the other checkout",
}
WARM_UP = 2  # steps that are not counted
Run = dict[str, Any]


def run(jobs: Mapping[str, Job], beside: Path | None = None) -> dict[str, Run]:
    """Each side in a process of its own, in turns: one makes a step while the others wait.

    Args:
        jobs: by side.
        beside: the other checkout, of the side "beside".
    """
    found: dict[str, Run] = {side: {"steps": []} for side in jobs}
    with contextlib.ExitStack() as stack:
        going = {
            side: Side(job, stack, beside if side == "beside" else None)
            for side, job in jobs.items()
        }
        while going:
            for side, one in list(going.items()):
                numbers = one.turn()
                if "peak_mib" in numbers:
                    found[side] |= numbers
                    del going[side]
                else:
                    found[side]["steps"].append(numbers)
    return found


class Side:
    """A process that makes a step at each turn; see `benchmarks.trainer_sides`."""

    def __init__(self, job: Job, stack: contextlib.ExitStack, checkout: Path | None = None) -> None:
        python = sys.executable if checkout is None else checkout / ".venv/bin/python"
        command = [python, "-m", "benchmarks.trainer_sides", json.dumps(asdict(job))]
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (the stack closes it)
        self._errors = stack.enter_context(errors)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            cwd=checkout, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        stack.enter_context(self._process)
        stack.callback(self._process.kill)

    def turn(self) -> dict[str, float]:
        """The step's numbers, or at last {"peak_mib": …}."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # it is gone; below it is said why
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise SystemExit(
                f"a side ended with {self._process.wait()}:\n{self._errors.read()[-2000:]}"
            )
        numbers: dict[str, float] = json.loads(line)
        return numbers


def about(*packages: str) -> str:
    """What was measured, with what, where."""
    cpu = re.search("model name\t: (.*)", Path("/proc/cpuinfo").read_text())
    named = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return (
        f"{datetime.date.today()}; {named}; Python {platform.python_version()}; "
        f"one of {os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}."
    )


def steps(args: argparse.Namespace) -> None:
    """Tables of step times."""
    for scenario in SIDES if args.scenario == "both" else [args.scenario]:
        taught = scenario == "uniform"
        model = str(warm_started(args.models, seed=0, steps=args.warm_steps)) if taught else ""
        size = {"steps": args.steps + WARM_UP, "prompts": PROMPTS[scenario]}
        jobs = {
            side: Job(side=side, scenario=scenario, model=model, **size) for side in SIDES[scenario]
        }
        if args.beside is not None:
            jobs["beside"] = Job(side="rlvr", scenario=scenario, model=model, **size)
        found = run(jobs, args.beside)
        print(
            f"\n**{scenario}**, {PROMPTS[scenario]} prompts × 8; "
            f"median (least–greatest) of {args.steps} steps\n"
        )
        columns = [
            "s per step",
            "speed, × TRL",
            "CPU s per step",
            "CPU, TRL's over it",
            "generation",
            "scoring",
            "logprobs",
            "rest",
            "tokens/s, all in",
            "tokens/s, generated",
            "mean length, longest",
            "peak, MiB",
        ]
        print("| | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
        for side, mine in found.items():
            print(f"| {NAMES[side]} | {' | '.join(cells(mine, found['trl']))} |", flush=True)
        if "plain" in found:
            speed, cpu = (faster(found["rlvr"], found["plain"], name) for name in ("step", "cpu"))
            print(
                f"\nrlvr has {speed:.2f} × the speed of {NAMES['plain']}, "
                f"{cpu:.2f} × by CPU seconds.",
                flush=True,
            )


def cells(mine: Run, trl: Run) -> list[str]:
    """A line of the table."""
    counted = mine["steps"][WARM_UP:]
    times = [step["step"] for step in counted]
    phases = [
        f"{statistics.median(each(mine, name)):.3f}"
        for name in ("generation", "scoring", "logprobs", "rest")
    ]
    tokens, longest = sum(each(mine, "tokens")), statistics.fmean(each(mine, "longest"))
    return [
        f"{statistics.median(times):.3f} ({min(times):.3f}–{max(times):.3f})",
        f"{faster(mine, trl):.2f}",
        f"{statistics.median(each(mine, 'cpu')):.3f}",
        f"{faster(mine, trl, 'cpu'):.2f}",
        *phases,
        *(f"{tokens / sum(each(mine, name)):,.0f}" for name in ("step", "generation")),
        f"{tokens / sum(each(mine, 'rollouts')):.1f}, {longest:.0f}",
        f"{mine['peak_mib']:,.0f}",
    ]


def faster(mine: Run, other: Run, name: str = "step") -> float:
    """How much, in the middle one of the turns:
    what they took in one turn they took in the same seconds."""
    return statistics.median(
        b / a for a, b in zip(each(mine, name), each(other, name), strict=True)
    )


def each(found: Run, name: str) -> list[float]:
    """Of every step that counts."""
    return [step.get(name, 0.0) for step in found["steps"][WARM_UP:]]


def learning(args: argparse.Namespace) -> None:
    """Seconds until the mean reward of ten steps has reached the goal."""
    model = str(warm_started(args.models, seed=0, steps=args.warm_steps))
    sides = ("rlvr-dynamic", "rlvr", "trl")
    found: dict[str, list[Run]] = {side: [] for side in sides}
    print(
        f"\n**Time to mean reward {args.goal}**, 16 prompts × 8, learning rate {args.lr:g}, "
        f"{args.steps} steps at most"
    )
    print("\n| seed | " + " | ".join(f"{NAMES[side]}: s (steps, tokens)" for side in sides) + " |")
    print("|---|" + "--:|" * len(sides))
    for seed in range(args.seeds):
        same = {
            "scenario": "uniform",
            "steps": args.steps,
            "prompts": 16,
            "lr": args.lr,
            "seed": seed,
            "model": model,
        }
        for side, one in run(
            {side: Job(side=side, until=args.goal, **same) for side in sides}
        ).items():
            found[side].append(one)
        print(
            f"| {seed} | " + " | ".join(shown(found[side][-1], args.goal) for side in sides) + " |",
            flush=True,
        )
    middle = {
        side: statistics.median(seconds(one, args.goal) for one in found[side]) for side in sides
    }
    print("| median | " + " | ".join(f"{middle[side]:.1f} s" for side in sides) + " |")
    print("| × TRL | " + " | ".join(f"{middle[side] / middle['trl']:.2f}" for side in sides) + " |")


def reached(found: Run, goal: float) -> bool:
    last = found["steps"][-WINDOW:]
    return sum(step["right"] for step in last) >= goal * sum(step["rollouts"] for step in last)


def seconds(found: Run, goal: float) -> float:
    """Until then; infinite if it did not come to that.  The first step counts as the second:
    it has set-up in it."""
    times = [step["step"] for step in found["steps"]]
    return times[1] + sum(times[1:]) if reached(found, goal) else float("inf")


def shown(found: Run, goal: float) -> str:
    tokens = sum(step["tokens"] for step in found["steps"])
    return f"{seconds(found, goal):.1f} ({len(found['steps'])}, {tokens / 1000:,.0f}k)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        type=Path,
        default=Path(tempfile.gettempdir()) / "rlvr-benchmark-models",
        help="folder for the warm-started model, which is made once and kept",
    )
    parser.add_argument("--warm-steps", type=int, default=700, help="of the warm start")
    commands = parser.add_subparsers(required=True, metavar="steps | learning")
    one = commands.add_parser("steps", help="what a step takes, by phase")
    one.add_argument("--scenario", choices=[*SIDES, "both"], default="both")
    one.add_argument(
        "--steps",
        type=int,
        default=30,
        choices=range(1, 1001),
        metavar="N",
        help="that are counted",
    )
    one.add_argument("--beside", type=Path, help="folder of another checkout, one more side")
    one.set_defaults(command=steps)
    two = commands.add_parser("learning", help="how long until the reward is reached")
    two.add_argument("--seeds", type=int, default=5, choices=range(1, 51), metavar="N")
    two.add_argument(
        "--steps", type=int, default=150, choices=range(10, 10001), metavar="N", help="at most"
    )
    two.add_argument("--goal", type=float, default=0.75)
    two.add_argument("--lr", type=float, default=5e-5)
    two.set_defaults(command=learning)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(about("torch", "transformers", "trl"))
    args.command(args)


if __name__ == "__main__":
    main()
