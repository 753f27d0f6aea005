"""Tools that a policy calls: a name, a JSON schema from a Python signature and
docstring, and a function.

    class Desk(rlvr.Environment):
        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            '''Add two numbers.

            Args:
                x: the first number.
                y: the second number.
            '''
            return str(x + y)

What a model did wrong in a call is told to it; see `rlvr.ToolError` and `Tool.fault`.
"""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import (
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import docstring_parser

from rlvr.errors import UsageError, brief
from rlvr.types import JsonDict, JsonObject, is_async

__all__ = [
    "Tool",
    "by_name",
    "clean",
    "declared_tools",
    "schema_of",
    "text_of",
    "tool",
    "tools_of",
    "unrecordable",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_MARK: Final = "_rlvr_tool"
_SCALARS: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
_NAMES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
# As for the functions of OpenAI's interface, which other endpoints follow.
_LONGEST_NAME: Final = 64
_DEEPEST: Final = 64  # of nested lists and objects in arguments
_MOST_BITS: Final = 14_280  # Python writes no number of more than 4,300 digits

# Of a method's first argument: then its author left out the state.
_PLAIN_STATES: Final = (str, int, float, bool, "str", "int", "float", "bool")


@dataclass(frozen=True)
class Tool:
    """Something that a policy can call.

    Attributes:
        name: that the policy calls it by.
        description: for the policy; "" for none.
        parameters: JSON schema of the arguments, an object.
        function: takes the arguments by name and gives the reply: a text, or what JSON can hold.
            May be async.
        checked: False where `function` itself says what is wrong with arguments, as a server does.
        parallel: calls of it in one turn run side by side, with those of other such tools beside
            them: plain functions in threads of their own, async ones in the episode's loop.
            Replies come in the order of the calls.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    checked: bool = True
    parallel: bool = False

    def __post_init__(self) -> None:
        well = (
            self.name.replace("-", "_").replace(".", "_").isidentifier()
            and len(self.name) <= _LONGEST_NAME
        )
        if not well:
            raise UsageError(
                f"a tool is named {self.name!r}; a name has at most {_LONGEST_NAME} letters, "
                f"digits, '_', '-' and '.'"
            )

    @property
    def schema(self) -> JsonDict:
        """The schema as chat templates and OpenAI's API take it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}

    @property
    def is_async(self) -> bool:
        """True if `function` is awaited."""
        return is_async(self.function)

    def fault(self, arguments: Mapping[str, object]) -> str:
        """What is wrong with arguments, as the model is told; "" for nothing.

        Args:
            arguments: by name.
        """
        properties: JsonObject = self.parameters.get("properties", {})
        names = ", ".join(properties) or "none"
        for name in arguments:
            if name not in properties:
                return f"{self.name} has no argument {name[:50]!r}; it has {names}"
        for name in self.parameters.get("required", ()):
            if name not in arguments:
                return f"{self.name} lacks the argument {name!r}; it has {names}"
        for name, value in arguments.items():
            if not _fits(value, properties[name]):
                rule = _describe_schema(properties[name])
                return f"the argument {name!r} of {self.name} is {brief(value)}; it must be {rule}"
        return ""


@overload
def tool(function: _F, /) -> _F: ...


@overload
def tool(
    *, name: str = "", description: str = "", parallel: bool = False
) -> Callable[[_F], _F]: ...


def tool(
    function: object = None, /, *, name: str = "", description: str = "", parallel: bool = False
) -> Any:
    """Make a method of an `Environment` a tool.  Its schema comes from its signature and docstring.

    The method's first argument is the episode's state; the others have annotations: str, int,
    float, bool, Literal, list, dict, None and unions of these, or Any.  It is plain or async.

    Args:
        function: the method.
        name: that the policy calls it by; "" for the method's own.
        description: for the policy; "" for the docstring's.
        parallel: see `Tool`; for tools that do not change the state.

    Raises:
        UsageError: no schema can be made.
    """
    if function is None:
        return partial(tool, name=name, description=description, parallel=parallel)
    if not inspect.isfunction(function):
        raise UsageError(
            f"@tool stands above {brief(function)}; it is for a method, def or async def"
        )
    schema = schema_of(function, skip=2, name=name, description=description, parallel=parallel)
    setattr(function, _MARK, schema)
    return function


def schema_of(
    function: Callable[..., object],
    *,
    skip: int = 0,
    name: str = "",
    description: str = "",
    checked: bool = True,
    parallel: bool = False,
) -> Tool:
    """A tool from a function.

    Args:
        function: to be called.
        skip: number of its first arguments that the policy does not give.
        name: that the policy calls it by; "" for the function's own.
        description: for the policy; "" for the docstring's.
        checked, parallel: see `Tool`.

    Raises:
        UsageError: no schema can be made.
    """
    named = name or getattr(function, "__name__", "")
    where = f"the tool {named!r}"
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    descriptions = {parameter.arg_name: parameter.description or "" for parameter in parsed.params}
    arguments = list(inspect.signature(function).parameters.values())
    if len(arguments) < skip:
        raise UsageError(
            f"{where} takes {len(arguments)} arguments; a tool of an environment takes (self, "
            "state, …)"
        )
    if skip and arguments[skip - 1].annotation in _PLAIN_STATES:
        raise UsageError(
            f"{where}: its argument {arguments[skip - 1].name!r} would be the episode's state; a "
            "tool of an environment takes (self, state, …)"
        )
    hints_given = {
        # Annotations of self and state are left out: they may name what is not importable.
        parameter.name: parameter.annotation
        for parameter in arguments[skip:]
        if parameter.annotation is not parameter.empty
    }
    try:
        hints = get_type_hints(
            types.SimpleNamespace(__annotations__=hints_given), getattr(function, "__globals__", {})
        )
    # An annotation is evaluated, which may raise anything.
    except Exception as error:
        raise UsageError(
            f"{where}: its annotations cannot be read: {type(error).__name__}: {error}"
        ) from error
    properties: JsonDict = {}
    required: list[str] = []
    for argument in arguments[skip:]:
        if argument.kind not in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            raise UsageError(
                f"{where}: {argument} has no name to be given by; write each argument with a name "
                f"of its own"
            )
        if argument.name not in hints:
            raise UsageError(
                f"{where}: the argument {argument.name!r} has no annotation; write "
                f"{argument.name}: str, say"
            )
        properties[argument.name] = _schema(
            hints[argument.name], f"{where}: the argument {argument.name!r}"
        )
        if descriptions.get(argument.name):
            properties[argument.name] = {
                **properties[argument.name],
                "description": descriptions[argument.name],
            }
        if argument.default is argument.empty:
            required.append(argument.name)
    parameters = {"type": "object", "properties": properties, "required": required}
    summary = description or "\n\n".join(
        filter(None, (parsed.short_description, parsed.long_description))
    )
    return Tool(named, summary, parameters, function, checked, parallel)


def tools_of(env: object, state: object) -> list[Tool]:
    """The methods of an environment that are tools, for an episode with this state.

    Args:
        env: the environment.
        state: of the episode.
    """
    return [
        replace(declared, function=partial(getattr(env, attribute), state))
        for attribute, declared in declared_tools(type(env))
    ]


def declared_tools(cls: type) -> list[tuple[str, Tool]]:
    """(attribute, tool) of a class's methods that are tools, in the order of their definition.

    Args:
        cls: the class.

    Raises:
        UsageError: two have the same name.
    """
    # In the order of definition, with a base's methods first.
    attributes = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    marked = ((name, getattr(getattr(cls, name, None), _MARK, None)) for name in attributes)
    found_tools = [(name, item) for name, item in marked if isinstance(item, Tool)]
    by_name(item for _, item in found_tools)
    return found_tools


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by their names.

    Args:
        tools: of one episode.

    Raises:
        UsageError: one is no tool, or two have the same name.
    """
    named_tools: dict[str, Tool] = {}
    for item in tools:
        if not isinstance(item, Tool):
            raise UsageError(
                f"tools gave {brief(item)}; it must give Tool objects, such as "
                f"rlvr.environment.ready_tools.python(session)"
            )
        if item.name in named_tools:
            raise UsageError(f"two tools are named {item.name!r}; give one another name")
        named_tools[item.name] = item
    return named_tools


def text_of(result: object) -> str:
    """A tool's result as the text that the policy is told.

    Args:
        result: a text, None, or what JSON can hold.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    return json.dumps(result, ensure_ascii=False)


def unrecordable(arguments: Mapping[str, object]) -> str:
    """Why arguments cannot be kept in a record, as the model is told; "" where they can.

    Args:
        arguments: by name.
    """
    # A stack and no recursion: the depth is what is checked.
    stack: list[tuple[object, int]] = [(arguments, 0)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return "the arguments hold a number that is not finite"
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            return "the arguments hold a number of more than 4,300 digits"
        if isinstance(value, (list, Mapping)):
            if depth > _DEEPEST:
                return f"the arguments are nested more than {_DEEPEST} deep"
            stack += (
                (item, depth + 1) for item in (value if isinstance(value, list) else value.values())
            )
    return ""


def clean(value: object) -> Any:
    """A value without half characters (lone surrogates), which JSON can write and no program can.

    Args:
        value: JSON.
    """
    if isinstance(value, str):
        # In UTF-16 two surrogates that belong together become one character again.
        return (
            value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if not value.isascii()
            else value
        )
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def _schema(hint: object, where: str) -> dict[str, object]:
    """The JSON schema of an annotation."""
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is Any:
        return {}
    if hint is None or hint is type(None):
        return {"type": "null"}
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Literal and all(
        isinstance(choice, (str, int, bool)) or choice is None for choice in args
    ):
        kinds = {_SCALARS.get(type(choice), "") for choice in args}
        return {
            **({"type": kind} if (kind := kinds.pop()) and not kinds else {}),
            "enum": list(args),
        }
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(choice, where) for choice in args]}
    if origin in (list, Sequence) and len(args) < 2:
        return {"type": "array", **({"items": _schema(args[0], where)} if args else {})}
    if origin in (dict, Mapping) and (not args or args[0] is str):
        return {
            "type": "object",
            **({"additionalProperties": _schema(args[1], where)} if args else {}),
        }
    raise UsageError(
        f"{where} is annotated {hint!r}, of which no schema can be made; use str, int, float, "
        f"bool, Literal, list, "
        "dict[str, …], unions of these, or Any"
    )


def _fits(value: object, schema: JsonObject) -> bool:
    """Whether a JSON value is one of a schema that `_schema` made.  A float may be written without
    its point."""
    if "anyOf" in schema:
        return any(_fits(value, choice) for choice in schema["anyOf"])
    if "enum" in schema and not any(
        # True equals 1 in Python and not in JSON.
        value == choice and isinstance(value, bool) == isinstance(choice, bool)
        for choice in schema["enum"]
    ):
        return False
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list) and all(
                _fits(item, schema.get("items", {})) for item in value
            )
        case "object":
            return isinstance(value, dict) and all(
                _fits(item, schema.get("additionalProperties", {})) for item in value.values()
            )
    return True


def _describe_schema(schema: JsonObject) -> str:
    """A schema in words."""
    if "anyOf" in schema:
        return " or ".join(map(_describe_schema, schema["anyOf"]))
    if "enum" in schema:
        return f"one of {json.dumps(schema['enum'], ensure_ascii=False)}"
    kind = str(schema.get("type", "any JSON"))
    if kind == "array" and schema.get("items"):
        return f"a list, of which each is {_describe_schema(schema['items'])}"
    return _NAMES.get(kind) or {"array": "a list", "object": "an object", "null": "null"}.get(
        kind, kind
    )
