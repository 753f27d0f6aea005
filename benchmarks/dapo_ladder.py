r"""The effect of each part of DAPO on a small task, as a Markdown table.

    OMP_NUM_THREADS=1 python -m benchmarks.dapo_ladder --seeds 5 --steps 40

From GRPO (symmetric clip, mean over each completion first, no KL) to DAPO (arXiv:2503.14476), one
part more on each rung; then each part alone, and DAPO without it.  All begin with the same model,
and a seed means the same tasks and random numbers for all.  Each step has four updates: with a
single one no ratio would ever be clipped.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console

from benchmarks.trainer_tasks import Sums, warm_started
from benchmarks.trainer_vs_trl import about
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy

DAPO = load_algorithm("dapo")
PARTS: dict[str, dict[str, Any]] = {
    "clip-higher": {"clip": DAPO.clip},
    "token mean": {"aggregation": "token_mean"},
    "dynamic sampling": {"dynamic_sampling": True},
    "soft overlong": {"overlong": "soft"},
}
MAX_TOKENS, CACHE = 40, 5  # a whole answer has 33 to 35: soft overlong sees what rambles


def algorithm(parts: tuple[str, ...]) -> Algorithm:
    """GRPO with these parts of DAPO."""
    found = replace(load_algorithm("grpo"), kl=None)
    for part in parts:
        found = replace(found, **PARTS[part])
    return found


def variants(*, alone: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(What it is called, its parts.)"""
    names = tuple(PARTS)
    for rung in range(len(names) + 1):
        yield (
            (f"+ {names[rung - 1]}" if rung else "GRPO")
            + (" = DAPO" if rung == len(names) else ""),
            names[:rung],
        )
    for name in (
        names[1:] if alone else ()
    ):  # GRPO with the first alone is a rung, as is DAPO without the last
        yield f"GRPO, {name} alone", (name,)
    for name in names[:-1] if alone else ():
        yield f"DAPO without {name}", tuple(other for other in names if other != name)


def trained(
    model: Path, parts: tuple[str, ...], args: argparse.Namespace, seed: int
) -> dict[str, float]:
    """Numbers of one run."""
    with tempfile.TemporaryDirectory() as folder:
        return _trained(Path(folder), model, parts, args, seed)


def _trained(
    run: Path, model: Path, parts: tuple[str, ...], args: argparse.Namespace, seed: int
) -> dict[str, float]:
    config = Config(
        env="given", model="given", run=run, algorithm=algorithm(parts), steps=args.steps,
        prompts=16, group_size=8, updates=2, max_tokens=MAX_TOKENS, lr=args.lr, workers=0,
        **({"overlong_cache": CACHE} if "soft overlong" in parts else {}),
        eval_every=0, eval_tasks=300, eval_n=2, rollouts_every=0, checkpoint_every=10**6, seed=seed,
    )  # fmt: skip
    policy, start = Policy.load(model), perf_counter()
    with Trainer(
        config, policy=policy, env=Sums(), eval_env=Sums(split="test"), console=Console(quiet=True)
    ) as trainer:
        trainer.run()
    took, rows = perf_counter() - start, read_metrics(run / "metrics.jsonl")
    logged = [row for row in rows if "updates" in row]
    return {
        "before": rows[0]["eval/avg@2"],
        "held-out": rows[-1]["eval/avg@2"],
        "training": statistics.fmean(row["accuracy"] for row in logged[-5:]),
        "entropy": statistics.fmean(row["entropy"] for row in logged[-5:]),
        "clipped": statistics.fmean(
            row.get("clipped_high", 0.0) + row.get("clipped_low", 0.0) for row in logged
        ),
        "length": statistics.fmean(row["length"] for row in logged[-5:]),
        "tokens": sum(row["tokens"] for row in logged) / 1000,
        "waste": sum(row["waste_tokens"] for row in logged) / sum(row["tokens"] for row in logged),
        "wall": took,
    }


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
    parser.add_argument("--seeds", type=int, default=5, choices=range(1, 51), metavar="N")
    parser.add_argument("--steps", type=int, default=40, choices=range(1, 10001), metavar="N")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument(
        "--rungs-alone", action="store_true", help="leave out each part alone and DAPO without it"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = warm_started(args.models, seed=0, steps=args.warm_steps)
    print(about("torch", "transformers"))
    print(
        f"\n16 prompts × 8, mini-batches of 32, learning rate {args.lr:g}, {args.steps} steps; "
        f"{args.seeds} seeds\n"
    )
    columns = [
        "held-out accuracy, mean (least–greatest)",
        "in training",
        "entropy, nats",
        "tokens clipped",
        "length",
        "tokens, thousands",
        "of these in vain",
        "wall s",
    ]
    print("| | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns), flush=True)
    for name, parts in variants(alone=not args.rungs_alone):
        runs = [trained(model, parts, args, seed) for seed in range(args.seeds)]
        middle = {key: statistics.fmean(one[key] for one in runs) for key in runs[0]}
        if not parts:
            print(f"| before | {middle['before']:.3f} |" + " |" * (len(columns) - 1))
        ends = [one["held-out"] for one in runs]
        print(
            f"| {name} | {middle['held-out']:.3f} ({min(ends):.3f}–{max(ends):.3f}) | "
            f"{middle['training']:.3f} | {middle['entropy']:.3f} | {middle['clipped']:.2%} | "
            f"{middle['length']:.1f} | {middle['tokens']:,.0f} | "
            f"{middle['waste']:.1%} | {middle['wall']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
