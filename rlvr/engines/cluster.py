"""The nodes of a Ray cluster as the engine of a scorer: one actor on each, which holds rlvr's own pool of workers.

Kill, memory limit, second try and recycling are the pool's; Ray places the actors, moves chunks and starts lost actors
anew.  A chunk whose actor or node died is sent again by us, to another one: each row is there once, and in order.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle

from rlvr.engines.balance import Balance
from rlvr.engines.patience import PATIENCE_S, Patience, require_patience
from rlvr.environment import Environment
from rlvr.errors import (
    DataError,
    MissingDependency,
    RlvrError,
    ServiceFailed,
    UsageError,
    WorkerError,
)
from rlvr.scoring.code_files import code_of
from rlvr.scoring.engine import Engine, OnSeen
from rlvr.scoring.identity import Identity, identity_of
from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Seen
from rlvr.scoring.pool import MEMORY_MIB, WALL_S, Pool
from rlvr.scoring.wire import (
    decoded_item,
    decoded_seen,
    encoded_item,
    encoded_seen,
)
from rlvr.validate import require_optional_whole

__all__ = ["RayCluster"]

_READY_S = 120.0  # until an actor is there: an interpreter, rlvr and the environment
_CONNECT_S = 10.0
_ALIVE_S = 10.0  # without a word from an actor, after which it is asked whether it is there
_NOTICED_S = 30.0  # within which a cluster notices that a node has gone


class RayCluster(Engine):
    """The nodes of a Ray cluster that have CPUs.  rlvr must be installed on them, in the version that is here.

        with rlvr.Scorer(env, engine=RayCluster("auto")) as scorer: ...

    The environment is sent with cloudpickle, so its class may stand in a script or a notebook.

    Args:
        address: `ray://HOST:PORT` of Ray Client, `HOST:PORT` of the head, or `auto` (also `ray://auto`) for the cluster
            that this machine is part of; as `ray.init` takes it.
        workers: processes on each node; None for its CPUs.
        wall_s, memory_mib: see `rlvr.Scorer`.
        patience_s: seconds for which a chunk is sent again while no node takes it; 0: it is sent once.

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
        self._ray = _import_ray()
        self._address = "auto" if address == "ray://auto" else address
        self._workers = require_optional_whole("workers", workers, 1, none="the CPUs of each node")
        self._wall_s, self._memory_mib = wall_s, memory_mib
        self._patience_s = require_patience(patience_s)
        self._env: Environment | None = None
        self._actors: list[Any] = []
        self._identity: Identity | None = None
        self._hosts: list[str] = []
        self._lock, self._comparing = threading.Lock(), threading.Lock()
        self._closed = self._began_ray = False
        self.threads = 1024  # which are started as they are needed

    def open(self, env: Environment) -> None:
        if self._env is not None:
            raise UsageError(
                f"this cluster serves a scorer of {self._env.id} already; make another RayCluster"
            )
        self._env = env

    def warm(self) -> None:
        with self._lock:
            if self._closed:
                raise _closed()
            if not self._actors:
                try:
                    self._start()
                except BaseException:
                    self._disconnect()
                    raise

    def _start(self) -> None:
        assert self._env is not None, "open comes first"
        ray = self._ray
        self._connect()
        nodes = [node for node in self._nodes() if self._has_rlvr(node)]
        if not nodes:
            raise ServiceFailed(
                f"the Ray cluster at {self._address} has no node with a CPU; add one with `ray start`"
            )
        payload = _shipped(self._env)
        counts = [self._workers or int(node["Resources"]["CPU"]) for node in nodes]
        # No CPUs are reserved: the scorers of training and evaluation share them, and work in turn.
        kind = ray.remote(
            num_cpus=0, max_restarts=-1, max_task_retries=0, concurrency_groups={"alive": 1}
        )(_Node)
        actors = [
            kind.options(max_concurrency=count + 1, scheduling_strategy=_on(node)).remote(
                payload, count, self._wall_s, self._memory_mib
            )
            for node, count in zip(nodes, counts, strict=True)
        ]
        self._actors = actors
        for node, actor in zip(nodes, actors, strict=True):
            try:
                ray.get(actor.warm.remote(), timeout=_READY_S)
            except ray.exceptions.GetTimeoutError:
                raise ServiceFailed(
                    f"{_host(node)}: no worker of rlvr was ready within {_READY_S:g} s"
                ) from None
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except ray.exceptions.RayError as error:
                raise ServiceFailed(
                    f"{_host(node)}: the environment cannot be rebuilt there: {_last(error)}"
                ) from None
        self._identity, self._hosts = identity_of(self._env), [_host(node) for node in nodes]
        for host, actor in zip(self._hosts, actors, strict=True):
            self._compare(host, actor)
        self._balance = Balance(len(actors))
        self.workers = self.spread = sum(counts)
        self.chunks_at_once = self.workers + len(nodes)

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
                f"no Ray cluster answers at {self._address}: {_last(error)}; start one with `ray start --head`, or "
                "mend the address"
            ) from None
        except (RuntimeError, ValueError) as error:  # such as another version of Ray or Python
            raise UsageError(f"Ray at {self._address}: {_last(error)}") from None
        self._began_ray = True

    def _nodes(self) -> list[dict[str, Any]]:
        return [
            node
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]

    def _has_rlvr(self, node: dict[str, Any]) -> bool:
        """False for a node that has just gone, which the cluster notices a little later.

        Raises:
            UsageError: rlvr is missing there.
            ServiceFailed: the node is there and runs no task.
        """
        ray = self._ray
        task = ray.remote(_by_value(_lacks)).options(
            num_cpus=0, max_retries=0, scheduling_strategy=_on(node)
        )
        try:
            lack = ray.get(task.remote(), timeout=_READY_S)
        except ray.exceptions.RayError as error:
            until = time.monotonic() + _NOTICED_S
            while time.monotonic() < until:
                if node["NodeID"] not in [one["NodeID"] for one in self._nodes()]:
                    return False
                time.sleep(0.2)
            raise ServiceFailed(
                f"{_host(node)}: it runs no task: {_last(error)}; look at `ray status`"
            ) from None
        if lack:
            raise UsageError(
                f"{_host(node)} has no rlvr of the version here ({lack}); install there what is here, in the Python "
                "that runs Ray"
            )
        return True

    def identity(self) -> Identity:
        self.warm()
        for host, actor in zip(self._hosts, self._actors, strict=True):
            with suppress(self._ray.exceptions.RayError):  # one that is lost has said so
                self._compare(host, actor)
        assert self._identity is not None, "warm makes it"
        return self._identity

    def _compare(self, host: str, actor: Any) -> None:
        """Take over what a node has seen.

        Raises:
            UsageError: it scores by other code or inputs.
        """
        theirs = Identity.from_dict(json.loads(self._ray.get(actor.identity.remote())))
        assert self._identity is not None, "warm makes it"
        with self._comparing:
            self._identity.add(theirs, host, self.accept)

    def observe(
        self,
        items: Sequence[Item],
        *,
        on_seen: OnSeen | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> list[Seen]:
        self.warm()
        seen: dict[int, Seen] = {}
        rows: list[tuple[int, bytes]] = []
        for place, item in enumerate(items):
            try:
                rows.append((place, encoded_item(item)))
            except DataError as error:
                seen[place] = error
        if rows:
            found = json.loads(self._asked([row for _, row in rows]))
            seen |= {place: decoded_seen(one) for (place, _), one in zip(rows, found, strict=True)}
        return [seen[place] for place in range(len(items))]

    def _asked(self, rows: list[bytes]) -> str:
        """What an actor says of the rows; they go to another one if it is lost."""
        patience = Patience(self._patience_s, [f"node {n}" for n in range(len(self._actors))])
        while not patience.is_spent:
            slot, is_lost = self._balance.take(), True
            try:
                if slot.wait_s:
                    time.sleep(min(slot.wait_s, patience.left_s))
                if self._closed:
                    raise _closed()
                if slot.is_trial:  # an actor that has not come back would keep the rows
                    self._ray.get(self._actors[slot.place].alive.remote(), timeout=_ALIVE_S)
                found: str = self._got(self._actors[slot.place], rows)
                is_lost = False
                return found
            except self._ray.exceptions.RayTaskError as error:
                is_lost = False
                raise _cause(error) from None
            except (
                self._ray.exceptions.RayError
            ) as error:  # the actor or its node died, or does not respond
                patience.failed(slot.place, _last(error))
            finally:
                self._balance.give_back(slot, is_lost=is_lost)
        if self._closed:
            raise _closed()
        raise ServiceFailed(f"Ray at {self._address}: {patience}")

    def _got(self, actor: Any, rows: list[bytes]) -> Any:
        """The actor's result, however long its rows take, as long as it is alive."""
        ray = self._ray
        coming = actor.observe.remote(rows)
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
        with suppress(Exception):  # the cluster may be gone
            for actor in self._actors:
                self._ray.kill(actor, no_restart=True)
        self._actors = []
        if self._began_ray:
            self._ray.shutdown()


class _Node:
    """An actor: a pool of workers on its node."""

    def __init__(self, payload: bytes, workers: int, wall_s: float, memory_mib: int | None) -> None:
        env = cloudpickle.loads(payload)
        self._pool = Pool(workers=workers, wall_s=wall_s, memory_mib=memory_mib)
        self._pool.open(env)

    def warm(self) -> None:
        self._pool.warm()

    def alive(self) -> bool:
        return True

    def identity(self) -> str:
        return json.dumps(self._pool.identity().as_dict())

    def observe(self, rows: list[bytes]) -> str:
        items = [decoded_item(json.loads(row), number) for number, row in enumerate(rows, 1)]
        if self._pool.awaits:
            seen = [
                one
                for future in [self._pool.begin(item) for item in items]
                for one in future.result()
            ]
        else:
            seen = self._pool.observe(items)
        return json.dumps([encoded_seen(one) for one in seen])


_Node.alive.__ray_concurrency_group__ = "alive"  # type: ignore[attr-defined]  # as ray.method does it


def _import_ray() -> Any:
    # Its own hook for uv and its warning about GPUs concern other programs than this one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError:
        raise MissingDependency("ray", "ray") from None


def _shipped(env: Environment) -> bytes:
    """The environment, with the classes and functions of the caller's own files inside."""
    names = [name for name in code_of(env) if not name.startswith(("package ", "rlvr."))]
    own = [sys.modules[name] for name in names if name in sys.modules and name != "sqlite"]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        payload: bytes = cloudpickle.dumps(env.without_tasks())
        return payload
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _lacks() -> str:
    """What a node lacks, or ""; runs there, where rlvr may be missing or another version."""
    try:
        import rlvr.scoring.identity  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def _by_value(function: Any) -> Any:
    """A copy that is pickled with its code, since its module may be missing where it is sent."""
    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def _on(node: dict[str, Any]) -> Any:
    affinity = importlib.import_module(
        "ray.util.scheduling_strategies"
    ).NodeAffinitySchedulingStrategy
    return affinity(node_id=node["NodeID"], soft=False)


def _host(node: dict[str, Any]) -> str:
    return f"{node.get('NodeManagerHostname')} ({node.get('NodeManagerAddress')})"


def _cause(error: Any) -> Exception:
    """What a task raised, as it would have been raised here."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, RlvrError) else WorkerError("RayTaskError", _last(error))


def _last(error: BaseException) -> str:
    """The last line of what Ray says, which has tracebacks and states in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"


def _closed() -> UsageError:
    return UsageError("this scorer is closed; open a new one")
