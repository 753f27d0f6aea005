"""The `rlvr` command: `entry` parses the command line, and each subcommand has a module of its name.

`rlvr eval` is in `evaluate`; `arguments` has what several commands share.
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
