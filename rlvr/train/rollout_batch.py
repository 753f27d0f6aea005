"""The rollouts of one training step, with all that was collected for it; it can be kept in a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.collect import Collector, Dropped, PrefixValues
from rlvr.collect.prefixes import prefix_values_and_costs
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.types import Group, Rollout

__all__ = ["RolloutBatch", "collect_batch"]


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """What a step is trained on.

    Attributes:
        groups: the groups to train on; may be empty.
        values: prefix values of each rollout, group after group; None for algorithms that need none.
        stats: metrics for the log, see `rlvr.collect.stats`.
        places: (first, end): the tasks stand at the places first to end - 1 of the run's order of tasks.
        wall_s: seconds that collecting took.
        dropped: groups that were sampled and are not trained on.
    """

    groups: Sequence[Group]
    values: Sequence[PrefixValues] | None
    stats: Mapping[str, float]
    places: tuple[int, int]
    wall_s: float
    dropped: Sequence[Dropped] = ()

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group after group."""
        return [rollout for group in self.groups for rollout in group.rollouts]

    def staleness(self, version: int) -> int:
        """How many weight versions the oldest rollout is behind; 0 without rollouts.

        Args:
            version: of the weights to compare with.
        """
        return max((version - rollout.weights_version for rollout in self.rollouts), default=0)

    def state_dict(self, collector: Collector) -> dict[str, Any]:
        """The batch as plain JSON.  Tasks are kept as indices, from which the environment makes them again.

        Args:
            collector: the one that collected it.
        """
        indices = [collector.index(place) for place in range(*self.places)]
        tasks = collector.groups.tasks(indices)
        index_of = {task.id: index for index, task in zip(indices, tasks, strict=True) if task is not None}

        def as_dict(group: Group) -> dict[str, Any]:
            return {"index": index_of[group.task.id], "group": group_as_dict(group)}

        return {
            "groups": [as_dict(group) for group in self.groups],
            "dropped": [
                {
                    "task": one.task,
                    "why": one.why,
                    "rollouts": one.rollouts,
                    "tokens": one.tokens,
                    "group": as_dict(one.group) if one.group and one.group.task.id in index_of else None,
                }
                for one in self.dropped
            ],
            "values": self.values and [[list(v.boundaries), list(v.values), list(v.scored)] for v in self.values],
            "stats": dict(self.stats),
            "drawn": list(self.places),
            "wall_s": self.wall_s,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], collector: Collector) -> RolloutBatch:
        """The batch that `state_dict` described.

        Args:
            state: what `state_dict` returned.
            collector: of the same environment, with the same seed.

        Raises:
            UsageError: the tasks have changed since.
        """

        def from_dict(one: Mapping[str, Any]) -> Group:
            return group_from_dict(one["group"], collector.groups.task(one["index"]))

        groups = [from_dict(one) for one in state["groups"]]
        dropped = [Dropped(**{**one, "group": one["group"] and from_dict(one["group"])}) for one in state["dropped"]]
        values = state["values"] and [PrefixValues(*map(tuple, one)) for one in state["values"]]
        return cls(groups, values, state["stats"], (state["drawn"][0], state["drawn"][1]), state["wall_s"], dropped)


def collect_batch(collector: Collector, prompts: int, *, vine_k: int | None = None) -> RolloutBatch:
    """Collect the groups of one step and, for VinePPO, the values of their prefixes.

    Args:
        collector: samples and scores.
        prompts: number of groups.
        vine_k: completions from each prefix (K); None for no prefix values.
    """
    started, first = time.perf_counter(), collector.position
    collected = collector.collect(prompts)
    values, numbers = None, dict(collected.stats)
    if vine_k is not None and collected.groups:
        rollouts = [rollout for group in collected.groups for rollout in group.rollouts]
        values, costs = prefix_values_and_costs(collector.groups, rollouts, k=vine_k)
        numbers |= {name: numbers.get(name, 0.0) + spent for name, spent in costs.items()}
    wall_s = time.perf_counter() - started
    return RolloutBatch(collected.groups, values, numbers, (first, collector.position), wall_s, collected.dropped)
