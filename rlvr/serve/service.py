"""What the service holds: a desk per environment, the answers it remembers, and whether it still takes requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.serve.idempotency import Remembered
from rlvr.serve.jobs import Desk, Job, Refused
from rlvr.serve.limits import Limits
from rlvr.serve.metrics import Gauges, Metrics

__all__ = ["MIB", "Service", "Visit"]

_AGAIN_S = 1
MIB = 1 << 20


class Service:
    """Environments to be scored with, each by one `Scorer` that all requests share.

        with Service({"gsm8k-v1": rlvr.make("gsm8k-v1")}) as service:
            run(service, listen("127.0.0.1", 8000))

    Args:
        envs: by the names that requests use.
        workers, wall_s, memory_mib: of each scorer, see `rlvr.Scorer`.
        limits: what one caller may ask.
        api_key: what a caller has to show; None for nothing.

    Raises:
        UsageError: no environment, one of several turns, or a key that no HTTP header could carry.
    """

    def __init__(
        self,
        envs: Mapping[str, Environment],
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
        limits: Limits | None = None,
        api_key: str | None = None,
    ) -> None:
        if not envs:
            raise UsageError("there is no environment to serve; name one, such as gsm8k-v1")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise UsageError("the API key has spaces, line ends or letters beyond ASCII; use letters and digits")
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.under_way = 0  # requests that came in and whose answer has not left
        self.draining = False
        self._key = api_key.encode() if api_key else None
        self.held = 0  # bytes of request bodies
        self._remembered = Remembered(int(self.limits.remembered_mib * MIB))
        self.desks: dict[str, Desk] = {}
        with ExitStack() as stack:
            for name, env in envs.items():
                scorer = Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib)
                self.desks[name] = Desk(name, scorer, self.limits, self.metrics)
                stack.callback(self.desks[name].close)
            stack.pop_all()

    def warm(self) -> Service:
        """Start all workers now.

        Raises:
            WorkerError: an environment cannot be rebuilt in a worker.
        """
        for desk in self.desks.values():
            desk.scorer.warm()
        return self

    def close(self) -> None:
        """Kill the workers.  Idempotent."""
        for desk in self.desks.values():
            desk.close()

    def __enter__(self) -> Service:
        return self.warm()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ who may ask, and what

    @property
    def wants_key(self) -> bool:
        """Whether a caller has to show a key."""
        return self._key is not None

    def knows(self, authorization: str) -> bool:
        """Does the header `Authorization` carry the key?  Bearer, or Basic with the key as its password.

        Basic is what callers send whose configuration is a URL and nothing else: http://any:KEY@host.
        """
        if self._key is None:
            return True
        scheme, _, shown = authorization.partition(" ")
        given = shown.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self._key)

    def desk(self, name: str | None) -> Desk:
        """The desk of an environment; the only one, if no name is given.

        Raises:
            Refused: there is none of that name.
        """
        if name is None and len(self.desks) == 1:
            return next(iter(self.desks.values()))
        if name not in self.desks:
            served = ", ".join(map(repr, self.desks))
            asked = "no env is named" if name is None else f"env {name[:100]!r} is not served"
            raise Refused(404 if name else 422, "unknown-env", f"{asked}; write one of {served}")
        return self.desks[name]

    def require_open(self) -> None:
        """For requests that would begin something.

        Raises:
            Refused: the service is about to stop.
        """
        if self.draining:
            message = f"the service is stopping and takes no more requests; ask again in {_AGAIN_S} s"
            raise Refused(503, "draining", message, retry_after_s=_AGAIN_S)

    @contextmanager
    def visit(self) -> Iterator[Visit]:
        """One request, from its head to the last byte of its answer."""
        visit = Visit(self)
        self.under_way += 1
        try:
            yield visit
        finally:
            self.under_way -= 1
            self.held -= visit.held

    # ------------------------------------------------------------------------------------------ jobs

    def job(self, desk: Desk, rows: Sequence[Any], request_id: str | None, digest: bytes) -> Job:
        """A job for these rows, or the one that this request id has already.  The caller has to `leave` it.

        Raises:
            Refused: the queue is full, or the id came with another body.
        """
        key = None if request_id is None else (desk.name, request_id)
        job = None if key is None else self._remembered.get(key, digest)
        if job is None:
            job = desk.admit(rows, asyncio.get_running_loop())
            if key is not None:
                self._remembered.add(key, digest, job)
        else:
            self.metrics.count("rlvr_repeated_total", env=desk.name)
        job.readers += 1
        return job

    def leave(self, desk: Desk, job: Job) -> None:
        """One reader less.  A job that nobody reads any more is cancelled; one that has finished is remembered."""
        job.readers -= 1
        if job.finished:
            self._remembered.settle(job)
        elif not job.readers:
            self._remembered.drop(job)  # who comes again with its id begins anew
            desk.cancel(job)

    def abort(self) -> None:
        """Answer all that is under way with 503: the time to drain is over."""
        for desk in self.desks.values():
            desk.abort(Refused(503, "aborted", "the service was stopped before this was scored; ask again"))

    def gauges(self) -> Gauges:
        """What is so at this moment."""
        desks = self.desks.values()
        limit = float(self.limits.queue_rows)
        return {
            "rlvr_queue_rows": ("gauge", "Rows that wait or are being scored.", {d.name: d.waiting for d in desks}),
            "rlvr_queue_limit_rows": ("gauge", "Rows beyond which requests get 429.", {d.name: limit for d in desks}),
            "rlvr_workers": ("gauge", "Worker processes at work at once.", {d.name: d.scorer.workers for d in desks}),
            "rlvr_worker_starts_total": (
                "counter",
                "Worker processes started, warm spares and replacements included.",
                {d.name: d.scorer.processes[0] for d in desks},
            ),
            "rlvr_worker_losses_total": (
                "counter",
                "Worker processes that died or were killed before their time.",
                {d.name: d.scorer.processes[1] for d in desks},
            ),
            "rlvr_under_way": ("gauge", "Requests that are not answered yet.", {"": self.under_way}),
            "rlvr_held_bytes": ("gauge", "Request bodies in memory.", {"": self.held}),
            "rlvr_remembered_bytes": (
                "gauge",
                "Answers kept for requests that come again.",
                {"": self._remembered.size},
            ),
            "rlvr_ready": (
                "gauge",
                "1 while requests are taken, 0 while the service stops.",
                {"": int(not self.draining)},
            ),
        }


class Visit:
    """One request's account: how many bytes of its body are in memory."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.held = 0

    def hold(self, size: int) -> None:
        """So many bytes more.

        Raises:
            Refused: with those of the other requests it is too much.
        """
        self.held += size
        self._service.held += size
        most = self._service.limits.held_mib
        if self._service.held > most * MIB:
            raise Refused(
                429,
                "memory-full",
                f"the requests under way have more than {most:g} MiB together; ask again in {_AGAIN_S} s",
                retry_after_s=_AGAIN_S,
            )
