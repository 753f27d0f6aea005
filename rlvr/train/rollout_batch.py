"""The rollouts of one training step, with all that was collected for it; it can
be kept in a checkpoint."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlvr.collect import Collector, Dropped, PrefixValues, own_tokens
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.types import Group, JsonObject, Rollout, StateDict

if TYPE_CHECKING:  # it has batches of these
    from rlvr.train.part import LearnerPart

__all__ = ["RolloutBatch", "collect_batch"]


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """What a step is trained on.

    Attributes:
        groups: the groups to train on; may be empty.
        values: prefix values of each rollout, group after group; None for algorithms that need
            none.
        stats: metrics for the log, see `rlvr.collect.stats`.
        indices: id of a task → its index, of all these groups and of dropped ones with a group of
            this step.
        wall_s: seconds that collecting took.
        dropped: groups that were sampled and are not trained on.
    """

    groups: Sequence[Group]
    values: Sequence[PrefixValues] | None
    stats: Mapping[str, float]
    indices: Mapping[str, int]
    wall_s: float
    dropped: Sequence[Dropped] = ()

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group after group."""
        return [rollout for group in self.groups for rollout in group.rollouts]

    def with_costs(self, costs: Mapping[str, float], **changes: Any) -> RolloutBatch:
        """The batch with more metrics, added to those of the same name.

        Args:
            costs: by name.
            changes: other values of fields.
        """
        stats = dict(self.stats)
        stats |= {name: stats.get(name, 0.0) + spent for name, spent in costs.items()}
        return replace(self, stats=stats, **changes)

    def staleness(self, version: int) -> dict[str, float]:
        """By how many weight versions the policy's tokens are behind, as metrics; nothing without
        rollouts.

        `staleness` is that of the oldest token, `staleness_mean` the mean over tokens, and
        `versions` the mean number of versions that sampled a rollout.

        Args:
            version: of the weights to compare with.
        """
        counts = [_versions(rollout) for rollout in self.rollouts]
        # Of the policy's own tokens; those of tool replies have no version.
        tokens = sum(map(Counter.total, counts))
        if not tokens:
            return {}
        behind = sum((version - of) * count for counter in counts for of, count in counter.items())
        oldest = min(rollout.weights_version for rollout in self.rollouts)
        numbers = {
            "staleness": version - oldest,
            "staleness_mean": behind / tokens,
            "versions": fmean(map(len, counts)),
        }
        return {name: float(value) for name, value in numbers.items()}

    def state_dict(self) -> dict[str, object]:
        """The batch as plain JSON.  Tasks are kept as indices, from which the environment makes
        them again."""

        def as_dict(group: Group) -> dict[str, Any]:
            return {"index": self.indices[group.task.id], "group": group_as_dict(group)}

        return {
            "groups": [as_dict(group) for group in self.groups],
            "dropped": [
                {
                    "task": dropped_group.task,
                    "why": dropped_group.why,
                    "rollouts": dropped_group.rollouts,
                    "tokens": dropped_group.tokens,
                    "group": as_dict(dropped_group.group)
                    # A dropped group whose task is not among this step's cannot be made again.
                    if dropped_group.group and dropped_group.group.task.id in self.indices
                    else None,
                }
                for dropped_group in self.dropped
            ],
            "values": self.values
            and [[list(v.boundaries), list(v.values), list(v.scored)] for v in self.values],
            "stats": dict(self.stats),
            "indices": dict(self.indices),
            "wall_s": self.wall_s,
        }

    @classmethod
    def from_state(cls, state: StateDict, collector: Collector) -> RolloutBatch:
        """The batch that `state_dict` described.

        Args:
            state: what `state_dict` returned.
            collector: of the same environment, with the same seed.

        Raises:
            UsageError: the tasks have changed since.
        """

        def from_dict(one: JsonObject) -> Group:
            return group_from_dict(one["group"], collector.groups.task(one["index"]))

        groups = [from_dict(group_state) for group_state in state["groups"]]
        dropped = [
            Dropped(
                **{
                    **dropped_state,
                    "group": dropped_state["group"] and from_dict(dropped_state["group"]),
                }
            )
            for dropped_state in state["dropped"]
        ]
        values = state["values"] and [
            PrefixValues(*map(tuple, value_state)) for value_state in state["values"]
        ]
        return cls(groups, values, state["stats"], state["indices"], state["wall_s"], dropped)


def _versions(rollout: Rollout) -> Counter[int]:
    """How many of the policy's tokens each version of the weights has sampled."""
    if not rollout.token_versions:
        # One version sampled all of its tokens.
        return Counter({rollout.weights_version: own_tokens(rollout)})
    spans = [(turn.start, turn.stop) for turn in rollout.turns] or [
        (0, len(rollout.completion_ids))
    ]
    return Counter(
        version for start, stop in spans for version in rollout.token_versions[start:stop]
    )


def collect_batch(
    collector: Collector,
    prompts: int,
    *,
    parts: Sequence[LearnerPart] = (),
    ahead: int = 0,
    trained_at: int | None = None,
) -> RolloutBatch:
    """Collect the groups of one step, and what the parts gather for them, such as VinePPO's values.

    Args:
        collector: samples and scores.
        prompts: number of groups.
        parts: of the learner.
        ahead, trained_at: see `Collector.collect`.
    """
    started = time.perf_counter()
    collected = collector.collect(prompts, ahead=ahead, trained_at=trained_at)
    stats, indices = collected.stats, collected.indices
    sampled = RolloutBatch(collected.groups, None, stats, indices, 0.0, collected.dropped)
    if sampled.groups:
        for part in parts:
            sampled = part.gather(sampled, collector.groups)
    # Its seconds include what parts gathered, such as forks.
    return replace(sampled, wall_s=time.perf_counter() - started)
