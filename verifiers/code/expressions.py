"""Values of the expressions in tests that hold nothing but literals, names of such
values and pure functions.

Evaluated here, in the judge's process, by Python's own operators on bounded operands: what is
larger, or has any other form, is left to the process that runs tests.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from rlvr.sandbox.guest.suite_run import STANDARD_NAMES
from rlvr.sandbox.guest.values import New
from rlvr.types import JsonDict

__all__ = ["Expressions", "NotPlain"]

# items of a sequence, and the greatest operand of `**` and of a repetition
_LONGEST: Final = 1 << 16
_LARGEST: Final = 1 << 64  # of an operand of `+ - * / // %`
_STEPS: Final = 100_000  # in one test
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        abs,
        bool,
        bytes,
        chr,
        dict,
        enumerate,
        float,
        frozenset,
        int,
        len,
        list,
        max,
        min,
        ord,
        range,
        reversed,
        set,
        sorted,
        str,
        sum,
        tuple,
        zip,
    )
}
_TYPES: Final = (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
_MATH: Final = frozenset("pi e tau inf nan sqrt floor ceil fabs".split())
_OPERATIONS: Final[dict[type[ast.operator], Callable[[Any, Any], object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: Final[dict[type[ast.unaryop], Callable[[Any], object]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


class NotPlain(Exception):
    """The tests are not of a form that can be turned into calls."""


class Expressions:
    """Evaluates expressions.

    Args:
        foreign: names that mean the program's, whatever Python calls so.

    Attributes:
        names: names that the tests gave values to.
        opaque: names that the tests define in another way; they have no value here.
    """

    def __init__(self, foreign: set[str]) -> None:
        self.foreign = foreign
        self.names: JsonDict = {}
        self.opaque: set[str] = set()
        self._steps = _STEPS

    def step(self, count: int = 1) -> None:
        """Take some steps.

        Args:
            count: how many.

        Raises:
            NotPlain: they are too many.
        """
        self._steps -= count
        if self._steps < 0:
            raise NotPlain

    def value(self, node: ast.expr) -> Any:
        """The value of an expression.

        Args:
            node: the expression.

        Raises:
            NotPlain: it is of another form, or too large.
        """
        self.step()
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name, ctx=ast.Load()):
                return self._value_of_name(name)
            case ast.Tuple(elts=items):
                return tuple(map(self.value, items))
            case ast.List(elts=items):
                return list(map(self.value, items))
            case ast.Set(elts=items):
                return set(map(self.value, items))
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {
                    self.value(k): self.value(v)
                    for k, v in zip(keys, values, strict=True)
                    if k is not None
                }
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
                return _SIGNS[type(op)](self._data(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return self._require_small(
                    _evaluate_operation(type(op), self._data(left), self._data(right))
                )
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                return _COMPARISONS[type(op)](self._data(left), self._data(right))
            case ast.BoolOp(op=op, values=values):
                return self._choice(isinstance(op, ast.Or), values)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.value(body if self._data(test) else other)
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                parts = [
                    None if part is None else self.value(part) for part in (lower, upper, step)
                ]
                return self._data(value)[slice(*parts)]
            case ast.Subscript(value=value, slice=key):
                return self._data(value)[self._data(key)]
            case ast.ListComp(elt=elt, generators=generators):
                return list(self._items(elt, generators))
            case ast.GeneratorExp(elt=elt, generators=generators):
                return list(self._items(elt, generators))
            case ast.SetComp(elt=elt, generators=generators):
                return set(self._items(elt, generators))
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if (
                name in _MATH and "math" in self.opaque
            ):
                return getattr(math, name)
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._value_of_call(func, args, keywords)
        raise NotPlain

    def _value_of_name(self, name: str) -> object:
        if name in self.names:
            return self.names[name]
        kind = _FUNCTIONS.get(name)
        if kind in _TYPES and not self._hidden(name):
            return kind
        raise NotPlain

    def _hidden(self, name: str) -> bool:
        """True if a name does not mean what Python means by it."""
        return name in self.foreign or name in self.opaque or name in self.names

    def _data(self, node: ast.expr) -> Any:
        value = self.value(node)
        if isinstance(value, New):
            raise NotPlain
        return value

    def _require_small(self, value: object) -> object:
        if isinstance(value, str | bytes | list | tuple | set | frozenset | dict | range):
            self.step(len(value))
        return value

    def _choice(self, wanted: bool, values: list[ast.expr]) -> object:
        for node in values[:-1]:
            value = self._data(node)
            if bool(value) == wanted:
                return value
        return self._data(values[-1])

    def _value_of_call(
        self, func: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> object:
        values = [self.value(arg) for arg in args]
        named_values = {
            keyword.arg: self.value(keyword.value) for keyword in keywords if keyword.arg
        }
        if len(named_values) != len(keywords):  # f(**more)
            raise NotPlain
        match func:
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if (
                name in _MATH and "math" in self.opaque
            ):
                return getattr(math, name)(*values)
            case ast.Name(id=name) if name in _FUNCTIONS and not self._hidden(name):
                for value in values:
                    self._require_small(value)
                if name == "range" and (not values or len(range(*values)) > _LONGEST):
                    raise NotPlain
                if named_values.keys() - {"reverse", "start", "strict"} or any(
                    isinstance(value, New) for value in values
                ):
                    raise NotPlain
                if (
                    name in ("int", "float")
                    and isinstance(values[0] if values else 0, str)
                    and len(values[0]) > 1000
                ):
                    raise NotPlain
                if name == "sum" and not all(isinstance(item, int | float) for item in values[0]):
                    raise NotPlain
                if name in ("list", "tuple", "set", "frozenset", "sorted", "bytes") and any(
                    map(callable, values)
                ):
                    raise NotPlain
                if name == "bytes" and not all(isinstance(value, list) for value in values):
                    raise NotPlain
                value = _FUNCTIONS[name](*values, **named_values)
                return (
                    list(value)
                    if name in ("enumerate", "reversed", "zip")
                    else self._require_small(value)
                )
            case ast.Name(id=name) if name[:1].isupper() and not self._hidden(name):
                # or tests mean Python's own
                if not hasattr(builtins, name) and name not in STANDARD_NAMES:
                    return New(name, values, named_values)
        raise NotPlain

    def _items(self, elt: ast.expr, generators: list[ast.comprehension]) -> Iterator[object]:
        if not generators:
            yield self.value(elt)
            return
        first, *later = generators
        if first.is_async:
            raise NotPlain
        before = dict(self.names)
        for item in self.iterated(first.iter):
            self.bind(first.target, item)
            if all(self._data(test) for test in first.ifs):
                yield from self._items(elt, later)
        self.names = before

    def iterated(self, node: ast.expr) -> list[object]:
        """The items of an expression.

        Args:
            node: the expression.

        Raises:
            NotPlain: it has none, or too many.
        """
        value = self._data(node)
        if not isinstance(value, str | bytes | list | tuple | set | frozenset | dict | range):
            raise NotPlain
        self.step(len(value))
        return list(value)

    def bind(self, target: ast.expr, value: object) -> None:
        """Give a name, or the names of a tuple, a value.

        Args:
            target: what is assigned to.
            value: the value.

        Raises:
            NotPlain: it is another target, or the name means the program's.
        """
        match target:
            case ast.Name(id=name) if name not in self.foreign:
                self.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, list | tuple):
                if len(parts) != len(value):
                    raise NotPlain
                for part, item in zip(parts, value, strict=True):
                    self.bind(part, item)
            case (
                ast.Attribute(value=ast.Name(id=_) as owner, attr=name)
                | ast.Attribute(value=ast.Attribute() as owner, attr=name)
            ):
                self._make_object(owner).attributes[name] = value
            case _:
                raise NotPlain

    def _make_object(self, node: ast.expr) -> New:
        """The object that an expression such as `root.left` means."""
        match node:
            case ast.Name(id=name) if isinstance(self.names.get(name), New):
                return self.names[name]  # type: ignore[no-any-return]
            case ast.Attribute(value=owner, attr=name):
                attribute = self._make_object(owner).attributes.get(name)
                if isinstance(attribute, New):
                    return attribute
        raise NotPlain


def _evaluate_operation(op: type[ast.operator], left: Any, right: Any) -> object:
    """The result of an operation on operands of bounded size, since powers and repeated sequences
    may grow large."""
    repeated = isinstance(left, str | bytes | list | tuple) or isinstance(
        right, str | bytes | list | tuple
    )
    largest = _LONGEST if repeated or op is ast.Pow else _LARGEST
    for value in (left, right):
        size = len(value) if isinstance(value, str | bytes | list | tuple) else value
        if (
            isinstance(size, bool)
            or not isinstance(size, int | float | complex)
            or not abs(size) <= largest
        ):
            raise NotPlain
    if op is ast.Mod and not isinstance(left, int | float):  # a text's own formatting
        raise NotPlain
    if op is ast.Mult and repeated and isinstance(left, int) != isinstance(right, int):
        number, items = (left, right) if isinstance(left, int) else (right, left)
        if number * len(items) > _LONGEST:
            raise NotPlain
    if op is ast.Pow and not (isinstance(right, int) and 0 <= right <= 32):
        raise NotPlain
    return _OPERATIONS[op](left, right)
