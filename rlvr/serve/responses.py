"""Responses: one JSON object, NDJSON line by line, or an error; written in pieces, as fast as the caller reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from rlvr.serve.jobs import Job
from rlvr.serve.limits import ServiceLimits
from rlvr.serve.refused import Refused
from rlvr.serve.rewards import RewardLines

__all__ = [
    "Left",
    "Response",
    "ScoresResponse",
    "WholeResponse",
    "error_response",
    "json_response",
    "while_connected",
]

_PIECE_BYTES = 1 << 16
_WATCH_AFTER_S = 0.02  # most answers are there before it is worth watching whether the caller is
_BEAT_S = 3.0
_JSON = ((b"content-type", b"application/json"),)
_CLOSING = (
    401,
    408,
    413,
    431,
    503,
)  # the rest of the body is not read, or another service takes over


class Response(Protocol):
    """An answer to a request: an ASGI application that knows its status.

    Attributes:
        status: the HTTP status; 499, as nginx logs it, while nothing was sent.
    """

    status: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""


class WholeResponse:
    """A response whose body is there already.

    Args:
        body: its bytes.
        status: the HTTP status.
        headers: beside those for type and length; more may be added.
        media_type: of the body.
    """

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        self.body, self.status = body, status
        self.headers = {"content-type": media_type, **(headers or {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()
        ]
        try:
            await _send_at_once(scope, send, self.status, headers, self.body)
        except Left:
            self.status = 499
            raise


def json_response(value: Any, status: int = 200) -> WholeResponse:
    """A response of one JSON value.

    Args:
        value: what is JSON-able.
        status: the HTTP status.
    """
    return WholeResponse(_json_bytes(value), status)


def error_response(refused: Refused) -> WholeResponse:
    """`{"error": …}` with its status, and `Retry-After` where the request may be sent again.

    Args:
        refused: the reason.
    """
    headers = {}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(refused.retry_after_s)
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.status in _CLOSING:
        headers["Connection"] = "close"
    return WholeResponse(_json_bytes({"error": str(refused)}), refused.status, headers)


async def _send_at_once(
    scope: Scope, send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    """Send head and body in one write; as ASGI's messages where there is no connection of ours.

    Raises:
        Left: the caller has disconnected, or does not read.
    """
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    connection = scope.get("rlvr.connection")
    if connection is not None:
        await _require_room(connection)
        if not connection.answer(status, headers, body):
            raise Left("disconnected")
        return
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _require_room(connection: Any) -> None:
    """Wait for a caller that has not read its last answer yet.

    Raises:
        Left: it does not.
    """
    if connection.is_full and not await connection.has_room():
        raise Left("disconnected")


class ScoresResponse:
    """Sends the lines of a job, to one of its readers.

    Args:
        job: the rows of the request, with the lines that threads put in.
        env: the name of the environment.
        limits: of the service.
        stream: True sends each line when it is there; False sends all of them in one object.
        shape: makes that object from the lines; by default `{"env": …, "scores": […]}`.
        beats: begin a stream at once, with an empty line every few seconds: a caller that hears nothing then knows
            that this machine is gone, however long its rows take.
        on_end: called when it was sent, or cannot be.
    """

    def __init__(
        self,
        job: Job | RewardLines,
        env: str,
        limits: ServiceLimits,
        *,
        stream: bool = False,
        shape: Callable[[Sequence[bytes]], Any] | None = None,
        beats: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._job, self._env, self._limits, self._stream, self._shape = (
            job,
            env,
            limits,
            stream,
            shape,
        )
        self._beats, self._on_end = beats, on_end
        self._connection: Any = None
        self.status = 499
        self._began = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer.

        Raises:
            Refused: there is none, and nothing was sent yet.
            Left: the caller has disconnected, or does not read.
        """
        self._connection = scope.get("rlvr.connection")
        try:
            if not self._stream and await self._is_soon():
                if self._job.refused is not None:
                    raise self._job.refused
                await self._send_whole(scope, send)
                return
            async with while_connected(receive):
                await self._send_in_time(scope, send)
        finally:
            self._on_end()

    async def _is_soon(self) -> bool:
        """Wait a little for the answer, unless the caller leaves."""
        if self._connection is None or not isinstance(self._job, Job):
            return await self._job.ends_within(_WATCH_AFTER_S)
        self._connection.when_lost = self._job.nudge
        try:
            return not self._connection.has_left and await self._job.ends_within(_WATCH_AFTER_S)
        finally:
            self._connection.when_lost = None

    async def _send_in_time(self, scope: Scope, send: Send) -> None:
        try:
            try:
                if self._stream or not self._job.finished:
                    async with asyncio.timeout(self._limits.request_s):
                        await (self._send_stream(send) if self._stream else self._job.wait())
                if self._job.refused is not None:
                    raise self._job.refused
            except TimeoutError:
                job, most = self._job, self._limits.request_s
                message = f"{len(job.lines)} of {job.count} rows were scored within {most:g} s; send fewer"
                raise Refused(504, "too-long", message) from None
        except Refused as refused:
            if not self._began:
                raise
            # The status is sent already: the error goes into a last line, which is no row's.
            last = {"stopped": str(refused), "status": refused.status}
            await self._write(send, _json_bytes(last) + b"\n", more=False)
            return
        if not self._stream:
            await self._send_whole(scope, send)

    async def _send_whole(self, scope: Scope, send: Send) -> None:
        lines = self._job.lines
        if self._shape is None:
            head = b'{"env":%s,"scores":[' % _json_bytes(self._env)
            size = len(head) + sum(map(len, lines)) + max(len(lines) - 1, 0) + 2
            pieces = _pieces(_whole(head, lines))
        else:
            body = _json_bytes(self._shape(lines))
            size = len(body)
            pieces = iter([body[i : i + _PIECE_BYTES] for i in range(0, len(body), _PIECE_BYTES)])
        if size <= _PIECE_BYTES:
            await _send_at_once(scope, send, 200, _JSON, b"".join(pieces))
            self.status, self._began = 200, True
            return
        await self._begin(send, *_JSON, (b"content-length", b"%d" % size))
        piece = next(pieces)
        for following in pieces:
            await self._write(send, piece)
            piece = following
        await self._write(send, piece, more=False)

    async def _send_stream(self, send: Send) -> None:
        batches = _with_beats(self._job.read()) if self._beats else self._job.read()
        async for batch in batches:
            if not self._began:
                await self._begin(send, (b"content-type", b"application/x-ndjson"))
            for piece in _pieces(line + b"\n" for line in batch):
                await self._write(send, piece)
        if not self._began:
            await self._begin(send, (b"content-type", b"application/x-ndjson"))
        await self._write(send, b"", more=False)

    async def _begin(self, send: Send, *headers: tuple[bytes, bytes]) -> None:
        if self._connection is not None:
            await _require_room(self._connection)
        self.status, self._began = 200, True
        await send({"type": "http.response.start", "status": 200, "headers": list(headers)})

    async def _write(self, send: Send, piece: bytes, *, more: bool = True) -> None:
        """Send a piece once there is room for it: the server holds back while the caller does not read."""
        if self._connection is not None and not self._connection.is_full:
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            return
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            raise Left("stalled") from None


class Left(Exception):
    """The caller has disconnected, or does not read its answer.

    Args:
        how: "disconnected" or "stalled".
    """


async def _with_beats(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """The same batches, and one with an empty line at once and whenever no other came for some seconds."""
    yield [b""]
    coming: asyncio.Task[list[bytes] | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(batches))
            done, _ = await asyncio.wait({coming}, timeout=_BEAT_S)
            if not done:
                yield [b""]
                continue
            batch, coming = coming.result(), None
            if batch is None:
                return
            yield batch
    finally:
        if coming is not None:
            coming.cancel()


async def _next(batches: AsyncIterator[list[bytes]]) -> list[bytes] | None:
    return await anext(batches, None)


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Ends what is under way when the caller disconnects.

    Args:
        receive: of ASGI.

    Raises:
        Left: it did.
    """
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    loop = asyncio.get_running_loop()
    watching = loop.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if left and task.uncancel() == 0:
            raise Left("disconnected") from None
        raise
    finally:
        watching.cancel()


def _whole(head: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    yield head
    for number, line in enumerate(lines):
        if number:
            yield b","
        yield line
    yield b"]}"


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in pieces of some size."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
