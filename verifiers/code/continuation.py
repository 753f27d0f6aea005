"""Python code that continues a prompt, as base models write it: where does the function end?

Before the first statement at the left edge, outside of strings and brackets, as in Python itself.
What follows (asserts, prints, other functions, prose) is not part of the answer.  The usual stop
sequences, such as "\\ndef" and "\\nprint", cut there too, but some of them also at a comment at the
left edge, which does not end a function.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["continue_prompt", "cut_at_top_level", "precede"]

_INDENT: Final = "    "
_FUTURE = re.compile(
    r"^from[ \t]+__future__[ \t]+import[ \t]*+(?:\([^)]*+\)|[^\n]++)(?:\n|\Z)", re.MULTILINE
)
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
    """The text before its first statement at the left edge; all of it if there is none.

    Args:
        text: Python code that continues a function.
    """
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
    """True if a line begins here that is neither blank nor indented nor a comment."""
    return at < len(text) and text[at] not in " \t\r\n\f#"


def continue_prompt(prompt: str, code: str) -> str:
    """The prompt and the function's body after it.

    If the body lost its indentation, or that of its first line as by `strip`, it is indented again.

    Args:
        prompt: ends with a function's head and docstring.
        code: the function's body.
    """
    lines = [line for line in code.split("\n") if line.strip()][:2]
    if lines and not lines[0][0].isspace():
        opens, indent = lines[0].rstrip().endswith((":", "(", "[", "{")), 0
        if len(lines) > 1:
            indent = len(lines[1]) - len(lines[1].lstrip())
        if len(lines) == 1 or indent == 0 or (opens and indent <= len(_INDENT)):
            code = "".join(
                _INDENT + line if line.strip() else line for line in code.splitlines(keepends=True)
            )
        else:
            code = cut_at_top_level(_INDENT + code.lstrip("\n"))
    return f"{prompt}{'' if prompt.endswith(chr(10)) else chr(10)}{code}"


def precede(imports: str, code: str) -> str:
    """The code with imports before it, but after its own `from __future__` lines, which have to
    come first.

    Args:
        imports: Python code.
        code: the program.
    """
    end = max((match.end() for match in _FUTURE.finditer(code)), default=0)
    return f"{code[:end]}{imports}\n{code[end:]}"
