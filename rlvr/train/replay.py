"""Groups that were trained on before and are trained on again, while their weights are not too old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.algo.parts import Replay
from rlvr.collect import Collector
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.environment import seeded
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """The groups of the last steps; each step gets some of them, drawn at random, beside its own.

    A replayed group is a group of its own: its advantages are computed within it, as in RePO (arXiv:2506.09340, 3.2).
    The correction for older weights is the algorithm's, token by token.

    Args:
        settings: how many, and how old.
        seed: of the draws.
    """

    def __init__(self, settings: Replay, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._groups: list[tuple[int, Group]] = []  # with the index of its task; the oldest first

    def __len__(self) -> int:
        return len(self._groups)

    def extended(self, sampled: RolloutBatch, step: int) -> RolloutBatch:
        """A step's batch with replayed groups behind its own; its own can be replayed by later steps.

        Args:
            sampled: what was collected for the step.
            step: also the version of the weights that are trained.
        """
        oldest = step - self._settings.max_versions
        self._groups = [one for one in self._groups if _oldest(one[1]) >= oldest]
        count = min(self._settings.groups, len(self._groups)) if sampled.groups else 0
        drawn = sorted(seeded("replay", self._seed, step).sample(range(len(self._groups)), count))
        again = [self._groups[i][1] for i in drawn]
        self._groups += [(sampled.indices[group.task.id], group) for group in sampled.groups]
        return replace(sampled, groups=[*sampled.groups, *again])

    def state_dict(self) -> list[dict[str, Any]]:
        """All groups as plain JSON, with the indices of their tasks."""
        return [{"index": index, "group": group_as_dict(group)} for index, group in self._groups]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        """Continue with the groups of `state_dict`.

        Args:
            state: what it returned.
            collector: of the same environment.

        Raises:
            UsageError: the tasks have changed since.
        """
        self._groups = [
            (one["index"], group_from_dict(one["group"], collector.groups.task(one["index"])))
            for one in state
        ]


def _oldest(group: Group) -> int:
    return min(rollout.weights_version for rollout in group.rollouts)
