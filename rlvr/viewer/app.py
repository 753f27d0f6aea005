"""The routes of the viewer, and who may ask.

Every page is read-only, but for the marks of verdicts where a file for them was named.  A page of
another site cannot read them: the name that a browser asked for must be this machine's (DNS
rebinding), and no page may be framed or embedded.  Texts cannot become code: templates escape them,
and the content security policy allows no script, style or image but the viewer's own two files.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module, resources
from types import ModuleType
from typing import Final, TypeAlias
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel, Field

from rlvr.errors import DataError, RlvrError, UsageError, brief
from rlvr.http import server
from rlvr.http.application import Application, HostRule, HttpState, Route, RouteHandler, is_address
from rlvr.http.keys import Keys
from rlvr.http.limits import HttpLimits
from rlvr.http.refused import Refused
from rlvr.http.request import HttpRequest, read_typed
from rlvr.http.responses import Response, WholeResponse, html_error
from rlvr.types import JsonDict
from rlvr.viewer import changes, pages
from rlvr.viewer.filters import Filters
from rlvr.viewer.home import HomeFilters, home_page
from rlvr.viewer.labels import ORDERS, Labels, draw_row
from rlvr.viewer.rendering import render
from rlvr.viewer.sources import ReportSource, RunSource, Shown, Source, read_step_report

__all__ = ["run", "viewer_app"]

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING_S: Final = 2  # after which a page is asked for again, while rows are being read
_LIVE_S: Final = 5  # and while they are being written
_STATIC: Final = {
    "style.css": "style.css",
    "viewer.js": "viewer.js",
    "overlay.js": "overlay.js",
    "heat.js": "heat.js",
    "tex.js": "tex.js",
    "katex.js": "vendor/katex/katex.min.js",
    "uplot.js": "vendor/uplot/uPlot.iife.min.js",
    "uplot.css": "vendor/uplot/uPlot.min.css",
}
"""Files by the names that addresses have."""
_PAGES_AT_ONCE: Final = 40  # in threads, where queries and templates take their time
# Seconds that pages under way have after Ctrl-C.
_DRAIN_S: Final = 2.0
_VIEWS: Final = {"rendered": True, "raw": False}
"""How texts are shown; else as Markdown, unless something in them would have been an element."""

_MOST_CHOSEN: Final = 50  # sources of an overlay or a comparison

_Page: TypeAlias = Callable[[HttpRequest], WholeResponse]


def viewer_app(
    sources: Shown,
    *,
    names: Iterable[str] = (),
    key: str | None = None,
    wait_s: float = 0.4,
    labels: Labels | None = None,
) -> Application:
    """The viewer as an application.

    Args:
        sources: what it shows; closed by the caller.
        names: names of this machine, beside localhost and addresses, under which it may be asked.
        key: password that a browser must give, for any user name; None for none.
        wait_s: seconds for which a page waits for rows that are being read.
        labels: where a person's marks go; None for pages that change nothing.
    """
    secret = secrets.token_hex(16)  # which pages of other sites do not have
    skipped: dict[int, set[int]] = {}

    def refusal(message: str) -> bytes:
        return render("message.html", renew_s=0, message=message, sources=sources)

    def start(request: HttpRequest) -> WholeResponse:
        sources.refresh()
        if len(sources.all) == 1 and not sources.refused and not sources.follows:
            return WholeResponse(b"", 307, {"location": "/0/"})
        view_data = home_page(sources, HomeFilters.of(request.query), wait_s)
        renew_s = (
            _READING_S if view_data["unread"] else _LIVE_S * (view_data["live"] or sources.follows)
        )
        return _page("home.html", renew_s, sources=sources, **view_data)

    def static(request: HttpRequest) -> WholeResponse:
        name = request.path["name"]
        if name not in _STATIC:
            raise _missing()
        text = resources.files("rlvr.viewer").joinpath("static", _STATIC[name]).read_bytes()
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return WholeResponse(text, media_type=f"{kind}; charset=utf-8")

    def compare(request: HttpRequest) -> WholeResponse:
        if "a" not in request.query:
            return which_is_better(request)
        a, b = _number(request, "a"), _number(request, "b")
        pair = (source_of(a), source_of(b))
        if all(type(source) is Source for source in pair):
            states = [read(source, None) for source in pair]
            first, second = (request.query.get(name, "") for name in ("first", "second"))
            differences = changes.disagreements(
                *pair, (first, second) if first and second else None
            )
            slowest = min(states, key=lambda it: it["renew_s"] or math.inf)
            return _page(
                "disagree.html",
                **{**slowest, "source": None, "files": pair, "numbers": (a, b)},
                **differences,
            )
        return WholeResponse(b"", 307, {"location": f"/overlay?runs={a},{b}"})

    def lay_over(request: HttpRequest) -> WholeResponse:
        keys = _numbers(request)
        runs = runs_of(keys)
        live = any(run.state().live for run in runs)
        view_data = _overlay().overlay_page(runs)
        return _page("overlay.html", sources=sources, keys=keys, runs=runs, live=live, **view_data)

    def lay_over_data(request: HttpRequest) -> WholeResponse:
        runs, view = runs_of(_numbers(request)), _overlay().OverlayView.of(request.query)
        view_data = _overlay().overlay_data(runs, request.query.get("metric", ""), view)
        return WholeResponse(orjson.dumps(view_data), media_type="application/json")

    def tasks_map(request: HttpRequest) -> WholeResponse:
        keys = _numbers(request)
        chosen, sort = require_rows(keys), _heat().require_sort(request.query.get("sort", ""))
        states = [read(source, None) for source in chosen]
        state = min(states, key=lambda it: it["renew_s"] or math.inf) | {"source": None}
        # a map that is looked at stays
        state["renew_s"] = 0 if state["whole"] else state["renew_s"]
        heat = _heat().heat_map(chosen, sort)
        by_step = len(chosen) == 1 and chosen[0].is_run
        heat_tables = _heat().heat_page(heat, _number(request, "since", 0))
        page_options = {"chosen": chosen, "keys": keys, "sort": sort, "SORTS": _heat().SORTS}
        return _page("heat.html", **state, **heat_tables, **page_options, by_step=by_step)

    def tasks_map_data(request: HttpRequest) -> WholeResponse:
        sort = _heat().require_sort(request.query.get("sort", ""))
        heat = _heat().heat_map(require_rows(_numbers(request)), sort)
        return WholeResponse(orjson.dumps(_heat().cells_of(heat)), media_type="application/json")

    def which_is_better(request: HttpRequest) -> WholeResponse:
        keys = _numbers(request)
        chosen = [source_of(key) for key in keys]
        report = pages.comparison(chosen)
        files = keys if all(type(source) is Source for source in chosen) else []
        return _page("report.html", sources=sources, report=report, files=files)

    def overview(request: HttpRequest) -> WholeResponse:
        key = _of_path(request, "key")
        source = source_of(key)
        if isinstance(source, ReportSource):
            return _page(
                "report.html", sources=sources, source=source, report=source.report, files=[]
            )
        if not isinstance(source, RunSource):
            return rows(request)
        state = source.state()  # first: of a run that has ended by then, all is shown
        view_data = pages.run_page(source, f"/{key}/")
        page = _page(
            "run.html",
            _LIVE_S * state.live,
            sources=sources,
            source=source,
            key=key,
            state=state,
            **view_data,
        )
        # behind the page: reading takes turns with whatever else is computed
        source.index.update(wait_s=0)
        return page

    def recorded_step(request: HttpRequest) -> WholeResponse:
        """A step file of a run: its name is looked up, not opened."""
        source = source_of(_of_path(request, "key"))
        files = source.step_files() if isinstance(source, RunSource) else {}
        if (path := files.get(request.path["name"])) is None:
            raise _missing()
        report = read_step_report(path)
        return _page("report.html", sources=sources, source=source, report=report, files=[])

    def rows(request: HttpRequest) -> WholeResponse:
        key, source = rows_of(request)
        filters = Filters.of(request.query)
        state = read(source, int(filters.step) if filters.step else None)
        return _page(
            "rows.html", **state, key=key, filters=filters, **pages.rows_page(source, filters)
        )

    def step_changes(request: HttpRequest) -> WholeResponse:
        key, source = rows_of(request)
        step, before = _number(request, "step"), _number(request, "before")
        if not isinstance(source, RunSource) or not {step, before} <= set(source.steps):
            raise _missing()
        state = read(source, step)
        state |= read(source, before)
        view_data = changes.step_changes(source, step, before)
        return _page(
            "changes.html",
            **state,
            key=key,
            **{**view_data, "parts_changed": view_data.pop("parts")},
        )

    def row(request: HttpRequest) -> WholeResponse:
        key, source = rows_of(request)
        n = _of_path(request, "n")
        state = read(source, n >> 32)
        piece, token = _number(request, "start", 0), _number(request, "token", 0)
        rendered = _VIEWS.get(request.query.get("view", ""))
        view_data = pages.row_page(
            source, n, piece, request.query.get("colour", ""), token, rendered
        )
        if view_data is None and not state["whole"]:
            message = f"Still reading ({state['progress']}): there is no such row yet."
            return _page("message.html", _READING_S, sources=sources, message=message)
        if view_data is None:
            raise _missing()
        marking = None if labels is None else _marking(labels, source, n, request, secret)
        return _page("row.html", **state, key=key, marking=marking, **view_data)

    def judge_next(request: HttpRequest) -> WholeResponse:
        """To the next row that was not judged."""
        key, source = rows_of(request)
        label_file, order, second_number = require_labels(request)
        if passed := request.query.get("skip", ""):
            skipped.setdefault(key, set()).add(_row_number(passed))
        state = read(source, None)
        if second_number is not None:
            read(source_of(second_number), None)
        next_row = draw_row(
            source,
            label_file,
            order,
            None if second_number is None else source_of(second_number),
            skipped.get(key, set()),
        )
        if next_row is None:
            left = "" if state["whole"] else f"; still reading ({state['progress']})"
            message = f"Every verdict of this order was judged or passed over{left}."
            return _page("message.html", _READING_S * bool(left), sources=sources, message=message)
        again = request.query.get("other", "")
        where = f"/{key}/row/{next_row}?order={order}" + (f"&other={again}" if again else "")
        return WholeResponse(b"", 307, {"location": where})

    async def mark(request: HttpRequest) -> Response:
        """Keep what a person said of a verdict."""
        mark_request = read_typed((await state.bodies.read(request)).asked, _Mark)
        if not secrets.compare_digest(
            mark_request.token.encode("utf-8", "replace"), secret.encode()
        ):
            raise Refused(
                403, "other-page", "only pages of this viewer can mark verdicts; load it anew"
            )
        _, source = rows_of(request)
        label_file, order, _ = require_labels(request)
        row = source.index.rows([n := _of_path(request, "n")]).get(n)
        if not isinstance(row, Mapping) or row.get("outcome") not in (
            "correct",
            "wrong",
            "unparsed",
        ):
            raise Refused(400, "no-verdict", "this row has no verdict that could be right or wrong")
        await asyncio.to_thread(label_file.mark, row, mark_request.verdict_is_right, order)
        return WholeResponse(orjson.dumps(label_file.summary()), media_type="application/json")

    def require_labels(request: HttpRequest) -> tuple[Labels, str, int | None]:
        """The marks, the order in which rows come up, and the other file of that order."""
        if labels is None:
            raise Refused(
                403, "no-labels", "start rlvr view with --labels FILE.jsonl to mark verdicts"
            )
        second_number = _number(request, "other") if request.query.get("other") else None
        order = request.query.get("order", "")
        if order and order not in ORDERS:
            raise UsageError(f"order is {brief(order)}; it must be one of {', '.join(ORDERS)}")
        return labels, order, second_number

    def group(request: HttpRequest) -> WholeResponse:
        key, source = rows_of(request)
        step, query = _number(request, "step", 0), request.query
        state = read(source, step)
        rendered = _VIEWS.get(query.get("view", ""))
        view_data = pages.group_page(
            source, query.get("task", ""), query.get("env", ""), step, rendered
        )
        return _page("group.html", **state, key=key, **view_data)

    def diff(request: HttpRequest) -> WholeResponse:
        key, source = rows_of(request)
        numbers = _of_path(request, "n"), _of_path(request, "m")
        state = read(source, numbers[0] >> 32)
        view_data = pages.diff_page(source, *numbers)
        if view_data is None:
            raise _missing()
        return _page("diff.html", **state | {"renew_s": 0}, key=key, numbers=numbers, **view_data)

    def text(request: HttpRequest) -> WholeResponse:
        _, source = rows_of(request)
        name = request.path["name"]
        text_found = (
            pages.row_text(source, _of_path(request, "n"), name) if name in pages.FIELDS else None
        )
        if text_found is None:
            raise _missing()
        return WholeResponse(
            text_found.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8"
        )

    def source_of(key: int) -> Source:
        if key >= len(sources.all):
            raise _missing()
        return sources.all[key]

    def runs_of(keys: Iterable[int]) -> list[RunSource]:
        chosen = [source_of(key) for key in keys]
        for source in chosen:
            if not isinstance(source, RunSource):
                raise DataError(f"{source.name} is no run; runs can be laid over each other")
        return [source for source in chosen if isinstance(source, RunSource)]

    def require_rows(keys: Iterable[int]) -> list[Source]:
        chosen = [source_of(key) for key in keys]
        if any(isinstance(source_chosen, ReportSource) for source_chosen in chosen):
            raise DataError("a report has no rows; select scored files, or one run")
        if len(chosen) > 1 and any(source_chosen.is_run for source_chosen in chosen):
            raise DataError("one run has a map by step; select it alone, or scored files")
        return chosen

    def rows_of(request: HttpRequest) -> tuple[int, Source]:
        key = _of_path(request, "key")
        if isinstance(source := source_of(key), ReportSource):
            raise _missing()
        return key, source

    def read(source: Source, first: int | None) -> JsonDict:
        """Read what is new in a source; what its pages say about that."""
        state = source.state()  # before its rows: what is written after them is read the next time
        is_complete = source.index.update(wait_s=wait_s, first=first)
        renew_s = _LIVE_S * state.live if is_complete else _READING_S
        reading_state = {
            "whole": is_complete,
            "progress": source.index.progress,
            "state": state,
            "renew_s": renew_s,
            "labelling": labels is not None,
        }
        return {"sources": sources, "source": source, **reading_state}

    routes = {
        "/": start,
        "/static/{name}": static,
        "/compare": compare,
        "/heat": tasks_map,
        "/heat/data": tasks_map_data,
        "/overlay": lay_over,
        "/overlay/data": lay_over_data,
        "/{key}/": overview,
        "/{key}/rows": rows,
        "/{key}/step/{name}": recorded_step,
        "/{key}/changes": step_changes,
        "/{key}/row/{n}": row,
        "/{key}/judge": judge_next,
        "/{key}/diff/{n}/{m}": diff,
        "/{key}/group": group,
        "/{key}/text/{n}/{name}": text,
    }
    lowered = [name.lower() for name in names]
    state = HttpState(
        HttpLimits(drain_s=_DRAIN_S),
        Keys(
            key,
            schemes={"basic"},
            challenge='Basic realm="rlvr view"',
            refusal="the password is RLVR_API_KEY, for any user name",
        ),
        hosts=HostRule(
            lambda host: is_address(host, lowered),
            "this is not the name of this machine; open the address that rlvr view printed",
        ),
    )
    threads = asyncio.Semaphore(_PAGES_AT_ONCE)
    return Application(
        state,
        [
            *(Route("GET", path, _in_thread(page, threads)) for path, page in routes.items()),
            Route("POST", "/{key}/row/{n}/mark", mark),
        ],
        errors=html_error(refusal),
        headers=_HEADERS,
        refusal_of=lambda error: (
            Refused(400, "bad-request", str(error)) if isinstance(error, RlvrError) else None
        ),
    )


class _Mark(BaseModel):
    """What a page sends for a mark."""

    token: str = Field(description="that of the page")
    verdict_is_right: bool | None = Field(description="true, false, or null for no mark")


def _marking(
    labels: Labels, source: Source, n: int, request: HttpRequest, token: str
) -> dict[str, object]:
    """What a row's page needs for marks."""
    row = source.index.rows([n]).get(n)
    judged = isinstance(row, Mapping) and row.get("outcome") in ("correct", "wrong", "unparsed")
    order, second = (request.query.get(name, "") for name in ("order", "other"))
    order = order if order in ORDERS else ""
    return {
        "judged": judged,
        "mark": labels.of(row) if isinstance(row, Mapping) else None,
        "order": order,
        "more": urlencode({"order": order, **({"other": second} if second else {})})
        if order
        else "",
        "token": token,
        "path": labels.path.name,
        **labels.summary(),
    }


def _overlay() -> ModuleType:
    """Overlays need numpy, which the first page of scored files does without."""
    return import_module("rlvr.viewer.overlay")


def _heat() -> ModuleType:
    return import_module("rlvr.viewer.heat")


def _in_thread(page: _Page, threads: asyncio.Semaphore) -> RouteHandler:
    """A page, made in a thread."""

    async def handler(request: HttpRequest) -> Response:
        async with threads:
            return await asyncio.to_thread(page, request)

    return handler


def _missing() -> Refused:
    return Refused(404, "no-such-page", "there is no such page, or no such row")


def _of_path(request: HttpRequest, name: str) -> int:
    """A number in the path of an address; there is no page where it is none."""
    return _row_number(request.path[name])


def _row_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _missing()
    return int(text)


def _number(request: HttpRequest, name: str, default: int | None = None) -> int:
    """A number in the query of an address."""
    text = request.query.get(name, "")
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name} is {brief(text)}; it must be a whole number, 0 to 999999999")
    return int(text)


def _numbers(request: HttpRequest) -> list[int]:
    """The sources that an address names: `run=3&run=4`, as a form writes it, or `runs=3,4`."""
    texts = [*request.query.getlist("run"), *request.query.get("runs", "").split(",")]
    texts = list(dict.fromkeys(filter(None, texts)))
    if not texts or len(texts) > _MOST_CHOSEN:
        raise UsageError(
            f"{len(texts)} are selected; select 1 to {_MOST_CHOSEN} on the first page, by their "
            f"boxes"
        )
    if bad := next(
        (text for text in texts if not (text.isascii() and text.isdigit() and len(text) < 10)), ""
    ):
        raise UsageError(f"run is {brief(bad)}; it must be a number of the first page")
    return [int(text) for text in texts]


def _page(template: str, renew_s: int = 0, status: int = 200, **values: object) -> WholeResponse:
    """A page, which asks for itself again after some seconds; 0 for never."""
    return WholeResponse(
        render(template, renew_s=renew_s, **values), status, media_type="text/html; charset=utf-8"
    )


def run(app: Application, listening: socket.socket) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Args:
        app: from `viewer_app`.
        listening: from `rlvr.http.server.listen`.
    """
    try:
        server.run(app, listening)
    finally:
        app.state.close()
