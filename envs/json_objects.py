"""JSON objects with a schema, procedural: the form and the asked values are both checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import rlvr
from rlvr.envs.puzzles import Generator, column
from rlvr.validate import require_whole
from rlvr.verifiers.json_schema import JSONVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["JSONObjects"]

_NAMES: Final = "Ada Bruno Chen Dalia Emeka Farid Greta Hiro Ivana Jonas".split()
_CITIES: Final = "Lagos Turin Quito Hanoi Basel Perth Izmir Cusco".split()
_THINGS: Final = "lamp chair kettle mirror basket ladder carpet clock".split()


@rlvr.register("json-v4")
class JSONObjects(Generator):
    """Write a JSON object that a text describes, in the form of a schema.

    Options:
        items: greatest number of items in the order.
        data: rows with `prompt`, perhaps `schema`, and the right document as `completion` or
            `answer` (json-mode-eval), or `values` by JSON pointer, to take instead: a file or a hub
            id.
    """

    domain = "structured answers"
    items: int = 3
    data: str = ""
    reward = rlvr.Correct(JSONVerifier())

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("items", self.items, 1, 8)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        prompt, schema = column(row, "prompt"), _decode(row.get("schema"))
        reference = {} if schema is None else {"schema": schema}
        if row.get("values") is not None:
            # Data sets give either single values by pointer or the whole document.
            reference["values"] = _decode(row["values"])
        else:
            reference["whole"] = _decode(column(row, "completion", "answer"))
        return rlvr.Task(id, prompt, self.reference_of(reference))

    def draw(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            things = rng.sample(_THINGS, rng.randint(1, self.items))
            items = [{"item": thing, "count": rng.randint(1, 9)} for thing in things]
            order = {
                "customer": rng.choice(_NAMES),
                "city": rng.choice(_CITIES),
                "express": rng.random() < 0.5,
            }
            if self.in_split(str(order), str(items)):
                break
        line = {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        }
        properties = {
            "customer": {"type": "string"},
            "city": {"type": "string"},
            "express": {"type": "boolean"},
        }
        schema: dict[str, object] = {
            "type": "object",
            "properties": {
                **properties,
                "items": {"type": "array", "items": line | {"required": ["item", "count"]}},
            },
            "required": ["customer", "city", "express", "items"],
            "additionalProperties": False,
        }
        wishes = ", ".join(f"{item['count']} × {item['item']}" for item in items)
        prompt = (
            f"{order['customer']} from {order['city']} orders {wishes}, with "
            f"{'express' if order['express'] else 'ordinary'} delivery. Write the order as one "
            "JSON object, with the items in this order, that fits this JSON Schema:\n"
            # Python's quotes and constants, written as JSON has them.
            f"{schema}".replace("'", '"').replace("False", "false")
        )
        reference = {"schema": schema, "whole": {**order, "items": items}}
        return rlvr.Task(f"{self.id}/{self.split}/{self.items}/{index}", prompt, reference)

    def example(self, task: rlvr.Task) -> str | None:
        return JSONVerifier().example(task.reference)


def _decode(value: object) -> object:
    """Data sets have documents and schemas as texts too."""
    return json.loads(value) if isinstance(value, str) else value
