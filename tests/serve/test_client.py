"""The client: what it sends, when it asks again, and what it tells its caller."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn

import rlvr
from rlvr.errors import DataError, ServiceFailed, UsageError
from rlvr.http.serve import Service, app_of, listen
from rlvr.scoring.engines import balance, patience
from rlvr.scoring.engines import client as module
from rlvr.scoring.engines.client import Client
from tests.environments import Siblings, Trials, right

GOOD = {
    "outcome": "correct",
    "total": 1.0,
    "parts": {"correct": 1.0},
    "value": 1.0,
    "why": "",
    "answer": None,
}
LINE = json.dumps({"id": "line:1", **GOOD, "detail": {}}).encode() + b"\n"


class Scripted(ThreadingHTTPServer):
    """Answers request after request as the test says: (status, headers, body), or None to hang up."""

    daemon_threads = True

    def __init__(self, *answers) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.asked, self.headers = list(answers), list[dict](), list[dict]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> "Scripted":
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *exc) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(json.loads(body))
        self.server.headers.append(dict(self.headers))
        answer = self.server.answers.pop(0)
        if answer is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = int(headers.get("Content-Length", len(body))) != len(
            body
        )  # cut short

    def log_message(self, *args) -> None:
        pass


@pytest.fixture(autouse=True)
def pauses(monkeypatch) -> list[float]:
    """Every pause it would have made."""
    made = list[float]()
    # Not `module.time.sleep`, which is that of every thread here
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=made.append)
    monkeypatch.setattr(module, "time", clock)
    return made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service of ours behind a socket, in this process."""
    service = Service({"trials": Trials(), "siblings": Siblings()}, workers=1)
    with service, listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app_of(service), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def ok(*lines: bytes) -> tuple:
    return 200, {}, b"".join(lines)


# ------------------------------------------------------------------------------ against the service


def test_scores_are_those_of_the_scorer(url):
    """Whole `Score` objects, equal to those that the same rows come to here; a bad row's error in its place."""
    rows = [
        *right(1),
        {"task": 2, "completion": "3", "id": "b"},
        {"x": 1},
        {"task": 4, "completion": "\ud800@raise"},
    ]
    with Client(url) as client:
        got = client.score("trials", rows)
    with rlvr.Scorer(Trials(), workers=1) as scorer:
        expected = [scored.score for scored in scorer.stream([rows[0], rows[1], rows[3]])]
    assert [reply.score for reply in got if reply.score] == expected
    assert got[3].score.total is None
    assert [reply.id for reply in got] == ["line:1", "b", "line:3", "line:4"]
    assert (
        got[2].error
        == "no column 'completion'; it has 'x'; call the completion's column 'completion'"
    )


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batches_make_no_difference(url, batch):
    """Replies in the order of the rows, and ids that count through all of them."""
    with Client(url, batch=batch) as client:
        got = list(client.stream("trials", iter(right(*range(30)))))
    assert [(reply.id, reply.score.verdict.answer) for reply in got] == [
        (f"line:{i + 1}", f"{i}") for i in range(30)
    ]


def test_it_is_safe_from_threads_and_asyncio(url):
    """Connections are shared, answers are not."""
    with Client(url) as client:

        async def main() -> list:
            return await asyncio.gather(*(client.ascore("trials", right(i)) for i in range(40)))

        got = asyncio.run(main())
    assert [[reply.score.verdict.answer for reply in replies] for replies in got] == [
        [f"{i}"] for i in range(40)
    ]


def test_refusals_are_usage_errors_with_the_words_of_the_service(url):
    """They would be the same however often it asked."""
    with (
        Client(url) as client,
        pytest.raises(UsageError, match="env 'trails' is not served; write one of 'trials'"),
    ):
        client.score("trails", right(1))


def test_completions_of_a_task_stay_together(url):
    """A batch ends between tasks, or a reward that compares would see half of them."""
    rows = [{"task": i // 3, "completion": f"{i // 3}", "length_tokens": i + 1} for i in range(12)]
    with Client(url, batch=4) as client:
        split = [reply.score.total for reply in client.score("siblings", rows)]
        client.batch = 100
        assert split == [reply.score.total for reply in client.score("siblings", rows)]


# ------------------------------------------------------------------------------------- asking again


@pytest.mark.parametrize(
    "trouble",
    [
        None,
        (429, {}, b'{"error": "full"}'),
        (503, {}, b'{"error": "stopping"}'),
        (502, {}, b"<html>"),
        ok(),
        ok(LINE[:9]),
    ],
    ids=["hangs up", "429", "503", "502", "nothing", "half a line"],
)
def test_what_may_pass_is_asked_again_under_the_same_id(trouble, pauses):
    """So that the service scores it once, if it had begun; pauses double, and callers part."""
    with Scripted(trouble, trouble, ok(LINE)) as server, Client(server.url) as client:
        [reply] = client.score("e", [{"completion": "x"}])
    assert reply.score.total == 1.0
    assert len(server.asked) == 3
    assert server.asked[0] == server.asked[1] == server.asked[2]
    assert len(server.asked[0]["request_id"]) == 32
    assert 0.12 <= pauses[0] <= 0.25
    assert 0.24 <= pauses[1] <= 0.5


def test_an_answer_that_breaks_off_is_taken_up_where_it_ended():
    """Each row once, however often it was sent."""
    second = LINE.replace(b"line:1", b"line:2").replace(b"1.0", b"0.5")
    cut = 200, {"Content-Length": "9999"}, LINE
    with Scripted(cut, cut, ok(LINE, second)) as server, Client(server.url) as client:
        got = client.score("e", [{"completion": "x"}, {"completion": "y"}])
    assert [reply.score.total for reply in got] == [1.0, 0.5]


def test_the_service_says_how_long_to_wait(pauses):
    """Retry-After, up to a minute."""
    full = [
        (429, {"Retry-After": said}, b'{"error": "full"}')
        for said in ("7", "9999", "Fri, 31 Dec 1999")
    ]
    with Scripted(*full, ok(LINE)) as server, Client(server.url) as client:
        client.score("e", [{"completion": "x"}])
    assert pauses[:2] == pytest.approx([7, 60], abs=0.5)  # what is left of it when it is sent again
    assert pauses[2] <= 1


def test_it_gives_up_in_the_end():
    """With what it saw last: our failure, and no reward."""
    with (
        Scripted(*[(429, {}, b'{"error": "full"}')] * 3) as server,
        Client(server.url, patience_s=0) as client,
    ):
        with pytest.raises(ServiceFailed, match=r"no answer in 0 s: .*: full"):
            client.score("e", [{"completion": "x"}])
        assert len(server.asked) == 1


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        for one in (module, balance, patience):
            monkeypatch.setattr(one, "time", self)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("services", [1, 2, 16])
def test_patience_does_not_depend_on_the_number_of_services(monkeypatch, services):
    """Attempts were counted: an outage of all survived 29 s with one service, and 0 s with sixteen."""
    clock = Clock(monkeypatch)
    with ExitStack() as stack:
        gone = [
            stack.enter_context(listen("127.0.0.1", 0)).getsockname()[1] for _ in range(services)
        ]
    urls = [f"http://127.0.0.1:{port}" for port in gone]
    with Client(urls) as asking, pytest.raises(ServiceFailed) as failed:
        asking.score(None, [{"completion": "x"}])
    assert 300 <= clock.now - 1000 <= 311  # the longest pause beyond it
    said = str(failed.value)
    assert said.startswith("no answer in 30")
    assert all(url in said for url in urls) == (services <= 8)
    assert said.count("Connection refused") == min(services, 8)


def test_patience_begins_anew_with_each_row(monkeypatch):
    """A service that is lost again and again, and goes on each time, does its work in the end."""
    clock = Clock(monkeypatch)
    lines = [LINE.replace(b"line:1", b"line:%d" % place) for place in (1, 2, 3, 4)]
    answers = [
        part for count in (1, 2, 3) for part in (ok(*lines[:count]), *[(503, {}, b"{}")] * 25)
    ]
    with Scripted(*answers, ok(*lines)) as server, Client(server.url, patience_s=260) as asking:
        assert len(asking.score("e", [{"completion": "x"}] * 4)) == 4
    assert clock.now - 1000 > 400


def test_nobody_there_is_said_so():
    """As is every other trouble with the network."""
    with listen("127.0.0.1", 0) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(ServiceFailed, match=r"ConnectError: .*Connection refused"):
        Client(url, patience_s=0.5).score(None, [{"completion": "x"}])


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422])
def test_a_refusal_is_not_asked_again(status):
    """The same request would be refused again."""
    with Scripted((status, {}, b'{"error": "because"}')) as server, Client(server.url) as client:
        with pytest.raises(UsageError, match=r"^because$"):
            client.score("e", [{"completion": "x"}])
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"stopped": "too long", "status": 504}\n',
        LINE + b'{"stopped": "too long", "status": 504}\n',
    ],
)
def test_a_stream_that_was_stopped_is_an_error(body):
    """Not a short answer: the last line says why."""
    with (
        Scripted((200, {}, body)) as server,
        Client(server.url) as client,
        pytest.raises(ServiceFailed, match="too long"),
    ):
        client.score("e", [{"completion": "x"}, {"completion": "y"}])


def test_what_is_no_answer_of_ours_is_an_error():
    """A wrong address often answers 200."""
    with (
        Scripted(ok(b"<html>\n")) as server,
        Client(server.url) as client,
        pytest.raises(ServiceFailed, match="rlvr serve"),
    ):
        client.score("e", [{"completion": "x"}])


# ------------------------------------------------------------------------------------ what it sends


def test_the_key_comes_from_the_caller_or_the_environment(monkeypatch):
    """An empty one is none."""
    monkeypatch.setenv("RLVR_API_KEY", " from-env\n")
    with Scripted(ok(LINE), ok(LINE), ok(LINE)) as server:
        for key in (None, "given", ""):
            Client(server.url, key).score(None, [{"completion": "x"}])
    assert [head.get("Authorization") for head in server.headers] == [
        "Bearer from-env",
        "Bearer given",
        None,
    ]
    assert "env" not in server.asked[0]


def test_values_of_numpy_and_gaps_of_pandas_are_sent():
    """A scalar as its number; NaN in a column is a gap."""
    row = {"completion": "x", "task": np.int64(3), "mine": np.float32(0.5), "gap": float("nan")}
    with Scripted(ok(LINE)) as server, Client(server.url) as client:
        client.score("e", [row])
    assert server.asked[0]["rows"] == [{"completion": "x", "task": 3, "mine": 0.5}]


def test_long_rows_fill_a_request_first(monkeypatch):
    """A request stays far below the limit of the service, whatever the number of rows."""
    monkeypatch.setattr(module, "_BATCH_BYTES", 1000)
    with Scripted(*[ok(LINE)] * 3) as server, Client(server.url) as client:
        client.score("e", [{"completion": "x" * 900}] * 3)
    assert [len(asked["rows"]) for asked in server.asked] == [1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"completion": {1, 2}}], "row 1 cannot be sent as JSON"),
        ([{"completion": "x"}, {"completion": [float("inf")]}], "row 2 cannot be sent as JSON"),
        (["x"], "row 1 is str 'x'; it must be a mapping"),
        ({"completion": "x"}, "give a list of mappings"),
        ("rows.jsonl", "give a list of mappings"),
    ],
)
def test_what_cannot_be_sent_is_named(rows, says):
    """Before anything is."""
    with pytest.raises((DataError, UsageError), match=says):
        Client("http://127.0.0.1:1").score("e", rows)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", ""])
def test_a_url_that_is_none_is_refused(url):
    """With one that would do."""
    with pytest.raises(UsageError, match=r"http://127\.0\.0\.1:8000"):
        Client(url)


@pytest.mark.parametrize(
    "wrong", [{"timeout_s": 0}, {"patience_s": -1}, {"batch": 0}, {"timeout_s": float("nan")}]
)
def test_a_number_that_cannot_work_is_refused(wrong):
    """By its name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Client("http://x", **wrong)


# ----------------------------------------------------------------------- what it believes and tells


def line(name: str) -> bytes:
    return LINE.replace(b"line:1", name.encode())


@pytest.mark.parametrize(
    "lines",
    [
        (line("b"), line("a")),
        (line("a"), line("a")),
        (line("a"), line("b"), line("c")),
        (line("line:1"), line("b")),
    ],
    ids=["swapped", "twice", "too many", "another id"],
)
def test_a_reward_belongs_to_its_row(lines):
    """A server or a proxy that mixes up answers would train on the wrong rows."""
    rows = [{"id": name, "completion": name} for name in "ab"]
    with (
        Scripted(ok(*lines)) as server,
        Client(server.url, patience_s=0) as client,
        pytest.raises(ServiceFailed, match=r"was due|more lines"),
    ):
        client.score("e", rows)


@pytest.mark.parametrize("name", [7, 7.0, True, "7", "x" * 300, (1, 2)])
def test_ids_of_any_kind_are_known_again(url, name):
    """As the service repeats them: a whole float as an int, a long one not at all."""
    with Client(url) as client:
        [reply] = client.score("trials", [{"id": name, "task": 1, "completion": "1"}])
    assert reply.score is not None or "200 letters" in reply.error


def test_the_password_of_a_url_is_the_key(monkeypatch):
    """And is not shown; a key that is given counts more, one in the environment less."""
    monkeypatch.setenv("RLVR_API_KEY", "from-env")
    with Scripted(ok(LINE), ok(LINE), (500, {}, b'{"error": "no, SECRET!"}')) as server:
        own = server.url.replace("//", "//any:SECRET@")
        Client(own).score(None, [{"completion": "x"}])
        Client(own, "given").score(None, [{"completion": "x"}])
        with pytest.raises(ServiceFailed) as failed:
            Client(own, patience_s=0).score(None, [{"completion": "x"}])
    assert [head["Authorization"] for head in server.headers[:2]] == [
        "Bearer SECRET",
        "Bearer given",
    ]
    assert "SECRET" not in str(failed.value)
    with listen("127.0.0.1", 0) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(
        ServiceFailed, match=f"no answer in 0 s: http://127.0.0.1:{port}: "
    ) as failed:
        Client(f"http://any:SECRET@127.0.0.1:{port}", patience_s=0).score(
            None, [{"completion": "x"}]
        )
    assert "SECRET" not in str(failed.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://h/?key=SECRET", "http://h/#SECRET", "http://h:SECRET", "http://h:99999", "http://h:0", "http://h h",
        "http://any:SECRET@", "http://[SECRET", "http://any:SECRET@h:port",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(url):
    """When the client is made, and it may hold a key."""
    with pytest.raises(UsageError) as refused:
        Client(url)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("key", ["SECRET\r\nX: y", "SECRET two", "SECRÉT"])
def test_a_key_that_is_no_header_is_refused_and_not_shown(key):
    """When the client is made."""
    with pytest.raises(UsageError, match="the API key has") as refused:
        Client("http://h", key)
    assert "SECR" not in str(refused.value)


def test_a_long_line_is_joined_once(monkeypatch):
    """In linear time, and up to a limit."""
    monkeypatch.setattr(module, "_MOST_LINE_BYTES", 1 << 20)
    parts = [b"x" * 100] * 5_000
    before = time.process_time()
    assert [len(one) for one in module._split_lines(iter([*parts, b"\n", *parts, b"y\nz\n"]))] == [
        500_000,
        500_001,
        1,
    ]
    assert time.process_time() - before < 1
    with pytest.raises(ServiceFailed, match="a line of the response has more than 1 MiB"):
        list(module._split_lines(iter(parts * 3)))
