"""From a service to a listening process: where it may listen, and how it stops."""

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

__all__ = ["listen", "run"]

_CONNECTIONS = 1000  # at once; whoever comes then gets 503
_IDLE_S = 75  # a caller's connection may rest so long between two requests
_LEAVE_S = 5  # for connections to close once every answer is sent


def listen(host: str, port: int, *, beyond_this_machine: bool = False) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Args:
        beyond_this_machine: whether an address may be taken that other machines can reach.

    Raises:
        UsageError: such an address without leave, or one that cannot be had.
    """
    if not 0 <= port < 1 << 16:  # which some systems take modulo 65536
        raise UsageError(f"port is {port}; it must be from 0, any that is free, to 65535")
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if not beyond_this_machine and not ipaddress.ip_address(address[0]).is_loopback:
            raise UsageError(
                f"{host!r} can be reached from other machines and there is no API key; set RLVR_API_KEY, listen on "
                "127.0.0.1, or pass --without-key if whoever can reach it may use it"
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

    What is not finished `limits.drain_s` later gets 503 as its answer.  A second signal does not wait for it.
    """
    config = uvicorn.Config(
        app_of(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_LEAVE_S,
    )
    with service:
        _Server(config, service).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn closes its door at the first signal; ours stays open to say 503 until all is answered."""

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
