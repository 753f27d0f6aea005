"""The routes: requests are read within their limits, and every answer is JSON, errors included."""

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
from rlvr.serve.answers import Answer, error_response
from rlvr.serve.jobs import Refused
from rlvr.serve.openrlhf import items_of, reply
from rlvr.serve.service import MIB, Service, Visit

__all__ = ["app_of"]

_OPEN = ("/health", "/health/live", "/docs", "/openapi.json")  # no key, and nothing to be learned
_PATHS = ("/score", "/openrlhf", "/metrics", *_OPEN)
_ID_LETTERS = 200


def app_of(service: Service) -> FastAPI:
    """The service as an ASGI application; it closes the service when the server ends."""

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
    app.add_middleware(_Door, service=service)

    @app.post("/score", openapi_extra=schema.SCORE)
    async def score(request: Request) -> Response:
        """Score completions: one score per row, in the order of the rows, a bad row's error in its place.

        With the header `Accept: application/x-ndjson` they come one per line, as they are found.
        """
        body, asked = await _read(service, request)
        desk = service.desk(_text(asked, "env"))
        job = service.job(desk, _rows(service, asked), _text(asked, "request_id"), _digest(body))
        stream = "application/x-ndjson" in request.headers.get("accept", "")
        return Answer(service, desk, job, stream=stream)

    @app.post("/openrlhf", openapi_extra=schema.OPENRLHF)
    @app.post("/openrlhf/{env:path}", openapi_extra=schema.OPENRLHF)
    async def openrlhf(request: Request, env: str | None = None) -> Response:
        """The remote reward of OpenRLHF: its `--remote_rm_url` is this address."""
        _, asked = await _read(service, request)
        desk = service.desk(env)
        rows = _rows(service, {"rows": items_of(desk.scorer.env, asked)})
        return Answer(service, desk, service.job(desk, rows, None, b""), shape=reply)

    @app.get("/health", openapi_extra=schema.HEALTH)
    async def health() -> Response:
        """Is it ready?  200 while requests are taken, 503 while the service stops.  Needs no key."""
        return _json({"ready": not service.draining}, 503 if service.draining else 200)

    @app.get("/health/live", openapi_extra=schema.HEALTH)
    async def live() -> Response:
        """Is it alive?  200 as long as anything answers, also while the service stops.  Needs no key."""
        return _json({"live": True})

    @app.get("/metrics", openapi_extra=schema.METRICS)
    async def metrics() -> Response:
        """Counters in Prometheus's text format."""
        return Response(service.metrics.text(service.gauges()), media_type="text/plain; version=0.0.4")

    return app


class _Door:
    """Lets in who has the key, and keeps the books: time, status, bytes, requests under way."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 499  # nginx's number for a caller who has left

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"]
        with self._service.visit() as visit:
            scope["rlvr.visit"] = visit
            try:
                await self._admit(scope, receive, noted)
            except Exception:
                status = 500 if status == 499 else status
                raise
            finally:
                label = next((known for known in _PATHS if path == known), None)
                label = label or ("/openrlhf" if path.startswith("/openrlhf/") else "other")
                self._service.metrics.count("rlvr_requests_total", path=label, status=str(status))
                self._service.metrics.took(time.perf_counter() - started, path=label)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), "")
        if scope["path"] in _OPEN or self._service.knows(shown):
            await self._app(scope, receive, send)
            return
        message = "this service wants its API key; send the header 'Authorization: Bearer KEY'"
        refused = Refused(401, "unauthorized", message)
        self._service.metrics.count("rlvr_rejected_total", reason=refused.reason)
        await error_response(refused)(scope, receive, send)


async def _read(service: Service, request: Request) -> tuple[bytes, dict[str, Any]]:
    """The body and the object in it.

    Raises:
        Refused: it is too large, too slow, or no JSON object.
    """
    service.require_open()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        # What a web page can send without asking is never JSON: no page may use a browser to reach this machine.
        raise Refused(
            415, "not-json", f"the body is {kind or 'of no stated type'}; send application/json, uncompressed"
        )
    limits, visit = service.limits, request.scope["rlvr.visit"]
    try:
        async with asyncio.timeout(limits.body_s):
            body = await _body(request, visit, int(limits.body_mib * MIB))
    except TimeoutError:
        message = f"the body was not there within {limits.body_s:g} s; send it faster, or less of it"
        raise Refused(408, "too-slow", message) from None
    try:
        asked = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "not-json", f"the body is not JSON: {str(error)[:200]}; send one JSON object") from None
    if not isinstance(asked, dict):
        raise Refused(422, "not-an-object", f"the body is a {type(asked).__name__}; send one JSON object")
    return body, asked


async def _body(request: Request, visit: Visit, most: int) -> bytes:
    too_large = Refused(413, "too-large", f"the body has more than {most} bytes; send fewer rows at once")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        visit.hold(len(part))
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _no_number(name: str) -> Any:
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
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= _ID_LETTERS):
        raise Refused(422, f"bad-{name}", f"{name!r} is {str(value)[:60]!r}; send a text of 1 to {_ID_LETTERS} letters")
    return value


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def _handlers(service: Service) -> dict[int | type[Exception], Any]:
    """What each exception is answered with."""

    async def refused(request: Request, error: Refused) -> Response:
        service.metrics.count("rlvr_rejected_total", reason=error.reason)
        return error_response(error)

    async def no_such_page(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:200]}: {error.detail}; see /docs for what there is"
        return error_response(Refused(error.status_code, "no-such-page", message))

    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # to nobody

    async def bug(request: Request, error: Exception) -> Response:
        message = f"a bug of ours, {type(error).__name__}; the log here has the rest"
        return error_response(Refused(500, "bug", message))

    return {Refused: refused, HTTPException: no_such_page, ClientDisconnect: gone, Exception: bug}
