"""docs/reference/borders.md names each place where any exception is caught, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "borders.md"
BROAD = {"Exception", "BaseException"}
MARKS = re.compile(r"\b(Base)?Exception\b|except:|foreign_code")


def test_each_border_stands_in_the_table():
    """A handler of all exceptions can turn a fault of ours into a reward, so each has a reason."""
    in_code = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), name)
        for top in ("rlvr", "envs", "verifiers", "sandbox", "recipes")
        for path in (ROOT / top).rglob("*.py")
        if MARKS.search(code := path.read_text(encoding="utf-8"))  # parsing takes most of the time
        for name in borders(ast.parse(code))
    }
    rows = re.findall(r"^\| ([\w.]+) \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    in_table = {(file, name) for file, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert in_code - in_table == set(), "not in the table"
    assert in_table - in_code == set(), "no longer in the code"


def test_each_kind_of_border_is_seen():
    """A tuple, a bare handler and the shared one; not a handler that raises, nor a narrow one."""
    handlers = {
        "a": "except (ValueError, Exception): pass",
        "b": "except: pass",
        "c": "except BaseException: raise",
        "d": "except ValueError: pass",
    }
    code = "".join(f"def {name}():\n try: f()\n {text}\n" for name, text in handlers.items())
    code += "async def e():\n with foreign_code() as errors: f()\n"
    code += "def f():\n with foreign_code(BaseException): f()\n"
    assert set(borders(ast.parse(code))) == {"a", "b", "e", "f"}


def borders(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The innermost function around each broad handler."""
    for node in ast.iter_child_nodes(tree):
        if is_border(node):
            yield function
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from borders(node, node.name if named else function)


def is_border(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        raises = any(isinstance(below, ast.Raise) for below in ast.walk(node))
        caught = ast.walk(node.type) if node.type else ()
        names = {name.id for name in caught if isinstance(name, ast.Name)}
        return not raises and (node.type is None or bool(names & BROAD))
    return isinstance(node, ast.withitem) and ast.unparse(node.context_expr).startswith(
        "foreign_code("
    )
