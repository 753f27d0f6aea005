"""Work for tasks whose answer is a structure: JSON, function calls, roles,
grids, sudokus, expressions.

Wrong work has one place changed.  A witness is that place, or the rule that it breaks: each is
looked up in the reference by a few lines of its own, which share no code with the verifier.
"""

from __future__ import annotations

import ast
import copy
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, Final, TypeAlias

from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.types import Task
from rlvr.verifiers.calls import CallsVerifier
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.logic import ExpressionVerifier, GridVerifier, RolesVerifier, SudokuVerifier

__all__ = ["CallsWork", "ExpressionWork", "GridWork", "JSONWork", "RolesWork", "SudokuWork"]

_Edit: TypeAlias = "tuple[str, Any]"
_INSIDE: Final = re.compile(
    r"\A(.*<answer>\s*|\s*```\w*\n)(.*?)(\s*</answer>.*|\n```\s*)\Z", re.DOTALL
)
# High and wide, by the size of the grid.
_BOX_SIZES: Final = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
_MISSING: Final = object()


class _Structures(Maker):
    """Reads the example, changes a place of it, and writes it again in the example's form."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The structure in a text; ValueError if it is another.

        Args:
            text: what stands inside of the example's tags or fence.
        """

    @abstractmethod
    def write(self, value: object) -> str:
        """A structure as text.

        Args:
            value: as `parse` gives it.
        """

    @abstractmethod
    def slips(self, value: object, task: Task, rng: Random) -> Iterator[_Edit]:
        """Structures with one place changed, each with the operator.

        Args:
            value, task, rng: the right one, its task, and what draws.
        """

    @abstractmethod
    def breach(self, value: object, task: Task) -> tuple[str, str, str] | None:
        """The place that is wrong, what it must be and what it is; None where all is right.

        Args:
            value, task: the structure and its task.
        """

    def twins(self, value: object, rng: Random) -> Iterator[_Edit]:
        """Texts that say the same, each with the operator.

        Args:
            value, rng: the right structure, and what draws.
        """
        yield from ()

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        before, value, after = self._read(task)
        slips = list(self.slips(value, task, rng))
        rng.shuffle(slips)
        for operator, changed in slips:
            yield Work(before + self.write(changed) + after, operator)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        yield Work(self.example(task), "example")
        before, value, after = self._read(task)
        for operator, text in self.twins(value, rng):
            yield Work(before + text + after, operator)

    def witness(self, task: Task, work: Work) -> Witness | None:
        match = _INSIDE.match(work.text)
        try:
            value = self.parse(match[2] if match else work.text)
        except ValueError:
            return None
        breach = self.breach(value, task)
        return None if breach is None else Witness(*breach)

    def _read(self, task: Task) -> tuple[str, Any, str]:
        text = self.example(task)
        match = _INSIDE.match(text)
        before, inside, after = match.groups() if match else ("", text, "")
        try:
            return before, self.parse(inside), after
        except ValueError as error:
            raise Untested(f"its example cannot be read: {error}") from None


@serves(JSONVerifier)
class JSONWork(_Structures):
    """A value changed, left out, or there twice."""

    def parse(self, text: str) -> object:
        return json.loads(text)

    def write(self, value: Any) -> str:
        return json.dumps(value)

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        for path, leaf in list(_leaves(value)):
            for other_leaf in _other_values(leaf):
                yield "value", _with(value, path, other_leaf)
            if path:
                yield "dropped", _with(value, path, _MISSING)

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        yield "indented", json.dumps(value, indent=2)
        yield "keys reordered", json.dumps(_reverse_keys(value))

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        reference = task.reference
        expected_values = {"": reference["whole"]} if "whole" in reference else reference["values"]
        for pointer, expected in expected_values.items():
            # Only the places that the reference names count.
            got = _at(value, pointer)
            if _plain(got) != _plain(expected):
                return pointer or "the document", _brief(expected), _brief(got)
        return None


@serves(CallsVerifier)
class CallsWork(JSONWork):
    """An argument changed or left out, another function, a call too few or too many."""

    def parse(self, text: str) -> Any:
        calls = json.loads(text)
        if not isinstance(calls, list):
            raise ValueError("no list of calls")
        return calls

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        names = [function["name"] for function in task.reference["functions"]]
        for at, call in enumerate(value):
            yield "dropped call", value[:at] + value[at + 1 :]
            yield "doubled call", [*value, call]
            for name in names:
                if name != call["name"]:
                    yield "function", [*value[:at], {**call, "name": name}, *value[at + 1 :]]
            for argument, argument_value in call["arguments"].items():
                for other_value in _other_values(argument_value):
                    arguments = {**call["arguments"], argument: other_value}
                    changed = {**call, "arguments": arguments}
                    yield "value", [*value[:at], changed, *value[at + 1 :]]

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        yield from super().twins(value, rng)
        yield "calls reordered", json.dumps(value[::-1])

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        expected_calls = [
            (name, accepted) for call in task.reference["calls"] for name, accepted in call.items()
        ]
        names, got_names = (
            Counter(name for name, _ in expected_calls),
            Counter(call["name"] for call in value),
        )
        # The functions first: with others the arguments mean nothing.
        if names != got_names:
            return "the functions", _brief(dict(names)), _brief(dict(got_names))
        for call in value:
            candidates = [accepted for name, accepted in expected_calls if name == call["name"]]
            for argument, argument_value in call["arguments"].items():
                accepted = [
                    alternative
                    for candidate in candidates
                    for alternative in candidate.get(argument, ())
                ]
                # An argument without accepted values may be left out or free.
                if accepted and all(
                    _letters(argument_value) != _letters(alternative) for alternative in accepted
                ):
                    return f"{call['name']}.{argument}", _brief(accepted), _brief(argument_value)
        return None


@serves(RolesVerifier)
class RolesWork(_Structures):
    """A role exchanged for another."""

    def parse(self, text: str) -> Any:
        pairs = [tuple(part.split(": ")) for part in re.split(r", |\n", text)]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("no pairs of name and role")
        return pairs

    def write(self, value: Any) -> str:
        return ", ".join(f"{name}: {role}" for name, role in value)

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        roles = sorted({role for _, role in value} | {"knight", "knave"})
        for at, (name, role) in enumerate(value):
            for other_role in roles:
                if other_role != role:
                    yield "role", [*value[:at], (name, other_role), *value[at + 1 :]]
        if len(set(value)) > 1:
            turned = dict(zip(("knight", "knave"), ("knave", "knight"), strict=True))
            yield "all roles", [(name, turned.get(role, role)) for name, role in value]

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        yield "reordered", self.write(value[::-1])
        yield "lines", "\n".join(f"{name}: {role}" for name, role in value)

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        for name, role in value:
            expected_role = task.reference.get(name)
            if expected_role is not None and expected_role != role:
                return name, expected_role, role
        return None


@serves(GridVerifier)
class GridWork(_Structures):
    """Two cells of a column, or two rows, exchanged."""

    def parse(self, text: str) -> object:
        return [
            re.split(r"[,|] *", line.strip("| ")) for line in text.replace(" |", "|").split("\n")
        ]

    def write(self, value: Any) -> str:
        return "\n".join(", ".join(row) for row in value)

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        for row in range(len(value)):
            for other_row in range(row):
                rows = copy.deepcopy(value)
                rows[row], rows[other_row] = rows[other_row], rows[row]
                yield "rows exchanged", rows
                for column in range(len(value[0])):
                    cells = copy.deepcopy(value)
                    cells[row][column], cells[other_row][column] = (
                        value[other_row][column],
                        value[row][column],
                    )
                    yield "cells exchanged", cells
                    copied = copy.deepcopy(value)
                    copied[row][column] = value[other_row][column]
                    yield "cell copied", copied

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        # A table in Markdown, which says the same.
        yield "table", "\n".join(f"| {' | '.join(row)} |" for row in value)

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        for number, (row, expected_row) in enumerate(zip(value, task.reference, strict=False), 1):
            for cell, right in zip(row, expected_row, strict=False):
                if cell != right:
                    return f"line {number}", right, cell
        return None


@serves(SudokuVerifier)
class SudokuWork(_Structures):
    """A digit changed, two digits of a row exchanged."""

    def parse(self, text: str) -> Any:
        return [[int(digit) for digit in re.sub(r"\s", "", line)] for line in text.split("\n")]

    def write(self, value: Any) -> str:
        return "\n".join(" ".join(map(str, row)) for row in value)

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        size = len(value)
        for _ in range(4 * size):
            row, first, second = rng.randrange(size), *rng.sample(range(size), 2)
            changed, exchanged = copy.deepcopy(value), copy.deepcopy(value)
            # The next digit, and after the last the first.
            changed[row][first] = value[row][first] % size + 1
            exchanged[row][first], exchanged[row][second] = value[row][second], value[row][first]
            yield "digit", changed
            yield "exchanged", exchanged

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        yield "without spaces", "\n".join("".join(map(str, row)) for row in value)

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        size = len(task.reference)
        if [len(row) for row in value] != [size] * size:
            return "its shape", f"{size} rows of {size} digits", f"{len(value)} rows"
        high, wide = _BOX_SIZES[size]
        for at, (row, clues) in enumerate(zip(value, task.reference, strict=False)):
            for digit, clue in zip(row, clues, strict=False):
                # A given digit that was changed comes before units, as it is plainest.
                if clue not in (0, digit):
                    return f"row {at + 1}", f"the given {clue}", str(digit)
        places = [(row, column) for row in range(size) for column in range(size)]
        units: dict[str, list[int]] = {}
        for row, column in places:
            names = (
                f"row {row + 1}",
                f"column {column + 1}",
                f"box {row // high},{column // wide}",
            )
            for name in names:
                units.setdefault(name, []).append(value[row][column])
        for name, digits in units.items():
            # Fewer kinds of digits than places: one is there twice.
            if len(set(digits)) < size:
                return name, "each digit once", " ".join(map(str, digits))
        return None


@serves(ExpressionVerifier)
class ExpressionWork(_Structures):
    """Another operator or number, or a part left out."""

    def parse(self, text: str) -> Any:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(str(error)) from None

    def write(self, value: Any) -> str:
        return ast.unparse(value)

    def slips(self, value: Any, task: Task, rng: Random) -> Iterator[_Edit]:
        operators = (ast.Add(), ast.Sub(), ast.Mult(), ast.Div())
        numbers = task.reference["numbers"]
        for at, node in enumerate(ast.walk(value)):
            changes: list[tuple[str, str, object]] = []
            if isinstance(node, ast.BinOp):
                changes += [
                    ("operator", "op", op) for op in operators if type(op) is not type(node.op)
                ]
            elif isinstance(node, ast.Constant) and isinstance(node.value, int):
                # Another given number, or one more.
                other_numbers = {*numbers, node.value + 1} - {node.value}
                changes += [("number", "value", number) for number in sorted(other_numbers)]
            for operator, field, new in changes:
                changed = copy.deepcopy(value)
                setattr(list(ast.walk(changed))[at], field, new)
                yield operator, changed
        if isinstance(value, ast.BinOp):
            yield from (("dropped operand", value.left), ("dropped operand", value.right))

    def twins(self, value: Any, rng: Random) -> Iterator[_Edit]:
        turned = copy.deepcopy(value)
        for node in ast.walk(turned):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
                node.left, node.right = node.right, node.left
        yield "operands turned", ast.unparse(turned)
        yield "with its value", f"{ast.unparse(value)} = {_value(value)}"

    def breach(self, value: Any, task: Task) -> tuple[str, str, str] | None:
        reference = task.reference
        used = Counter(node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
        numbers = Counter(reference["numbers"])
        try:
            result: object = _value(value)
        except ZeroDivisionError:
            result = "a division by zero"
        if result != reference["target"]:
            return "its value", str(reference["target"]), str(result)
        # More of a number than is given, or not all where all must be used.
        if used - numbers or (reference.get("all") and used != numbers):
            return (
                "its numbers",
                _brief(sorted(numbers.elements())),
                _brief(sorted(used.elements())),
            )
        return None


def _value(node: ast.AST) -> Fraction:
    match node:
        case ast.Constant(value=int() as number):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            left_value, right_value = _value(left), _value(right)
            match op:
                case ast.Add():
                    return left_value + right_value
                case ast.Sub():
                    return left_value - right_value
                case ast.Mult():
                    return left_value * right_value
                case ast.Div():
                    return left_value / right_value
    raise ValueError(f"no sum of whole numbers: {ast.unparse(node)}")


# ----------------------------------------------------------------------------------- values of JSON


def _leaves(
    value: object, path: tuple[object, ...] = ()
) -> Iterator[tuple[tuple[object, ...], object]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield from _leaves(item, (*path, at))
    else:
        yield path, value


def _other_values(value: object) -> Iterator[object]:
    """Values of the same type that are clearly others."""
    match value:
        case bool():
            yield not value
        case int():
            # Two others each: a step away, and of the other sign.
            yield from (value + 1, -value - 1)
        case float():
            yield from (value + 1, -value - 1)
        case str():
            yield from (f"{value}x", value[:-1] or "y")
        case list():
            yield from (value[:-1], [*value, *value[:1]]) if value else ([0],)


def _with(value: Any, path: Sequence[object], new: Any) -> object:
    """A copy with another value at a path, or without it."""
    if not path:
        return new
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if new is _MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return changed


def _reverse_keys(value: object) -> object:
    """The same objects with their keys in the opposite order."""
    if isinstance(value, dict):
        return {key: _reverse_keys(value[key]) for key in reversed(value)}
    return [_reverse_keys(item) for item in value] if isinstance(value, list) else value


def _at(value: object, pointer: str) -> object:
    """What a JSON pointer (RFC 6901) leads to; `_MISSING` where nothing is."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return _MISSING
    return value


def _plain(value: object) -> object:
    """A value that compares as JSON does: true is not 1."""
    # Sorted keys, and 1.0 as 1.
    return "missing" if value is _MISSING else json.dumps(_normalize_numbers(value), sort_keys=True)


def _normalize_numbers(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normalize_numbers(item) for key, item in value.items()}
    return [_normalize_numbers(item) for item in value] if isinstance(value, list) else value


def _letters(value: Any) -> object:
    """A text without case and signs; other values as they are."""
    if isinstance(value, str):
        return re.sub(r"[\W_]", "", value).casefold()
    return _plain(value)


def _brief(value: Any) -> str:
    return "nothing" if value is _MISSING else str(value)[:200]
