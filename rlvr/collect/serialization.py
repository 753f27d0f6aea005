"""Groups as plain JSON, for checkpoints.  Tasks are not included; the environment makes
them again from their index."""

from __future__ import annotations

import json
from dataclasses import asdict

from rlvr.episode import EpisodeRecord
from rlvr.errors import UsageError
from rlvr.types import Group, JsonObject, Outcome, Rollout, Score, Task, Turn, Verdict

__all__ = [
    "group_as_dict",
    "group_from_dict",
    "require_task",
    "rollout_as_dict",
    "rollout_from_dict",
]


def group_as_dict(group: Group) -> dict[str, object]:
    """A group without its task, as plain JSON.

    Args:
        group: scored rollouts.
    """
    return {
        "task": group.task.id,
        "rollouts": [rollout_as_dict(rollout) for rollout in group.rollouts],
    }


def group_from_dict(data: JsonObject, task: Task) -> Group:
    """The group that `group_as_dict` described.

    Args:
        data: what `group_as_dict` returned.
        task: the task of the group.

    Raises:
        UsageError: the group belongs to another task.
    """
    require_task(data["task"], task)
    return Group(task, [rollout_from_dict(rollout, task) for rollout in data["rollouts"]])


def require_task(saved: str, task: Task) -> None:
    """Refuse a task that is not the one that a saved group belongs to.

    Args:
        saved: id of the group's task.
        task: that its index gives now.

    Raises:
        UsageError: it is another one.
    """
    if saved != task.id:
        raise UsageError(
            f"a saved group belongs to task {saved!r}, and its index now gives {task.id!r}; resume "
            "with the tasks that the run began with"
        )


def rollout_as_dict(rollout: Rollout) -> dict[str, object]:
    """A rollout without its task, as plain JSON.

    Args:
        rollout: scored or not.
    """
    score = rollout.score
    return {
        "text": rollout.text,
        "prompt_ids": list(map(int, rollout.prompt_ids)),
        "completion_ids": list(map(int, rollout.completion_ids)),
        "completion_mask": list(map(bool, rollout.completion_mask)),
        "behaviour_logprobs": list(map(float, rollout.behaviour_logprobs)),
        "weights_version": int(rollout.weights_version),
        "token_versions": list(map(int, rollout.token_versions)),
        "truncated": rollout.truncated,
        "turns": [[turn.start, turn.stop, turn.reward] for turn in rollout.turns],
        "branches": [rollout_as_dict(branch) for branch in rollout.branches],
        # Only where there is one: most rollouts have none.
        **({} if rollout.episode is None else {"episode": rollout.episode.as_dict()}),
        "score": score
        and {"total": score.total, "parts": dict(score.parts), "verdict": _verdict(score.verdict)},
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    """A verdict as plain JSON; what JSON cannot hold in its `detail` becomes text."""
    detail = json.loads(json.dumps(dict(verdict.detail), default=str))
    return asdict(verdict) | {"outcome": verdict.outcome.value, "detail": detail}


def rollout_from_dict(data: JsonObject, task: Task) -> Rollout:
    """The rollout that `rollout_as_dict` described.

    Args:
        data: what it returned.
        task: of the rollout.
    """
    score = data["score"]
    verdict = score and Verdict(
        **{**score["verdict"], "outcome": Outcome(score["verdict"]["outcome"])}
    )
    return Rollout(
        task=task,
        **{
            **data,
            "turns": tuple(Turn(*turn) for turn in data["turns"]),
            "branches": tuple(
                rollout_from_dict(branch, task) for branch in data.get("branches", ())
            ),
            "token_versions": tuple(data["token_versions"]),
            "episode": EpisodeRecord.from_dict(data["episode"])
            if data.get("episode") is not None
            else None,
            "score": score and Score(score["total"], score["parts"], verdict),
        },
    )
