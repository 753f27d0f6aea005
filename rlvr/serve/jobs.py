"""Requests on their way through a scorer: a bounded queue, a few lanes, and lines that come out in order."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any

from rlvr.data.rows import Line
from rlvr.errors import DataError, Unscored, UsageError, WorkerDied
from rlvr.scoring import Scored, Scorer
from rlvr.scoring.items import Item
from rlvr.scoring.records import score_fields
from rlvr.serve.limits import Limits
from rlvr.serve.metrics import Metrics
from rlvr.types import Outcome, Score, Verdict
from rlvr.workers.threads import Threads

__all__ = ["Desk", "Job", "Refused"]

_LANES = 32  # requests of an environment that are worked on at once; the scorer's workers are what they share
_PAUSES_S = (0.1, 0.5, 2.0)  # before rows for which no worker would start are tried again
_AGAIN_S = 1  # a queue is emptied by thousands of rows in a second, or blocked for who knows how long

_log = logging.getLogger("rlvr.serve")


class Refused(Exception):
    """An answer that is no score: the status, and one line that says the value, the rule and the fix.

    Attributes:
        reason: short and stable, counted in the metrics.
        retry_after_s: when it is worth asking again; None if it never is.
    """

    def __init__(self, status: int, reason: str, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s


class Job:
    """The rows of one request.  A lane's thread puts lines in; any number of coroutines read them, in order.

    A line is the JSON of one row's score, or of its error: exactly one for each row.
    """

    def __init__(self, rows: Sequence[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.rows = rows
        self.lines: list[bytes] = []
        self.readers = 0
        self.finished = False
        self.refused: Refused | None = None  # it ended before its last row
        self.cancelled = False
        self.future: Future[None] | None = None
        self._loop = loop
        self._news = asyncio.Event()
        self._waking = False

    def put(self, line: dict[str, Any]) -> None:
        """The next row's line."""
        self.lines.append(json.dumps(line, allow_nan=False).encode())
        self._wake_readers()

    def finish(self, refused: Refused | None = None) -> None:
        """No line follows.  The first call counts."""
        if not self.finished:
            self.refused = refused
            self.finished = True
            self._wake_readers()

    async def read(self) -> AsyncIterator[list[bytes]]:
        """The lines from the first one on, as they come, some at a time.

        Raises:
            Refused: it ended before its last row.
        """
        read = 0
        while True:
            news, finished = self._news, self.finished  # first, so that what comes after this look is news
            if fresh := self.lines[read:]:
                read += len(fresh)
                yield fresh
            elif finished:
                break
            else:
                await news.wait()
        if self.refused is not None:
            raise self.refused

    def _wake_readers(self) -> None:
        """Many lines, one call: the loop is woken once until it has come round."""
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed, and so nobody reads
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._news.set()
        self._news = asyncio.Event()


class Desk:
    """Where the requests for one environment queue up."""

    def __init__(self, name: str, scorer: Scorer, limits: Limits, metrics: Metrics) -> None:
        self.name, self.scorer = name, scorer
        self._limits, self._metrics = limits, metrics
        self._lanes = Threads(_LANES)
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self.waiting = 0  # rows

    def admit(self, rows: Sequence[Any], loop: asyncio.AbstractEventLoop) -> Job:
        """Queue a request up.

        Raises:
            Refused: the queue is full.
        """
        job = Job(rows, loop)
        with self._lock:
            if self.waiting + len(rows) > self._limits.queue_rows:
                raise Refused(
                    429,
                    "queue-full",
                    f"{self.waiting} rows for {self.name} are waiting and {len(rows)} more would exceed the limit of "
                    f"{self._limits.queue_rows}; ask again in {_AGAIN_S} s",
                    retry_after_s=_AGAIN_S,
                )
            self.waiting += len(rows)
            self._jobs.add(job)
        job.future = self._lanes.submit(self._work, job)
        return job

    def cancel(self, job: Job) -> None:
        """Nobody waits for it: what has not begun is not begun."""
        self._metrics.count("rlvr_cancelled_total", env=self.name)
        job.cancelled = True
        if job.future is not None and job.future.cancel():
            self._leave(job)

    def abort(self, refused: Refused) -> None:
        """Give up on all that is under way."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.finish(refused)
            job.cancelled = True

    def close(self) -> None:
        """Kill the workers."""
        self._lanes.close()
        self.scorer.close()

    def _leave(self, job: Job) -> None:
        with self._lock:
            self._jobs.remove(job)
            self.waiting -= len(job.rows) - len(job.lines)

    def _work(self, job: Job) -> None:
        """In a lane's thread."""
        refused = None
        try:
            self._score_stubbornly(job)
        except Unscored as error:
            self._give_up(job, error)
        except UsageError as error:
            refused = Refused(503, "closed", f"{self.name} is no longer served: {error}")
        except Exception as error:  # noqa: BLE001  a bug, ours or an author's: the caller learns it is none of theirs
            _log.exception("a request for %s failed", self.name)
            refused = Refused(500, "bug", f"a bug of ours, {type(error).__name__}; the log here has the rest")
        if job.cancelled and refused is None and len(job.lines) < len(job.rows):
            refused = Refused(503, "cancelled", "this request was given up by its caller; ask again")
        self._leave(job)
        job.finish(refused)

    def _score_stubbornly(self, job: Job) -> None:
        """Where workers die while they start, the rows that are left wait for better times, but not for ever."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return None if job.cancelled else self._score(job)
            except WorkerDied:
                if pause_s is None:
                    raise
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    def _score(self, job: Job) -> None:
        """The rows that have no line yet."""
        errors: dict[int, str] = {}

        def put_errors() -> None:
            """Of the rows that come next: the scorer leaves these out, and says so before it comes to what follows."""
            while (number := len(job.lines) + 1) in errors:
                self._put(job, {"id": _id_of(job.rows[number - 1], number), "error": errors.pop(number)})

        def refuse(number: int, error: DataError) -> None:
            errors[number] = str(error)

        rest = enumerate(job.rows[len(job.lines) :], len(job.lines) + 1)
        rows = [Line(number, row, "null, not a mapping of columns") for number, row in rest]
        with closing(self.scorer.stream(rows, on_error=refuse)) as scores:
            for scored in scores:
                put_errors()
                self._put(job, _line(scored))
                if job.cancelled:
                    return
        put_errors()

    def _give_up(self, job: Job, error: Unscored) -> None:
        score = Score(None, {}, Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}"))
        for number in range(len(job.lines) + 1, len(job.rows) + 1):
            self._put(job, {"id": _id_of(job.rows[number - 1], number), **score_fields(score)})

    def _put(self, job: Job, line: dict[str, Any]) -> None:
        with self._lock:
            self.waiting -= 1
        job.put(line)
        if "error" in line:
            self._metrics.count("rlvr_rows_refused_total", env=self.name)
        else:
            self._metrics.count("rlvr_scores_total", env=self.name, outcome=line["outcome"])


def _line(scored: Scored) -> dict[str, Any]:
    return {"id": scored.item.id, **score_fields(scored.score)}


def _id_of(row: Any, number: int) -> str:
    """As the scorer names it, for a row that it cannot use."""
    given = row.id if isinstance(row, Item) else row.get("id") if isinstance(row, dict) else None
    return f"line:{number}" if given is None else str(given)
