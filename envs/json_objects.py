"""JSON objects with a schema, procedural: the form and the asked values are both checked."""

from __future__ import annotations

from typing import Any, Final

import rlvr
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.json_schema import JSONVerifier

__all__ = ["JSONObjects"]

_SPLITS: Final = {
    "train": range(8),
    "validation": range(8, 9),
    "test": range(9, 10),
}  # tenths of all orders
_NAMES: Final = "Ada Bruno Chen Dalia Emeka Farid Greta Hiro Ivana Jonas".split()
_CITIES: Final = "Lagos Turin Quito Hanoi Basel Perth Izmir Cusco".split()
_THINGS: Final = "lamp chair kettle mirror basket ladder carpet clock".split()


@rlvr.register("json-v2")
class JSONObjects(rlvr.SingleTurnEnv):
    """Write a JSON object that a text describes, in the form of a schema.

    Options:
        items: greatest number of items in the order.
    """

    domain = "structured answers"
    items: int = 3
    reward = rlvr.Correct(JSONVerifier())

    def __post_init__(self) -> None:
        require_whole("items", self.items, 1, 8)
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        while True:
            things = rng.sample(_THINGS, rng.randint(1, self.items))
            items = [{"item": thing, "count": rng.randint(1, 9)} for thing in things]
            order = {
                "customer": rng.choice(_NAMES),
                "city": rng.choice(_CITIES),
                "express": rng.random() < 0.5,
            }
            if rlvr.seeded(self.id, str(order), str(items)).randrange(10) in _SPLITS[self.split]:
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
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                **properties,
                "items": {"type": "array", "items": line | {"required": ["item", "count"]}},
            },
            "required": ["customer", "city", "express", "items"],
            "additionalProperties": False,
        }
        wishes = ", ".join(f"{one['count']} × {one['item']}" for one in items)
        prompt = (
            f"{order['customer']} from {order['city']} orders {wishes}, with "
            f"{'express' if order['express'] else 'ordinary'} delivery. Write the order as one JSON object, with the "
            f"items in this order, that fits this JSON Schema:\n{schema}".replace("'", '"').replace(
                "False", "false"
            )
        )
        reference = {"schema": schema, "whole": {**order, "items": items}}
        return rlvr.Task(f"{self.id}/{self.split}/{self.items}/{index}", prompt, reference)

    def example(self, task: rlvr.Task) -> str:
        import json

        return f"```json\n{json.dumps(task.reference['whole'])}\n```"
