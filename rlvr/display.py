"""Values as text, and what a long command is doing.

Records carry the text of a reward, and a stopped run continues only under the same text.  So
different rewards must have different texts, and no text depends on the process.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from types import CodeType
from typing import TYPE_CHECKING, Protocol

from rlvr.text import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = [
    "Activity",
    "Advance",
    "LeftOut",
    "progress_bar",
    "settings",
    "show_number",
    "show_value",
    "span",
    "uncounted",
]

_LINE_S = 30.0  # between two lines of progress in a log
_HIDDEN_S = 0.5  # until a task is shown in a terminal: short ones would only flicker
_LOGGED_S = 5.0  # until a task without steps is one line in a log
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
        reasons = self.reasons(most)
        lines = [
            example if count == 1 else f"{example} (and {count - 1:,} more for this reason)"
            for example, count in reasons
        ]
        uncounted = self.count - sum(count for _, count in reasons)
        return [*lines, f"{uncounted:,} more for other reasons"] if uncounted else lines


def show_value(value: object) -> str:
    """A value as text: a function's name (a lambda's with its line), a dataclass's changed
    settings, else the repr.

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


def settings(value: object, *, but: tuple[str, ...] = ()) -> list[str]:
    """`name=value` for each field of a dataclass that differs from its default; none for any other
    value.

    Args:
        value: any value.
        but: names of fields to leave out.
    """
    changed = []
    for setting in fields(value) if is_dataclass(value) else ():
        current = getattr(value, setting.name)
        if setting.name not in but and current != _default(setting):
            changed.append(f"{setting.name}={show_value(current)}")
    return changed


def show_number(value: float) -> str:
    """A number with six digits if that is exact, else with all of them.

    Args:
        value: the number.
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _default(setting: Field[object]) -> object:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


class Advance(Protocol):
    """Counts what a task has done, see `Activity.task`."""

    def __call__(self, steps: int = 1, *, tokens: int = 0) -> None:
        """Count.

        Args:
            steps: done since the last call; 0 to show that the task is alive.
            tokens: sampled since the last call.
        """


def uncounted(steps: int = 1, *, tokens: int = 0) -> None:
    """An `Advance` that counts nothing."""


class Activity:
    """Shows what a long command is doing: a bar per task in a terminal,
    lines now and then in a log.

    Bars are gone when their tasks are done.  Tasks of several threads may be shown at a time.

    Args:
        console: where to show it; None shows nothing.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = None if console is None or console.quiet else console
        self._lock = threading.Lock()
        self._bars: Progress | None = None
        self._shown = 0

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Advance]:
        """Show a task while inside, and give the function that counts its steps.

        In a terminal it appears after half a second.  In a log a line comes every half minute.

        Args:
            what: text before the bar.
            total: number of steps; None if unknown.
        """
        console = self._console
        if console is None:
            yield _Counter(what, total)
        elif console.is_terminal or console.is_jupyter:
            bar = _Bar(what, total, self)
            try:
                yield bar
            finally:
                bar.close()
        else:
            yield _Lines(what, total, console)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show a task that has no steps: with the time that it takes in a terminal, as one line in
        a log.

        The line comes when the task has taken five seconds, so that what is soon over says nothing.

        Args:
            what: text of the task.
        """
        console = self._console
        if console is None:
            yield
        elif console.is_terminal or console.is_jupyter:
            bars, task = self._show(what, None)
            try:
                yield
            finally:
                self._hide(bars, task)
        else:
            timer = threading.Timer(_LOGGED_S, _print_line, (console, what))
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()

    def _show(self, what: str, total: int | None) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._bars is None:
                columns = (
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=20),
                    TextColumn("{task.fields[note]}", markup=False),
                    TimeElapsedColumn(),
                )
                self._bars = Progress(
                    *columns, console=self._console, transient=True, refresh_per_second=4
                )
                self._bars.start()
            self._shown += 1
            return self._bars, self._bars.add_task(one_line(what), total=total, note="")

    def _hide(self, bars: Progress, task: TaskID) -> None:
        with self._lock:
            bars.remove_task(task)
            self._shown -= 1
            if not self._shown:
                bars.stop()
                self._bars = None


@contextmanager
def progress_bar(
    what: str, total: int | None, console: Console | None = None
) -> Iterator[Callable[[], None]]:
    """Show one task, and give a function that advances it by one step.

    Args:
        what, total: see `Activity.task`.
        console: where to show it, by default stderr.
    """
    from rlvr.console import PlainConsole

    with Activity(console or PlainConsole(stderr=True)).task(what, total) as advance:
        yield advance


class _Counter:
    """Counts the steps of a task that is not shown.

    Args:
        what, total: see `Activity.task`.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._done = self._tokens = 0
        self._began = time.monotonic()

    def __call__(self, steps: int = 1, *, tokens: int = 0) -> None:
        self._done += steps
        self._tokens += tokens

    def _note(self, spent_s: float) -> str:
        """How much is done, how fast, and the time that is left."""
        of = f" of {self._total:,}" if self._total else ""
        parts = [f"{self._done:,}{of}"]
        rate = self._done / spent_s if spent_s else 0.0
        if self._tokens:
            parts.append(f"{self._tokens:,} tokens, {self._tokens / spent_s:,.0f} per second")
        else:
            parts.append(f"{rate:,.0f} per second" if rate >= 1 else f"{rate:.2g} per second")
        if self._total and rate:
            parts.append(f"{span(max(0, self._total - self._done) / rate)} left")
        return ", ".join(parts)


class _Bar(_Counter):
    """A task in a terminal.

    Args:
        what, total: see `Activity.task`.
        activity: shows it.
    """

    def __init__(self, what: str, total: int | None, activity: Activity) -> None:
        super().__init__(what, total)
        self._activity = activity
        self._place: tuple[Progress, TaskID] | None = None

    def __call__(self, steps: int = 1, *, tokens: int = 0) -> None:
        super().__call__(steps, tokens=tokens)
        spent_s = time.monotonic() - self._began
        if spent_s < _HIDDEN_S:
            return
        if self._place is None:
            self._place = self._activity._show(self._what, self._total)
        bars, task = self._place
        bars.update(task, completed=self._done, note=self._note(spent_s))

    def close(self) -> None:
        """Remove the bar."""
        if self._place is not None:
            self._activity._hide(*self._place)


class _Lines(_Counter):
    """A task in a log: a line now and then.

    Args:
        what, total: see `Activity.task`.
        console: of the log.
    """

    def __init__(self, what: str, total: int | None, console: Console) -> None:
        super().__init__(what, total)
        self._console, self._said_at = console, self._began

    def __call__(self, steps: int = 1, *, tokens: int = 0) -> None:
        super().__call__(steps, tokens=tokens)
        printed_at = time.monotonic()
        if printed_at - self._said_at < _LINE_S:
            return
        self._said_at = printed_at
        line = f"{self._what}: {self._note(printed_at - self._began)}"
        _print_line(self._console, line)


def _print_line(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def span(seconds: float) -> str:
    """A time as text, such as "3 h 20 min".

    Args:
        seconds: how long.
    """
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {seconds_left} s"
        if minutes
        else f"{seconds_left} s"
    )
