"""Turns tests made of plain asserts into calls: one process instead of two, and a case for each assert.

    assert f([1, 2], 3) == [3]        ──▶   CallCase("f", ([1, 2], 3), {}, [3])

Only tests whose meaning the calls keep exactly: every statement is an assert about one call with literal arguments, or
does nothing.  Any other tests run in a process of their own, which is as exact and takes longer.
"""

from __future__ import annotations

import ast
import builtins
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

from rlvr.sandbox import TestSuite
from rlvr.verifiers.code.cases import CallCase

__all__ = ["named", "split"]

_TEXT = 1 << 16  # the longest test that is taken apart, in characters
_LONGEST = 1 << 16  # the greatest size of an operand: expressions such as "ab" * 1000 are evaluated here
_CONSTRUCTORS: Final = {"dict": dict, "float": float, "frozenset": frozenset, "list": list, "set": set, "tuple": tuple}
_OPERATIONS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class _NotPlainError(Exception):
    """The tests are not of a form that can be turned into calls."""


def named(suite: TestSuite) -> TestSuite:
    """The suite with an entry point: if none is given, the first called name that neither tests nor Python define.

    Args:
        suite: of asserts; any other is returned as it is.
    """
    if suite.style != "asserts" or suite.entry_point is not None or len(suite.test) > _TEXT:
        return suite
    return replace(suite, entry_point=_first_called(suite.test, suite.setup))


@lru_cache(maxsize=512)
def _first_called(test: str, setup: str) -> str | None:
    try:
        trees = ast.parse(setup), ast.parse(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the process that runs the tests reports the error
    own = {name for tree in trees for node in ast.walk(tree) for name in _given(node)}
    calls = [node.func for node in ast.walk(trees[1]) if isinstance(node, ast.Call)]
    names = [node.id for node in calls if isinstance(node, ast.Name)]
    return next((name for name in names if name not in own and not hasattr(builtins, name)), None)


def _given(node: ast.AST) -> list[str]:
    """The names that a node binds: by assignment, import, definition or as an argument."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.alias(asname=str() as name):
            return [name]
        case ast.alias(name=name):
            return [name.partition(".")[0]]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
    return []


def split(suite: TestSuite) -> tuple[CallCase, ...] | None:
    """The calls that are equivalent to a suite of asserts; None if the suite has to run as it is.

    Args:
        suite: in style "asserts" or "check"; any other gives None.
    """
    if suite.style not in ("asserts", "check") or len(suite.test) > _TEXT:
        return None
    return _split(suite.style, suite.test, suite.setup, suite.entry_point)


@lru_cache(maxsize=512)
def _split(style: str, test: str, setup: str, entry_point: str | None) -> tuple[CallCase, ...] | None:
    try:
        reader = _Reader(entry_point)
        reader.bind(ast.parse(setup).body)
        body = ast.parse(test).body
        if style == "check":
            body = reader.body_of_check(body)
        reader.bind(node for node in body if not isinstance(node, ast.Assert))
        return tuple(case for node in body if isinstance(node, ast.Assert) for case in reader.cases(node)) or None
    except (_NotPlainError, SyntaxError, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    """Reads asserts, and keeps the names that the tests define themselves."""

    def __init__(self, entry_point: str | None) -> None:
        self.entry_point = entry_point
        self.candidate = "candidate"  # what the tests call it
        self.bound: set[str] = set()

    def bind(self, statements: Iterable[ast.stmt]) -> None:
        """Read statements that only bind names, or do nothing."""
        for node in statements:
            match node:
                case ast.Import(names=names) if all(_is_standard(n.name) for n in names):
                    self.bound.update((n.asname or n.name).partition(".")[0] for n in names)
                case ast.ImportFrom(module=str() as module, names=names, level=0) if _is_standard(module):
                    self.bound.update(n.asname or n.name for n in names)
                    if "*" in self.bound:
                        raise _NotPlainError
                case ast.FunctionDef(name=name, decorator_list=[], args=ast.arguments(defaults=[], kw_defaults=[])):
                    self.bound.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.value(value)
                    self.bound.add(name)
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise _NotPlainError

    def body_of_check(self, module: list[ast.stmt]) -> list[ast.stmt]:
        """The body of `def check(candidate):`, if the module has that and otherwise only binds names."""
        rest = [node for node in module if not isinstance(node, ast.FunctionDef)]
        # Some files call it in their last line; the process that runs the tests does not call it twice either.
        if rest and ast.unparse(rest[-1]) == f"check({self.entry_point})" and module[-1] is rest[-1]:
            rest.pop()
        self.bind(rest)
        match [node for node in module if isinstance(node, ast.FunctionDef)]:
            case [ast.FunctionDef(name="check", decorator_list=[], args=args, body=body)]:
                given = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
                if [arg for arg in given if arg] != args.args or len(args.args) != 1 or args.defaults:
                    raise _NotPlainError
                self.candidate = args.args[0].arg
                self.bound.add("check")
                return body
        raise _NotPlainError

    def cases(self, node: ast.Assert) -> Iterator[CallCase]:
        """The case of `assert f(x)`, `not f(x)`, `f(x) == y`, `y == f(x)` or `f(x) is None`; none for `assert True`."""
        match node.test:  # the assert's message may hold calls too, but is evaluated only after a failure
            case ast.Constant(value=value) if value:
                return
            case ast.Call() as call:
                yield self.call(call, "true")
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
                yield self.call(call, "false")
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None | True | False as value)]):
                yield self.call(left, "is", value)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                called, other = (left, right) if self.is_call(left) else (right, left)
                yield self.call(called, "equal", self.value(other))
            case _:
                raise _NotPlainError

    def call(self, node: ast.expr, rule: Literal["equal", "is", "true", "false"], expected: Any = None) -> CallCase:
        if not isinstance(node, ast.Call) or not self.is_call(node) or not isinstance(node.func, ast.Name):
            raise _NotPlainError
        assert self.entry_point is not None
        kwargs = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        if len(kwargs) != len(node.keywords):  # f(**more)
            raise _NotPlainError
        return CallCase(self.entry_point, tuple(map(self.value, node.args)), kwargs, expected, rule)

    def is_call(self, node: ast.expr) -> bool:
        """True for a call of the entry point; False if the tests define that name themselves."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in (self.entry_point, self.candidate) and not self.bound & {name, self.entry_point}
        return False

    def value(self, node: ast.expr) -> Any:
        """The value of a literal, of an expression such as `3 * 5`, or of a constructor call such as `set([1])`."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=items):
                return tuple(map(self.value, items))
            case ast.List(elts=items):
                return list(map(self.value, items))
            case ast.Set(elts=items):
                return set(map(self.value, items))
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {self.value(k): self.value(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self.value(operand)
                return -value if isinstance(sign, ast.USub) else +value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return _evaluated(type(op), self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CONSTRUCTORS and len(args) < 2:
                if name not in self.bound and name not in (self.entry_point, self.candidate):
                    return _CONSTRUCTORS[name](*map(self.value, args))
        raise _NotPlainError


def _is_standard(module: str) -> bool:
    """True for modules of the standard library: importing one always works and changes nothing else."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _evaluated(op: type[ast.operator], left: Any, right: Any) -> Any:
    """The result of an operation on operands of bounded size, since powers and repeated sequences may grow large."""
    for value in (left, right):
        size = len(value) if isinstance(value, str | bytes | list | tuple) else value
        if isinstance(size, bool) or not isinstance(size, int | float | complex) or not abs(size) <= _LONGEST:
            raise _NotPlainError
    if op is ast.Mod and not isinstance(left, int | float):  # a text's own formatting
        raise _NotPlainError
    if op is ast.Pow and not (isinstance(right, int) and 0 <= right <= 32):
        raise _NotPlainError
    return _OPERATIONS[op](left, right)
