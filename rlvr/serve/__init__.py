"""The HTTP service: environments whose scores are asked for over HTTP (docs/using/serving.md).

    request ──▶ app: key, size, shape ──▶ EnvironmentQueue ──▶ thread ──▶ Scorer.stream ──▶ Job: lines in order
                                                                                             │ read by
                                                                  one response, or NDJSON ◀──┘ the event loop

The event loop only reads, queues and sends.  Threads of the queue look rows up and score them with the scorer's worker
processes, which can be killed.  The command is `rlvr serve`; the client is `rlvr.serve.client`.
"""

from typing import TYPE_CHECKING, Any

from rlvr.errors import import_optional
from rlvr.serve.limits import ServiceLimits

if TYPE_CHECKING:
    from rlvr.serve.app import app_of
    from rlvr.serve.server import listen, run
    from rlvr.serve.service import Service

__all__ = ["Service", "ServiceLimits", "app_of", "listen", "run"]

_MODULES = {"Service": "service", "app_of": "app", "listen": "server", "run": "server"}


def __getattr__(name: str) -> Any:
    """Import lazily what needs FastAPI and uvicorn: `rlvr --help` imports `ServiceLimits` and should load neither."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_optional(f"{__name__}.{_MODULES[name]}", "serve"), name)
