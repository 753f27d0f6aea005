"""Responses: one JSON object, NDJSON line by line, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from rlvr.serve.jobs import EnvironmentQueue, Job, Refused
from rlvr.serve.service import Service

__all__ = ["ScoresResponse", "error_response"]

_GRACE_S = 10.0  # beyond the request's own time: to send an error, or to notice that the caller stopped reading


def error_response(refused: Refused) -> Response:
    """`{"error": …}` with its status, and `Retry-After` where the request may be sent again.

    Args:
        refused: the reason.
    """
    headers = {}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(refused.retry_after_s)
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.status == 503:
        headers["Connection"] = (
            "close"  # the caller's next request needs a new connection, to the service that takes over
        )
    return Response(_json_bytes({"error": str(refused)}), refused.status, headers, "application/json")


class ScoresResponse(Response):
    """Sends the lines of a job.  Releases the job when the caller disconnects.

    Args:
        service: the service, which knows the time limits.
        queue: the queue of the job's environment.
        job: the rows of the request, with the lines that threads put in.
        stream: True sends each line when it is there; False sends all of them in one object.
        shape: makes that object from the lines; by default `{"env": …, "scores": […]}`.
    """

    def __init__(
        self,
        service: Service,
        queue: EnvironmentQueue,
        job: Job,
        *,
        stream: bool = False,
        shape: Callable[[Sequence[bytes]], Any] | None = None,
    ) -> None:
        super().__init__(media_type="application/x-ndjson" if stream else "application/json")
        del self.headers["content-length"]  # not known yet
        self._service, self._queue, self._job, self._shape = service, queue, job, shape
        self._send_lines = self._send_stream if stream else self._send_whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_in_time(scope, receive, send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            limit_s = self._service.limits.request_s + _GRACE_S
            await asyncio.wait({sending, leaving}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            self._service.release(self._queue, self._job)

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
            if self._began:  # the status is sent already: the error goes into a last line, which is no row's
                last = {"stopped": str(refused), "status": refused.status}
                await send({"type": "http.response.body", "body": _json_bytes(last) + b"\n"})
            else:
                await error_response(refused)(scope, receive, send)

    async def _send_whole(self, send: Send) -> None:
        lines = [line async for batch in self._job.read() for line in batch]
        if self._shape is None:
            body = b'{"env": %s, "scores": [%s]}' % (_json_bytes(self._queue.name), b", ".join(lines))
        else:
            body = _json_bytes(self._shape(lines))
        self.headers["content-length"] = str(len(body))
        await self._begin(send)
        await send({"type": "http.response.body", "body": body})

    async def _send_stream(self, send: Send) -> None:
        async for batch in self._job.read():
            if not self._began:
                await self._begin(send)
            body = b"".join(line + b"\n" for line in batch)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if not self._began:
            await self._begin(send)
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        self._began = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
