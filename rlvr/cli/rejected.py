"""How rows that a command could not use are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr.console import label_text
from rlvr.display import LeftOut
from rlvr.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_left_out"]

_SHOWN: Final = 20  # reasons on the terminal


def show_left_out(err: Console, found: LeftOut, kept: Path | None = None) -> None:
    """Print an example of each reason, and how many rows there are; nothing if none was left out.

    Args:
        err: the console.
        found: the rows by reason.
        kept: the file that has them all; None if there is none.
    """
    for message in found.lines(_SHOWN):
        err.print(label_text("left out:", message), soft_wrap=True)
    if found.count:
        where = "" if kept is None else f"; all of them are in {one_line(kept)}"
        err.print(f"{found.count} rows left out{where}", soft_wrap=True)
