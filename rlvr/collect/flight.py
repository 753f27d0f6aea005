"""Groups that are under way: they begin in order, and may stay unfinished while the weights change.

begin ─▶ plays of their rollouts ─▶ scores ─▶ finish: the oldest groups, in order
                  ▲                              │ what is left is parked, weights change
                  └──────────────────────────────┘
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from rlvr.collect.groups import Groups
from rlvr.collect.scheduler import Play, Scheduler
from rlvr.collect.serialization import rollout_as_dict, rollout_from_dict
from rlvr.display import Advance
from rlvr.types import Group, Rollout, Score

__all__ = ["Flight", "sample_groups"]

_Key: TypeAlias = tuple[int, int]
"""(number of the group in the flight, number of the rollout in its group)."""


@dataclass(slots=True)
class _Open:
    """A group that is not finished: its finished rollouts by their numbers, and the scores that are being computed.

    Attributes:
        place, index: of its task.
        size: number of its rollouts.
        scores: (numbers of rollouts, their scores).
    """

    place: int
    index: int
    size: int
    rollouts: dict[int, Rollout] = field(default_factory=dict)
    scores: list[tuple[list[int], Future[list[Score]]]] = field(default_factory=list)

    @property
    def sampled(self) -> bool:
        return len(self.rollouts) == self.size

    @property
    def scored(self) -> bool:
        return all(future.done() for _, future in self.scores)

    def wait(self) -> None:
        """Give the rollouts their scores."""
        for numbers, future in self.scores:
            for g, score in zip(numbers, future.result(), strict=True):
                self.rollouts[g] = replace(self.rollouts[g], score=score)
        self.scores.clear()

    def group(self) -> Group:
        """The group, with the scores; waits for them."""
        self.wait()
        rollouts = [rollout for _, rollout in sorted(self.rollouts.items())]
        known = next((rollout for rollout in rollouts if rollout.prompt_ids), rollouts[0])
        for g, rollout in enumerate(rollouts):
            if not rollout.prompt_ids:  # an episode that did not begin
                rollouts[g] = replace(rollout, task=known.task, prompt_ids=known.prompt_ids)
        return Group(known.task, rollouts)


class Flight:
    """Groups of one environment that are being sampled and scored, in the order in which they were begun.

    Args:
        groups: plays and scores them.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._scheduler: Scheduler[Rollout] = Scheduler(
            groups.sampler, groups.background, groups.schedule, most=groups.most_plays
        )
        self._open: dict[int, _Open] = {}
        self._next = 0

    def __len__(self) -> int:
        """Number of unfinished groups."""
        return len(self._open)

    @property
    def asked(self) -> list[tuple[int, int]]:
        """(place in the run, index of the task) of each unfinished group."""
        return [(one.place, one.index) for one in self._open.values()]

    def rollouts_left(self, count: int) -> int:
        """How many rollouts the oldest groups lack.

        Args:
            count: number of groups.
        """
        oldest = list(self._open.values())[:count]
        return sum(one.size - len(one.rollouts) for one in oldest)

    def begin(self, asked: Sequence[tuple[int, int]]) -> None:
        """Begin groups, as soon as the sampler has room for them.

        Args:
            asked: (place in the run, index of the task) of each.
        """
        first = self._next
        for number, (place, index) in enumerate(asked, first):
            self._open[number] = _Open(place, index, self._groups.size_of(index))
        self._next += len(asked)
        self._scheduler.add(self._plays(asked, first))

    def _plays(
        self, asked: Sequence[tuple[int, int]], first: int
    ) -> Iterator[tuple[_Key, Play[Rollout]]]:
        sizes = enumerate([self._groups.size_of(index) for _, index in asked], first)
        keys = ((number, g) for number, size in sizes for g in range(size))
        return zip(keys, self._groups.plays(asked, first), strict=True)

    def finish(self, count: int, advance: Advance | None = None) -> list[tuple[int, Group]]:
        """Finish the oldest groups: (index of the task, group) of each, in their order.  The others are parked then.

        Args:
            count: number of groups.
            advance: counts the rollouts of any group that end, and the tokens; None for nothing.
        """
        wanted = list(self._open)[:count]
        try:
            while not all(self._open[number].sampled for number in wanted):
                self._advance(advance)
        finally:
            self._scheduler.park()
        with self._groups.background.waiting():
            groups = [(self._open[number].index, self._open[number].group()) for number in wanted]
        for number in wanted:
            del self._open[number]
        return groups

    def drain(self, advance: Advance | None = None) -> Generator[tuple[int, Group], None, None]:
        """Finish all groups: (number, group) of each as it is done, in any order.

        Args:
            advance: counts the rollouts that end, and the tokens; None for nothing.
        """
        complete: deque[int] = deque()
        while self._scheduler.busy:
            complete += self._advance(advance)
            while complete and self._open[complete[0]].scored:
                yield complete[0], self._open.pop(complete.popleft()).group()
        for number in complete:
            with self._groups.background.waiting():
                scored = self._open.pop(number).group()
            yield number, scored

    def _advance(self, advance: Advance | None = None) -> list[int]:
        """Work for a moment; returns the numbers of the groups whose last rollout was sampled."""
        complete = []
        tokens = getattr(self._groups.sampler, "tokens", 0)
        ended = self._scheduler.advance()
        if advance is not None:
            advance(len(ended), tokens=getattr(self._groups.sampler, "tokens", 0) - tokens)
        for key, rollout in ended:
            number, g = cast(_Key, key)
            one = self._open[number]
            one.rollouts[g] = rollout
            self._begin_scoring(one, g)
            if one.sampled:
                complete.append(number)
        return complete

    def _begin_scoring(self, one: _Open, g: int) -> None:
        """Score rollout g, or all of the group once they are there if the reward compares completions.

        Those that have a score are left out: of episodes, and of completions that could not be had.
        """
        if self._groups.compares and not one.sampled:
            return
        together = list(range(one.size)) if self._groups.compares else [g]
        if numbers := [i for i in together if one.rollouts[i].score is None]:
            rollouts = [one.rollouts[i] for i in numbers]
            future = self._groups.score(
                rollouts[0].task, [rollout.completion for rollout in rollouts]
            )
            one.scores.append((numbers, future))

    def begin_again(self, oldest: int, count: int) -> int:
        """Sample those of the oldest groups anew that have a token of weights that are too old; returns their number.

        Args:
            oldest: version of the weights that is not too old.
            count: how many of the oldest groups are looked at.
        """
        again = 0
        for number, one in list(self._open.items())[:count]:
            keys = [(number, g) for g in range(one.size) if g not in one.rollouts]
            versions = [rollout.weights_version for rollout in one.rollouts.values()]
            if (begun := self._scheduler.oldest(keys)) is not None:
                versions.append(begun)
            if min(versions, default=oldest) < oldest:
                self._restart(number, keys)
                again += 1
        return again

    def _restart(self, number: int, keys: Sequence[_Key]) -> None:
        """Begin a group anew; `keys`: its plays that are with the scheduler."""
        one = self._open[number]
        self._cancel(one)
        self._scheduler.drop(keys)
        self._open[number] = _Open(one.place, one.index, one.size)
        self._scheduler.add(self._plays([(one.place, one.index)], number))

    def close(self) -> None:
        """Abort what is under way."""
        self._scheduler.close()
        for one in self._open.values():
            self._cancel(one)
        self._open.clear()

    @staticmethod
    def _cancel(one: _Open) -> None:
        for _, future in one.scores:
            future.cancel()

    def state_dict(self) -> dict[str, Any]:
        """The unfinished groups as plain JSON, with all tokens so far.  Tasks are kept as indices."""
        for one in self._open.values():
            one.wait()
        groups = [
            {
                "number": number,
                "place": one.place,
                "index": one.index,
                "rollouts": [[g, rollout_as_dict(rollout)] for g, rollout in one.rollouts.items()],
            }
            for number, one in self._open.items()
        ]
        return {"groups": groups, "plays": self._scheduler.state_dict() if groups else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a flight was when its `state_dict` was called, in one that is empty.

        Args:
            state: what it returned.

        Warns:
            RuntimeWarning: an episode does not repeat what it did; its group begins anew.
        """
        if not state["groups"]:
            return
        begun = {tuple(one["key"]) for kind in ("asked", "waiting") for one in state["plays"][kind]}
        plays: dict[Any, Play[Rollout]] = {}
        for kept in state["groups"]:
            number, place, index = kept["number"], kept["place"], kept["index"]
            one = self._open[number] = _Open(place, index, self._groups.size_of(index))
            rest = dict(self._plays([(place, index)], number))
            for g, rollout in kept["rollouts"]:
                one.rollouts[g] = rollout_from_dict(rollout, self._groups.task(index))
                del rest[number, g]
            plays |= {key: rest.pop(key) for key in list(rest) if key in begun}
            self._scheduler.add(rest.items())
        self._next = max(self._open) + 1
        other = [cast(_Key, key) for key in self._scheduler.load_state_dict(state["plays"], plays)]
        for number in sorted({number for number, _ in other}):
            one = self._open[number]
            keys = [(number, g) for g in range(one.size) if g not in one.rollouts]
            self._restart(number, [key for key in keys if key not in other])
        if other:
            warnings.warn(
                f"{len(other)} rollouts that were under way when the checkpoint was written, such as one of task "
                f"{self._open[other[0][0]].index}, do not repeat themselves, and their groups begin anew: the run goes "
                "on, but not to the last bit. With the same seed and the same actions an environment should give the "
                "same replies",
                RuntimeWarning,
                stacklevel=4,
            )


def sample_groups(
    groups: Groups, asked: Sequence[tuple[int, int]], advance: Advance | None = None
) -> Generator[tuple[int, Group], None, None]:
    """Sample and score a group for each task; yields (number in `asked`, group) as each is done, in any order.

    Args:
        groups: of the environment and the sampler.
        asked: (place in the run, index of the task) of each group.
        advance: counts the rollouts that end, and the tokens; None for nothing.
    """
    flight = Flight(groups)
    flight.begin(asked)
    try:
        yield from flight.drain(advance)
    finally:
        flight.close()
