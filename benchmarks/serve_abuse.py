"""What callers can do to `rlvr serve`, and what another notices of it,
as the Markdown of docs/benchmarks/service.md.

    python -m benchmarks.serve_abuse                    every abuse, then the speeds and the kills
    python -m benchmarks.serve_abuse drip-8 brackets    these alone
    python -m benchmarks.serve_abuse --list
    python -m benchmarks.serve_abuse --app viewer       against another application:
                                                        endpoint, viewer, openenv

Each line starts a service of its own on this machine, with a key and one environment, and asks it
for one row at a time over one connection: first undisturbed, then while other processes abuse it.
The table has the honest caller's median and 99th percentile (its slowest request, where it had
fewer than a hundred), the requests that it got no score for, and the greatest resident memory of
the service's own processes.

A looping row burns LOOP_S seconds of CPU and is then wrong,
as a program does that runs into its time limit.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

__all__ = ["ABUSES", "APPS", "ENV", "App", "Abuse", "Target", "honest", "served"]

KEY = "a-key-of-the-benchmark"
LOOP_S = 2.0
MIB = 1 << 20
ENV = f'''
import time
import rlvr

class Echo(rlvr.Environment):
    """Says whether the completion is the index of the task, after as much work as it asks for."""

    def task(self, index):
        return rlvr.Task(f"echo/{{index}}", f"Say {{index}}.", reference=index)

    def verify(self, task, completion):
        if completion == "loop":
            until = time.process_time() + {LOOP_S}
            while time.process_time() < until:
                pass
        right = completion.strip() == str(task.reference)
        answer = completion[:20_000] if completion.startswith("long") else completion[:80]
        outcome = rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG
        return rlvr.Verdict(outcome, why="compared", answer=answer)
'''


@dataclass(frozen=True)
class App:
    """An application on rlvr.http: what starts it, and what an honest caller asks of it.

    Attributes:
        script: Python that prints where it listens; {env} is the environment's place.
        method, path, body: of the honest request.
        posts: the path that takes bodies; "" for the same.
        scheme: of the header with the key.
    """

    script: str
    method: str
    path: str
    body: str
    posts: str = ""
    scheme: str = "Bearer"

    @property
    def authorization(self) -> str:
        """The header with the key."""
        pair = base64.b64encode(f"any:{KEY}".encode()).decode()
        return f"{self.scheme} {KEY if self.scheme == 'Bearer' else pair}"


_ENDPOINT = """
import secrets, time
from rlvr.agents import AgentEndpoint
from rlvr.samplers.protocol import Sampling
from rlvr.samplers.scripted import ScriptedSampler

secrets.token_urlsafe = lambda letters: {key!r}
endpoint = AgentEndpoint(ScriptedSampler(["7"] * 1_000_000))
endpoint.open(sampling=Sampling(max_tokens=1 << 30), max_requests=1 << 30, request_tokens=8)
print("on", endpoint.base_url, flush=True)
time.sleep(3600)
"""
_VIEWER = """
import json, os
from pathlib import Path
from rlvr.cli import main

os.chdir(Path({env!r}.partition(":")[0]).parent)
rows = [{{"id": i, "task": i, "completion": str(i)}} for i in range(100)]
Path("in.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
main(["score", {env!r}, "in.jsonl", "-o", "out.jsonl", "--overwrite", "--workers", "0"])
main(["view", "out.jsonl", "--port", "0", "--labels", "labels.jsonl"])
"""
_OPENENV = """
import socket
import rlvr
from rlvr.interop import to_openenv

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
print(f"on http://127.0.0.1:{{port}},", flush=True)
to_openenv(rlvr.make({env!r})).serve(port=port)
"""
_ROW = '{{"env": "{env}", "rows": [{{"task": 7, "completion": "7"}}]}}'
_CHAT = '{{"model": "policy", "messages": [{{"role": "user", "content": "7?"}}]}}'
APPS = {
    "serve": App("", "POST", "/score", _ROW),
    "endpoint": App(_ENDPOINT, "POST", "/v1/chat/completions", _CHAT),
    "viewer": App(_VIEWER, "GET", "/0/rows", "", posts="/0/row/0/mark", scheme="Basic"),
    "openenv": App(_OPENENV, "POST", "/reset", '{{"seed": 7}}'),
}


@dataclass(frozen=True)
class Target:
    """Where the application is."""

    port: int
    env: str
    stop: Event
    app: App = APPS["serve"]

    def connect(self) -> socket.socket:
        """A new connection; tried until the service takes it."""
        while True:
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.port), timeout=30)
            time.sleep(0.05)

    def head(self, length: int | str, *, key: bool = True, path: str = "", more: str = "") -> bytes:
        """The head of a POST; a length that is a text is the whole header line."""
        size = length if isinstance(length, str) else f"Content-Length: {length}"
        authorization = f"Authorization: {self.app.authorization}\r\n" if key else ""
        path = path or self.app.posts or self.app.path
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: "
            f"application/json\r\n{authorization}{size}\r\n{more}\r\n"
        ).encode()

    def body(self, completions: list[str]) -> bytes:
        """The body of a request with these completions."""
        rows = [{"task": number, "completion": text} for number, text in enumerate(completions)]
        return json.dumps({"env": self.env, "rows": rows}).encode()

    def post(self, body: bytes, *, key: bool = True, more: str = "") -> socket.socket:
        """A connection on which this was sent, and from which nothing is read."""
        connection = self.connect()
        with suppress(OSError):
            connection.sendall(self.head(len(body), key=key, more=more) + body)
        return connection

    def wait(self) -> None:
        """Hold what is open until the end."""
        self.stop.wait()


# --------------------------------------------------------------------------------------- the abuses


def _drip(target: Target) -> None:
    connection = target.connect()
    connection.sendall(target.head("Transfer-Encoding: chunked", key=False))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not target.stop.is_set():
        try:
            connection.sendall(b"1\r\nx\r\n" * 2000)
        except OSError:  # it was closed: once more, from the start
            connection = target.connect()
            with suppress(OSError):
                connection.sendall(target.head("Transfer-Encoding: chunked", key=False))


def _drip_8(target: Target) -> None:
    for _ in range(8):
        threading.Thread(target=_drip, args=(target,), daemon=True).start()
    target.wait()


def _idle(target: Target) -> None:
    kept = [target.connect() for _ in range(1005)]
    target.wait()
    del kept


def _slow_heads(target: Target) -> None:
    kept = [target.connect() for _ in range(200)]
    while not target.stop.wait(0.5):
        for number, connection in enumerate(kept):
            try:
                connection.sendall(b"P" if number % 2 else b"G")
            except OSError:
                kept[number] = target.connect()


def _slow_bodies(target: Target) -> None:
    kept = [target.connect() for _ in range(200)]
    for connection in kept:
        connection.sendall(target.head(100_000))
    while not target.stop.wait(0.5):
        for number, connection in enumerate(kept):
            try:
                connection.sendall(b" ")
            except OSError:
                kept[number] = target.connect()


def _knock(target: Target) -> None:
    """Requests without a key, as fast as four connections can send them."""

    def knock() -> None:
        while not target.stop.is_set():
            with suppress(OSError), target.connect() as connection:
                for _ in range(100):
                    connection.sendall(target.head(2, key=False) + b"{}")
                    if not connection.recv(1 << 16):
                        break

    for _ in range(4):
        threading.Thread(target=knock, daemon=True).start()
    target.wait()


def _pipelining(target: Target) -> None:
    """Thousands of requests in one write, without a key."""
    while not target.stop.is_set():
        with suppress(OSError), target.connect() as connection:
            connection.sendall((target.head(2, key=False) + b"{}") * 5000)
            while connection.recv(1 << 16):
                pass


def _large_heads(target: Target) -> None:
    while not target.stop.is_set():
        with suppress(OSError), target.connect() as connection:
            connection.sendall(b"POST /score HTTP/1.1\r\n")
            for number in range(200_000):
                connection.sendall(
                    b"".join(b"X-%d: %s\r\n" % (number * 100 + i, b"y" * 80) for i in range(100))
                )


def _repeatedly(target: Target, body: bytes, *, pause_s: float, more: str = "") -> None:
    while not target.stop.is_set():
        with suppress(OSError), target.post(body, more=more) as connection:
            connection.recv(1 << 16)
        target.stop.wait(pause_s)


def _brackets(target: Target) -> None:
    inner = b"[]," * (31 * MIB // 3)
    _repeatedly(target, b'{"env": "%s", "rows": [%s[]]}' % (target.env.encode(), inner), pause_s=1)


def _braces_8(target: Target) -> None:
    inner = b"{}," * (31 * MIB // 3)
    body = b'{"env": "%s", "rows": [{"task": 1, "meta": [%s{}]}]}' % (target.env.encode(), inner)
    for _ in range(8):
        threading.Thread(
            target=_repeatedly, args=(target, body), kwargs={"pause_s": 1}, daemon=True
        ).start()
    target.wait()


def _chunks_8(target: Target) -> None:
    """Heads and tiny chunks in one write, on eight connections."""
    sent = target.head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 40_000

    def drip() -> None:
        while not target.stop.is_set():
            with suppress(OSError), target.connect() as connection:
                connection.sendall(sent)
                connection.recv(1 << 16)

    for _ in range(8):
        threading.Thread(target=drip, daemon=True).start()
    target.wait()


def _headers_8(target: Target) -> None:
    """Without a key: heads of 16,000 headers, on eight connections."""
    sent = b"GET /health HTTP/1.1\r\n" + b"a:\r\n" * 16_000 + b"\r\n"

    def ask() -> None:
        while not target.stop.is_set():
            with suppress(OSError), target.connect() as connection:
                connection.sendall(sent)
                connection.recv(1 << 16)

    for _ in range(8):
        threading.Thread(target=ask, daemon=True).start()
    target.wait()


def _spaces(target: Target) -> None:
    _repeatedly(target, b'{"rows": [' + b" " * 31 * MIB + b"]}", pause_s=0.5)


def _wide(target: Target) -> None:
    text = "\u00fc".encode() * (15 * MIB)
    _repeatedly(target, b'{"rows": [5, {"task": 1, "completion": "%s"}]}' % text, pause_s=0.5)


def _trailing(target: Target) -> None:
    """A good body, and then megabytes that belong to no request."""
    while not target.stop.is_set():
        with suppress(OSError), target.post(target.body(["0"])) as connection:
            for _ in range(100):
                connection.sendall(b"x" * MIB)


def _gzip(target: Target) -> None:
    _repeatedly(
        target, b"\x1f\x8b" + b"\0" * 4 * MIB, pause_s=0.2, more="Content-Encoding: gzip\r\n"
    )


def _loops(target: Target) -> None:
    kept = target.post(target.body(["loop"] * 200))
    target.wait()
    kept.close()


def _loops_left(target: Target) -> None:
    while not target.stop.is_set():
        target.post(target.body(["loop"] * 200)).close()
        target.stop.wait(0.5)


def _hoard(target: Target) -> None:
    kept = target.post(target.body(["loop"] * 200))
    for _ in range(5):
        left = [target.post(target.body(["x" * (4 * MIB)])) for _ in range(20)]
        for connection in left:
            connection.close()
    target.wait()
    del kept


def _unread(target: Target) -> None:
    body = target.body(["long" + "y" * 20_000] * 1000)
    kept = [target.post(body) for _ in range(20)]
    target.wait()
    del kept


@dataclass(frozen=True)
class Abuse:
    """What is done, by which function, and whether it takes the key."""

    what: str
    act: Callable[[Target], None]
    key: bool = True
    workers: int = 2
    of_rows: bool = False  # so that it is one of `rlvr serve` alone


ABUSES = {
    "drip": Abuse("one connection goes on sending 1-byte chunks after its 401", _drip, key=False),
    "drip-8": Abuse("eight of them", _drip_8, key=False),
    "idle": Abuse("1,005 idle connections", _idle, key=False),
    "slow-heads": Abuse(
        "200 connections send a head of a request byte by byte", _slow_heads, key=False
    ),
    "knock": Abuse(
        "requests without a key on four connections, as fast as they go", _knock, key=False
    ),
    "pipelining": Abuse("5,000 requests without a key in one write", _pipelining, key=False),
    "large-heads": Abuse("heads without an end", _large_heads, key=False),
    "headers-8": Abuse("heads of 16,000 headers on eight connections", _headers_8, key=False),
    "chunks-8": Abuse(
        "heads and 40,000 chunks of a byte in one write, on eight connections", _chunks_8
    ),
    "spaces": Abuse("31 MiB of white space", _spaces),
    "wide": Abuse("30 MiB of letters beyond ASCII, in one row behind one that is none", _wide),
    "slow-bodies": Abuse("200 bodies, a byte each half second", _slow_bodies),
    "brackets": Abuse("31 MiB of `[],[],…`", _brackets),
    "braces-8": Abuse("eight callers send 31 MiB of `{},{},…`", _braces_8),
    "trailing": Abuse("100 MiB after the end of a request", _trailing),
    "gzip": Abuse("4 MiB said to be gzip", _gzip),
    "loops": Abuse("one request of 200 looping rows", _loops, of_rows=True),
    "loops-left": Abuse("the same, from callers who hang up", _loops_left, of_rows=True),
    "loops-1": Abuse(
        "one request of 200 looping rows, one worker", _loops, workers=1, of_rows=True
    ),
    "hoard": Abuse(
        "20 callers send 4 MiB each behind looping rows and leave, five times", _hoard, of_rows=True
    ),
    "unread": Abuse("20 callers ask for 20 MiB answers and do not read", _unread, of_rows=True),
}


# -------------------------------------------------------------------------------- the honest caller


@contextmanager
def served(
    env: str, *flags: str, port: int = 0, app: App = APPS["serve"]
) -> Iterator[tuple[int, int]]:
    """(port, process id) of `rlvr serve`, or of another application, with a key."""
    command = [sys.executable, "-m", "rlvr", "serve", env, "--port", str(port), *flags]
    if app.script:
        command = [sys.executable, "-c", app.script.format(env=env, key=KEY)]
    environment = os.environ | {"RLVR_API_KEY": KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            found = next(
                filter(None, (re.search(r"http://\S+?:(\d+)", one) for one in lines)), None
            )
            if found is None:
                raise SystemExit(f"{' '.join(command)} did not start; see above")
            yield int(found[1]), process.pid
        finally:
            process.kill()


def honest(
    port: int, env: str, seconds: float, *, most: int = 1 << 30, app: App = APPS["serve"]
) -> tuple[list[float], int]:
    """Seconds of each request, and how many of them got no score or no answer."""
    body = app.body.format(env=env)
    headers = {"Content-Type": "application/json", "Authorization": app.authorization}
    took: list[float] = []
    failed = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until and len(took) < most:
        start = time.perf_counter()
        try:
            connection.request(app.method, app.path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            is_row = app is APPS["serve"] and answer.status == 200
            failed += (
                json.loads(text)["scores"][0]["total"] != 1.0 if is_row else answer.status != 200
            )
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        took.append(time.perf_counter() - start)
        time.sleep(0.001)
    connection.close()
    return took, failed


def _p99(took: list[float]) -> float:
    return sorted(took)[min(int(len(took) * 0.99), len(took) - 1)]


class _Memory:
    """The greatest resident memory of the service's own processes, in MiB, while this is open."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self.most = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, sum(map(_resident_mib, [self._pid])))


def _resident_mib(pid: int) -> float:
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB
    return 0.0


def _held_mib(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
        found = re.search(
            r"^rlvr_held_bytes(?:\{.*\})? (\S+)",
            connection.getresponse().read().decode(),
            re.MULTILINE,
        )
        return float(found[1]) / MIB if found else -1.0
    return -1.0


def measure(name: str, env: str, seconds: float, flags: list[str], app: App) -> None:
    """Print the line of an abuse."""
    abuse = ABUSES[name]
    with served(env, "--workers", str(abuse.workers), *flags, app=app) as (port, pid):
        honest(port, env, 0.5, app=app)
        calm, _ = honest(port, env, min(seconds, 2.0), app=app)
        context = multiprocessing.get_context("fork")
        target = Target(port, env, context.Event(), app)
        other = context.Process(target=abuse.act, args=(target,), daemon=True)
        with _Memory(pid) as memory:
            before = _resident_mib(pid)
            other.start()
            try:
                time.sleep(min(1.0, seconds / 2))
                took, failed = honest(port, env, seconds, app=app)
                held = _held_mib(port)
            finally:
                other.kill()
        print(
            f"| {abuse.what} | {'yes' if abuse.key else 'no'} | "
            f"{statistics.median(calm) * 1e3:.1f} / {_p99(calm) * 1e3:.1f} | "
            f"{statistics.median(took) * 1e3:,.1f} / {_p99(took) * 1e3:,.1f} | {failed} of "
            f"{len(took)} | {before:.0f} → {memory.most:,.0f} ({held:.0f}) |",
            flush=True,
        )


# ------------------------------------------------------------------------------------------ speed

_BARE = """
from fastapi import FastAPI, Request

app = FastAPI()

@app.post("/score")
async def score(request: Request):
    asked = await request.json()
    line = {"id": "line:1", "outcome": "correct", "total": 1.0, "parts": {"correct": 1.0}}
    line["value"] = 1.0
    scores = [{**line, "why": "compared", "answer": row["completion"]} for row in asked["rows"]]
    return {"env": asked["env"], "scores": scores}
"""


@contextmanager
def _bare(folder: Path) -> Iterator[tuple[int, int]]:
    """(port, process id) of a FastAPI app that answers the same without scoring,
    on the same server."""
    (folder / "bare_app.py").write_text(_BARE, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "bare_app:app",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    with subprocess.Popen([*command, "--no-access-log"], cwd=folder) as process:
        try:
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield port, process.pid
        finally:
            process.kill()


def _cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and its children."""
    seconds = 0.0
    for one in (pid, *_children(pid)):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _rate(port: int, env: str, seconds: float, connections: int, rows: int) -> float:
    """Answers per second over so many connections, each with one request under way.

    The caller is one thread that waits for all connections at once:
    it shares the machine with the service.
    """
    batch = [{"task": number, "completion": str(number)} for number in range(rows)]
    body = json.dumps({"env": env, "rows": batch}).encode()
    asked = Target(port, env, multiprocessing.get_context("fork").Event()).head(len(body)) + body
    poll, sockets = select.epoll(), {}
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(asked)
        sockets[connection.fileno()] = [connection, b"", -1]
        poll.register(connection.fileno(), select.EPOLLIN)
    answered, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        for number, _ in poll.poll(1):
            state = sockets[number]
            connection, had, due = state
            part = connection.recv(1 << 20)
            if not part:
                raise SystemExit("the service closed a connection")
            had += part
            if due < 0 and (end := had.find(b"\r\n\r\n")) >= 0:
                if not had.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(had[:300].decode())
                found = re.search(rb"(?i)content-length: (\d+)", had[:end])
                assert found is not None
                due = end + 4 + int(found[1])
            if due >= 0 and len(had) >= due:
                answered += 1
                connection.sendall(asked)
                had, due = had[due:], -1
            state[1:] = had, due
    took = time.perf_counter() - start
    for connection, *_ in sockets.values():
        connection.close()
    return answered / took


def speed(env: str, seconds: float, flags: list[str]) -> None:
    """Print single rows against a bare FastAPI app, and batches."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _bare(Path(folder)) as (bare, bare_pid),
        served(env, "--workers", "2", *flags) as (port, pid),
    ):
        _rate(port, env, 1, 16, 1)
        ratios, ours, theirs, per_cpu = [], [], [], []
        for _ in range(3):  # in turn, so that a change of the machine's load meets both
            own_s, bare_s = _cpu_s(pid), _cpu_s(bare_pid)
            ours.append(_rate(port, env, seconds, 16, 1))
            theirs.append(_rate(bare, env, seconds, 16, 1))
            ratios.append(ours[-1] / theirs[-1])
            own_s, bare_s = _cpu_s(pid) - own_s, _cpu_s(bare_pid) - bare_s
            per_cpu.append(ratios[-1] * bare_s / own_s)
        print(
            f"\nOne row per request, 16 connections: {statistics.median(ours):,.0f}/s; a bare "
            f"FastAPI app {statistics.median(theirs):,.0f}/s; ratio "
            f"{statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)}); "
            f"per CPU second, workers too, {statistics.median(per_cpu):.2f} "
            f"({', '.join(f'{ratio:.2f}' for ratio in per_cpu)})."
        )
        for callers in (1, 4):
            rate = _rate(port, env, seconds, callers, 256)
            print(f"Batches of 256, {callers} connections: {rate * 256:,.0f} rows/s.")


# ------------------------------------------------------------------------------------------ kills


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def kills(env: str, flags: list[str]) -> None:
    """Ten workers are killed, then the service itself, which is started again,
    while four callers ask."""
    from rlvr.client import Client, ServedScore

    rows = [
        {"id": f"row-{i}", "task": i, "completion": str(i if i % 3 else -1)} for i in range(8000)
    ]
    found: list[list[ServedScore]] = [[] for _ in range(4)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over = threading.Event()

    def call(number: int) -> None:
        with Client(f"http://127.0.0.1:{port}", KEY, batch=20) as client:
            found[number] = client.score(env, rows[number * 2000 : (number + 1) * 2000])

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    killed = 0
    for last in (False, True):
        with served(env, "--workers", "2", *flags, port=port) as (_, pid):
            if not last:
                for caller in callers:
                    caller.start()
                while killed < 10 and not over.wait(0.15):
                    for worker in _children(pid)[:1]:
                        with suppress(ProcessLookupError):
                            os.kill(worker, signal.SIGKILL)
                            killed += 1
            else:
                for caller in callers:
                    caller.join()
    replies = [reply for part in found for reply in part]
    same = sum(
        reply.id == row["id"]
        and reply.score is not None
        and reply.score.verdict.correct == (row["completion"] != "-1")
        for reply, row in zip(replies, rows, strict=False)
    )
    unscored = sum(reply.score is not None and reply.score.total is None for reply in replies)
    print(
        f"\n{killed} workers killed, then the service killed and started again: {len(replies)} "
        f"answers for {len(rows)} rows, each in its place; "
        f"{same} as they must be, {unscored} unscored."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of abuses, or `speed` or `kills`; all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="that each is measured for")
    parser.add_argument(
        "--app", choices=APPS, default="serve", help="what is abused; others than serve at its HTTP"
    )
    parser.add_argument(
        "--flag",
        action="append",
        default=[],
        help="passed on to `rlvr serve`, as --flag=--held-mib=64",
    )
    parser.add_argument("--list", action="store_true", help="print the names")
    args = parser.parse_args()
    app = APPS[args.app]
    every = [*ABUSES, "speed", "kills"]
    if app.script:
        every = [name for name, abuse in ABUSES.items() if not abuse.of_rows]
    names = args.names or every
    if unknown := [name for name in names if name not in every]:
        parser.error(f"{args.app} has no {', '.join(unknown)}; --list prints the names")
    if args.list:
        print("\n".join(every))
        return
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("rlvr", "uvicorn")
    )
    print(
        f"{versions}; Python {platform.python_version()}; {os.cpu_count()} cores; "
        f"load {os.getloadavg()[0]:.1f}.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "echo_env.py").write_text(ENV, encoding="utf-8")
        env = f"{folder}/echo_env.py:Echo"
        if any(name in ABUSES for name in names):
            print(
                "| abuse | key | undisturbed, ms (median / 99th %) | abused | no score | memory, "
                "MiB (held) |"
            )
            print("|---|---|--:|--:|--:|--:|")
        for name in names:
            if name in ABUSES:
                measure(name, env, args.seconds, args.flag, app)
        if "speed" in names:
            speed(env, args.seconds, args.flag)
        if "kills" in names:
            kills(env, args.flag)


if __name__ == "__main__":
    main()
