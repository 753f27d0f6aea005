"""The interface of an application out of its routes and the types of their bodies:
OpenAPI 3.1, and a page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.metadata import version

from pydantic import TypeAdapter

from rlvr.http.application import Route
from rlvr.http.request import HttpRequest
from rlvr.http.responses import Response, WholeResponse, json_response
from rlvr.types import JsonDict

__all__ = ["openapi", "page", "with_docs"]

_PLACE = "#/components/schemas/{model}"
_STATUSES = {
    "400": "not JSON",
    "401": "the API key is missing, wrong or out of date",
    "403": "the key has no right to this",
    "404": "no such page, or not served here",
    "408": "the body came too slowly",
    "409": "the request id was used before with another body",
    "413": "too large, or too many rows",
    "415": "not application/json",
    "421": "the Host header is not this machine's",
    "422": "not of this shape",
    "429": "the queue or the memory is full; Retry-After says when to send it again",
    "431": "the head is too large, or has too many headers",
    "503": "the service is stopping, or has too many connections; send it again",
    "504": "it took too long",
}


def openapi(
    title: str, about: str, routes: Sequence[Route], *, wants_key: bool
) -> dict[str, object]:
    """The interface as data.

    Args:
        title: of the application.
        about: what it is for.
        routes: what answers.
        wants_key: whether callers must send a key.
    """
    inputs = [
        (number, mode, TypeAdapter(kind))
        for number, route in enumerate(routes)
        for mode, kind in (("validation", route.reads), ("serialization", route.answers))
        if kind is not None
    ]
    schemas, shared = TypeAdapter.json_schemas(
        inputs,  # type: ignore[arg-type]  # its modes are literals
        ref_template=_PLACE,
    )
    paths: JsonDict = {}
    for number, route in enumerate(routes):
        answer = schemas.get((number, "serialization"))
        content = {} if answer is None else {"application/json": {"schema": answer}}
        if answer is not None and route.lines:
            content["application/x-ndjson"] = {"schema": answer}
        operation: JsonDict = {
            "summary": route.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", route.path)
            ],
            "responses": {"200": {"description": "the answer", "content": content}},
        }
        if not route.is_open:
            operation["responses"] |= {
                status: {"$ref": f"#/components/responses/{status}"} for status in _STATUSES
            }
        if wants_key and not route.is_open:
            operation["security"] = [{"key": []}]
        request_schema = schemas.get((number, "validation"))
        if request_schema is not None:
            body: dict[str, object] = {"schema": request_schema}
            if route.example is not None:
                body["example"] = route.example
            operation["requestBody"] = {"required": True, "content": {"application/json": body}}
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    error = {"type": "object", "properties": {"error": {"type": "string"}}}
    components: dict[str, object] = {
        "schemas": shared.get("$defs", {}),
        "responses": {
            status: {"description": what, "content": {"application/json": {"schema": error}}}
            for status, what in _STATUSES.items()
        },
    }
    if wants_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("rlvr"), "description": about},
        "paths": paths,
        "components": components,
    }


def page(title: str, about: str, routes: Sequence[Route]) -> str:
    """The interface as HTML, without scripts.

    Args:
        title: of the application.
        about: what it is for.
        routes: what answers.
    """
    parts = [
        f"<!doctype html><title>{title}</title><h1>{title} {version('rlvr')}</h1>",
        f'<p>{html.escape(about)}</p><p><a href="openapi.json">The same as OpenAPI.</a></p>',
    ]
    for route in routes:
        parts.append(f"<h2><code>{route.method} {route.path}</code></h2>")
        parts.append(f"<p>{html.escape(route.summary)}</p>")
        if route.example is not None:
            parts.append(f"<pre>{html.escape(json.dumps(route.example, indent=2))}</pre>")
    rows = "".join(f"<tr><td>{status}<td>{html.escape(what)}" for status, what in _STATUSES.items())
    return "\n".join([*parts, f"<h2>Errors</h2><table>{rows}</table>"])


def with_docs(title: str, about: str, routes: Sequence[Route], *, wants_key: bool) -> list[Route]:
    """The routes, with `/docs` and `/openapi.json` for them.

    Args:
        title, about, routes, wants_key: see `openapi`.
    """
    cache: JsonDict = {}

    # Made when it is first asked for: importing the types takes time.
    async def docs(request: HttpRequest) -> Response:
        if "page" not in cache:
            cache["page"] = page(title, about, every).encode()
        # A page without scripts and styles needs nothing from elsewhere.
        headers = {"content-security-policy": "default-src 'none'"}
        return WholeResponse(cache["page"], 200, headers, media_type="text/html; charset=utf-8")

    async def data(request: HttpRequest) -> Response:
        if "data" not in cache:
            cache["data"] = openapi(title, about, every, wants_key=wants_key)
        return json_response(cache["data"])

    every = [
        *routes,
        Route("GET", "/docs", docs, "This interface, for reading. Needs no key.", is_open=True),
        Route("GET", "/openapi.json", data, "The same as data. Needs no key.", is_open=True),
    ]
    return every
