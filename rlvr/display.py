"""How things are shown: settings of a reward as text, and the progress of long work.

Rewards that differ must not read the same.  Records carry this text, and a stopped run continues only under the same
text, so nothing in it depends on the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["number", "progress_bar", "settings", "shown"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def shown(value: Any) -> str:
    """A function by its name (a lambda by its line), a dataclass by the settings it changes, the rest as it prints."""
    if name := getattr(value, "__qualname__", None):
        code = getattr(value, "__code__", None)
        return f"{name}:{code.co_firstlineno}" if name.endswith("<lambda>") and isinstance(code, CodeType) else name
    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(settings(value))})"
    return _ADDRESS.sub("", repr(value))


def settings(value: Any, *, but: tuple[str, ...] = ()) -> list[str]:
    """`name=value` for each field of a dataclass that is not at its default; none of anything else."""
    changed = []
    for setting in fields(value) if is_dataclass(value) else ():
        now = getattr(value, setting.name)
        if setting.name not in but and now != _default(setting):
            changed.append(f"{setting.name}={shown(now)}")
    return changed


def number(value: float) -> str:
    """Six digits where they are exact, else all of them."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _default(setting: Field[Any]) -> Any:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


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
