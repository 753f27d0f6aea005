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
import re
import signal
import socket
from collections.abc import Iterable
from importlib import resources
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.errors import RlvrError
from rlvr.viewer import changes, pages
from rlvr.viewer.filters import Filters
from rlvr.viewer.rendering import render
from rlvr.viewer.sources import ReportSource, RunSource, Shown, Source

__all__ = ["app_of", "run"]

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC: Final = {"style.css": "text/css", "viewer.js": "text/javascript"}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::\d{1,5})?")


def app_of(sources: Shown, *, names: Iterable[str] = (), key: str | None = None, wait_s: float = 0.4) -> FastAPI:
    """The viewer as an ASGI application.

    Args:
        sources: what it shows; closed by the caller.
        names: names of this machine, beside localhost and addresses, under which it may be asked.
        key: password that a browser must give, for any user name; None for none.
        wait_s: seconds for which a page waits for rows that are being read.
    """
    app = FastAPI(title="rlvr view", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(_Guard, names=frozenset(names), key=key)

    @app.exception_handler(RlvrError)
    def refuse(request: Request, error: RlvrError) -> Response:
        return _page("message.html", 400, message=str(error), sources=sources)

    @app.exception_handler(404)
    def missing(request: Request, error: Exception) -> Response:
        return _page("message.html", 404, message="there is no such page, or no such row", sources=sources)

    @app.get("/")
    def start() -> Response:
        if len(sources.all) == 1 and not sources.refused:
            return RedirectResponse("/0/")
        return _page("start.html", sources=sources)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            return missing_page()
        text = resources.files("rlvr.viewer").joinpath("static", name).read_bytes()
        return Response(text, media_type=f"{_STATIC[name]}; charset=utf-8")

    @app.get("/compare")
    def compare(a: int, b: int, first: str = "", second: str = "") -> Response:
        if (one := source_of(a)) is None or (other := source_of(b)) is None:
            return missing_page()
        both = (one, other)
        if all(type(source) is Source for source in both):
            whole = [read(source, None)["whole"] for source in both]
            said = (first, second) if first and second else None
            found = changes.disagreements(one, other, said)
            return _page("disagree.html", sources=sources, files=both, numbers=(a, b), whole=all(whole), **found)
        return _page("compare.html", sources=sources, **pages.side_by_side(sources, a, b))

    @app.get("/{key}/")
    def overview(key: int, request: Request) -> Response:
        if (source := source_of(key)) is None:
            return missing_page()
        if isinstance(source, ReportSource):
            return _page("report.html", sources=sources, report=source.report)
        if not isinstance(source, RunSource):
            return rows(key, request)
        follow = request.query_params.get("follow") == "1"
        found = pages.run_page(source, f"/{key}/")
        page = _page("run.html", sources=sources, source=source, key=key, follow=follow, **found)
        source.index.update(wait_s=0)  # behind the page: reading takes turns with whatever else is computed
        return page

    @app.get("/{key}/rows")
    def rows(key: int, request: Request) -> Response:
        if (source := rows_of(key)) is None:
            return missing_page()
        filters = Filters.of(request.query_params)
        state = read(source, int(filters.step) if filters.step else None)
        return _page("rows.html", **state, key=key, filters=filters, **pages.rows_page(source, filters))

    @app.get("/{key}/changes")
    def step_changes(key: int, step: int, before: int) -> Response:
        source = source_of(key)
        if not isinstance(source, RunSource) or not {step, before} <= set(source.steps):
            return missing_page()
        state = read(source, step)
        state |= read(source, before)
        found = changes.step_changes(source, step, before)
        return _page("changes.html", **state, key=key, **{**found, "parts_changed": found.pop("parts")})

    @app.get("/{key}/row/{n}")
    def row(key: int, n: int, start: int = 0, colour: str = "", token: int = 0) -> Response:
        if (source := rows_of(key)) is None or not 0 <= n < 1 << 62:
            return missing_page()
        state = read(source, n >> 32)
        found = pages.row_page(source, n, start, colour, token)
        return missing_page() if found is None else _page("row.html", **state, key=key, **found)

    @app.get("/{key}/group")
    def group(key: int, task: str, env: str = "", step: int = 0) -> Response:
        if (source := rows_of(key)) is None or not 0 <= step < 1 << 31:
            return missing_page()
        state = read(source, step)
        return _page("group.html", **state, key=key, **pages.group_page(source, task, env, step))

    @app.get("/{key}/text/{n}/{name}")
    def text(key: int, n: int, name: str) -> Response:
        source = rows_of(key)
        known = source is not None and 0 <= n < 1 << 62 and name in pages.FIELDS
        found = pages.row_text(source, n, name) if source is not None and known else None
        if found is None:
            return missing_page()
        return Response(found.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8")

    def source_of(key: int) -> Source | None:
        return sources.all[key] if 0 <= key < len(sources.all) else None

    def rows_of(key: int) -> Source | None:
        return None if isinstance(source := source_of(key), ReportSource) else source

    def missing_page() -> Response:
        return missing(None, Exception())  # type: ignore[arg-type]  # which it does not look at

    def read(source: Source, first: int | None) -> dict[str, Any]:
        """Read what is new in a source; what its pages say about that."""
        whole = source.index.update(wait_s=wait_s, first=first)
        return {"sources": sources, "source": source, "whole": whole, "progress": source.index.progress}

    return app


def _page(template: str, status: int = 200, **values: Any) -> Response:
    return Response(render(template, **values), status, media_type="text/html; charset=utf-8")


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
                headers = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        found = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal: Response | None = None
        if not self._is_ours(found.get(b"host", "")):
            refusal = Response("this is not the name of this machine; open the address that rlvr view printed\n", 421)
        elif self._key is not None and not self._has_key(found.get(b"authorization", "")):
            refusal = Response("the password is RLVR_API_KEY\n", 401, {"WWW-Authenticate": 'Basic realm="rlvr view"'})
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


def run(app: FastAPI, listening: socket.socket) -> None:
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
