"""The routes: requests are read within their limits, and every response is JSON, errors included."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.serve import schema
from rlvr.serve.jobs import Refused
from rlvr.serve.openrlhf import items_of, response_of
from rlvr.serve.responses import ScoresResponse, error_response
from rlvr.serve.service import MIB, RequestMemory, Service

__all__ = ["app_of"]

_OPEN = ("/health", "/health/live", "/docs", "/openapi.json")  # need no key: they reveal nothing
_PATHS = ("/score", "/openrlhf", "/metrics", *_OPEN)
_MAX_ID_LETTERS = 200


def app_of(service: Service) -> FastAPI:
    """The service as an ASGI application, which closes the service when the server ends.

    Args:
        service: what the routes score with.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="rlvr",
        version=version("rlvr"),
        description=schema.ABOUT,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=_handlers(service),
        dependencies=[Security(HTTPBearer(auto_error=False))] * service.wants_key,  # a field for the key in /docs
    )
    app.add_middleware(_Middleware, service=service)

    @app.post("/score", openapi_extra=schema.SCORE)
    async def score(request: Request) -> Response:
        """Score completions: one score per row, in the order of the rows; a row that cannot be used gets an error.

        With the header `Accept: application/x-ndjson` the scores come one per line, each as soon as it is there.
        """
        body, asked = await _read(service, request)
        queue = service.queue(_text(asked, "env"))
        job = service.job(queue, _rows(service, asked), _text(asked, "request_id"), _digest(body))
        stream = "application/x-ndjson" in request.headers.get("accept", "")
        return ScoresResponse(service, queue, job, stream=stream)

    @app.post("/openrlhf", openapi_extra=schema.OPENRLHF)
    @app.post("/openrlhf/{env:path}", openapi_extra=schema.OPENRLHF)
    async def openrlhf(request: Request, env: str | None = None) -> Response:
        """The remote reward model of OpenRLHF: give this address as its `--remote_rm_url`."""
        _, asked = await _read(service, request)
        queue = service.queue(env)
        rows = _rows(service, {"rows": items_of(queue.scorer.env, asked)})
        return ScoresResponse(service, queue, service.job(queue, rows, None, b""), shape=response_of)

    @app.get("/health", openapi_extra=schema.HEALTH)
    async def health() -> Response:
        """Readiness: 200 while requests are accepted, 503 while the service stops.  Needs no key."""
        return _json({"ready": not service.draining}, 503 if service.draining else 200)

    @app.get("/health/live", openapi_extra=schema.HEALTH)
    async def live() -> Response:
        """Liveness: 200 as long as the process responds, also while the service stops.  Needs no key."""
        return _json({"live": True})

    @app.get("/metrics", openapi_extra=schema.METRICS)
    async def metrics() -> Response:
        """Counters in Prometheus's text format."""
        return Response(service.metrics.text(service.gauges()), media_type="text/plain; version=0.0.4")

    return app


class _Middleware:
    """Requires the API key, and counts: seconds, status, bytes in memory, requests under way."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 499  # the status that nginx logs when the caller disconnects first

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"]
        with self._service.track_request() as memory:
            scope["rlvr.memory"] = memory
            try:
                await self._authorize(scope, receive, send_noting_status)
            except Exception:
                status = 500 if status == 499 else status
                raise
            finally:
                label = next((known for known in _PATHS if path == known), None)
                label = label or ("/openrlhf" if path.startswith("/openrlhf/") else "other")
                self._service.metrics.count("rlvr_requests_total", path=label, status=str(status))
                self._service.metrics.observe_seconds(time.perf_counter() - started, path=label)

    async def _authorize(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), "")
        if scope["path"] in _OPEN or self._service.is_authorized(header):
            await self._app(scope, receive, send)
            return
        message = "this service wants its API key; send the header 'Authorization: Bearer KEY'"
        refused = Refused(401, "unauthorized", message)
        self._service.metrics.count("rlvr_rejected_total", reason=refused.reason)
        await error_response(refused)(scope, receive, send)


async def _read(service: Service, request: Request) -> tuple[bytes, dict[str, Any]]:
    """The body of a request, and the JSON object in it.

    Raises:
        Refused: it is too large, too slow, or no JSON object.
    """
    service.require_accepting()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        # A web page can send other types to this machine without a CORS request, but never JSON.
        raise Refused(
            415, "not-json", f"the body is {kind or 'of no stated type'}; send application/json, uncompressed"
        )
    limits, memory = service.limits, request.scope["rlvr.memory"]
    try:
        async with asyncio.timeout(limits.body_s):
            body = await _body(request, memory, int(limits.body_mib * MIB))
    except TimeoutError:
        message = f"the body was not there within {limits.body_s:g} s; send it faster, or less of it"
        raise Refused(408, "too-slow", message) from None
    try:
        asked = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "not-json", f"the body is not JSON: {str(error)[:200]}; send one JSON object") from None
    if not isinstance(asked, dict):
        raise Refused(422, "not-an-object", f"the body is a {type(asked).__name__}; send one JSON object")
    return body, asked


async def _body(request: Request, memory: RequestMemory, most: int) -> bytes:
    too_large = Refused(413, "too-large", f"the body has more than {most} bytes; send fewer rows at once")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        memory.add(len(part))
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _rows(service: Service, asked: dict[str, Any]) -> list[Any]:
    rows = asked.get("rows")
    if not isinstance(rows, list):
        what = "missing" if rows is None else f"a {type(rows).__name__}"
        raise Refused(422, "no-rows", f"'rows' is {what}; send a list of rows, each with its 'completion'")
    if len(rows) > service.limits.request_rows:
        most = service.limits.request_rows
        raise Refused(413, "too-many-rows", f"the request has {len(rows)} rows and the limit is {most}; split it")
    return rows


def _text(asked: dict[str, Any], name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= _MAX_ID_LETTERS):
        raise Refused(
            422, f"bad-{name}", f"{name!r} is {str(value)[:60]!r}; send a text of 1 to {_MAX_ID_LETTERS} letters"
        )
    return value


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def _handlers(service: Service) -> dict[int | type[Exception], Any]:
    """The response to each kind of exception."""

    async def refused(request: Request, error: Refused) -> Response:
        service.metrics.count("rlvr_rejected_total", reason=error.reason)
        return error_response(error)

    async def no_such_page(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:200]}: {error.detail}; see /docs for what there is"
        return error_response(Refused(error.status_code, "no-such-page", message))

    async def disconnected(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the caller is gone; this is for the metrics alone

    async def bug(request: Request, error: Exception) -> Response:
        message = f"a bug in the service, {type(error).__name__}; its log has the traceback"
        return error_response(Refused(500, "bug", message))

    return {Refused: refused, HTTPException: no_such_page, ClientDisconnect: disconnected, Exception: bug}
