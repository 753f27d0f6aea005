"""The rows of a request on their way to lines, one for each row and in the order of the rows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

import orjson

from rlvr.data.lines import Line, Row
from rlvr.errors import DataError
from rlvr.http.memory import MemoryShare
from rlvr.http.refused import Refused
from rlvr.http.serve.interface import MOST_ID_LETTERS
from rlvr.rewards import Observation
from rlvr.scoring import Scorer
from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Ordering, Seen, SlowReference, Taken
from rlvr.scoring.records import score_fields
from rlvr.scoring.wire import encoded_observation
from rlvr.types import JsonDict, Score

__all__ = ["Job", "LINE_BYTES", "OnLines", "Readers", "shown_id"]

_MOST_ERROR_LETTERS = 500
LINE_BYTES = 60  # what Python needs for a line beside its text

# Ends of lines to others, such as Python's `str.splitlines`.  In JSON they stand in texts alone.
_LINE_ENDS = (
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)

_to_json = json.JSONEncoder(allow_nan=False).encode


def _line(fields: dict[str, object]) -> bytes:
    try:
        line = orjson.dumps(fields)
        # Only in such lines can there be other line ends.
        if not line.isascii():
            for end, escaped in _LINE_ENDS:
                line = line.replace(end, escaped)
        # orjson writes into a buffer of at least 1 KiB, and gives it away whole: a short line that
        # is kept for a repeated request would keep thirty times its size.
        return bytes(memoryview(line))
    except TypeError:  # a whole number of more than 64 bits, or half of a surrogate pair
        return _to_json(fields).encode()


def shown_id(given: object, number: int) -> str:
    """The id of a row as its line has it, or `line:7` if it has none.

    Args:
        given: what the row has as its id.
        number: of the row, counted from 1.
    """
    return f"line:{number}" if given is None else str(given)[:MOST_ID_LETTERS]


OnLines = Callable[[Mapping[str | None, int]], None]
"""Called with the outcomes of rows that have their lines, None if a row could not be
used, and how many have each."""


class Readers:
    """Wakes the readers of jobs: one call of the event loop for all jobs of a
    chunk, and not one for each.

    Args:
        loop: the event loop of the readers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._changed: deque[Job] = deque()
        self._is_called = False

    def wake(self, job: Job) -> None:
        """Wake the readers of a job; any thread may call this.

        Args:
            job: has new lines, or has ended.
        """
        # Before the flag is looked at: the loop clears it first and then reads the list.
        self._changed.append(job)
        # else it will see this job too: it takes them out after it has cleared this
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: there are no readers
                self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        # Cleared first: a job that is added from here on causes a call of its own.
        self._is_called = False
        while self._changed:
            self._changed.popleft()._wake()


class Job:
    """The rows of one request and their scores.  Threads put lines in; any number of
    coroutines read them, in order.

    A line is the JSON of one row's score, or of its error: exactly one for each row.

    Args:
        rows: the rows of the request.  They are let go of one by one, as they are taken to be
            scored.
        scorer: combines what was observed.
        owner: whose turn it uses among the other jobs; None for a turn of its own.
        share: the memory of the request; the job releases it.
        readers: wakes those that read the job.
        combines: whether a line has a row's score; else what was observed of it, for a scorer
            elsewhere.
        on_lines: see `OnLines`.
        on_end: called when the job has ended.
    """

    def __init__(
        self,
        rows: Sequence[object],
        scorer: Scorer,
        owner: Hashable,
        share: MemoryShare,
        readers: Readers,
        *,
        combines: bool = True,
        on_lines: OnLines,
        on_end: Callable[[Job], None],
    ) -> None:
        self.count, self.share = len(rows), share
        # By it chunks are bounded in bytes; at least one, as it divides.
        self.row_bytes = max(1, share.held // max(1, self.count))  # in memory, on average
        self.is_alone = owner is None
        # A caller's name, or an owner of its own where callers have none.
        self.owner: Hashable = object() if owner is None else owner
        self.lines: list[bytes] = []
        self.outcomes: dict[str, int] = {}  # of the lines
        self.readers = 0
        self.finished = False
        self.refused: Refused | None = None  # set if it ended before its last row
        self.chunk = 1  # items to take at once: more while they are quick, fewer when they are slow
        self.struck = False  # no worker would start for it
        self._returned: list[Taken] = []  # taken, and to be observed elsewhere
        self._slow: list[Taken] = []  # these too, and their references take long to read
        self._under_way: dict[Taken, Future[object] | None] = {}
        self._rows = list(reversed(rows))  # a row is let go of when its turn comes
        self._id: object = None  # of the row that was taken last
        self._ids: dict[int, object] = {}  # of items that turned out to be unfit
        self._errors: dict[int, tuple[str, str]] = {}
        env = scorer.env
        combine: Callable[..., Any] = scorer.combine if combines else _as_observed
        self._ordering: Ordering[Any] | None = Ordering(  # None after the end
            env,
            self._next_rows(),
            self._refuse,
            combine,
            by_group=combines and env.reward.group_level,
            with_tasks=False,
        )
        self._combining: Future[Any] | None = None
        self._size = 0  # of the lines, in bytes
        self._released = False
        self._on_lines, self._on_end = on_lines, on_end
        # Held while an environment's code looks rows up, so never taken by the event loop.
        self._lock = threading.RLock()
        self._wakes = readers
        self._at_lines: list[asyncio.Future[None]] = []  # readers that wait for the next lines
        self._at_end: list[asyncio.Future[None]] = []  # readers that wait for the last one

    # ------------------------------------------------------------------------------ for the threads

    @property
    def left(self) -> int:
        """How many rows wait to be taken, without the slow ones."""
        return 0 if self.finished else len(self._rows) + len(self._returned)

    @property
    def slow(self) -> int:
        """How many rows wait to be taken whose references take long to read."""
        return 0 if self.finished else len(self._slow)

    @property
    def waiting(self) -> int:
        """How many rows have no line yet."""
        return 0 if self.finished else self.count - len(self.lines)

    def take(self, most: int) -> list[Taken]:
        """Items to observe now; none if the job has no more.

        Args:
            most: greatest number of items.
        """
        with self._lock:
            ordering = self._ordering
            if self.finished or ordering is None:
                return []
            if self._returned:
                items, self._returned = self._returned[:most], self._returned[most:]
            else:
                items = ordering.take(most)
                # The last row was taken: groups can be closed.
                ordering.ended = ordering.ended or not self._rows
                if ordering.error is not None:
                    raise ordering.error
            self._under_way.update(dict.fromkeys(items))
            if self._errors or not items:
                # Errors alone can complete the job, so their lines must be put in.
                self._advance()
            return items

    def take_slow(self) -> list[Taken]:
        """An item whose reference takes long to read; none if there is no more."""
        with self._lock:
            if self.finished:
                return []
            while self._slow:
                taken = self._slow.pop(0)
                # Another worker may have been first with it.
                if self.is_awaited(taken):
                    self._under_way[taken] = None
                    return [taken]
            return []

    def watch(self, taken: Taken, future: Future[Any]) -> None:
        """Cancel this future if the job ends before the item is observed.

        Args:
            taken: an item of this job.
            future: of its observation.
        """
        # Under the lock, as the job may end between the look and the note.
        with self._lock:
            if taken in self._under_way:
                self._under_way[taken] = future
        if self.finished:
            # Outside of the lock: a future's callbacks run in this thread.
            future.cancel()

    def observed(self, parts: Sequence[tuple[Taken, Seen | None]]) -> None:
        """Put in observations; only the first of an item counts.

        Args:
            parts: items of this job, with what was observed; None for one that was given up.
        """
        with self._lock:
            for taken, seen in parts:
                was_under_way = taken in self._under_way
                self._under_way.pop(taken, None)
                # A worker that was given up and answers all the same: the first counts.
                if seen is None or not self.is_awaited(taken):
                    continue
                if isinstance(seen, SlowReference):
                    if was_under_way:  # it may be told twice
                        self._slow.append(taken)
                    continue
                taken.seen = seen
                if isinstance(seen, DataError):
                    self._ids[taken.number] = taken.item.id
            if not self.finished:
                self._advance()
            # What it held can go once nothing is under way.
            self._let_go()

    def is_awaited(self, taken: Taken) -> bool:
        """Whether an item's observation is still of use.

        Args:
            taken: an item of this job.
        """
        return taken.seen is None and not self.finished

    def is_under_way(self, taken: Taken) -> bool:
        """Whether an item was taken, and nothing has become of it yet.

        Args:
            taken: an item of this job.
        """
        return taken in self._under_way

    def give_back(self, taken: Taken) -> None:
        """Let an item be taken again.

        Args:
            taken: an item of this job that may not have been observed.
        """
        with self._lock:
            if self.is_awaited(taken):
                self._returned.append(taken)

    def _next_rows(self) -> Iterator[Line]:
        while True:
            # The list is reversed: the row that is taken next has this number.
            number = self.count - len(self._rows) + 1
            try:
                row: object = self._rows.pop()
            except IndexError:  # also when the job was ended meanwhile
                return
            self._id = (
                row.id
                if isinstance(row, Item)
                else row.get("id")
                if isinstance(row, dict)
                else None
            )
            if not isinstance(row, (dict, Item)):
                yield Line(
                    number, None, "null, not a mapping of columns" if row is None else _kind(row)
                )
            elif len(str(self._id)) > MOST_ID_LETTERS:
                yield Line(
                    number,
                    None,
                    f"the id has more than {MOST_ID_LETTERS} letters; give a shorter one",
                )
            else:
                yield Line(number, cast("Row", row), "")

    def _refuse(self, number: int, error: DataError) -> None:
        name, text = shown_id(self._ids.pop(number, self._id), number), str(error)
        self._errors[number] = (
            name,
            # An error is shown to the caller; a long one would fill its line.
            text if len(text) <= _MOST_ERROR_LETTERS else f"{text[:_MOST_ERROR_LETTERS]}…",
        )

    def _advance(self) -> None:
        """Put in the lines whose turn has come."""
        ordering = self._ordering
        if ordering is None:  # it was ended meanwhile
            return
        fresh: list[bytes] = []
        outcomes: dict[str | None, int] = {}
        for item, result in ordering.ready():
            # Errors before this row first: lines have the order of rows.
            if self._errors:
                self._put_errors(fresh, outcomes)
            fresh.append(_line({"id": item.id, **_fields(result)}))
            outcome = result.verdict.outcome.value
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if self._errors:
            self._put_errors(fresh, outcomes)
        combining = ordering.combining
        # A group whose total is computed elsewhere: its lines come later.
        if combining is not None and combining is not self._combining:
            self._combining = combining
            combining.add_done_callback(self._note_combined)
        if fresh:
            self._put(fresh, outcomes)
        if len(self.lines) == self.count:
            self.finish()

    def _note_combined(self, _: Future[Any]) -> None:
        with self._lock:
            if not self.finished:
                self._advance()

    def _put_errors(self, fresh: list[bytes], outcomes: dict[str | None, int]) -> None:
        """Add the errors of the next rows: they are known before the next item is taken."""
        while (number := len(self.lines) + len(fresh) + 1) in self._errors:
            name, error = self._errors.pop(number)
            fresh.append(_line({"id": name, "error": error}))
            outcomes[None] = outcomes.get(None, 0) + 1

    def _put(self, fresh: list[bytes], outcomes: dict[str | None, int]) -> None:
        if self.finished:
            return
        size = sum(map(len, fresh)) + LINE_BYTES * len(fresh)
        try:
            # Lines wait for a reader that may be slow; they are memory of the request's.
            self.share.add(size)
        except Refused as refused:
            self.finish(refused)
            return
        self._size += size
        self.lines += fresh
        for outcome, rows in outcomes.items():
            name = outcome or "refused"
            self.outcomes[name] = self.outcomes.get(name, 0) + rows
        self._on_lines(outcomes)
        if self._at_lines:
            self._wakes.wake(self)

    # ------------------------------------------------------------------------------- for any thread

    def finish(self, refused: Refused | None = None) -> None:
        """End the job; only the first call counts.  What waits is let go of at once, what is under
        way is given up.

        Args:
            refused: why it ended before its last row; None if it did not.
        """
        if not self.finished:
            self.refused = refused
            # Set before anything else: other threads look at it without the lock.
            self.finished = True
            self._rows.clear()
            self._returned.clear()
            self._slow.clear()
            for future in list(self._under_way.values()):
                if future is not None:
                    future.cancel()
            if refused is not None and (ordering := self._ordering) is not None:
                ordering.cancel()
            self._let_go()
            self._on_end(self)
            self._wakes.wake(self)

    def hold(self) -> None:
        """Count the memory of the lines again, for a reader of a job that was released.

        Raises:
            Refused: the requests together would exceed the limit.
        """
        if self._released:
            self.share.set(self._size)
            self._released = False

    def release(self) -> None:
        """Let go of the memory of the lines too: they are sent, or kept elsewhere."""
        self._released = True
        self._let_go()

    def _let_go(self) -> None:
        if self.finished and not self._under_way:
            self.share.set(0 if self._released else min(self._size, self.share.held))
            # which knows this job: together they would wait for the garbage collector
            self._ordering = None

    # ------------------------------------------------------------------------------ for the readers

    async def read(self) -> AsyncIterator[list[bytes]]:
        """The lines from the first one on, in batches, as they are put in.

        Raises:
            Refused: it ended before its last row.
        """
        read = 0
        while True:
            finished = self.finished  # read first, so that no later line is missed
            if fresh := self.lines[read:]:
                read += len(fresh)
                yield fresh
            elif finished:
                break
            else:
                changed = self._waiter(self._at_lines)
                # it may have changed before it knew of the waiter
                if not (self.finished or len(self.lines) > read):
                    await changed
        if self.refused is not None:
            raise self.refused

    async def ends_within(self, seconds: float) -> bool:
        """Wait a little for the last line, and say whether the job has ended.

        Args:
            seconds: how long.
        """
        if not self.finished:
            ended = self._waiter(self._at_end)
            if not self.finished:
                # The timer ends the wait, unless the job ends before.
                timer = self._wakes.loop.call_later(seconds, _resolve, ended)
                try:
                    await ended
                finally:
                    timer.cancel()
        return self.finished

    def nudge(self) -> None:
        """Let `ends_within` return now.  Only the event loop may call this."""
        for waiter in self._at_end:
            _resolve(waiter)

    async def wait(self) -> None:
        """Wait for the last line.

        Raises:
            Refused: it ended before its last row.
        """
        while not self.finished:
            ended = self._waiter(self._at_end)
            if not self.finished:
                await ended
        if self.refused is not None:
            raise self.refused

    def _waiter(self, waiters: list[asyncio.Future[None]]) -> asyncio.Future[None]:
        waiter = self._wakes.loop.create_future()
        waiters.append(waiter)
        return waiter

    def _wake(self) -> None:
        """In the event loop."""
        changed, self._at_lines = self._at_lines, []
        if self.finished:
            changed += self._at_end
            self._at_end.clear()
        for waiter in changed:
            _resolve(waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _kind(row: object) -> str:
    return f"a {type(row).__name__}, not a mapping of columns"


def _as_observed(items: Sequence[Item], seen: Sequence[Observation]) -> list[Observation]:
    return list(seen)


def _fields(result: Score | Observation) -> JsonDict:
    return (
        score_fields(result) if isinstance(result, Score) else {"seen": encoded_observation(result)}
    )
