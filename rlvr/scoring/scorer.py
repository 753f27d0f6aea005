"""Scores for many completions, in worker processes that can be killed: a bad item never affects another.

    rows ──▶ Item ──chunks──▶ WorkerPool: env.observe ──▶ Observation ──▶ reward.combine ──▶ Scored, in order

The completions of an async environment go one by one to an `AsyncPool`, which awaits many of them in each process; its
async group-level parts are awaited in this process.

An item that hangs, fills memory, kills its process or raises is a failure of rlvr or the environment, since a verifier
must bound itself: it is tried once more and is then UNSCORED, with the reason.  This is one of the two places where
exceptions become values; what the completion did wrong is a verdict already.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any, TypeAlias

from rlvr.data.formats import count_rows
from rlvr.display import progress_bar
from rlvr.environment import Environment, MultiTurnEnv, ToolEnv
from rlvr.errors import DataError, Unscored, UsageError, WorkerDied, WorkerError, WorkerTimeout, described
from rlvr.rewards import Observation
from rlvr.scoring.items import Item, OnError, Rows
from rlvr.scoring.ordering import Ordering, Scored, Scores, Seen, Taken
from rlvr.types import Completion, Outcome, Score, Task, Verdict
from rlvr.validate import require_seconds, require_whole
from rlvr.workers import AsyncPool, BoundedCalls, Handler, WorkerPool, shipped, usable_cores
from rlvr.workers.loops import finished
from rlvr.workers.pool import REPLY_MIB
from rlvr.workers.threads import Threads

__all__ = ["MEMORY_MIB", "OnSeen", "Scorer", "WALL_S", "score", "unscored"]

_CHUNK_S = 0.03  # work per chunk: long against the pipe's delay, short enough that no worker is idle at the end
_CHUNK = 64
_AHEAD = 100  # chunks per worker that may be done before their turn, so that a slow chunk does not stop the others
WALL_S = 30.0
MEMORY_MIB = 4096

_Window: TypeAlias = deque[tuple[list[Taken], Future[list[Seen]]]]
"""Chunks under way, in order."""

OnSeen: TypeAlias = Callable[[int, Observation], None]
"""Called with the place of an item and its observation."""


class Scorer:
    """A pool of worker processes that score completions of one environment.  Safe from threads, asyncio, notebooks.

        with rlvr.Scorer(env, workers=2) as scorer:
            for scored in scorer.stream(rows): ...
            score = scorer.score(task, "… \\boxed{42}")
            score = await scorer.ascore(task, "… \\boxed{42}")

    Args:
        env: sent to the workers with cloudpickle, so its class may stand in a script or a notebook.  If it is async,
            `env.max_concurrent` completions are awaited at once, in all workers together.
        workers: number of processes; None for one per available core; 0 scores in this process, where a debugger works
            and nothing is contained.
        wall_s: wall seconds after which the worker of an item is killed.  A last resort: verifiers bound themselves.
        memory_mib: limit on a worker's private memory, in MiB; None for no limit.

    Raises:
        UsageError: `env` is no environment or has several turns, or a number is out of range.
    """

    def __init__(
        self,
        env: Environment,
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
    ) -> None:
        if not isinstance(env, Environment):
            raise UsageError(f"{env!r} is not an environment; rlvr.make('gsm8k-v2') gives one")
        if isinstance(env, MultiTurnEnv) and not isinstance(env, ToolEnv):
            raise UsageError(
                f"{env.id} has several turns; its last step's info has the episode's score, no Scorer does"
            )
        hint = "0 to score in this process"
        self.workers = usable_cores() if workers is None else require_whole("workers", workers, 0, hint=hint)
        require_seconds("wall_s", wall_s)
        self.env, self.wall_s = env, wall_s
        self._chunk = 1
        self._is_async = env.is_async
        self._pool: WorkerPool | AsyncPool | None = None
        at_once = require_whole("max_concurrent", env.max_concurrent, 1)
        if self.workers and self._is_async:
            self._pool = AsyncPool(
                partial(_async_handler, env.without_tasks()),
                workers=self.workers,
                at_once=at_once,
                wall_s=wall_s,
                memory_mib=memory_mib,
            )
        elif self.workers:
            setup = partial(_handler, env.without_tasks())
            self._pool = WorkerPool(setup, workers=self.workers, memory_mib=memory_mib)
        self._threads = Threads(max(1, self.workers), "scorer")
        self._here = BoundedCalls(at_once, "scorer")

    def warm(self) -> Scorer:
        """Start the workers now and wait for the first.

        Raises:
            WorkerError: the environment cannot be rebuilt in a worker.
        """
        if self._pool is not None:
            self._pool.warm()
        return self

    @property
    def processes(self) -> tuple[int, int]:
        """(started, lost): worker processes so far, and how many of them died or were killed before their time."""
        return (0, 0) if self._pool is None else (self._pool.started, self._pool.lost)

    @property
    def at_once(self) -> int:
        """How many completions are worked on at once."""
        return self.env.max_concurrent if self._is_async else max(1, self.workers)

    def close(self) -> None:
        """Kill the workers; calls that wait for a score raise `UsageError`.  Idempotent."""
        self._threads.close()
        self._here.close()
        if self._pool is not None:
            self._pool.close()

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
        if len(chunks) == 1 and not self._is_async:
            observations = self._observe(items)  # without a hop to another thread
        else:
            futures = [self._begin(chunk) for chunk in chunks]
            try:
                observations = [o for future in futures for o in future.result()]
            finally:
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

    async def ascore_group(self, task: Task, completions: Sequence[str | Completion]) -> list[Score]:
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
            raise UsageError(f"the reward {self.env.reward} compares completions of one task: use score_group")

    def _group(self, task: Task, completions: Sequence[str | Completion]) -> list[Item]:
        if isinstance(completions, str):
            raise UsageError(f"score_group got the text {completions[:60]!r}; give it a list of completions")
        items = [Item("", task, c if isinstance(c, Completion) else Completion(c)) for c in completions]
        if self.env.reward.needs_length and any(item.completion.length_tokens is None for item in items):
            raise UsageError(f"the reward {self.env.reward} reads length_tokens: give Completion(text, length_tokens)")
        return items

    def _shares(self, items: list[Item]) -> list[list[Item]]:
        """Split the items so that every worker gets some."""
        share = max(1, min(self._chunk, -(-len(items) // max(1, self.workers))))
        return [items[i : i + share] for i in range(0, len(items), share)]

    def stream(self, rows: Rows, *, on_error: OnError | None = None) -> Generator[Scored, None, None]:
        """Scores in the order of the rows; a bounded number of rows is under way.

        A row has `completion` and says which task it answers: `task`, an index or an id of the environment; or
        `reference`, with or without `prompt`; or the columns of the environment's own data set.  `id`,
        `length_tokens` and `truncated` are read if present; every other column is passed through.  If the reward
        compares the completions of a task, these must stand in consecutive rows, which name the task in `task` if they
        have a `reference`.

        Args:
            rows: mappings, items, or the path of a .jsonl or .parquet file.
            on_error: called for a row that cannot be used, which is then left out; if None, such a row raises.

        Raises:
            DataError: a row cannot be used and there is no `on_error`.  The scores of the rows before it come first,
                except those of a group that it may belong to.
        """
        window: _Window = deque()
        ordering = Ordering(self.env, rows, on_error, self.combine)
        at_once = self.env.max_concurrent
        try:
            while True:
                while self._wants_more(window) and (chunk := ordering.take(self._chunk)):
                    window.append((chunk, self._begin([taken.item for taken in chunk])))
                if not window:
                    break
                if window[0][1].done():
                    chunk, future = window.popleft()
                    for taken, seen in zip(chunk, future.result(), strict=True):
                        taken.seen = seen
                else:
                    under_way: list[Future[Any]] = [future for _, future in window if not future.done()]
                    wait([*under_way, *filter(None, [ordering.combining])], return_when=FIRST_COMPLETED)
                yield from ordering.scores(at_once)
            yield from ordering.rest()
        finally:
            for _, future in window:
                future.cancel()
            ordering.cancel()

    def _wants_more(self, window: _Window) -> bool:
        """Three chunks for each worker; more while the first one takes long, so that the other workers have work."""
        at_once = self.at_once
        if len(window) < 3 * at_once:
            return True
        if window[0][1].done() or len(window) >= _AHEAD * at_once:
            return False
        return sum(not future.done() for _, future in window) < 3 * at_once

    @property
    def awaits(self) -> bool:
        """Whether the environment is async: its completions go one by one to `begin`, and others in chunks."""
        return self._is_async

    def _begin(self, items: Sequence[Item]) -> Future[list[Seen]]:
        """The first stage for a chunk, in the background."""
        return self.begin(*items) if self._is_async else self._threads.submit(self._observe, items)

    def begin(self, item: Item) -> Future[list[Seen]]:
        """The first stage for a completion of an async environment, in the background; cancelling it gives it up.

        Args:
            item: the completion.

        Raises:
            UsageError: the scorer was closed.
        """
        if self._pool is None:
            return self._here.submit(_observed_here, self.env, item)
        assert isinstance(self._pool, AsyncPool)
        work = (item.task, item.completion)
        try:
            return self._pool.submit(work, _seen)
        except UsageError:
            if (fault := _fault(work)) is None:
                raise  # the scorer was closed
        unsent: Future[list[Seen]] = Future()
        unsent.set_result([fault])
        return unsent

    def _observe(self, items: Sequence[Item]) -> list[Seen]:
        start = time.monotonic()
        seen = self.observe(items)
        self._adapt(len(items), time.monotonic() - start)
        return seen

    def observe(
        self, items: Sequence[Item], *, on_seen: OnSeen | None = None, give_up: Callable[[], bool] | None = None
    ) -> list[Seen]:
        """The first stage for a chunk of an environment that is not async, in one worker; blocks.

        An item that cannot be sent, such as one with a generator in its meta, fails alone.

        Args:
            items: the chunk.
            on_seen: called in this thread with each observation as soon as it is there.
            give_up: see `WorkerPool.run`.

        Raises:
            GivenUp: `give_up` said so.
            UsageError: the scorer was closed.
        """
        if self._pool is None:
            return [one for item in items for one in finished(_observed_here(self.env, item))]
        work = [(item.task, item.completion) for item in items]
        try:
            return [*self._ran(work, on_seen, give_up)]
        except UsageError:
            faults = [_fault(one) for one in work]
            if not any(faults):
                raise  # the scorer was closed
        good = iter(self._ran([one for one, fault in zip(work, faults, strict=True) if fault is None], None, give_up))
        return [next(good) if fault is None else fault for fault in faults]

    def _ran(
        self, work: list[tuple[Task, Completion]], on_seen: OnSeen | None, give_up: Callable[[], bool] | None
    ) -> list[Observation]:
        """Run in the pool; an item that failed is tried once more."""
        assert isinstance(self._pool, WorkerPool)
        results: dict[int, Observation | Unscored] = {}

        def note(place: int, result: Any) -> None:
            results[place] = seen = _read(result)
            if on_seen is not None and isinstance(seen, Observation):
                on_seen(place, seen)

        self._pool.run(work, wall_s=self.wall_s, on_result=note, give_up=give_up)
        for place, seen in results.items():
            if isinstance(seen, Unscored):
                [again] = map(_read, self._pool.run([work[place]], wall_s=self.wall_s, give_up=give_up))
                results[place] = unscored(again) if isinstance(again, Unscored) else again
        return [seen for _, seen in sorted(results.items()) if isinstance(seen, Observation)]

    def _adapt(self, done: int, took_s: float) -> None:
        """Double the size of chunks while they are quick, halve it when they are slow."""
        if done == self._chunk:
            self._chunk = (
                min(2 * done, _CHUNK) if took_s < _CHUNK_S / 2 else max(done // 2, 1) if took_s > _CHUNK_S else done
            )

    def combine(self, items: Sequence[Item], seen: Sequence[Seen]) -> Scores:
        """The second stage for the completions of a task: done at once, unless a group-level part is async.

        Args:
            items: the completions.
            seen: their results of the first stage.

        Raises:
            DataError: an item could not be sent to a worker.
        """
        observations = []
        for one in seen:
            if isinstance(one, DataError):
                raise one
            observations.append(one)
        if self.env.reward.combines_async:
            return self._here.submit(self._combined, items, observations)
        return finished(self._combined(items, observations))

    async def _combined(self, items: Sequence[Item], seen: Sequence[Observation]) -> list[Score]:
        if not items:
            return []
        reward, completions = self.env.reward, [item.completion for item in items]
        combining = reward.acombine(items[0].task, completions, seen)
        try:
            if not reward.combines_async:
                return await combining
            async with asyncio.timeout(self.wall_s) as limit:
                return await asyncio.ensure_future(combining)  # see `_observed_here`
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a group-level part failed: the whole group is UNSCORED
            if isinstance(error, asyncio.CancelledError) and _cancelled_by_us():
                raise
            late = reward.combines_async and limit.expired()
            lost = unscored(WorkerTimeout("it ran out of wall time") if late else WorkerError(*described(error)))
        return [Score(None, {}, lost.verdict) for _ in items]


def score(
    env: Environment,
    rows: Rows,
    *,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    on_error: OnError | None = None,
    progress: bool = False,
) -> Iterator[Scored]:
    """Score rows with worker processes of their own, in order; see `Scorer` and `Scorer.stream`.

        for scored in rlvr.score(rlvr.make("gsm8k-v2"), rows, workers=2):
            print(scored.item.id, scored.score.total, scored.score.verdict.why)

    Args:
        env, workers, wall_s, memory_mib: see `Scorer`.
        rows, on_error: see `Scorer.stream`.
        progress: show a progress bar on stderr, if that is a terminal or a notebook.
    """
    with ExitStack() as stack:
        scorer = stack.enter_context(Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib))
        tick = None
        if progress:
            total = count_rows(rows) if isinstance(rows, (str, Path)) else length_hint(rows)
            tick = stack.enter_context(progress_bar(f"scoring with {env.id}", total or None))
        for scored in scorer.stream(rows, on_error=on_error):
            yield scored
            if tick is not None:
                tick()


# ------------------------------------------------------------------------------------------ between the processes


def _handler(env: Environment) -> Handler:
    def handle(work: tuple[Task, Completion]) -> Any:
        return _encoded(env.observe(*work))

    return handle


def _async_handler(env: Environment) -> Handler:
    async def handle(work: tuple[Task, Completion]) -> Any:
        return _encoded(await env.aobserve(*work))

    return handle


def _seen(result: Any) -> list[Seen]:
    seen = _read(result)
    return [unscored(seen) if isinstance(seen, Unscored) else seen]


def _encoded(seen: Observation) -> Any:
    v = seen.verdict
    return v.outcome.value, v.value, v.why, v.answer, dict(v.detail), dict(seen.values)


def _decoded(data: Any) -> Observation:
    outcome, value, why, answer, detail, values = data
    return Observation(Verdict(Outcome(outcome), value, why, answer, detail), values)


def _read(result: Any) -> Observation | Unscored:
    """What a worker says of an item; what is no observation says nothing of it."""
    if isinstance(result, Unscored):
        return result
    try:
        return _decoded(result)
    except (TypeError, ValueError, KeyError) as error:
        return WorkerDied(f"a worker's reply is no observation: {type(error).__name__}: {str(error)[:200]}")


async def _observed_here(env: Environment, item: Item) -> list[Seen]:
    """Without workers: the same handling of exceptions, the same round trip through JSON, no containment."""
    for attempt in (1, 2):
        try:
            observing = env.aobserve(item.task, item.completion)
            # A task of its own, so that code which cancels itself cancels no more than that.
            seen = await (asyncio.ensure_future(observing) if env.is_async else observing)
            text = json.dumps(_encoded(seen), allow_nan=False)
            if len(text) > REPLY_MIB << 20:
                return [unscored(WorkerDied(f"a reply has {len(text)} bytes; the limit is {REPLY_MIB} MiB"))]
            return [_decoded(json.loads(text))]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # becomes UNSCORED, as in a worker
            given_up = isinstance(error, asyncio.CancelledError) and _cancelled_by_us()
            if given_up or (env.is_async and isinstance(error, GeneratorExit)):  # after it a coroutine awaits nothing
                raise
            if attempt == 2:
                return [unscored(WorkerError(*described(error)))]
    raise AssertionError("unreachable")


def _cancelled_by_us() -> bool:
    """Whether this call was given up; code of a verifier may raise CancelledError itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # without a loop: this environment is not async, or its loop is gone
        return False
    return task is not None and task.cancelling() > 0


def unscored(error: Unscored) -> Observation:
    """What is said of a completion that we failed at.

    Args:
        error: how.
    """
    detail = {"traceback": error.traceback} if isinstance(error, WorkerError) and error.traceback else {}
    return Observation(Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}", detail=detail), {})


def _fault(work: tuple[Task, Completion]) -> DataError | None:
    """Why it cannot be sent to a worker."""
    try:
        shipped(work)
    except UsageError as error:
        return DataError(str(error))
    return None
