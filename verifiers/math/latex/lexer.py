r"""Folded text → tokens, in one linear pass.

2x^{10} \le \sin\theta  →  2 · x · ^ · { · 10 · } · \le · \sin · \theta
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rlvr.verifiers.math.latex.names import FUNCTIONS, PLAIN
from rlvr.verifiers.math.latex.tree import TooLarge, Unreadable

__all__ = ["END", "Kind", "Token", "tokens"]

Kind = Literal["number", "letter", "command", "sign", "words", "end"]

_MOST_TOKENS = 2000

# The order matters: names before letters, or `sin` would be s·i·n; `Var` and `Cov` are names only
# before a bracket.
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>\d+(?:\.\d*)?|\.\d+|\.(?=\\(?:overline|overbar|bar|dot)(?![a-zA-Z])))"
    rf"|(?P<name>(?:{'|'.join(PLAIN)}|(?:Var|Cov)(?=\s?[(\[])))"
    r"|(?P<letter>[A-Za-z])"
    r"|(?P<command>\\(?:[a-zA-Z]+|[{}|\\;,]))"
    r'|(?P<words>"[^"]*")'
    r"|(?P<sign><=|>=|!=|==|[-+*/^_!'()\[\]{}|,;:=<>&%.∛])"
)
# 1,234,567.5 but not 1,2345: groups of three digits, and no digit or comma behind.
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?")
_SPELLED = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "==": "=", "∛": r"\cbrt"}
# `\operatorname{Var}` names a function of events and no word.
_OF_EVENTS = frozenset(("Var", "Cov", "Pr"))


@dataclass(frozen=True, slots=True)
class Token:
    """`spaced`: white space stands before it."""

    kind: Kind
    text: str
    spaced: bool = False


END = Token("end", "")
"""What stands behind the last token."""


def tokens(text: str) -> list[Token]:
    """All tokens, and one that ends them.

    Raises:
        Unreadable: a character that no mathematics uses here.
        TooLarge: more than _MOST_TOKENS.
    """
    all_tokens: list[Token] = []
    at, spaced, depth = 0, False, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable(f"{text[at]!r} has no meaning here")
        kind = match.lastgroup or ""
        if kind == "number" and depth == 0:  # inside brackets a comma separates
            match = _GROUPED.match(text, at) or match
        at = match.end()
        if kind != "space":
            all_tokens.append(_token(kind, match[0], spaced))
            depth += (match[0] in "([{") - (match[0] in ")]}")
            if len(all_tokens) > _MOST_TOKENS:
                raise TooLarge(f"more than {_MOST_TOKENS} signs")
        spaced = kind == "space"
    return [*all_tokens, END]


def _token(kind: str, text: str, spaced: bool) -> Token:
    if kind == "number":
        return Token("number", text.replace(",", ""), spaced)
    if kind == "name":
        return Token("command", "\\" + text, spaced)
    if kind == "words":
        words = text.strip('"').strip()  # \\operatorname{arctg} has become a word too
        is_function = words in FUNCTIONS or words in _OF_EVENTS
        return (
            Token("command", "\\" + words, spaced)
            if is_function
            else Token("words", words.lower(), spaced)
        )
    if kind == "letter":
        return Token("letter", text, spaced)
    sign = _SPELLED.get(text, text)
    return Token("command" if sign[0] == "\\" else "sign", sign, spaced)
