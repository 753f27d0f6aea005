"""Serves many rollouts with one sampler: groups, episodes of several turns, forks and evaluations.

A `Play` is a generator that says what one rollout needs next: a `Request`, for which it is sent a
`Sample`; or the future of a call in the background, for which it is sent the result.  Where there
is an error instead, it is raised in the play.

    sample = yield Request(…)                 the sampler works on the requests of all plays
    step = yield background.submit(…)         meanwhile the environment replies
    sample = yield Request(…)                 the next turn

When a result is passed on is the schedule:

- "ready": as soon as it is there.  For engines, whose batches depend on time anyway.
- "tokens": after a number of decode steps that does not depend on time, waiting for the result if
  need be.  Which rows are sampled side by side is then the same in every run, so that runs repeat
  to the last bit.

Plays can be parked: then nothing is with the sampler, whose weights may change.  A parked play is
what it was sent so far, and the tokens of the completion that it waits for; from these a checkpoint
makes it again.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import (
    Callable,
    Container,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from rlvr.collect.background import BackgroundCalls
from rlvr.errors import SamplingFailed, UsageError
from rlvr.samplers.protocol import Begun, Request, Sample, Sampler
from rlvr.types import JsonObject, StateDict
from rlvr.validate import require_one_of

__all__ = ["Play", "Schedule", "Scheduler", "chosen_schedule", "due_after", "run"]

_T = TypeVar("_T")

Play: TypeAlias = Generator[Request | Future[Any], Any, _T]
"""Yields requests and futures; returns the rollout."""

Schedule: TypeAlias = Literal["ready", "tokens"]

# requests that the sampler has at a time: more than any engine samples side by side
_IN_FLIGHT: Final = 4096
_SILENT_S: Final = 3600.0  # that a sampler may return nothing at first
# Beside what the completions so far have taken: an engine may compile, or stand still for a while.
_SLACK_S: Final = 600.0
# A call that ends within 16 steps then holds up no play, and one that takes longer is waited for;
# either way the order of tokens does not depend on the machine's speed.
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
        raise UsageError(
            f"schedule is 'tokens', and {type(sampler).__name__} does not count its steps; use "
            f"'ready'"
        )
    return schedule or ("tokens" if counts else "ready")


def due_after(step: int) -> int:
    """The decode step at which a result counts, with the schedule "tokens".

    Args:
        step: at which it was asked for.
    """
    # At the end of a tick, 17 to 32 steps from now.
    return (step // _TICK + 2) * _TICK


@dataclass(slots=True, eq=False)
class _Part(Generic[_T]):
    """A play that has begun, and what it was sent, from which it can be made again.

    Attributes:
        key: of the play.
        heard: the samples that it was sent.
        calls: number of results of calls that it was sent.
    """

    key: Hashable
    play: Play[_T]
    heard: list[Sample] = field(default_factory=list)
    calls: int = 0


class _Waiting(Protocol[_T]):
    """Plays that wait for calls in the background."""

    def __len__(self) -> int: ...

    def add(self, part: _Part[_T], future: Future[object], due: int | None = None) -> None:
        """`due`: when it goes on, where that is known already."""

    def take(self, *, idle: bool) -> list[tuple[_Part[_T], Future[Any]]]:
        """Those that go on now.  `idle`: the sampler has nothing to do, so wait for one at
        least."""

    def drop(self, keys: Container[Hashable]) -> None: ...

    def parts(self) -> list[tuple[_Part[_T], int | None]]:
        """All, with when they go on where that is known."""

    @property
    def now(self) -> int: ...

    @now.setter
    def now(self, now: int) -> None: ...


class _Ready(Generic[_T]):
    """Plays go on as soon as their call is done."""

    now = 0

    def __init__(self, background: BackgroundCalls) -> None:
        self._background = background
        self._open: dict[Future[object], _Part[_T]] = {}
        self._done: SimpleQueue[Future[object]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, part: _Part[_T], future: Future[object], due: int | None = None) -> None:
        self._open[future] = part
        future.add_done_callback(self._done.put)

    def take(self, *, idle: bool) -> list[tuple[_Part[_T], Future[Any]]]:
        if not self._open:
            return []
        if idle:
            with self._background.waiting():
                # Waits for the first, and puts it back for the loop below, which takes all that
                # are there.
                self._done.put(self._done.get())
        finished = []
        with suppress(Empty):
            while True:
                # Else its play was dropped meanwhile.
                if (future := self._done.get_nowait()) in self._open:
                    finished.append((self._open.pop(future), future))
        return finished

    def drop(self, keys: Container[Hashable]) -> None:
        # Their futures stay in the queue and are passed over.
        self._open = {future: part for future, part in self._open.items() if part.key not in keys}

    def parts(self) -> list[tuple[_Part[_T], int | None]]:
        return [(part, None) for part in self._open.values()]


class _Tokens(Generic[_T]):
    """Plays go on after a number of decode steps, in the order in which they asked."""

    def __init__(self, background: BackgroundCalls, sampler: Any) -> None:
        self._background, self._sampler = background, sampler
        # others use the sampler too, and a resumed run begins to count anew
        self._first: int = sampler.steps
        self._calls: list[tuple[int, int, _Part[_T], Future[object]]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, part: _Part[_T], future: Future[object], due: int | None = None) -> None:
        due = due_after(self.now) if due is None else due
        # The number keeps the order of those that are due at one step, and parts from being
        # compared.
        heapq.heappush(self._calls, (due, next(self._order), part, future))

    def take(self, *, idle: bool) -> list[tuple[_Part[_T], Future[Any]]]:
        due_calls = []
        # Where nothing is sampled no step would come: time goes on to the first that is due.
        until = self._calls[0][0] if idle and self._calls else self.now
        while self._calls and self._calls[0][0] <= until:
            *_, part, future = heapq.heappop(self._calls)
            self._background.wait(future)
            due_calls.append((part, future))
        return due_calls

    def drop(self, keys: Container[Hashable]) -> None:
        # A list that was filtered is no heap any more.
        self._calls = [call for call in self._calls if call[2].key not in keys]
        heapq.heapify(self._calls)

    def parts(self) -> list[tuple[_Part[_T], int | None]]:
        return [(part, due) for due, _, part, _ in sorted(self._calls, key=lambda call: call[:2])]

    @property
    def now(self) -> int:
        steps: int = self._sampler.steps
        return steps - self._first

    @now.setter
    def now(self, now: int) -> None:
        # So that `now` goes on from where it stood, whatever the sampler has counted for others.
        self._first = self._sampler.steps - now


class _Silence:
    """Notices a sampler that never returns a request and has no steps by which that could be told.

    A sampler that works may be silent for as long as its slowest completion takes.  So it may be
    silent for ten times that, as far as the completions that it has returned can tell, and an hour
    before the first one.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._name = type(sampler).__name__
        self._since: dict[
            Hashable, tuple[float, int]
        ] = {}  # when each was asked for, and its limit
        self._last = time.monotonic()
        # of the slowest completion so far, its time in the queue included
        self._s_per_token: float | None = None

    def asked(self, request: Request) -> None:
        """Note a request."""
        self._since[request.id] = time.monotonic(), request.limit

    def forget(self) -> None:
        """Nothing is asked for any more."""
        self._since.clear()

    def heard(self, finished: Sequence[tuple[Hashable, Sample | SamplingFailed]]) -> None:
        """Note what was returned.

        Raises:
            UsageError: nothing, for too long.
        """
        now_s = time.monotonic()
        for name, sample in finished:
            began, _ = self._since.pop(name)
            if isinstance(sample, Sample):
                # Never 0: `Sample` refuses a completion without tokens.
                slow = (now_s - began) / len(sample.completion_ids)
                self._s_per_token = max(slow, self._s_per_token or 0.0)
        if finished or not self._since:
            self._last = now_s
            return
        # The oldest request: dicts keep their order.
        name, (began, limit) = next(iter(self._since.items()))
        patience_s = (
            _SILENT_S if self._s_per_token is None else _SLACK_S + 10 * limit * self._s_per_token
        )
        if now_s - max(self._last, began) > patience_s:
            raise UsageError(
                f"{self._name} has returned nothing for {now_s - max(self._last, began):.0f} s, "
                f"and {len(self._since)} requests are open, such as {name}: it has lost them; look "
                "at the engine's log, and abort or return every request"
            )


class Scheduler(Generic[_T]):
    """Plays with one sampler.  At most `most` plays are under way; further ones
    begin when some are finished.

    Args:
        sampler: samples their requests.
        background: runs their calls.
        schedule: when results of calls are passed on.
        most: plays that are under way at a time; None for 4096.
    """

    def __init__(
        self,
        sampler: Sampler,
        background: BackgroundCalls,
        schedule: Schedule,
        *,
        most: int | None = None,
    ) -> None:
        self._sampler, self._background, self._most = (
            sampler,
            background,
            _IN_FLIGHT if most is None else most,
        )
        self._more: deque[Iterator[tuple[Hashable, Play[_T]]]] = deque()
        self._waiting: _Waiting[_T] = (
            _Ready(background) if schedule == "ready" else _Tokens(background, sampler)
        )
        self._asked: dict[Hashable, tuple[_Part[_T], Request]] = {}
        self._dropped: set[Hashable] = set()  # keys of plays that have not begun and will not
        self._silence = _Silence(sampler)
        self._ended: list[tuple[Hashable, _T]] = []
        self._parked: int | None = None  # decode steps when it was parked

    def add(self, plays: Iterable[tuple[Hashable, Play[_T]]]) -> None:
        """Let plays begin, after those that were added before.

        Args:
            plays: (key, play), in their order; keys of unfinished plays differ.
        """
        self._more.append(iter(plays))

    @property
    def busy(self) -> bool:
        """False once all have ended, as far as that is known before the last `advance`."""
        return bool(self._more or self._asked or len(self._waiting))

    @property
    def now(self) -> int:
        """Decode steps so far, with the schedule "tokens"; else 0."""
        return self._waiting.now if self._parked is None else self._parked

    def advance(self) -> list[tuple[Hashable, _T]]:
        """Work for a moment; returns (key, what the play returned) of those that have ended.

        Raises:
            UsageError: the sampler returned what was not asked for, or lost a request.
            Exception: what a play raised.
        """
        self._unpark()
        while self._more and len(self._asked) + len(self._waiting) < self._most:
            if (first := next(self._more[0], None)) is None:
                self._more.popleft()
            elif first[0] in self._dropped:
                self._dropped.remove(first[0])
            else:
                part = _Part(*first)
                self._go_on(part, part.play.send, None)
        # Only where the sampler has nothing to do is it worth waiting.
        for part, future in self._waiting.take(idle=not self._asked):
            part.calls += 1
            if (error := future.exception()) is None:
                self._go_on(part, part.play.send, future.result())
            else:
                self._go_on(part, part.play.throw, error)
        if self._asked:
            finished = _poll_sampler(self._sampler, self._background, self._asked)
            self._silence.heard(finished)
            for name, sample in finished:
                part, _ = self._asked.pop(name)
                if isinstance(sample, SamplingFailed):
                    self._go_on(part, part.play.throw, sample)
                else:
                    part.heard.append(sample)
                    self._go_on(part, part.play.send, sample)
        ended, self._ended = self._ended, []
        return ended

    def _go_on(
        self, part: _Part[_T], resume: Callable[[Any], Request | Future[object]], result: object
    ) -> None:
        """Pass a result on to a play, which says what it needs next."""
        try:
            needs = resume(result)
        except StopIteration as end:
            self._ended.append((part.key, end.value))
            return
        if isinstance(needs, Request):
            self._asked[needs.id] = part, needs
            self._submit(needs)
        else:
            self._waiting.add(part, needs)

    def _submit(self, request: Request) -> None:
        self._silence.asked(request)
        with self._background.generating():
            self._sampler.submit(request)

    # ------------------------------------------------------------------------------------ parked

    def park(self) -> None:
        """Take all requests back from the sampler, until `advance` is called again.  Calls go on in
        the background.

        A completion that the sampler cannot take back with its tokens begins again.
        """
        if self._parked is not None:
            return
        # Sampling for others may go on while this is parked, and its steps do not count here.
        # With nothing under way the next count begins at 0, in a resumed run too.
        self._parked = self._waiting.now if self._asked or len(self._waiting) else 0
        self._silence.forget()
        if not self._asked:
            return
        begun: Mapping[Hashable, Begun] = {}
        if hasattr(self._sampler, "take_back"):
            begun = self._sampler.take_back(list(self._asked))
        else:
            self._sampler.abort(list(self._asked))
        self._asked = {
            name: (part, replace(request, begun=begun.get(name)))
            for name, (part, request) in self._asked.items()
        }

    def _unpark(self) -> None:
        if self._parked is None:
            return
        self._waiting.now, self._parked = self._parked, None
        # Without the method a sampler does not know how to go on from tokens.
        can_go_on = hasattr(self._sampler, "take_back")
        for _, request in self._asked.values():
            self._submit(request if can_go_on else replace(request, begun=None))

    def oldest(self, keys: Container[Hashable]) -> int | None:
        """The oldest version of the weights that sampled a token of unfinished plays; None if they
        have no token.

        Args:
            keys: of the plays, which are parked.
        """
        versions = [
            sample.weights_version
            for part in self._parts()
            if part.key in keys
            for sample in part.heard
        ]
        for part, request in self._asked.values():
            if part.key in keys and request.begun is not None:
                # Tokens of a completion that the sampler gave back unfinished.
                versions += request.begun.versions
        return min(versions, default=None)

    def tokens(self, keys: Container[Hashable]) -> int:
        """How many tokens of unfinished plays were sampled.

        Args:
            keys: of the plays, which are parked.
        """
        parts = [part for part in self._parts() if part.key in keys]
        heard = sum(len(sample.completion_ids) for part in parts for sample in part.heard)
        requests = [request for part, request in self._asked.values() if part.key in keys]
        return heard + sum(
            len(request.begun.completion_ids) for request in requests if request.begun
        )

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget plays, and close them.

        Args:
            keys: of plays that have not ended.
        """
        dropped = set(keys)
        names = [name for name, (part, _) in self._asked.items() if part.key in dropped]
        begun = [part for part in self._parts() if part.key in dropped]
        # Those that have not begun are passed over when their turn comes.
        self._dropped |= dropped - {part.key for part in begun}
        if self._parked is None:
            self._sampler.abort(names)
        for name in names:
            del self._asked[name]
        self._waiting.drop(dropped)
        # After they are taken out: closing runs the play's own code.
        for part in begun:
            part.play.close()

    def _parts(self) -> list[_Part[_T]]:
        return [
            *(part for part, _ in self._asked.values()),
            *(part for part, _ in self._waiting.parts()),
        ]

    def state_dict(self) -> StateDict:
        """The plays that have begun, parked, as plain JSON with their keys."""
        self.park()

        def as_dict(part: _Part[_T], **more: Any) -> dict[str, object]:
            return {
                "key": part.key,
                "heard": list(map(_sample_as_dict, part.heard)),
                "calls": part.calls,
                **more,
            }

        requests = [
            as_dict(part, begun=r.begun and asdict(r.begun)) for part, r in self._asked.values()
        ]
        waiting = [as_dict(part, due=due) for part, due in self._waiting.parts()]
        return {"steps": self._parked, "asked": requests, "waiting": waiting}

    def load_state_dict(
        self, state: StateDict, plays: Mapping[Hashable, Play[_T]]
    ) -> list[Hashable]:
        """Play again what was played when `state_dict` was called: replies are taken from it, calls
        are made anew.

        Args:
            state: what it returned.
            plays: of all keys in it, from their beginning.

        Returns:
            The keys of those that do not repeat themselves; they are closed, and not played on.
        """
        self.park()
        self._parked, changed = int(state["steps"]), list[Hashable]()
        for saved_part in [*state["asked"], *state["waiting"]]:
            # The play is asked again from its beginning, with the replies of then.
            key = _key(saved_part["key"])
            part, needs = self._again(key, plays[key], saved_part)
            if isinstance(needs, Request) and "begun" in saved_part:
                self._asked[needs.id] = (
                    part,
                    replace(needs, begun=saved_part["begun"] and Begun(**saved_part["begun"])),
                )
            elif isinstance(needs, Future) and "due" in saved_part:
                self._waiting.add(part, needs, saved_part["due"])
            else:
                part.play.close()
                changed.append(key)
        return changed

    def _again(
        self, key: Hashable, play: Play[_T], one: JsonObject
    ) -> tuple[_Part[_T], Request | Future[object] | None]:
        """A play that has heard what it had heard, and what it needs; None if it ended before, or
        asked for more."""
        part, heard = _Part(key, play), deque(one["heard"])
        try:
            needs = play.send(None)
            while heard or part.calls < one["calls"]:
                if isinstance(needs, Request):
                    part.heard.append(Sample(prompt_ids=list(needs.context), **heard.popleft()))
                    needs = play.send(part.heard[-1])
                    continue
                self._background.wait(needs)
                part.calls += 1
                error = needs.exception()
                needs = play.send(needs.result()) if error is None else play.throw(error)
        # It ended early, or asked for more samples than there were.
        except (StopIteration, IndexError):
            return part, None
        return part, needs

    def close(self) -> None:
        """Abort what is left, and close the plays."""
        self._more.clear()
        self.drop([part.key for part in self._parts()])


def _sample_as_dict(sample: Sample) -> dict[str, object]:
    """Without its prompt, which a play says again."""
    fields = {name: value for name, value in asdict(sample).items() if name != "prompt_ids"}
    return fields | {"completion_ids": list(map(int, sample.completion_ids))}


def _key(key: object) -> Hashable:
    """As it was before it went through JSON."""
    return tuple(key) if isinstance(key, list) else key


def run(
    plays: Iterable[Play[_T]],
    sampler: Sampler,
    background: BackgroundCalls,
    schedule: Schedule,
) -> Iterator[tuple[int, _T]]:
    """Play all, and yield (number, what it returned) of each as it ends; numbers are those of their
    order.

    If the caller stops early, or something raises, the requests that are left are aborted, and the
    plays closed.

    Args:
        plays: in the order in which they begin.
        sampler, background, schedule: see `Scheduler`.

    Raises:
        UsageError, Exception: see `Scheduler.advance`.
    """
    scheduler: Scheduler[_T] = Scheduler(sampler, background, schedule)
    scheduler.add(enumerate(plays))
    try:
        while scheduler.busy:
            for number, result in scheduler.advance():
                assert isinstance(number, int)
                yield number, result
    finally:
        scheduler.close()


def _poll_sampler(
    sampler: Sampler, background: BackgroundCalls, asked: Container[Hashable]
) -> Sequence[tuple[Hashable, Sample | SamplingFailed]]:
    """What the sampler has finished, if that was asked for."""
    # A sampler that counts its steps shows at once that it has lost a request; see `_Silence` for
    # others.
    before = getattr(sampler, "steps", None)
    with background.generating():
        finished = sampler.poll()
    names = [name for name, _ in finished]
    # `in` a short list: polls return few.
    for i, name in enumerate(names):
        if name not in asked or name in names[:i]:
            raise UsageError(
                f"{type(sampler).__name__} returned request {name} twice, or it was not asked for"
            )
    if not finished and before is not None and getattr(sampler, "steps", None) == before:
        raise UsageError(
            f"{type(sampler).__name__} makes no step and returns nothing: it has lost a request"
        )
    return finished
