"""How models write calls of tools: one reader for each wire format, text in, `PolicyTurn` out.

Which one a model uses is told by its chat template, see `rlvr.samplers.tokenization`.  A reader
never raises.  A call that is begun and cannot be read comes with its fault, which the model is
told; text that begins no call is the answer.  Calls inside of a model's thinking are none.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from rlvr.episode import Ask, PolicyTurn
from rlvr.text import python_tree
from rlvr.types import JsonObject

__all__ = ["CallFormat", "FORMATS", "read_arguments", "read_json", "read_turn_of"]

CallFormat: TypeAlias = Callable[[str, Sequence[Mapping[str, Any]]], PolicyTurn]
"""(what the policy wrote, the schemas of the tools) → the turn."""

_LONGEST: Final = 1 << 20  # characters of a turn that are read for calls
_MOST: Final = 256  # calls of a turn that are read; more than that are one fault
# `ast` takes up to 600 bytes of memory for each character of nested literals.
_LONGEST_PYTHON: Final = 50_000
_DEEPEST: Final = 40  # of nested brackets in Python and in Gemma's arguments
_UNREADABLE: Final = (ValueError, RecursionError, MemoryError)


class _FaultError(Exception):
    """What is wrong with a call, as the model is told."""


def read_json(text: str, start: int = 0) -> tuple[object, int]:
    """The JSON value that begins at a place, and where it ends.

    Args:
        text: with the value.
        start: where it begins, or white space before it.

    Raises:
        ValueError: there is none.
    """
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        value, stop = _JSON.raw_decode(text, start)
    except _UNREADABLE as error:
        reason = (
            error.msg
            if isinstance(error, json.JSONDecodeError)
            else "a number or a nesting that is too long"
        )
        raise ValueError(str(error) if "is no JSON" in str(error) else reason) from None
    return value, stop


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# models write line breaks into strings
_JSON: Final = json.JSONDecoder(strict=False, parse_constant=_no_constant)


def read_arguments(text: Any) -> tuple[dict[str, object], str]:
    """Arguments from JSON, and what is wrong with them; "" for nothing.

    Args:
        text: a JSON object.
    """
    try:
        value, stop = read_json(text)
        if text[stop:].strip():
            raise ValueError("text after the object")
    except (TypeError, ValueError) as error:
        return {}, f"the arguments are no JSON: {error}"
    return (value, "") if isinstance(value, dict) else ({}, "the arguments are no JSON object")


def read_turn_of(name: str, text: str, schemas: Sequence[Mapping[str, object]] = ()) -> PolicyTurn:
    """A turn of the policy, read in one of `FORMATS`.

    Args:
        name: of the format.
        text: what the policy wrote, with the special tokens that the format needs.
        schemas: of the tools, for formats whose arguments are texts of any type.
    """
    return FORMATS[name](text, schemas)


def _end_of_thinking(text: str, opening: str) -> int | None:
    """Where the part after the thinking begins; None if the thinking has no end.

    The first closing tag counts, and only before the first call: an argument may hold such a tag.
    """
    end = text.find("</think>")
    first = text.find(opening)
    if text.lstrip().startswith("<think>"):
        return None if end < 0 else end + len("</think>")
    return end + len("</think>") if 0 <= end < first else 0


# --------------------------------------------------------------------------------------------- tags


def _read_tagged(text: str, read: Callable[[str, int], tuple[Ask, int]]) -> PolicyTurn:
    """Calls in <tool_call> tags, each read by a function of (text, place), which gives the call and
    where it ends."""
    begin = _end_of_thinking(text, "<tool_call>")
    if begin is None:
        return PolicyTurn(text)
    texts, calls, at = [text[:begin]], list[Ask](), begin
    while (tag := text.find("<tool_call>", at)) >= 0:
        texts.append(text[at:tag])
        if len(calls) == _MOST or tag > _LONGEST:
            calls.append(
                Ask("", fault=f"more than {_MOST} calls in one turn, or a turn that is too long")
            )
            at = len(text)
            break
        inside = tag + len("<tool_call>")
        try:
            call, stop = read(text, inside)
            close = re.compile(r"\s*</tool_call>").match(text, stop)
            if close is None:
                raise _FaultError("the call does not end with </tool_call>")
            at = close.end()
        except _FaultError as fault:
            call = Ask("", fault=str(fault))
            close_at = text.find("</tool_call>", inside)
            at = len(text) if close_at < 0 else close_at + len("</tool_call>")
        calls.append(call)
    texts.append(text[at:])
    return PolicyTurn("".join(texts).strip() if calls else text, tuple(calls))


def _hermes(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Hermes, Qwen 2.5, Qwen 3: <tool_call>{"name": …, "arguments": {…}}</tool_call>."""

    def read(text: str, at: int) -> tuple[Ask, int]:
        try:
            value, stop = read_json(text, at)
        except ValueError as error:
            raise _FaultError(f"the call is no JSON: {error}") from None
        return _ask(value), stop

    return _read_tagged(text, read)


def _qwen_xml(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Qwen 3 Coder, Qwen 3.5:
    <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>."""
    opened, parameter = (
        re.compile(r"\s*<function=([^<>\s]+)>"),
        re.compile(r"\s*<parameter=([^<>\s]+)>\n?"),
    )
    closed = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))")
    last = re.compile(r"\s*</function>")

    def read(text: str, at: int) -> tuple[Ask, int]:
        function = opened.match(text, at)
        if function is None:
            raise _FaultError("the call has no <function=NAME>")
        arguments: dict[str, object] = {}
        at = function.end()
        while (begun := parameter.match(text, at)) is not None:
            end = closed.search(text, begun.end())
            if end is None:
                raise _FaultError(f"the parameter {begun[1]!r} does not end with </parameter>")
            arguments[begun[1]] = _read_untyped(
                text[begun.end() : end.start()], _schema(schemas, function[1], begun[1])
            )
            at = end.end()
        end = last.match(text, at)
        if end is None:
            raise _FaultError("the call does not end with </function>")
        return Ask(function[1], arguments), end.end()

    return _read_tagged(text, read)


def _schema(schemas: Sequence[JsonObject], name: str, parameter: str) -> JsonObject:
    """The schema of a tool's parameter; empty if there is none."""
    for schema in schemas:
        function = schema.get("function", schema)
        if function.get("name") == name:
            schema_of_parameter = (
                function.get("parameters", {}).get("properties", {}).get(parameter, {})
            )
            return schema_of_parameter if isinstance(schema_of_parameter, Mapping) else {}
    return {}


def _read_untyped(text: str, schema: Mapping[str, object]) -> object:
    """A value that was written without its type: JSON unless the schema says that it is a text."""
    if schema.get("type") == "string":
        return text
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        value, stop = read_json(text)
    except ValueError:
        return text
    return text if text[stop:].strip() else value


def _ask(value: Any) -> Ask:
    """A call from its JSON object."""
    if not isinstance(value, dict):
        raise _FaultError("the call is no JSON object")
    value = value.get("function") if isinstance(value.get("function"), dict) else value
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise _FaultError('the call has no "name"')
    arguments = value.get("arguments", value.get("parameters", {}))
    named = value.get("id")
    if isinstance(arguments, str):
        arguments, fault = read_arguments(arguments)
        return Ask(name, arguments, fault)
    if not isinstance(arguments, dict):
        return Ask(name, fault="the arguments are no JSON object")
    return Ask(name, arguments, id=named if isinstance(named, str) else "")


# -------------------------------------------------------------------------- the whole turn is calls


def _llama(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Llama 3.1: the turn is {"name": …, "parameters": {…}}, or several with ; between them."""
    body = text.removeprefix("<|python_tag|>").strip()
    tagged = len(body) != len(text.strip())
    if not tagged and not re.compile(r'\{\s*"(name|type|function)"\s*:').match(body):
        return PolicyTurn(text)
    calls: list[Ask] = []
    at = 0
    while at < len(body) and len(calls) < _MOST:
        try:
            value, at = read_json(body, at)
            calls.append(_ask(value))
        except (ValueError, _FaultError) as error:
            calls.append(Ask("", fault=f"the call cannot be read: {error}"))
            break
        remaining = body[at:].lstrip()
        if remaining and remaining[0] != ";":
            calls.append(Ask("", fault="text after the call"))
            break
        at = len(body) - len(remaining) + 1 if remaining else len(body)
    return PolicyTurn("", tuple(calls))


def _mistral(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Mistral: [TOOL_CALLS] [{"name": …, "arguments": {…}, "id": …}], or
    [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{…} each."""
    text_before, *pieces = text.split("[TOOL_CALLS]", _MOST)
    if not pieces:
        return PolicyTurn(text)
    calls: list[Ask] = []
    for piece in pieces:
        if piece.lstrip().startswith(("[", "{")):
            try:
                value, stop = read_json(piece)
                if piece[stop:].strip():
                    raise ValueError("text after the calls")
                calls += [
                    _ask(item) for item in (value if isinstance(value, list) else [value])[:_MOST]
                ]
            except (ValueError, _FaultError) as error:
                calls.append(Ask("", fault=f"the calls cannot be read: {error}"))
            continue
        head, marker, body = piece.partition("[ARGS]")
        if not marker:  # without a marker, the object follows the name
            head, brace, body = piece.partition("{")
            body = brace + body
        name, _, call_id = head.partition("[CALL_ID]")
        arguments, fault = read_arguments(body)
        calls.append(Ask(name.strip(), arguments, fault, call_id.strip()))
    return PolicyTurn(text_before.strip(), tuple(calls))


def _pythonic(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Llama 3.2, Llama 4: the turn is [f(a=1), g(b="x")], with literals."""
    body = text.removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if not re.compile(r"\[\s*[A-Za-z_][\w.]*\(").match(body):
        return PolicyTurn(text)
    if len(body) > _LONGEST_PYTHON or _depth(body) > _DEEPEST:
        return PolicyTurn("", (Ask("", fault="the calls are too long or too deeply nested"),))
    try:
        tree = python_tree(body).body
        if not isinstance(tree, ast.List) or len(tree.elts) > _MOST:
            raise ValueError("they are no list of calls")
        return PolicyTurn("", tuple(map(_python_call, tree.elts)))
    except (SyntaxError, *_UNREADABLE) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        return PolicyTurn(
            "", (Ask("", fault=f"the calls are no list of Python calls with literals: {reason}"),)
        )


def _python_call(node: ast.expr) -> Ask:
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        raise ValueError("an entry is no call")
    name = ast.unparse(node.func)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return Ask(name, fault="arguments must have names, as in f(a=1)")
    return Ask(
        name,
        {
            str(keyword.arg): _plain(ast.literal_eval(_with_json_words(keyword.value)))
            for keyword in node.keywords
        },
    )


class _JSONWords(ast.NodeTransformer):
    """Models that learned from JSON write true, false and null."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = {"true": True, "false": False, "null": None}
        return ast.copy_location(ast.Constant(words[node.id]), node) if node.id in words else node


def _with_json_words(node: ast.expr) -> ast.expr:
    changed: ast.expr = _JSONWords().visit(node)
    return changed


def _plain(value: object) -> object:
    """A literal as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if (
        value is None
        or isinstance(value, (str, bool, int))
        or (isinstance(value, float) and value - value == 0)
    ):
        return value
    raise ValueError(f"a {type(value).__name__} cannot be an argument")


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return max(deepest, len(re.findall(r"[-+~]{20}", text)) * _DEEPEST)


# ----------------------------------------------------------------------------------------- channels


def _harmony(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """gpt-oss: messages with channels; a call is one to functions.NAME, the answer is in the
    channel "final"."""
    calls: list[Ask] = []
    answers: list[str] = []
    recipient = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
    for piece in text[:_LONGEST].split("<|start|>")[:_MOST]:
        head, marker, body = piece.partition("<|message|>")
        if not marker:
            continue
        body = re.split(r"<\|(?:end|call|return)\|>", body, maxsplit=1)[0]
        named = recipient.search(head)
        if named:
            calls.append(Ask(named[1], *read_arguments(body)))
        elif "<|channel|>final" in head:
            answers.append(body)
    if not calls and "<|message|>" not in text:
        return PolicyTurn(text)
    return PolicyTurn("\n".join(answers), tuple(calls))


def _gemma(text: str, schemas: Sequence[Mapping[str, object]]) -> PolicyTurn:
    """Gemma 4: <|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>."""
    calls: list[Ask] = []
    begin = text.rfind("<channel|>") + len("<channel|>") if "<channel|>" in text else 0
    if not begin and "<|channel>" in text:
        return PolicyTurn(text)  # it has not ended its thinking
    text_before, *pieces = text[begin:].split("<|tool_call>", _MOST)
    if not pieces:
        return PolicyTurn(text)
    for piece in pieces:
        body = piece.partition("<|tool_response>")[0]
        named = re.compile(r"call:([^\s{<]+)").match(body)
        try:
            if named is None:
                raise ValueError("it does not begin with call:NAME{")
            value, stop = _gemma_value(body, named.end(), 0)
            remaining = body[stop:].removeprefix("<tool_call|>")
            if not isinstance(value, dict) or len(remaining) == len(body) - stop:
                raise ValueError("it does not end with }<tool_call|>")
            text_before += remaining
            calls.append(Ask(named[1], value))
        except ValueError as error:
            calls.append(Ask(named[1] if named else "", fault=f"the call cannot be read: {error}"))
    return PolicyTurn((text[:begin] + text_before).strip(), tuple(calls))


_QUOTE: Final = '<|"|>'
_BARE: Final = re.compile(r"[^,{}\[\]<]+")


def _gemma_value(text: str, at: int, depth: int) -> tuple[object, int]:
    """A value, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("too deeply nested")
    if text.startswith(_QUOTE, at):
        end = text.find(_QUOTE, at + len(_QUOTE))
        if end < 0:
            raise ValueError(f"a text does not end with {_QUOTE}")
        return text[at + len(_QUOTE) : end], end + len(_QUOTE)
    if text[at : at + 1] in ("{", "["):
        return _gemma_items(text, at + 1, depth, named=text[at] == "{")
    bare = _BARE.match(text, at)
    if bare is None:
        raise ValueError("a value is missing")
    word = bare[0].strip()
    if word in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[word], bare.end()
    value, stop = read_json(word)
    if stop != len(word):
        raise ValueError(f"{word[:20]!r} is no value")
    return value, bare.end()


def _gemma_items(text: str, at: int, depth: int, *, named: bool) -> tuple[object, int]:
    """The entries of an object or a list, and where it ends."""
    end, entries = ("}" if named else "]"), list[tuple[str, Any]]()
    while not text.startswith(end, at):
        key = ""
        if named:
            stop = text.find(":", at)
            if stop < 0:
                raise ValueError("a key has no value")
            key, at = text[at:stop].strip().removeprefix(_QUOTE).removesuffix(_QUOTE), stop + 1
        value, at = _gemma_value(text, at, depth + 1)
        entries.append((key, value))
        if text.startswith(",", at):
            at += 1
        elif not text.startswith(end, at):
            raise ValueError(f"{end} is missing")
    return (dict(entries) if named else [value for _, value in entries]), at + 1


FORMATS: Final[Mapping[str, CallFormat]] = {
    "hermes": _hermes,
    "qwen-xml": _qwen_xml,
    "llama": _llama,
    "mistral": _mistral,
    "pythonic": _pythonic,
    "harmony": _harmony,
    "gemma": _gemma,
}
"""The wire formats, by name.  A template's format is the first that reads back
what the template writes."""
