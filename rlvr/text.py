"""What verifiers, environments and adapters need from the text of a completion.

The part after the model's thinking, fenced code blocks, and whether two answers stand in one
statement.  Each function takes any text and is linear in its length.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "ANSWER_TAGS",
    "FencedBlock",
    "THINKING_TAGS",
    "after_thinking",
    "fenced_blocks",
    "first_paragraph",
    "inert",
    "one_line",
    "prompt_text",
    "python_tree",
    "same_statement",
    "squeeze_text",
]

THINKING_TAGS: Final = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
"""The tags between which models think, as (opening, closing)."""

ANSWER_TAGS: Final = ("<answer>", "</answer>")
"""The tags between which prompts often ask for the answer, as (opening, closing)."""

_LONGEST_GAP = 20_000  # characters; two answers that are further apart are not in one statement
_SENTENCE_END = re.compile(r"[.!?][$)*\]]{0,4}(?:\s|$)")
_LINK_OR_WORD = re.compile(r"\\[A-Za-z]+|\b(?:and|or|also|either|text)\b|([A-Za-z]{2})")
# Possessive, since `[ \t]*` and the info string overlap: with backtracking a long line of spaces
# takes quadratic time.
_FENCE_LINE = re.compile(r"^([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([^`\n]*+)$", re.ASCII | re.MULTILINE)
_INFO = re.compile(r"[{.]*([^\s{},:]*)")
# of a text, which is no answer with more; to pair them takes 40 CPU ms
_MOST_FENCES: Final = 20_000


class FencedBlock(NamedTuple):
    """A fenced code block, as `fenced_blocks` finds it."""

    start: int
    """Position of the line of its opening fence, in characters."""
    end: int
    """Position of the line of its closing fence; one past the end of the
    text where there is none."""
    language: str
    """First word of the info string, in lower case and without a version (`python3.11`
    is "python"); "" if none."""
    code: str
    """The lines between the fences, without the opening fence's indentation."""
    closed: bool
    """False where the text ends before a closing fence, as where a completion was cut off."""


def inert(value: object) -> str:
    """A text with control characters escaped: terminals obey them, and HTML cannot contain them.

    Args:
        value: anything; its `str` is used.
    """
    text = str(value)
    if text.isprintable():  # most are, and this asks at the speed of C
        return text
    return "".join(
        char if char in "\n\t" or char.isprintable() else f"\\u{ord(char):04x}" for char in text
    )


def first_paragraph(text: str) -> str:
    """The first paragraph of a docstring, on one line.

    Args:
        text: of the docstring.
    """
    return " ".join(text.strip().partition("\n\n")[0].split())


def one_line(value: object) -> str:
    """The name of a file, or another text of a user, within a line: as `inert`, and line breaks and
    tabs are escaped.

    Args:
        value: anything; its `str` is used.
    """
    return inert(value).replace("\n", "\\n").replace("\t", "\\t")


def squeeze_text(text: str) -> str:
    """The text without white space and in one case: answers that agree in this count as the same
    vote.

    Args:
        text: an answer.
    """
    return "".join(text.split()).casefold()


def prompt_text(prompt: str | Sequence[Mapping[str, object]]) -> str:
    """All text of a prompt.

    Args:
        prompt: a text or chat messages, whose contents may be lists of parts.
    """
    return prompt if isinstance(prompt, str) else "\n".join(_contents(prompt))


def _contents(messages: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list | tuple):
            for part in content:
                if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                    yield part["text"]


def after_thinking(text: str) -> int | None:
    """The position, in characters, at which the part after the model's thinking begins.

        >>> after_thinking("<think>2?</think>It is 3.")
        17

    Args:
        text: a completion.

    Returns:
        The position after the last closing tag of `THINKING_TAGS`; 0 where there is none, and None
        where an opening tag follows it: the completion ended before the model had finished
        thinking.
    """
    # no tag: most texts end here
    if "<" not in text or "think" not in text or ("<think" not in text and "</think" not in text):
        return 0
    begin = max(
        (at + len(end) for _, end in THINKING_TAGS if (at := text.rfind(end)) >= 0), default=0
    )
    return None if any(text.find(start, begin) >= 0 for start, _ in THINKING_TAGS) else begin


def same_statement(between: str) -> bool:
    r"""True if two answers with this text between them belong to one statement, so that they may be
    a hedge.

        >>> same_statement(" or "), same_statement(". No, it is ")
        (True, False)

    They do if there are only signs, commands and linking words ("and", "or", "also", "either")
    between them; or words that end neither a line nor a sentence.

    Args:
        between: the text after the first answer and before the second.
    """
    if len(between) > _LONGEST_GAP:
        return False
    if "\n" not in between and not _SENTENCE_END.search(between):
        return True
    # up to the first word: a text between two answers may be long
    return not any(word[1] for word in _LINK_OR_WORD.finditer(between))


def fenced_blocks(text: str) -> Iterator[FencedBlock]:
    r"""The fenced code blocks of a text, in order, as CommonMark defines them.

        >>> [block.code for block in fenced_blocks("So:\n```python\nx = 1\n```\n")]
        ['x = 1\n']

    A block ends with a fence of the same character that is at least as long as its opening fence.
    One that is indented by four or more columns than the opening fence does not end it: it belongs
    to a docstring.  A text of more than 20,000 fences has no block.

    Args:
        text: a completion, with "\n" at the end of lines.
    """
    if not 0 < text.count("```") + text.count("~~~") <= _MOST_FENCES:
        return
    begin, indent, fence, language = -1, "", "", ""
    for line in _FENCE_LINE.finditer(text):
        line_indent, marks, info = line.groups()
        if begin < 0:
            (begin, at), indent, fence = line.span(), line_indent, marks
            language = _language(info) if info else ""
        elif marks.startswith(fence) and not (
            (line_indent and _is_deeper(line_indent, indent)) or info.strip()
        ):
            end = line.start()
            code = _dedent(text[at + 1 : end - 1], indent)
            yield FencedBlock(begin, end, language, code, closed=True)
            begin = -1
    if begin >= 0:
        code = _dedent(text[at + 1 :], indent)
        yield FencedBlock(begin, len(text) + 1, language, code, closed=False)


def _dedent(code: str, indent: str) -> str:
    """The lines of a block, which end with a line feed each, without the indent of its fence."""
    if indent:
        code = "\n".join(
            line.removeprefix(indent) if line.startswith(indent) else line.lstrip(" \t")
            for line in code.split("\n")
        )
    return code + "\n"


def _is_deeper(indent: str, opening: str) -> bool:
    """True if a fence is indented by four or more columns than its opening one."""
    return len(indent.expandtabs(4)) >= len(opening.expandtabs(4)) + 4


def _language(info: str) -> str:
    word = _INFO.match(info)
    language = word[1].lower() if word else ""
    return language.rstrip("0123456789.") or language


_WARNED_OF = re.compile(r"\\|\d[A-Za-z_]")  # what Python may warn of while it reads: "\d" and 1or
_filters_lock = threading.Lock()  # the filters of warnings are the whole process's


def python_tree(text: str, mode: Literal["eval", "exec"] = "eval") -> Any:
    """The syntax tree of a model's text, without warnings: with `python -W error` they would be
    errors, and a verdict would depend on it.

    Args:
        text: the text.
        mode: as of `ast.parse`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python.
    """
    if _WARNED_OF.search(text) is None:
        return ast.parse(text, mode=mode)
    with _filters_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode=mode)
