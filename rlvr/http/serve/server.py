"""The service as a process, or as several on one port."""

from __future__ import annotations

import socket
from collections.abc import Callable

from rlvr.http import server
from rlvr.http.application import HostRule, is_loopback_name
from rlvr.http.keys import LEAST_KEY_LETTERS
from rlvr.http.serve.app import app_of
from rlvr.http.serve.service import Service
from rlvr.http.server import is_loopback

__all__ = ["OWN_NAME", "run", "serve_in_processes"]

OWN_NAME = HostRule(
    is_loopback_name,
    "the Host header is not this machine's loopback, as if a web page of elsewhere asked; set a "
    "key",
)
"""For a service without a key on this machine's loopback."""


def run(
    service: Service, listening: socket.socket, *, on_ready: Callable[[], None] | None = None
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain, see `rlvr.http.server.run`.

    Requests that are not finished `limits.drain_s` later get 503.

    Args:
        service: what to serve.
        listening: from `rlvr.http.server.listen`.
        on_ready: called when the workers have started.

    Raises:
        UsageError: a key is too short for an address that other machines can reach.
    """
    keys = service.keys
    if not is_loopback(listening) and keys.any:
        keys.require_letters(LEAST_KEY_LETTERS, str(listening.getsockname()[0]))
    # Without a key, other sites' pages must not reach it by a name of theirs.
    if is_loopback(listening) and not keys.any:
        service.http.hosts = OWN_NAME
    with service:
        server.run(app_of(service), listening, on_ready=on_ready)


def serve_in_processes(
    make: Callable[[], Service],
    listening: socket.socket,
    count: int,
    *,
    on_ready: Callable[[], None],
) -> None:
    """Serve with several processes that take the connections of one socket; each has a service of
    its own.

    Args:
        make: makes the service of a process, in the process.
        listening: from `rlvr.http.server.listen`.
        count: number of processes.
        on_ready: called when the workers of all have started.

    Raises:
        RlvrError: a process did not start; it has printed why.
    """
    server.run_processes(
        lambda ready: run(make(), listening, on_ready=ready), count, on_ready=on_ready
    )
