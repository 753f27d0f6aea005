"""What the recipes share: training, and the report at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

import rlvr
from rlvr.console import PlainConsole
from rlvr.errors import MissingDependency
from rlvr.recipes.recipe import SUMS_ON_A_CPU, TINY_MODEL
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.plot import plot

__all__ = ["RunFlags", "comparison_table", "show_results", "train"]


class RunFlags(Protocol):
    """The flags of a recipe that is one run of the trainer."""

    @property
    def config(self) -> Config:
        """Settings of the run."""

    def environments(self) -> tuple[rlvr.Environment, rlvr.Environment | None]:
        """The environment to train on, and the one to evaluate on."""


def train(flags: RunFlags) -> int:
    """Train and print the results; returns the exit code, see `show_results`.

    Args:
        flags: the recipe's settings.
    """
    if flags.config.model == TINY_MODEL:
        if flags.config.env != SUMS_ON_A_CPU["env"]:
            raise rlvr.UsageError(
                f"the model that --size tiny makes reads sums alone, and --env is "
                f"{flags.config.env!r}; "
                "give a --model"
            )
        _make_tiny_model()
    env, eval_env = flags.environments()
    with Trainer(flags.config, env=env, eval_env=eval_env) as trainer:
        trainer.run()
    return show_results(trainer)


def _make_tiny_model() -> None:
    """Teach a tiny model to add with mistakes, once: what recipes train at size tiny."""
    from rlvr.recipes.arithmetic_cpu.run import warm_model  # which imports this module

    folder = Path(TINY_MODEL)
    if not folder.exists():
        PlainConsole().print(f"a tiny model is taught sums and kept in {folder}", soft_wrap=True)
        warm_model().save(folder)


def show_results(trainer: Trainer, before: str = "before") -> int:
    """Print the evaluations and draw the curves of a run; returns its exit code, 130 if it was
    stopped.

    Args:
        trainer: of the run.
        before: heading of the column for the policy that the run began with.
    """
    console, run = PlainConsole(), trainer.config.run
    code = 0 if trainer.steps_done == trainer.config.steps else 130
    if not trainer.ranks.first:
        return code
    rows = [
        row
        for row in read_metrics(run / "metrics.jsonl")
        if any(name.startswith("eval/") for name in row)
    ]
    if rows:
        console.print(comparison_table(rows, before))
    try:
        console.print(f"curves: {plot(run)}", soft_wrap=True)
    except (
        MissingDependency,
        rlvr.DataError,
    ) as error:  # no matplotlib, or stopped before the first step
        console.print(str(error), soft_wrap=True)
    return code


def comparison_table(rows: Sequence[Mapping[str, Any]], before: str) -> Table:
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


def _show_number(row: Mapping[str, Any], name: str) -> str:
    """A number, with its 95 % interval where it has one."""
    if row.get(name) is None:
        return "–"
    low, high = row.get(f"{name}/low"), row.get(f"{name}/high")
    interval = (
        f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
    )  # one task has none
    return f"{row[name]:.3f}{interval}"
