"""The idempotency cache: a request that is sent again with its id is not scored again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from rlvr.http.refused import Refused
from rlvr.http.serve.jobs import LINE_BYTES, Job

__all__ = ["IdempotencyCache", "Key"]

Key: TypeAlias = tuple[str, str, str]
"""Environment, name of the caller's key, and request id."""

_JOB_BYTES = 2000  # what Python itself needs for a job


class IdempotencyCache:
    """Jobs by request id: those under way, and finished ones up to a size; the least
    recently used goes first.

    Not safe from threads: only the event loop uses it.

    Args:
        max_bytes: of all finished jobs together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._jobs: OrderedDict[Key, tuple[Job, bytes]] = OrderedDict()
        self._keys: dict[Job, Key] = {}
        self._sizes: dict[Key, int] = {}  # of the finished ones
        self.size = 0

    def get(self, key: Key, digest: bytes) -> Job | None:
        """The job of this id; None if there is none, or if it was refused.

        Args:
            key: environment, caller and request id.
            digest: of the request's body.

        Raises:
            Refused: the id was used with another body.
        """
        if key not in self._jobs:
            return None
        job, body = self._jobs[key]
        # The same id with another body is a mistake of the caller's, never a hit.
        if body != digest:
            message = (
                f"request_id {key[2]!r} came before with another body; "
                "give each request an id of its own"
            )
            raise Refused(409, "conflict", message)
        # A job that was refused did nothing: it may be asked again.
        if job.finished and job.refused is not None:
            self.drop(job)
            return None
        self._jobs.move_to_end(key)
        return job

    def add(self, key: Key, digest: bytes, job: Job) -> None:
        """Keep a job that is under way.

        Args:
            key: environment, caller and request id.
            digest: of the request's body.
            job: what scores it.
        """
        self._jobs[key] = job, digest
        self._keys[job] = key

    def finish(self, job: Job) -> None:
        """Count the lines of a job that has finished, and drop the oldest jobs beyond the size.
        Idempotent.

        Args:
            job: a job that may be in the cache.
        """
        key = self._keys.get(job)
        if key is None or key in self._sizes:
            return
        # Refusals are not kept: another attempt may succeed.
        if job.refused is not None:
            self.drop(job)
            return
        self._sizes[key] = _JOB_BYTES + sum(len(line) + LINE_BYTES for line in job.lines)
        self.size += self._sizes[key]
        while self.size > self._max_bytes:
            # Jobs under way have no size yet and stay.
            oldest = next(old for old in self._jobs if old in self._sizes)
            self.drop(self._jobs[oldest][0])

    def drop(self, job: Job) -> None:
        """Forget a job.  Idempotent.

        Args:
            job: a job that may be in the cache.
        """
        key = self._keys.pop(job, None)
        if key is not None:
            del self._jobs[key]
            self.size -= self._sizes.pop(key, 0)
