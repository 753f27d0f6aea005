"""The page of error messages: what each says, and what to do, read from the sources by `make docs`.

A message says the value, the rule and, behind a semicolon, the way out; so the page is the messages
themselves, in the order of the alphabet, with an ellipsis for each value.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ERRORS = ("UsageError", "DataError", "UnknownEnvironment", "Refused", "NonConforming", "Unscored")
HEAD = """# Error messages

Each ends a command with code 2 and one line, or is the exception that Python gets. `…` stands for a
value. Search this page for the words that you have; a message that is not here comes from a \
library.
"""


def error_page(package: Path) -> str:
    """The page, in Markdown.

    Args:
        package: folder of the package, in the layout of the wheel.
    """
    rooms: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        rooms[room] |= set(messages(path))
    lines = [HEAD]
    for room in sorted(rooms):
        if rooms[room]:
            lines += [f"## rlvr.{room}", "", "| message | what to do |", "|---|---|"]
            lines += [f"| {what} | {remedy} |" for what, remedy in sorted(rooms[room])]
            lines.append("")
    return "\n".join(lines)


def messages(path: Path) -> Iterator[tuple[str, str]]:
    """(message, what to do) of each error that a module raises.

    Args:
        path: the module.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        called = node.exc.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        texts = [template(argument) for argument in node.exc.args]
        text = max(texts, key=len, default="")
        if name in ERRORS and " " in text.replace("…", "").strip():
            what, _, remedy = text.partition("; ")
            yield cell(what), cell(remedy)


def template(node: ast.expr) -> str:
    """The text of an expression, with an ellipsis for what is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return "…"


def cell(text: str) -> str:
    """A text as a cell of a table: nothing in it is markup."""
    said = " ".join(text.split())
    for sign in "\\`*_[]<>{}|#":
        said = said.replace(sign, f"\\{sign}")
    return said
