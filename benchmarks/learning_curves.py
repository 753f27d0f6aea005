r"""Does a small model learn in every way of training?  Full and LoRA, 1 and 2 ranks,
in turns and one step off.

    OMP_NUM_THREADS=1 python -m benchmarks.learning_curves --to docs/images/learning.png

The model of the other trainer benchmarks adds two numbers of three digits, column by column; a warm
start made it right two times in three.  Every run begins with the same weights, seed and tasks, and
has the same settings but for the learning rate, which is higher for an adapter.  2 ranks are two
processes on the CPU (gloo).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from rich.console import Console

from benchmarks.trainer_tasks import MAX_TOKENS, Sums, warm_started
from benchmarks.trainer_vs_trl import about
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics

WINDOW: Final = 8  # steps of which a point of a curve is the mean: 768 rollouts
LR: Final = {False: 1e-4, True: 1e-3}  # of all weights, and of an adapter


class Way(NamedTuple):
    """A way of training."""

    lora: bool
    ranks: int
    max_staleness: int

    @property
    def name(self) -> str:
        """As the table and the plot have it."""
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return (
            f"{'LoRA' if self.lora else 'full'}, {ranks}, "
            f"{'one step off' if self.max_staleness else 'in turns'}"
        )


WAYS: Final = [Way(*way) for way in product((False, True), (1, 2), (0, 1))]


def train(model: Path, run: Path, way: Way, steps: int, seed: int) -> None:
    """One run; with several ranks this is what each of them does."""
    config = Config(
        env="sums",
        model=str(model),
        run=run,
        algorithm="grpo",
        steps=steps,
        prompts=12,
        group_size=8,
        max_tokens=MAX_TOKENS["uniform"],
        lr=LR[way.lora],
        warmup_steps=4,
        lora_rank=8 if way.lora else None,
        max_staleness=way.max_staleness,
        eval_every=0,
        eval_tasks=300,
        workers=0,
        rollouts_every=0,
        checkpoint_every=10**6,
        device="cpu",
        seed=seed,
    )
    with Trainer(
        config, env=Sums(), eval_env=Sums(split="test"), console=Console(quiet=True)
    ) as trainer:
        trainer.run()


def launch(model: Path, run: Path, way: Way, steps: int, seed: int) -> None:
    """`train` in processes of its own: torchrun's, where there are several ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way.ranks)]
    module = (
        [*torchrun, "-m", "--"] if way.ranks > 1 else ["-m"]
    )  # without --, torchrun would read --run itself
    module += ["benchmarks.learning_curves"]
    flags = [
        "--run",
        run,
        "--model",
        model,
        "--way",
        *map(int, way),
        "--steps",
        steps,
        "--seed",
        seed,
    ]
    subprocess.run([sys.executable, "-W", "ignore", *module, *map(str, flags)], check=True)


def means(values: list[float]) -> Iterator[float]:
    """The mean of each value and of the `WINDOW` - 1 before it."""
    for end in range(WINDOW, len(values) + 1):
        yield fmean(values[end - WINDOW : end])


def plot(found: dict[Way, list[dict[str, Any]]], to: Path) -> None:
    """Two panels of four curves: full and LoRA."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for way, rows in found.items():
        panel = panels[int(way.lora)]
        values = list(means([row["accuracy"] for row in rows if "accuracy" in row]))
        panel.plot(
            range(WINDOW, WINDOW + len(values)),
            values,
            "--" if way.max_staleness else "-",
            color="#d55e00" if way.ranks == 2 else "#0072b2",
            linewidth=1
            if way.ranks == 2
            else 2.5,  # over the curve of one rank, where both are the same
            label=way.name.split(", ", 1)[1],
        )
        panel.set_title(
            f"{'LoRA of rank 8' if way.lora else 'all weights'}, learning rate {LR[way.lora]:g}"
        )
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", loc="lower right")
    panels[0].set_ylabel(f"accuracy in training, mean of {WINDOW} steps")
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=90)


def main() -> None:
    """Make the runs, one after the other, and print where each curve begins and ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=Path("learning.png"))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--runs", type=Path, help="folder that keeps the runs; what it has is not made again"
    )
    parser.add_argument(
        "--models",
        type=Path,
        default=Path(tempfile.gettempdir()) / "rlvr-benchmark-models",
        help="folder for the warm-started model, which is made once and kept",
    )
    for inner in ("--run", "--model"):
        parser.add_argument(inner, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", type=int, nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way is not None:
        lora, ranks, staleness = args.way
        train(args.model, args.run, Way(bool(lora), ranks, staleness), args.steps, args.seed)
        return
    print(about("torch", "transformers", "peft"))
    model = warm_started(args.models, seed=0, steps=700)
    found = {}
    print(
        f"| | held out, before | held out, after {args.steps} steps | in training, "
        f"first {WINDOW} | last {WINDOW} |"
    )
    print("|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            run = (args.runs or Path(folder)) / way.name.replace(", ", "-").replace(" ", "_")
            if not (run / "model").is_dir():
                launch(model, run, way, args.steps, args.seed)
            rows = found[way] = read_metrics(run / "metrics.jsonl")
            held = [row["eval/avg@1"] for row in rows if "eval/avg@1" in row]
            values = list(means([row["accuracy"] for row in rows if "accuracy" in row]))
            shown = " | ".join(
                f"{value:.3f}" for value in (held[0], held[-1], values[0], values[-1])
            )
            print(f"| {way.name} | {shown} |", flush=True)
    plot(found, args.to)


if __name__ == "__main__":
    main()
