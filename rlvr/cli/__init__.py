"""The `rlvr` command."""

from rlvr.cli.entry import main

__all__ = ["main"]
