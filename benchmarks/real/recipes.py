"""The recipes on the real model at small steps: what the part `recipes` of `make real` runs and draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import rows

__all__ = ["RUNS", "draw", "evaluations", "interval"]

_COMMON = ("--chat", "on", "--prompts", 8, "--group-size", 8, "--lr", 1e-5, "--warmup-steps", 0)
_SUMS = (
    *("--size", "tiny", "--env", "rlvr.recipes.smol_sums.sums:OneDigitSums", *_COMMON),
    *("--max-tokens", 12, "--micro-tokens", 4096, "--eval-tasks", 32, "--eval-n", 4),
)
_DRILLS = (
    *("--size", "small", "--env", "code-drills-v1", *_COMMON, "--precision", "fp32"),
    *("--no-gradient-checkpointing", "--updates", 1, "--max-tokens", 64, "--micro-tokens", 2048),
    *("--steps", 8, "--eval-every", 4, "--eval-tasks", 64, "--eval-temperature", 1, "--workers", 1),
)
_OF_SUMS = ("math_grpo", "math_dapo", "dr_grpo", "r1_zero", "magistral", "math_prorl", "vineppo")
RUNS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(_OF_SUMS, (*_SUMS, "--steps", 6, "--eval-every", 3)),
    "math_grpo": (*_SUMS, "--steps", 10, "--eval-every", 5),
    "code_grpo": _DRILLS,
}
"""Flags of `rlvr train NAME --model … --run …`, by recipe."""


def evaluations(run: Path) -> list[tuple[int, float, float, float]]:
    """(step, accuracy, low, high) of each evaluation of a run.

    Args:
        run: its folder.
    """
    found = []
    for row in rows(run / "metrics.jsonl"):
        name = next((name for name in ("eval/avg@4", "eval/avg@1") if name in row), None)
        if name is not None:
            found.append((row["step"], row[name], row[f"{name}/low"], row[f"{name}/high"]))
    return found


def interval(point: tuple[int, float, float, float]) -> str:
    """An evaluation as text.

    Args:
        point: of `evaluations`.
    """
    _, value, low, high = point
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def draw(runs: Mapping[str, Path], to: Path) -> None:
    """The curves of the runs with their 95 % intervals, a panel for each.

    Args:
        runs: folders by recipe.
        to: the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.4 * len(runs), 2.4), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for panel, (name, run) in zip(panels, runs.items(), strict=True):
        steps, values, lows, highs = zip(*evaluations(run), strict=True)
        panel.plot(steps, values, marker="o", color="#1f6f8b")
        panel.fill_between(steps, lows, highs, alpha=0.2, color="#1f6f8b")
        panel.set(title=name, xlabel="step", ylim=(0, 1))
    panels[0].set_ylabel("held-out accuracy")
    figure.savefig(to, dpi=80)
