"""The HTTP service: environments whose scores are asked for over HTTP (docs/using/serving.md).

    request ──▶ app: key, size, shape ──▶ Desk: bounded queue ──▶ lane ──▶ Scorer.stream ──▶ Job: lines, in order
                                                                                              │ read by
                                                                   one answer, or NDJSON ◀────┘ the event loop

The event loop only reads, queues and sends; rows are looked up and scored by a desk's lanes, which are threads, and
its scorer's workers, which can be killed.  The command is `rlvr serve`, the caller's side is `rlvr.serve.client`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlvr.errors import MissingDependency
from rlvr.serve.limits import Limits

if TYPE_CHECKING:
    from rlvr.serve.app import app_of
    from rlvr.serve.server import listen, run
    from rlvr.serve.service import Service

__all__ = ["Limits", "Service", "app_of", "listen", "run"]

_PLACES = {"Service": "service", "app_of": "app", "listen": "server", "run": "server"}


def __getattr__(name: str) -> Any:
    """The rest needs FastAPI and uvicorn, and the command line reads `Limits` whenever it says `--help`."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "rlvr":
            raise
        raise MissingDependency(error.name or "fastapi", "serve") from None
