"""The routes of the viewer, and who may ask.

Every page is read-only.  A page of another site cannot read them: the name that a browser asked for must be this
machine's (DNS rebinding), and no page may be framed or embedded.  Texts cannot become code: templates escape them, and
the content security policy allows no script, style or image but the viewer's own two files.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import math
import re
import signal
import socket
from collections.abc import Iterable
from importlib import resources
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.errors import RlvrError, UsageError, brief
from rlvr.viewer import changes, pages
from rlvr.viewer.filters import Filters
from rlvr.viewer.rendering import render
from rlvr.viewer.sources import ReportSource, RunSource, Shown, Source

__all__ = ["app_of", "run"]

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING_S: Final = 2  # after which a page is asked for again, while rows are being read
_LIVE_S: Final = 5  # and while they are being written
_STATIC: Final = {"style.css": "text/css", "viewer.js": "text/javascript"}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::\d{1,5})?")


def app_of(
    sources: Shown, *, names: Iterable[str] = (), key: str | None = None, wait_s: float = 0.4
) -> ASGIApp:
    """The viewer as an ASGI application.

    Args:
        sources: what it shows; closed by the caller.
        names: names of this machine, beside localhost and addresses, under which it may be asked.
        key: password that a browser must give, for any user name; None for none.
        wait_s: seconds for which a page waits for rows that are being read.
    """

    def refuse(request: Request, error: Exception) -> Response:
        return _page("message.html", status=400, message=str(error), sources=sources)

    def missing(request: Request, error: Exception) -> Response:
        return _page(
            "message.html",
            status=404,
            message="there is no such page, or no such row",
            sources=sources,
        )

    def start(request: Request) -> Response:
        if len(sources.all) == 1 and not sources.refused:
            return RedirectResponse("/0/")
        return _page("start.html", sources=sources)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        text = resources.files("rlvr.viewer").joinpath("static", name).read_bytes()
        return Response(text, media_type=f"{_STATIC[name]}; charset=utf-8")

    def compare(request: Request) -> Response:
        a, b = _number(request, "a"), _number(request, "b")
        both = (source_of(a), source_of(b))
        if all(type(source) is Source for source in both):
            states = [read(source, None) for source in both]
            first, second = (request.query_params.get(name, "") for name in ("first", "second"))
            found = changes.disagreements(*both, (first, second) if first and second else None)
            least = min(states, key=lambda it: it["renew_s"] or math.inf)
            return _page(
                "disagree.html",
                **{**least, "source": None, "files": both, "numbers": (a, b)},
                **found,
            )
        live = any(source.state().live for source in both)
        return _page(
            "compare.html", _LIVE_S * live, sources=sources, **pages.side_by_side(sources, a, b)
        )

    def overview(request: Request) -> Response:
        key = _of_path(request, "key")
        source = source_of(key)
        if isinstance(source, ReportSource):
            return _page("report.html", sources=sources, source=source, report=source.report)
        if not isinstance(source, RunSource):
            return rows(request)
        state = source.state()  # first: of a run that has ended by then, all is shown
        found = pages.run_page(source, f"/{key}/")
        page = _page(
            "run.html",
            _LIVE_S * state.live,
            sources=sources,
            source=source,
            key=key,
            state=state,
            **found,
        )
        source.index.update(
            wait_s=0
        )  # behind the page: reading takes turns with whatever else is computed
        return page

    def rows(request: Request) -> Response:
        key, source = rows_of(request)
        filters = Filters.of(request.query_params)
        state = read(source, int(filters.step) if filters.step else None)
        return _page(
            "rows.html", **state, key=key, filters=filters, **pages.rows_page(source, filters)
        )

    def step_changes(request: Request) -> Response:
        key, source = rows_of(request)
        step, before = _number(request, "step"), _number(request, "before")
        if not isinstance(source, RunSource) or not {step, before} <= set(source.steps):
            raise HTTPException(404)
        state = read(source, step)
        state |= read(source, before)
        found = changes.step_changes(source, step, before)
        return _page(
            "changes.html", **state, key=key, **{**found, "parts_changed": found.pop("parts")}
        )

    def row(request: Request) -> Response:
        key, source = rows_of(request)
        n = _of_path(request, "n")
        state = read(source, n >> 32)
        piece, token = _number(request, "start", 0), _number(request, "token", 0)
        found = pages.row_page(source, n, piece, request.query_params.get("colour", ""), token)
        if found is None and not state["whole"]:
            message = f"Still reading ({state['progress']}): there is no such row yet."
            return _page("message.html", _READING_S, sources=sources, message=message)
        if found is None:
            raise HTTPException(404)
        return _page("row.html", **state, key=key, **found)

    def group(request: Request) -> Response:
        key, source = rows_of(request)
        step, query = _number(request, "step", 0), request.query_params
        state = read(source, step)
        found = pages.group_page(source, query.get("task", ""), query.get("env", ""), step)
        return _page("group.html", **state, key=key, **found)

    def text(request: Request) -> Response:
        _, source = rows_of(request)
        name = request.path_params["name"]
        found = (
            pages.row_text(source, _of_path(request, "n"), name) if name in pages.FIELDS else None
        )
        if found is None:
            raise HTTPException(404)
        return Response(
            found.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8"
        )

    def source_of(key: int) -> Source:
        if key >= len(sources.all):
            raise HTTPException(404)
        return sources.all[key]

    def rows_of(request: Request) -> tuple[int, Source]:
        key = _of_path(request, "key")
        if isinstance(source := source_of(key), ReportSource):
            raise HTTPException(404)
        return key, source

    def read(source: Source, first: int | None) -> dict[str, Any]:
        """Read what is new in a source; what its pages say about that."""
        state = source.state()  # before its rows: what is written after them is read the next time
        whole = source.index.update(wait_s=wait_s, first=first)
        renew_s = _LIVE_S * state.live if whole else _READING_S
        said = {
            "whole": whole,
            "progress": source.index.progress,
            "state": state,
            "renew_s": renew_s,
        }
        return {"sources": sources, "source": source, **said}

    routes = {
        "/": start,
        "/static/{name}": static,
        "/compare": compare,
        "/{key}/": overview,
        "/{key}/rows": rows,
        "/{key}/changes": step_changes,
        "/{key}/row/{n}": row,
        "/{key}/group": group,
        "/{key}/text/{n}/{name}": text,
    }
    app = Starlette(
        routes=[Route(path, page, methods=["GET"]) for path, page in routes.items()],
        exception_handlers={RlvrError: refuse, 404: missing},
    )
    return _Guard(app, frozenset(names), key)


def _of_path(request: Request, name: str) -> int:
    """A number in the path of an address; there is no page where it is none."""
    text: str = request.path_params[name]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise HTTPException(404)
    return int(text)


def _number(request: Request, name: str, default: int | None = None) -> int:
    """A number in the query of an address."""
    text = request.query_params.get(name, "")
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name} is {brief(text)}; it must be a whole number, 0 to 999999999")
    return int(text)


def _page(template: str, renew_s: int = 0, status: int = 200, **values: Any) -> Response:
    """A page, which asks for itself again after some seconds; 0 for never."""
    return Response(
        render(template, renew_s=renew_s, **values), status, media_type="text/html; charset=utf-8"
    )


class _Guard:
    """Checks the name and the password with which a page is asked for, and adds the headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str], key: str | None) -> None:
        self._app, self._names, self._key = app, {name.lower() for name in names}, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (name.lower().encode(), value.encode()) for name, value in _HEADERS.items()
                ]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        found = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal: Response | None = None
        if not self._is_ours(found.get(b"host", "")):
            refusal = Response(
                "this is not the name of this machine; open the address that rlvr view printed\n",
                421,
            )
        elif self._key is not None and not self._has_key(found.get(b"authorization", "")):
            refusal = Response(
                "the password is RLVR_API_KEY\n",
                401,
                {"WWW-Authenticate": 'Basic realm="rlvr view"'},
            )
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _is_ours(self, host: str) -> bool:
        """Addresses cannot be rebound, names can: an attacker's name may lead to this machine."""
        match = _HOST.fullmatch(host)
        name = match[1].lower().rstrip(".") if match else ""
        if name == "localhost" or name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _has_key(self, given: str) -> bool:
        scheme, _, value = given.partition(" ")
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return False
        assert self._key is not None
        password = decoded.partition(b":")[2]
        return scheme.lower() == "basic" and hmac.compare_digest(password, self._key.encode())


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: from `app_of`.
        listening: from `rlvr.serve.listen`.
    """
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    _Server(config).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn raises the signal again after it has stopped; a viewer that is closed has done its work."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
