"""Cuts a folded text at separators outside of all brackets."""

from __future__ import annotations

import re

__all__ = ["brackets", "cut", "cuts", "separator"]

_BRACKETS = (
    r"(?P<open>\\begin|\\\{|\\langle|[(\[{])|(?P<close>\\end|\\\}|\\rangle|[)\]}])|\\[a-zA-Z]+"
)


def separator(pattern: str) -> re.Pattern[str]:
    """What `cut` needs to know brackets and commands from a separator; the pattern must not match a
    bracket."""
    return re.compile(rf"(?P<cut>{pattern})|{_BRACKETS}")


_ANY = separator(r"(?!)")


def cut(text: str, at: re.Pattern[str]) -> list[str]:
    """The non-empty parts between separators outside all brackets; the whole where brackets do not
    match."""
    return [part for part in cuts(text, at)[0] if part] or ([text] if text else [])


def cuts(text: str, at: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """The same with empty parts, and the separators: one fewer."""
    parts: list[str] = []
    separators: list[str] = []
    depth = start = 0
    for match in at.finditer(text):
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            # A bracket that closes what was never opened: the text is left as it is.
            if depth < 0:
                return [text], []
        elif kind == "cut" and depth == 0:
            parts.append(text[start : match.start()].strip())
            separators.append(match[0])
            start = match.end()
    if depth:
        return [text], []
    return [*parts, text[start:].strip()], separators


def brackets(text: str) -> tuple[str, str]:
    """The pair that encloses the whole text; two empty strings if none does."""
    depth, first = 0, ""
    for match in _ANY.finditer(text):
        if match.lastgroup == "open":
            if not first and match.start() > 0:
                return "", ""
            first = first or match[0]
            depth += 1
        elif match.lastgroup == "close":
            depth -= 1
            if depth <= 0:
                # \begin and \end enclose an environment, which is no bracket to take away.
                encloses = depth == 0 and match.end() == len(text) and first != r"\begin"
                return (first, match[0]) if encloses else ("", "")
    return "", ""
