"""Items and observations as JSON, as they go to workers and other machines."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from rlvr.errors import DataError, brief
from rlvr.rewards import Observation
from rlvr.scoring.engine import Engine, OnSeen
from rlvr.scoring.items import Item, RowTask
from rlvr.scoring.ordering import Seen, SlowReference, UnreadReference
from rlvr.types import Completion, Outcome, Task, Verdict

__all__ = [
    "RemoteEngine",
    "decoded_item",
    "decoded_observation",
    "decoded_seen",
    "encoded_item",
    "encoded_observation",
    "encoded_seen",
]

_TUPLE = "rlvr:tuple"
"""The key of an object that stands for a tuple: as a list it would be another reference."""


def encoded_observation(seen: Observation) -> object:
    """An observation as JSON.

    Args:
        seen: the observation.
    """
    v = seen.verdict
    return v.outcome.value, v.value, v.why, v.answer, dict(v.detail), dict(seen.values)


def decoded_observation(data: Any) -> Observation:
    """The observation that `encoded_observation` encoded.

    Args:
        data: its JSON.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    outcome, value, why, answer, detail, values = data
    return Observation(Verdict(Outcome(outcome), value, why, answer, detail), values)


def encoded_seen(seen: Seen) -> object:
    """An observation, or why there is none, as JSON.

    Args:
        seen: one of them.
    """
    if isinstance(seen, SlowReference):
        return []
    return [str(seen)] if isinstance(seen, DataError) else encoded_observation(seen)


def decoded_seen(data: Any) -> Seen:
    """What `encoded_seen` encoded.

    Args:
        data: its JSON.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    if not data:
        return SlowReference()
    return UnreadReference(*map(str, data)) if len(data) == 1 else decoded_observation(data)


def encoded_item(item: Item) -> bytes:
    """An item as JSON from which another machine makes an equal one.

    Args:
        item: the item; its id and the columns that are passed through stay here.

    Raises:
        DataError: it holds something that JSON has not, such as a set.
    """
    task, completion = item.task, item.completion
    row = {
        "task": task.id,
        "prompt": _pack(task.prompt, "prompt"),
        "reference": _pack(task.reference, "reference"),
        "meta": _pack(dict(task.meta), "meta"),
        "is_row": type(task) is RowTask,
        "completion": completion.text,
        "length_tokens": completion.length_tokens,
        "truncated": completion.truncated,
    }
    try:
        return json.dumps(row, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataError(f"task {task.id!r} cannot be sent to another machine: {error}") from None


def decoded_item(row: Any, number: int) -> Item:
    """The item that `encoded_item` encoded.

    Args:
        row: its JSON.
        number: of the row in its request, from 1; the item's id.

    Raises:
        DataError: it is none.
    """
    try:
        meta = _unpack(row["meta"])
        task = (
            RowTask(meta)
            if row["is_row"]
            else Task(row["task"], _unpack(row["prompt"]), _unpack(row["reference"]), meta)
        )
        return Item(
            number, task, Completion(row["completion"], row["length_tokens"], row["truncated"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"row {number} is no item of a scorer: {type(error).__name__}: {str(error)[:200]}"
        ) from None


class RemoteEngine(Engine):
    """An engine that sends encoded items to other machines."""

    def observe(
        self,
        items: Sequence[Item],
        *,
        on_seen: OnSeen | None = None,
        give_up: Callable[[], bool] | None = None,
        quick: bool = False,
    ) -> list[Seen]:
        self.warm()
        rows: list[bytes] = []
        faults: dict[int, Seen] = {}
        for place, item in enumerate(items):
            try:
                rows.append(encoded_item(item))
            except DataError as error:  # one that cannot be sent fails alone
                faults[place] = error
        observations = iter(self._ask(rows) if rows else ())
        return [
            faults[place] if place in faults else next(observations) for place in range(len(items))
        ]

    @abstractmethod
    def _ask(self, rows: list[bytes]) -> list[Seen]:
        """What is seen of each of these encoded items on another machine."""


def _pack(value: Any, where: str) -> object:
    kind = type(value)
    if kind in (str, int, float, bool, type(None)):
        return value
    if kind is list:
        return [_pack(item, where) for item in value]
    if kind is tuple:
        # A tuple and a list are two references to a verifier.
        return {_TUPLE: [_pack(item, where) for item in value]}
    if kind is dict and all(type(name) is str and name != _TUPLE for name in value):
        return {name: _pack(item, where) for name, item in value.items()}
    raise DataError(
        f"the task's {where} holds {brief(value)}, a {kind.__name__}, which cannot be sent to "
        f"another machine as JSON; "
        "use texts, numbers, lists, tuples and dicts with texts as keys, or score with --workers "
        "on this one"
    )


def _unpack(value: object) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_TUPLE}:
            return tuple(_unpack(value[_TUPLE]))
        return {name: _unpack(item) for name, item in value.items()}
    return value
