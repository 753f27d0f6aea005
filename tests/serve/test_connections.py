"""A connection of the HTTP service, fed byte by byte without a socket: what it writes, and in how many writes."""

import asyncio
import gc
import json
import time
import weakref
from types import SimpleNamespace

import pytest
import uvicorn
from uvicorn.server import ServerState

from rlvr.http.body import _LONG_NUMBER, _loaded
from rlvr.http.connections import Connection, Connections
from rlvr.http.metrics import Metrics
from rlvr.http.responses import PieceWriter
from rlvr.http.serve import Service, ServiceLimits, app_of
from rlvr.http.serve.jobs import Readers, _line
from rlvr.http.serve.queue import EnvironmentQueue
from tests.environments import right
from tests.processes import PATIENCE_S
from tests.serve.serving import ENVS

KEY = "a-key-of-the-tests"


class Wire(asyncio.Transport):
    """The caller's side of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = self.was_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 4711) if name in ("peername", "sockname") else default

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def sent(service: Service, *parts: bytes, writes: int = 1) -> Wire:
    """What the service writes after it has received these parts, at least so many writes."""

    async def run() -> Wire:
        config = uvicorn.Config(
            app_of(service), ws="none", lifespan="off", server_header=False, log_level="critical"
        )
        connections = Connections(service.limits, service.metrics)
        connection = Connection(
            connections=connections, config=config, server_state=ServerState(), app_state={}
        )
        wire = Wire()
        connection.connection_made(wire)
        for part in parts:
            if not wire.closed:
                connection.data_received(part)
            await asyncio.sleep(0)
        while len(wire.writes) < writes:
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0)
        wire.was_closed = wire.closed
        connection.connection_lost(None)
        await asyncio.sleep(0.01)
        return wire

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def post(
    body: bytes, *more: str, path: str = "/score", key: str = KEY, version: str = "1.1"
) -> bytes:
    """A request."""
    lines = [f"POST {path} HTTP/{version}", "Host: x", "Content-Type: application/json", *more]
    lines += [f"Authorization: Bearer {key}"] if key else []
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in more):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(write: bytes) -> int:
    return int(write.split(b" ", 2)[1])


def answer(write: bytes) -> dict:
    return json.loads(write.partition(b"\r\n\r\n")[2])


@pytest.fixture(scope="module")
def service():
    """One worker, and a key."""
    limits = ServiceLimits(body_mib=1)
    with Service({"trials": ENVS["trials"]}, workers=1, api_key=KEY, limits=limits) as service:
        yield service


ROWS = json.dumps({"rows": right(7)}).encode()


# ------------------------------------------------------------------------------- how much it writes


@pytest.mark.parametrize(
    ("asked", "gives"),
    [
        (post(ROWS), 200),
        (post(b"{"), 400),
        (post(ROWS, key=""), 401),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 401),
    ],
    ids=["scores", "not JSON", "no key", "health", "no page"],
)
def test_an_answer_is_one_write(service, asked, gives):
    """Head and body: each write is a packet, and wakes the caller."""
    wire = sent(service, asked)
    assert len(wire.writes) == 1
    assert status(wire.writes[0]) == gives
    assert answer(wire.writes[0])


def test_a_stream_begins_with_its_head(service):
    """In one write with its first lines."""
    wire = sent(service, post(ROWS, "Accept: application/x-ndjson"), writes=2)
    assert status(wire.writes[0]) == 200
    assert b'"total":1.0' in wire.writes[0]
    assert b"".join(wire.writes).endswith(b"0\r\n\r\n")


def test_head_has_no_body(service):
    """But the length that it would have."""
    wire = sent(service, b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")
    [write] = wire.writes
    assert b"content-length: 15\r\n" in write
    assert write.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("more", "version", "closes"),
    [((), "1.1", False), (("Connection: close",), "1.1", True), ((), "1.0", True)],
)
def test_a_connection_is_kept_unless_it_is_said_otherwise(service, more, version, closes):
    """HTTP/1.0 callers wait for the end of the connection."""
    wire = sent(service, post(ROWS, *more, version=version))
    assert status(wire.writes[0]) == 200
    assert (b"connection: close" in wire.writes[0], wire.was_closed) == (closes, closes)


@pytest.mark.parametrize("path", ["/none", "/envs"])
def test_an_answer_before_the_body_says_that_it_is_the_last(service, path):
    """Its caller would send the next request to a connection that reads no more."""
    head, _, body = post(ROWS, path=path).partition(b"\r\n\r\n")
    wire = sent(service, head + b"\r\n\r\n")
    assert status(wire.writes[0]) in (404, 405)
    assert b"connection: close" in wire.writes[0]
    assert b"connection: close" not in sent(service, head + b"\r\n\r\n" + body).writes[0]


def test_an_answer_that_breaks_off_is_not_gone_on_with(service, monkeypatch):
    """Its caller would read the error as a part of it, such as a score."""
    real = PieceWriter.write

    async def write(self, *args, **more):
        await real(self, *args, **more)
        raise RuntimeError("as asked")

    monkeypatch.setattr(PieceWriter, "write", write)
    wire = sent(service, post(ROWS, "Accept: application/x-ndjson"))
    assert b'"total":1.0' in wire.writes[0]
    assert b"HTTP/1.1 500" not in b"".join(wire.writes)
    assert wire.was_closed
    assert b'rlvr_connections_closed_total{reason="broken"} 1.0' in service.metrics.text()


def test_a_caller_who_left_before_the_answer_is_counted_so(service, monkeypatch):
    """499; and the server is not told that an answer is missing."""
    real = Connection.answer

    def answer(self, *args):
        self.transport.close()
        return real(self, *args)

    monkeypatch.setattr(Connection, "answer", answer)
    assert not sent(service, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n", writes=0).writes
    assert b'rlvr_requests_total{path="/health/live",status="499"} 1.0' in service.metrics.text()


# -------------------------------------------------------------------------- what is no good request


CHUNKED = "Transfer-Encoding: chunked"


def chunks(body: bytes, size: int, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return (
        b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
        + b"0\r\n"
        + trailers
        + b"\r\n"
    )


@pytest.mark.parametrize(
    ("asked", "gives", "says"),
    [
        (post(b"", CHUNKED) + chunks(ROWS, 7), 200, "scores"),
        (post(b"", CHUNKED) + chunks(ROWS, 1000, b";a=b", b"X: y\r\n"), 200, "scores"),
        (post(b"", CHUNKED) + chunks(ROWS + b" " * 50_000, 1), 400, "chunks of a few bytes"),
        (post(b"", CHUNKED) + chunks(ROWS, 1000, b";" + b"y" * 50_000), 400, "chunks of a few bytes"),
        (post(b"", CHUNKED) + chunks(ROWS, 1000, b"", b"X: y\r\n" * 10_000), 400, "chunks of a few bytes"),
        (post(b"", CHUNKED, key="") + chunks(ROWS + b" " * 50_000, 1), 400, "chunks of a few bytes"),
        (post(b"", CHUNKED, "Content-Length: 5") + chunks(ROWS, 7), 400, "no HTTP"),
        (post(ROWS, "Content-Length: 2", f"Content-Length: {len(ROWS)}"), 400, "no HTTP"),
        (post(ROWS, *(f"X{i}: y" for i in range(252))), 200, "scores"),
        (post(ROWS, *(f"X{i}: y" for i in range(300))), 431, "more than 256 headers"),
        (post(ROWS, *["a:"] * 100_000), 431, "more than 256 headers"),
        (post(ROWS, "Authorization: Bearer wrong"), 401, "API key"),
        (post(ROWS, path="http://elsewhere.example/score"), 200, "scores"),
        (post(ROWS, "Expect: 100-continue"), 200, "scores"),
    ],
    ids=["chunks", "extension and trailer", "1-byte chunks", "a long extension", "trailers", "1-byte chunks, no key",
         "two lengths", "length twice", "252 headers", "300 headers", "100,000 headers", "two keys",
         "absolute form", "Expect"],
)  # fmt: skip
def test_a_request_of_an_odd_form_is_answered_once(service, asked, gives, says):
    """With one answer, in one write; what frames a body is bounded, as each chunk and header is a call of ours."""
    wire = sent(service, asked)
    assert len(wire.writes) == 1
    assert status(wire.writes[0]) == gives
    assert says in json.dumps(answer(wire.writes[0]))
    assert service.http.memory.held == 0


def test_a_caller_is_told_to_go_on(service):
    """With 100, at once, where it waits before it sends its body; and it is not where the answer is a refusal."""
    body = post(ROWS, "Expect: 100-continue")
    head, rest = body[: -len(ROWS)], body[-len(ROWS) :]
    wire = sent(service, head, b"", b"", b"", rest, writes=2)
    assert [status(write) for write in wire.writes] == [100, 200]
    refused = sent(service, post(ROWS, "Expect: 100-continue", key="")[: -len(ROWS)])
    assert [status(write) for write in refused.writes] == [401]


@pytest.mark.parametrize(
    "asked", [b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", post(ROWS), post(ROWS, path="/nothing")]
)
def test_a_caller_who_does_not_read_is_cut_off(asked):
    """Also one that asks for small answers, again and again: its connection would count as busy for ever."""

    async def run(service: Service) -> Wire:
        config = uvicorn.Config(app_of(service), ws="none", lifespan="off", log_level="critical")
        connections = Connections(service.limits, service.metrics)
        connection = Connection(
            connections=connections, config=config, server_state=ServerState(), app_state={}
        )
        wire = Wire()
        connection.connection_made(wire)
        connection.pause_writing()  # as the transport says when too much is unread
        connection.data_received(asked)
        while not wire.closed:
            await asyncio.sleep(0.001)
        connection.connection_lost(None)
        while service.http.under_way:
            await asyncio.sleep(0)
        return wire

    with Service(
        {"trials": ENVS["trials"]}, workers=1, api_key=KEY, limits=ServiceLimits(stall_s=0.05)
    ) as service:
        wire = asyncio.run(asyncio.wait_for(run(service), PATIENCE_S))
        assert wire.writes == []
        assert (
            'rlvr_connections_closed_total{reason="stalled"} 1.0' in service.metrics.text().decode()
        )
        assert service.http.memory.held == 0


def test_a_caller_who_leaves_is_noticed_at_once(service):
    """Its rows do not wait for the next look at it: others are next."""

    async def run() -> tuple[list, int]:
        config = uvicorn.Config(app_of(service), ws="none", lifespan="off", log_level="critical")
        connections = Connections(service.limits, service.metrics)
        connection = Connection(
            connections=connections, config=config, server_state=ServerState(), app_state={}
        )
        wire = Wire()
        connection.connection_made(wire)
        connection.data_received(
            post(json.dumps({"rows": [{"task": 1, "completion": "1@hang"}]}).encode())
        )
        while connection.when_lost is None:
            await asyncio.sleep(0)
        connection.connection_lost(None)
        turns = 0
        while service.http.under_way:
            turns += 1
            await asyncio.sleep(0)
        return wire.writes, turns

    writes, turns = asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert writes == []
    assert turns < 20


# --------------------------------------------------------------------------- how little it computes


def loaded(text: str) -> object:
    body = text.encode()
    return _loaded(body, plain=not _LONG_NUMBER.search(body))


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        "18446744073709551616",
        "-9223372036854775809",
        "1e400",
        "-0",
        "0.1",
        '{"a": 1, "a": 2}',
        '"ü\\u0000"',
        "[]",
    ],
)
def test_the_quick_parser_reads_what_the_other_reads(text):
    """Whole numbers of any size stay whole, and half of a surrogate pair is a text."""
    assert repr(loaded(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["NaN", "[1,]", "\ufeff1", "01", "[" * 5000, '"\t"', ""])
def test_the_quick_parser_refuses_what_the_other_refuses(text):
    """With its words."""
    with pytest.raises((ValueError, RecursionError)):
        loaded(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 2**70},
        {"id": "\ud800"},
        {"id": "ü", "total": 0.1, "detail": {"a": [None]}},
        {"id": "a\u2028b\u2029c\x85d\ne", "detail": {"\x85": "Â\u2027"}},
    ],
)
def test_a_line_is_json_whatever_it_holds(fields):
    """Also what the quick writer does not write; and it is one line for callers who split texts."""
    assert json.loads(_line(fields)) == fields
    assert len(_line(fields).decode().splitlines()) == 1


def test_readers_are_woken_once_for_a_chunk():
    """One call of the event loop for all jobs that have new lines when it runs."""
    calls, woken = [], []
    readers = Readers(SimpleNamespace(call_soon_threadsafe=calls.append))
    for name in ("a", "b"):
        readers.wake(SimpleNamespace(_wake=lambda name=name: woken.append(name)))
    [call] = calls
    call()
    assert woken == ["a", "b"]
    readers.wake(SimpleNamespace(_wake=lambda: woken.append("c")))
    assert len(calls) == 2


def test_a_request_leaves_no_garbage(service):
    """What only the garbage collector finds is found late, and looking for it stops the event loop."""
    jobs: list[weakref.ref] = []
    real = EnvironmentQueue.submit

    def submit(self, *args, **more):
        job = real(self, *args, **more)
        jobs.append(weakref.ref(job))
        return job

    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EnvironmentQueue, "submit", submit)
            assert status(sent(service, post(ROWS)).writes[0]) == 200
        [job], until = jobs, time.monotonic() + PATIENCE_S
        while (
            job() is not None and time.monotonic() < until
        ):  # until the thread has left its last function
            time.sleep(0.001)
        assert job() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("row_s", "age_s", "waits"),
    [(1e-4, 0.0, True), (1e-4, 1.0, False), (0.1, 0.0, False), (0.0, 0.0, False)],
)
def test_quick_rows_are_collected_while_a_chunk_has_just_begun(monkeypatch, row_s, age_s, waits):
    """Slow ones are not, nor behind a chunk that takes long: another worker takes them at once."""
    queue = object.__new__(EnvironmentQueue)
    later, at_once = [], []
    queue._looks_at, queue._under_way, queue._ring = 0.0, 1, {}
    queue._began_s = time.monotonic() - age_s
    queue._spent_s, queue._spent_rows = row_s * 100, 100
    monkeypatch.setattr(queue, "_spur", lambda: at_once.append(1))
    loop = SimpleNamespace(call_later=lambda seconds, call: later.append(call))
    queue._spur_later(loop)
    queue._spur_later(loop)  # of another request
    assert (len(later), len(at_once)) == ((1, 0) if waits else (0, 2))
    if waits:
        later[0]()
        assert at_once


def test_metrics_of_a_request_are_looked_up_once():
    """By path and status."""
    metrics = Metrics()
    for _ in range(3):
        metrics.count_request("/score", 200, 0.004)
    text = metrics.text().decode()
    assert 'rlvr_requests_total{path="/score",status="200"} 3.0' in text
    assert 'rlvr_request_seconds_count{path="/score"} 3.0' in text
