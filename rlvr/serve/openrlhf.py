"""The shape of OpenRLHF's remote reward: lists in, lists out, in the same order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from rlvr.serve.jobs import Refused

__all__ = ["reply", "rows_of"]


def rows_of(asked: dict[str, Any], *, group_level: bool) -> list[dict[str, Any]]:
    """The rows of a request: `query` (or `queries`) is prompt and completion in one text, `labels` the references.

    Raises:
        Refused: lists of other lengths, or a query that does not begin with its prompt.
    """
    queries, labels = asked.get("query", asked.get("queries")), asked.get("labels")
    prompts = asked.get("prompts") or [""] * _length(queries)
    if not (isinstance(queries, list) and isinstance(prompts, list) and isinstance(labels, list)) or not (
        len(queries) == len(prompts) == len(labels)
    ):
        sizes = {"query": _length(queries), "prompts": _length(prompts), "labels": _length(labels)}
        raise Refused(422, "bad-lists", f"the lists have the lengths {sizes}; send three lists of the same length")
    rows = []
    for i, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
        if not (isinstance(query, str) and isinstance(prompt, str) and query.startswith(prompt)):
            message = f"query {i} is {str(query)[:60]!r} and does not begin with its prompt {str(prompt)[:60]!r}"
            raise Refused(
                422, "bad-query", f"{message}; what the model was shown must not be judged, so send both alike"
            )
        row = {"completion": query[len(prompt) :], "prompt": prompt, "reference": label}
        if group_level:
            row["task"] = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        rows.append(row)
    return rows


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


def _length(value: Any) -> int:
    """-1 where it is no list."""
    return len(value) if isinstance(value, list) else -1
