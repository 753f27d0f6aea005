"""The `rlvr` command.  Each subcommand is a dataclass: its fields are the flags,
its `run` gives the exit code.

The module of a subcommand is imported when it is called, and an optional package when the part that
needs it is used.

Exit codes: 0 done; 1 done, but something needs attention (rows left out, UNSCORED, differences,
missing parts); 2 not done, one line says why; 3 a bug in rlvr or a plugin, with its traceback; 130
interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlvr.cli.commands import COMMANDS, AddedCommand, ListedCommand, every_command
from rlvr.console import PlainConsole, label_text
from rlvr.errors import RlvrError, UsageError, describe_error
from rlvr.validate import nearest

__all__ = ["main"]

_ABOUT = (
    "Verifiable rewards for reinforcement learning of language models: score completions, check "
    "environments, train and evaluate policies, serve scores over HTTP."
)
_MORE = (
    "`rlvr COMMAND --help` explains the flags of a command; `rlvr --version` prints the version."
)
_SHELLS = ("bash", "zsh", "fish")


class _Command(Protocol):
    """May have `resumable`: whether the command with `--resume` goes on where it was stopped."""

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
    # pyarrow's own allocators keep what was freed: 13 MiB more at the peak of writing Parquet.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    printed = _Stdout()
    out, err = PlainConsole(file=printed), PlainConsole(stderr=True)
    command: _Command | None = None
    with _second_interrupt_ends(), _table_at_signal(), warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, err)
        try:
            if list(argv) == ["--version"]:
                out.print(f"rlvr {version('rlvr')}")
                code = 0
            elif list(argv) in (["--help"], ["-h"]):
                _print_help(out)
                code = 0
            else:
                command = _parse(argv)
                code = command.run(out, err)
            printed.flush()
        except (
            RlvrError,
            OSError,
        ) as error:  # a mistake of the caller or the environment, or the disk: one line
            err.print(label_text("rlvr:", _one_line(error), "bold red"), soft_wrap=True)
            return 2
        except KeyboardInterrupt:
            err.print("interrupted" + "; `--resume` goes on where it stopped" * _resumes(command))
            return 130
        except SystemExit:
            if command is None:
                raise  # of the parser, which has said why
            # A plugin's: with its code, such as 0, nothing done would read as done.
            err.print_exception()
            return 3
        # a bug of rlvr or a plugin: shown whole, not with "needs attention"'s code
        except BaseException:  # noqa: BLE001
            err.print_exception()
            return 3
    if printed.lost is None:
        return code
    if getattr(command, "output", None) is not None:
        why = _one_line(printed.lost)
        err.print(
            label_text("warning:", f"the output is whole, but stdout is not: {why}"), soft_wrap=True
        )
        return code
    # of a reader that has seen enough, such as `head`
    if not isinstance(printed.lost, BrokenPipeError):
        err.print(
            label_text("rlvr:", f"stdout: {_one_line(printed.lost)}", "bold red"),
            soft_wrap=True,
        )
    return 2


@contextlib.contextmanager
def _second_interrupt_ends() -> Iterator[None]:
    """A second Ctrl-C ends the process at once.

    As an exception it could come while the first one is releasing a lock: then threads wait for
    that lock for ever, or the command ends with a traceback.  What is on disk is as after a kill,
    so `--resume` goes on; workers end by themselves when their pipes close.
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


@contextlib.contextmanager
def _table_at_signal() -> Iterator[None]:
    """SIGUSR1 prints what runs beside the command to stderr, unless it is handled or ignored
    already."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
        yield
        return

    def show(number: int, frame: object) -> None:
        from rlvr.workers.alive import describe_alive  # `rlvr --help` does without it

        with contextlib.suppress(OSError):  # no print: the signal may come within one
            os.write(2, f"rlvr: {describe_alive()}\n".encode("utf-8", "backslashreplace"))

    signal.signal(signal.SIGUSR1, show)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def _resumes(command: _Command | None) -> bool:
    return bool(getattr(command, "resumable", False))


class _Stdout:
    """This process's stdout, which may be full or closed:
    what was computed and written elsewhere is not lost by that.

    Attributes:
        lost: the first error; what comes after it is dropped.
    """

    def __init__(self) -> None:
        self._file = sys.stdout or io.StringIO()  # None: it was closed before we began
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, unless that failed before; what the terminal's encoding lacks is escaped."""
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        written = text.encode(encoding, "backslashreplace").decode(encoding)
        self._try_to(partial(self._file.write, written))
        return len(text)

    def flush(self) -> None:
        """Hand to the system what is buffered."""
        self._try_to(self._file.flush)

    def _try_to(self, work: Callable[[], object]) -> None:
        if self.lost is not None:
            return
        try:
            work()
        except OSError as error:
            self.lost = error
            # or Python would try once more at its end, and complain
            with contextlib.suppress(OSError, ValueError):
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
    _, message, _ = describe_error(error)
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
    err.print(label_text("warning:", first), soft_wrap=True)


def _print_help(out: Console) -> None:
    """What `rlvr --help` prints: the commands with a line for each, without loading any of them."""
    table = Table.grid(padding=(0, 2))
    for name, listed in every_command().items():
        table.add_row(Text(name, style="bold"), Text(listed.help))
    out.print("usage: rlvr COMMAND …\n")
    out.print(Text(_ABOUT), "", table, "", Text(_MORE), sep="\n")


def _parse(argv: Sequence[str]) -> _Command:
    """The command with its flags; its module is imported here.

    Raises:
        UsageError: there is no such command.
        SystemExit: a flag is wrong, which the parser has explained; or help was asked for.
    """
    import tyro  # `rlvr --help` does without it

    plain = (tyro.conf.FlagCreatePairsOff,)
    if argv and argv[0] == "--print-completion":  # of all commands
        if len(argv) != 2 or argv[1] not in _SHELLS:
            raise UsageError(f"--print-completion takes one of {', '.join(_SHELLS)}")
        every = {name: entry_point.load() for name, entry_point in every_command().items()}
        chosen: _Command = tyro.extras.subcommand_cli_from_dict(
            every,
            prog="rlvr",
            description=f"{_ABOUT}\n\n{_MORE}",
            args=["--tyro-print-completion", argv[1]],
            config=plain,
        )
        return chosen
    listed = _find_command(argv)
    from rlvr.cli.arguments import with_chat_mode, with_one_env

    name, *flags = with_chat_mode(with_one_env(argv))
    if name == "train":  # settings may come from a recipe or a file, besides the flags
        from rlvr.cli.train import recipe_command, train_command

        if flags and not flags[0].startswith("-"):
            return recipe_command(flags[0], flags[1:])
        return train_command(flags)
    kind = listed.load()
    # Of a docstring tyro makes paragraphs; examples on lines of their own would be joined.
    doc = re.split(r"\n+(?:Attributes|Args):\n", inspect.getdoc(kind) or "")[0]  # the flags' help
    description = re.sub(r"\n+Example: ", "\n\nExample: ", doc)
    command: _Command = tyro.cli(
        kind, prog=f"rlvr {name}", description=description, args=flags, config=plain
    )
    return command


def _find_command(argv: Sequence[str]) -> ListedCommand | AddedCommand:
    """The command that the first argument names.

    Raises:
        UsageError: it names none; says what to type instead.
    """
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]]
    every = every_command()
    if argv and argv[0] in every:
        return every[argv[0]]
    if not argv:
        raise UsageError(f"name a command: {', '.join(every)}; `rlvr --help` explains each")
    is_flag = argv[0].startswith("-")
    choices = ("--help", "--version", "--print-completion") if is_flag else tuple(every)
    meant = nearest(argv[0], choices) or f"; there are {', '.join(choices)}."
    kind = "flag before the command" if is_flag else "command"
    raise UsageError(f"there is no {kind} {argv[0]!r}{meant}  `rlvr --help` lists the commands")
