"""What stands behind a `Scorer`: something that looks at completions, on this machine or on others.

Everything that depends on other completions (the order of rows, groups, composition of the reward)
is the scorer's; everything that contains a completion (kill, memory limit, second try) is the
engine's.  One item's observation depends on nothing but the item, so a chunk whose machine was lost
is sent to another one, with the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.scoring.identity import Identity
from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Seen

__all__ = ["Engine", "OnSeen", "QUICK_READ_CPU_S"]

QUICK_READ_CPU_S = 0.005
"""CPU seconds to read a reference where others wait for the worker: a
hundred times what most take."""

OnSeen: TypeAlias = Callable[[int, Seen], None]
"""Called with the place of an item and its observation, or why there is none."""


class Engine(ABC):
    """Turns items into observations; safe from any thread.  It serves one scorer.

    Attributes:
        workers: number of processes that look at completions; 0 for this process.
        chunks_at_once: how many calls of `observe` are worth making at the same time.
        threads: the greatest number that `chunks_at_once` may become.
        spread: into how many chunks the completions of one task are split, so that all workers have
            some.
        chunk_s: seconds of work per chunk: long against the way to the workers, short enough that
            none is idle at the end.
        chunk_items: greatest number of items in a chunk.
        accept: parts in which the identities of workers and machines may differ.
        awaits: whether items go one by one to `begin`, and not in chunks to `observe`.
        env: whose completions are looked at; `open` sets it.
    """

    workers: int = 0
    chunks_at_once: int = 1
    threads: int = 1
    spread: int = 1
    chunk_s: float = 0.3
    chunk_items: int = 512
    accept: Collection[str] = ()
    awaits: bool = False
    env: Environment

    def open(self, env: Environment) -> None:
        """Take the environment whose completions are to be looked at; starts nothing.  Called once.

        Args:
            env: the environment.

        Raises:
            UsageError: it was opened before.
        """
        # An engine knows one environment; a second would judge by the first.
        if hasattr(self, "env"):
            kind = type(self).__name__
            raise UsageError(f"a scorer of {self.env.id} has this {kind} already; make another")
        self.env = env

    @abstractmethod
    def warm(self) -> None:
        """Start now what would be started with the first item, and check that it can work.

        Raises:
            WorkerError: the environment cannot be rebuilt in a worker.
            UsageError: another machine has another version or environment.
            ServiceFailed: another machine cannot be reached.
        """

    @abstractmethod
    def observe(
        self,
        items: Sequence[Item],
        *,
        on_seen: OnSeen | None = None,
        give_up: Callable[[], bool] | None = None,
        quick: bool = False,
    ) -> list[Seen]:
        """Look at the items of a chunk; blocks.  An item that cannot be sent fails alone.

        Args:
            items: the chunk.
            on_seen: called in this thread with each observation as soon as it is there.
            give_up: asked while an item takes long; True ends the call.
            quick: whether a reference that takes more than `QUICK_READ_CPU_S` to read may be left
                as a `SlowReference`, so that the worker is free for others.

        Raises:
            GivenUp: `give_up` said so.
            UsageError: the engine was closed.
            ServiceFailed: no other machine could be reached, for long.
        """

    @abstractmethod
    def identity(self) -> Identity:
        """How items are judged, as far as it is known; the same object while it grows.

        Raises:
            UsageError: machines judge in different ways.
            ServiceFailed: another machine cannot be reached.
        """

    def begin(self, item: Item, *, quick: bool = False) -> Future[list[Seen]]:
        """Look at one item in the background, where `awaits` says so; cancelling the future gives
        it up.

        Args:
            item: the item.
            quick: see `observe`.

        Raises:
            UsageError: the engine was closed.
        """
        raise NotImplementedError

    @property
    def problem(self) -> str:
        """Why no item will be looked at any more; "" while they are."""
        return ""

    @property
    def processes(self) -> tuple[int, int]:
        """(started, lost): worker processes of this machine so far, and how many of them died or
        were killed."""
        return 0, 0

    @abstractmethod
    def close(self) -> None:
        """End what was started; calls under way raise `UsageError`.  Idempotent."""
