"""Groups that were trained on before and are trained on again, while their
weights are not too old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr.collect.groups import Groups
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.environment import seeded
from rlvr.train.part import LearnerPart
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group, JsonObject, StateDict

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["ReplayBuffer"]


class ReplayBuffer(LearnerPart):
    """The groups of the last steps; each step gets some of them, drawn at random, beside its own.

    A replayed group is a group of its own: its advantages are computed within it, as in RePO
    (arXiv:2506.09340, 3.2). The correction for older weights is the algorithm's, token by token.
    """

    name = wants = "replay"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._groups: list[tuple[int, Group]] = []  # with the index of its task; the oldest first
        self._saved: Sequence[JsonObject] = ()  # of a checkpoint, not read yet

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        """A step's batch with replayed groups behind its own; its own can be replayed by later
        steps.

        Args:
            sampled: what was collected for the step.
            step: also the version of the weights that are trained.
            by: has the tasks.

        Raises:
            UsageError: the tasks have changed since the checkpoint.
        """
        settings, seed = self.learner.algorithm.replay, self.learner.config.seed
        assert settings is not None
        # Tasks are made from their indices only now, as `load` has no environment.
        for saved in self._saved:
            index = saved["index"]
            self._groups.append((index, group_from_dict(saved["group"], by.task(index))))
        self._saved = ()
        # Versions are steps: the weights of step s have version s.
        oldest = step - settings.max_versions
        self._groups = [entry for entry in self._groups if _oldest(entry[1]) >= oldest]
        # A batch without a group of its own is skipped, so nothing is replayed.
        count = min(settings.groups, len(self._groups)) if sampled.groups else 0
        # Drawn by step, not carried: a resumed run draws the same.
        # Sorted, as the order of groups is that of their age.
        indices = sorted(seeded("replay", seed, step).sample(range(len(self._groups)), count))
        again = [self._groups[i][1] for i in indices]
        # After the draw: a group is never replayed in its own step.
        self._groups += [(sampled.indices[group.task.id], group) for group in sampled.groups]
        extended = replace(sampled, groups=[*sampled.groups, *again])
        return extended.with_costs({"replayed": float(count)})

    def state(self) -> list[StateDict]:
        """All groups as plain JSON, with the indices of their tasks."""
        read = [{"index": index, "group": group_as_dict(group)} for index, group in self._groups]
        # Those not read yet are kept as they were.
        return [*self._saved, *read]

    def load(self, state: Sequence[Mapping[str, object]]) -> None:
        self._saved = state


def _oldest(group: Group) -> int:
    return min(rollout.weights_version for rollout in group.rollouts)
