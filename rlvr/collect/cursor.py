"""The order of tasks, as positions in an endless sequence, so that one
number is enough to resume."""

from __future__ import annotations

from functools import lru_cache

from rlvr.environment import Environment, seeded
from rlvr.errors import UsageError
from rlvr.types import Group, JsonDict, StateDict

__all__ = ["Cursor"]


class Cursor:
    """Goes through an environment's tasks, epoch after epoch, each in an order of its own.

    The order of an epoch is a permutation seeded by a hash of (id, split, seed, epoch).  An
    environment that generates its tasks has one endless epoch, in order of the indices.

    Args:
        env: the environment.
        seed: of the permutations.
        shuffle: False for the order of the indices in every epoch.
        name: seeds the permutations too; of an environment in a mixture, which may hold one
            environment twice.

    Attributes:
        position: number of tasks taken so far.
        size: tasks of an epoch; None if the environment generates them.

    Raises:
        UsageError: the environment has no task.
    """

    def __init__(
        self, env: Environment, *, seed: int, shuffle: bool = True, name: str = ""
    ) -> None:
        self.position = 0
        self.size: int | None = getattr(env, "size", None)
        if self.size is not None and self.size < 1:
            raise UsageError(f"{env.id} has no tasks in split {env.split!r}")
        self.shuffle = shuffle
        # Hashed: seeds that are added up would make runs share orders.
        self._key: tuple[str | int, ...] = (env.id, env.split, seed, *([name] if name else []))
        # One epoch's order is in memory.
        self._order = lru_cache(maxsize=1)(self._permutation)

    @property
    def epoch(self) -> int:
        """Number of completed epochs; always 0 if tasks are generated."""
        return 0 if self.size is None else self.position // self.size

    @property
    def identity(self) -> JsonDict:
        """What the order depends on beside the seed, as plain JSON."""
        return {"size": self.size, "shuffle": self.shuffle}

    def take(self, count: int) -> list[tuple[int, int]]:
        """Take the next tasks: (position, index) of each.

        Args:
            count: number of tasks.
        """
        first, self.position = self.position, self.position + count
        return [(position, self.index(position)) for position in range(first, self.position)]

    def index(self, position: int) -> int:
        """The index of the task at a position.

        Args:
            position: in the endless sequence, from 0.
        """
        if self.size is None:
            return position
        epoch, place = divmod(position, self.size)
        return self._order(epoch)[place] if self.shuffle else place

    def saw(self, index: int, group: Group) -> None:
        """How a group did has no effect on this order; see `MixtureCursor`.

        Args:
            index: of its task.
            group: as it was sampled.
        """

    def stats(self) -> dict[str, float]:
        """Metrics of the order: none."""
        return {}

    def state_dict(self) -> StateDict:
        """Everything that the order depends on, as plain JSON."""
        return {"position": self.position}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where a cursor was when its `state_dict` was called.

        Args:
            state: what it returned.
        """
        self.position = int(state["position"])

    def adopt(self, state: StateDict) -> None:
        """Continue where a cursor of the same environment was, perhaps with other options.

        Args:
            state: what its `state_dict` returned.
        """
        self.position = int(state["position"])

    def _permutation(self, epoch: int) -> list[int]:
        assert self.size is not None
        order = list(range(self.size))
        seeded("epoch", *self._key, epoch).shuffle(order)
        return order
