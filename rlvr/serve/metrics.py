"""Counters and a histogram in Prometheus's text format 0.0.4.

Written here because Prometheus's client library has one registry, which all services of a process would share.
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
    "rlvr_scores_total": "Completions that were scored, by outcome; unscored ones are failures of the service.",
    "rlvr_rows_refused_total": "Rows that could not be used and got an error instead of a score.",
    "rlvr_rejected_total": "Requests that were refused, by reason.",
    "rlvr_repeated_total": "Requests whose id was known: answered without scoring again.",
    "rlvr_cancelled_total": "Requests whose caller disconnected before the response.",
}
_SECONDS = "rlvr_request_seconds"

_Labels: TypeAlias = tuple[tuple[str, str], ...]

Gauges: TypeAlias = Mapping[str, tuple[str, str, Mapping[str, float]]]
"""Name → (type, help, environment → value), read when `/metrics` is asked for."""


class Metrics:
    """Counts what the service has done.  Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[_Labels, int]] = {name: defaultdict(int) for name in _COUNTERS}
        self._seconds: dict[_Labels, list[float]] = {}  # one count per bucket, one beyond them all, the sum

    def count(self, name: str, number: int = 1, **labels: str) -> None:
        """Add to a counter.

        Args:
            name: one of the counters above.
            number: how much to add.
            labels: names and values of the counter's labels.
        """
        with self._lock:
            self._counts[name][tuple(labels.items())] += number

    def observe_seconds(self, seconds: float, **labels: str) -> None:
        """Add the duration of a request to the histogram.

        Args:
            seconds: how long it took.
            labels: names and values of the histogram's labels.
        """
        with self._lock:
            counts = self._seconds.setdefault(tuple(labels.items()), [0] * (len(_BUCKETS_S) + 1) + [0.0])
            counts[next((i for i, most in enumerate(_BUCKETS_S) if seconds <= most), len(_BUCKETS_S))] += 1
            counts[-1] += seconds

    def text(self, gauges: Gauges) -> str:
        """All metrics in the text format.

        Args:
            gauges: to be printed after the counters and the histogram.
        """
        with self._lock:
            return "".join(f"{line}\n" for line in (*self._lines(), *_gauge_lines(gauges)))

    def _lines(self) -> Iterator[str]:
        for name, counts in self._counts.items():
            yield from _header(name, "counter", _COUNTERS[name])
            for labels, number in sorted(counts.items()):
                yield f"{name}{_label_text(labels)} {number}"
        yield from _header(_SECONDS, "histogram", "Seconds from a request's first byte to its answer's last.")
        for where, (*inside, total) in sorted(self._seconds.items()):
            so_far = 0.0
            for most, here in zip((*map(repr, _BUCKETS_S), "+Inf"), inside, strict=True):
                so_far += here
                yield f"{_SECONDS}_bucket{_label_text((*where, ('le', most)))} {so_far:.0f}"
            yield f"{_SECONDS}_sum{_label_text(where)} {total!r}"
            yield f"{_SECONDS}_count{_label_text(where)} {so_far:.0f}"


def _gauge_lines(gauges: Gauges) -> Iterator[str]:
    for name, (kind, what, values) in gauges.items():
        yield from _header(name, kind, what)
        for env, value in values.items():
            yield f"{name}{_label_text((('env', env),) if env else ())} {value!r}"


def _header(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


def _label_text(labels: _Labels) -> str:
    escaped = [(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels]
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}" if labels else ""
