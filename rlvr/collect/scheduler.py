"""Serves many rollouts with one sampler: groups, episodes of several turns, forks and evaluations.

A `Play` is a generator that says what one rollout needs next: a `Request`, for which it is sent a `Sample`; or the
future of a call in the background, for which it is sent the result.  Where there is an error instead, it is raised in
the play.

    sample = yield Request(…)                 the sampler works on the requests of all plays
    step = yield background.submit(…)         meanwhile the environment replies
    sample = yield Request(…)                 the next turn

When a result is passed on is the schedule:

- "ready": as soon as it is there.  For engines, whose batches depend on time anyway.
- "tokens": after a number of decode steps that does not depend on time, waiting for the result if need be.  Which rows
  are sampled side by side is then the same in every run, so that runs repeat to the last bit.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Container, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from rlvr.collect.background import BackgroundCalls
from rlvr.errors import SamplingFailed, UsageError
from rlvr.samplers.protocol import Request, Sample, Sampler
from rlvr.validate import require_one_of

__all__ = ["Play", "Schedule", "chosen_schedule", "run"]

_T = TypeVar("_T")

Play: TypeAlias = Generator[Request | Future[Any], Any, _T]
"""Yields requests and futures; returns the rollout."""

Schedule: TypeAlias = Literal["ready", "tokens"]

_IN_FLIGHT: Final = 4096  # requests that the sampler has at a time: more than any engine samples side by side
_SILENT_S: Final = 3600.0  # that a sampler may return nothing at first
_SLACK_S: Final = (
    600.0  # beside what the completions so far have taken: an engine may compile, or stand still for a while
)
_TICK: Final = 16  # decode steps; a result is passed on at the second tick after it was asked for


def chosen_schedule(sampler: Sampler, schedule: Schedule | None) -> Schedule:
    """The schedule to use: "tokens" if the sampler counts its steps, unless another is asked for.

    Args:
        sampler: what samples.
        schedule: what was asked for; None for the default.

    Raises:
        UsageError: there is no such schedule, or this sampler cannot have it.
    """
    require_one_of("schedule", schedule, ("ready", "tokens"), or_none=True)
    counts = hasattr(sampler, "steps")
    if schedule == "tokens" and not counts:
        raise UsageError(f"schedule is 'tokens', and {type(sampler).__name__} does not count its steps; use 'ready'")
    return schedule or ("tokens" if counts else "ready")


class _Waiting(Protocol[_T]):
    """Plays that wait for calls in the background."""

    def __len__(self) -> int: ...

    def add(self, number: int, play: Play[_T], future: Future[Any]) -> None: ...

    def take(self, *, idle: bool) -> list[tuple[int, Play[_T], Future[Any]]]:
        """Those that go on now.  `idle`: the sampler has nothing to do, so wait for one at least."""

    def plays(self) -> list[Play[_T]]:
        """Those that wait."""


class _Ready(Generic[_T]):
    """Plays go on as soon as their call is done."""

    def __init__(self, background: BackgroundCalls) -> None:
        self._background = background
        self._plays: dict[int, Play[_T]] = {}
        self._done: SimpleQueue[tuple[int, Play[_T], Future[Any]]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._plays)

    def plays(self) -> list[Play[_T]]:
        return list(self._plays.values())

    def add(self, number: int, play: Play[_T], future: Future[Any]) -> None:
        self._plays[number] = play
        future.add_done_callback(lambda done: self._done.put((number, play, done)))

    def take(self, *, idle: bool) -> list[tuple[int, Play[_T], Future[Any]]]:
        if not self._plays:
            return []
        next_s = self._background.expire()
        if idle:
            with self._background.waiting():
                while self._done.empty():
                    with suppress(Empty):
                        self._done.put(self._done.get(timeout=1.0 if next_s is None else min(1.0, next_s)))
                    next_s = self._background.expire()
        found = []
        with suppress(Empty):
            while True:
                found.append(self._done.get_nowait())
        for number, *_ in found:
            del self._plays[number]
        return found


class _Tokens(Generic[_T]):
    """Plays go on after a number of decode steps, in the order in which they asked."""

    def __init__(self, background: BackgroundCalls, sampler: Any) -> None:
        self._background, self._sampler = background, sampler
        self._first: int = sampler.steps  # a resumed run begins to count anew
        self._calls: list[tuple[int, int, int, Play[_T], Future[Any]]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._calls)

    def plays(self) -> list[Play[_T]]:
        return [play for *_, play, _ in self._calls]

    def add(self, number: int, play: Play[_T], future: Future[Any]) -> None:
        due = (self._now() // _TICK + 2) * _TICK
        heapq.heappush(self._calls, (due, next(self._order), number, play, future))

    def take(self, *, idle: bool) -> list[tuple[int, Play[_T], Future[Any]]]:
        self._background.expire()
        found = []
        now = self._calls[0][0] if idle and self._calls else self._now()
        while self._calls and self._calls[0][0] <= now:
            *_, number, play, future = heapq.heappop(self._calls)
            self._background.wait(future)
            found.append((number, play, future))
        return found

    def _now(self) -> int:
        steps: int = self._sampler.steps
        return steps - self._first


class _Silence:
    """Notices a sampler that never returns a request and has no steps by which that could be told.

    A sampler that works may be silent for as long as its slowest completion takes.  So it may be silent for ten times
    that, as far as the completions that it has returned can tell, and an hour before the first one.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._name = type(sampler).__name__
        self._since: dict[Hashable, tuple[float, int]] = {}  # when each was asked for, and its limit
        self._last = time.monotonic()
        self._s_per_token: float | None = None  # of the slowest completion so far, its time in the queue included

    def asked(self, request: Request) -> None:
        """Note a request."""
        self._since[request.id] = time.monotonic(), request.limit

    def heard(self, finished: Sequence[tuple[Hashable, Sample | SamplingFailed]]) -> None:
        """Note what was returned.

        Raises:
            UsageError: nothing, for too long.
        """
        now = time.monotonic()
        for name, sample in finished:
            began, _ = self._since.pop(name)
            if isinstance(sample, Sample):
                slow = (now - began) / len(sample.completion_ids)
                self._s_per_token = max(slow, self._s_per_token or 0.0)
        if finished or not self._since:
            self._last = now
            return
        name, (began, limit) = next(iter(self._since.items()))
        patience_s = _SILENT_S if self._s_per_token is None else _SLACK_S + 10 * limit * self._s_per_token
        if now - max(self._last, began) > patience_s:
            raise UsageError(
                f"{self._name} has returned nothing for {now - max(self._last, began):.0f} s, and {len(self._since)} "
                f"requests are open, such as {name}: it has lost them; look at the engine's log, and abort or return "
                "every request"
            )


def run(
    plays: Iterable[Play[_T]],
    sampler: Sampler,
    background: BackgroundCalls,
    schedule: Schedule,
    *,
    most: int | None = None,
) -> Iterator[tuple[int, _T]]:
    """Play all, and yield (number, what it returned) of each as it ends; numbers are those of their order.

    At most `most` plays are under way; further ones begin when some are finished.  If the caller stops early, or
    something raises, the requests that are left are aborted, and the plays closed.

    Args:
        plays: in the order in which they begin.
        sampler: samples their requests.
        background: runs their calls.
        schedule: when results of calls are passed on.
        most: plays that are under way at a time; None for 4096.

    Raises:
        UsageError: the sampler returned what was not asked for, or lost a request.
        Exception: what a play raised.
    """
    most = _IN_FLIGHT if most is None else most
    waiting: _Waiting[_T] = _Ready(background) if schedule == "ready" else _Tokens(background, sampler)
    asked: dict[Hashable, tuple[int, Play[_T]]] = {}
    silence = _Silence(sampler)
    ended: list[tuple[int, _T]] = []

    def go_on(number: int, play: Play[_T], resume: Callable[[Any], Request | Future[Any]], result: Any) -> None:
        """Pass a result on to a play, which says what it needs next."""
        try:
            needs = resume(result)
        except StopIteration as end:
            ended.append((number, end.value))
            return
        if isinstance(needs, Request):
            asked[needs.id] = number, play
            silence.asked(needs)
            with background.generating():
                sampler.submit(needs)
        else:
            waiting.add(number, play, needs)

    begun = enumerate(plays)
    try:
        more = True
        while more or asked or len(waiting):
            while more and len(asked) + len(waiting) < most:
                if more := (first := next(begun, None)) is not None:
                    number, play = first
                    go_on(number, play, play.send, None)
            for number, play, future in waiting.take(idle=not asked):
                if (error := future.exception()) is None:
                    go_on(number, play, play.send, future.result())
                else:
                    go_on(number, play, play.throw, error)
            if asked:
                finished = _polled(sampler, background, asked)
                silence.heard(finished)
                for name, sample in finished:
                    number, play = asked.pop(name)
                    failed = isinstance(sample, SamplingFailed)
                    go_on(number, play, play.throw if failed else play.send, sample)
            yield from ended
            ended.clear()
    finally:
        sampler.abort(list(asked))
        for play in [*(play for _, play in asked.values()), *waiting.plays()]:
            play.close()


def _polled(
    sampler: Sampler, background: BackgroundCalls, asked: Container[Hashable]
) -> Sequence[tuple[Hashable, Sample | SamplingFailed]]:
    """What the sampler has finished, if that was asked for."""
    before = getattr(sampler, "steps", None)
    with background.generating():
        finished = sampler.poll()
    names = [name for name, _ in finished]
    for i, name in enumerate(names):
        if name not in asked or name in names[:i]:
            raise UsageError(f"{type(sampler).__name__} returned request {name} twice, or it was not asked for")
    if not finished and before is not None and getattr(sampler, "steps", None) == before:
        raise UsageError(f"{type(sampler).__name__} makes no step and returns nothing: it has lost a request")
    return finished
