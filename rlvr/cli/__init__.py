"""The `rlvr` command: `entry` parses the command line, and each subcommand has a module of its name.

`rlvr eval` is in `evaluate`; `arguments` has what several commands share.
"""

from rlvr.cli.entry import main

__all__ = ["main"]
