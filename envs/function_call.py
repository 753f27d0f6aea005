"""Function calls, procedural: one or several calls of described functions, judged by BFCL's rules."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import rlvr
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.calls import CallsVerifier

__all__ = ["FunctionCall"]

_SPLITS: Final = {
    "train": range(8),
    "validation": range(8, 9),
    "test": range(9, 10),
}  # tenths of all requests
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


@rlvr.register("function-call-v1")
class FunctionCall(rlvr.SingleTurnEnv):
    """Call the functions that a request needs, in any order.

    Options:
        calls: greatest number of calls of a request.
    """

    domain = "tools"
    calls: int = 3
    reward = rlvr.Correct(CallsVerifier())

    def __post_init__(self) -> None:
        require_whole("calls", self.calls, 1, 8)
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            made = [
                _request(rng, name)
                for name in rng.choices(sorted(_TOOLS), k=rng.randint(1, self.calls))
            ]
            request = ". ".join(text for text, *_ in made)
            if rlvr.seeded(self.id, request).randrange(10) in _SPLITS[self.split]:
                break
        functions = [
            {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": _typed(kinds),
                    "required": list(kinds),
                },
            }
            for name, (_, kinds) in _TOOLS.items()
        ]
        asked = [
            {name: {key: [value] for key, value in arguments.items()}}
            for _, name, arguments in made
        ]
        prompt = (
            f"You can call these functions:\n{json.dumps(functions)}\n\n{request}.\n"
            'Answer with a JSON list of calls alone, such as [{"name": "…", "arguments": {…}}].'
        )
        reference = {"functions": functions, "calls": asked}
        return rlvr.Task(f"{self.id}/{self.split}/{self.calls}/{index}", prompt, reference)

    def reference_of(self, value: Any) -> Any:
        CallsVerifier().check(value)
        return value

    def example(self, task: rlvr.Task) -> str:
        calls = [next(iter(call.items())) for call in task.reference["calls"]]
        listed = [
            {"name": name, "arguments": {key: value[0] for key, value in given.items()}}
            for name, given in calls
        ]
        return json.dumps(listed)


def _typed(kinds: dict[str, str]) -> dict[str, Any]:
    return {
        name: {"type": kind, **({"items": {"type": "integer"}} if kind == "array" else {})}
        for name, kind in kinds.items()
    }


def _request(rng: Random, name: str) -> tuple[str, str, dict[str, Any]]:
    on = rng.random() < 0.5
    words: dict[str, Any] = {
        "city": rng.choice(_CITIES), "unit": rng.choice(("celsius", "fahrenheit")), "minutes": rng.randint(2, 90),
        "label": rng.choice(("tea", "rice", "nap", "run")), "amount": rng.randint(100, 9999) / 100, "on": on,
        "name": rng.choice(("Ada", "Chen", "Farid", "Greta")), "room": rng.choice(("kitchen", "hall", "attic")),
        "values": [rng.randint(1, 99) for _ in range(rng.randint(3, 5))],
    }  # fmt: skip
    text, kinds = _TOOLS[name]
    return (
        text.format(**words, state="on" if on else "off"),
        name,
        {key: words[key] for key in kinds},
    )
