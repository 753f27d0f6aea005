"""The routes: requests are read within their limits, and every response is JSON, errors included."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from rlvr.environment import Environment
from rlvr.errors import DataError
from rlvr.scoring.items import COLUMNS
from rlvr.scoring.wire import decoded_item
from rlvr.serve import schema
from rlvr.serve.body import Asked
from rlvr.serve.jobs import MOST_ID_LETTERS
from rlvr.serve.limits import ServiceLimits
from rlvr.serve.memory import MemoryShare
from rlvr.serve.metrics import CONTENT_TYPE
from rlvr.serve.openrlhf import items_of, response_of
from rlvr.serve.refused import Refused
from rlvr.serve.responses import (
    Left,
    Response,
    ScoresResponse,
    WholeResponse,
    error_response,
    json_response,
    while_connected,
)
from rlvr.serve.rewards import RewardLines, RewardModelQueue
from rlvr.serve.service import Service

__all__ = ["app_of"]

_LIVE = "/health/live"
_OPEN = ("/health", _LIVE, "/docs", "/openapi.json")  # need no key: they reveal nothing

_Handler: TypeAlias = Callable[[Asked], Awaitable[Response]]

_log = logging.getLogger("rlvr.serve")


def app_of(service: Service) -> ASGIApp:
    """The service as an ASGI application.

    Args:
        service: what the routes score with.
    """
    return _App(service)


class _App:
    """Requires the API key, finds the route, and counts: seconds, status, memory, requests under way."""

    def __init__(self, service: Service) -> None:
        self._service = service
        routes = _Routes(service)
        self._routes: dict[str, dict[str, _Handler]] = {
            "/score": {"POST": routes.score},
            "/observe": {"POST": routes.observe},
            "/envs": {"GET": routes.envs},
            "/openrlhf": {"POST": routes.openrlhf},
            "/reward-model": {"GET": routes.reward_model},
            "/rewards": {"POST": routes.rewards},
            "/health": {"GET": routes.health},
            _LIVE: {"GET": routes.live},
            "/metrics": {"GET": routes.metrics},
            "/docs": {"GET": routes.docs},
            "/openapi.json": {"GET": routes.openapi},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            raise NotImplementedError(
                f"this is an application for HTTP alone, not for {scope['type']}"
            )
        started, status, service = time.perf_counter(), 499, self._service
        path = scope["path"]
        label = (
            path
            if path in self._routes
            else "/openrlhf"
            if path.startswith("/openrlhf/")
            else "other"
        )
        share = MemoryShare(service.memory)
        service.under_way += 1
        try:
            status = await self._answer(scope, receive, send, share, label)
        finally:
            service.under_way -= 1
            if not share.taken_over:
                share.release()
            service.metrics.count_request(label, status, time.perf_counter() - started)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, share: MemoryShare, label: str
    ) -> int:
        """Send a response, and give its status."""
        response: Response | None = None
        try:
            try:
                response = await self._response(scope, receive, share, label)
                await response(scope, receive, send)
            except Refused as refused:
                self._service.metrics.count("rlvr_rejected_total", reason=refused.reason)
                response = error_response(refused)
                await response(scope, receive, send)
        except (ClientDisconnect, Left) as left:
            if str(left) == "stalled" and (connection := scope.get("rlvr.connection")) is not None:
                connection.end("stalled")
                await asyncio.sleep(0)  # so that the server knows
        except Exception as error:  # noqa: BLE001  a bug of rlvr or of an environment: the log has the traceback
            _log.exception("a request for %s failed", label)
            message = f"a bug in the service, {type(error).__name__}; its log has the traceback"
            response = error_response(Refused(500, "bug", message))
            with suppress(Left):
                await response(scope, receive, send)
        return 499 if response is None else response.status

    async def _response(
        self, scope: Scope, receive: Receive, share: MemoryShare, label: str
    ) -> Response:
        path, method, service = scope["path"], scope["method"], self._service
        connection = scope.get("rlvr.connection")
        crowded = service.under_way > service.limits.connections or (
            connection is not None and connection.crowded
        )
        if crowded and path != _LIVE:
            raise Refused(
                503, "crowded", "there are too many requests; ask again in 1 s", retry_after_s=1
            )
        headers = dict(reversed(scope["headers"]))  # of two with one name the first counts
        if service.loopback_only and not _is_loopback(
            headers.get(b"host", b"localhost").decode("latin-1")
        ):
            message = "the Host header is not this machine's loopback, as if a web page of elsewhere asked; set a key"
            raise Refused(421, "wrong-host", message)
        caller = self._caller(headers.get(b"authorization", b"").decode("latin-1"), path)
        handlers = self._routes.get(label, {})
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            status, what = (405, "Method Not Allowed") if handlers else (404, "Not Found")
            raise Refused(
                status,
                "no-such-page",
                f"{method[:20]} {path[:200]}: {what}; see /docs for what there is",
            )
        return await handler(Asked(scope, receive, headers, share, caller))

    def _caller(self, authorization: str, path: str) -> str:
        """The name of the caller's key.

        Raises:
            Refused: it sends none, and needs one.
        """
        if path in _OPEN or not self._service.keys.any:
            return ""
        caller = self._service.keys.caller(authorization)
        if caller is None:
            message = "this service wants its API key; send the header 'Authorization: Bearer KEY'"
            raise Refused(401, "unauthorized", message)
        return caller


class _Routes:
    """What each path does."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def score(self, asked: Asked) -> Response:
        """Score completions: one score per row, in the order of the rows; a row that cannot be used gets an error.

        With the header `Accept: application/x-ndjson` the scores come one per line, each as soon as it is there.
        """
        service = self._service
        service.require_accepting()
        body = await service.bodies.read(asked)
        queue = service.queue(_text(body.asked, "env"))
        request_id = _text(body.asked, "request_id")
        rows = _rows(service, body.asked)
        if type(queue.scorer.env).task_of is Environment.task_of:
            _drop_unread(rows)
        job = service.job(
            queue, rows, asked.share, request_id=request_id, digest=body.digest, caller=asked.caller
        )
        stream = "application/x-ndjson" in asked.header(b"accept")
        release = functools.partial(service.release, queue, job)
        return ScoresResponse(job, queue.name, service.limits, stream=stream, on_end=release)

    async def observe(self, asked: Asked) -> Response:
        """Look at the completions of a scorer on another machine, which combines the scores itself; NDJSON."""
        service = self._service
        service.require_accepting()
        body = await service.bodies.read(asked)
        queue = service.queue_of(_text(body.asked, "identity"))
        request_id = _text(body.asked, "request_id")
        try:
            items = [
                decoded_item(row, number)
                for number, row in enumerate(_rows(service, body.asked), 1)
            ]
        except DataError as error:
            raise Refused(422, "bad-item", str(error)) from None
        job = service.job(
            queue,
            items,
            asked.share,
            request_id=request_id,
            digest=body.digest,
            caller=asked.caller,
            combines=False,
        )
        release = functools.partial(service.release, queue, job)
        return ScoresResponse(
            job, queue.name, service.limits, stream=True, beats=True, on_end=release
        )

    async def envs(self, asked: Asked) -> Response:
        """What is served: what scorers on other machines compare with what they have, and the number of workers."""
        queues = self._service.queues
        return json_response(
            {
                name: {**what, "workers": queues[name].scorer.workers}
                for name, what in self._service.identities.items()
            }
        )

    async def openrlhf(self, asked: Asked) -> Response:
        """The remote reward model of OpenRLHF: give this address as its `--remote_rm_url`."""
        service = self._service
        service.require_accepting()
        body = await service.bodies.read(asked)
        queue = service.queue(
            asked.scope["path"].removeprefix("/openrlhf").removeprefix("/") or None
        )
        _rows(
            service,
            {"rows": body.asked.get("query") if isinstance(body.asked.get("query"), list) else []},
        )
        job = service.job(
            queue, items_of(queue.scorer.env, body.asked), asked.share, caller=asked.caller
        )
        release = functools.partial(service.release, queue, job)
        return ScoresResponse(job, queue.name, service.limits, shape=response_of, on_end=release)

    async def reward_model(self, asked: Asked) -> Response:
        """Which reward model there is, for those that ask for its scores."""
        return json_response({"version": self._service.reward_queue(None).version})

    async def rewards(self, asked: Asked) -> Response:
        """What the reward model says of completions: one line per row, in the order of the rows; NDJSON."""
        service = self._service
        service.require_accepting()
        body = await service.bodies.read(asked)
        queue = service.reward_queue(_text(body.asked, "version"))
        return _RewardsResponse(queue, _rows(service, body.asked), asked.share, service.limits)

    async def health(self, asked: Asked) -> Response:
        """Readiness: 200 while requests are accepted, 503 while the service stops.  Needs no key."""
        draining = self._service.draining
        return json_response({"ready": not draining}, 503 if draining else 200)

    async def live(self, asked: Asked) -> Response:
        """Liveness: 200 as long as the process responds, also while the service stops.  Needs no key."""
        return json_response({"live": True})

    async def metrics(self, asked: Asked) -> Response:
        """Counters in Prometheus's text format."""
        self._service.update_metrics()
        return WholeResponse(self._service.metrics.text(), media_type=CONTENT_TYPE)

    async def docs(self, asked: Asked) -> Response:
        """The interface, for reading."""
        headers = {"content-security-policy": "default-src 'none'"}
        return WholeResponse(
            schema.page().encode(), 200, headers, media_type="text/html; charset=utf-8"
        )

    async def openapi(self, asked: Asked) -> Response:
        """The interface, as data."""
        return json_response(schema.openapi(wants_key=self._service.keys.any))


class _RewardsResponse:
    """Asks the reward model, and sends what it says."""

    def __init__(
        self, queue: RewardModelQueue, rows: list[Any], share: MemoryShare, limits: ServiceLimits
    ) -> None:
        self._queue, self._rows, self._share, self._limits = queue, rows, share, limits
        self.status = 499

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected(receive):
            lines = RewardLines(await self._queue.lines(self._rows))
        self._share.add(sum(map(len, lines.lines)))
        response = ScoresResponse(lines, "", self._limits, stream=True)
        try:
            await response(scope, receive, send)
        finally:
            self.status = response.status


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine's loopback, and no name that another machine gives it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name.lower().rstrip(".") == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _rows(service: Service, asked: dict[str, Any]) -> list[Any]:
    rows = asked.pop("rows", None)
    if not isinstance(rows, list):
        what = "missing" if rows is None else f"a {type(rows).__name__}"
        raise Refused(
            422, "no-rows", f"'rows' is {what}; send a list of rows, each with its 'completion'"
        )
    if len(rows) > service.limits.request_rows:
        most = service.limits.request_rows
        raise Refused(
            413,
            "too-many-rows",
            f"the request has {len(rows)} rows and the limit is {most}; split it",
        )
    return rows


def _drop_unread(rows: list[Any]) -> None:
    """Drop the columns that scoring does not read, before the rows wait."""
    for row in rows:
        # Without a reference or a task the row has the columns of the environment's own data set.
        if (
            isinstance(row, dict)
            and ("reference" in row or "task" in row)
            and not row.keys() <= COLUMNS
        ):
            for name in row.keys() - COLUMNS:
                del row[name]


def _text(asked: dict[str, Any], name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= MOST_ID_LETTERS):
        raise Refused(
            422,
            f"bad-{name}",
            f"{name!r} is {str(value)[:60]!r}; send a text of 1 to {MOST_ID_LETTERS} letters",
        )
    return value
