"""What the service counts, in Prometheus's text format.

Several processes on one port keep their numbers in files of one folder (`PROMETHEUS_MULTIPROC_DIR`,
the way of Prometheus's client library), so that each of them answers for all: counters go on when a
process is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

__all__ = [
    "CONTENT_TYPE",
    "Gauges",
    "Metrics",
    "Table",
    "are_shared",
    "forget_process",
    "share_in",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)

Table: TypeAlias = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name of a metric → what it counts, and its labels."""

_COUNTERS: Table = {
    "rlvr_requests_total": ("Requests that were answered, by path and status.", ("path", "status")),
    "rlvr_rejected_total": ("Requests that were refused, by reason.", ("reason",)),
    "rlvr_connections_closed_total": (
        "Connections that the service closed, by reason.",
        ("reason",),
    ),
    "rlvr_log_lines_dropped_total": (
        "Lines that were not logged, as there were too many of their kind.",
        (),
    ),
}
_GAUGES: Table = {
    "rlvr_under_way": ("Requests that are not answered yet.", ()),
    "rlvr_connections": ("Connections that are open.", ()),
    "rlvr_held_bytes": ("Memory of requests: rows that wait, and answers that are not sent.", ()),
    "rlvr_ready": ("1 while requests are accepted, 0 while the service stops.", ()),
}
_SECONDS = "rlvr_request_seconds"

Gauges: TypeAlias = Mapping[str, Mapping[str, float]]
"""Name → environment → value; the environment is "" where a gauge has none."""


def share_in(folder: str) -> None:
    """Keep the numbers of this process, and of those that it forks, in a folder.

    Args:
        folder: an empty one.
    """
    os.environ[_FOLDER] = folder
    # The library looks at the variable once, when it is imported.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    """Whether `share_in` was called."""
    return _FOLDER in os.environ


def forget_process(pid: int) -> None:
    """Leave out the gauges of a process that has ended; its counters stay.

    Args:
        pid: its id.
    """
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """Counts what an application has done.  Safe from any thread.

    Args:
        counters, gauges: those of the application, beside the ones that every application has.
    """

    def __init__(self, counters: Table | None = None, gauges: Table | None = None) -> None:
        # A series more for each counter, which nothing here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        registry_option: Any = {"registry": self._registry}
        self._counters = {
            name: Counter(name, what, labels, **registry_option)
            for name, (what, labels) in {**_COUNTERS, **(counters or {})}.items()
        }
        self._gauges = {
            name: Gauge(
                name,
                what,
                labels,
                # Ready if all are: the least. All others are added up.
                multiprocess_mode="livemin" if name == "rlvr_ready" else "livesum",
                **registry_option,
            )
            for name, (what, labels) in {**_GAUGES, **(gauges or {})}.items()
        }
        self._seconds = Histogram(
            _SECONDS,
            "Seconds from a request's head to its answer's last byte.",
            ("path",),
            buckets=_BUCKETS_S,
            **registry_option,
        )
        self._known: dict[tuple[str, ...], object] = {}  # looking labels up is the slow part
        self._requests: dict[
            tuple[str, int], tuple[Any, Any]
        ] = {}  # counter and histogram, by path and status
        self._totals: dict[tuple[str, str], float] = {}

    def count(self, name: str, number: float = 1, **labels: str) -> None:
        """Add to a counter.

        Args:
            name: one of the counters above.
            number: how much to add.
            labels: values of the counter's labels.
        """
        self._child(self._counters[name], name, labels).inc(number)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            path: what was asked for.
            status: of the answer.
            seconds: how long it took.
        """
        instruments = self._requests.get((path, status))
        if instruments is None:
            name = "rlvr_requests_total"
            counter = self._child(self._counters[name], name, {"path": path, "status": str(status)})
            instruments = self._requests[path, status] = (
                counter,
                self._child(self._seconds, _SECONDS, {"path": path}),
            )
        instruments[0].inc()
        instruments[1].observe(seconds)

    def update(self, values: Gauges) -> None:
        """Set gauges; a counter that is counted elsewhere grows to its value.

        Args:
            values: as they are now.
        """
        for name, by_env in values.items():
            for env, value in by_env.items():
                labels = {"env": env} if env else {}
                if name in self._gauges:
                    self._child(self._gauges[name], name, labels).set(value)
                else:
                    growth, self._totals[name, env] = (
                        value - self._totals.get((name, env), 0),
                        value,
                    )
                    # A process that starts anew begins at 0: a counter never falls.
                    self.count(name, max(growth, 0), **labels)

    def text(self) -> bytes:
        """All metrics in the text format, of all processes of the service."""
        if not are_shared():
            return generate_latest(self._registry)
        # A registry of its own: the collector reads the files of all processes.
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _child(self, metric: Any, name: str, labels: Mapping[str, str]) -> Any:
        key = (name, *labels.values())
        child = self._known.get(key)
        if child is None:
            child = self._known[key] = metric.labels(**labels) if labels else metric
        return child
