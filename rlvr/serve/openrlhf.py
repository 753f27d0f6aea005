"""The shape of OpenRLHF's remote reward: lists in, lists out, in the same order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlvr.environment import Environment
from rlvr.errors import RlvrError
from rlvr.interop.adapter import identity
from rlvr.interop.openrlhf import work_of
from rlvr.scoring.items import Item
from rlvr.serve.jobs import Refused
from rlvr.types import Task

__all__ = ["items_of", "reply"]


def items_of(env: Environment, asked: dict[str, Any]) -> list[Item]:
    """The items of a request, read as `rlvr.interop.openrlhf` reads it; one prompt and label are one task.

    Raises:
        Refused: lists of other lengths, a query that does not hold its prompt, a label that is no reference.
    """
    if env.reward.needs_length:
        message = f"the reward {env.reward} reads length_tokens, which this shape does not have; send rows to /score"
        raise Refused(422, "needs-length", message)
    try:
        work = work_of(env, asked)
    except RlvrError as error:
        raise Refused(422, "bad-request", str(error)) from None
    if env.reward.group_level:
        work = [(replace(task, id=_named(task)), completion) for task, completion in work]
    return [Item(f"line:{number}", task, completion) for number, (task, completion) in enumerate(work, 1)]


def _named(task: Task) -> str:
    return hashlib.blake2b(identity(task).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def reply(lines: Sequence[bytes]) -> dict[str, Any]:
    """`rewards` to train on, `scores` in 0 or 1 to filter by, both null where a row is UNSCORED; parts as logs.

    Raises:
        Refused: a row could not be used; this shape has no place to say so.
    """
    rows = [json.loads(line) for line in lines]
    for i, row in enumerate(rows):
        if "error" in row:
            raise Refused(422, "bad-row", f"query {i}: {row['error']}")
    unscored = [row["total"] is None for row in rows]
    names = dict.fromkeys(name for row in rows for name in row["parts"])
    logs = {f"part/{name}": [row["parts"].get(name, 0.0) for row in rows] for name in names}
    return {
        "rewards": [row["total"] for row in rows],
        "scores": [
            None if lost else float(row["outcome"] == "correct") for row, lost in zip(rows, unscored, strict=True)
        ],
        "extra_logs": {**logs, "unscored": list(map(float, unscored))},
    }
