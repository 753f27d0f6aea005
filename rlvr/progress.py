"""A progress bar for long work, where somebody can see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str, total: int | None, console: Console | None = None) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr and give a function that moves it on by one.

    Args:
        what: stands before the bar.
        total: how many steps there are, None if nobody knows.
        console: where to; by default stderr.  Nothing is shown where it is not a terminal or a notebook.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    visible = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=True, disable=not visible) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
