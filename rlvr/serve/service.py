"""The state of the service: a queue per environment, finished jobs by request id, and whether it accepts requests."""

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
from rlvr.serve.idempotency import IdempotencyCache
from rlvr.serve.jobs import EnvironmentQueue, Job, Refused
from rlvr.serve.limits import ServiceLimits
from rlvr.serve.metrics import Gauges, Metrics

__all__ = ["MIB", "RequestMemory", "Service"]

_RETRY_AFTER_S = 1
MIB = 1 << 20


class Service:
    """Environments behind one HTTP service, each with one `Scorer` that all requests share.

        with Service({"gsm8k-v2": rlvr.make("gsm8k-v2")}) as service:
            run(service, listen("127.0.0.1", 8000))

    Args:
        envs: environments by the names that requests use.
        workers, wall_s, memory_mib: settings of each scorer, see `rlvr.Scorer`.
        limits: sizes and times that requests must keep to.
        api_key: the key that callers must send; None for no key.

    Raises:
        UsageError: there is no environment, one has several turns, or the key does not fit into an HTTP header.
    """

    def __init__(
        self,
        envs: Mapping[str, Environment],
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
        limits: ServiceLimits | None = None,
        api_key: str | None = None,
    ) -> None:
        if not envs:
            raise UsageError("there is no environment to serve; name one, such as gsm8k-v2")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise UsageError("the API key has spaces, line ends or letters beyond ASCII; use letters and digits")
        self.limits = limits or ServiceLimits()
        self.metrics = Metrics()
        self.under_way = 0  # requests whose response is not sent yet
        self.draining = False
        self._key = api_key.encode() if api_key else None
        self.held = 0  # bytes of request bodies
        self._idempotency_cache = IdempotencyCache(int(self.limits.remembered_mib * MIB))
        self.queues: dict[str, EnvironmentQueue] = {}
        with ExitStack() as stack:
            for name, env in envs.items():
                scorer = Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib)
                self.queues[name] = EnvironmentQueue(name, scorer, self.limits, self.metrics)
                stack.callback(self.queues[name].close)
            stack.pop_all()

    def warm(self) -> Service:
        """Start all workers now.

        Raises:
            WorkerError: an environment cannot be rebuilt in a worker.
        """
        for queue in self.queues.values():
            queue.scorer.warm()
        return self

    def close(self) -> None:
        """Kill the workers.  Idempotent."""
        for queue in self.queues.values():
            queue.close()

    def __enter__(self) -> Service:
        return self.warm()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ admission

    @property
    def wants_key(self) -> bool:
        """Whether callers must send an API key."""
        return self._key is not None

    def is_authorized(self, authorization: str) -> bool:
        """Whether the header `Authorization` carries the key: as Bearer, or as the password of Basic.

        Basic is for callers that can be given a URL and nothing else: http://any:KEY@host.

        Args:
            authorization: the value of the header; empty if there was none.
        """
        if self._key is None:
            return True
        scheme, _, credentials = authorization.partition(" ")
        given = credentials.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self._key)

    def queue(self, name: str | None) -> EnvironmentQueue:
        """The queue of an environment.

        Args:
            name: of the environment; None for the only one.

        Raises:
            Refused: there is none of that name.
        """
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name not in self.queues:
            served = ", ".join(map(repr, self.queues))
            asked = "no env is named" if name is None else f"env {name[:100]!r} is not served"
            raise Refused(404 if name else 422, "unknown-env", f"{asked}; write one of {served}")
        return self.queues[name]

    def require_accepting(self) -> None:
        """Refuse requests that would start work while the service stops.

        Raises:
            Refused: the service is stopping.
        """
        if self.draining:
            message = f"the service is stopping and takes no more requests; ask again in {_RETRY_AFTER_S} s"
            raise Refused(503, "draining", message, retry_after_s=_RETRY_AFTER_S)

    @contextmanager
    def track_request(self) -> Iterator[RequestMemory]:
        """Count a request as under way, from its head to the last byte of its response."""
        memory = RequestMemory(self)
        self.under_way += 1
        try:
            yield memory
        finally:
            self.under_way -= 1
            self.held -= memory.held

    # ------------------------------------------------------------------------------------------ jobs

    def job(self, queue: EnvironmentQueue, rows: Sequence[Any], request_id: str | None, digest: bytes) -> Job:
        """A job for these rows, or the job that this request id has already.  The caller must `release` it.

        Args:
            queue: the queue of the environment.
            rows: the rows of the request.
            request_id: None for a request that is not sent again.
            digest: of the request's body; the same id with another body is refused.

        Raises:
            Refused: the queue is full, or the id was used with another body.
        """
        key = None if request_id is None else (queue.name, request_id)
        job = None if key is None else self._idempotency_cache.get(key, digest)
        if job is None:
            job = queue.submit(rows, asyncio.get_running_loop())
            if key is not None:
                self._idempotency_cache.add(key, digest, job)
        else:
            self.metrics.count("rlvr_repeated_total", env=queue.name)
        job.readers += 1
        return job

    def release(self, queue: EnvironmentQueue, job: Job) -> None:
        """Count one reader less.  A finished job is kept for its request id; one without readers is cancelled.

        Args:
            queue: the queue of the job's environment.
            job: a job that `job` gave.
        """
        job.readers -= 1
        if job.finished:
            self._idempotency_cache.finish(job)
        elif not job.readers:
            self._idempotency_cache.drop(job)  # the same id sent again starts anew
            queue.cancel(job)

    def abort(self) -> None:
        """Answer all requests under way with 503: the time to drain is over."""
        for queue in self.queues.values():
            queue.abort(Refused(503, "aborted", "the service was stopped before this was scored; ask again"))

    def gauges(self) -> Gauges:
        """The gauges of `/metrics`, as they are now."""
        queues = self.queues.values()
        limit = float(self.limits.queue_rows)
        return {
            "rlvr_queue_rows": ("gauge", "Rows that wait or are being scored.", {q.name: q.waiting for q in queues}),
            "rlvr_queue_limit_rows": ("gauge", "Rows beyond which requests get 429.", {q.name: limit for q in queues}),
            "rlvr_workers": ("gauge", "Worker processes at work at once.", {q.name: q.scorer.workers for q in queues}),
            "rlvr_worker_starts_total": (
                "counter",
                "Worker processes started, warm spares and replacements included.",
                {q.name: q.scorer.processes[0] for q in queues},
            ),
            "rlvr_worker_losses_total": (
                "counter",
                "Worker processes that died or were killed before their time.",
                {q.name: q.scorer.processes[1] for q in queues},
            ),
            "rlvr_under_way": ("gauge", "Requests that are not answered yet.", {"": self.under_way}),
            "rlvr_held_bytes": ("gauge", "Request bodies in memory.", {"": self.held}),
            "rlvr_remembered_bytes": (
                "gauge",
                "Responses kept for requests that are sent again.",
                {"": self._idempotency_cache.size},
            ),
            "rlvr_ready": (
                "gauge",
                "1 while requests are accepted, 0 while the service stops.",
                {"": int(not self.draining)},
            ),
        }


class RequestMemory:
    """Counts the bytes of one request's body that are in memory.

    Args:
        service: the service, which limits the sum over all requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.held = 0

    def add(self, size: int) -> None:
        """Count a part of the body.

        Args:
            size: of the part, in bytes.

        Raises:
            Refused: the bodies of all requests together exceed `limits.held_mib`.
        """
        self.held += size
        self._service.held += size
        most = self._service.limits.held_mib
        if self._service.held > most * MIB:
            raise Refused(
                429,
                "memory-full",
                f"the requests under way have more than {most:g} MiB together; ask again in {_RETRY_AFTER_S} s",
                retry_after_s=_RETRY_AFTER_S,
            )
