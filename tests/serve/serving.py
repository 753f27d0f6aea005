"""Speaking to the HTTP service: in this process through ASGI, message by message where it matters."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from rlvr.http.serve import Service, ServiceLimits, app_of
from tests.environments import PLACE, Siblings, Trials
from tests.processes import PATIENCE_S, ROOT

ENVS = {"trials": Trials(), "siblings": Siblings()}


def serving(**limits: Any) -> Service:
    """A service of its own limits, with one worker."""
    return Service({"trials": ENVS["trials"]}, workers=1, limits=ServiceLimits(**limits))


@contextmanager
def unstarted(**limits: Any) -> Iterator[Service]:
    """The same without workers, for requests that are refused before a row is scored."""
    service = serving(**limits)
    try:
        yield service
    finally:
        service.close()


def error(answer: httpx.Response) -> str:
    """The one line that an error is."""
    [(name, text)] = answer.json().items()
    assert name == "error"
    assert "\n" not in text
    return text


def talk(service: Service, conversation: Callable[..., Awaitable[Any]], **headers: str) -> Any:
    """Run `conversation(client)` with a client of the service."""

    async def run() -> Any:
        transport = httpx.ASGITransport(app_of(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://test", headers=headers
        ) as client:
            return await asyncio.wait_for(conversation(client), PATIENCE_S)

    return asyncio.run(run())


def ask(service: Service, method: str, path: str, **options: Any) -> httpx.Response:
    """One request."""
    return talk(service, lambda client: client.request(method, path, **options))


def score(service: Service, rows: list, **more: Any) -> httpx.Response:
    """POST /score."""
    body = json.dumps(
        {"env": "trials", "rows": rows, **more}
    )  # httpx's own cannot write a lone surrogate
    return ask(
        service, "POST", "/score", content=body, headers={"content-type": "application/json"}
    )


class Call:
    """A POST whose messages the test sends and sees one by one."""

    def __init__(self, service: Service, path: str = "/score", **headers: str) -> None:
        self.sent: asyncio.Queue[dict] = asyncio.Queue()
        self._coming: asyncio.Queue[dict] = asyncio.Queue()
        given = {"content-type": "application/json"} | headers
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "server": ("test", 80), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        self.task = asyncio.create_task(app_of(service)(scope, self._coming.get, self.sent.put))

    def send(self, part: bytes, *, more: bool = False) -> Call:
        self._coming.put_nowait({"type": "http.request", "body": part, "more_body": more})
        return self

    def ask(self, rows: list, **more: Any) -> Call:
        return self.send(json.dumps({"env": "trials", "rows": rows, **more}).encode())

    def leave(self) -> None:
        self._coming.put_nowait({"type": "http.disconnect"})

    async def status(self) -> int:
        return (await self.sent.get())["status"]

    async def body(self) -> bytes:
        """What comes next of it."""
        return (await self.sent.get())["body"]


@contextmanager
def served(
    *flags: str, place: str = PLACE, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with one worker on a free port; gives the process and the port."""
    command = [
        sys.executable,
        "-m",
        "rlvr",
        "serve",
        place,
        "--port",
        "0",
        "--workers",
        "1",
        *flags,
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, **pipes) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"on http://127\.0\.0\.1:(\d+)", line)
            assert found, line + process.stderr.read()
            yield process, int(found[1])
        finally:
            process.kill()


class RewardAnswers:
    """What a server of rewards answers: any (status, body) for the next requests, then as a service would."""

    def __init__(self) -> None:
        self.next: list[tuple[int, bytes]] = []
        self.version, self.asked, self.keys = "v1", list[int](), list[str | None]()
        self.reads = "completions"

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.next:
            return self.next.pop(0)
        if path == "/reward-model":
            return 200, json.dumps({"version": self.version, "reads": self.reads}).encode()
        asked = json.loads(body)
        if asked["version"] != self.version:
            return 503, b'{"error": "another model"}'
        self.asked.append(len(asked["rows"]))
        return 200, b"".join(self.line(row) for row in asked["rows"])

    def line(self, row: dict) -> bytes:
        """A tenth for each letter a."""
        if self.reads == "steps":
            said = {"rewards": [step.count("a") / 10 for step in row["steps"]]}
        else:
            said = {"reward": row["completion"].count("a") / 10}
        return json.dumps({"id": row["id"], **said}).encode() + b"\n"


@contextmanager
def answering() -> Iterator[tuple[str, RewardAnswers]]:
    """A server of rewards; gives its address, and what it answers."""
    state = RewardAnswers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.keys.append(self.headers.get("Authorization"))
            status, answer = state.answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", state
        finally:
            server.shutdown()
