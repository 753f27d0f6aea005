"""Texts of a model as HTML: escaped, cut, control characters made visible, the answer marked."""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from rlvr.text import after_thinking, inert

__all__ = ["PIECE", "Piece", "answer_at", "as_text", "excerpt", "piece", "word_diff"]

PIECE: Final = 20_000
"""Characters of a text that a page shows at once, or compares."""

_BREAKS = re.compile(r"\n{30,}")
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_TRIES = 1000  # places of an answer that are looked at


class Piece(NamedTuple):
    """A part of a text, for a page."""

    html: Markup
    """The part."""
    start: int
    """Position of its first character."""
    end: int
    """Position after its last one."""
    length: int
    """Characters of the whole text."""


def piece(text: str, start: int = 0, mark: tuple[int, int] | None = None) -> Piece:
    """A part of a text, of `PIECE` characters; its mark has an id, to which a link leads.

    Args:
        text: the whole text.
        start: where the part begins.
        mark: first character and end of what is to be marked.
    """
    start = min(max(0, start), max(0, len(text) - 1))
    end = min(len(text), start + PIECE)
    html = _mark_text(text, start, end, mark).replace(
        Markup("<mark>"), Markup('<mark id="answer">')
    )
    return Piece(html, start, end, len(text))


def excerpt(text: str, most: int, mark: tuple[int, int] | None = None) -> Markup:
    """The beginning of a text and its end, or the part around the mark.

    Args:
        text: the whole text.
        most: greatest number of characters.
        mark: as for `piece`.
    """
    if len(text) <= most:
        return _mark_text(text, 0, len(text), mark)
    head = most // 3
    start = len(text) - (most - head)
    if mark is not None and mark[0] < start:
        start = max(0, mark[0] - (most - head) // 2)
    if start <= head:
        head, start = 0, 0
    end = min(len(text), start + most - head)
    parts = [
        _mark_text(text, 0, head, mark),
        _left_out(start - head),
        _mark_text(text, start, end, mark),
    ]
    return Markup("").join([*parts, _left_out(len(text) - end)])


def word_diff(first: str, second: str) -> Markup:
    """Two texts as one: words that only one of them has are marked as taken away or put in.

    Args:
        first, second: the texts, of which the first `PIECE` characters are compared.
    """
    a, b = (_WORDS.findall(text[:PIECE]) for text in (first, second))
    parts = []
    for kind, i, j, k, m in SequenceMatcher(None, a, b).get_opcodes():
        old, new = (_as_html("".join(words)) for words in (a[i:j], b[k:m]))
        if kind == "equal":
            parts.append(old)
            continue
        parts += [
            Markup("<{0}>{1}</{0}>").format(*change)
            for change in (("del", old), ("ins", new))
            if change[1]
        ]
    return Markup("").join(parts)


def _left_out(count: int) -> Markup:
    return (
        Markup('<span class="cut"> … {:,} characters left out … </span>').format(count)
        if count
        else Markup("")
    )


def _mark_text(text: str, start: int, end: int, mark: tuple[int, int] | None) -> Markup:
    first, last = (min(max(at, start), end) for at in mark or (end, end))
    html = _as_html(text[start:first])
    if first < last:
        html += Markup("<mark>") + escape(inert(text[first:last])) + Markup("</mark>")
    return html + _as_html(text[last:end])


def _as_html(text: str) -> Markup:
    """The text; many line breaks in a row are counted, as an empty box would not say what is in
    it."""
    html, at = Markup(""), 0
    for breaks in _BREAKS.finditer(text):
        note = Markup('\n<span class="cut">… {:,} line breaks …</span>\n').format(len(breaks[0]))
        html += escape(inert(text[at : breaks.start()])) + note
        at = breaks.end()
    return html + escape(inert(text[at:]))


def answer_at(completion: str, answer: object) -> tuple[int, int] | None:
    """Where an answer stands in a completion: in its last box, else at its last place after the
    thinking.

    Args:
        completion: the whole text.
        answer: what the verifier extracted.

    Returns:
        First character and end; None if the answer does not stand in the text as it was extracted.
    """
    if not isinstance(answer, str) or not answer:
        return None
    boxed = completion.rfind("\\boxed{" + answer + "}")
    if boxed >= 0:
        at = boxed + len("\\boxed{")
        return at, at + len(answer)
    begin, end = after_thinking(completion) or 0, len(completion)
    for _ in range(_TRIES):
        at = completion.rfind(answer, begin, end)
        if at < 0:
            break
        if not (
            _is_word(completion[at - 1 : at])
            or _is_word(completion[at + len(answer) : at + len(answer) + 1])
        ):
            return at, at + len(answer)
        end = at + len(answer) - 1
    return None


def _is_word(char: str) -> bool:
    return char.isalnum()


def as_text(value: object) -> str:
    """A value of a record as a text for people.

    Args:
        value: a text, chat messages, or anything that JSON can hold.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, dict) and "content" in item for item in value)
    ):
        return "\n\n".join(
            f"[{item.get('role', '?')}]\n{as_text(item['content'])}" for item in value
        )
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
