"""Scores for many completions, in worker processes that can be killed: a bad
item never affects another.

    rows ─▶ Item ─chunks─▶ Engine: env.observe ─▶ Observation ─▶ reward.combine ─▶ Scored, in order

The engine is a pool of processes on this machine, or something that reaches such pools on other
machines (`rlvr.scoring.engines`).  The completions of an async environment go to the pool one by
one; its async group-level parts are awaited in this process.

An item that hangs, fills memory, kills its process or raises is a failure of rlvr or the
environment, since a verifier must bound itself: it is UNSCORED, with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from itertools import starmap
from operator import length_hint
from pathlib import Path
from typing import Any, TypeAlias

from rlvr.data.formats import count_rows
from rlvr.display import progress_bar
from rlvr.environment import Environment, require_environment
from rlvr.errors import DataError, UsageError, WorkerError, WorkerTimeout, brief, describe_error
from rlvr.rewards import Observation
from rlvr.scoring.engine import Engine, OnSeen
from rlvr.scoring.identity import Identity, require_acceptable
from rlvr.scoring.items import Item, OnError, Rows
from rlvr.scoring.ordering import Ordering, Scored, Scores, Seen, Taken, UnreadReference
from rlvr.scoring.pool import MEMORY_MIB, WALL_S, Pool, cancelled_by_us, unscored_outcome
from rlvr.types import Completion, Score, Task
from rlvr.validate import require_seconds, require_whole
from rlvr.workers import BoundedCalls
from rlvr.workers.loops import finish
from rlvr.workers.threads import Threads

__all__ = ["Scorer", "score"]

# chunks per worker that may be done before their turn, so that a slow chunk does not stop the
# others
_AHEAD = 100
_SLICE_S = 1.0  # of a wait
_LETTERS = 16 << 20  # of all texts under way; one row alone may have more
_Window: TypeAlias = deque[tuple[list[Taken], Future[list[Seen]]]]
"""Chunks under way, in order."""


class Scorer:
    """A pool of worker processes that score completions of one environment.  Safe from
    threads, asyncio, notebooks.

        with rlvr.Scorer(env, workers=2) as scorer:
            for scored in scorer.stream(rows): ...
            score = scorer.score(task, "… \\boxed{42}")
            score = await scorer.ascore(task, "… \\boxed{42}")

    Args:
        env: sent to the workers with cloudpickle, so its class may stand in a script or a notebook.
            If it is async, `env.max_concurrent` completions are awaited at once, in all workers
            together.
        workers: number of processes; None for one per available core; 0 scores in this process,
            where a debugger works and nothing is contained.
        wall_s: wall seconds after which the worker of an item is killed.  A last resort: verifiers
            bound themselves.
        memory_mib: limit on a worker's private memory, in MiB; None for no limit.
        engine: where completions are looked at, such as
            `rlvr.scoring.engines.Services("http://10.0.0.7:8000")`; None for worker processes on
            this machine.  The scorer closes it.
        accept: parts of the identity that may differ between workers or machines, or change
            meanwhile: "code", "inputs"; see `rlvr.scoring.identity`.

    Attributes:
        awaits: whether completions go one by one to `begin`, as those of an async environment do;
            others go in chunks.

    Raises:
        UsageError: `env` is no environment or has several turns, a number is out of range, or there
            are `workers` and an engine.
    """

    def __init__(
        self,
        env: Environment,
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
        engine: Engine | None = None,
        accept: Collection[str] = (),
    ) -> None:
        require_environment(env)
        require_seconds("wall_s", wall_s)
        self.env, self.wall_s = env, wall_s
        self._chunk = 1
        at_once = require_whole("max_concurrent", env.max_concurrent, 1)
        if engine is None:
            engine = Pool(workers=workers, wall_s=wall_s, memory_mib=memory_mib)
        elif not isinstance(engine, Engine):
            raise UsageError(
                f"engine is {brief(engine)}; rlvr.scoring.engines.Services or .RayCluster makes one"
            )
        elif workers is not None:
            raise UsageError(
                f"workers={workers} are processes of this machine, and the engine has its own; "
                f"leave out one"
            )
        require_acceptable(accept)
        engine.accept = accept
        engine.open(env)
        self.engine, self.awaits = engine, engine.awaits
        self._threads = Threads(engine.threads, "scorer")
        self._here = BoundedCalls(at_once, "scorer")

    def warm(self) -> Scorer:
        """Start the workers now and wait for the first.

        Raises:
            WorkerError: the environment cannot be rebuilt in a worker.
            UsageError, ServiceFailed: see the engine.
        """
        self.engine.warm()
        return self

    def identity(self) -> Identity:
        """How completions are scored, as far as it is known; the same object while it grows.

        Raises:
            UsageError, ServiceFailed: see the engine.
        """
        return self.engine.identity()

    @property
    def workers(self) -> int:
        """Number of worker processes; 0 if completions are looked at in this process."""
        return self.engine.workers

    @property
    def processes(self) -> tuple[int, int]:
        """(started, lost): worker processes so far, and how many of them died or were killed before
        their time."""
        return self.engine.processes

    @property
    def at_once(self) -> int:
        """How many completions are worked on at once."""
        return self.env.max_concurrent if self.awaits else self.engine.chunks_at_once

    def close(self) -> None:
        """Kill the workers; calls that wait for a score raise `UsageError`.  Idempotent."""
        self._threads.close()
        self._here.close()
        self.engine.close()

    def __enter__(self) -> Scorer:
        return self.warm()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def score(self, task: Task, completion: str | Completion) -> Score:
        """Score one completion; blocks.

        Args:
            task: what it answers.
            completion: the text; a `Completion` if the reward reads its length.
        """
        self._require_single()
        return self.score_group(task, [completion])[0]

    def score_group(self, task: Task, completions: Sequence[str | Completion]) -> list[Score]:
        """Score the completions of one task together; blocks.

        Args:
            task: what they answer.
            completions: texts; `Completion` objects if the reward reads their lengths.
        """
        items = self._group(task, completions)
        chunks = self._shares(items)
        if len(chunks) == 1 and not self.awaits:
            # A hop to another thread costs more than a short chunk.
            observations = self._observe(items)  # without a hop to another thread
        else:
            futures = [self._begin(chunk) for chunk in chunks]
            try:
                observations = [o for future in futures for o in future.result()]
            finally:
                # After an error the others are not wanted.
                for future in futures:
                    future.cancel()
        scores = self.combine(items, observations)
        return scores.result() if isinstance(scores, Future) else scores

    async def ascore(self, task: Task, completion: str | Completion) -> Score:
        """Score one completion without blocking the event loop.

        Args:
            task, completion: see `score`.
        """
        self._require_single()
        return (await self.ascore_group(task, [completion]))[0]

    async def ascore_group(
        self, task: Task, completions: Sequence[str | Completion]
    ) -> list[Score]:
        """Score the completions of one task together without blocking the event loop.

        Args:
            task, completions: see `score_group`.
        """
        items = self._group(task, completions)
        futures = [self._begin(chunk) for chunk in self._shares(items)]
        observed = await asyncio.gather(*map(asyncio.wrap_future, futures))
        scores = self.combine(items, [o for chunk in observed for o in chunk])
        return await asyncio.wrap_future(scores) if isinstance(scores, Future) else scores

    def _require_single(self) -> None:
        if self.env.reward.group_level:
            raise UsageError(
                f"the reward {self.env.reward} compares completions of one task: use score_group"
            )

    def _group(self, task: Task, completions: Sequence[str | Completion]) -> list[Item]:
        if isinstance(completions, str):
            raise UsageError(
                f"score_group got the text {completions[:60]!r}; give it a list of completions"
            )
        items = [
            Item("", task, c if isinstance(c, Completion) else Completion(c)) for c in completions
        ]
        if self.env.reward.needs_length and any(
            item.completion.length_tokens is None for item in items
        ):
            raise UsageError(
                f"the reward {self.env.reward} reads length_tokens: give Completion(text, "
                f"length_tokens)"
            )
        return items

    def _shares(self, items: list[Item]) -> list[list[Item]]:
        """Split the items so that every worker gets some."""
        # Rounded up, so that no more shares come out than workers.
        share = max(1, min(self._chunk, -(-len(items) // self.engine.spread)))
        return [items[i : i + share] for i in range(0, len(items), share)]

    def stream(
        self, rows: Rows, *, on_error: OnError | None = None
    ) -> Generator[Scored, None, None]:
        """Scores in the order of the rows; a bounded number of rows is under way.

        A row has `completion` and says which task it answers: `task`, an index or an id of the
        environment; or `reference`, with or without `prompt`; or the columns of the environment's
        own data set.  `id`, `length_tokens` and `truncated` are read if present; every other column
        is passed through.  If the reward compares the completions of a task, these must stand in
        consecutive rows, which name the task in `task` if they have a `reference`.

        Args:
            rows: mappings, items, or the path of a .jsonl or .parquet file.
            on_error: called for a row that cannot be used, which is then left out; if None, such a
                row raises.

        Raises:
            DataError: a row cannot be used and there is no `on_error`.  The scores of the rows
                before it come first, except those of a group that it may belong to.
        """
        window: _Window = deque()
        ordering = Ordering(
            self.env,
            rows,
            on_error,
            self.combine,
            by_group=self.env.reward.group_level,
            most_letters=_LETTERS,
        )
        at_once = self.env.max_concurrent
        try:
            while True:
                # Filled up before anything is waited for.
                while self._wants_more(window) and (chunk := ordering.take(self._chunk)):
                    window.append((chunk, self._begin([queued.item for queued in chunk])))
                if not window:
                    break
                if window[0][1].done():
                    chunk, future = window.popleft()
                    for entry, outcome in zip(chunk, future.result(), strict=True):
                        entry.seen = outcome
                else:
                    under_way: list[Future[Any]] = [
                        future for _, future in window if not future.done()
                    ]
                    # In slices: a Ctrl-C that comes just before a wait without end is only seen
                    # after it.
                    wait(
                        [*under_way, *filter(None, [ordering.combining])],
                        _SLICE_S,
                        return_when=FIRST_COMPLETED,
                    )
                yield from starmap(Scored, ordering.ready(at_once))
            yield from starmap(Scored, ordering.rest())
        finally:
            for _, future in window:
                future.cancel()
            ordering.cancel()

    def _wants_more(self, window: _Window) -> bool:
        """Three chunks for each worker; more while the first one takes long, so that the other
        workers have work."""
        at_once = self.at_once
        if len(window) < 3 * at_once:
            return True
        # The first is done, so handing over comes first.
        if window[0][1].done() or len(window) >= _AHEAD * at_once:
            return False
        return sum(not future.done() for _, future in window) < 3 * at_once

    def _begin(self, items: Sequence[Item]) -> Future[list[Seen]]:
        """The first stage for a chunk, in the background."""
        return self.begin(*items) if self.awaits else self._threads.submit(self._observe, items)

    def begin(self, item: Item, *, quick: bool = False) -> Future[list[Seen]]:
        """The first stage for a completion of an async environment, in the background; cancelling
        it gives it up.

        Args:
            item: the completion.
            quick: see `Engine.observe`.

        Raises:
            UsageError: the scorer was closed.
        """
        return self.engine.begin(item, quick=quick)

    def _observe(self, items: Sequence[Item]) -> list[Seen]:
        start = time.monotonic()
        outcomes = self.engine.observe(items)
        self._adapt(len(items), time.monotonic() - start)
        return outcomes

    def observe(
        self,
        items: Sequence[Item],
        *,
        on_seen: OnSeen | None = None,
        give_up: Callable[[], bool] | None = None,
        quick: bool = False,
    ) -> list[Seen]:
        """The first stage for a chunk of an environment that is not async, in one worker; blocks.

        An item that cannot be sent, such as one with a generator in its meta, fails alone.

        Args:
            items: the chunk.
            on_seen: called in this thread with each observation as soon as it is there.
            give_up: see `WorkerPool.run`.
            quick: see `Engine.observe`.

        Raises:
            GivenUp: `give_up` said so.
            UsageError: the scorer was closed.
        """
        return self.engine.observe(items, on_seen=on_seen, give_up=give_up, quick=quick)

    def _adapt(self, done: int, took_s: float) -> None:
        """Double the size of chunks while they are quick, halve it when they are slow."""
        # Chunks at the end of a file are shorter, and say nothing.
        if done == self._chunk:
            work_s, limit = self.engine.chunk_s, self.engine.chunk_items
            self._chunk = (
                min(2 * done, limit)
                if took_s < work_s / 2
                else max(done // 2, 1)
                if took_s > work_s
                else done
            )

    def combine(self, items: Sequence[Item], seen: Sequence[Seen]) -> Scores:
        """The second stage for the completions of a task: done at once, unless a group-level part
        is async.

        Args:
            items: the completions.
            seen: their results of the first stage.

        Raises:
            DataError: an item could not be sent to a worker.
        """
        observations = []
        for outcome in seen:
            # of a task that was drawn: a row is left out earlier
            if isinstance(outcome, UnreadReference):
                outcome = unscored_outcome(WorkerError("DataError", str(outcome), ""))
            if isinstance(outcome, DataError):
                raise outcome
            observations.append(outcome)
        if self.env.reward.combines_async:
            # In the loop of this process: rewards keep their clients there.
            return self._here.submit(self._combine_scores, items, observations)
        return finish(self._combine_scores(items, observations))

    async def _combine_scores(
        self, items: Sequence[Item], seen: Sequence[Observation]
    ) -> list[Score]:
        if not items:
            return []
        reward, completions = self.env.reward, [item.completion for item in items]
        combining = reward.acombine(items[0].task, completions, seen)
        try:
            if not reward.combines_async:
                return await combining
            async with asyncio.timeout(self.wall_s) as limit:
                # A task of its own: code that cancels itself ends nothing else.
                return await asyncio.ensure_future(combining)  # see `_observed_here`
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a group-level part failed: the whole group is UNSCORED
            if isinstance(error, asyncio.CancelledError) and cancelled_by_us():
                raise
            # The limit expired, and not a timeout of the reward's own.
            late = reward.combines_async and limit.expired()
            lost = unscored_outcome(
                WorkerTimeout("it ran out of wall time")
                if late
                else WorkerError(*describe_error(error))
            )
        return [Score(None, {}, lost.verdict) for _ in items]


def score(
    env: Environment,
    rows: Rows,
    *,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    engine: Engine | None = None,
    on_error: OnError | None = None,
    progress: bool = False,
) -> Iterator[Scored]:
    """Score rows with worker processes of their own, in order; see `Scorer` and `Scorer.stream`.

        for scored in rlvr.score(rlvr.make("gsm8k-v4"), rows, workers=2):
            print(scored.item.id, scored.score.total, scored.score.verdict.why)

    Args:
        env, workers, wall_s, memory_mib, engine: see `Scorer`.
        rows, on_error: see `Scorer.stream`.
        progress: show a progress bar on stderr, if that is a terminal or a notebook.
    """
    with ExitStack() as stack:
        scorer = Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib, engine=engine)
        stack.enter_context(scorer)
        tick = None
        if progress:
            # Counted only for a bar; reading a file twice is cheap beside scoring it.
            total = count_rows(rows) if isinstance(rows, (str, Path)) else length_hint(rows)
            tick = stack.enter_context(progress_bar(f"scoring with {env.id}", total or None))
        for scored in scorer.stream(rows, on_error=on_error):
            yield scored
            if tick is not None:
                tick()
