"""The interface: as OpenAPI, and as a page that loads nothing from elsewhere."""

from __future__ import annotations

import functools
import html
import json
from importlib.metadata import version
from typing import Any

__all__ = ["openapi", "page"]

_ABOUT = """Verifiable rewards over HTTP.

`total` is null exactly where `outcome` is `unscored`: the service failed, not the completion, and 0 would be a reward.
Every response is JSON; an error is `{"error": "…"}` and names the value, the rule and the fix."""

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _operation(
    asked: dict[str, Any], example: Any, answered: dict[str, Any], **media: Any
) -> dict[str, Any]:
    errors = {
        "400": "not JSON",
        "401": "the API key is missing or wrong",
        "404": "no such environment",
        "408": "the body came too slowly",
        "409": "the request id was used before with another body",
        "413": "too large, or too many rows",
        "415": "not application/json",
        "422": "not of this shape",
        "421": "the Host header is not this machine's",
        "431": "the head is too large, or has too many headers",
        "429": "the queue or the memory is full; Retry-After says when to send it again",
        "503": "the service is stopping, or has too many connections; send it again",
        "504": "it took too long",
    }
    error = {"application/json": {"schema": _object({"error": _TEXT})}}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": asked, "example": example}},
        },
        "responses": {
            "200": {
                "description": "scored",
                "content": {"application/json": {"schema": answered}, **media},
            },
            **{status: {"description": what, "content": error} for status, what in errors.items()},
        },
    }


_SCORED = _object(
    {
        "id": _TEXT,
        "outcome": {"enum": ["correct", "wrong", "unparsed", "unscored"]},
        "total": {"type": ["number", "null"], "description": "null where unscored"},
        "parts": {
            "type": "object",
            "additionalProperties": _NUMBER,
            "description": "what each part added to the total",
        },
        "value": _NUMBER,
        "why": {**_TEXT, "description": "'reason' or 'reason: text'"},
        "answer": {"type": ["string", "null"]},
        "detail": {"type": "object"},
        "error": {
            **_TEXT,
            "description": "why the row cannot be used; then only the id stands beside it",
        },
    }
)

_SCORE = _operation(
    _object(
        {
            "env": {**_TEXT, "description": "may be left out where only one is served"},
            "rows": _list(
                _object(
                    {
                        "completion": _TEXT,
                        "reference": {},
                        "task": {"type": ["string", "integer"]},
                        "prompt": {},
                        "id": _TEXT,
                        "length_tokens": {"type": "integer"},
                        "truncated": {"type": "boolean"},
                    },
                    required=["completion"],
                )
            ),
            "request_id": {
                **_TEXT,
                "description": "a request that is sent again with the same id is not scored again",
            },
        },
        required=["rows"],
    ),
    {"env": "gsm8k-v2", "rows": [{"completion": "It is \\boxed{1234}.", "reference": "1234"}]},
    _object({"env": _TEXT, "scores": _list(_SCORED)}),
    **{"application/x-ndjson": {"schema": _SCORED}},
)

_OPENRLHF = _operation(
    _object(
        {"query": _list(_TEXT), "prompts": _list(_TEXT), "labels": _list({})},
        required=["query", "labels"],
    ),
    {"query": ["What is 1 + 1? It is \\boxed{2}."], "prompts": ["What is 1 + 1?"], "labels": ["2"]},
    _object(
        {"rewards": _list(_NUMBER), "scores": _list(_NUMBER), "extra_logs": {"type": "object"}}
    ),
)

_OBSERVE = _operation(
    _object(
        {"identity": _TEXT, "rows": _list(_object({})), "request_id": _TEXT},
        required=["identity", "rows"],
    ),
    {"identity": "as computed from GET /envs", "rows": []},
    _object({"id": _NUMBER, "seen": _list({})}),
)

_REWARDS = _operation(
    _object(
        {
            "rows": _list(
                _object(
                    {"prompt": {}, "completion": _TEXT, "id": _TEXT},
                    required=["prompt", "completion"],
                )
            ),
            "version": {
                **_TEXT,
                "description": "of the model that is expected; another one answers 503",
            },
        },
        required=["rows"],
    ),
    {"rows": [{"prompt": "What is 1 + 1?", "completion": "It is 2."}]},
    _object({"id": _TEXT, "reward": _NUMBER, "error": _TEXT}),
)

_REWARD_MODEL: dict[str, Any] = {"responses": {"200": {"description": "its version"}}}

_ENVS: dict[str, Any] = {"responses": {"200": {"description": "by name"}}}

_HEALTH: dict[str, Any] = {
    "responses": {"200": {"description": "yes"}, "503": {"description": "no longer"}}
}

_METRICS: dict[str, Any] = {
    "responses": {"200": {"description": "text format 0.0.4", "content": {"text/plain": {}}}}
}

_PATHS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "/score": (
        "post",
        "Score completions: one entry per row, in order; as NDJSON if that is accepted.",
        _SCORE,
    ),
    "/observe": (
        "post",
        "For scorers on other machines (rlvr.engines): what is seen of each completion.",
        _OBSERVE,
    ),
    "/envs": ("get", "What is served, in which version and with which options.", _ENVS),
    "/openrlhf": ("post", "The remote reward model of OpenRLHF: its --remote_rm_url.", _OPENRLHF),
    "/openrlhf/{env}": ("post", "The same, for one of several environments.", _OPENRLHF),
    "/rewards": (
        "post",
        "What the reward model says of completions, in [0, 1]: a line of NDJSON per row.",
        _REWARDS,
    ),
    "/reward-model": ("get", "Which reward model there is.", _REWARD_MODEL),
    "/health": (
        "get",
        "Readiness: 200 while requests are accepted, 503 while the service stops. Needs no key.",
        _HEALTH,
    ),
    "/health/live": (
        "get",
        "Liveness: 200 as long as the process responds. Needs no key.",
        _HEALTH,
    ),
    "/metrics": ("get", "Counters in Prometheus's text format.", _METRICS),
}


@functools.cache
def openapi(*, wants_key: bool) -> dict[str, Any]:
    """The interface as OpenAPI 3.1.

    Args:
        wants_key: whether callers must send a key.
    """
    key = {"key": {"type": "http", "scheme": "bearer"}}
    paths: dict[str, Any] = {}
    for path, (method, summary, operation) in _PATHS.items():
        names = (
            [{"name": "env", "in": "path", "required": True, "schema": _TEXT}]
            if "{env}" in path
            else []
        )
        paths[path] = {method: {"summary": summary, "parameters": names, **operation}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rlvr", "version": version("rlvr"), "description": _ABOUT},
        "paths": paths,
        **(
            {"components": {"securitySchemes": key}, "security": [{"key": []}]} if wants_key else {}
        ),
    }


@functools.cache
def page() -> str:
    """The interface as HTML, without scripts."""
    parts = [
        f"<!doctype html><title>rlvr</title><h1>rlvr {version('rlvr')}</h1><p>{html.escape(_ABOUT)}</p>"
    ]
    parts.append('<p><a href="openapi.json">The same as OpenAPI.</a></p>')
    for path, (method, summary, operation) in _PATHS.items():
        parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{html.escape(summary)}</p>")
        asked = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if asked:
            parts.append(f"<pre>{html.escape(json.dumps(asked['example'], indent=2))}</pre>")
        rows = "".join(
            f"<tr><td>{status}<td>{html.escape(answer['description'])}"
            for status, answer in operation["responses"].items()
        )
        parts.append(f"<table>{rows}</table>")
    return "\n".join(parts)
