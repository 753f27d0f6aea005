"""Python code that goes on where a prompt stops, as base models write it: where does the function end?

By Python's own rule: with the first statement that stands at the left edge, outside of strings and brackets.  What
follows (asserts, prints, other functions, prose) is not part of the answer.  The usual stop sequences, "\\ndef",
"\\nprint" and so on, cut there too; and also at a comment at the left edge, which ends no function.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["continued", "cut_at_top_level", "preceded"]

_INDENT: Final = "    "
_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t]*+(?:\([^)]*+\)|[^\n]++)(?:\n|\Z)", re.MULTILINE)
# Strings that are never closed end with their line, or for triple quotes with the text.
_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\\?\Z)'''
    r"""|\'\'\'(?:[^'\\]|\\.|'(?!''))*+(?:\'\'\'|\\?\Z)"""
    r"""|"(?:[^"\\\n]|\\.)*+"?"""
    r"""|'(?:[^'\\\n]|\\.)*+'?"""
    r"|\#[^\n]*|\\\n|[()\[\]{}]|\n",
    re.DOTALL,
)


def cut_at_top_level(text: str) -> str:
    """The text up to its first statement at the left edge; all of it if there is none."""
    if _is_statement(text, 0):
        return ""
    depth = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth = max(0, depth - 1)
        elif sign == "\n" and depth == 0 and _is_statement(text, token.end()):
            return text[: token.end()]
    return text


def _is_statement(text: str, at: int) -> bool:
    """Does a line that is neither blank, indented, nor a comment begin here?"""
    return at < len(text) and text[at] not in " \t\r\n\f#"


def continued(prompt: str, code: str) -> str:
    """The prompt, which ends in a function's head and docstring, with the function's body.

    A body that lost its first line's indentation to a `strip`, or all of it, gets it back.
    """
    lines = [line for line in code.split("\n") if line.strip()][:2]
    if lines and not lines[0][0].isspace():
        opens, indent = lines[0].rstrip().endswith((":", "(", "[", "{")), 0
        if len(lines) > 1:
            indent = len(lines[1]) - len(lines[1].lstrip())
        if len(lines) == 1 or indent == 0 or (opens and indent <= len(_INDENT)):
            code = "".join(_INDENT + line if line.strip() else line for line in code.splitlines(keepends=True))
        else:
            code = cut_at_top_level(_INDENT + code.lstrip("\n"))
    return f"{prompt}{'' if prompt.endswith(chr(10)) else chr(10)}{code}"


def preceded(imports: str, code: str) -> str:
    """The code after some more imports; but its `from __future__` has to come first."""
    end = max((found.end() for found in _FUTURE.finditer(code)), default=0)
    return f"{code[:end]}{imports}\n{code[end:]}"
