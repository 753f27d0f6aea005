"""The commands by name: where the class of each is, and its one line of help.
Importing this loads none of them."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from rlvr.errors import UsageError

__all__ = ["AddedCommand", "COMMANDS", "ListedCommand", "every_command"]

_GROUP: Final = "rlvr.commands"


class ListedCommand(NamedTuple):
    """A command that is not loaded yet.

    Attributes:
        module: in `rlvr.cli`, without the package's name.
        kind: name of the class in it.
        help: the first line of the docstring of the class (a test compares them).
    """

    module: str
    kind: str
    help: str

    def load(self) -> Any:
        """The class: a dataclass whose fields are the flags and whose `run` gives the exit code."""
        return getattr(import_module(f"rlvr.cli.{self.module}"), self.kind)


COMMANDS: dict[str, ListedCommand] = {
    "score": ListedCommand(
        "score",
        "ScoreCommand",
        "Score the completions in files with an environment, or with a verifier alone.",
    ),
    "join": ListedCommand(
        "join",
        "JoinCommand",
        "Join the shards of a run into the file that one `rlvr score` would have written.",
    ),
    "envs": ListedCommand(
        "envs",
        "EnvsCommand",
        "List the environments that `rlvr.make` knows; or show one with its options.",
    ),
    "verifiers": ListedCommand(
        "verifiers",
        "VerifiersCommand",
        "List the verifiers that `rlvr score --verifier NAME` takes, each with a reference and an "
        "example.",
    ),
    "rewards": ListedCommand(
        "rewards",
        "RewardsCommand",
        "List the parts of a reward that `--reward EXPRESSION` takes, with their arguments and "
        "bounds.",
    ),
    "recipes": ListedCommand(
        "recipes",
        "RecipesCommand",
        "List the recipes of `rlvr train NAME`, or show where each setting of one is from.",
    ),
    "replay": ListedCommand(
        "replay",
        "ReplayCommand",
        "Score recorded completions again and report every record whose score differs.",
    ),
    "identity": ListedCommand(
        "identity",
        "IdentityCommand",
        "Show by what an environment or a file was scored: settings, code, inputs, data; or what "
        "differs between two.",
    ),
    "check": ListedCommand(
        "check",
        "CheckCommand",
        "Look for holes in an environment before a policy finds them.",
    ),
    "strength": ListedCommand(
        "strength",
        "StrengthCommand",
        "Measure how much wrong work each task pays, with evidence found without the verifier.",
    ),
    "init": ListedCommand(
        "init",
        "InitCommand",
        "Make an installable package with an environment of your own.",
    ),
    "audit": ListedCommand(
        "audit",
        "AuditCommand",
        "Compare an environment's verdicts with labels: how many are false, which ones, and why.",
    ),
    "filter": ListedCommand(
        "filter",
        "FilterCommand",
        "Keep the tasks that are worth training on: by pass rate, without duplicates, none from a "
        "test set.",
    ),
    "pairs": ListedCommand(
        "pairs",
        "PairsCommand",
        "Make preference data from scored completions: a correct and a wrong completion of the "
        "same task.",
    ),
    "process-labels": ListedCommand(
        "process_labels",
        "ProcessLabelsCommand",
        "Sample completions, continue them from the end of every step, and keep how often that "
        "leads to a right answer.",
    ),
    "train": ListedCommand(
        "train",
        "TrainCommand",
        "Train a policy on an environment.  The same command continues a run that was stopped.",
    ),
    "algorithms": ListedCommand(
        "algorithms",
        "AlgorithmsCommand",
        "List the algorithms, or show one: its equations, its numbers with their defaults, and "
        "where they stand.",
    ),
    "eval": ListedCommand(
        "evaluate",
        "EvalCommand",
        "Evaluate a model on an environment: avg@n, pass@k, maj@k with 95 % intervals.",
    ),
    "step": ListedCommand(
        "step",
        "StepCommand",
        "Recompute a recorded training step in float64 (verify), compare two (diff), show one, or "
        "write test vectors.",
    ),
    "whatif": ListedCommand(
        "whatif",
        "WhatifCommand",
        "Say how other verdicts, another reward or another algorithm would have turned the steps "
        "of a run.",
    ),
    "referee": ListedCommand(
        "referee",
        "RefereeCommand",
        "Run another trainer's own code on given tokens, and name what departs from its paper, by "
        "the token.",
    ),
    "compare": ListedCommand(
        "compare",
        "CompareCommand",
        "Compare models task by task: differences with intervals, and what could have been seen.",
    ),
    "plot": ListedCommand(
        "plot",
        "PlotCommand",
        "Draw the curves of a run: reward by part, accuracy, outcomes, unscored, length, entropy, "
        "evaluations and more.",
    ),
    "view": ListedCommand(
        "view",
        "ViewCommand",
        "Look at scored completions and training runs in the browser, until Ctrl-C.",
    ),
    "serve": ListedCommand(
        "serve",
        "ServeCommand",
        "Score over HTTP until SIGTERM, SIGHUP or Ctrl-C; requests under way are then finished "
        "first.",
    ),
    "doctor": ListedCommand(
        "doctor",
        "DoctorCommand",
        "Examine the machine: what is installed, what works, what is missing and how to get it.",
    ),
}
"""In the order in which `rlvr --help` lists them."""


class AddedCommand(NamedTuple):
    """A command of another installed package, which names its class in the entry points of
    `rlvr.commands`.

    Attributes:
        point: the entry point.
    """

    point: EntryPoint

    @property
    def help(self) -> str:
        """What `rlvr --help` says of it without importing it."""
        return f"Of the package {self.point.dist.name if self.point.dist else '?'}."

    def load(self) -> Any:
        """The class: a dataclass whose fields are the flags and whose `run` gives the exit code.

        Raises:
            UsageError: it cannot be imported, or has no `run`.
        """
        value = self.point.value
        try:
            kind = self.point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the command {self.point.name!r} leads to {value}, which cannot be loaded: "
                f"{error}; mend or uninstall its package"
            ) from error
        if not (isinstance(kind, type) and callable(getattr(kind, "run", None))):
            raise UsageError(
                f"the command {self.point.name!r} leads to {value}; it must be a class with "
                f"run(out, err), which gives the exit code"
            )
        return kind


@lru_cache(maxsize=1)
def every_command() -> dict[str, ListedCommand | AddedCommand]:
    """Ours, and then those of other packages, sorted; a name of `COMMANDS` stays ours."""
    points = sorted(entry_points(group=_GROUP), key=lambda point: point.name)
    added = {point.name: AddedCommand(point) for point in points if point.name not in COMMANDS}
    return dict[str, ListedCommand | AddedCommand](COMMANDS) | added
