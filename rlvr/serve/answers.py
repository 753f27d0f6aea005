"""What is sent back: one JSON object, NDJSON as the lines come, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from rlvr.serve.jobs import Desk, Job, Refused
from rlvr.serve.service import Service

__all__ = ["Answer", "error_response"]

_LEAVE_S = 10.0  # beyond the request's own time: to tell the caller, or to find that nobody reads


def error_response(refused: Refused) -> Response:
    """`{"error": …}` with its status; a caller that may come again is told when."""
    headers = {}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(refused.retry_after_s)
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.status == 503:
        headers["Connection"] = "close"  # whoever takes our place will have another
    return Response(_dumped({"error": str(refused)}), refused.status, headers, "application/json")


class Answer(Response):
    """A job's lines on their way to the caller.  Gives up its job when the caller leaves.

    Args:
        stream: one line each, as they come; otherwise all in one object.
        shape: makes that object of the lines; `{"env": …, "scores": […]}` unless given.
    """

    def __init__(
        self,
        service: Service,
        desk: Desk,
        job: Job,
        *,
        stream: bool = False,
        shape: Callable[[Sequence[bytes]], Any] | None = None,
    ) -> None:
        super().__init__(media_type="application/x-ndjson" if stream else "application/json")
        del self.headers["content-length"]  # not known yet
        self._service, self._desk, self._job, self._shape = service, desk, job, shape
        self._send_lines = self._send_stream if stream else self._send_whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_in_time(scope, receive, send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            most = self._service.limits.request_s + _LEAVE_S
            await asyncio.wait({sending, leaving}, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            self._service.leave(self._desk, self._job)

    async def _send_in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._began = False
        try:
            try:
                async with asyncio.timeout(self._service.limits.request_s):
                    await self._send_lines(send)
            except TimeoutError:
                most = self._service.limits.request_s
                message = (
                    f"{len(self._job.lines)} of {len(self._job.rows)} rows were scored within {most:g} s; send fewer"
                )
                raise Refused(504, "too-long", message) from None
        except Refused as refused:
            self._service.metrics.count("rlvr_rejected_total", reason=refused.reason)
            if self._began:  # the status has left: a last line that is no row's tells
                told = {"stopped": str(refused), "status": refused.status}
                await send({"type": "http.response.body", "body": _dumped(told) + b"\n"})
            else:
                await error_response(refused)(scope, receive, send)

    async def _send_whole(self, send: Send) -> None:
        lines = [line async for some in self._job.read() for line in some]
        if self._shape is None:
            body = b'{"env": %s, "scores": [%s]}' % (_dumped(self._desk.name), b", ".join(lines))
        else:
            body = _dumped(self._shape(lines))
        self.headers["content-length"] = str(len(body))
        await self._begin(send)
        await send({"type": "http.response.body", "body": body})

    async def _send_stream(self, send: Send) -> None:
        async for some in self._job.read():
            if not self._began:
                await self._begin(send)
            body = b"".join(line + b"\n" for line in some)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if not self._began:
            await self._begin(send)
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        self._began = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _dumped(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
