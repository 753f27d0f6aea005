"""A local OpenAI-compatible endpoint that does what a test tells it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Handle = Callable[[int, dict[str, Any]], Any]
"""(number of the request, its body) → an answer: a dict, or a function that is given the handler."""


def said(
    text: str | list[Any] | None, finish: str = "stop", tokens: int | None = None, **message: Any
) -> dict[str, Any]:
    """An answer of the chat API, three tokens for the prompt and one per word, unless told."""
    counted = len(str(text or "").split()) if tokens is None else tokens
    return {
        "choices": [
            {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": counted},
    }


def refused(status: int, message: str, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with another status."""
    return lambda handler: reply(handler, status, {"error": {"message": message}}, headers)


def reply(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: Any,
    headers: dict[str, str] | None = None,
    cut: int = 0,
) -> None:
    """Send JSON, or a text as HTML; the last `cut` bytes are promised and not sent."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header(
        "Content-Type", "text/html" if isinstance(body, str) else "application/json"
    )
    handler.send_header("Content-Length", str(len(content)))
    for name, value in (headers or {}).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content[: len(content) - cut])
    handler.close_connection = bool(cut)


@dataclass
class Endpoint:
    """What the endpoint was asked."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    busiest: int = 0


@contextlib.contextmanager
def endpoint(handle: Handle) -> Iterator[Endpoint]:
    """Serve on a free port of this machine."""
    lock, busy, over = threading.Lock(), [0], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        hang = over.wait

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(asked.bodies)
                asked.bodies.append(body)
                asked.keys.append(self.headers.get("Authorization"))
                asked.paths.append(self.path)
                busy[0] += 1
                asked.busiest = max(asked.busiest, busy[0])
            answer = handle(number, body)
            with lock:
                busy[0] -= 1
            with contextlib.suppress(ConnectionError):
                answer(self) if callable(answer) else reply(self, 200, answer)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    asked = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
