"""Recipes on the real model at few steps: what the part `recipes` of `make real` runs and draws.

Example, on a GPU: python -m benchmarks.real.recipes MODEL FOLDER --seeds 2 --side-by-side 11
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Final

import rlvr
from benchmarks.common import rows

__all__ = ["RUNS", "Point", "curves", "draw", "gains", "interval", "table", "train_all"]

_ONE_DIGIT: Final = "rlvr.recipes.smol_sums.sums:OneDigitSums"
_COMMON: Final = (
    *("--chat", "on", "--prompts", 4, "--group-size", 16, "--lr", 2e-5, "--warmup-steps", 0),
)
_SUMS: Final = (
    *("--size", "tiny", "--env", _ONE_DIGIT, *_COMMON),
    *("--max-tokens", 12, "--micro-tokens", 12288, "--eval-tasks", 32, "--eval-n", 4),
)
_DRILLS: Final = (
    *("--size", "small", "--env", "code-drills-v1", *_COMMON, "--precision", "fp32"),
    *("--no-gradient-checkpointing", "--updates", 1, "--max-tokens", 64),
    *("--micro-tokens", 2048, "--eval-tasks", 64, "--eval-temperature", 1, "--workers", 1),
)
_TOOLS: Final = (
    *("--size", "tiny", *_COMMON, "--max-tokens", 80, "--micro-tokens", 2048, "--eval-tasks", 64),
)
_COLD: Final = ("--cold-steps", 4, "--cold-prompts", 8, "--cold-lr", 2e-5)

RUNS: Final[Mapping[str, tuple[Any, ...]]] = {
    "r1_zero": _SUMS,
    "math_prorl": _SUMS,
    "magistral": _SUMS,
    "vineppo": _SUMS,
    "reasoning_sft": (*_SUMS, *_COLD),
    "search_qa": _TOOLS,
    "python_tool_math": _TOOLS,
    "math_grpo": _SUMS,
    "distill": _SUMS,
    "desk": _TOOLS,
    "swe_lite": _TOOLS,
    "code_grpo": _DRILLS,
    "math_dapo": _SUMS,
    "dr_grpo": _SUMS,
}
"""Flags of `rlvr train NAME --model … --run …`, by recipe, in the order in which they begin."""

_ALSO_SHOWN: Final = {
    "search_qa": "search",
    "desk": "search",
    "python_tool_math": "products",
    "swe_lite": "products",
}
"""Recipes with tools, which begin with a model that was shown episodes."""


@dataclass(frozen=True)
class Point:
    """One evaluation of a run: its step, and the accuracy with its 95 % interval."""

    step: int
    value: float
    low: float
    high: float


# ------------------------------------------------------------------------------------ training


def train_all(
    model: Path,
    folder: Path,
    names: Sequence[str],
    *,
    steps: int = 8,
    seeds: int = 1,
    side_by_side: int = 1,
) -> None:
    """Run recipes on the model; `curves` then reads what they wrote.  Runs that have ended are left
    as they are.

    Args:
        model: its folder.
        folder: gets a folder for each run, RECIPE-SEED, its output and its costs.
        names: of recipes.
        steps: of each run; four evaluations follow the first, or fewer where steps are few.
        seeds: runs of each recipe.
        side_by_side: runs at a time.
    """
    ready: dict[str, Future[Path]] = {}
    with ThreadPoolExecutor(side_by_side) as pool:
        for shown in sorted({_ALSO_SHOWN[name] for name in names if name in _ALSO_SHOWN}):
            ready[shown] = pool.submit(_shown, model, folder / f"shown-{shown}", shown)
        waiting = []
        for seed in range(seeds):
            for name in names:
                made = pool.submit(_train, name, seed, steps, model, folder, dict(ready))
                ready.setdefault(name, made)
                waiting.append(made)
        for made in waiting:
            made.result()


def _train(
    name: str, seed: int, steps: int, model: Path, folder: Path, ready: Mapping[str, Future[Path]]
) -> Path:
    """The folder of a run that has ended, with its model."""
    run = folder / f"{name}-{seed}"
    if (run / "costs.json").is_file():
        return run
    flags = [*RUNS[name], "--seed", seed, "--run", run]
    flags += ["--steps", steps, "--eval-every", max(2, steps // 4)]
    if name in _ALSO_SHOWN:
        model = ready[_ALSO_SHOWN[name]].result()
    elif name == "distill":
        flags += ["--teacher", ready["math_grpo"].result() / "model"]
    elif name == "reasoning_sft":
        flags += ["--cold-start", _write_texts(folder / f"texts-{seed}.jsonl", seed)]
    words = ["-W", "ignore", "-m", "rlvr", "train", name, *flags, "--model", model]
    began = time.monotonic()
    with (folder / f"{name}-{seed}.log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, *map(str, words)], stdout=log, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{name} ended with {status}: see {folder}/{name}-{seed}.log")
    costs = {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": time.monotonic() - began}
    (run / "costs.json").write_text(json.dumps(costs))
    return run


def _shown(model: Path, to: Path, kind: str) -> Path:
    """`_show_tools` in a process of its own: the 7 GiB that it takes are given back as it ends."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_show_tools, model, to, kind).result()


def _show_tools(model: Path, to: Path, kind: str) -> Path:
    """The model after some episodes with a tool, and as many with a guess."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr.recipes.python_tool_math.products import Products
    from rlvr.recipes.search_qa.facts import Ages
    from rlvr.recipes.tiny_models import teach
    from rlvr.samplers import HERMES_TEMPLATE
    from rlvr.train.policy import Policy

    if (to / "config.json").is_file():
        return to
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = HERMES_TEMPLATE
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = Policy(weights.to(device), tokenizer, max_tokens=2048)
    env: rlvr.Environment = Ages() if kind == "search" else Products()
    guess = "<answer>50</answer>" if kind == "search" else "\\boxed{2500}"
    teach(policy, env, guess, steps=30, lr=5e-5, episodes=8, shown=60)
    policy.save(to)
    return to


def _write_texts(path: Path, seed: int) -> Path:
    """Sums of the training split, half of them wrong by one."""
    from rlvr.recipes.smol_sums.sums import OneDigitSums

    rng, texts = Random(seed), []
    for task in OneDigitSums().tasks():
        answer = int(str(task.reference)) + (rng.random() < 0.5)
        completion = [{"role": "assistant", "content": str(answer)}]
        texts.append({"prompt": task.prompt, "completion": completion})
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    return path


# ------------------------------------------------------------------------------------ reading


def curves(folder: Path) -> dict[str, list[list[Point]]]:
    """The evaluations of the runs in a folder, by recipe, a list for each seed.

    Args:
        folder: of `train_all`.
    """
    return {
        name: found for name in RUNS if (found := [_points(run) for run in _runs(folder, name)])
    }


def _runs(folder: Path, name: str) -> list[Path]:
    # By the whole name: beside a run there may be its cold start.
    runs = (path.parent for path in folder.glob(f"{name}-*/metrics.jsonl"))
    return sorted(run for run in runs if run.name.removeprefix(f"{name}-").isdecimal())


def _points(run: Path) -> list[Point]:
    """The evaluations of a run, in order."""
    points = []
    for row in rows(run / "metrics.jsonl"):
        name = next((name for name in ("eval/avg@4", "eval/avg@1") if name in row), None)
        if name is not None:
            points.append(Point(row["step"], row[name], row[f"{name}/low"], row[f"{name}/high"]))
    return points


def interval(point: Point) -> str:
    """An evaluation as text.

    Args:
        point: of `curves`.
    """
    return f"{point.value:.3f} ({point.low:.3f} to {point.high:.3f})"


def gains(points: Sequence[Point]) -> bool:
    """Whether the last interval of a run lies above its first.

    Args:
        points: of one run.
    """
    return points[-1].low > points[0].high


def table(folder: Path) -> str:
    """The first, the middle and the last evaluation of each recipe's first seed, the last values of
    the others, and CPU seconds; Markdown.

    Args:
        folder: of `train_all`.
    """
    lines = [
        "| | step 0 | halfway | at the end | other seeds | CPU s |",
        "|---|---|---|---|---|--:|",
    ]
    for name, seeds in curves(folder).items():
        first, middle, last = (seeds[0][at] for at in (0, len(seeds[0]) // 2, -1))
        others = ", ".join(f"{points[-1].value:.3f}" for points in seeds[1:]) or "–"
        costs = [json.loads((run / "costs.json").read_text()) for run in _runs(folder, name)]
        lines.append(
            f"| `{name}` | {interval(first)} | {middle.step}: {interval(middle)} "
            f"| {last.step}: {interval(last)} | {others} | {costs[0]['cpu_s']:.0f} |"
        )
    return "\n".join(lines)


def draw(folder: Path, to: Path) -> None:
    """The curves of the runs with their 95 % intervals, a panel for each recipe.

    Args:
        folder: of `train_all`.
        to: the picture.
    """
    from matplotlib.figure import Figure

    found = curves(folder)
    across = min(7, len(found))
    down = -(-len(found) // across)
    figure = Figure(figsize=(2 * across, 2 * down), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    for panel in panels.flat[len(found) :]:
        panel.set_axis_off()
    for panel, (name, seeds) in zip(panels.flat, found.items(), strict=False):
        for points, colour in zip(seeds, ("#1f6f8b", "#c05621", "#6b46c1"), strict=False):
            steps = [point.step for point in points]
            lows, highs = [point.low for point in points], [point.high for point in points]
            panel.plot(steps, [point.value for point in points], marker=".", color=colour)
            panel.fill_between(steps, lows, highs, alpha=0.15, color=colour)
        panel.set(title=name, ylim=(0, 1))
    figure.supxlabel("step")
    figure.supylabel("held-out accuracy")
    figure.savefig(to, dpi=70)


def main() -> int:
    """Run, and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", nargs="*", default=list(RUNS))
    parser.add_argument("--steps", type=int, default=8, help="of each run")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each; 0 draws what is there")
    parser.add_argument("--side-by-side", type=int, default=1)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    if flags.seeds:
        train_all(
            flags.model,
            flags.folder,
            flags.names,
            steps=flags.steps,
            seeds=flags.seeds,
            side_by_side=flags.side_by_side,
        )
    draw(flags.folder, flags.folder / "recipes.png")
    print(table(flags.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
