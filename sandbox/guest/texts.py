"""Messages of failed tests, short enough to show."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Callable
from typing import Any

__all__ = ["describe_failure", "short_repr", "shown_asserts"]

# Letters of a value in a message: enough to see where two differ.
_TEXT = 500
_SIGNS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 5
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = (
            self.maxdeque
        ) = 20
        self.maxstring = self.maxother = 200

    def repr_int(self, x: int, level: int) -> str:
        return (
            super().repr_int(x, level)
            # Its decimal digits would take seconds, and beyond 4300 of them Python raises.
            if x.bit_length() < 4000
            else f"<int of {x.bit_length()} bits>"
        )


def short_repr(value: object) -> str:
    """A short repr.

    Args:
        value: anything; an object of the program may have a repr that raises.
    """
    text = _text_of(_Brief().repr, value)
    return f"<{type(value).__name__}>" if text is None else text


def describe_failure(error: BaseException) -> tuple[str, str]:
    """The outcome, "fail" for a failed assertion and else "error", and the message.

    Args:
        error: what a test raised.
    """
    text = _text_of(str, error)
    if isinstance(error, AssertionError):
        return "fail", text or "assertion failed"
    return "error", f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(show: Callable[[Any], str], value: object) -> str | None:
    try:
        return show(value)[:_TEXT]
    # RecursionError and MemoryError of a deep value among them.
    except Exception:  # noqa: BLE001  an object of the program, whose repr or str is the program's
        return None


class _Asserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> object:
        test = node.test
        # A chain such as a < b < c would need its middle twice.
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return node
        left, right = (ast.Name(id=name, ctx=ast.Load()) for name in ("_rlvr_left", "_rlvr_right"))
        # Named within the test itself, so that each side is computed once.
        test.left = ast.NamedExpr(target=ast.Name(id=left.id, ctx=ast.Store()), value=test.left)
        test.comparators = [
            ast.NamedExpr(target=ast.Name(id=right.id, ctx=ast.Store()), value=test.comparators[0])
        ]
        sign = ast.Constant(_SIGNS[type(test.ops[0])])
        message = [node.msg] if node.msg is not None else []
        node.msg = ast.Call(
            func=ast.Name(id="_rlvr_said", ctx=ast.Load()),
            args=[left, sign, right, *message],
            keywords=[],
        )
        return node


def shown_asserts(tree: ast.Module, names: dict[str, object]) -> ast.Module:
    """The same code, but a failing `assert a == b` says what a and b were.

    Args:
        tree: the code; it is changed.
        names: the globals that it will run in; a helper function is added.
    """
    names["_rlvr_said"] = _describe_assertion
    return ast.fix_missing_locations(_Asserts().visit(tree))  # type: ignore[no-any-return]


def _describe_assertion(left: object, sign: str, right: object, message: object = None) -> str:
    text = f"{short_repr(left)} {sign} {short_repr(right)} is false"
    if message is None:
        return text
    return f"{message[:_TEXT] if isinstance(message, str) else short_repr(message)}: {text}"
