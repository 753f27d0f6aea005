"""The state of the service: a queue per environment, finished jobs by request id, and
whether it accepts requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.http.application import HttpState
from rlvr.http.audit import AuditLog
from rlvr.http.keys import Keys
from rlvr.http.memory import MIB, MemoryShare
from rlvr.http.metrics import Gauges, Metrics
from rlvr.http.refused import Refused
from rlvr.http.serve.counters import COUNTERS, GAUGES
from rlvr.http.serve.idempotency import IdempotencyCache
from rlvr.http.serve.jobs import Job, Readers
from rlvr.http.serve.limits import ServiceLimits
from rlvr.http.serve.queue import EnvironmentQueue
from rlvr.http.serve.rewards import RewardModelQueue, ServableModel
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.scoring.identity import Identity
from rlvr.workers import usable_cores

__all__ = ["Service"]


class Service:
    """Environments behind one HTTP service, each with one `Scorer` that all requests
    share; or a reward model.

        with Service({"gsm8k-v4": rlvr.make("gsm8k-v4")}) as service:
            run(service, listen("127.0.0.1", 8000))

    Args:
        envs: environments by the names that requests use.
        workers: processes of each scorer.  One request, or one caller whose key has a name, never
            occupies the last of them; None for one per core and one more.
        wall_s, memory_mib: settings of each scorer, see `rlvr.Scorer`.
        limits: sizes and times that requests must keep to.
        api_key: the key that callers must send; None for no key.
        keys_file: a file of names and keys, see `rlvr.http.keys.Keys`.
        audit_log: a file to which a line is added for each request, see
            `rlvr.http.audit.AuditLog`; None for none.
        reward_model: scores completions in this process, for `rlvr.scoring.engines.ServedReward`;
            None for none.

    Raises:
        UsageError: there is neither an environment nor a reward model, one environment has several
            turns, or a key does not fit into an HTTP header.
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
        keys_file: Path | None = None,
        audit_log: Path | None = None,
        reward_model: ServableModel | None = None,
    ) -> None:
        if not envs and reward_model is None:
            raise UsageError(
                "there is no environment to serve; name one, such as gsm8k-v4, or give a reward "
                "model"
            )
        self.keys = Keys(api_key, keys_file)
        self.limits = limits or ServiceLimits()
        self.metrics = Metrics(COUNTERS, GAUGES)
        audit = None if audit_log is None else AuditLog(audit_log)
        self.http = HttpState(self.limits, self.keys, self.metrics, audit=audit)
        self._idempotency_cache = IdempotencyCache(int(self.limits.remembered_mib * MIB))
        self._loops_readers: Readers | None = None
        self.queues: dict[str, EnvironmentQueue] = {}
        self._rewards = None
        if reward_model is not None:
            self._rewards = RewardModelQueue(reward_model, self.limits, self._count_rewards)
        workers = usable_cores() + 1 if workers is None else workers
        with ExitStack() as stack:
            for name, env in envs.items():
                scorer = Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib)
                self.queues[name] = EnvironmentQueue(name, scorer, self.limits, self.metrics)
                stack.callback(self.queues[name].close)
            # Nothing failed: the queues are closed by `close` from here on.
            stack.pop_all()

    def warm(self) -> Service:
        """Start all workers now.

        Raises:
            WorkerError: an environment cannot be rebuilt in a worker.
        """
        for queue in self.queues.values():
            queue.scorer.warm()
        _ = self.identities  # of the code as the workers have read it
        return self

    def close(self) -> None:
        """Kill the workers.  Idempotent."""
        self.http.close()
        if self._rewards is not None:
            self._rewards.close()
        for queue in self.queues.values():
            queue.close()

    def __enter__(self) -> Service:
        # Warm before the first request: starting takes seconds.
        return self.warm()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------ admission

    def queue(self, name: str | None) -> EnvironmentQueue:
        """The queue of an environment.

        Args:
            name: of the environment; None for the only one.

        Raises:
            Refused: there is none of that name.
        """
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if not self.queues:
            message = (
                "this service has a reward model and no environment; "
                "start it with one, or ask /rewards"
            )
            raise Refused(404, "unknown-env", message)
        if name not in self.queues:
            served = ", ".join(map(repr, self.queues))
            problem = "no env is named" if name is None else f"env {name[:100]!r} is not served"
            raise Refused(404 if name else 422, "unknown-env", f"{problem}; write one of {served}")
        return self.queues[name]

    def queue_of(self, digests: Sequence[str]) -> EnvironmentQueue:
        """The queue of the environment with one of these identities.

        Args:
            digests: of the identities that a scorer has found to be its own.

        Raises:
            Refused: there is none, such as after this service was started anew with another
                version.
        """
        for name, identity in self.identities.items():
            if identity.digest in digests:
                return self.queues[name]
        message = (
            "no environment of this service is the one that the scorer has; "
            "GET /envs says what is served"
        )
        raise Refused(503, "other-env", message)  # the scorer asks another service

    def reward_queue(self, version: str | None) -> RewardModelQueue:
        """The queue of the reward model.

        Args:
            version: of the model that the caller expects; None for any.

        Raises:
            Refused: there is none, or it has another version.
        """
        if self._rewards is None:
            message = (
                "this service has no reward model; "
                "start it with `rlvr serve --reward-model RUN/model`"
            )
            raise Refused(404, "no-reward-model", message)
        if version not in (None, self._rewards.version):
            message = (
                f"the reward model here is {self._rewards.version} and not {str(version)[:60]}"
            )
            raise Refused(503, "other-model", message)  # the caller asks another service
        return self._rewards

    def _count_rewards(self, scored: int, refused: int) -> None:
        self.metrics.count("rlvr_rewards_total", scored)
        self.metrics.count("rlvr_rows_refused_total", refused, env="reward model")

    @property
    def identities(self) -> dict[str, Identity]:
        """How each environment scores, as far as it is known."""
        return {name: queue.scorer.identity() for name, queue in self.queues.items()}

    def readiness(self) -> dict[str, str]:
        """What keeps rows from being judged, by environment; empty while nothing does."""
        problems = {
            name: problem for name, queue in self.queues.items() if (problem := queue.problem)
        }
        if problem := self.keys.problem:
            problems["keys"] = problem
        return problems

    # ----------------------------------------------------------------------------------------- jobs

    def job(
        self,
        queue: EnvironmentQueue,
        rows: Sequence[object],
        share: MemoryShare,
        *,
        request_id: str | None = None,
        digest: bytes = b"",
        caller: str = "",
        combines: bool = True,
    ) -> Job:
        """A job for these rows, or the job that this request id has already.  The caller must
        `release` it.

        Args:
            queue: the queue of the environment.
            rows: the rows of the request.
            share: the memory of the request.
            request_id: None for a request that is not sent again.
            digest: of the request's body; the same id with another body is refused.
            caller: the name of the key; empty for the key without a name.
            combines: see `Job`.

        Raises:
            Refused: the queue is full, or the id was used with another body.
        """
        key = None if request_id is None else (queue.name, caller, request_id)
        job = None if key is None else self._idempotency_cache.get(key, digest)
        if job is None:
            job = queue.submit(rows, share, self._readers(), caller or None, combines=combines)
            # The job frees the memory, however long it lives.
            share.taken_over = True
            if key is not None:
                self._idempotency_cache.add(key, digest, job)
        else:
            job.hold()
            self.metrics.count("rlvr_repeated_total", env=queue.name)
        job.readers += 1
        return job

    def _readers(self) -> Readers:
        """Those of the running event loop: a test may serve with one loop after the other."""
        loop = asyncio.get_running_loop()
        if self._loops_readers is None or self._loops_readers.loop is not loop:
            self._loops_readers = Readers(loop)
        return self._loops_readers

    def release(self, queue: EnvironmentQueue, job: Job) -> None:
        """Count one reader less.  A finished job is kept for its request id; one without readers is
        cancelled.

        Args:
            queue: the queue of the job's environment.
            job: a job that `job` gave.
        """
        job.readers -= 1
        if not job.finished and not job.readers:
            # Its lines are not complete, so it is of no use to a repetition.
            self._idempotency_cache.drop(job)  # the same id sent again starts anew
            queue.cancel(job)
        if job.finished:
            self._idempotency_cache.finish(job)
            if not job.readers:
                job.release()

    def abort(self) -> None:
        """Answer all requests under way with 503: the time to drain is over."""
        refused = Refused(
            503, "aborted", "the service was stopped before this was scored; ask again"
        )
        for queue in self.queues.values():
            queue.abort(refused)
        if self._rewards is not None:
            self._rewards.abort(refused)

    def update_metrics(self) -> None:
        """Bring the gauges of `/metrics` up to date."""
        queues = self.queues.values()
        gauges: Gauges = {
            "rlvr_queue_rows": {queue.name: queue.waiting for queue in queues}
            | ({} if self._rewards is None else {"reward model": self._rewards.waiting}),
            "rlvr_queue_limit_rows": {queue.name: self.limits.queue_rows for queue in queues},
            "rlvr_workers": {queue.name: queue.scorer.workers for queue in queues},
            "rlvr_worker_starts_total": {queue.name: queue.scorer.processes[0] for queue in queues},
            "rlvr_worker_losses_total": {queue.name: queue.scorer.processes[1] for queue in queues},
            "rlvr_remembered_bytes": {"": self._idempotency_cache.size},
        }
        self.metrics.update(gauges)
