"""Responses: in one write, or in pieces as fast as the caller reads; and errors in the
form that a caller expects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from rlvr.http.refused import Refused

__all__ = [
    "Left",
    "PieceWriter",
    "Response",
    "WholeResponse",
    "html_error",
    "json_bytes",
    "json_error",
    "json_response",
    "openai_error",
    "send_at_once",
    "while_connected",
]


_to_json = json.JSONEncoder(allow_nan=False).encode


class Response(Protocol):
    """An answer to a request: an ASGI application that knows its status.

    It may have `audit_fields`, a method that gives what the log of requests has of it beyond
    others: rows, outcomes, identity.

    Attributes:
        status: the HTTP status; 499, as nginx logs it, while nothing was sent.
    """

    status: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
            Refused: there is none, and nothing was sent yet.
            Left: the caller has disconnected, or does not read.
        """


class Left(Exception):
    """The caller has disconnected, or does not read its answer.

    Args:
        how: "disconnected" or "stalled".
    """


class WholeResponse:
    """A response whose body is there already.

    Args:
        body: its bytes.
        status: the HTTP status.
        headers: beside those for type and length, in small letters; more may be added.
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
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        try:
            await send_at_once(scope, send, self.status, headers, self.body)
        except Left:
            # 499 in metrics and log: nothing was answered.
            self.status = 499
            raise


def json_response(value: object, status: int = 200) -> WholeResponse:
    """A response of one JSON value.

    Args:
        value: what is JSON-able.
        status: the HTTP status.
    """
    return WholeResponse(json_bytes(value), status)


def json_bytes(value: object) -> bytes:
    """A value as JSON.

    Args:
        value: what is JSON-able.
    """
    return _to_json(value).encode()


# ------------------------------------------------------------------------------------------ errors


def json_error(refused: Refused) -> WholeResponse:
    """`{"error": …}`, as rlvr's own clients read it.

    Args:
        refused: the reason.
    """
    return json_response({"error": str(refused)}, refused.status)


def openai_error(refused: Refused) -> WholeResponse:
    """An error as OpenAI's API has it: with a message, a type and a code.

    Args:
        refused: the reason.
    """
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    error = {"message": str(refused), "type": kind, "param": None, "code": refused.reason}
    return json_response({"error": error}, refused.status)


def html_error(page: Callable[[str], bytes]) -> Callable[[Refused], WholeResponse]:
    """Errors as pages; a caller that may not ask gets its message alone.

    Args:
        page: makes the page with a message; it escapes it.
    """

    def response(refused: Refused) -> WholeResponse:
        # A stranger gets no page, and a caller that is too many none either.
        if refused.status in (401, 403, 421, 503):
            text = f"{refused}\n".encode()
            return WholeResponse(text, refused.status, media_type="text/plain; charset=utf-8")
        body = page(str(refused))
        return WholeResponse(body, refused.status, media_type="text/html; charset=utf-8")

    return response


# ------------------------------------------------------------------------------------------ sending


async def send_at_once(
    scope: Scope, send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    """Send head and body in one write; as ASGI's messages where there is no connection of ours.

    Args:
        scope, send: as ASGI gives them.
        status: the HTTP status.
        headers: beside the length.
        body: the body.

    Raises:
        Left: the caller has disconnected, or does not read.
    """
    headers = [*headers, *scope.get("rlvr.headers", ()), (b"content-length", b"%d" % len(body))]
    connection = scope.get("rlvr.connection")
    if connection is not None:
        await _require_room(connection)
        if not connection.answer(status, headers, body):
            raise Left("disconnected")
        return
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["method"] == "HEAD":
        body = b""
    await send({"type": "http.response.body", "body": body})


async def _require_room(connection: Any) -> None:
    """Wait for a caller that has not read its last answer yet.

    Raises:
        Left: it does not.
    """
    if connection.is_full and not await connection.has_room():
        raise Left("disconnected")


class PieceWriter:
    """Sends an answer in pieces, as fast as the caller reads.

    Args:
        scope, send: as ASGI gives them.
        stall_s: seconds within which the caller must read a piece.

    Attributes:
        began: whether the head was sent.
    """

    def __init__(self, scope: Scope, send: Send, stall_s: float) -> None:
        self._connection = scope.get("rlvr.connection")
        self._send, self._stall_s = send, stall_s
        self._headers = scope.get("rlvr.headers", ())
        self.began = False

    async def begin(self, *headers: tuple[bytes, bytes]) -> None:
        """Send the head, with status 200.

        Args:
            headers: names in small letters, and values.

        Raises:
            Left: the caller has disconnected, or does not read.
        """
        if self._connection is not None:
            await _require_room(self._connection)
        self.began = True
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [*headers, *self._headers],
        }
        await self._send(head)

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        """Send a piece once there is room for it: the server holds back while the caller does not
        read.

        Args:
            piece: bytes.
            more: whether another one follows.

        Raises:
            Left: the caller does not read.
        """
        message = {"type": "http.response.body", "body": piece, "more_body": more}
        # There is room: without a timer, which costs more than the write.
        if self._connection is not None and not self._connection.is_full:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._stall_s):
                await self._send(message)
        except TimeoutError:
            raise Left("stalled") from None


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
        # The request's own task: what it awaits ends now.
        task.cancel()

    loop = asyncio.get_running_loop()
    watching = loop.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # Cancelled by `watch` alone: then the caller has left.
        if left and task.uncancel() == 0:
            raise Left("disconnected") from None
        raise
    finally:
        watching.cancel()
