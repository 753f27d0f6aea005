"""What the recipes share: training, and the report at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.table import Table

import rlvr
from rlvr.console import PlainConsole
from rlvr.errors import MissingDependency
from rlvr.recipes.flags import Flags
from rlvr.recipes.tiny_sizes import make_tiny, require_tiny_task
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.plot import plot

__all__ = ["comparison_table", "show_results", "train"]


def train(flags: Flags) -> int:
    """Train and print the results; returns the exit code, see `show_results`.

    With a file of `--cold-start` the policy is fine-tuned on it first.

    Args:
        flags: the recipe's settings.
    """
    config, console = flags.config, PlainConsole()
    require_tiny_task(config.model, config.env)
    cold_start = flags.cold_start
    for place in (config.model, config.teacher, cold_start):
        make_tiny(None if place is None else str(place), console.print)
    env, eval_env = flags.environments()
    if cold_start is not None:
        first = flags.cold_config()
        with Trainer(first) as trainer:
            trainer.run()
        # The fine-tuning was stopped; 130 is what a shell gives
        # for SIGINT, and the same command goes on with it.
        if trainer.steps_done < first.steps:
            return 130
        config = replace(config, model=str(first.run / "model"))
    with Trainer(config, env=env, eval_env=eval_env) as trainer:
        trainer.run()
    return show_results(trainer)


def show_results(trainer: Trainer, before: str = "before") -> int:
    """Print the evaluations and draw the curves of a run; returns its exit code, 130 if it was
    stopped.

    Args:
        trainer: of the run.
        before: heading of the column for the policy that the run began with.
    """
    console, run = PlainConsole(), trainer.config.run
    code = 0 if trainer.steps_done == trainer.config.steps else 130
    # Every rank gives the same exit code; only the first one prints, and it wrote the metrics.
    if not trainer.ranks.first:
        return code
    rows = [
        row
        for row in read_metrics(run / "metrics.jsonl")
        if any(name.startswith("eval/") for name in row)
    ]
    if rows:
        console.print(comparison_table(rows, before))
    used = [row for row in read_metrics(run / "metrics.jsonl") if "tools/used" in row]
    for row in (used[0], used[-1]) if used else ():
        console.print(
            f"step {row['step']}: episodes with a call {row['tools/used']:.2f}, calls that were "
            f"wrong {row.get('tools/errors') or 0:.2f}"
        )
    try:
        console.print(f"curves: {plot(run)}", soft_wrap=True)
    except (
        MissingDependency,
        rlvr.DataError,
    ) as error:  # no matplotlib, or stopped before the first step
        console.print(str(error), soft_wrap=True)
    return code


def comparison_table(rows: Sequence[Mapping[str, object]], before: str) -> Table:
    """A table of the first and the last evaluation.

    Args:
        rows: metrics of the evaluations, in order.
        before: see `show_results`.
    """
    first, last = rows[0], rows[-1]
    table = Table("held out", before, f"after {last['step']} steps")
    for name in sorted(last):
        is_there = f"{name}/low" in first or name == "eval/length"
        if is_there and not name.endswith(("/pass@1", "/maj@1")):  # which is avg@n once more
            title = (
                name.removeprefix("eval/")
                .replace("avg@", "accuracy, avg@")
                .replace("length", "length, tokens")
            )
            table.add_row(title, *(_show_number(row, name) for row in (first, last)))
    return table


def _show_number(row: Mapping[str, object], name: str) -> str:
    """A number, with its 95 % interval where it has one."""
    if row.get(name) is None:
        return "–"
    low, high = row.get(f"{name}/low"), row.get(f"{name}/high")
    # one task has none
    interval = f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
    return f"{row[name]:.3f}{interval}"
