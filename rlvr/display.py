"""Values as text, and progress bars.

Records carry the text of a reward, and a stopped run continues only under the same text.  So different rewards must
have different texts, and no text depends on the process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LeftOut", "number", "progress_bar", "settings", "shown"]

_LINE_S = 30.0  # between two lines of progress in a log
_VARIES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d[\d.,_]*")
_MOST_REASONS = 1000  # that are told apart
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class LeftOut:
    """Counts the rows that were left out by reason, and keeps one example of each.

    Reasons that differ only in numbers and in quoted values are one.

    Attributes:
        count: of all rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, row: str, why: str) -> None:
        """Count one.

        Args:
            row: which it is.
            why: it was left out.
        """
        self.count += 1
        reason = _VARIES.sub("…", why[:1000])
        example, count = self._found.get(reason, (f"{row}: {why}", 0))
        if count or len(self._found) < _MOST_REASONS:
            self._found[reason] = (example, count + 1)

    def reasons(self, most: int) -> list[tuple[str, int]]:
        """An example and the number of rows of each reason, the most frequent first.

        Args:
            most: how many reasons.
        """
        return sorted(self._found.values(), key=lambda it: -it[1])[:most]

    def lines(self, most: int) -> list[str]:
        """The same as lines for a terminal; the last one counts what is not among them.

        Args:
            most: how many reasons.
        """
        found = self.reasons(most)
        lines = [
            example if count == 1 else f"{example} (and {count - 1:,} more for this reason)"
            for example, count in found
        ]
        rest = self.count - sum(count for _, count in found)
        return [*lines, f"{rest:,} rows for other reasons"] if rest else lines


def shown(value: Any) -> str:
    """A value as text: a function's name (a lambda's with its line), a dataclass's changed settings, else the repr.

    Args:
        value: any value.
    """
    if name := getattr(value, "__qualname__", None):
        code = getattr(value, "__code__", None)
        return (
            f"{name}:{code.co_firstlineno}"
            if name.endswith("<lambda>") and isinstance(code, CodeType)
            else name
        )
    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(settings(value))})"
    return _ADDRESS.sub("", repr(value))


def settings(value: Any, *, but: tuple[str, ...] = ()) -> list[str]:
    """`name=value` for each field of a dataclass that differs from its default; none for any other value.

    Args:
        value: any value.
        but: names of fields to leave out.
    """
    changed = []
    for setting in fields(value) if is_dataclass(value) else ():
        now = getattr(value, setting.name)
        if setting.name not in but and now != _default(setting):
            changed.append(f"{setting.name}={shown(now)}")
    return changed


def number(value: float) -> str:
    """A number with six digits if that is exact, else with all of them.

    Args:
        value: the number.
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _default(setting: Field[Any]) -> Any:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


@contextmanager
def progress_bar(
    what: str, total: int | None, console: Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show a progress bar and give a function that advances it by one step.

    Args:
        what: text before the bar.
        total: number of steps; None if unknown.
        console: where to show it, by default stderr.  Where that is neither a terminal nor a notebook, a line with rate
            and remaining time comes every half minute instead.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    if not (console.is_terminal or console.is_jupyter):
        yield _Lines(what, total, console).tick
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


class _Lines:
    """Progress for a log: a line now and then.

    Args:
        what, total, console: see `progress_bar`.
    """

    def __init__(self, what: str, total: int | None, console: Console) -> None:
        self._what, self._total, self._console = what, total, console
        self._done, self._began = 0, time.monotonic()
        self._said_at = self._began

    def tick(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._said_at < _LINE_S:
            return
        self._said_at, rate = now, self._done / (now - self._began)
        of = f" of {self._total:,}" if self._total else ""
        left = f", {_span(max(0, self._total - self._done) / rate)} left" if self._total else ""
        self._console.print(
            f"{self._what}: {self._done:,}{of}, {rate:,.0f} per second{left}", highlight=False
        )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )
