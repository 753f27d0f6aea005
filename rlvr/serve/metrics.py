"""Counters and a histogram in Prometheus's text format 0.0.4.

It is a screenful, and a client library would bring a registry that all services of a process share.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

__all__ = ["Gauges", "Metrics"]

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_COUNTERS = {
    "rlvr_requests_total": "Requests that were answered, by path and status.",
    "rlvr_scores_total": "Completions that were scored, by outcome; unscored ones are failures of ours.",
    "rlvr_rows_refused_total": "Rows that could not be used, whose place in the answer holds an error.",
    "rlvr_rejected_total": "Requests that were turned away, by reason.",
    "rlvr_repeated_total": "Requests whose id was known: answered without scoring again.",
    "rlvr_cancelled_total": "Requests that nobody waited for any more.",
}
_SECONDS = "rlvr_request_seconds"

_Labels: TypeAlias = tuple[tuple[str, str], ...]

Gauges: TypeAlias = Mapping[str, tuple[str, str, Mapping[str, float]]]
"""Name → (type, help, environment → value): what is looked up when it is asked for."""


class Metrics:
    """What the service has done so far.  Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[_Labels, int]] = {name: defaultdict(int) for name in _COUNTERS}
        self._seconds: dict[_Labels, list[float]] = {}  # one count per bucket, one beyond them all, the sum

    def count(self, name: str, number: int = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name][tuple(labels.items())] += number

    def took(self, seconds: float, **labels: str) -> None:
        """Note how long a request took."""
        with self._lock:
            counts = self._seconds.setdefault(tuple(labels.items()), [0] * (len(_BUCKETS_S) + 1) + [0.0])
            counts[next((i for i, most in enumerate(_BUCKETS_S) if seconds <= most), len(_BUCKETS_S))] += 1
            counts[-1] += seconds

    def text(self, gauges: Gauges) -> str:
        """The exposition: our own counters, and `gauges`."""
        with self._lock:
            return "".join(f"{line}\n" for line in (*self._lines(), *_gauge_lines(gauges)))

    def _lines(self) -> Iterator[str]:
        for name, counts in self._counts.items():
            yield from _header(name, "counter", _COUNTERS[name])
            for labels, number in sorted(counts.items()):
                yield f"{name}{_shown(labels)} {number}"
        yield from _header(_SECONDS, "histogram", "Seconds from a request's first byte to its answer's last.")
        for where, (*inside, total) in sorted(self._seconds.items()):
            so_far = 0.0
            for most, here in zip((*map(repr, _BUCKETS_S), "+Inf"), inside, strict=True):
                so_far += here
                yield f"{_SECONDS}_bucket{_shown((*where, ('le', most)))} {so_far:.0f}"
            yield f"{_SECONDS}_sum{_shown(where)} {total!r}"
            yield f"{_SECONDS}_count{_shown(where)} {so_far:.0f}"


def _gauge_lines(gauges: Gauges) -> Iterator[str]:
    for name, (kind, what, values) in gauges.items():
        yield from _header(name, kind, what)
        for env, value in values.items():
            yield f"{name}{_shown((('env', env),) if env else ())} {value!r}"


def _header(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


def _shown(labels: _Labels) -> str:
    escaped = [(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels]
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}" if labels else ""
