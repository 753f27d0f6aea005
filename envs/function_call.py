"""Function calls, procedural: one or several calls of described
functions, judged by BFCL's rules."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

import rlvr
from rlvr.envs.puzzles import Generator
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import require_whole
from rlvr.verifiers.calls import CallsVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["FunctionCall"]

_HOW: Final = 'Answer with a JSON list of calls alone, such as [{"name": "…", "arguments": {…}}].'
_PYTHON: Final = {
    "str": "string",
    "int": "integer",
    "float": "float",
    "bool": "boolean",
    "list": "array",
    "tuple": "tuple",
    "dict": "dict",
    "set": "array",
}
_CITIES: Final = "Lagos Turin Quito Hanoi Basel Perth Izmir Cusco".split()
_TOOLS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "weather.today": ("Tell the weather in {city} in {unit}", {"city": "string", "unit": "string"}),
    "timer.start": (
        "Start a timer of {minutes} minutes named {label}",
        {"minutes": "integer", "label": "string"},
    ),
    "bank.transfer": ("Transfer {amount} euros to {name}", {"amount": "float", "name": "string"}),
    "lights.set": ("Turn the lights in the {room} {state}", {"room": "string", "on": "boolean"}),
    "stats.mean": ("Compute the mean of {values}", {"values": "array"}),
}


@rlvr.register("function-call-v4")
class FunctionCall(Generator):
    """Call the functions that a request needs, in any order.

    Options:
        calls: greatest number of calls of a request.
        data: rows of BFCL (`question`, `function`, `ground_truth`) or xLAM (`query`, `tools`,
            `answers`) to take instead: a file or a hub id.
    """

    domain = "tools"
    row_key = "id"
    calls: int = 3
    data: str = ""
    reward = rlvr.Correct(CallsVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("calls", self.calls, 1, 8)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        if "ground_truth" in row:
            question, functions, calls = (
                row.get("question"),
                row.get("function"),
                row["ground_truth"],
            )
            while isinstance(question, list) and question and isinstance(question[0], list):
                question = question[0]  # turns; the first one's messages
        elif "answers" in row:
            question, functions = row.get("query"), _decode(row.get("tools"))
            calls = [
                {call["name"]: {key: [value] for key, value in call["arguments"].items()}}
                for call in _decode(row["answers"])
            ]
            functions = [_with_properties(function) for function in functions]
        else:
            raise rlvr.DataError(f"{id}: no row of BFCL or xLAM; it has {list(row)}")
        if not isinstance(question, str | list) or not isinstance(functions, list):
            raise rlvr.DataError(f"{id}: no question, or no list of functions")
        system = f"You can call these functions:\n{json.dumps(functions)}\n\n{_HOW}"
        prompt = (
            f"{system}\n\n{question}"
            if isinstance(question, str)
            else [{"role": "system", "content": system}, *question]
        )
        return rlvr.Task(id, prompt, self.reference_of({"functions": functions, "calls": calls}))

    def draw(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            parts = [
                _request(rng, name)
                for name in rng.choices(sorted(_TOOLS), k=rng.randint(1, self.calls))
            ]
            request = ". ".join(text for text, *_ in parts)
            if self.in_split(request):
                break
        functions = [
            {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": _parameter_schemas(kinds),
                    "required": list(kinds),
                },
            }
            for name, (_, kinds) in _TOOLS.items()
        ]
        calls = [
            {name: {key: [value] for key, value in arguments.items()}}
            for _, name, arguments in parts
        ]
        prompt = f"You can call these functions:\n{json.dumps(functions)}\n\n{request}.\n{_HOW}"
        reference = {"functions": functions, "calls": calls}
        return rlvr.Task(f"{self.id}/{self.split}/{self.calls}/{index}", prompt, reference)

    def example(self, task: rlvr.Task) -> str:
        return CallsVerifier().example(task.reference)


def _decode(value: object) -> Any:
    """xLAM has its lists as JSON texts."""
    return json.loads(value) if isinstance(value, str) else value


def _with_properties(function: JsonObject) -> JsonDict:
    """xLAM's parameters as a schema; its types are Python's, "str, optional" and the like."""
    parameters = function.get("parameters") or {}
    properties = {
        name: {
            **schema,
            "type": _PYTHON.get(
                str(schema.get("type", "str")).partition(",")[0].split("[")[0].lower(), "any"
            ),
        }
        for name, schema in parameters.items()
    }
    return {**function, "parameters": {"type": "dict", "properties": properties, "required": []}}


def _parameter_schemas(kinds: dict[str, str]) -> dict[str, object]:
    return {
        name: {"type": kind, **({"items": {"type": "integer"}} if kind == "array" else {})}
        for name, kind in kinds.items()
    }


def _request(rng: Random, name: str) -> tuple[str, str, dict[str, object]]:
    on = rng.random() < 0.5
    words: dict[str, object] = {
        "city": rng.choice(_CITIES),
        "unit": rng.choice(("celsius", "fahrenheit")),
        "minutes": rng.randint(2, 90),
        "label": rng.choice(("tea", "rice", "nap", "run")),
        "amount": rng.randint(100, 9999) / 100,
        "on": on,
        "name": rng.choice(("Ada", "Chen", "Farid", "Greta")),
        "room": rng.choice(("kitchen", "hall", "attic")),
        "values": [rng.randint(1, 99) for _ in range(rng.randint(3, 5))],
    }
    text, kinds = _TOOLS[name]
    return (
        text.format(**words, state="on" if on else "off"),
        name,
        {key: words[key] for key in kinds},
    )
