"""Connections: how long each may take to say what it wants, and which of them go
when there are too many.

uvicorn parses and answers requests.  What is added here is for callers that go on sending after
their answer, never send a request, send the next one before the answer, or do not read.  A
request's scope has its connection as `rlvr.connection`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rlvr.http.limits import HttpLimits
from rlvr.http.memory import MIB
from rlvr.http.metrics import Metrics

__all__ = ["Connection", "Connections"]

_KEPT_S = 75.0  # that a connection may be idle between two requests
_LINGER_S = 5.0  # that a caller may go on sending after its answer
# between two reads of what is not wanted: 1-byte chunks then cost 50 reads a second and no more
_SIP_S = 0.02
_MOST_HEAD = 1 << 16  # bytes
_MOST_HEADERS = 256
# bytes around a body's chunks, and a quarter of the bytes within: each chunk is a call
_MOST_FRAMING = 1 << 12
_SLICE = 1 << 12  # bytes that are parsed before the limits are looked at
_RESERVE = 16  # connections beyond the limit, which get a 503 instead of silence
# Between two looks at all deadlines: a timer for each connection would be set anew at each read.
_SWEEP_S = 0.5


class Connections:
    """The connections of an application.  Only the event loop uses it.

    Args:
        limits: of the application.
        metrics: counts the connections that are closed.
    """

    def __init__(self, limits: HttpLimits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self._idle: dict[
            Connection, float
        ] = {}  # those without a request under way; the longest idle is first
        self._peers: Counter[str] = Counter()
        self.open = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def opened(self, connection: Connection) -> None:
        """Count a new connection, and make room for it.

        Args:
            connection: that has just been made.
        """
        self.open += 1
        self._peers[connection.peer] += 1
        of_peer, of_all = self._over(connection)
        if of_peer > 0 or of_all > 0:
            # First of its own peer: one caller must not push out the others.
            peer = connection.peer if of_peer > 0 else None
            oldest = next(
                (candidate for candidate in self._idle if peer is None or candidate.peer == peer),
                None,
            )
            if oldest is not None:
                oldest.end("crowded")
            else:
                connection.crowded = True
                if max(of_peer, of_all) > _RESERVE:
                    # So many beyond the limit get an answer; the rest is refused before its
                    # request.
                    connection.refuse(503, "there are too many connections; ask again in 1 s")
        self.is_idle(connection)
        if self._sweeping is None:
            self._sweep()

    def _over(self, connection: Connection) -> tuple[int, int]:
        limits = self.limits
        return self._peers[
            connection.peer
        ] - limits.peer_connections, self.open - limits.connections

    def is_idle(self, connection: Connection) -> None:
        """Count the time from now on in which a connection has no request under way.

        Args:
            connection: one that is open.
        """
        # Put at the end: the order of the dict is the order of idleness.
        self._idle.pop(connection, None)
        self._idle[connection] = time.monotonic()

    def is_busy(self, connection: Connection) -> None:
        """Note that the head of a request is there.

        Args:
            connection: that has sent it.
        """
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Forget a connection.

        Args:
            connection: that was closed, by either side.
        """
        self._idle.pop(connection, None)
        self.open -= 1
        self._peers[connection.peer] -= 1
        # A peer without connections is forgotten, or the table would grow for ever.
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]

    def _sweep(self) -> None:
        """Close what has been idle for too long."""
        swept_at = time.monotonic()
        for connection, since in list(self._idle.items()):
            if swept_at - since > connection.allowed_s:
                connection.end(connection.waits_for)
        self._sweeping = (
            asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep) if self.open else None
        )


class Connection(HttpToolsProtocol):
    """One connection.

    Args:
        connections: all of them.
        more: what uvicorn gives to a protocol.
    """

    def __init__(self, *, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self._all = connections
        self.peer = ""
        self.crowded = False
        self.when_lost: Callable[[], None] | None = None  # called when the caller leaves
        self.allowed_s, self.waits_for = connections.limits.head_s, "slow-head"
        self._head_bytes = 0
        # after the slice with the end of the head; in chunks of the body
        self._sent_bytes = self._body_bytes = 0
        self._in_headers = True
        self._pipelined = False
        # bytes read after the answer, once that is all that is done
        self._sipped: int | None = None

    # --------------------------------------------------------------------------------- what arrives

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Without an address, such as on a Unix socket, all are one peer.
        self.peer = self.client[0] if self.client else ""
        self._all.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.lost(self)
        super().connection_lost(exc)
        if self.when_lost is not None:
            self.when_lost()

    def data_received(self, data: bytes) -> None:
        # In slices: what is in one read would be parsed to its end, thousands of headers or chunks,
        # before a check. They are small until there is a body that is worth it.
        at = 0
        while at < len(data):
            if self._sipped is not None:
                self._sip_again(len(data) - at)
                return
            # Larger slices once a body flows: an eighth of it, so few checks in all.
            size = max(_SLICE, self._body_bytes // 8)
            if not self._feed(data[at : at + size]) or self.transport.is_closing():
                return
            at += size

    def _feed(self, data: bytes) -> bool:
        """Parse a slice; False if it is of no request."""
        if self._answered:
            if not self._head_bytes:
                # The first byte of a request: from now on its head has to come.
                self.allowed_s, self.waits_for = self._all.limits.head_s, "slow-head"
                self._all.is_idle(self)
            self._head_bytes += len(data)
        else:
            self._sent_bytes += len(data)
        try:
            self.parser.feed_data(data)
        # httptools raises it where "Upgrade" stands in the head.
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._become_websocket()
                return False  # else the request is answered as any other
        except httptools.HttpParserError:
            if self._pipelined:
                # What it sent too early is not parsed: one request at a time.
                self.cycle.keep_alive = False
                self.flow.pause_reading()
            elif self._answered and len(self.headers or ()) == _MOST_HEADERS:
                self._refuse_head(f"the request has more than {_MOST_HEADERS} headers")
            # While an answer is on its way there is nothing to say.
            elif self._answered or self.cycle.more_body:
                self._all.metrics.count("rlvr_rejected_total", reason="not-http")
                self.refuse(400, "this is no HTTP request")
            return self._sipped is not None  # the rest is counted then
        # Only while no request is under way: else the bytes are a body's.
        if self._head_bytes > _MOST_HEAD and self._answered:
            self._refuse_head(f"the head of the request has more than {_MOST_HEAD} bytes")
        elif (
            not self._answered
            and self.cycle.more_body
            and self._framing > _MOST_FRAMING + self._body_bytes // 4
        ):
            self._all.metrics.count("rlvr_rejected_total", reason="tiny-chunks")
            self.refuse(
                400, "the body has chunks of a few bytes, or more around its chunks than in them"
            )
        return True

    def _become_websocket(self) -> None:
        """Leave the socket to uvicorn's protocol for WebSockets; it counts as a connection on."""
        self._all.is_busy(self)
        self.handle_websocket_upgrade()
        protocol: Any = self.transport.get_protocol()
        # Wrapped: the new protocol knows nothing of our counters.
        lose = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._all.lost(self)
            lose(exc)

        protocol.connection_lost = connection_lost

    @property
    def _framing(self) -> int:
        """Bytes of the body so far that are around its chunks."""
        return self._sent_bytes - self._body_bytes

    def _refuse_head(self, message: str) -> None:
        self._all.metrics.count("rlvr_rejected_total", reason="large-head")
        self.refuse(431, message)

    @property
    def has_body(self) -> bool:
        """Whether the whole body of the request is here."""
        return not self.cycle.more_body

    @property
    def has_left(self) -> bool:
        """Whether the caller has disconnected before its answer."""
        return bool(self.cycle.disconnected)

    @property
    def is_full(self) -> bool:
        """Whether the caller has to read before more is sent."""
        return bool(self.flow.write_paused)

    @property
    def _answered(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def on_message_begin(self) -> None:
        # HTTP allows pipelining; here the answer comes first (RFC 9112, section 9.3.2).
        if not self._answered:
            self._pipelined = True
            raise ValueError("a request before the answer to the last one")
        super().on_message_begin()
        self._in_headers = True
        self.scope["rlvr.connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored: they could change what was decided by the head.
        if self._in_headers:  # and no trailer
            if len(self.headers) == _MOST_HEADERS:
                raise ValueError("too many headers")
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._head_bytes = self._sent_bytes = self._body_bytes = 0
        super().on_headers_complete()
        if self.parser.should_upgrade() and self._should_upgrade():
            return  # there is no cycle of request and answer
        # uvicorn writes head and body apart; this joins them.
        self.cycle.transport = _Lingering(self)  # type: ignore[assignment]
        self._all.is_busy(self)

    def take_body(self) -> bytearray:
        """The whole body of the request, which is not kept; see `has_body`."""
        body, self.cycle.body = self.cycle.body, bytearray()
        self.cycle.waiting_for_100_continue = False  # it did not wait
        return body

    # ----------------------------------------------------------------------------------- the answer

    async def has_room(self) -> bool:
        """Wait until the caller has read what was sent before; if it does not, the connection is
        ended."""
        try:
            async with asyncio.timeout(self._all.limits.stall_s):
                await self.flow.drain()
        except TimeoutError:
            self.end("stalled")
            await asyncio.sleep(0)  # so that the server knows
            return False
        return True

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer in one write; False if the caller has left.

        If another answer has begun, its caller would read this one as a part of it: the connection
        is ended instead.

        Args:
            status: the HTTP status.
            headers: names in small letters, with values that need no check; the length of the body
                is one of them.
            body: the body; of a HEAD request it is left out.
        """
        cycle = self.cycle
        if cycle.disconnected or self.transport.is_closing():
            # so that the server, which may not know yet, does not miss an answer
            cycle.disconnected = True
            return False
        # The answer has begun: a second head within it would be read as its body.
        if cycle.response_started:
            self.end("broken")
            cycle.disconnected = True
            return True
        # A body that was not read would be taken for the next request.
        parts, is_last = [STATUS_LINE[status]], not cycle.keep_alive or cycle.more_body
        for name, value in (*cycle.default_headers, *headers):
            # It can only mean "close", which is written below.
            if name != b"connection":
                parts += (name, b": ", value, b"\r\n")
            else:
                is_last = True
        parts.append(b"connection: close\r\n\r\n" if is_last else b"\r\n")
        # A HEAD has the head alone, with the length that the body would have.
        if cycle.scope["method"] != "HEAD":
            parts.append(body)
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if is_last:
            # Closed by the wrapped transport, which waits for what the caller still sends.
            cycle.transport.close()
        cycle.on_response()
        return True

    # ----------------------------------------------------------------------------- after the answer

    def on_response_complete(self) -> None:
        self.cycle.transport.flush()  # type: ignore[attr-defined]
        self.server_state.total_requests += 1
        if self.transport.is_closing() or self._sipped is not None:
            return
        # The body is still coming: what follows it could not be told from it.
        if self.cycle.more_body:
            self.linger()
            return
        self.flow.resume_reading()
        self.allowed_s, self.waits_for = _KEPT_S, "idle"
        self._all.is_idle(self)

    def close_after_answer(self) -> None:
        """Close; but a caller that is still sending would then lose its answer."""
        # Closing while data arrives makes TCP send a reset, which can take the answer away.
        if self.cycle.more_body or self._pipelined:
            self.linger()
        else:
            self.transport.close()
            self.allowed_s, self.waits_for = self._all.limits.stall_s, "stalled"
            self._all.is_idle(self)

    def linger(self) -> None:
        """Read what is still sent, unparsed, little and not for long; then close."""
        if self._sipped is None:
            self._sipped = 0
            self.allowed_s, self.waits_for = _LINGER_S, "lingering"
            self._all.is_idle(self)
            self._sip_again(0)

    def _sip_again(self, size: int) -> None:
        assert self._sipped is not None
        self._sipped += size
        # A caller that sends more than any request may have is cut off.
        if self._sipped > self._all.limits.body_mib * MIB + _MOST_HEAD:
            self.end("lingering")
            return
        self.flow.pause_reading()
        self.loop.call_later(_SIP_S, self._sip)

    def _sip(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answer without a request, and close.

        Args:
            status: the HTTP status.
            message: what the caller is told.
        """
        body = json.dumps({"error": message}).encode()
        # A client of ours reads it and waits so long.
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        head = (
            b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%s\r\n"
        )
        self.transport.write(STATUS_LINE[status] + head % (len(body), retry) + body)
        self.linger()

    def end(self, reason: str) -> None:
        """Close now, whatever is under way.

        Args:
            reason: is counted.
        """
        self._all.metrics.count("rlvr_connections_closed_total", reason=reason)
        self._all.is_busy(self)  # not to be ended twice
        # Nothing of these is of use any more; a reset frees the memory at once.
        if reason in ("stalled", "lingering") or self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait until the caller has read
        else:
            self.transport.close()


class _Lingering:
    """A connection's transport, as the answer to a request sees it: head and first
    piece are written together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._head = b""
        self._began = False
        self.is_closing = connection.transport.is_closing

    def write(self, data: bytes) -> None:
        connection = self._connection
        if connection._sipped is not None:  # it was answered otherwise
            return
        # The head waits for the first piece, so that both are one write.
        if (
            not self._began
            and connection.cycle.response_started
            and not connection.cycle.response_complete
        ):
            self._began, self._head = True, data
            return
        if self._head:
            data, self._head = self._head + data, b""
        connection.transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._connection.close_after_answer()
