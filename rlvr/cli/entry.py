"""The `rlvr` command.  Each subcommand is a dataclass: its fields are the flags, its `run` gives the exit code.

Exit codes: 0 done; 1 done, but something needs attention (rows left out, UNSCORED, differences, missing parts);
2 not done, one line says why; 3 a bug in rlvr or a plugin, with its traceback; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Protocol

import tyro
from rich.console import Console
from rich.markup import escape

from rlvr.cli.audit import AuditCommand
from rlvr.cli.check import CheckCommand
from rlvr.cli.doctor import DoctorCommand
from rlvr.cli.envs import EnvsCommand
from rlvr.cli.evaluate import EvalCommand
from rlvr.cli.filter import FilterCommand
from rlvr.cli.plot import PlotCommand
from rlvr.cli.replay import ReplayCommand
from rlvr.cli.score import ScoreCommand
from rlvr.cli.serve import ServeCommand
from rlvr.cli.train import TrainCommand, recipe_command
from rlvr.errors import RlvrError

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, Any] = {
    "score": ScoreCommand,
    "envs": EnvsCommand,
    "replay": ReplayCommand,
    "check": CheckCommand,
    "audit": AuditCommand,
    "filter": FilterCommand,
    "train": TrainCommand,
    "eval": EvalCommand,
    "plot": PlotCommand,
    "serve": ServeCommand,
    "doctor": DoctorCommand,
}
"""The class of each subcommand, in the order in which `rlvr --help` lists them."""

_ABOUT = (
    "Verifiable rewards for reinforcement learning of language models: score completions, check environments, train "
    "and evaluate policies, serve scores over HTTP.\n\n`rlvr COMMAND --help` explains the flags of a command; "
    "`rlvr --version` prints the version."
)


class _Command(Protocol):
    def run(self, out: Console, err: Console) -> int:
        """Print results to `out`; errors, progress and rows left out to `err`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments after `rlvr`; those of this process by default.

    Returns:
        The exit code.
    """
    argv = sys.argv[1:] if argv is None else argv
    out, err = Console(), Console(stderr=True)
    if list(argv) == ["--version"]:
        out.print(f"rlvr {version('rlvr')}", highlight=False)
        return 0
    command: _Command | None = None
    try:
        command = _parsed(argv)
        return command.run(out, err)
    except (RlvrError, OSError) as error:  # a mistake of the caller or the environment, or the disk: one line says it
        err.print(f"[bold red]rlvr:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 2
    except Exception:  # noqa: BLE001  a bug of rlvr or a plugin: shown whole, and not with the code for "needs attention"
        err.print_exception()
        return 3
    except KeyboardInterrupt:
        err.print("interrupted" + "; `--resume` goes on where it stopped" * isinstance(command, ScoreCommand))
        return 130


def _parsed(argv: Sequence[str]) -> _Command:
    if len(argv) > 1 and argv[0] == "train" and not argv[1].startswith("-"):
        return recipe_command(argv[1], argv[2:])
    command: _Command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="rlvr", description=_ABOUT, args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    return command
