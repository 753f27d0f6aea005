"""The terminal.  Names of files and texts of users are printed as they are, and can do nothing.

Rich reads `[red]` as a style and `:fire:` as a picture; terminals obey control characters, and show
what follows a right-to-left mark backwards; bytes of a file name that are no UTF-8 cannot be
printed. So every command prints through a `PlainConsole`, and gives a style beside a text, never
within it.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from rlvr.text import inert, one_line

__all__ = ["PlainConsole", "Plainly", "label_text"]


class PlainConsole(Console):
    """A console of rich that takes a text for a text: no markup, no emoji, no highlighting.

    Control characters, marks of direction and bytes that are no UTF-8 are shown as escapes.

    Args:
        options: those of `rich.console.Console`, but for `markup`, `emoji` and `highlight`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string on its way to the screen comes here, those in tables too."""
        return super().render_str(inert(text), **options)


class Plainly:
    """Something to print on the console of a caller, which may read markup,
    as a `PlainConsole` would.

    Args:
        shown: a text, a table, or anything else that rich prints.
    """

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = PlainConsole(width=console.width, file=console.file)
        yield from plain.render(self._shown, options.update(markup=False, highlight=False))


def label_text(label: str, text: object, style: str = "yellow") -> Text:
    """`warning: the text`, with the label in a style.

    Args:
        label: of this program, with its colon.
        text: what follows, on one line: line breaks and control characters in it are escaped.
        style: of the label, as rich names styles.
    """
    return Text.assemble((label, style), " ", one_line(text))
