"""The HTTP service: environments whose scores are asked for over HTTP (docs/using/serving.md).

    connection ─▶ app: key, size, shape ─▶ EnvironmentQueue ─a chunk of each job in turn─▶ thread
                                                                             Scorer.observe ◀─┘
        one response, or NDJSON ◀─ read by the event loop ─ Job: lines in order ◀─┘

The event loop only reads, queues and sends.  Threads of the queue look rows up and score them with
the scorer's worker processes, which can be killed.  The command is `rlvr serve`; the client is
`rlvr.client`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlvr.http.serve.limits import ServiceLimits

if TYPE_CHECKING:
    from rlvr.http.serve.app import app_of
    from rlvr.http.serve.server import run, serve_in_processes
    from rlvr.http.serve.service import Service
    from rlvr.http.server import listen

__all__ = ["Service", "ServiceLimits", "app_of", "listen", "run", "serve_in_processes"]

_MODULES = {
    "Service": "rlvr.http.serve.service",
    "app_of": "rlvr.http.serve.app",
    "listen": "rlvr.http.server",
    "run": "rlvr.http.serve.server",
    "serve_in_processes": "rlvr.http.serve.server",
}


def __getattr__(name: str) -> Any:
    """Import lazily what needs uvicorn and its kin: `rlvr --help` imports `ServiceLimits` and
    should load neither."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
