"""Groups that are under way: they begin in order, and may stay unfinished while the weights change.

begin ─▶ plays of their rollouts ─▶ scores ─▶ take: the oldest groups, in order
                  ▲                              │ what is left is parked, weights change
                  └──────────────────────────────┘

With the schedule "tokens" a score counts a fixed number of decode steps after its rollout, waiting
for it if need be: what is begun because of it then begins at the same step in every run.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, cast

from rlvr.collect.groups import Groups
from rlvr.collect.scheduler import Play, Scheduler, due_after
from rlvr.collect.serialization import require_task, rollout_as_dict, rollout_from_dict
from rlvr.collect.stats import own_tokens
from rlvr.display import Advance
from rlvr.types import Group, Rollout, Score, StateDict

__all__ = ["Flight", "OpenGroup", "sample_groups"]

_Key: TypeAlias = tuple[int, int]
"""(number of the group in the flight, number of the rollout in its group)."""


class _Scoring(NamedTuple):
    """Scores that are being computed: of which rollouts, and the decode
    step at which they count."""

    numbers: list[int]
    future: Future[list[Score]]
    due: int


@dataclass(slots=True, eq=False)
class OpenGroup:
    """A group that is under way: its finished rollouts by their numbers, and the scores
    that are being computed.

    Attributes:
        place, index: of its task.
        size: number of its rollouts; 0 for a task that is left out.
        rollouts: those that have ended, with their scores as soon as these count.
        scores: that do not count yet.
        left_out: the id of a task that is left out; None for one that is sampled.
        why: the collector's note on a finished group: why it cannot be trained on, empty if it can.
    """

    place: int
    index: int
    size: int
    rollouts: dict[int, Rollout] = field(default_factory=dict)
    scores: list[_Scoring] = field(default_factory=list)
    left_out: str | None = None
    why: str | None = None

    @property
    def sampled(self) -> bool:
        """Whether all rollouts have ended."""
        return len(self.rollouts) == self.size

    @property
    def finished(self) -> bool:
        """Whether all rollouts have ended, and their scores count."""
        return self.sampled and not self.scores

    @property
    def scored(self) -> bool:
        """Whether all scores of ended rollouts are there."""
        return all(scoring.future.done() for scoring in self.scores)

    @property
    def tokens(self) -> int:
        """Of the rollouts that have ended."""
        return sum(map(own_tokens, self.rollouts.values()))

    def settle(self, until: int | None) -> None:
        """Give rollouts the scores that count, and wait for these.

        Args:
            until: those that are due by this step; None for those that are there.
        """
        later = []
        for scoring in self.scores:
            if scoring.future.done() if until is None else scoring.due <= until:
                for g, score in zip(scoring.numbers, scoring.future.result(), strict=True):
                    self.rollouts[g] = replace(self.rollouts[g], score=score)
            else:
                later.append(scoring)
        self.scores = later

    def group(self) -> Group:
        """The group, with the scores; waits for them."""
        self.settle(sys.maxsize)
        rollouts = [rollout for _, rollout in sorted(self.rollouts.items())]
        complete = next((rollout for rollout in rollouts if rollout.prompt_ids), rollouts[0])
        for g, rollout in enumerate(rollouts):
            if not rollout.prompt_ids:  # an episode that did not begin
                rollouts[g] = replace(rollout, task=complete.task, prompt_ids=complete.prompt_ids)
        return Group(complete.task, rollouts)


class Flight:
    """Groups of one environment that are being sampled and scored, in the order
    in which they were begun.

    Args:
        groups: plays and scores them.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._scheduler: Scheduler[Rollout] = Scheduler(
            groups.sampler, groups.background, groups.schedule, most=groups.most_plays
        )
        self._open: dict[int, OpenGroup] = {}
        self._ticks = groups.schedule == "tokens"
        self._next = 0

    def __len__(self) -> int:
        """Number of unfinished groups."""
        return len(self._open)

    @property
    def open(self) -> list[OpenGroup]:
        """The unfinished groups, and finished ones that were not taken, in their order."""
        return list(self._open.values())

    def begin(self, place: int, index: int, left_out: str | None = None) -> None:
        """Begin a group, as soon as the sampler has room for it.

        Args:
            place: in the run.
            index: of the task.
            left_out: the id of a task that is not sampled; None for one that is.
        """
        if not self._open:
            self._next = 0
        number, self._next = self._next, self._next + 1
        if left_out is not None:
            self._open[number] = OpenGroup(place, index, 0, left_out=left_out)
            return
        self._open[number] = OpenGroup(place, index, self._groups.size_of(index))
        self._scheduler.add(self._plays([(place, index)], number))

    def _plays(
        self, asked: Sequence[tuple[int, int]], first: int
    ) -> Iterator[tuple[_Key, Play[Rollout]]]:
        sizes = enumerate([self._groups.size_of(index) for _, index in asked], first)
        keys = ((number, g) for number, size in sizes for g in range(size))
        return zip(keys, self._groups.plays(asked, first), strict=True)

    def work(self, advance: Advance | None = None) -> None:
        """Work for a moment, and let the scores count that are due.

        Args:
            advance: counts the rollouts that end, and the tokens; None for nothing.
        """
        if self._scheduler.busy:
            self._advance(advance)
        waiting = [scoring for open_group in self._open.values() for scoring in open_group.scores]
        if not waiting:
            return
        idle = not self._scheduler.busy
        with self._groups.background.waiting():
            if self._ticks:
                # A score counts at the step at which it is due, however early it came, so that a
                # run does not depend on the scorer's speed.  Where nothing is sampled no step
                # would come, and the first of them is due now.
                due = min(scoring.due for scoring in waiting) if idle else 0
                until: int | None = max(due, self._scheduler.now)
            else:
                until = None
                if idle:
                    wait([scoring.future for scoring in waiting], return_when=FIRST_COMPLETED)
            for group in self._open.values():
                group.settle(until)

    def settle(self, count: int) -> None:
        """Wait for the scores of the oldest groups, where scores would count at a later step.

        Args:
            count: number of groups, whose rollouts have all ended.
        """
        if self._ticks:
            with self._groups.background.waiting():
                for group in list(self._open.values())[:count]:
                    group.settle(sys.maxsize)

    def park(self) -> None:
        """Take all requests back from the sampler, until `work` is called again."""
        self._scheduler.park()

    def take(self, count: int) -> list[OpenGroup]:
        """The oldest groups, which are not under way from now on.

        Args:
            count: number of groups, which are finished.
        """
        return [self._open.pop(number) for number in list(self._open)[:count]]

    def drop_from(self, first: int) -> int:
        """Drop groups from one on; returns the number of their tokens.

        Args:
            first: how many of the oldest groups stay.
        """
        self.park()
        tokens = 0
        for number, group in list(self._open.items())[first:]:
            keys = [(number, g) for g in range(group.size) if g not in group.rollouts]
            tokens += group.tokens + self._scheduler.tokens(keys)
            self._cancel(group)
            self._scheduler.drop(keys)
            del self._open[number]
        return tokens

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
            group = self._open[number]
            group.rollouts[g] = rollout
            self._begin_scoring(group, g)
            if group.sampled:
                complete.append(number)
        return complete

    def _begin_scoring(self, one: OpenGroup, g: int) -> None:
        """Score rollout g, or all of the group once they are there if the reward compares
        completions.

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
            one.scores.append(_Scoring(numbers, future, due_after(self._scheduler.now)))

    def begin_again(self, oldest: int) -> int:
        """Sample groups anew that have a token of weights that are too old; returns their number.

        Args:
            oldest: version of the weights that is not too old.
        """
        again = 0
        for number, group in list(self._open.items()):
            keys = [(number, g) for g in range(group.size) if g not in group.rollouts]
            versions = [rollout.weights_version for rollout in group.rollouts.values()]
            if (begun := self._scheduler.oldest(keys)) is not None:
                versions.append(begun)
            if min(versions, default=oldest) < oldest:
                self._restart(number, keys)
                again += 1
        return again

    def _restart(self, number: int, keys: Sequence[_Key]) -> None:
        """Begin a group anew; `keys`: its plays that are with the scheduler."""
        group = self._open[number]
        self._cancel(group)
        self._scheduler.drop(keys)
        self._open[number] = OpenGroup(group.place, group.index, group.size)
        self._scheduler.add(self._plays([(group.place, group.index)], number))

    def close(self) -> None:
        """Abort what is under way."""
        self._scheduler.close()
        for group in self._open.values():
            self._cancel(group)
        self._open.clear()

    @staticmethod
    def _cancel(one: OpenGroup) -> None:
        for scoring in one.scores:
            scoring.future.cancel()

    def state_dict(self) -> StateDict:
        """The groups as plain JSON, with all tokens so far, and when their scores count.  Tasks are
        kept as indices."""
        groups = []
        for number, group in self._open.items():
            # Before they are settled, which forgets when they were due.
            dues = [(scoring.numbers, scoring.due) for scoring in group.scores]
            group.settle(sys.maxsize)
            rollouts = [[g, rollout_as_dict(rollout)] for g, rollout in group.rollouts.items()]
            task = next((rollout.task.id for rollout in group.rollouts.values()), group.left_out)
            fields = {
                "place": group.place,
                "index": group.index,
                "left_out": group.left_out,
                "task": task,
            }
            groups.append({"number": number, **fields, "rollouts": rollouts, "due": dues})
            self._wait_again(group, dues)
        plays = self._scheduler.state_dict() if groups else None
        return {"groups": groups, "plays": plays, "next": self._next if groups else 0}

    @staticmethod
    def _wait_again(one: OpenGroup, dues: Sequence[tuple[list[int], int]]) -> None:
        """Let scores that are there count when they are due."""
        for numbers, due in dues:
            future: Future[list[Score]] = Future()
            future.set_result([cast(Score, one.rollouts[g].score) for g in numbers])
            one.scores.append(_Scoring(list(numbers), future, due))
            for g in numbers:
                one.rollouts[g] = replace(one.rollouts[g], score=None)

    def load_state_dict(self, state: StateDict) -> None:
        """Go on where a flight was when its `state_dict` was called, in one that is empty.

        Args:
            state: what it returned.

        Warns:
            RuntimeWarning: an episode does not repeat what it did; its group begins anew.
        """
        self._next = state.get("next", 0)  # not in checkpoints of before
        if not state["groups"]:
            return
        begun = {
            tuple(play["key"]) for kind in ("asked", "waiting") for play in state["plays"][kind]
        }
        plays: dict[object, Play[Rollout]] = {}
        for fields in state["groups"]:
            number, place, index = fields["number"], fields["place"], fields["index"]
            size = 0 if fields["left_out"] is not None else self._groups.size_of(index)
            group = self._open[number] = OpenGroup(place, index, size, left_out=fields["left_out"])
            if fields["task"] is not None:
                require_task(fields["task"], self._groups.task(index))
            if not size:
                continue
            remaining = dict(self._plays([(place, index)], number))
            for g, rollout in fields["rollouts"]:
                group.rollouts[g] = rollout_from_dict(rollout, self._groups.task(index))
                del remaining[number, g]
            self._wait_again(group, fields["due"])
            # Those that had begun go on from the scheduler's state; the others are begun anew.
            plays |= {key: remaining.pop(key) for key in list(remaining) if key in begun}
            self._scheduler.add(remaining.items())
        self._next = max(self._next, max(self._open) + 1)
        again = [cast(_Key, key) for key in self._scheduler.load_state_dict(state["plays"], plays)]
        for number in sorted({number for number, _ in again}):
            group = self._open[number]
            keys = [(number, g) for g in range(group.size) if g not in group.rollouts]
            self._restart(number, [key for key in keys if key not in again])
        if again:
            warnings.warn(
                f"{len(again)} rollouts that were under way when the checkpoint was written, such "
                f"as one of task {self._open[again[0][0]].index}, do not repeat themselves, and "
                "their groups begin anew: the run goes on, but not to the last bit. With the same "
                "seed and the same actions an environment should give the same replies",
                RuntimeWarning,
                stacklevel=4,
            )


def sample_groups(
    groups: Groups, asked: Sequence[tuple[int, int]], advance: Advance | None = None
) -> Generator[tuple[int, Group], None, None]:
    """Sample and score a group for each task; yields (number in `asked`, group) as each is done, in
    any order.

    Args:
        groups: of the environment and the sampler.
        asked: (place in the run, index of the task) of each group.
        advance: counts the rollouts that end, and the tokens; None for nothing.
    """
    flight = Flight(groups)
    for place, index in asked:
        flight.begin(place, index)
    try:
        yield from flight.drain(advance)
    finally:
        flight.close()
