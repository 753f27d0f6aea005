"""Answers by request id, so that a request that comes again is not scored again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from rlvr.serve.jobs import Job, Refused

__all__ = ["Key", "Remembered"]

Key: TypeAlias = tuple[str, str]
"""Environment and request id."""

_ENTRY, _LINE = 1000, 50  # bytes that Python itself takes, for a job and for each line beside its text


class Remembered:
    """Jobs by request id: those under way, and finished ones up to so many bytes, the least recently used going first.

    Used by the event loop alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: OrderedDict[Key, tuple[Job, bytes]] = OrderedDict()
        self._keys: dict[Job, Key] = {}
        self._sizes: dict[Key, int] = {}  # of the finished ones
        self.size = 0

    def get(self, key: Key, digest: bytes) -> Job | None:
        """The job of this id; None if there is none, or if it came to nothing.

        Raises:
            Refused: the id came with another body.
        """
        if key not in self._jobs:
            return None
        job, body = self._jobs[key]
        if body != digest:
            message = f"request_id {key[1]!r} came before with another body; give each request an id of its own"
            raise Refused(409, "conflict", message)
        if job.finished and job.refused is not None:
            self.drop(job)
            return None
        self._jobs.move_to_end(key)
        return job

    def add(self, key: Key, digest: bytes, job: Job) -> None:
        """It is under way."""
        self._jobs[key] = job, digest
        self._keys[job] = key

    def settle(self, job: Job) -> None:
        """It has finished: keep its answer, at the cost of older ones; idempotent."""
        key = self._keys.get(job)
        if key is None or key in self._sizes:
            return
        if job.refused is not None:
            self.drop(job)
            return
        job.rows = ()
        self._sizes[key] = _ENTRY + sum(len(line) + _LINE for line in job.lines)
        self.size += self._sizes[key]
        while self.size > self._most:
            oldest = next(old for old in self._jobs if old in self._sizes)
            self.drop(self._jobs[oldest][0])

    def drop(self, job: Job) -> None:
        """Forget it; idempotent."""
        key = self._keys.pop(job, None)
        if key is not None:
            del self._jobs[key]
            self.size -= self._sizes.pop(key, 0)
