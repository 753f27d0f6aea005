"""Requests and responses as OpenRLHF's remote reward model has them: lists in, lists out, in the same order."""

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

__all__ = ["items_of", "response_of"]


def items_of(env: Environment, asked: dict[str, Any]) -> list[Item]:
    """The items of a request, read as `rlvr.interop.openrlhf` reads it; one prompt and label are one task.

    Args:
        env: the environment that scores them.
        asked: the JSON object of the request.

    Raises:
        Refused: the lists differ in length, a query does not contain its prompt, or a label is no reference.
    """
    if env.reward.needs_length:
        message = f"the reward {env.reward} reads length_tokens, which this shape does not have; send rows to /score"
        raise Refused(422, "needs-length", message)
    try:
        work = work_of(env, asked)
    except RlvrError as error:
        raise Refused(422, "bad-request", str(error)) from None
    if env.reward.group_level:
        work = [(replace(task, id=_task_id(task)), completion) for task, completion in work]
    return [Item(f"line:{number}", task, completion) for number, (task, completion) in enumerate(work, 1)]


def _task_id(task: Task) -> str:
    return hashlib.blake2b(identity(task).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def response_of(lines: Sequence[bytes]) -> dict[str, Any]:
    """`rewards` to train on, `scores` of 0 or 1 to filter by, both null where a row is UNSCORED; parts as logs.

    Args:
        lines: the JSON of each row's score, in the order of the queries.

    Raises:
        Refused: a row could not be used; OpenRLHF's lists have no place for an error.
    """
    rows = [json.loads(line) for line in lines]
    for i, row in enumerate(rows):
        if "error" in row:
            raise Refused(422, "bad-row", f"query {i}: {row['error']}")
    names = dict.fromkeys(name for row in rows for name in row["parts"])
    logs = {f"part/{name}": [row["parts"].get(name, 0.0) for row in rows] for name in names}
    return {
        "rewards": [row["total"] for row in rows],
        "scores": [None if row["total"] is None else float(row["outcome"] == "correct") for row in rows],
        "extra_logs": {**logs, "unscored": [float(row["total"] is None) for row in rows]},
    }
