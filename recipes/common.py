"""What the recipes share: their flags, their environments, and the report at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Suppress, UseAppendAction, arg

import rlvr
from rlvr.cli.arguments import RewardText, options_of, with_reward
from rlvr.console import PlainConsole
from rlvr.environment.registry import defaults_of, is_mixture
from rlvr.errors import MissingDependency
from rlvr.recipes.recipe import TINY_MODEL
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.plot import plot

__all__ = ["Flags", "RunFlags", "comparison_table", "show_results", "train"]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A recipe's settings; each can be changed by a flag."""

    config: OmitArgPrefixes[Annotated[Config, arg(name="")]]
    own_task: Suppress[tuple[str, str | None]]
    """Environment and data of the recipe as it is."""
    data: str | None = None
    """Tasks: a hub id, a .jsonl or .parquet file, or a folder with a file per split.  None: the recipe's own; with
    another --env, that environment's own."""
    eval_data: str | None = None
    """Evaluation tasks, as for `data`.  None: the evaluation split of `data`, or the first tenth of a single file,
    which is then not trained on."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    reward: RewardText = None

    def environments(self) -> tuple[rlvr.Environment, rlvr.Environment]:
        """The environment to train on, and the one to evaluate on.

        Raises:
            UsageError: there is no such environment, or its options cannot work.
        """
        given = with_reward(self.option, self.reward)
        options = options_of(defaults_of(self.config.env), given)
        train, test = options.pop("split", None), self.config.eval_split
        if is_mixture(
            self.config.env
        ):  # where the tasks of each come from stands with its own options
            both = (
                rlvr.make(self.config.env, **options, split=split)
                for split in (train or "train", test)
            )
            return next(both), next(both)
        env, own_data = self.own_task
        data = own_data if self.data is None and self.config.env == env else self.data
        if self.eval_data is None and data is not None and Path(data).is_file():
            is_default = test == Config.eval_split
            if (train is None) != is_default:
                raise rlvr.UsageError(
                    f"{data} is one file, of which the first tenth is evaluated on; for another part give both, "
                    "such as --option 'split=train[20%:]' --eval-split 'train[:20%]', or --eval-data"
                )
            train, test = (train, test) if train is not None else ("train[10%:]", "train[:10%]")
        made = []
        for split, place in ((train or "train", data), (test, self.eval_data or data)):
            rows = {} if place is None else {"data": place}
            made.append(rlvr.make(self.config.env, **{**options, "split": split, **rows}))
        return made[0], made[1]


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
    env, eval_env = flags.environments()
    if flags.config.model == TINY_MODEL:
        _make_tiny_model()
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
    """Print the evaluations and draw the curves of a run; returns its exit code, 130 if it was stopped.

    Args:
        trainer: of the run.
        before: heading of the column for the policy that the run began with.
    """
    console, run = PlainConsole(), trainer.config.run
    code = 0 if trainer.step == trainer.config.steps else 130
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
            table.add_row(title, *(_shown(row, name) for row in (first, last)))
    return table


def _shown(row: Mapping[str, Any], name: str) -> str:
    """A number, with its 95 % interval where it has one."""
    if row.get(name) is None:
        return "–"
    low, high = row.get(f"{name}/low"), row.get(f"{name}/high")
    interval = (
        f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
    )  # one task has none
    return f"{row[name]:.3f}{interval}"
