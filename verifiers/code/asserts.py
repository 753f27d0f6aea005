"""Turns tests made of asserts into calls: one process instead of two, and a case for each assert.

    assert f([1, 2], 3) == [3]           ──▶  CallCase("f", ([1, 2], 3), {}, [3])
    assert sorted(f("ab")) == ["a"]      ──▶  CallCase("f", ("ab",), {}, ["a"], then=("sorted",))
    assert abs(f(1.5) - 0.5) < 1e-6      ──▶  CallCase("f", (1.5,), {}, 0.5, "near", tolerance=1e-6)

Loops over known values, names and pure functions of them are worked out here (`expressions`).  Only
tests whose meaning the calls keep exactly are turned into calls; any other tests run in a process
of their own, which takes longer.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from rlvr.sandbox import TestSuite
from rlvr.sandbox.guest.calls import THEN
from rlvr.sandbox.guest.values import New, NotAValue
from rlvr.sandbox.guest.writing import write
from rlvr.verifiers.code.cases import CallCase
from rlvr.verifiers.code.expressions import Expressions, NotPlain

__all__ = ["name_entry_point", "split"]

_TEXT: Final = 1 << 16  # the longest test that is taken apart, in characters
_CASES: Final = 10_000  # of one test, which a loop may make


def name_entry_point(suite: TestSuite) -> TestSuite:
    """The suite with an entry point: if none is given, the first called name that neither tests nor
    Python define.

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
    own_names = {name for tree in trees for node in ast.walk(tree) for name in _bound_names(node)}
    calls = [node.func for node in ast.walk(trees[1]) if isinstance(node, ast.Call)]
    names = [node.id for node in calls if isinstance(node, ast.Name)]
    return next(
        (name for name in names if name not in own_names and not hasattr(builtins, name)), None
    )


def _bound_names(node: ast.AST) -> list[str]:
    """The names that a node binds: by assignment, import, definition or as an argument."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.alias(asname=str() as name)
        ):
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
def _split(
    style: str, test: str, setup: str, entry_point: str | None
) -> tuple[CallCase, ...] | None:
    try:
        reader = _Reader(entry_point)
        body = ast.parse(test).body
        if style == "check":
            body = reader.body_of_check(body)
        cases = [
            case
            for statements in (ast.parse(setup).body, body)
            for case in reader.cases(statements)
        ]
        for case in cases:
            write([case.args, case.kwargs])
            # what is compared with an object of the program is not known here
            if b'{"new"' in write(case.expected):
                return None
        return tuple(cases) or None
    except (NotPlain, NotAValue, SyntaxError):
        return None
    except (
        ArithmeticError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        RecursionError,
        MemoryError,
    ):
        return None


class _Reader:
    """Reads statements, and keeps the names that the tests define themselves."""

    def __init__(self, entry_point: str | None) -> None:
        self.entry_point = entry_point
        self.foreign = {"candidate", *([] if entry_point is None else [entry_point])}
        self.expressions = Expressions(self.foreign)
        self.passed: dict[
            int, object
        ] = {}  # what the program was given and may have changed, by id

    def body_of_check(self, module: list[ast.stmt]) -> list[ast.stmt]:
        """The body of `def check(candidate):`, if the module has that and otherwise only binds
        names."""
        other_nodes = [node for node in module if not isinstance(node, ast.FunctionDef)]
        # Some files call it in their last line; the process that runs the tests does not call it
        # twice either.
        if (
            other_nodes
            and ast.unparse(other_nodes[-1]) == f"check({self.entry_point})"
            and module[-1] is other_nodes[-1]
        ):
            other_nodes.pop()
        if list(self.cases(other_nodes)):
            raise NotPlain
        match [node for node in module if isinstance(node, ast.FunctionDef)]:
            case [ast.FunctionDef(name="check", decorator_list=[], args=args, body=body)]:
                arguments = [
                    *args.posonlyargs,
                    *args.args,
                    *args.kwonlyargs,
                    args.vararg,
                    args.kwarg,
                ]
                if (
                    [arg for arg in arguments if arg] != args.args
                    or len(args.args) != 1
                    or args.defaults
                ):
                    raise NotPlain
                self.foreign.discard("candidate")
                self.foreign.add(args.args[0].arg)
                self.expressions.opaque.add("check")
                return body
        raise NotPlain

    def cases(self, statements: Iterable[ast.stmt]) -> Iterator[CallCase]:
        """The cases of some statements, which are run in order as far as they are known."""
        expressions = self.expressions
        for node in statements:
            expressions.step()
            match node:
                case ast.Assert():
                    yield from self.asserted(node.test)
                case ast.For(target=target, iter=items, body=body, orelse=[]):
                    for item in expressions.iterated(items):
                        self.bind(target, item)
                        yield from self.cases(body)
                case ast.If(test=test, body=body, orelse=other):
                    yield from self.cases(body if self.known(test) else other)
                case ast.Import(names=names) if all(_is_standard(n.name) for n in names):
                    expressions.opaque.update((n.asname or n.name).partition(".")[0] for n in names)
                case ast.ImportFrom(module=str() as module, names=names, level=0) if _is_standard(
                    module
                ):
                    expressions.opaque.update(n.asname or n.name for n in names)
                    if "*" in expressions.opaque:
                        raise NotPlain
                case ast.FunctionDef(
                    name=name, decorator_list=[], args=ast.arguments(defaults=[], kw_defaults=[])
                ):
                    expressions.opaque.add(name)
                case ast.Assign(targets=[target], value=value):
                    self.bind(target, self.known(value))
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case ast.Expr(value=ast.Name(id=name)) if hasattr(builtins, name):
                    pass
                case _:
                    raise NotPlain

    def bind(self, target: ast.expr, value: object) -> None:
        if isinstance(target, ast.Name) and target.id in self.expressions.opaque:
            raise NotPlain
        self.expressions.bind(target, value)

    def asserted(self, test: ast.expr) -> Iterator[CallCase]:
        """The case of an assertion; none for `assert True`."""
        # the assert's message may hold calls too, but is evaluated only after a failure
        match test:
            case ast.Constant(value=value) if value:
                return
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield replace(self.call(operand), rule="false")
            case ast.Compare(
                left=left,
                ops=[ast.Is()],
                comparators=[ast.Constant(value=None | True | False as value)],
            ):
                yield replace(self.call(left), rule="is", expected=value)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                called, compared = (left, right) if self.is_call(left) else (right, left)
                yield replace(self.call(called), expected=self.known(compared))
            case ast.Compare(left=left, ops=[ast.In()], comparators=[right]):
                expected = self.known(right)
                if not isinstance(expected, list | tuple):
                    raise NotPlain
                yield replace(self.call(left), rule="in", expected=expected)
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as sign], comparators=[right]):
                called, compared = self.difference(left)
                expected, tolerance = self.known(compared), self.known(right)
                if not _is_real(expected) or not _is_real(tolerance):
                    raise NotPlain
                yield replace(
                    self.call(called),
                    rule="near" if isinstance(sign, ast.Lt) else "near or at",
                    expected=expected,
                    tolerance=tolerance,
                )
            case _:
                yield replace(self.call(test), rule="true")

    def difference(self, node: ast.expr) -> tuple[ast.expr, ast.expr]:
        """The call and the number in `abs(f(x) - y)`, which `math.fabs` may stand for."""
        match node:
            case ast.Call(
                func=function, args=[ast.BinOp(left=left, op=ast.Sub(), right=right)], keywords=[]
            ):
                expressions = self.expressions
                by_name = (
                    isinstance(function, ast.Name)
                    and function.id == "abs"
                    and not self.hidden("abs")
                )
                if by_name or (
                    ast.unparse(function) == "math.fabs" and "math" in expressions.opaque
                ):
                    return (left, right) if self.is_call(left) else (right, left)
        raise NotPlain

    def call(self, node: ast.expr) -> CallCase:
        """The call of the entry point that an expression consists of, with the functions around
        it."""
        functions: list[str] = []
        while not self.is_entry(node):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in THEN:
                    if self.hidden(name):
                        raise NotPlain
                    functions.insert(0, name)
                    node = inner
                case _:
                    raise NotPlain
        assert isinstance(node, ast.Call)
        assert self.entry_point is not None
        args = tuple(map(self.known, node.args))
        kwargs = {
            keyword.arg: self.known(keyword.value) for keyword in node.keywords if keyword.arg
        }
        if len(kwargs) != len(node.keywords):  # f(**more)
            raise NotPlain
        self.passed.update((id(part), part) for part in _mutable([args, kwargs]))
        if len(self.passed) > _CASES * 10:
            raise NotPlain
        return CallCase(self.entry_point, args, kwargs, then=tuple(functions))

    def is_entry(self, node: ast.expr) -> bool:
        """True for a call of the entry point; False if the tests define that name themselves."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return (
                    name in self.foreign and not {name, self.entry_point} & self.expressions.opaque
                )
        return False

    def is_call(self, node: ast.expr) -> bool:
        """True if the entry point is called somewhere in an expression."""
        return any(isinstance(part, ast.expr) and self.is_entry(part) for part in ast.walk(node))

    def hidden(self, name: str) -> bool:
        expressions = self.expressions
        return name in self.foreign or name in expressions.opaque or name in expressions.names

    def known(self, node: ast.expr) -> Any:
        """The value of an expression in which the program has no part.

        What the program was given before, it may have changed: then its value is not known.
        """
        value = self.expressions.value(node)
        if self.passed and any(id(part) in self.passed for part in _mutable(value)):
            raise NotPlain
        return value


def _mutable(value: object) -> Iterator[object]:
    """The parts of a value that a program could change."""
    if isinstance(value, New):
        yield value
        yield from _mutable([value.args, value.kwargs, value.attributes])
    elif isinstance(value, dict):
        yield value
        yield from _mutable(list(value.values()))
    elif isinstance(value, list | set):
        yield value
        for item in value:
            yield from _mutable(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _mutable(item)


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_standard(module: str) -> bool:
    """True for modules of the standard library: importing one always works and changes nothing
    else."""
    return module.partition(".")[0] in sys.stdlib_module_names
