"""Function calls, judged by the rules of the Berkeley Function-Calling Leaderboard
(BFCL v4, "AST" categories).

The reference has, for each call, the accepted values of each argument.  Calls are read as data,
never run: as JSON, or as Python calls with literals.  Parallel calls may come in any order.  Rules
from the checker's documentation (ShishirPatil/gorilla, berkeley-function-call-leaderboard).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from rlvr.errors import DataError, brief
from rlvr.text import after_thinking, python_tree
from rlvr.types import JsonObject, Outcome, Task, Verdict
from rlvr.verifiers.answers import Form, find_answer
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.json_schema import read_strict_json
from rlvr.verifiers.matching import has_perfect_matching
from rlvr.verifiers.stated import withdraws

__all__ = ["Call", "CallsVerifier", "read_calls"]

# characters: patterns below go through the text, and Python's parser takes memory by its length
_LONGEST: Final = 20_000
# calls of a reply, and also brackets in a row: Python's parser recurses once per bracket
_MOST: Final = 50
_VALUES: Final = 10_000  # that a reference may accept: each call is compared with all of them
# possessive, and up to the next such tag: a text of a million opening tags is passed in one go
_TAGGED: Final = re.compile(r"<tool_call>([^<]*+(?:<(?!/?tool_call>)[^<]*+)*+)</tool_call>")
# "I will look it up:" and then the calls, from the beginning of a line to the end
_AFTER_PROSE: Final = re.compile(r"^`?(?:[\[{]|[A-Za-z_][\w.]*\().*\Z", re.MULTILINE | re.DOTALL)
# the names of one call in the dialects of chat APIs; any other key may be an argument put in the
# wrong place, and the call is refused
_KEYS: Final = frozenset(("name", "arguments", "parameters", "input", "args", "id", "type"))
# as Mistral, Llama, Phi and Granite write around calls
_MARKS: Final = re.compile(
    r"\A\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call\|>|functools(?=\[))|"
    r"(?:</s>|<\|eom_id\|>|<\|/tool_call\|>)\s*\Z"
)
_OTHER_TAG: Final = re.compile(r"<(/?)function_?call>")
_BARE_CALL: Final = r'<tool_call>{"name": "\1", "arguments": \2}</tool_call>'
_BARE_XML: Final = re.compile(
    r"<function=([\w.-]{1,100})>\s*(\{[^<]*+(?:<(?!/?function\b)[^<]*+)*+)</function>"
)
_DEEPSEEK: Final = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.-]{1,100})"
    r"(?:<｜tool▁sep｜>|\s*```json\b)\s*(\{[^<`]*+(?:<(?!｜)[^<`]*+)*+)"
)
# a paragraph that begins no other call and takes nothing back
_AFTERTHOUGHT: Final = re.compile(
    r"[` ]*\n\s*\n(?!(?:or|but|however|no|not|wait|actually|alternatively|otherwise|oops|sorry)\b)"
    r"[A-Z][^(\[{]*\Z",
    re.IGNORECASE,
)
# "1. f(x=1)" and "- f(x=1)": a list of calls on lines of their own
_NUMBERED: Final = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t]+(?=[A-Za-z_{])", re.MULTILINE)
# as BFCL folds texts before it compares them: "New York, NY" and "new-york ny" are one
_FOLDED: Final = re.compile(r"[ ,./\-_*^]")
# exactly these types: True is no integer; `_is_typed` lets a whole number pass for a float
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float,),
    "float": (float,),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "object": (dict,),
    "dict": (dict,),
    "any": (str,),
}


class Call(NamedTuple):
    """One call.

    Attributes:
        name: of the function, with its dots.
        arguments: by name.
        places: those without a name, in order, as Python allows; the schema names them.
    """

    name: str
    arguments: JsonObject
    places: tuple[Any, ...] = ()


@dataclass(frozen=True)
class CallsVerifier(BaseVerifier["list[Call]", "_Wanted"]):
    """Compares the calls of a completion with the calls that are asked for.

    The reference is a mapping:

        functions  the schemas that the model saw: name, parameters.properties (with their types),
                   parameters.required
        calls      a list; each maps one function to its arguments, and each argument to the
                   accepted values; "" among them means that it may be left out

    The rules: as many calls as asked for, in any order; the function's name as it is; every
    required argument, and none that the schema does not have; the type that the schema names, where
    a whole number may stand for a float, and nothing else for anything else; a value that is
    accepted.  Texts are compared without case, spaces and the signs , . / - _ * ^, and with one
    kind of quotation mark.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(
        fences=frozenset(("json", "python", "py", "tool_code", "")),
        bare=True,
        begins=r"\s*(?:[\[{]|[A-Za-z_][\w.]*\()",
        lines=True,
        longest=_LONGEST,
    )
    reference_form: ClassVar[str] = (
        "a mapping of functions, their schemas, and calls, the accepted ones"
    )
    reference_example: ClassVar[object] = {
        "functions": [
            {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            }
        ],
        "calls": [{"f": {"city": ["Lagos"]}}],
    }

    def read(self, reference: object) -> _Wanted:
        """The schemas by name, and the wanted calls.

        Args:
            reference: see the class.

        Raises:
            DataError: a call names a function or an argument that no schema has, or no call is
                asked for.
        """
        return _read_reference(reference)

    def extract(self, text: str, task: Task | None) -> list[Call] | Verdict:
        """The calls of a completion.

        Args:
            text: the completion: calls in JSON or Python, alone, marked, in one fenced block or in
                <tool_call> tags.
            task: not looked at.
        """
        return read_calls(text)

    def judge(self, answer: list[Call], reference: _Wanted) -> Verdict:
        """The verdict on calls.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        functions, expected = reference
        calls = [_with_names(call, functions) for call in answer]
        calls_text = "; ".join(f"{call.name}({', '.join(call.arguments)})" for call in calls)[:200]
        if len(calls) != len(expected):
            why = f"other-count: {len(calls)} calls, {len(expected)} are asked for"
            return Verdict(Outcome.WRONG, why=why, answer=calls_text)
        faults = [
            [_fault(call, expected_call, functions) for expected_call in expected] for call in calls
        ]
        if has_perfect_matching([[not fault for fault in row] for row in faults]):
            return Verdict(Outcome.CORRECT, why="same-calls", answer=calls_text)
        # of the first call that fits none, the fault that comes closest to a right call
        first = next((row for row in faults if all(row)), faults[0])
        return Verdict(Outcome.WRONG, why=min(filter(None, first), key=_rank), answer=calls_text)

    def example(self, reference: object) -> str:
        """The wanted calls with the first accepted value of each argument.

        Args:
            reference: see the class.
        """
        _, expected = self.read(reference)
        return _write(expected)


def _first(value: object) -> Any:
    """The value with the first accepted one of each key."""
    if isinstance(value, dict):
        return {
            key: _first(many[0] if isinstance(many, list) else many)
            for key, many in value.items()
            if not isinstance(many, list) or many[0] != ""
        }
    return [_first(item) for item in value] if isinstance(value, list) else value


def read_calls(text: str) -> list[Call] | Verdict:
    """The calls of a completion, or the verdict that says why there are none.

    Args:
        text: the completion: a JSON object `{"name": …, "arguments": {…}}` or a list of them,
            `[f(a=1), g(b="x")]`, or such objects each in <tool_call> tags, or
            `<function=f>{…}</function>`; with the marks of Mistral, Llama, Phi, Granite and
            DeepSeek around them.
    """
    begin = after_thinking(text)
    if begin is not None and len(text) - begin <= _LONGEST:
        text = _OTHER_TAG.sub(r"<\1tool_call>", _MARKS.sub("", _NUMBERED.sub("", text[begin:])))
        text, begin = _DEEPSEEK.sub(_BARE_CALL, _BARE_XML.sub(_BARE_CALL, text)), 0
    if begin is not None and "<tool_call>" in text[begin:]:
        tail = text[begin : begin + _LONGEST]
        pieces = _TAGGED.findall(tail)
        # more openings than whole calls: the last one was cut off, and the others alone would be
        # half an answer
        if _TAGGED.sub("", tail).count("<tool_call>") or len(pieces) > _MOST:
            return Verdict(Outcome.UNPARSED, why="unfinished-call")
    else:
        answer = find_answer(text, CallsVerifier.form)
        if isinstance(answer, Verdict):
            return answer
        pieces = [answer.text]
    calls_read: list[Call] = []
    for piece in pieces:
        calls = _read(piece.strip())
        # tried only where the whole could not be read: a line of JSON may begin with a bracket, too
        if isinstance(calls, str) and (start := _AFTER_PROSE.search(piece)) is not None:
            end = max(map(piece.rfind, ")}]")) + 1
            is_afterthought = _AFTERTHOUGHT.match(piece, end) and not withdraws(piece[end:])
            stop = end if is_afterthought else None
            calls = _read(piece[start.start() : stop].strip("` \n"))
        if isinstance(calls, str):
            return Verdict(Outcome.UNPARSED, why=f"no-calls: {calls}", answer=piece.strip()[:200])
        calls_read += calls
    if not calls_read:
        return Verdict(Outcome.UNPARSED, why="no-calls: an empty list")
    return calls_read


def _json_values(text: str) -> list[Any]:
    """The JSON values of a text, each on lines of its own or behind a comma or semicolon.

    Raises:
        ValueError: it is something else.
    """
    try:
        return [read_strict_json(text)]
    except ValueError:
        lines = [line.rstrip(",; ") for line in text.splitlines() if line.strip()]
        if not 1 < len(lines) <= _MOST:
            raise
        return [read_strict_json(line) for line in lines]


def _read(text: str) -> list[Call] | str:
    """Calls from JSON or Python; a text says why there are none."""
    # "[f(x=1)]" is Python, "[{" and "[]" are JSON
    if text[:1] == "{" or (text[:1] == "[" and text[1:].lstrip()[:1] in ("{", "]")):
        try:
            values = _json_values(text)
        except ValueError as error:
            return str(error)[:200]
        # the whole message of an assistant, as chat APIs give it
        if isinstance(values[0], dict) and values[0].keys() == {"tool_calls"}:
            values[0] = values[0]["tool_calls"]
        if len(values) == 1 and isinstance(values[0], list):
            [values] = values
        calls = [_from_json(value) for value in values]
    else:
        # before Python's parser sees the text: its stack is C's, and the process would end with it
        if max(map(len, re.findall(r"[(\[{]+", text)), default=0) > _MOST or text.count("\n") > 500:
            return "nested too deep"
        try:
            calls = [_from_python(expression) for expression in _unwrap_print(_expressions(text))]
        except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
            return f"{type(error).__name__}: it is neither JSON nor a list of calls with literals"
    if len(calls) > _MOST:
        return f"more than {_MOST} calls"
    return (
        [call for call in calls if call is not None] if None not in calls else "an entry is no call"
    )


def _expressions(text: str) -> list[ast.expr]:
    """The entries of a Python list, or the expressions on lines of their own."""
    try:
        tree = python_tree(text if text.startswith("[") else f"[{text}]").body
        return list(getattr(tree, "elts", ()))
    except SyntaxError:
        body = python_tree(text, "exec").body
        if not all(isinstance(statement, ast.Expr) for statement in body):
            raise
        return [statement.value for statement in body if isinstance(statement, ast.Expr)]


def _unwrap_print(expressions: list[ast.expr]) -> list[ast.expr]:
    """What is printed, where all of it is, as Gemma writes in ```tool_code."""
    match expressions:
        case [ast.Call(ast.Name("print"), [ast.Call() as call], [])]:
            return [call]
    return expressions


def _from_json(value: Any) -> Call | None:
    """Either `{"name", "arguments"}` (or "parameters"), or BFCL's `{function: {argument:
    value}}`."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict) and value.keys() <= {"type", "id", "function"}:
        value = value["function"]  # as chat APIs write them
    if isinstance(value.get("function"), str) and "name" not in value:
        value = {("name" if key == "function" else key): item for key, item in value.items()}
    if "name" in value:
        written = [
            value[key] for key in ("arguments", "parameters", "input", "args") if key in value
        ]
        # with two keys for arguments, or a key of no dialect, it is not known which ones are meant
        if len(written) != 1 or not value.keys() <= _KEYS or not isinstance(value["name"], str):
            return None
        arguments = written[0]
        # chat APIs give the arguments as JSON within a text
        if isinstance(arguments, str):
            try:
                arguments = read_strict_json(arguments)
            except ValueError:
                return None
        return Call(value["name"], arguments) if isinstance(arguments, dict) else None
    if len(value) == 1 and isinstance(next(iter(value.values())), dict):
        return Call(*next(iter(value.items())))
    return None


def _from_python(node: ast.AST) -> Call | None:
    if not isinstance(node, ast.Call) or any(
        isinstance(argument, ast.Starred) for argument in node.args
    ):
        return None
    names = [keyword.arg for keyword in node.keywords]
    # `f(**x)` has no names, and of `f(x=1, x=2)` either value might be the answer
    if None in names or len(set(names)) < len(names):
        return None
    function, path = node.func, []
    # "spotify.play(…)" is a function's whole name
    while isinstance(function, ast.Attribute):
        path.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    arguments = {
        str(keyword.arg): _plain(ast.literal_eval(keyword.value)) for keyword in node.keywords
    }
    places = tuple(_plain(ast.literal_eval(argument)) for argument in node.args)
    return Call(".".join([function.id, *reversed(path)]), arguments, places)


def _with_names(call: Call, functions: JsonObject) -> Call:
    """With the names of the schema for arguments by place; one too many keeps its place as its
    name."""
    if not call.places:
        return call
    names = list(functions.get(call.name, {}).get("properties", {}))
    placed = {
        # a place beyond the parameters, or one that is named besides, is given a name that no
        # function has: it counts as an argument too many
        names[at] if at < len(names) and names[at] not in call.arguments else f"#{at}": value
        for at, value in enumerate(call.places)
    }
    return Call(call.name, {**placed, **call.arguments})


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


_Wanted: TypeAlias = tuple[Mapping[str, Any], Sequence[tuple[str, Mapping[str, Any]]]]
"""Schemas of the functions by name, and the wanted calls."""


def _read_reference(reference: object) -> _Wanted:
    if (
        not isinstance(reference, Mapping)
        or not reference.get("functions")
        or not reference.get("calls")
    ):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a mapping with functions and calls"
        )
    try:
        read_strict_json(json.dumps(reference["calls"]))  # no NaN, no infinity
        functions = {
            function["name"]: function.get("parameters", {}) for function in reference["functions"]
        }
        expected = [one for call in reference["calls"] for [one] in [call.items()]]
        if (count := _count_values(reference["calls"])) > _VALUES:
            raise DataError(f"the reference accepts {count:,} values; {_VALUES:,} is the most")
        for name, arguments in expected:
            if name not in functions:
                raise DataError(
                    f"a call of {name!r} is asked for, and the functions are {', '.join(functions)}"
                )
            properties = functions[name].get("properties", {})
            for argument, accepted in arguments.items():
                if argument not in properties or not isinstance(accepted, list) or not accepted:
                    raise DataError(
                        f"{name} has no argument {argument!r}, or no list of accepted values for it"
                    )
                kind = properties[argument].get("type")
                if kind not in _TYPES:
                    raise DataError(
                        f"argument {argument!r} of {name} has the type {kind!r}; known: "
                        f"{', '.join(_TYPES)}"
                    )
            # a reference whose own first call is refused could be met by no answer
            if fault := _fault(_first_call(name, arguments), (name, arguments), functions):
                raise DataError(f"the call of {name} that is asked for is not accepted: {fault}")
        if isinstance(unread := read_calls(_write(expected)), Verdict):
            raise DataError(f"the calls that are asked for cannot be read: {unread.why}")
    except DataError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError, StopIteration) as error:
        raise DataError(
            f"the reference {brief(reference)} has another form: {type(error).__name__} {error}"
        ) from error
    return functions, expected


def _count_values(value: object) -> int:
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(map(_count_values, value)) if isinstance(value, list) else 1


def _first_call(name: str, arguments: JsonObject) -> Call:
    """The wanted call with the first of its accepted values."""
    first = {key: _first(values[0]) for key, values in arguments.items() if values[0] != ""}
    return Call(name, first)


def _write(expected: Sequence[tuple[str, JsonObject]]) -> str:
    """The wanted calls with the first accepted values, as an answer."""
    calls = (_first_call(*call) for call in expected)
    return json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls])


_RANKS: Final = (
    "other-value",
    "other-type",
    "missing-argument",
    "extra-argument",
    "other-function",
)


def _rank(fault: str) -> int:
    """The fault of the wanted call that comes nearest is the one to tell."""
    return _RANKS.index(fault.partition(":")[0])


def _fault(call: Call, wanted: tuple[str, JsonObject], functions: JsonObject) -> str:
    """Why a call is not the wanted one; empty if it is."""
    name, accepted = wanted
    if call.name != name:
        return f"other-function: {call.name[:80]}"
    properties, required = (
        functions[name].get("properties", {}),
        functions[name].get("required", ()),
    )
    for argument in required:
        if argument not in call.arguments:
            return f"missing-argument: {argument}"
    for argument, value in call.arguments.items():
        # an argument that the reference does not list has no accepted value, even where the schema
        # has it
        if argument not in properties or argument not in accepted:
            return f"extra-argument: {str(argument)[:80]}"
        # the type before the value: "5" for 5 is told as a wrong type
        if not _is_typed(value, properties[argument], accepted[argument]):
            return (
                f"other-type: {argument} is {type(value).__name__}, "
                f"not {properties[argument].get('type')}"
            )
        # "" as a choice stands for an omitted argument: only an empty text equals it
        if not any(
            _accepts(value, choice) for choice in accepted[argument] if choice != "" or value == ""
        ):
            return f"other-value: {argument}"
    for argument, values in accepted.items():
        if argument not in call.arguments and "" not in values:
            return f"missing-argument: {argument}"
    return ""


def _is_typed(value: object, schema: JsonObject, accepted: Sequence[object]) -> bool:
    """The type that the schema names, or that of an accepted value: BFCL has texts for names of
    variables."""
    kind = schema["type"]
    if type(value) in _TYPES[kind] or (kind in ("float", "number") and type(value) is int):
        return True
    return any(
        type(value) is type(choice) and choice != "" for choice in accepted if kind != "boolean"
    )


def _accepts(value: object, one: object) -> bool:
    if isinstance(value, bool) or isinstance(one, bool):
        return value is one
    if isinstance(value, str) and isinstance(one, str):
        return _fold_call(value) == _fold_call(one)
    if isinstance(value, list) and isinstance(one, list):
        return len(value) == len(one) and all(map(_accepts, value, one))
    if isinstance(value, dict) and isinstance(one, dict):  # each key has accepted values of its own
        return value.keys() <= one.keys() and all(
            any(
                _accepts(value[key], choice)
                for choice in choices
                if choice != "" or value[key] == ""
            )
            if key in value
            else "" in choices
            for key, choices in (
                (key, many if isinstance(many, list) else [many]) for key, many in one.items()
            )
        )
    return isinstance(value, (int, float)) and isinstance(one, (int, float)) and value == one


def _fold_call(text: str) -> str:
    return _FOLDED.sub("", text[:_LONGEST]).lower().replace("'", '"')
