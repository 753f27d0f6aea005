"""The actors of this program on a Ray cluster: they come and go with its nodes, and
all its scorers share them.

An actor reserves the CPUs that its workers use, as far as they are free, so that Ray gives them to
nothing else; scorers of training and evaluation take turns on it.  While all of them are busy a
placement group asks for one more: it waits until a node has room, and an autoscaler sees it as
demand.
"""

from __future__ import annotations

import importlib
import json
import logging
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle

from rlvr.errors import ServiceFailed, UsageError, foreign_code
from rlvr.scoring.pool import Pool
from rlvr.scoring.wire import decoded_item, encoded_seen
from rlvr.types import JsonDict
from rlvr.workers.thread import DaemonThread

__all__ = ["Fleet", "Member", "NodeActor", "Tenant", "host_of", "last_line"]

_LOOK_S = 2.0  # between two looks at the nodes: a new one works within half a minute
_READY_S = 120.0  # until a task has run on a node: an interpreter, and rlvr
_BUSY_S = 5.0  # for which all workers are busy before one more is asked for

_log = logging.getLogger("rlvr.ray")


@dataclass(frozen=True, slots=True)
class Member:
    """An actor on a node.

    Attributes:
        node: id of the node.
        host: its name and address, for errors.
        workers: processes of the actor.
        actor: a handle of `NodeActor`.
    """

    node: str
    host: str
    workers: int
    actor: Any


class Tenant(Protocol):
    """A scorer that uses the actors."""

    def join(self, member: Member) -> None:
        """An actor is there."""

    def leave(self, member: Member) -> None:
        """An actor has gone with its node."""

    def is_busy(self) -> bool:
        """Whether rows wait for more workers."""


class Fleet:
    """The actors of this program.  Safe from any thread.

    Args:
        ray: the module, connected to a cluster.
        workers: processes on each node; None for its CPUs.
    """

    def __init__(self, ray: Any, workers: int | None) -> None:
        self._ray, self._workers = ray, workers
        self._lock = threading.RLock()
        self._members: dict[str, Member] = {}
        self._left_out: dict[str, str] = {}  # nodes that cannot be used, and why
        self._tenants: list[Tenant] = []
        self._demand: Any = None  # a placement group
        self._busy_since: float | None = None
        self._over = threading.Event()
        self._thread: DaemonThread | None = None

    @property
    def reasons(self) -> list[str]:
        """Why nodes are left out, one line each."""
        return list(self._left_out.values())

    def enter(self, tenant: Tenant, patience_s: float) -> None:
        """Let a scorer use the actors, once there is one.

        Args:
            tenant: the scorer.
            patience_s: seconds in which a node may come.

        Raises:
            UsageError: no node has this rlvr.
            ServiceFailed: no node has come.
        """
        with self._lock:
            self.look(is_start=not self._members)
            until = time.monotonic() + patience_s
            while not self._members:
                # There are nodes, all without rlvr: the user has to mend them.
                if self._left_out:
                    raise UsageError("; ".join(self.reasons))
                if time.monotonic() >= until:
                    raise ServiceFailed(
                        f"the Ray cluster has had no node with a free CPU for {patience_s:.0f} s; "
                        f"add one with "
                        "`ray start`, or let its autoscaler add some"
                    )
                # what was asked for is let go of once it is there, for an actor
                self._ask_for_more()
                time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
                self.look()
            self._tenants.append(tenant)
            for member in self._members.values():
                tenant.join(member)
            if self._thread is None:
                self._thread = DaemonThread(self._follow, name="ray", owner="scorer")

    def exit(self, tenant: Tenant) -> bool:
        """A scorer is done; with the last one the actors end.

        Args:
            tenant: the scorer.

        Returns:
            Whether it was the last one.
        """
        with self._lock:
            if tenant in self._tenants:
                self._tenants.remove(tenant)
            if self._tenants:
                return False
            self._over.set()
            with suppress(Exception):  # the cluster may be gone
                self._ask_for_no_more()
                for member in self._members.values():
                    self._ray.kill(member.actor, no_restart=True)
            self._members.clear()
            return True

    def look(self, *, is_start: bool = False) -> None:
        """Take over which nodes there are.

        Args:
            is_start: whether an actor is wanted even where no CPU is free, without a reservation.
        """
        with self._lock:
            nodes = {
                node["NodeID"]: node
                for node in self._ray.nodes()
                if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
            }
            for name in [name for name in self._members if name not in nodes]:
                member = self._members.pop(name)
                for tenant in self._tenants:
                    tenant.leave(member)
            new = [node for name, node in nodes.items() if name not in self._members]
            new = [node for node in new if node["NodeID"] not in self._left_out]
            free = self._free_cpus() if new else {}
            for node in new:
                self._add(node, free)
            # At the start one actor at least, even where other work has all CPUs.
            if is_start and not self._members:
                for node in new:
                    self._add(node, None)

    def _add(self, node: JsonDict, free: dict[str, float] | None) -> None:
        """Start an actor on a node that has room; without free CPUs none are reserved."""
        cpus = int(node["Resources"]["CPU"])
        room = cpus if free is None else int(free.get(node["NodeID"], cpus))
        if room < 1 or node["NodeID"] in self._left_out or not self._has_rlvr(node):
            return
        workers = min(room, self._workers or room)
        # Restarted by Ray as often as it dies; the rows are sent again by us.
        kind = self._ray.remote(
            num_cpus=0 if free is None else workers,
            max_restarts=-1,
            max_task_retries=0,
            # A group of its own, so that it answers while rows are looked at.
            concurrency_groups={"alive": 1},
        )(NodeActor)
        place = {"max_concurrency": workers + 1, "scheduling_strategy": _on(node)}
        member = Member(
            node["NodeID"], host_of(node), workers, kind.options(**place).remote(workers)
        )
        self._members[member.node] = member
        for tenant in self._tenants:
            tenant.join(member)

    def _has_rlvr(self, node: JsonDict) -> bool:
        """False for a node that has none, which is left out by name, or that has just gone."""
        ray = self._ray
        # Without a CPU of its own: a full node must be able to answer.
        task = ray.remote(_by_value(_lacks)).options(
            num_cpus=0, max_retries=0, scheduling_strategy=_on(node)
        )
        try:
            lack = ray.get(task.remote(), timeout=_READY_S)
        except ray.exceptions.RayError as error:
            _log.warning("%s runs no task: %s", host_of(node), last_line(error))
            return False
        if lack:
            reason = (
                f"{host_of(node)} has no rlvr ({lack}); "
                "install there what is here, in the Python that runs Ray"
            )
            self._left_out[node["NodeID"]] = reason
            _log.warning("a node is left out: %s", reason)
        return not lack

    def _free_cpus(self) -> dict[str, float]:
        """CPUs that nothing has reserved, by node; asked on the cluster, as a Ray Client cannot."""
        task = self._ray.remote(_by_value(_free)).options(num_cpus=0, max_retries=0)
        try:
            free: dict[str, float] = self._ray.get(task.remote(), timeout=_READY_S)
        except self._ray.exceptions.RayError:
            return {}
        return free

    def _follow(self) -> None:
        while not self._over.wait(_LOOK_S):
            with foreign_code() as errors:  # a cluster may answer at the next look
                self.look()
                self._follow_demand()
            for error in errors:
                _log.warning("the nodes of the Ray cluster are not known: %s", last_line(error))

    def _follow_demand(self) -> None:
        with self._lock:
            if not any(tenant.is_busy() for tenant in self._tenants):
                self._busy_since = None
                self._ask_for_no_more()
                return
            now_s = time.monotonic()
            if self._busy_since is None:
                self._busy_since = now_s
            if now_s - self._busy_since >= _BUSY_S:
                self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for a CPU; once there is room for it the next look finds its node."""
        group = importlib.import_module("ray.util.placement_group")
        if self._demand is None:
            # A group of one CPU is demand that an autoscaler sees.
            self._demand = group.placement_group([{"CPU": 1}])
        elif self._demand.wait(0):
            # There is room: the reservation goes, and an actor takes it.
            self._ask_for_no_more()

    def _ask_for_no_more(self) -> None:
        if self._demand is not None:
            group = importlib.import_module("ray.util.placement_group")
            group.remove_placement_group(self._demand)
            self._demand = None


class NodeActor:
    """Runs on a node: a pool of workers for each scorer.

    Args:
        workers: processes of each pool; as many chunks are looked at together, of whichever scorer.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._lock = workers, threading.Lock()
        self._pools: dict[str, Pool] = {}

    def alive(self) -> bool:
        """Answers while the actor lives, also while rows take long."""
        return True

    def identity(self, key: str, shipped: bytes, settings: dict[str, object]) -> str:
        """How a scorer's rows are judged here, as JSON; the first call starts its workers."""
        pool = self._pool(key, shipped, settings)
        pool.warm()
        return json.dumps(pool.identity().as_dict())

    def observe(
        self, key: str, shipped: bytes, settings: dict[str, object], rows: list[bytes]
    ) -> str:
        """What is seen of rows, as JSON."""
        pool = self._pool(key, shipped, settings)
        items = [decoded_item(json.loads(row), number) for number, row in enumerate(rows, 1)]
        if pool.awaits:
            futures = [pool.begin(item) for item in items]
            observed = [observation for future in futures for observation in future.result()]
        else:
            observed = pool.observe(items)
        return json.dumps([encoded_seen(observation) for observation in observed])

    def forget(self, key: str) -> None:
        """End the workers of a scorer."""
        with self._lock:
            pool = self._pools.pop(key, None)
        if pool is not None:
            pool.close()

    def _pool(self, key: str, shipped: bytes, settings: JsonDict) -> Pool:
        """With an actor that was started anew it is made again."""
        # Made under the lock: two first calls would start two pools.
        with self._lock:
            if key not in self._pools:
                pool = Pool(workers=self._workers, **settings)
                pool.open(cloudpickle.loads(shipped))
                self._pools[key] = pool
            return self._pools[key]


# as ray.method does it
NodeActor.alive.__ray_concurrency_group__ = "alive"  # type: ignore[attr-defined]


def _lacks() -> str:
    """What a node lacks, or ""; runs there, where rlvr may be missing or another version."""
    try:
        import rlvr.scoring.engines.fleet  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def _free() -> dict[str, float]:
    """Runs on the cluster."""
    from ray._private.state import available_resources_per_node

    return {name: free.get("CPU", 0.0) for name, free in available_resources_per_node().items()}


def _by_value(function: Callable[[], object]) -> Any:
    """A copy that is pickled with its code, since its module may be missing where it is sent."""
    assert isinstance(function, types.FunctionType)
    # Without the module's globals, which are not there.
    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def _on(node: dict[str, object]) -> object:
    affinity = importlib.import_module(
        "ray.util.scheduling_strategies"
    ).NodeAffinitySchedulingStrategy
    # Not soft: on another node the task would look at the wrong machine.
    return affinity(node_id=node["NodeID"], soft=False)


def host_of(node: dict[str, object]) -> str:
    """A node for errors.

    Args:
        node: as `ray.nodes` has it.
    """
    return f"{node.get('NodeManagerHostname')} ({node.get('NodeManagerAddress')})"


def last_line(error: BaseException) -> str:
    """The last line of what Ray says, which has tracebacks and states in it.

    Args:
        error: an error of Ray.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"
