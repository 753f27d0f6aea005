"""OpenRLHF's remote reward: its requests as items to score, and its replies from their scores.

`rlvr.interop.openrlhf` knows the names of the fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from rlvr.environment import Environment
from rlvr.errors import RlvrError
from rlvr.http.refused import Refused
from rlvr.interop.adapter import task_key
from rlvr.interop.openrlhf import reply_of, work_of
from rlvr.scoring.items import Item
from rlvr.types import Task

__all__ = ["items_of", "response_of"]


def items_of(env: Environment, asked: dict[str, object]) -> list[Item]:
    """The items of a request; queries with the same prompt and label belong to one task.

    Args:
        env: the environment that scores them.
        asked: the JSON object of the request.

    Raises:
        Refused: lists of different lengths, a query that does not hold its prompt, or a label that
            is no reference.
    """
    if env.reward.needs_length:
        message = (
            f"the reward {env.reward} reads length_tokens, which this shape does not have; "
            "send rows to /score"
        )
        raise Refused(422, "needs-length", message)
    try:
        work = work_of(env, asked)
    except RlvrError as error:
        raise Refused(422, "bad-request", str(error)) from None
    if env.reward.group_level:
        # A group is the rows of one task, so tasks get ids of what they are.
        work = [(replace(task, id=_task_digest(task)), completion) for task, completion in work]
    return [
        Item(f"line:{number}", task, completion)
        for number, (task, completion) in enumerate(work, 1)
    ]


def _task_digest(task: Task) -> str:
    return hashlib.blake2b(
        task_key(task).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()


def response_of(lines: Sequence[bytes]) -> dict[str, object]:
    """A request's reply: rewards and scores are null where a row is UNSCORED, and the parts are
    logs.

    Args:
        lines: the scored rows as JSON, in order.

    Raises:
        Refused: a row could not be used; a reply has no place for one row's error.
    """
    rows = [json.loads(line) for line in lines]
    for i, row in enumerate(rows):
        if "error" in row:
            raise Refused(422, "bad-row", f"query {i}: {row['error']}")
    names = dict.fromkeys(name for row in rows for name in row["parts"])
    return reply_of(
        rewards=[row["total"] for row in rows],
        correct=[
            None if row["total"] is None else float(row["outcome"] == "correct") for row in rows
        ],
        parts={name: [row["parts"].get(name, 0.0) for row in rows] for name in names},
        logs={"unscored": [float(row["total"] is None) for row in rows]},
    )
