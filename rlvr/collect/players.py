"""Environments whose rollouts neither the collector nor their own `step` makes, such as agents that own their loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import Play
from rlvr.environment import MultiTurnEnv
from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.types import Prompt, Rollout, Task

__all__ = ["OwnLoopEnv", "Players"]


class Players(Protocol):
    """Plays the episodes of such an environment."""

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """The tasks of these indices; None where one could not be had in time."""

    def plays(
        self, asked: Sequence[tuple[int, int]], group_size: int, first: int = 0
    ) -> Iterator[Play[Rollout]]:
        """The episodes of each task (place in the run, index), group after group from number `first`; with scores."""

    def close(self) -> None:
        """End what is open."""


class OwnLoopEnv(MultiTurnEnv):
    """An environment that makes its own rollouts with the collector's sampler; define `players`."""

    @abstractmethod
    def players(
        self,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        max_turns: int,
        step_s: float,
        key: tuple[str | int, ...],
    ) -> Players:
        """What plays the episodes; for the arguments see `rlvr.collect.episodes.Episodes`."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """Refused, as `step` is: the loop is not the caller's.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.id} owns its loop and cannot be stepped; collect, train or evaluate it"
        )

    def step(self, action: str) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """Refused, see `reset`.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.id} owns its loop and cannot be stepped; collect, train or evaluate it"
        )
