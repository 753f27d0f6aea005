"""An application: who may ask, which route answers, what is refused, and what is counted."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from rlvr.http.audit import AuditLog
from rlvr.http.body import BodyReader
from rlvr.http.keys import KeyCheck
from rlvr.http.limits import HttpLimits
from rlvr.http.memory import Memory, MemoryShare
from rlvr.http.metrics import CONTENT_TYPE, Metrics
from rlvr.http.refused import Refused
from rlvr.http.request import HttpRequest
from rlvr.http.responses import Left, Response, WholeResponse, json_error, json_response

__all__ = [
    "Application",
    "ErrorForm",
    "HostRule",
    "HttpState",
    "Route",
    "RouteHandler",
    "is_address",
    "is_loopback_name",
    "standard_routes",
]

RouteHandler: TypeAlias = Callable[[HttpRequest], Awaitable[Response]]

_LIVE = "/health/live"

_log = logging.getLogger("rlvr.http")


@dataclass(frozen=True, slots=True)
class HostRule:
    """Which names of this machine a request may be for: a web page of elsewhere
    may give it another one.

    Attributes:
        accepts: called with the value of the header `Host`, "" if there is none.
        message: what a request for another name is told.
    """

    accepts: Callable[[str], bool]
    message: str


class HttpState:
    """What the requests of an application share.

    Args:
        limits: sizes and times.
        keys: who may ask.
        metrics: counts; None for numbers that nothing reads.
        hosts: which names it may be asked under; None for any.
        audit: a log of all requests; None for none.

    Attributes:
        memory: of all requests.
        bodies: reads them.
        under_way: requests whose answer is not sent yet.
        open: connections.
        draining: whether requests that start work are refused, as the application stops.
    """

    def __init__(
        self,
        limits: HttpLimits,
        keys: KeyCheck,
        metrics: Metrics | None = None,
        hosts: HostRule | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.limits, self.keys, self.hosts, self.audit = limits, keys, hosts, audit
        self.metrics = Metrics() if metrics is None else metrics
        self.memory = Memory(limits.held_mib)
        self.bodies = BodyReader(limits)
        self.under_way = 0
        self.open = 0
        self.draining = False

    def close(self) -> None:
        """End the thread that parses bodies, and close the log."""
        self.bodies.close()
        if self.audit is not None:
            self.audit.close()

    def require_accepting(self) -> None:
        """Refuse requests that would start work while the application stops.

        Raises:
            Refused: it is stopping.
        """
        if self.draining:
            raise Refused(
                503,
                "draining",
                "the service is stopping and takes no more requests; ask again in 1 s",
                retry_after_s=1,
            )

    def update_metrics(self) -> None:
        """Bring the gauges that every application has up to date."""
        self.metrics.update(
            {
                "rlvr_under_way": {"": self.under_way},
                "rlvr_connections": {"": self.open},
                "rlvr_held_bytes": {"": self.memory.held},
                "rlvr_ready": {"": int(not self.draining)},
            }
        )


@dataclass(frozen=True, slots=True)
class Route:
    """What answers at a path.

    Attributes:
        method: GET answers HEAD too.
        path: with names in braces for parts that vary: `/openrlhf/{env}`.
        handler: makes the response.
        summary: one line for the documentation.
        right: what a key must allow, see `rlvr.http.keys.Caller`; "" for no right.
        is_open: whether it needs no key: it must reveal nothing.
        reads, answers: types of the bodies, for the documentation; None for none.
        example: a body.
        lines: whether the answer may come as NDJSON, a line for each item.
        label: of the metrics; "" for the path.
    """

    method: str
    path: str
    handler: RouteHandler
    summary: str = ""
    right: str = ""
    is_open: bool = False
    reads: Any = None
    answers: Any = None
    example: Any = None
    lines: bool = False
    label: str = ""


class ErrorForm(Protocol):
    """Makes the response of a refusal, in the form in which an
    application's callers read errors."""

    def __call__(self, refused: Refused, /) -> WholeResponse:
        """The response."""


class Application:
    """An ASGI application.

    Args:
        state: what its requests share.
        routes: what answers.  `/health`, `/health/live` and `/metrics` are added by
            `standard_routes`.
        errors: the form of errors.
        headers: of every answer.
        refusal_of: what an exception of a handler means; None for a bug, which is status 500.
        update_metrics: brings its gauges up to date, where several processes show them.
        on_abort: called when the time to drain is over.
        websockets: what converses by WebSocket, at any path, with callers who may ask; None for
            nothing.
    """

    def __init__(
        self,
        state: HttpState,
        routes: Sequence[Route],
        *,
        errors: ErrorForm = json_error,
        headers: Mapping[str, str] | None = None,
        refusal_of: Callable[[Exception], Refused | None] = lambda error: None,
        update_metrics: Callable[[], None] = lambda: None,
        on_abort: Callable[[], None] = lambda: None,
        websockets: ASGIApp | None = None,
    ) -> None:
        self.websockets = websockets
        self.state, self.routes = state, tuple(routes)
        self.update_metrics, self.on_abort = update_metrics, on_abort
        self._errors, self._refusal_of = errors, refusal_of
        self._headers = [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ]
        self._exact: dict[str, dict[str, Route]] = {}
        served = ", ".join(f"{route.method} {route.path}" for route in self.routes)
        has_docs = any(route.path == "/docs" for route in self.routes)
        self._hint = "see /docs for what there is" if has_docs else f"served are {served}"
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        by_path: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            by_path.setdefault(route.path, {})[route.method] = route
        for path, methods in by_path.items():
            if "{" in path:
                self._patterns.append((compile_path(path)[0], methods))
            else:
                self._exact[path] = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await self._converse(scope, receive, send)
            return
        started, state = time.perf_counter(), self.state
        methods, parts = self._methods_of(scope["path"])
        # A HEAD is answered as a GET, without the body.
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        labelled_route = route or next(iter(methods.values()), None)
        label = "other" if labelled_route is None else labelled_route.label or labelled_route.path
        # Sent by the server with every response, refusals as well.
        if self._headers:
            scope["rlvr.headers"] = self._headers
        share = MemoryShare(state.memory)
        state.under_way += 1
        response: Response | None = None
        # Freed in any case, unless a response of parts took it over.
        try:
            response = await self._answer(
                scope, receive, send, share, (methods, route, parts), label
            )
        finally:
            if not share.taken_over:
                share.release()
            # nginx's number for a caller that left.
            status = 499 if response is None else response.status
            # Taken out, or the job would live as long as the connection.
            self._count(scope, label, status, started, scope.pop("rlvr.audit", dict))

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a WebSocket answered, if its caller may ask: it is a request until it ends."""
        state, label = self.state, "websocket"
        started, status = time.perf_counter(), 403
        state.under_way += 1
        try:
            # Reversed: of two headers with one name the first counts.
            self._require_admitted(scope, dict(reversed(scope["headers"])))
            state.require_accepting()
            if self.websockets is None:
                raise Refused(404, "no-such-page", self._hint)
            status = 101
            await self.websockets(scope, receive, send)
        except Refused as refused:
            state.metrics.count("rlvr_rejected_total", reason=refused.reason)
            # 1008 of RFC 6455, section 7.4.1: a policy was violated.
            await send({"type": "websocket.close", "code": 1008, "reason": refused.reason})
        except WebSocketDisconnect:
            pass
        except Exception:  # noqa: BLE001  as in _answer
            _log.exception("a conversation failed")
        finally:
            self._count(scope, label, status, started)

    def _count(
        self,
        scope: Scope,
        label: str,
        status: int,
        started: float,
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Count a request that has ended, and write it into the log."""
        state, took_s = self.state, time.perf_counter() - started
        state.under_way -= 1
        state.metrics.count_request(label, status, took_s)
        if state.audit is not None:
            caller, method = scope.get("rlvr.caller", ""), scope.get("method", "GET")
            state.audit.write(caller, method, label, status, took_s, more())

    def _methods_of(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method, and what stands for the names in braces."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        # Few of them, so they are tried in turn.
        for pattern, methods in self._patterns:
            match = pattern.match(path)
            if match:
                return methods, match.groupdict()
        return {}, {}

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        share: MemoryShare,
        place: tuple[dict[str, Route], Route | None, dict[str, str]],
        label: str,
    ) -> Response | None:
        """Send a response, and give it back; None if the caller left before there was one."""
        response: Response | None = None
        try:
            try:
                request = self._admit(scope, receive, share, *place)
                assert place[1] is not None
                response = await place[1].handler(request)
                scope["rlvr.audit"] = getattr(response, "audit_fields", dict)
                await response(scope, receive, send)
            # Of the handler, and of sending its response.
            except Exception as error:
                response = self._refusal(error)
                if response is None:
                    raise
                await response(scope, receive, send)
        except (ClientDisconnect, Left) as left:
            # A caller that does not read is disconnected, and its bytes are given up.
            if str(left) == "stalled" and (connection := scope.get("rlvr.connection")) is not None:
                connection.end("stalled")
                await asyncio.sleep(0)  # so that the server knows
        # a bug of rlvr or of an environment: the log has the traceback
        except Exception as error:  # noqa: BLE001
            _log.exception("a request for %s failed", label)
            message = f"a bug in the service, {type(error).__name__}; its log has the traceback"
            response = self._error(Refused(500, "bug", message))
            # The response may have begun: then there is no second one.
            with suppress(Left):
                await response(scope, receive, send)
        return response

    def _refusal(self, error: Exception) -> WholeResponse | None:
        """The response to a request that raised this; None if that is no refusal.

        A function of its own: were the refusal a local where it was caught, it and that frame would
        be a cycle, which holds the body until the garbage collector comes.
        """
        refused = error if isinstance(error, Refused) else self._refusal_of(error)
        if refused is None:
            return None
        self.state.metrics.count("rlvr_rejected_total", reason=refused.reason)
        return self._error(refused)

    def _error(self, refused: Refused) -> WholeResponse:
        response = self._errors(refused)
        if refused.retry_after_s is not None:
            response.headers["retry-after"] = str(refused.retry_after_s)
        if refused.status == 401:
            response.headers["www-authenticate"] = self.state.keys.challenge
        if refused.closes:
            response.headers["connection"] = "close"
        return response

    def _admit(
        self,
        scope: Scope,
        receive: Receive,
        share: MemoryShare,
        methods: Mapping[str, Route],
        route: Route | None,
        parts: Mapping[str, str],
    ) -> HttpRequest:
        """The request, once it may be answered.

        Raises:
            Refused: it may not.
        """
        path = scope["path"]
        headers = dict(reversed(scope["headers"]))  # of two with one name the first counts
        caller = self._require_admitted(scope, headers, route)
        if route is None:
            status, what = (405, "Method Not Allowed") if methods else (404, "Not Found")
            raise Refused(
                status,
                "no-such-page",
                f"{scope['method'][:20]} {path[:200]}: {what}; {self._hint}",
            )
        rights = getattr(caller, "rights", None)
        # A key whose line names no rights may do everything.
        if route.right and rights is not None and route.right not in rights:
            message = (
                f"this key has the rights {', '.join(sorted(rights))}; "
                f"{path[:200]} needs {route.right!r}"
            )
            raise Refused(403, "no-right", message)
        return HttpRequest(scope, receive, headers, share, caller, parts)

    def _require_admitted(
        self, scope: Scope, headers: Mapping[bytes, bytes], route: Route | None = None
    ) -> object:
        """The caller, None where no key is wanted.

        Raises:
            Refused: there are too many, or it has no key, or asks under another name.
        """
        state, connection = self.state, scope.get("rlvr.connection")
        crowded = state.under_way > state.limits.connections or (
            connection is not None and connection.crowded
        )
        # The question whether the process lives is always answered.
        if crowded and scope["path"] != _LIVE:
            raise Refused(
                503, "crowded", "there are too many requests; ask again in 1 s", retry_after_s=1
            )
        # A page of another site may have its name lead to this machine (DNS rebinding).
        if state.hosts is not None and not state.hosts.accepts(
            # Header bytes are latin-1, so nothing fails to decode.
            headers.get(b"host", b"").decode("latin-1")
        ):
            raise Refused(421, "wrong-host", state.hosts.message)
        if not state.keys.any or (route is not None and route.is_open):
            return None
        authorization = headers.get(b"authorization", b"")
        # as Anthropic's clients send it
        if not authorization and (key := headers.get(b"x-api-key")):
            authorization = b"Bearer " + key
        caller = state.keys.caller(authorization.decode("latin-1"))
        if caller is None:
            raise Refused(401, "unauthorized", state.keys.refusal)
        scope["rlvr.caller"] = str(getattr(caller, "name", ""))
        return caller


async def _live(receive: Receive, send: Send) -> None:
    """Answer a server that announces its start and end: nothing is made or closed with them."""
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})


def standard_routes(
    state: HttpState,
    *,
    readiness: Callable[[], Mapping[str, object]] = dict,
    update_metrics: Callable[[], None] = lambda: None,
) -> list[Route]:
    """Readiness, liveness and metrics.

    Args:
        state: of the application.
        readiness: what keeps the application from its work, by name; empty while nothing does.
        update_metrics: brings gauges of the application up to date.
    """

    async def health(request: HttpRequest) -> Response:
        problems = (
            {"stopping": "it takes no more requests"} if state.draining else dict(readiness())
        )
        status: dict[str, object] = {"ready": not problems}
        if problems:
            status["problems"] = problems
        return json_response(status, 503 if problems else 200)

    async def live(request: HttpRequest) -> Response:
        return json_response({"live": True})

    async def metrics(request: HttpRequest) -> Response:
        state.update_metrics()
        update_metrics()
        return WholeResponse(state.metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route(
            "GET",
            "/health",
            health,
            "Readiness: 200 while a row can be judged, else 503 with the reason. Needs no key.",
            is_open=True,
            answers=dict[str, Any],
        ),
        Route(
            "GET",
            _LIVE,
            live,
            "Liveness: 200 as long as the process responds. Needs no key.",
            is_open=True,
            answers=dict[str, bool],
        ),
        Route("GET", "/metrics", metrics, "Counters in Prometheus's text format.", right="metrics"),
    ]


# Cached, as every request asks: a client names one host.
@functools.lru_cache(maxsize=64)
def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine's loopback, and no name that another machine gives
    it.

    Args:
        host: the header; "" if there was none, which no browser leaves out.
    """
    name = _name_of(host)
    if not host or name == "localhost" or name.endswith(".localhost"):
        # RFC 6761: names below localhost are loopback, whatever a name server says.
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(host: str, names: Sequence[str] = ()) -> bool:
    """Whether a Host header is an address, which cannot be rebound, or one of some names.

    Args:
        host: the header; "" if there was none.
        names: in small letters, beside localhost.
    """
    name = _name_of(host)
    if name == "localhost" or name in names:
        return True
    # An address cannot be made to point elsewhere.
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; "" for what is none."""
    name, colon, port = host.rpartition(":")
    # Only digits: "[::1]" ends with a colon and a one.
    if not colon or not (port.isascii() and port.isdecimal()):
        name = host
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        # An IPv6 address without brackets is no host of a URL.
        return ""
    # A final dot is the root's, and the same name.
    return name.lower().rstrip(".")
