"""Rows that a command could not use: how they are kept, and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr.console import label_text
from rlvr.data.lines import Line
from rlvr.data.rows import dump_row
from rlvr.display import LeftOut
from rlvr.errors import DataError
from rlvr.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["rejected_row", "show_left_out"]

_SHOWN: Final = 20  # reasons on the terminal


def rejected_row(line: Line, why: str, place: int | None = None) -> bytes:
    """A row that could not be used, as a line of the file that keeps such rows.

    Args:
        line: as it was read.
        why: it could not be used.
        place: of the row among those of all files; None where there is one file.
    """
    entry: dict[str, Any] = {} if place is None else {"place": place}
    entry |= {"line": line.number, "why": why, "row": line.row, "text": line.text}
    try:
        return dump_row(entry)
    except DataError:  # the row could not be used because it is no JSON
        return dump_row(entry | {"row": None, "text": repr(line.row)})


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
