"""The `rlvr` command.  Each subcommand is a dataclass: its fields are the flags, its `run` gives the exit code.

Exit codes: 0 done; 1 done, but something needs attention (rows left out, UNSCORED, differences, missing parts);
2 not done, one line says why; 3 a bug in rlvr or a plugin, with its traceback; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn, Protocol

import tyro
from rich.console import Console
from rich.markup import escape

from rlvr.cli.algorithms import AlgorithmsCommand
from rlvr.cli.arguments import with_one_env
from rlvr.cli.audit import AuditCommand
from rlvr.cli.check import CheckCommand
from rlvr.cli.doctor import DoctorCommand
from rlvr.cli.envs import EnvsCommand
from rlvr.cli.evaluate import EvalCommand
from rlvr.cli.filter import FilterCommand
from rlvr.cli.init import InitCommand
from rlvr.cli.join import JoinCommand
from rlvr.cli.pairs import PairsCommand
from rlvr.cli.plot import PlotCommand
from rlvr.cli.process_labels import ProcessLabelsCommand
from rlvr.cli.replay import ReplayCommand
from rlvr.cli.score import ScoreCommand
from rlvr.cli.serve import ServeCommand
from rlvr.cli.train import TrainCommand, recipe_command, train_command
from rlvr.cli.view import ViewCommand
from rlvr.errors import RlvrError, described

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, Any] = {
    "score": ScoreCommand,
    "join": JoinCommand,
    "envs": EnvsCommand,
    "replay": ReplayCommand,
    "check": CheckCommand,
    "init": InitCommand,
    "audit": AuditCommand,
    "filter": FilterCommand,
    "pairs": PairsCommand,
    "process-labels": ProcessLabelsCommand,
    "train": TrainCommand,
    "algorithms": AlgorithmsCommand,
    "eval": EvalCommand,
    "plot": PlotCommand,
    "view": ViewCommand,
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
    printed = _Stdout()
    out, err = Console(file=printed), Console(stderr=True)  # type: ignore[arg-type]  # rich writes and flushes only
    command: _Command | None = None
    with _second_interrupt_ends(), warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, err)
        try:
            if list(argv) == ["--version"]:
                out.print(f"rlvr {version('rlvr')}", highlight=False)
                code = 0
            else:
                command = _parsed(argv)
                code = command.run(out, err)
            printed.flush()
        except (
            RlvrError,
            OSError,
        ) as error:  # a mistake of the caller or the environment, or the disk: one line
            err.print(
                f"[bold red]rlvr:[/] {escape(_one_line(error))}", soft_wrap=True, highlight=False
            )
            return 2
        except KeyboardInterrupt:
            err.print("interrupted" + "; `--resume` goes on where it stopped" * _resumes(command))
            return 130
        except SystemExit:
            raise  # of the parser, which has said why
        except BaseException:  # noqa: BLE001  a bug of rlvr or a plugin: shown whole, not with "needs attention"'s code
            err.print_exception()
            return 3
    if printed.lost is None:
        return code
    if getattr(command, "output", None) is not None:
        why = escape(_one_line(printed.lost))
        err.print(
            f"[yellow]warning:[/] the output is whole, but stdout is not: {why}", soft_wrap=True
        )
        return code
    if not isinstance(
        printed.lost, BrokenPipeError
    ):  # of a reader that has seen enough, such as `head`
        err.print(
            f"[bold red]rlvr:[/] stdout: {escape(_one_line(printed.lost))}",
            soft_wrap=True,
            highlight=False,
        )
    return 2


@contextlib.contextmanager
def _second_interrupt_ends() -> Iterator[None]:
    """A second Ctrl-C ends the process at once.

    As an exception it could come while the first one is releasing a lock: then threads wait for that lock for ever, or
    the command ends with a traceback.  What is on disk is as after a kill, so `--resume` goes on; workers end by
    themselves when their pipes close.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def second(number: int, frame: object) -> NoReturn:
        os.write(2, b"interrupted\n")
        os._exit(130)

    def first(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGINT, second)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _resumes(command: _Command | None) -> bool:
    return isinstance(command, ScoreCommand) or getattr(command, "rollouts", None) is not None


class _Stdout:
    """This process's stdout, which may be full or closed: what was computed and written elsewhere is not lost by that.

    Attributes:
        lost: the first error; what comes after it is dropped.
    """

    def __init__(self) -> None:
        self._file = sys.stdout
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, unless that failed before."""
        self._tried(partial(self._file.write, text))
        return len(text)

    def flush(self) -> None:
        """Hand to the system what is buffered."""
        self._tried(self._file.flush)

    def _tried(self, work: Callable[[], object]) -> None:
        if self.lost is not None:
            return
        try:
            work()
        except OSError as error:
            self.lost = error
            with contextlib.suppress(
                OSError, ValueError
            ):  # or Python would try once more at its end, and complain
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some of it",
    errno.EDQUOT: "your part of the disk is full; free some of it",
    errno.EFBIG: "a file may not grow so large here; see `ulimit -f`",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, or give fewer --workers",
    errno.ENFILE: "too many files are open on this machine",
}


def _one_line(error: BaseException) -> str:
    """What went wrong, and the way out where the system's own text has none."""
    _, message, _ = described(error)
    way_out = _WAYS_OUT.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{message} ({way_out})" if way_out else message


def _show_warning(
    err: Console, message: Warning | str, category: type[Warning], *_: object
) -> None:
    """One line, without the place in our source."""
    if issubclass(
        category, (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
    ):
        return
    first = next(iter(str(message).splitlines()), category.__name__)
    err.print(f"[yellow]warning:[/] {escape(first)}", soft_wrap=True, highlight=False)


def _parsed(argv: Sequence[str]) -> _Command:
    argv = with_one_env(argv)
    if len(argv) > 1 and argv[0] == "train" and not argv[1].startswith("-"):
        return recipe_command(argv[1], argv[2:])
    if argv[:1] == ["train"]:
        return train_command(argv[1:])
    command: _Command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="rlvr", description=_ABOUT, args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    return command
