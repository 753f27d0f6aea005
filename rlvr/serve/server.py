"""The listening process: on which addresses it may listen, and how it stops."""

from __future__ import annotations

import ipaddress
import signal
import socket
import time
from types import FrameType

import uvicorn

from rlvr.errors import UsageError
from rlvr.serve.app import app_of
from rlvr.serve.service import Service
from rlvr.validate import require_whole

__all__ = ["listen", "run"]

_CONNECTIONS = 1000  # at once; further ones get 503
_IDLE_S = 75  # how long a connection may be idle between two requests
_CLOSE_S = 5  # for connections to close once every response is sent


def listen(host: str, port: int, *, beyond_this_machine: bool = False) -> socket.socket:
    """A socket that listens on an address.

    Args:
        host: name or address.
        port: 0 takes a free one.
        beyond_this_machine: whether an address may be taken that other machines can reach.

    Raises:
        UsageError: other machines can reach the address and must not, or it cannot be listened on.
    """
    require_whole("port", port, 0, 65535, hint="0 for any that is free")  # some systems would take 65536 as 0
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if not beyond_this_machine and not ipaddress.ip_address(address[0]).is_loopback:
            raise UsageError(
                f"{host!r} can be reached from other machines and there is no API key; set RLVR_API_KEY, listen on "
                "127.0.0.1, or pass --without-key to serve all that can reach it"
            )
        listening = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise UsageError(f"cannot listen on {host!r}, port {port}: {error}; choose another --host or --port") from error
    # Its connections inherit this.  asyncio sets it only where a socket's protocol is spelled out, which this one's is
    # not, and without it every answer in two parts waits 40 ms for the caller's acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(service: Service, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then drain: refuse new requests with 503, finish those under way, and return.

    Requests that are not finished `limits.drain_s` later get 503.  A second signal does not wait for them.

    Args:
        service: what to serve.
        listening: from `listen`.
    """
    config = uvicorn.Config(
        app_of(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    with service:
        _Server(config, service).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn stops listening at the first signal; this keeps responding with 503 until all requests are answered."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._until = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.draining:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
        self._service.draining = True
        self._until = time.monotonic() + self._service.limits.drain_s

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._service.draining and not self.should_exit:
            late = time.monotonic() > self._until
            if late:
                self._service.abort()
            self.should_exit = late or not self._service.under_way
        return await super().on_tick(counter)
