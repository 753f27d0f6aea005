"""The queue of an environment: whose rows are scored next, and by how many workers.

    jobs ─▶ ring of owners ─one chunk of each, in turn─▶ thread ─▶ Scorer.observe
         ─▶ Job: lines in order

An owner is a caller whose key has a name, else a single request.  It never occupies the last
worker, so that the next one is served however long the rows of the first take.  Nothing is
prefetched: a chunk begins when a worker is free.

A reference that takes long to read is put off at once, and read later by all workers but the last,
whatever number of requests has such ones: it is data from a stranger, and would be read in vain
most of the time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future

from rlvr.errors import Unscored, UsageError, WorkerDied, foreign_code
from rlvr.http.memory import MemoryShare
from rlvr.http.metrics import Metrics
from rlvr.http.refused import Refused
from rlvr.http.serve.jobs import Job, Readers
from rlvr.http.serve.limits import ServiceLimits
from rlvr.scoring import Scorer
from rlvr.scoring.ordering import Seen, Taken
from rlvr.scoring.pool import unscored_outcome
from rlvr.workers.pool import GivenUp
from rlvr.workers.threads import Threads

__all__ = ["EnvironmentQueue"]

_CHUNK_S = 0.01  # work per chunk: long against the pipe's delay, short for the next owner
# of a chunk of one job: it is pickled in one call, which all threads wait for
_CHUNK_BYTES = 1 << 19
_SENT_BYTES_S = 10 << 20  # bytes per second that reach a worker at least, on a machine that is busy
_SENT_S = 1.0  # that this takes at most
_PUT_S = 0.005  # between two hand-overs of what was observed
# within which each owner has a turn; where there are many, their chunks are smaller
_ROUND_S = 0.03
_MOST_ITEMS = 64  # in a chunk of one job
_MOST_TOGETHER = 32  # in a chunk of several jobs, which wait for each other
_QUICK_S = 0.002  # of work per row, at most, of rows that are worth collecting
_COLLECT_S = 0.003  # for which they are collected while a chunk is under way
_SMALL = 64  # rows of a request for which the last eighth of the queue is kept
_PAUSES_S = (0.1, 0.5, 2.0)  # before rows for which no worker would start are tried again
_ASYNC_THREADS = 2  # which only look rows up and hand them over
# for which rows wait while no chunk begins or ends, before the service is not ready
_STUCK_S = 15.0
_KNOWN_ROWS = 64  # from which on the time of a row is estimated

_log = logging.getLogger("rlvr.http")

_Part = tuple[Job, Taken]


class EnvironmentQueue:
    """The requests for one environment.  Safe from any thread.

    Args:
        name: of the environment, as requests name it.
        scorer: scores its completions.
        limits: limits of the service.
        metrics: counts scores and refusals.
    """

    def __init__(self, name: str, scorer: Scorer, limits: ServiceLimits, metrics: Metrics) -> None:
        self.name, self.scorer = name, scorer
        self._limits, self._metrics = limits, metrics
        # Not for the threads of the scorer: these look rows up and combine as well.
        # As many as chunks can be under way; async items need no thread of their own.
        self._threads = Threads(_ASYNC_THREADS if scorer.awaits else scorer.at_once, "service")
        self._most_threads = _ASYNC_THREADS if scorer.awaits else scorer.at_once
        kept = scorer.at_once // 8 if scorer.awaits else 1  # for other owners
        # A share is kept for other owners, so that one long request never takes all workers.
        self._most_of_one = max(1, scorer.at_once - max(1, kept))
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._most_waiting = 0  # all rows of these, also those that have a line
        # jobs that have rows to take; the first is next
        self._ring: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._slow_ring: deque[Job] = deque()  # jobs that have slow rows to take
        self._slow_under_way = 0
        # owners that a new one was let before, since their last chunk began
        self._passed: set[Hashable] = set()
        self._busy: Counter[Hashable] = Counter()  # chunks of each owner that are under way
        self._under_way = 0  # chunks; items, if the environment is async
        self._running = 0  # threads
        self._began_s = 0.0  # when the last chunk began
        self._ended_s = 0.0  # when one ended last
        self._looks_at = 0.0  # when `_spur` will be called, as rows are being collected
        self._spent_s = self._spent_rows = 0.0  # by workers, of late

    @property
    def puts_off(self) -> bool:
        """Whether references that take long to read are put off: there is room for two at once."""
        return self.scorer.at_once > 1

    @property
    def waiting(self) -> int:
        """Rows that have no line yet."""
        with self._lock:
            return self._waiting()

    def _waiting(self) -> int:
        return sum(job.waiting for job in self._jobs)

    @property
    def problem(self) -> str:
        """Why the next row would not be judged soon; "" if it would."""
        if problem := self.scorer.engine.problem:
            return problem
        with self._lock:
            # A chunk that begins or ends shows that the workers still work.
            idle_s = time.monotonic() - max(self._began_s, self._ended_s)
            if self._ring and self._under_way and idle_s > _STUCK_S:
                return f"all its workers have been busy with the same rows for {idle_s:.0f} s"
        return ""

    def submit(
        self,
        rows: Sequence[object],
        share: MemoryShare,
        readers: Readers,
        caller: str | None = None,
        *,
        combines: bool = True,
    ) -> Job:
        """Add a request to the queue.

        Args:
            rows: the rows of the request.
            share: its memory.
            readers: wakes those that read the job.
            caller: the name of its key, if keys have names.
            combines: see `Job`.

        Raises:
            Refused: the queue is full, or the wait would be too long.
        """
        job = Job(
            rows,
            self.scorer,
            caller,
            share,
            readers,
            combines=combines,
            on_lines=self._count_lines,
            on_end=self._forget,
        )
        with self._lock:
            self._admit(job)
            self._jobs.add(job)
            # Without a look at each job: an upper bound of what waits.
            self._most_waiting += job.count
            if job.count:
                is_new = job.owner not in self._ring
                self._ring.setdefault(job.owner, deque()).append(job)
                if is_new:
                    self._let_pass(job.owner)
        if job.count:
            # After the requests that arrived together with this one: they share a chunk.
            readers.loop.call_soon(self._spur_later, readers.loop)
        else:
            job.finish()
        return job

    def _let_pass(self, new: Hashable) -> None:
        """A new owner goes before those that have a chunk under way, which are passed once for each
        chunk."""
        for owner in self._busy:
            if owner != new and owner in self._ring and owner not in self._passed:
                self._ring.move_to_end(owner)
                self._passed.add(owner)

    def _admit(self, job: Job) -> None:
        # Small requests find room where a large one is refused.
        small = job.count <= _SMALL
        limit = (
            self._limits.queue_rows
            if small
            else self._limits.queue_rows - self._limits.queue_rows // 8
        )
        # A caller with a name may fill half of the queue.
        own_most = limit if job.is_alone else limit // 2
        row_s = self._row_s() / self.scorer.at_once
        if (
            self._most_waiting + job.count <= own_most
            and row_s * self._most_waiting <= self._limits.request_s
        ):
            return  # without a look at each job
        waiting = self._waiting()
        if waiting and waiting + job.count > limit:
            raise self._full(
                "queue-full",
                f"{waiting} rows for {self.name} are waiting and {job.count} more would exceed the "
                f"limit of {limit}",
                row_s * waiting / 2,
            )
        queued = sum(
            waiting_job.waiting for waiting_job in self._jobs if waiting_job.owner == job.owner
        )
        if queued and queued + job.count > own_most:
            raise self._full(
                "caller-full",
                f"{queued} rows of this caller are waiting and {job.count} more would exceed its "
                f"limit of {own_most}",
                row_s * queued / 2,
            )
        # Each owner has a chunk in turn, so that a short request waits for a few rows of each long
        # one.
        ahead = min(waiting, job.count * (len(self._ring) + len(self._busy)))
        if row_s * ahead > self._limits.request_s:
            raise self._full(
                "queue-slow",
                f"about {row_s * ahead:.0f} s of work are ahead of these {job.count} rows, and a "
                f"request may take "
                f"{self._limits.request_s:g} s",
                row_s * ahead - self._limits.request_s,
            )

    def _full(self, reason: str, what: str, wait_s: float) -> Refused:
        # A client that waits for more than a minute had better ask again.
        retry_after_s = int(min(max(wait_s, 1), 60))
        return Refused(
            429, reason, f"{what}; ask again in {retry_after_s} s", retry_after_s=retry_after_s
        )

    def _row_s(self) -> float:
        # Below some rows the estimate would be one of starts and outliers.
        return self._spent_s / self._spent_rows if self._spent_rows >= _KNOWN_ROWS else 0.0

    def cancel(self, job: Job) -> None:
        """Stop a job that has no readers any more.  A worker that has only such rows is killed if
        they take long.

        Args:
            job: a job of this queue.
        """
        self._metrics.count("rlvr_cancelled_total", env=self.name)
        job.finish(Refused(503, "cancelled", "this request was given up by its caller; ask again"))

    def abort(self, refused: Refused) -> None:
        """End all jobs under way.

        Args:
            refused: what their callers are told.
        """
        with self._lock:
            jobs = list(self._jobs)
        # Outside of the lock: a job that ends calls back into the queue.
        for job in jobs:
            job.finish(refused)

    def close(self) -> None:
        """Kill the workers."""
        self._threads.close()
        self.scorer.close()

    def _count_lines(self, outcomes: Mapping[str | None, int]) -> None:
        for outcome, rows in outcomes.items():
            if outcome is None:
                self._metrics.count("rlvr_rows_refused_total", rows, env=self.name)
            else:
                self._metrics.count("rlvr_scores_total", rows, env=self.name, outcome=outcome)

    # ----------------------------------------------------------------------------- whose turn it is

    def _spur_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the event loop: start a thread, unless quick rows had better wait for others.

        A chunk costs as much as ten trivial rows, and two threads take the interpreter from each
        other.  So while a chunk has just begun, the next rows are collected for some milliseconds,
        or until it has ended.
        """
        looked_at = time.monotonic()
        if self._under_way and looked_at < self._looks_at:
            return
        rest_s = self._began_s + _COLLECT_S - looked_at
        if (
            self._under_way
            and rest_s > 0
            and len(self._ring) < _MOST_TOGETHER
            and self._are_quick()
        ):
            self._looks_at = looked_at + rest_s
            loop.call_later(rest_s, self._spur)
        else:
            self._spur()

    def _are_quick(self) -> bool:
        return 0 < self._row_s() < _QUICK_S

    def _spur(self) -> None:
        """Start a thread if there is work for one more."""
        with self._lock:
            if not (self._ring or self._slow_ring) or self._running >= self._most_threads:
                return
            self._running += 1
        try:
            self._threads.submit(self._work)
        except UsageError:
            # It was closed between the look and the call.
            with self._lock:
                self._running -= 1
            self.abort(self._closed_refusal())

    def _work(self) -> None:
        """Score chunks until there are none; runs in a thread."""
        while True:
            jobs, is_slow = self._next_slow(), True
            if jobs is None:
                jobs, is_slow = self._next(), False
            if jobs is None:
                return
            # Another thread is started before this one is busy, where there is work for two.
            self._spur()
            with foreign_code() as bugs:
                self._begin(jobs, is_slow=is_slow)
            self._end_for(bugs, jobs)

    def _next_slow(self) -> list[Job] | None:
        """A job of which one slow row is next; it stays in the ring while it has more."""
        with self._lock:
            others_wait = bool(self._ring)
            # Slow references never take the last worker from rows that are quick.
            most = 1 if others_wait else self.scorer.at_once - 1
            if (
                not self._slow_ring
                or self._slow_under_way >= most
                or self._under_way >= self.scorer.at_once
            ):
                return None
            job = self._slow_ring.popleft()
            self._slow_under_way += 1
            self._under_way += 1
            self._began_s = time.monotonic()
            self._busy[job.owner] += 1
            return [job]

    def _next(self) -> list[Job] | None:
        """The jobs that the next chunk is of, which are out of the ring then; None if this thread
        is not needed."""
        with self._lock:
            owner = None
            if self._under_way < self.scorer.at_once:
                owner = next(
                    (
                        candidate
                        for candidate in self._ring
                        if self._busy[candidate] < self._most_of_one
                    ),
                    None,
                )
            if owner is None:
                self._running -= 1
                return None
            jobs = [self._pop_job(owner)]
            small = jobs[0].left
            # Quick rows are joined; slow ones are spread over all workers.
            shares = 1 if self._are_quick() else self.scorer.at_once
            room = min(_MOST_TOGETHER, -(-sum(map(len, self._ring.values())) // shares) + small)
            while not self.scorer.awaits and small < room and self._ring:
                owner = next(iter(self._ring))
                # A chunk of several jobs takes only whole small ones.
                if (
                    self._busy[owner] >= self._most_of_one
                    or small + self._ring[owner][0].left > room
                ):
                    break
                jobs.append(self._pop_job(owner))
                small += jobs[-1].left
            self._under_way += 1
            self._began_s = time.monotonic()
            for job in jobs:
                self._busy[job.owner] += 1
            return jobs

    def _pop_job(self, owner: Hashable) -> Job:
        # Its turn has come, so it may be passed again.
        self._passed.discard(owner)
        jobs = self._ring[owner]
        job = jobs.popleft()
        if jobs:
            # Behind all others: each owner in turn.
            self._ring.move_to_end(owner)
        else:
            del self._ring[owner]
        return job

    def _return(self, job: Job) -> None:
        """Put a job back into the ring, if it has rows to take."""
        if not (job.left or job.slow):
            return
        with self._lock:
            if job.left and job in self._jobs:
                mine = self._ring.setdefault(job.owner, deque())
                # A job may come back by two ways; in the ring it stands once.
                if job not in mine:
                    mine.append(job)
            if job.slow and job in self._jobs and job not in self._slow_ring:
                self._slow_ring.append(job)

    def _freed(self, jobs: Sequence[Job]) -> None:
        """The owners of these jobs have one chunk less under way, for each."""
        with self._lock:
            for job in jobs:
                self._busy[job.owner] -= 1
                if not self._busy[job.owner]:
                    del self._busy[job.owner]

    def _forget(self, job: Job) -> None:
        """Called when a job has ended."""
        with self._lock:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            self._most_waiting -= job.count
            mine = self._ring.get(job.owner)
            if mine is not None and job in mine:
                mine.remove(job)
                if not mine:
                    del self._ring[job.owner]
            if job in self._slow_ring:
                self._slow_ring.remove(job)
            if job.is_alone:
                self._passed.discard(job.owner)

    def _end_for(self, bugs: Sequence[BaseException], jobs: list[Job]) -> None:
        """End jobs that met bugs of rlvr or of an environment; their callers are told that their
        requests are not at fault."""
        for error in bugs:
            _log.error("a request for %s failed", self.name, exc_info=error)
            what = f"a bug in the service, {type(error).__name__}; its log has the traceback"
            self._end_all(jobs, Refused(500, "bug", what))

    def _end_all(self, jobs: list[Job], refused: Refused) -> None:
        for job in jobs:
            job.finish(refused)

    def _closed_refusal(self, why: UsageError | None = None) -> Refused:
        reason = "" if why is None else f" ({why})"
        return Refused(503, "closed", f"{self.name} is no longer served{reason}; ask again")

    # -------------------------------------------------------------------------------------- a chunk

    def _begin(self, jobs: list[Job], *, is_slow: bool) -> None:
        """Take the items of a chunk and have them observed."""
        if is_slow:
            self._begin_slow(jobs[0])
            return
        parts: list[_Part] = []
        # Many owners: smaller chunks, so that each has its turn within the round.
        share = min(1.0, _ROUND_S / _CHUNK_S * self.scorer.at_once / max(len(self._ring), 1))
        try:
            for job in jobs:
                most = (
                    1
                    if self.scorer.awaits
                    # By number of rows and by bytes: pickling a chunk holds the interpreter.
                    else max(1, min(int(job.chunk * share), _CHUNK_BYTES // job.row_bytes))
                )
                with foreign_code() as bugs:
                    parts += [(job, taken) for taken in job.take(most)]
                # A bug in one job's environment must not end the others'.
                self._end_for(bugs, [job])  # which the other jobs' rows did not meet
                self._return(job)
        except BaseException:
            self._finish(jobs, parts, 0.0)
            raise
        if not parts:
            self._finish(jobs, parts, 0.0)
        elif self.scorer.awaits:
            self._begin_async(*parts[0])
        else:
            _Chunk(self, jobs, parts).run()

    def _begin_slow(self, job: Job) -> None:
        parts: list[_Part] = []
        try:
            parts = [(job, taken) for taken in job.take_slow()]
            self._return(job)
        finally:
            if not parts:
                self._finish([job], parts, 0.0, is_slow=True)
        if parts and self.scorer.awaits:
            self._begin_async(*parts[0], is_slow=True)
        elif parts:
            _Chunk(self, [job], parts, is_slow=True).run()

    def _finish(
        self, jobs: list[Job], parts: list[_Part], took_s: float, *, is_slow: bool = False
    ) -> None:
        """Account for a chunk that has ended, however it did: a worker is free again."""
        # What neither was observed nor failed: its job looks for another worker.
        given_up = [(job, taken) for job, taken in parts if job.is_under_way(taken)]
        self._put(given_up, [None] * len(given_up))
        self._freed(jobs)
        with self._lock:
            self._slow_under_way -= is_slow
            self._under_way -= 1
            self._ended_s = time.monotonic()
            # An average that forgets: about the last hundred chunks.
            self._spent_s = self._spent_s * 0.99 + took_s
            self._spent_rows = self._spent_rows * 0.99 + (len(parts) if took_s else 0)
        if self.scorer.awaits:  # else this thread goes on with the next chunk
            self._spur()

    def _begin_async(self, job: Job, taken: Taken, *, is_slow: bool = False) -> None:
        start = time.monotonic()

        def take_over(future: Future[list[Seen]]) -> None:
            took_s = time.monotonic() - start
            try:
                # no code of a reward runs in the loop of the workers
                self._threads.submit(done, future, took_s)
            except UsageError:
                done(future, took_s)

        def done(future: Future[list[Seen]], took_s: float) -> None:
            # A cancelled one was given up by its job.
            if not future.cancelled():
                if (error := future.exception()) is None:
                    self._put([(job, taken)], future.result())
                else:
                    self._fail_parts([(job, taken)], error)
            self._finish([job], [(job, taken)], took_s, is_slow=is_slow)

        try:
            future = self.scorer.begin(taken.item, quick=self.puts_off and not is_slow)
        except UsageError:
            self._end_all([job], self._closed_refusal())
            self._finish([job], [(job, taken)], 0.0, is_slow=is_slow)
            return
        job.watch(taken, future)
        future.add_done_callback(take_over)

    def _put(self, parts: Sequence[_Part], seen: Sequence[Seen | None]) -> None:
        by_job: dict[Job, list[tuple[Taken, Seen | None]]] = {}
        for (job, taken), one in zip(parts, seen, strict=True):
            by_job.setdefault(job, []).append((taken, one))
        for job, observed in by_job.items():
            with foreign_code() as bugs:
                job.observed(observed)
                if job.slow:
                    self._return(job)
            self._end_for(bugs, [job])

    def _fail_parts(self, parts: list[_Part], error: BaseException) -> None:
        """No worker would score these items."""
        # Lost twice, or out of time: UNSCORED, with the reason.
        if isinstance(error, Unscored):
            self._put(parts, [unscored_outcome(error)] * len(parts))
        elif isinstance(error, UsageError):
            self._end_all([job for job, _ in parts], self._closed_refusal(error))
        else:
            self._end_for([error], [job for job, _ in parts])


class _Chunk:
    """Items that one worker observes one after another; used by one thread.

    Args:
        queue: of the environment.
        jobs: whose items they are.
        parts: the items.
        is_slow: whether it is one that was put off.
    """

    def __init__(
        self,
        queue: EnvironmentQueue,
        jobs: list[Job],
        parts: list[_Part],
        *,
        is_slow: bool = False,
    ) -> None:
        self._queue, self._jobs, self._parts, self._is_slow = queue, jobs, parts, is_slow
        self._left = parts  # those that were not observed before an attempt
        self._done = 0  # of these, from the first on
        self._slow: int | None = None  # the first that took long
        self._fresh: list[tuple[int, Seen]] = []  # observed and not handed over
        self._put_at = time.monotonic()
        self._sent_by = 0.0  # when the items have reached the worker at the latest

    def run(self) -> None:
        start = time.monotonic()
        # A job for which no worker would start before is not waited for again.
        pauses = () if self._jobs[0].struck else _PAUSES_S
        try:
            with foreign_code() as errors:
                self._attempt((*pauses, None))
            for error in errors:  # what it means is decided there
                awaited = [part for part in self._parts if part[0].is_awaited(part[1])]
                self._queue._fail_parts(awaited, error)
        finally:
            # The time of a reference that takes long is no measure for rows.
            took_s = 0.0 if self._is_slow else time.monotonic() - start
            self._queue._finish(self._jobs, self._parts, took_s, is_slow=self._is_slow)

    def _attempt(self, pauses: Sequence[float | None]) -> None:
        """Observe; where a worker was lost once more after each pause, and raise after the None."""
        start = time.monotonic()
        try:
            for pause_s in pauses:
                try:
                    self._observe()
                    break
                except WorkerDied:
                    # What was observed before the loss counts.
                    self._put()
                    if pause_s is None:
                        for job in self._jobs:
                            job.struck = True
                        raise
                    time.sleep(pause_s)
            self._adapt(time.monotonic() - start)
        except GivenUp:
            self._put()

    def _observe(self) -> None:
        self._left = [part for part in self._parts if part[0].is_awaited(part[1])]
        self._done, self._slow = 0, None
        items = [taken.item for _, taken in self._left]
        # Its rows must have arrived before it can be called slow.
        sent_s = sum(job.row_bytes for job, _ in self._left) / _SENT_BYTES_S
        self._sent_by = time.monotonic() + min(sent_s, _SENT_S)
        if items:
            seen = self._queue.scorer.observe(
                items,
                on_seen=self._on_seen,
                give_up=self._give_up,
                quick=self._queue.puts_off and not self._is_slow,
            )
            self._fresh.clear()
            self._queue._put(self._left, seen)

    def _on_seen(self, place: int, seen: Seen) -> None:
        self._done = place + 1
        self._fresh.append((place, seen))
        if time.monotonic() - self._put_at > _PUT_S:
            self._put()

    def _put(self) -> None:
        """Hand over what was observed: several at once, as each hand-over has a price."""
        fresh, self._fresh = self._fresh, []
        self._queue._put(
            [self._left[place] for place, _ in fresh], [outcome for _, outcome in fresh]
        )
        self._put_at = time.monotonic()

    def _give_up(self) -> bool:
        """Asked while an item takes long: what stands behind it goes elsewhere, each row in its
        owner's turn.

        The worker still has those items and may be the first to be done with them; but one more
        that takes long would be a second turn.
        """
        self._put()
        if self._slow is None:
            self._slow = self._done
            self._scatter()
        if self._done != self._slow:
            # It goes on: the item that was slow is done.
            return True
        # it may not have begun, and a new worker takes longer to start
        if time.monotonic() < self._sent_by:
            return False
        return not any(job.is_awaited(entry) for job, entry in self._left[self._done :])

    def _scatter(self) -> None:
        slow_job, _ = self._left[self._done]
        for job, entry in self._left[self._done + 1 :]:
            # In the order of their rows, behind what was returned before.
            job.give_back(entry)
        other_jobs = [job for job in self._jobs if job is not slow_job]
        self._jobs = [slow_job]
        self._queue._freed(other_jobs)
        for job in (slow_job, *other_jobs):
            self._queue._return(job)
        self._queue._spur()

    def _adapt(self, took_s: float) -> None:
        if len(self._jobs) == 1:
            job, rows = self._jobs[0], len(self._parts)
            if took_s > _CHUNK_S:
                job.chunk = min(max(rows // 2, 1), job.chunk)
            elif took_s < _CHUNK_S / 2 and rows >= job.chunk:
                # From a very short chunk on in larger steps, to where it settles.
                job.chunk = min((4 if took_s < _CHUNK_S / 8 else 2) * rows, _MOST_ITEMS)
