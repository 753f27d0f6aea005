"""What a run decides by: tasks held out of training, for resets and the best model; the
test split only reports."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

from rlvr.collect.evaluation import EvaluationReport
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.train.config import ResolvedConfig

__all__ = ["SPLIT", "Standing", "validation_split"]

SPLIT: Final = "validation"
_MOST: Final = 10
"""By default at most one task in so many is held out."""


def validation_split(
    config: ResolvedConfig, env: Environment
) -> tuple[Environment, Environment | None]:
    """The environment without the tasks that are held out, and one of these tasks; None without
    validation.

    Where tasks are generated without end, they come from a split of their own, named validation.
    Which ones are held out depends on their ids alone.

    Args:
        config: settings of the run.
        env: the training environment.

    Raises:
        UsageError: no task would be left for training, or for validation.
    """
    if not config.validation_tasks:
        return env, None
    # By identity: members of a mixture may be of one kind.
    parts = {id(member): _split(config, member) for member in env.members.values()}
    training = env.each(lambda _, member: parts[id(member)][0])
    return training, env.each(lambda _, member: parts[id(member)][1])


def _split(config: ResolvedConfig, env: Environment) -> tuple[Environment, Environment]:
    if env.size is None:
        return env, _generated(env)
    return _cut(env, _count(config, env))


def _count(config: ResolvedConfig, env: Environment) -> int:
    size, count = env.size or 0, config.validation_tasks
    if config.validation_by_default:
        # An explicit number is taken as it is, and refused if it is too large.
        count = min(count, size // _MOST)
    if not 0 < count < size:
        raise UsageError(
            f"{env.id} has {size} tasks in split {env.split!r}, of which {count} would be held out "
            f"for validation; give --validation-tasks a number from 1 to {max(1, size - 1)}, or "
            "leave out what needs a validation split, such as with --reset none"
        )
    return count


def _generated(env: Environment) -> Environment:
    if env.split == SPLIT:
        raise UsageError(
            f"split is {SPLIT!r}, and validation reads that split of {env.id}; train on another one"
        )
    return type(env)(**{**env.config, "split": SPLIT}).with_reward(env.reward)


def _cut(env: Environment, count: int) -> tuple[Environment, Environment]:
    tasks = [env.task(index) for index in range(env.size or 0)]
    # The order of the ids' digests is as good as random, and
    # the same in every run whatever the order of the data.
    held = {task.id for task in sorted(tasks, key=lambda task: _draw_digest(task.id))[:count]}

    def part(of: list[Any]) -> Environment:
        copy = env.without_tasks()
        vars(copy)["_tasks"] = of  # where they are kept once they are made
        return copy

    remaining = [task for task in tasks if task.id not in held]
    return part(remaining), part([task for task in tasks if task.id in held])


def _draw_digest(id: str) -> bytes:
    return hashlib.sha256(id.encode()).digest()


class Standing:
    """How the policy stands on the validation split.

    Attributes:
        best: the best share of right completions since the last reset.
        stalled: validations in a row without a new best.
        top: the best of the whole run.
    """

    def __init__(self) -> None:
        self.best, self.stalled, self.top = -math.inf, 0, -math.inf

    def take(self, report: EvaluationReport) -> bool:
        """Count a validation; returns whether it is the best one of the run.

        Args:
            report: of the validation; one in which nothing could be scored is not counted.
        """
        # The mean share of right completions over tasks.
        metric = report.metrics.get(f"avg@{report.n}")
        if metric is None:
            return False
        # A tie is no new best.
        self.stalled = 0 if metric.value > self.best else self.stalled + 1
        self.best = max(self.best, metric.value)
        is_top = metric.value > self.top
        self.top = max(self.top, metric.value)
        return is_top

    def reset(self) -> None:
        """Begin anew after a reset; the best of the run stays."""
        self.best, self.stalled = -math.inf, 0

    def state_dict(self) -> list[float]:
        """For a checkpoint."""
        return [self.best, self.stalled, self.top]

    def load_state_dict(self, state: list[float]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what it returned.
        """
        self.best, stalled, self.top = state
        self.stalled = int(stalled)
