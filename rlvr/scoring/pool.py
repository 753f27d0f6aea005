"""The engine of one machine: worker processes that can be killed, or this process.

An item that hangs, fills memory, kills its process or raises is tried once more and is then
UNSCORED, with the reason. This is one of the two places where exceptions become values; what the
completion did wrong is a verdict already.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from rlvr.environment import Environment
from rlvr.environment.reading import ReadingBudget, ReadLater
from rlvr.errors import DataError, Unscored, UsageError, WorkerDied, WorkerError, describe_error
from rlvr.rewards import Observation
from rlvr.scoring.engine import QUICK_READ_CPU_S, Engine, OnSeen
from rlvr.scoring.identity import Identity, identity_of
from rlvr.scoring.items import Item, RowTask, task_of_row
from rlvr.scoring.ordering import Seen, SlowReference, UnreadReference
from rlvr.scoring.watch import Noticed, watch_of_process
from rlvr.scoring.wire import decoded_observation, decoded_seen, encoded_observation, encoded_seen
from rlvr.types import Completion, Outcome, Task, Verdict
from rlvr.validate import require_processes
from rlvr.workers import AsyncPool, BoundedCalls, Handler, WorkerPool, ship, usable_cores
from rlvr.workers.async_process import run_beside
from rlvr.workers.loops import finish
from rlvr.workers.pool import REPLY_MIB

__all__ = ["MEMORY_MIB", "Pool", "WALL_S", "cancelled_by_us", "unscored_outcome"]

# A verifier has limits of its own far below these.  What reaches them is an item of one that has
# none, and UNSCORED.
WALL_S = 30.0
MEMORY_MIB = 4096

_to_json = json.JSONEncoder(allow_nan=False).encode

_Work: TypeAlias = tuple[Any, ...]
"""Whether it is for a quick look, and a task and a completion, or the
fields of both; see `_packed`."""


class Pool(Engine):
    """Worker processes of this machine.

    Args:
        workers, wall_s, memory_mib: see `rlvr.Scorer`.

    Raises:
        UsageError: a number is out of range.
    """

    chunk_s = 0.03  # long against the pipe's delay
    chunk_items = 64

    def __init__(
        self,
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
    ) -> None:
        hint = "0 to score in this process"
        self.workers = (
            usable_cores()
            if workers is None
            else require_processes("workers", workers, 0, hint=hint)
        )
        self.chunks_at_once = self.threads = self.spread = max(1, self.workers)
        self._wall_s, self._memory_mib = wall_s, memory_mib
        self._pool: WorkerPool | AsyncPool | None = None
        self._identity: Identity | None = None
        self._noticing = threading.Lock()
        self._written: set[str] = set()  # by judging itself
        self._refusal = ""  # why no row may be judged any more

    def open(self, env: Environment) -> None:
        super().open(env)
        self.awaits = env.is_async
        if self.workers:
            # One file for all workers, which they inherit by its descriptor.
            with tempfile.TemporaryFile("a+b") as listed:  # what workers write, for each other
                shared_fd = os.dup(listed.fileno())
            self._close_list = weakref.finalize(self, os.close, shared_fd)
            watched, shipped_env = _Watched(time.time(), shared_fd), env.without_tasks()
        else:
            # In this process, an earlier run may have read the same files.
            watch_of_process().forget()
        if self.workers and self.awaits:
            self._pool = AsyncPool(
                partial(_async_handler, watched, shipped_env),
                workers=self.workers,
                at_once=env.max_concurrent,
                wall_s=self._wall_s,
                memory_mib=self._memory_mib,
                shared_fd=shared_fd,
            )
        elif self.workers:
            self._pool = WorkerPool(
                partial(_handler, watched, shipped_env),
                workers=self.workers,
                memory_mib=self._memory_mib,
                shared_fd=shared_fd,
            )
        self._here = BoundedCalls(env.max_concurrent, "scorer")

    def warm(self) -> None:
        if self._pool is not None:
            self._pool.warm()

    def identity(self) -> Identity:
        if self._identity is None:
            # Two threads must not compute it twice; it reads many files.
            with self._noticing:
                self._identity = self._identity or identity_of(self.env)
        return self._identity

    @property
    def problem(self) -> str:
        return self._refusal

    def _notice(self, noticed: Noticed) -> None:
        """Take over what a worker has read.

        A file that was edited meanwhile ends the run: a worker says so once, and a row that is
        tried again would be judged by the new content.

        Raises:
            UsageError: something was edited, now or earlier.
        """
        if noticed:
            self._take_over(noticed)
        if self._refusal:
            raise UsageError(self._refusal)

    def _take_over(self, noticed: Noticed) -> None:
        identity = self.identity()
        with self._noticing:
            # Before the inputs are joined: what one worker has written and another has read is no
            # input.
            self._written.update(noticed.get("written", ()))
            inputs = noticed.get("inputs", {})
            identity.forget_written(self._written & (identity.inputs.keys() | inputs.keys()))
            try:
                identity.add(noticed, "what a worker read", self.accept)
            except UsageError as error:
                self._refusal = str(error)

    @property
    def processes(self) -> tuple[int, int]:
        return (0, 0) if self._pool is None else (self._pool.started, self._pool.lost)

    def close(self) -> None:
        self._here.close()
        if self._pool is not None:
            self._pool.close()
            self._close_list()

    def begin(self, item: Item, *, quick: bool = False) -> Future[list[Seen]]:
        if self._pool is None:
            return self._here.submit(self._here_watched, item)
        assert isinstance(self._pool, AsyncPool)
        work = _pack_item(item, quick=quick)
        try:
            return self._pool.submit(work, self._outcomes_of)
        except UsageError:
            # A `UsageError` of the pool is the item's or says that the pool was closed; which of
            # the two is found out only now, as packing each item twice would cost each of them.
            if (fault := _fault(work)) is None:
                raise  # the scorer was closed
        unsent: Future[list[Seen]] = Future()
        unsent.set_result([fault])
        return unsent

    def observe(
        self,
        items: Sequence[Item],
        *,
        on_seen: OnSeen | None = None,
        give_up: Callable[[], bool] | None = None,
        quick: bool = False,
    ) -> list[Seen]:
        if self._pool is None:
            return [
                observation for item in items for observation in finish(self._here_watched(item))
            ]
        work = [_pack_item(item, quick=quick) for item in items]
        try:
            return [*self._ran(work, on_seen, give_up)]
        except UsageError:
            # As in `begin`: one item that cannot be packed must not take the others of its chunk
            # along.
            faults = [_fault(packed) for packed in work]
            if not any(faults):
                raise  # the scorer was closed
        # All that can be sent, in one piece; the faults stand between them.
        good = iter(
            self._ran(
                [packed for packed, fault in zip(work, faults, strict=True) if fault is None],
                None,
                give_up,
            )
        )
        return [next(good) if fault is None else fault for fault in faults]

    def _ran(
        self, work: list[_Work], on_seen: OnSeen | None, give_up: Callable[[], bool] | None
    ) -> list[Seen]:
        """Run in the pool; an item that failed is tried once more."""
        assert isinstance(self._pool, WorkerPool)
        results: dict[int, Seen | Unscored] = {}

        def note(place: int, result: object) -> None:
            results[place] = result_seen = self._read(result)
            # A failure is not told: it is tried once more.
            if on_seen is not None and not isinstance(result_seen, Unscored):
                on_seen(place, result_seen)

        self._pool.run(work, wall_s=self._wall_s, on_result=note, give_up=give_up)
        # Once more and alone: what was lost beside others may have been lost through them.
        for place, outcome in results.items():
            if isinstance(outcome, Unscored):
                tried = self._pool.run([work[place]], wall_s=self._wall_s, give_up=give_up)
                again = self._read(tried[0])
                results[place] = unscored_outcome(again) if isinstance(again, Unscored) else again
        ordered = [results[place] for place in range(len(work))]
        return [kept_outcome for kept_outcome in ordered if not isinstance(kept_outcome, Unscored)]

    def _outcomes_of(self, result: object) -> list[Seen]:
        outcome = self._read(result)
        return [unscored_outcome(outcome) if isinstance(outcome, Unscored) else outcome]

    def _read(self, result: Any) -> Seen | Unscored:
        """What a worker says of an item; what is no observation says nothing of it."""
        if isinstance(result, Unscored):
            return result
        try:
            answer, noticed = result
            outcome = decoded_seen(answer)
        # A verifier's own subprocess may have written into the pipe.
        except (TypeError, ValueError, KeyError) as error:
            return WorkerDied(
                f"a worker's reply is no observation: {type(error).__name__}: {str(error)[:200]}"
            )
        self._notice(noticed)
        return outcome

    async def _here_watched(self, item: Item) -> list[Seen]:
        with watch_of_process() as watch:
            outcome = await _observed_here(self.env, item, self.awaits)
        self._notice(watch.take())
        return outcome


def _pack_item(item: Item, *, quick: bool = False) -> _Work:
    """What a worker needs of an item: the fields alone, which take a fifth of the time to
    pickle."""
    task, completion = item.task, item.completion
    # A subclass may hold more than the fields.
    if type(task) is not Task or type(completion) is not Completion:
        return quick, task, completion
    text = completion.text, completion.length_tokens, completion.truncated, completion.episode
    return quick, task.id, task.prompt, task.reference, task.meta, *text


def _unpack_work(work: _Work) -> tuple[Task, Completion]:
    if len(work) == 3:
        return work[1], work[2]
    return Task(*work[1:5]), Completion(*work[5:])


class _Watched:
    """Unpacked before the environment: what its modules read when they are loaded is noticed too.

    Args:
        since: when the run began, also for a worker that comes later: temporary files of before are
            inputs.
        written: see `Watch.start`.
    """

    def __init__(self, since: float, written: int) -> None:
        self.since, self.written = since, written

    # Unpickled first, so that loading the environment is watched.
    def __reduce__(self) -> tuple[Callable[[float, int, int], _Watched], tuple[float, int, int]]:
        return _watch, (self.since, self.written, sys.get_int_max_str_digits())

    def take(self) -> Noticed:
        """What was noticed in this process since the last call."""
        return watch_of_process().take()


def _watch(since: float, written: int, digits: int) -> _Watched:
    # As in the process that asks, which the identity speaks of.
    sys.set_int_max_str_digits(digits)
    watch_of_process().start(since, written)
    return _Watched(since, written)


def _handler(watch: _Watched, env: Environment) -> Handler:
    take = watch.take

    def handle(work: _Work) -> object:
        unread, completion = _unpack_work(work)
        # A quick look has a budget; the rest is read later by another.
        task = _read_quickly(env, unread) if work[0] else _read_task(env, unread)
        observed = task if isinstance(task, DataError) else env.observe(task, completion)
        return encoded_seen(observed), take()

    return handle


def _read_quickly(env: Environment, task: Task) -> Task | UnreadReference | SlowReference:
    """`_read_task` in the main thread, unless it takes long."""
    with ReadingBudget(QUICK_READ_CPU_S) as budget:
        read_task = _read_task(env, task)
    return SlowReference() if budget.is_spent else read_task


def _read_task(env: Environment, task: Task) -> Task | UnreadReference:
    """The task, made of its row where it has to be, with a reference that can be read; or why it
    cannot."""
    try:
        if type(task) is RowTask:
            with ReadLater():
                task = task_of_row(env, task.meta)
        env.read_task(task)
    except DataError as error:
        return UnreadReference(str(error))
    return task


def _async_handler(watch: _Watched, env: Environment) -> Handler:
    take = watch.take

    async def handle(work: _Work) -> object:
        unread, completion = _unpack_work(work)
        task = _read_quickly(env, unread)
        # It takes long: in a thread, so that the loop's other items go on.
        if isinstance(task, SlowReference) and not work[0]:
            task = await run_beside(partial(_read_task, env, unread))
        observed = task if isinstance(task, DataError) else await env.aobserve(task, completion)
        return encoded_seen(observed), take()

    return handle


async def _observed_here(env: Environment, item: Item, is_async: bool) -> list[Seen]:
    """Without workers: the same handling of exceptions, the same round trip through JSON, no
    containment."""
    # Twice, as with workers: a failure may pass.
    for attempt in (1, 2):
        try:
            task = _read_task(env, item.task)
            if isinstance(task, UnreadReference):
                return [task]
            observing = env.aobserve(task, item.completion)
            # A task of its own, so that code which cancels itself cancels no more than that.
            outcome = await (asyncio.ensure_future(observing) if is_async else observing)
            text = _to_json(encoded_observation(outcome))
            # The same limit as a worker's pipe has.
            if len(text) > REPLY_MIB << 20:
                return [
                    unscored_outcome(
                        WorkerDied(f"a reply has {len(text)} bytes; the limit is {REPLY_MIB} MiB")
                    )
                ]
            return [decoded_observation(json.loads(text))]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # becomes UNSCORED, as in a worker
            # Given up by the caller: no verdict is wanted.
            given_up = isinstance(error, asyncio.CancelledError) and cancelled_by_us()
            # after it a coroutine awaits nothing
            if given_up or (is_async and isinstance(error, GeneratorExit)):
                raise
            if attempt == 2:
                return [unscored_outcome(WorkerError(*describe_error(error)))]
    raise AssertionError("unreachable")


def cancelled_by_us() -> bool:
    """Whether this call was given up; code of a verifier or a reward may raise CancelledError
    itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # without a loop: this environment is not async, or its loop is gone
        return False
    return task is not None and task.cancelling() > 0


def unscored_outcome(error: Unscored) -> Observation:
    """What is said of a completion that we failed at.

    Args:
        error: how.
    """
    detail = (
        {"traceback": error.traceback} if isinstance(error, WorkerError) and error.traceback else {}
    )
    return Observation(Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}", detail=detail), {})


def _fault(work: _Work) -> DataError | None:
    """Why it cannot be sent to a worker."""
    try:
        ship(work)
    except UsageError as error:
        return DataError(str(error))
    return None
