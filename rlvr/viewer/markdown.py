"""A model's text as people read it: Markdown, mathematics and code in colours, as
HTML that can run nothing.

HTML, links and images of the text are no elements: they stand there as they were written, and are
counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from rlvr.text import inert

__all__ = ["RenderedText", "elements_of", "has_markup", "render_text"]

_LONGEST_CODE: Final = 6000  # characters that are coloured
_LONGEST_TEX: Final = 2000  # characters of a formula
_LANGUAGES: Final = frozenset(
    "python py python3 c cpp c++ java javascript js json bash sh sql go rust haskell r".split()
)
# tags that models write, and no browser knows
_OURS: Final = "(?:think|answer|tool_call|tool_response)"
_REMOVED: Final = {
    "HTML tags": re.compile(rf"<(?!/?{_OURS}>)(?:[a-zA-Z/][^\s<>]*|!--)"),
    "links": re.compile(r"(?<!!)\[[^\]\n]{0,300}\]\("),
    "images": re.compile(r"!\[[^\]\n]{0,300}\]\("),
}
_BEGIN, _END = "\ue000", "\ue001"  # around what is marked; `inert` leaves none in a text
_MARKED = re.compile(f"{_BEGIN}([^<>{_END}]*){_END}")
_ALIGNED = re.compile(' style="text-align:(?:left|right|center)"')
_TEX = re.compile(
    r"\\\[(?P<a>.+?)\\\]|\\\((?P<b>.+?)\\\)|\$\$(?P<c>.+?)\$\$"
    r"|\$(?P<d>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)",
    re.DOTALL,
)


_MARKUP: Final = re.compile(
    r"\$[^\s$][^$\n]{0,300}\$|\\[(\[]|\*\*\S|^(?:```|~~~)|^#{1,6} |^\|.{0,300}\|$|^ {0,3}[-*] \S|"
    r"^\d{1,2}\. ",
    re.MULTILINE,
)


class RenderedText(NamedTuple):
    """A text for a page."""

    html: Markup
    """The text."""
    removed: dict[str, int]
    """What is shown as text and would have been an element: kind → count."""


def elements_of(text: str) -> dict[str, int]:
    """What of a text would be an element of a page, but is shown as text: kind → count.

    Args:
        text: of a model.
    """
    counts = {name: len(pattern.findall(text)) for name, pattern in _REMOVED.items()}
    return {name: count for name, count in counts.items() if count}


def has_markup(text: str) -> bool:
    """Whether there is anything in a text that looks other as Markdown than as it is.

    Args:
        text: of a model.
    """
    return _MARKUP.search(text) is not None


def render_text(text: str, mark: tuple[int, int] | None = None) -> RenderedText:
    """Render a text.

    Args:
        text: at most some ten thousand characters.
        mark: first character and end of what a verifier read.
    """
    removed = elements_of(text)
    begin, end = mark if mark is not None and 0 <= mark[0] < mark[1] <= len(text) else (0, 0)
    before, read, after = (inert(piece) for piece in (text[:begin], text[begin:end], text[end:]))
    signed = f"{before}{_BEGIN}{read}{_END}{after}" if read else before + after
    html = _ALIGNED.sub("", _parser().render(signed))  # inline styles, which the policy forbids
    html = _MARKED.sub(r"<mark>\1</mark>", html).replace(_BEGIN, "").replace(_END, "")
    return RenderedText(Markup(html), removed)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _colour_code})
    parser.enable(["table", "strikethrough"])
    parser.disable(["image", "link", "autolink", "reference", "html_block", "html_inline"])
    parser.inline.ruler.before("escape", "tex", _tex)
    parser.add_render_rule("tex", _tex_html)
    parser.add_render_rule("heading_open", _as_paragraph)
    parser.add_render_rule("heading_close", _as_paragraph)
    return parser


def _colour_code(code: str, language: str, _: str) -> str:
    if language.lower() not in _LANGUAGES or len(code) > _LONGEST_CODE:
        return str(escape(code))
    lexer = get_lexer_by_name(language.lower())
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="p-")))


def _tex(state: StateInline, silent: bool) -> bool:
    """A formula in signs, or a box that stands without them."""
    source, at = state.src, state.pos
    if source[at] not in "$\\":
        return False
    match = _TEX.match(source, at, min(len(source), at + _LONGEST_TEX))
    if match:
        content, end = next(filter(None, match.groups())), match.end()
        display = match["a"] is not None or match["c"] is not None
    elif source.startswith("\\boxed{", at) and (end := _closing(source, at + 7)):
        content, display = source[at:end], False
    else:
        return False
    if not silent:
        token = state.push("tex", "", 0)
        token.content, token.markup = content, source[at:end]
        token.meta = {"display": display}
    state.pos = end
    return True


def _closing(text: str, at: int) -> int:
    """The place behind the brace that closes; 0 without one."""
    depth = 1
    for place in range(at, min(len(text), at + _LONGEST_TEX)):
        depth += (text[place] == "{") - (text[place] == "}")
        if not depth:
            return place + 1
    return 0


def _tex_html(
    self: object, tokens: Any, number: int, options: object, env: Mapping[str, object]
) -> str:
    """The formula as text; the page's script makes MathML of it."""
    token = tokens[number]
    is_marked = _BEGIN in token.content
    content = token.content.replace(_BEGIN, "").replace(_END, "")
    display = " display" if token.meta["display"] else ""
    html = f'<span class="tex{display}">{escape(content)}</span>'
    return f"<mark>{html}</mark>" if is_marked else html


def _as_paragraph(
    self: object, tokens: Any, number: int, options: object, env: Mapping[str, object]
) -> str:
    """Headings of a text are none of the page."""
    return '<p class="heading">' if tokens[number].nesting == 1 else "</p>\n"
