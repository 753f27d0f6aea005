"""Rewards as text: `2*correct - 1 + 0.2*format('<think>...</think>') + overlong(20480, 4096)`.

Python's parser reads the text and nothing evaluates it: the operations, names and methods are those
below, and anything else is an error that names its place.  The result is what the same expression
gives in Python.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from rlvr.errors import RlvrError, UsageError, brief
from rlvr.rewards.composition import Correct, GroupPart, Part, Reward
from rlvr.rewards.parts import (
    Format,
    Language,
    Length,
    Majority,
    Overlong,
    RelativeLength,
    Repetition,
)
from rlvr.validate import nearest

__all__ = ["PARTS", "parse_reward"]

PARTS: Final[Mapping[str, type[Reward]]] = {
    "format": Format,
    "language": Language,
    "length": Length,
    "majority": Majority,
    "overlong": Overlong,
    "relative_length": RelativeLength,
    "repetition": Repetition,
}
"""The ready-made parts by the names that an expression has for them."""

_OWN: Final = ("correct", "reward")
_METHODS: Final = ("gate", "clip")
_MAY_HAVE: Final = "numbers, texts, + - *, parentheses, parts, .gate(by=…), .clip(low, high)"
# Far beyond what is written by hand, and below what Python's own parser can be made to fail at.
_LONGEST, _DEEPEST = 4000, 100
_PLACE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<place>[\w.~/-]+:[^\W\d]\w*)""")
_ESCAPE = re.compile(r"""\\(?:[\\nt'"]|(?P<other>.))""", re.DOTALL)
_OPERATIONS: Final[Mapping[type[ast.AST], Callable[..., object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def parse_reward(text: str, *, own: Reward, load: Callable[[str], object]) -> Reward:
    """The reward that an expression describes.

    Args:
        text: numbers, `+`, `-`, `*`, parentheses, `a.gate(by=b)`, `a.clip(low, high)`, and parts:
            `correct`, the environment's verdict; `reward`, its whole reward; a name of `PARTS`; or
            `path/to/file.py:Name`, a part of one's own.  A part without arguments needs no
            parentheses.
        own: the environment's reward.
        load: gives what stands at a place such as `path/to/file.py:Name`.

    Raises:
        UsageError: the text is no such expression, or a part refuses its arguments; it names the
            character.
    """
    return _Reader(text, own, load).read()


class _Reader:
    """Reads one expression.  Arguments as for `parse_reward`."""

    def __init__(self, text: str, own: Reward, load: Callable[[str], Any]) -> None:
        if not isinstance(text, str):
            raise UsageError(f"reward is {brief(text)}; give an expression as text")
        # One blank for each white-space character, line ends too: ast.parse takes
        # it as one line, and `col_offset` counts from the begin of the text.
        self._text = re.sub(r"\s", " ", text).strip()
        self._own, self._load = own, load
        self._places: dict[str, str] = {}

    def read(self) -> Reward:
        """The reward."""
        if not self._text:
            self._fail(0, "it is empty; write correct, or another part")
        if len(self._text) > _LONGEST:
            self._fail(
                _LONGEST, f"it has {len(self._text)} characters; at most {_LONGEST} are read"
            )
        reward = self._value(self._tree(), 0)
        if not isinstance(reward, Reward):
            self._fail(0, f"{brief(reward)} alone is no reward; write correct, or another part")
        return reward

    def _tree(self) -> ast.expr:
        """The expression as a tree, in which names as long stand for the places of parts."""
        marked = _PLACE.sub(self._mark, self._text)
        try:
            return ast.parse(marked, mode="eval").body
        except SyntaxError as error:
            self._fail(
                (error.offset or len(self._text)) - 1, f"this is no expression ({error.msg})"
            )
        except (ValueError, MemoryError, RecursionError) as error:
            self._fail(0, f"this cannot be read ({str(error) or 'it is nested too deep'})")

    def _mark(self, match: re.Match[str]) -> str:
        place = match["place"]
        # The pattern also matches quoted texts, so that
        # a colon inside of one is not taken for a place.
        if place is None:
            return match[0]
        # As long as the place it stands for, so that the
        # parser's columns are those of the user's text.
        name = f"_{len(self._places)}".ljust(len(place), "_")
        self._places[name] = place
        return name

    def _value(self, node: ast.AST, depth: int) -> object:
        """What a part of the tree stands for."""
        if depth > _DEEPEST:
            self._fail_at(node, f"it is nested deeper than {_DEEPEST} levels")
        match node:
            case ast.BinOp(op=op) if type(op) in _OPERATIONS:
                left, right = self._value(node.left, depth + 1), self._value(node.right, depth + 1)
                return self._apply(node, _OPERATIONS[type(op)], left, right)
            case ast.UnaryOp(op=op) if type(op) in _OPERATIONS:
                return self._apply(
                    node, _OPERATIONS[type(op)], self._value(node.operand, depth + 1)
                )
            case ast.Constant(value=value) if isinstance(value, (int, float, str)) or value is None:
                return self._literal(node, value)
            case ast.Tuple() | ast.List():
                values = [self._value(element, depth + 1) for element in node.elts]
                return values if isinstance(node, ast.List) else tuple(values)
            case ast.Name():
                return self._part(node)
            case ast.Call(func=ast.Attribute()):
                return self._method(node, depth)
            case ast.Call(func=ast.Name() as name):
                return self._part(name, node, depth)
        return self._fail_at(node, f"this is none of what an expression may have: {_MAY_HAVE}")

    def _literal(self, node: ast.Constant, value: object) -> object:
        written = ast.get_source_segment(self._text, node) or ""
        # A text with a prefix, such as r'…', is taken as it is written.
        if isinstance(value, str) and written[:1] in "'\"":
            wrong = next((match for match in _ESCAPE.finditer(written) if match["other"]), None)
            if wrong is not None:
                self._fail_at(
                    node, f"in a text, {wrong[0]} is no backslash; double it, or write r{written}"
                )
        return value

    def _part(self, name: ast.Name, call: ast.Call | None = None, depth: int = 0) -> Reward:
        """A part: `correct`, `reward`, a ready-made one, or one's own."""
        place = self._places.get(name.id)
        if place is None and name.id not in (*_OWN, *PARTS):
            part_names = (*_OWN, *PARTS)
            self._fail_at(
                name,
                f"there is no part {name.id!r}; the parts are {', '.join(part_names)}, or "
                f"path/to/file.py:Name" + nearest(name.id, part_names),
            )
        args, options = ([], {}) if call is None else self._arguments(call, depth)
        if name.id in _OWN:
            if call is not None:
                self._fail_at(name, f"{name.id} is the environment's own and takes no arguments")
            return self._own if name.id == "reward" else self._own.primary or Correct()
        kind = PARTS[name.id] if place is None else self._load_part(name, place)
        if isinstance(kind, Reward):
            if call is not None:
                self._fail_at(name, f"{place} is a reward already and takes no arguments")
            return kind
        part = self._apply(call or name, kind, *args, **options)
        assert isinstance(part, Reward)
        return part

    def _load_part(self, name: ast.Name, place: str) -> type[Reward] | Reward:
        try:
            loaded = self._load(place)
        except RlvrError as error:
            self._fail_at(name, str(error))
        is_part = isinstance(loaded, type) and issubclass(loaded, (Part, GroupPart))
        if not is_part and not isinstance(loaded, Reward):
            self._fail_at(name, f"{place} is {brief(loaded)}; a part is a class on rlvr.Part")
        kind: type[Reward] | Reward = loaded
        return kind

    def _method(self, node: ast.Call, depth: int) -> Reward:
        """`a.gate(by=b)` or `a.clip(low, high)`."""
        called = node.func
        assert isinstance(called, ast.Attribute)
        of = self._value(called.value, depth + 1)
        if called.attr not in _METHODS or not isinstance(of, Reward):
            self._fail_at(node, f"a reward has {' and '.join(_METHODS)}, not {called.attr!r}")
        args, options = self._arguments(node, depth)
        changed = self._apply(node, getattr(of, called.attr), *args, **options)
        assert isinstance(changed, Reward)
        return changed

    def _arguments(self, call: ast.Call, depth: int) -> tuple[list[object], dict[str, object]]:
        options = {}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in options:
                self._fail_at(keyword, "arguments are values, or NAME=VALUE with each name once")
            options[keyword.arg] = self._value(keyword.value, depth + 1)
        return [self._value(argument, depth + 1) for argument in call.args], options

    def _apply(
        self, node: ast.AST, what: Callable[..., object], *args: object, **options: Any
    ) -> object:
        """What an operation or a part makes of values, with its error at this place of the text."""
        # A class is a part to be made; everything else is an operation or a method of a reward.
        if isinstance(what, type):
            self._require_arguments(node, what, args, options)
        elif not any(
            isinstance(operand, Reward) for operand in (*args, getattr(what, "__self__", None))
        ):
            self._require_numbers(node, args)
        try:
            return what(*args, **options)
        except (UsageError, TypeError, OverflowError) as error:
            self._fail_at(node, str(error))

    def _require_arguments(
        self, node: ast.AST, kind: type, args: tuple[object, ...], options: Mapping[str, Any]
    ) -> None:
        signature = inspect.signature(kind)
        try:
            # Bound before the call, so that a TypeError from
            # inside of the part is not taken for wrong arguments.
            signature.bind(*args, **options)
        except TypeError as error:
            names = ", ".join(map(str, signature.parameters.values())) or "no arguments"
            self._fail_at(node, f"{error}; {kind.__name__} takes {names}")

    def _require_numbers(self, node: ast.AST, values: tuple[Any, ...]) -> None:
        for value in values:
            # Without this Python's own rules would hold: True + 1 is 2, and 3 * 'a' is 'aaa'.
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                self._fail_at(node, f"{brief(value)} is neither a number nor a part")

    def _fail_at(self, node: ast.AST, why: str) -> NoReturn:
        before = self._text.encode()[: getattr(node, "col_offset", 0)]  # offsets count bytes
        self._fail(len(before.decode(errors="replace")), why)

    def _fail(self, at: int, why: str) -> NoReturn:
        raise UsageError(f"reward {self._text[:60]!r}, character {at + 1}: {why}") from None
