"""A batch of groups with all that was sampled for it; it can wait for its step, in memory or in a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.collect import Collector, Dropped, PrefixValues
from rlvr.collect.cursor import Cursor
from rlvr.collect.prefixes import forked
from rlvr.collect.saved import group_from, saved
from rlvr.types import Group, Rollout

__all__ = ["Gathered", "gather"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a step is trained on.

    Attributes:
        groups: worth training on; perhaps none.
        values: of prefixes, for each rollout; None where the algorithm needs none.
        stats: for the log.
        drawn: the tasks were drawn from this place of the run to before that one.
        wall_s: that it took.
        dropped: groups that were sampled for nothing.
    """

    groups: Sequence[Group]
    values: Sequence[PrefixValues] | None
    stats: Mapping[str, float]
    drawn: tuple[int, int]
    wall_s: float
    dropped: Sequence[Dropped] = ()

    @property
    def rollouts(self) -> list[Rollout]:
        """Group after group."""
        return [rollout for group in self.groups for rollout in group.rollouts]

    def staleness(self, version: int) -> int:
        """How many versions the oldest rollout lies behind these weights."""
        return max((version - rollout.weights_version for rollout in self.rollouts), default=0)

    def state_dict(self, collector: Collector) -> dict[str, Any]:
        """Plain JSON; tasks by their index, as whoever resumes can make them again."""
        cursor = Cursor(collector.env, seed=collector.seed)
        indices = [cursor.index(place) for place in range(*self.drawn)]
        index_of = {collector.groups.task(index).id: index for index in indices}

        def kept(group: Group) -> dict[str, Any]:
            return {"index": index_of[group.task.id], "group": saved(group)}

        return {
            "groups": [kept(group) for group in self.groups],
            "dropped": [
                {
                    "task": one.task,
                    "why": one.why,
                    "rollouts": one.rollouts,
                    "tokens": one.tokens,
                    "group": one.group and kept(one.group),
                }
                for one in self.dropped
            ],
            "values": self.values and [[list(v.boundaries), list(v.values), list(v.scored)] for v in self.values],
            "stats": dict(self.stats),
            "drawn": list(self.drawn),
            "wall_s": self.wall_s,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], collector: Collector) -> Gathered:
        """The batch again.

        Raises:
            UsageError: the tasks have changed since.
        """

        def again(one: Mapping[str, Any]) -> Group:
            return group_from(one["group"], collector.groups.task(one["index"]))

        groups = [again(one) for one in state["groups"]]
        dropped = [Dropped(**{**one, "group": one["group"] and again(one["group"])}) for one in state["dropped"]]
        values = state["values"] and [PrefixValues(*map(tuple, one)) for one in state["values"]]
        return cls(groups, values, state["stats"], (state["drawn"][0], state["drawn"][1]), state["wall_s"], dropped)


def gather(collector: Collector, prompts: int, *, vine_k: int | None = None) -> Gathered:
    """Collect a batch, and values of its prefixes by `vine_k` forks of each."""
    started, first = time.perf_counter(), collector.position
    collected = collector.collect(prompts)
    values, numbers = None, dict(collected.stats)
    if vine_k is not None and collected.groups:
        rollouts = [rollout for group in collected.groups for rollout in group.rollouts]
        values, costs = forked(collector.groups, rollouts, k=vine_k)
        numbers |= {name: numbers.get(name, 0.0) + spent for name, spent in costs.items()}
    wall_s = time.perf_counter() - started
    return Gathered(collected.groups, values, numbers, (first, collector.position), wall_s, collected.dropped)
