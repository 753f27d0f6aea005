"""Scoring of requests: a bounded queue per environment, threads that score, and lines that come out in order."""

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

from rlvr.data.lines import Line
from rlvr.errors import DataError, Unscored, UsageError, WorkerDied
from rlvr.scoring import Scored, Scorer
from rlvr.scoring.items import Item
from rlvr.scoring.records import score_fields
from rlvr.serve.limits import ServiceLimits
from rlvr.serve.metrics import Metrics
from rlvr.types import Outcome, Score, Verdict
from rlvr.workers.threads import Threads

__all__ = ["EnvironmentQueue", "Job", "Refused"]

_THREADS = 32  # requests of an environment that are scored at once, at least; they share the scorer's workers
_PAUSES_S = (0.1, 0.5, 2.0)  # before rows for which no worker would start are tried again
_RETRY_AFTER_S = 1  # a queue empties by thousands of rows in a second, or is blocked for an unknown time

_log = logging.getLogger("rlvr.serve")


class Refused(Exception):
    """A request that is not answered with scores.  The message is one line: the value, the rule and the fix.

    Args:
        status: the HTTP status.
        reason: short and stable, counted in the metrics.
        message: what the caller is told.
        retry_after_s: seconds after which the request may be sent again; None if it would be refused again.
    """

    def __init__(self, status: int, reason: str, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s


class Job:
    """The rows of one request and their scores.  A thread puts lines in; any number of coroutines read them, in order.

    A line is the JSON of one row's score, or of its error: exactly one for each row.

    Args:
        rows: the rows of the request.
        loop: the event loop of the readers.
    """

    def __init__(self, rows: Sequence[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.rows = rows
        self.lines: list[bytes] = []
        self.readers = 0
        self.finished = False
        self.refused: Refused | None = None  # set if it ended before its last row
        self.cancelled = False
        self.future: Future[None] | None = None
        self._loop = loop
        self._changed = asyncio.Event()
        self._waking = False

    def put(self, line: dict[str, Any]) -> None:
        """Add the line of the next row.

        Args:
            line: its score or its error, as `score_fields` gives it.
        """
        self.lines.append(json.dumps(line, allow_nan=False).encode())
        self._wake_readers()

    def finish(self, refused: Refused | None = None) -> None:
        """End the job; only the first call counts.

        Args:
            refused: why it ended before its last row; None if it did not.
        """
        if not self.finished:
            self.refused = refused
            self.finished = True
            self._wake_readers()

    async def read(self) -> AsyncIterator[list[bytes]]:
        """The lines from the first one on, in batches, as they are put in.

        Raises:
            Refused: it ended before its last row.
        """
        read = 0
        while True:
            changed, finished = self._changed, self.finished  # read first, so that no later change is missed
            if fresh := self.lines[read:]:
                read += len(fresh)
                yield fresh
            elif finished:
                break
            else:
                await changed.wait()
        if self.refused is not None:
            raise self.refused

    def _wake_readers(self) -> None:
        """Wake the readers once for many lines, not once for each."""
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed: there are no readers
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._changed.set()
        self._changed = asyncio.Event()


class EnvironmentQueue:
    """The requests for one environment: a bounded queue and the threads that score them.

    Args:
        name: of the environment, as requests name it.
        scorer: scores its completions.
        limits: limits of the service, of which `queue_rows` holds here.
        metrics: counts scores and refusals.
    """

    def __init__(self, name: str, scorer: Scorer, limits: ServiceLimits, metrics: Metrics) -> None:
        self.name, self.scorer = name, scorer
        self._limits, self._metrics = limits, metrics
        self._threads = Threads(max(_THREADS, scorer.at_once), "service")
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self.waiting = 0  # rows

    def submit(self, rows: Sequence[Any], loop: asyncio.AbstractEventLoop) -> Job:
        """Add a request to the queue.

        Args:
            rows: the rows of the request.
            loop: the event loop that reads the job.

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
                    f"{self._limits.queue_rows}; ask again in {_RETRY_AFTER_S} s",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self.waiting += len(rows)
            self._jobs.add(job)
        job.future = self._threads.submit(self._run, job)
        return job

    def cancel(self, job: Job) -> None:
        """Stop a job that has no readers any more; rows whose scoring has begun are finished.

        Args:
            job: a job of this queue.
        """
        self._metrics.count("rlvr_cancelled_total", env=self.name)
        job.cancelled = True
        if job.future is not None and job.future.cancel():
            self._remove(job)

    def abort(self, refused: Refused) -> None:
        """End all jobs under way.

        Args:
            refused: what their callers are told.
        """
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.finish(refused)
            job.cancelled = True

    def close(self) -> None:
        """Kill the workers."""
        self._threads.close()
        self.scorer.close()

    def _remove(self, job: Job) -> None:
        with self._lock:
            self._jobs.remove(job)
            self.waiting -= len(job.rows) - len(job.lines)

    def _run(self, job: Job) -> None:
        """Score a job; runs in a thread."""
        refused = None
        try:
            self._score_with_retries(job)
        except Unscored as error:
            self._put_unscored(job, error)
        except UsageError as error:
            refused = Refused(503, "closed", f"{self.name} is no longer served: {error}")
        except Exception as error:  # noqa: BLE001  a bug of rlvr or of an environment: the caller is told that the request is not at fault
            _log.exception("a request for %s failed", self.name)
            refused = Refused(500, "bug", f"a bug in the service, {type(error).__name__}; its log has the traceback")
        if job.cancelled and refused is None and len(job.lines) < len(job.rows):
            refused = Refused(503, "cancelled", "this request was given up by its caller; ask again")
        self._remove(job)
        job.finish(refused)

    def _score_with_retries(self, job: Job) -> None:
        """Score, and try again a few times, after a pause, if workers die while they start."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return None if job.cancelled else self._score(job)
            except WorkerDied:
                if pause_s is None:
                    raise
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    def _score(self, job: Job) -> None:
        """Score the rows that have no line yet."""
        errors: dict[int, str] = {}

        def put_errors() -> None:
            """Put in the errors of the next rows: the scorer reports a row it leaves out before it scores the next."""
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

    def _put_unscored(self, job: Job, error: Unscored) -> None:
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
    """The id that the scorer would give to a row, for one that it cannot use."""
    given = row.id if isinstance(row, Item) else row.get("id") if isinstance(row, dict) else None
    return f"line:{number}" if given is None else str(given)
