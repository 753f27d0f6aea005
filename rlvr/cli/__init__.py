"""The `rlvr` command: each subcommand is a dataclass in a module of its name (`eval`: `evaluate`).

entry           parses the command line, and says what went wrong in one line
commands        every command by name: where its class is, and its help; packages' own too
arguments       what several commands share: environments, files, flags
run_settings    settings of a run from flags and a file, and where each comes from
train_help      `rlvr train --help`
rejected        how rows that could not be used are shown
machine_report  `rlvr doctor --report`
others          a command each: fields are its flags, `run(out, err)` gives the exit code

Contract: a dataclass with `run(out, err) -> int`; a new one is a file and its line in `commands`,
or an entry point `rlvr.commands` of a package.  Fields are tyro's (`Positional`, `arg(aliases=…)`);
`out` and `err` are consoles (`rlvr.console`), where `soft_wrap=True` keeps a line a line.  An
`RlvrError` is one line and exit code 2.
Sees all rooms; only `rlvr.__main__` and recipes see it.  A module is imported when its command
runs.
Goes wrong: imports at the top of a module make `rlvr --help` slow; output on stdout that is no
result breaks pipes; an exit code other than 0, 1, 2, 3, 130 (docs/using/command_line.md).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments after `rlvr`; those of this process by default.

    Returns:
        The exit code, see `rlvr.cli.entry`.
    """
    try:
        from rlvr.cli import entry  # a Ctrl-C while this loads is one line too
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return entry.main(argv)
