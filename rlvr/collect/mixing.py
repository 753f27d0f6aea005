"""The order of tasks of a mixture: by weights, exactly and without chance, and by a
curriculum if there is one.

The next task is of the environment that is furthest behind its part of all tasks so far (smooth
weighted round-robin); within an environment the order is that of a `Cursor` of its own.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean

from rlvr.collect.cursor import Cursor
from rlvr.environment import Curriculum, Environment, Mixture
from rlvr.types import Group, StateDict

__all__ = ["MixtureCursor", "cursor_of"]


class _Member:
    """One environment of a mixture: its own order, and what the curriculum knows of its tasks."""

    def __init__(self, env: Environment, name: str, seed: int, shuffle: bool) -> None:
        self.cursor = Cursor(env, seed=seed, shuffle=shuffle, name=name)
        self.taken = 0  # tasks, with those that came again
        self.credit = 0.0  # tasks by which it is behind its part
        self.solved: set[int] = set()
        self.delayed: dict[
            int, tuple[int, int]
        ] = {}  # task: (its delay, `taken` from which it is tried again)
        self.rates: deque[float] = deque()  # of the last groups

    @property
    def is_done(self) -> bool:
        return self.cursor.size is not None and len(self.solved) >= self.cursor.size

    def next(self) -> int:
        """The index of the next task: a delayed one whose time has come, else the next in order
        that is not solved."""
        self.taken += 1
        due = [(at, index) for index, (_, at) in self.delayed.items() if at < self.taken]
        if due:
            return self._again(min(due)[1])
        if (
            self.cursor.size is not None
            and len(self.solved) + len(self.delayed) >= self.cursor.size
        ):
            # nothing else is left
            return self._again(min((at, index) for index, (_, at) in self.delayed.items())[1])
        while True:
            [(_, index)] = self.cursor.take(1)
            if index not in self.solved and index not in self.delayed:
                return index

    def _again(self, index: int) -> int:
        """Not twice before its result is known: as if it had just been delayed."""
        delay, _ = self.delayed[index]
        self.delayed[index] = (delay, self.taken + delay)
        return index

    def saw(self, index: int, rate: float, plan: Curriculum) -> None:
        self.rates.append(rate)
        while len(self.rates) > plan.window:
            self.rates.popleft()
        delay, _ = self.delayed.pop(index, (0, 0))
        self.solved.discard(index)
        if rate >= plan.solved:
            if self.cursor.size is not None:  # a generated task never comes again by itself
                self.solved.add(index)
        elif rate <= plan.hopeless:
            delay = min(2 * delay or plan.delay, plan.longest_delay)
            self.delayed[index] = (delay, self.taken + delay)

    def rest(self, plan: Curriculum) -> float:
        """The part of its weight that it keeps."""
        if len(self.rates) < plan.window:
            return 1.0
        mean = fmean(self.rates)
        return 1.0 if plan.hopeless < mean < plan.solved else plan.rest

    def state_dict(self) -> dict[str, object]:
        return {
            "position": self.cursor.position,
            "taken": self.taken,
            "credit": self.credit,
            "solved": sorted(self.solved),
            "delayed": [[index, *delay] for index, delay in self.delayed.items()],
            "rates": list(self.rates),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.cursor.position, self.taken, self.credit = (
            state["position"],
            state["taken"],
            state["credit"],
        )
        self.solved, self.rates = set(state["solved"]), deque(state["rates"])
        self.delayed = {index: (delay, at) for index, delay, at in state["delayed"]}


class MixtureCursor:
    """Goes through the tasks of a mixture; has the methods of `Cursor`.

    Args:
        env: the mixture.
        seed: of the orders within the environments.
        shuffle: False for the order of the indices.

    Attributes:
        position: number of tasks taken so far.
        size: tasks of all environments; None if one of them generates tasks without end.
    """

    def __init__(self, env: Mixture, *, seed: int, shuffle: bool = True) -> None:
        self.env, self.shuffle, self.size = env, shuffle, env.size
        self.position = 0
        self._members = {
            name: _Member(env.env_of(name), name, seed, shuffle) for name in env.shares
        }

    @property
    def epoch(self) -> int:
        """Completed epochs of the environment that has completed the fewest."""
        return min(member.cursor.epoch for member in self._members.values())

    @property
    def identity(self) -> dict[str, object]:
        """What the order depends on beside the seed, as plain JSON."""
        return {"size": self.size, "shuffle": self.shuffle, "envs": self.env.config["envs"]}

    def take(self, count: int) -> list[tuple[int, int]]:
        """Take the next tasks: (position, index) of each.

        Args:
            count: number of tasks.
        """
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> tuple[int, int]:
        if all(member.is_done for member in self._members.values()):
            for member in self._members.values():  # everything is solved: begin anew
                member.solved.clear()
        plan = self.env.curriculum
        weights = {
            name: weight * (1.0 if plan is None else self._members[name].rest(plan))
            for name, weight in self.env.weights.items()
            if not self._members[name].is_done
        }
        total = sum(weights.values())
        for name, weight in weights.items():
            self._members[name].credit += weight / total
        # the first of those with equal credit
        name = max(weights, key=lambda name: self._members[name].credit)
        self._members[name].credit -= 1.0
        place, index = self.position, self.env.number(name, self._members[name].next())
        self.position += 1
        return place, index

    def saw(self, index: int, group: Group) -> None:
        """Tell the curriculum how a group did.

        Args:
            index: of its task.
            group: as it was sampled.
        """
        if self.env.curriculum is None:
            return
        scored = [
            r.score.verdict.correct
            for r in group.rollouts
            if r.score is not None and r.score.total is not None
        ]
        if scored:
            name, member_index = self.env.locate(index)
            self._members[name].saw(member_index, fmean(scored), self.env.curriculum)

    def stats(self) -> dict[str, float]:
        """Metrics of the curriculum: solved and delayed tasks of each environment, and the part of
        its weight."""
        plan = self.env.curriculum
        if plan is None:
            return {}
        metrics = {}
        for name, member in self._members.items():
            metrics[f"env/{name}/solved"] = float(len(member.solved))
            metrics[f"env/{name}/delayed"] = float(len(member.delayed))
            metrics[f"env/{name}/rest"] = member.rest(plan)
        return metrics

    def state_dict(self) -> StateDict:
        """Everything that the order depends on, as plain JSON."""
        members = {name: member.state_dict() for name, member in self._members.items()}
        return {"position": self.position, "members": members}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where a cursor was when its `state_dict` was called.

        Args:
            state: what it returned.
        """
        self.position = int(state["position"])
        for name, member in self._members.items():
            member.load_state_dict(state["members"][name])

    def adopt(self, state: StateDict) -> None:
        """Continue where a mixture with other weights or members was: each member that there was
        goes on.

        Args:
            state: what its `state_dict` returned.
        """
        self.position = int(state["position"])
        for name in self._members.keys() & state["members"].keys():
            self._members[name].load_state_dict({**state["members"][name], "credit": 0.0})


def cursor_of(env: Environment, *, seed: int, shuffle: bool = True) -> Cursor | MixtureCursor:
    """The cursor of an environment.

    Args:
        env: a mixture or another environment.
        seed, shuffle: see `Cursor`.
    """
    kind = MixtureCursor if env.shares else Cursor
    return kind(env, seed=seed, shuffle=shuffle)  # type: ignore[arg-type]
