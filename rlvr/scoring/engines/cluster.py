"""The nodes of a Ray cluster as the engine of a scorer: one actor on each, which holds
rlvr's own pool of workers.

Kill, memory limit, second try and recycling are the pool's; Ray places the actors, moves chunks and
starts lost actors anew.  A chunk whose actor or node died is sent again by us, to another one: each
row is there once, and in order.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import cloudpickle

from rlvr.environment import Environment
from rlvr.errors import (
    MissingDependency,
    RlvrError,
    ServiceFailed,
    UsageError,
    WorkerError,
)
from rlvr.scoring.code_files import code_of
from rlvr.scoring.engines.balance import Balance
from rlvr.scoring.engines.fleet import Fleet, Member, last_line
from rlvr.scoring.engines.patience import PATIENCE_S, Patience, require_patience
from rlvr.scoring.identity import Identity, identity_of
from rlvr.scoring.ordering import Seen
from rlvr.scoring.pool import MEMORY_MIB, WALL_S
from rlvr.scoring.wire import RemoteEngine, decoded_seen
from rlvr.validate import require_optional_whole

__all__ = ["RayCluster", "cause_of", "import_ray", "ship_env"]

_READY_S = 120.0  # until the workers of an actor are there
# Asked by a socket first: `ray.init` itself tries for long where nothing listens.
_CONNECT_S = 10.0
_ALIVE_S = 10.0  # without a word from an actor, after which it is asked whether it is there
_NO_NODE_S = 1.0  # between two looks while no node is there

_log = logging.getLogger("rlvr.ray")


class RayCluster(RemoteEngine):
    """The nodes of a Ray cluster that have CPUs, as they come and go.  They need rlvr in
    the version that is here.

        with rlvr.Scorer(env, engine=RayCluster("auto")) as scorer: ...

    The environment is sent with cloudpickle, so its class may stand in a script or a notebook.
    Scorers of one program share the actors, which reserve the CPUs that are free; where none is,
    they reserve none.

    Args:
        address: `ray://HOST:PORT` of Ray Client, `HOST:PORT` of the head, or `auto` (also
            `ray://auto`) for the cluster that this machine is part of; as `ray.init` takes it.
        workers: processes on each node; None for its free CPUs.
        wall_s, memory_mib: see `rlvr.Scorer`.
        patience_s: seconds for which a chunk is sent again while no node takes it; 0: it is sent
            once.

    Raises:
        MissingDependency: Ray is not installed.
        UsageError: a number is out of range.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._ray = import_ray()
        self._address = "auto" if address == "ray://auto" else address
        self._per_node = require_optional_whole(
            "workers", workers, 1, none="the free CPUs of each node"
        )
        self._settings = {"wall_s": wall_s, "memory_mib": memory_mib}
        self._patience_s = require_patience(patience_s)
        self._key = ""  # of this scorer, on each node
        self._shipped: Any = None  # an object of the cluster
        self._fleet: Fleet | None = None
        self._balance = Balance(0)
        self._members: list[Member] = []  # by place
        self._left: set[str] = set()  # nodes that have gone
        self._names: list[str] = []  # by place
        self._refused: list[tuple[str, Exception]] = []  # nodes that are left out
        self._identity: Identity | None = None
        self._lock, self._comparing = threading.Lock(), threading.Lock()
        self._closed = False
        self.threads = 1024  # which are started as they are needed

    def warm(self) -> None:
        with self._lock:
            if self._closed:
                raise _closed_error()
            if self._fleet is None:
                self._start()

    def _start(self) -> None:
        self._connect()
        shipped = ship_env(self.env)
        # Two scorers of one environment may accept different things: each has workers of its own.
        self._key = f"{hashlib.sha256(shipped).hexdigest()[:16]}-{id(self):x}"
        self._shipped = self._ray.put(shipped)
        self._identity = identity_of(self.env)
        self._fleet = _fleet_of(self._ray, self._per_node)
        try:
            self._fleet.enter(self, self._patience_s)
            if not self.workers:
                raise self._why_none()
        except BaseException:
            self._disconnect()
            raise

    def _why_none(self) -> Exception:
        assert self._fleet is not None, "it was entered"
        if len(self._refused) == 1:
            return self._refused[0][1]
        return UsageError(
            "no node of the Ray cluster can be used: "
            + "; ".join([f"{host}: {error}" for host, error in self._refused] + self._fleet.reasons)
        )

    # -------------------------------------------------------------------------------- for the fleet

    def join(self, member: Member) -> None:
        """Use an actor, unless it judges in another way: then its node is left out by name.

        Args:
            member: the actor.
        """
        try:
            # A node with other code would give other verdicts.
            self._compare(member, timeout_s=_READY_S)
        except (RlvrError, self._ray.exceptions.RayError) as error:
            cause = self._cause_of(member, error)
            self._refused.append((member.host, cause))
            if self.workers:
                _log.warning("a node is left out: %s: %s", member.host, cause)
            return
        self._left.discard(member.node)
        self._members.append(member)
        self._names.append(member.host)
        self._balance.add()
        self._count()

    def leave(self, member: Member) -> None:
        """Let go of an actor whose node has gone.

        Args:
            member: the actor.
        """
        self._left.add(member.node)
        for place, other_member in enumerate(self._members):
            if other_member.node == member.node:
                self._balance.leave(place)
        self._count()

    def is_busy(self) -> bool:
        """Whether all workers have rows."""
        return self._balance.load >= max(1, self.workers)

    def _count(self) -> None:
        present = [member for member in self._members if member.node not in self._left]
        self.workers = self.spread = sum(member.workers for member in present)
        # A chunk more for each node, so that none waits for its next.
        self.chunks_at_once = max(1, self.workers + len(present))

    def _cause_of(self, member: Member, error: Exception) -> Exception:
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.GetTimeoutError):
            return ServiceFailed(f"{member.host}: no worker was ready within {_READY_S:g} s")
        if isinstance(error, exceptions.RayTaskError):
            return cause_of(error)
        if isinstance(error, exceptions.RayError):
            return ServiceFailed(
                f"{member.host}: the environment cannot be rebuilt there: {last_line(error)}"
            )
        return error

    # --------------------------------------------------------------------------------- as an engine

    def _connect(self) -> None:
        ray = self._ray
        if ray.is_initialized():
            return
        try:
            host, colon, port = self._address.removeprefix("ray://").rpartition(":")
            if colon and port.isdecimal():  # Ray itself tries for a minute
                socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
            ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except (OSError, OverflowError) as error:
            raise ServiceFailed(
                f"no Ray cluster answers at {self._address}: {last_line(error)}; start one with "
                "`ray start --head`, or mend the address"
            ) from None
        except (RuntimeError, ValueError) as error:  # such as another version of Ray or Python
            raise UsageError(f"Ray at {self._address}: {last_line(error)}") from None
        _BEGUN.add(ray)

    def identity(self) -> Identity:
        self.warm()
        for member in [
            candidate for candidate in self._members if candidate.node not in self._left
        ]:
            with suppress(self._ray.exceptions.RayError):  # one that is lost has said so
                self._compare(member, timeout_s=None)
        assert self._identity is not None, "warm makes it"
        return self._identity

    def _compare(self, member: Member, timeout_s: float | None) -> None:
        """Take over what a node has seen.

        Raises:
            UsageError: it scores by other code or inputs.
        """
        request = member.actor.identity.remote(self._key, self._shipped, self._settings)
        identity = Identity.from_dict(json.loads(self._ray.get(request, timeout=timeout_s)))
        assert self._identity is not None, "warm makes it"
        with self._comparing:
            self._identity.add(identity, member.host, self.accept)

    def _ask(self, rows: list[bytes]) -> list[Seen]:
        """What an actor says of the rows; they go to another one if it is lost."""
        patience = Patience(self._patience_s, self._names)
        while not patience.is_spent:
            if self._closed:
                raise _closed_error()
            try:
                slot, is_lost = self._balance.take(), True
            except LookupError:  # until the cluster has a node again
                patience.failed(len(self._names) - 1, "the last node has gone")
                time.sleep(min(_NO_NODE_S, patience.left_s))
                continue
            actor = self._members[slot.place].actor
            try:
                if slot.wait_s:
                    time.sleep(min(slot.wait_s, patience.left_s))
                if slot.is_trial:  # an actor that has not come back would keep the rows
                    self._ray.get(actor.alive.remote(), timeout=_ALIVE_S)
                replies = json.loads(self._result_of(actor, rows))
                is_lost = False
                return [decoded_seen(reply) for reply in replies]
            # The actor is well: what its task raised is not the cluster's fault.
            except self._ray.exceptions.RayTaskError as error:
                is_lost = False
                raise cause_of(error) from None
            except self._ray.exceptions.RayError as error:  # it died, or does not respond
                patience.failed(slot.place, last_line(error))
            finally:
                self._balance.give_back(slot, is_lost=is_lost)
        if self._closed:
            # Closed meanwhile: the failures before it say nothing.
            raise _closed_error()
        raise ServiceFailed(f"Ray at {self._address}: {patience}")

    def _result_of(self, actor: Any, rows: list[bytes]) -> Any:
        """The actor's result, however long its rows take, as long as it is alive."""
        ray = self._ray
        coming = actor.observe.remote(self._key, self._shipped, self._settings, rows)
        while True:
            try:
                return ray.get(coming, timeout=_ALIVE_S)
            except ray.exceptions.GetTimeoutError:
                ray.get(actor.alive.remote(), timeout=_ALIVE_S)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        fleet, self._fleet = self._fleet, None
        with suppress(Exception):  # the cluster may be gone
            for member in self._members:
                if member.node not in self._left:
                    member.actor.forget.remote(self._key)
        if fleet is not None:
            _leave_fleet(fleet, self)


_BEGUN: set[object] = set()  # holds Ray if it was we who connected to it
_FLEETS: dict[int | None, Fleet] = {}  # by workers of each node
_FLEETS_LOCK = threading.Lock()


def _fleet_of(ray: object, workers: int | None) -> Fleet:
    with _FLEETS_LOCK:
        if workers not in _FLEETS:
            _FLEETS[workers] = Fleet(ray, workers)
        return _FLEETS[workers]


def _leave_fleet(fleet: Fleet, tenant: RayCluster) -> None:
    with _FLEETS_LOCK:
        if not fleet.exit(tenant):
            return
        for workers in [
            workers for workers, member_fleet in _FLEETS.items() if member_fleet is fleet
        ]:
            del _FLEETS[workers]
        # Only what we began: the caller may go on using Ray.
        if not _FLEETS and tenant._ray in _BEGUN:
            _BEGUN.discard(tenant._ray)
            tenant._ray.shutdown()


def import_ray() -> Any:
    """The module `ray`.

    Raises:
        MissingDependency: it is not installed.
    """
    # Its own hook for uv and its warning about GPUs concern other programs than this one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError:
        raise MissingDependency("ray", "ray") from None


def ship_env(env: Environment) -> bytes:
    """The environment as its nodes take it, with the classes and functions of the
    caller's own files inside.

    Args:
        env: the environment.
    """
    names = [name for name in code_of(env) if not name.startswith(("package ", "rlvr."))]
    own_modules = [sys.modules[name] for name in names if name in sys.modules and name != "sqlite"]
    # By value: the nodes have rlvr, but none of the caller's own files.
    for module in own_modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        payload: bytes = cloudpickle.dumps(env.without_tasks())
        return payload
    finally:
        # Registered for the whole process, so it is taken back.
        for module in own_modules:
            cloudpickle.unregister_pickle_by_value(module)


def cause_of(error: Any) -> Exception:
    """What a task raised, as it would have been raised here.

    Args:
        error: Ray's error of the task.
    """
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, RlvrError) else WorkerError("RayTaskError", last_line(error))


def _closed_error() -> UsageError:
    return UsageError("this scorer is closed; open a new one")
