"""Groups as plain JSON, for a checkpoint.  A task is not in there: its index says which one it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rlvr.errors import UsageError
from rlvr.types import Group, Outcome, Rollout, Score, Task, Turn, Verdict

__all__ = ["group_from_dict", "group_as_dict"]


def group_as_dict(group: Group) -> dict[str, Any]:
    """A group but for its task."""
    return {"task": group.task.id, "rollouts": [_saved(rollout) for rollout in group.rollouts]}


def group_from_dict(data: Mapping[str, Any], task: Task) -> Group:
    """The group again.

    Raises:
        UsageError: this is not its task.
    """
    if data["task"] != task.id:
        raise UsageError(
            f"a saved group answers {data['task']!r}, and its index now leads to {task.id!r}; resume with the "
            "tasks that the run began with"
        )
    return Group(task, [_rollout_from(one, task) for one in data["rollouts"]])


def _saved(rollout: Rollout) -> dict[str, Any]:
    score = rollout.score
    return {
        "text": rollout.text,
        "prompt_ids": list(map(int, rollout.prompt_ids)),
        "completion_ids": list(map(int, rollout.completion_ids)),
        "completion_mask": list(map(bool, rollout.completion_mask)),
        "behaviour_logprobs": list(map(float, rollout.behaviour_logprobs)),
        "weights_version": int(rollout.weights_version),
        "truncated": rollout.truncated,
        "turns": [[turn.start, turn.stop, turn.reward] for turn in rollout.turns],
        "score": score and {"total": score.total, "parts": dict(score.parts), "verdict": _verdict(score.verdict)},
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """`detail` may hold anything, and a checkpoint loads none but plain values."""
    detail = json.loads(json.dumps(dict(verdict.detail), default=str))
    return asdict(verdict) | {"outcome": verdict.outcome.value, "detail": detail}


def _rollout_from(data: Mapping[str, Any], task: Task) -> Rollout:
    score = data["score"]
    verdict = score and Verdict(**{**score["verdict"], "outcome": Outcome(score["verdict"]["outcome"])})
    return Rollout(
        task=task,
        **{
            **data,
            "turns": tuple(Turn(*turn) for turn in data["turns"]),
            "score": score and Score(score["total"], score["parts"], verdict),
        },
    )
