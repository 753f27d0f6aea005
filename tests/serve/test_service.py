"""The HTTP service, without a socket: what it answers, what it refuses, and what it remembers."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.errors import MissingDependency, UsageError, WorkerDied
from rlvr.http.serve import Service, ServiceLimits, listen, queue
from rlvr.scoring.records import score_from
from rlvr.types import Outcome, Verdict
from tests.environments import right
from tests.processes import PATIENCE_S
from tests.serve.serving import ENVS, Call, ask, error, score, serving, talk, unstarted


def logged(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


# ------------------------------------------------------------------------------------------ scores


TEXTS = ["7", " 7\r\n", "8", "", "\x00", "\ud800", "a" * 100_000, "７", "7@raise"]


def test_scores_are_those_of_the_scorer(service):
    """All of a score comes over HTTP and back, to the last field: verdict, parts, reason, traceback."""
    rows = [{"task": 7, "completion": text} for text in TEXTS]
    answer = score(service, rows).json()
    assert answer["env"] == "trials"
    with rlvr.Scorer(ENVS["trials"], workers=1) as scorer:
        expected = [scored.score for scored in scorer.stream(rows)]
    assert [score_from(row) for row in answer["scores"]] == expected
    assert [row["id"] for row in answer["scores"]] == [
        f"line:{i}" for i in range(1, len(TEXTS) + 1)
    ]


def test_what_the_service_fails_at_has_no_score(service):
    """null, and never 0: a trainer has to mask it, and cannot by mistake average it."""
    [row] = score(service, [{"task": 7, "completion": "7@raise"}]).json()["scores"]
    assert (row["total"], row["outcome"], row["parts"]) == (None, "unscored", {})
    assert row["why"] == "worker-error: RuntimeError: as asked"


def test_a_row_that_cannot_be_used_is_reported_in_its_place(service):
    """The others are scored: before it, between two of them, and after it."""
    rows = [
        {"completion": "no task"},
        *right(1),
        5,
        {"task": 2, "completion": 3, "id": "c"},
        *right(4),
        None,
    ]
    got = score(service, rows).json()["scores"]
    assert ["error" in row for row in got] == [True, False, True, True, False, True]
    assert [row["id"] for row in got] == ["line:1", "line:2", "line:3", "c", "line:5", "line:6"]
    assert [row.get("total") for row in got] == [None, 1.0, None, None, 1.0, None]
    assert got[3]["error"] == "the completion is int 3; it must be a string"


@pytest.mark.parametrize("rows", [[], [{}], [3, 4]])
def test_a_request_without_a_usable_row_has_an_answer_all_the_same(service, rows):
    """One entry for each row."""
    answer = score(service, rows)
    assert answer.status_code == 200
    assert len(answer.json()["scores"]) == len(rows)


def test_completions_of_a_task_are_compared(service):
    """A reward across a group sees all of its rows: of two right answers the shorter gets more."""
    rows = [{"task": 1, "completion": "1", "length_tokens": n} for n in (10, 20)]
    got = ask(service, "POST", "/score", json={"env": "siblings", "rows": rows}).json()["scores"]
    assert got[0]["total"] > got[1]["total"]


def test_the_environment_may_be_left_out_where_there_is_one():
    """And only there."""
    with serving() as alone:
        assert (
            ask(alone, "POST", "/score", json={"rows": right(1)}).json()["scores"][0]["total"]
            == 1.0
        )


def test_lines_come_as_they_are_scored_and_in_order(fifo):
    """The first is here while the second is still being worked on."""
    with serving() as service:  # a new one's chunks are of one row

        async def conversation() -> list[bytes]:
            rows = [*right(1), {"task": 2, "completion": f"2@gate {fifo.path}"}, {"x": 1}]
            call = Call(service, accept="application/x-ndjson").ask(rows)
            assert await call.status() == 200
            lines = [await call.body()]
            pid = await asyncio.to_thread(fifo.pid)
            Path(f"{fifo.path}.open").touch()
            os.kill(pid, signal.SIGKILL)  # the second attempt finds the gate open
            while part := await call.body():
                lines.append(part)
            return lines

        lines = asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S))
    assert json.loads(lines[0])["id"] == "line:1"
    rest = [json.loads(line) for line in b"".join(lines[1:]).splitlines()]
    assert [(row["id"], row.get("total")) for row in rest] == [("line:2", 1.0), ("line:3", None)]


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b'{"rows": [NaN]}', 400, "NaN is no JSON"),
        (b'{"rows": [-Infinity]}', 400, "-Infinity is no JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"rows": [' + b"9" * 5000 + b"]}", 400, "not JSON"),
        (b"[]", 422, "the body is a list; send one JSON object"),
        (b'{"env": "trials"}', 422, "'rows' is missing; send a list"),
        (b'{"env": "trials", "rows": {}}', 422, "'rows' is a dict"),
        (b'{"env": 3, "rows": []}', 422, "'env' is '3'"),
        (b'{"env": "trials", "rows": [], "request_id": ""}', 422, "'request_id' is ''"),
        (
            b'{"env": "trails", "rows": []}',
            404,
            "env 'trails' is not served; write one of 'trials', 'siblings'",
        ),
        (b'{"rows": []}', 422, "no env is named; write one of 'trials', 'siblings'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_request_of_no_use_is_told_why(service, body, status, says):
    """One line: the value, the rule, the fix."""
    answer = ask(
        service, "POST", "/score", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status
    assert says in error(answer)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_only_plain_json_is_taken(service, headers):
    """A web page can make a browser send a form or a text to this machine, but no JSON."""
    answer = ask(service, "POST", "/score", content=b'{"rows": []}', headers=headers)
    assert answer.status_code == 415
    assert "application/json" in error(answer)


def test_errors_of_the_frame_look_like_ours(service):
    """An unknown path, a wrong method."""
    assert error(ask(service, "GET", "/scores")).startswith("GET /scores: Not Found")
    assert ask(service, "GET", "/score").status_code == 405


def test_a_body_that_says_it_is_too_large_is_not_read():
    """By its Content-Length."""
    with unstarted(body_mib=0.001) as service:

        async def conversation() -> int:
            return await Call(service, **{"content-length": "1049"}).status()

        assert asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S)) == 413


def test_a_body_is_refused_as_soon_as_it_is_too_large():
    """While it comes: its end is not waited for."""
    with unstarted(body_mib=0.001) as service:

        async def conversation() -> tuple[int, bytes]:
            call = Call(service).send(b" " * 1000, more=True).send(b" " * 49, more=True)
            return await call.status(), await call.body()

        status, body = asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S))
        assert status == 413
        assert b"more than 1048 bytes; send fewer rows at once" in body
        assert service.http.memory.held == 0


def test_bodies_have_a_limit_together():
    """Many callers with half a body each would fill the memory too; what one leaves is there for the next."""
    with serving(body_mib=0.001, held_mib=0.0015) as service:

        async def conversation() -> tuple[int, int]:
            first = Call(service).send(b" " * 1000, more=True)
            while not service.http.memory.held:
                await asyncio.sleep(0)
            second = Call(service).send(b" " * 1000, more=True)
            refused = await second.status()
            first.leave()
            await first.task
            return refused, service.http.memory.held

        assert asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S)) == (429, 0)
        assert score(service, right(1)).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for():
    """Nor is a connection kept by who sends a byte now and then."""
    with unstarted(body_s=0.01) as service:

        async def conversation() -> int:
            return await Call(service).send(b"{", more=True).status()

        assert asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S)) == 408


def test_too_many_rows_are_refused():
    """With the limit, so that the caller can split them."""
    with unstarted(request_rows=2) as service:
        answer = score(service, right(1, 2, 3))
        assert answer.status_code == 413
        assert error(answer) == "the request has 3 rows and the limit is 2; split it"


def test_a_full_queue_asks_to_come_again(fifo):
    """429 and when; what is in the queue is not harmed, and what would still fit is taken."""
    with serving(request_rows=3, queue_rows=3) as service:

        async def conversation() -> None:
            held = Call(service).ask([{"task": 1, "completion": f"1@pause {fifo.path}"}, *right(2)])
            await asyncio.to_thread(fifo.line)
            other = Call(service).ask(right(1, 2))
            start = await other.sent.get()
            assert start["status"] == 429
            assert dict(start["headers"])[b"retry-after"] == b"1"
            text = json.loads(await other.body())["error"]
            assert text.startswith(
                "2 rows for trials are waiting and 2 more would exceed the limit of 3"
            )
            fits = Call(service).ask(right(1))
            while service.queues["trials"].waiting < 3:
                await asyncio.sleep(0.001)
            for call in (held, fits):
                call.leave()
                await call.task

        asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S))


def test_a_request_that_takes_too_long_is_given_up():
    """504, with how far it came; a stream says so in a last line that is no row's."""
    with serving(request_s=0.2) as service:
        rows = [*right(1), {"task": 2, "completion": "2@hang"}]
        answer = score(service, rows)
        assert answer.status_code == 504
        assert "of 2 rows were scored within 0.2 s" in error(answer)
        streamed = ask(
            service,
            "POST",
            "/score",
            json={"rows": rows},
            headers={"accept": "application/x-ndjson"},
        )
        last = json.loads(streamed.text.splitlines()[-1])
        assert streamed.status_code == 504 or (last["status"] == 504 and "stopped" in last)


@pytest.mark.parametrize("name", ["body_mib", "request_rows", "drain_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_a_number_above_0(name, value):
    """An endless one would be none."""
    with pytest.raises(UsageError, match=f"{name} is {value!r}"):
        ServiceLimits(**{name: value})


def test_the_greatest_request_has_to_fit_into_the_queue():
    """Or it would be told to come again for ever."""
    with pytest.raises(UsageError, match="queue_rows must be at least request_rows"):
        ServiceLimits(request_rows=10, queue_rows=9)


# -------------------------------------------------------------------------------------- who may ask


KEY = "s3cret"


@pytest.fixture(scope="module")
def locked():
    """A service with a key."""
    with Service({"trials": ENVS["trials"]}, workers=1, api_key=KEY) as service:
        yield service


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401), ("", 401), ("Bearer", 401), ("Bearer s3creT", 401), ("Bearer s3cret2", 401), ("s3cret", 401),
        ("Basic !!", 401), ("Basic eDpuby==", 401), ("Digest s3cret", 401), ("Bearer sécret", 401),
        ("Bearer s3cret", 200), ("bearer  s3cret ", 200), ("Basic YW55OnMzY3JldA==", 200),
    ],
)  # fmt: skip
def test_the_key_opens_and_nothing_else_does(locked, header, status):
    """As Bearer, or as the password in a URL for callers that take no header."""
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    answer = ask(locked, "POST", "/score", json={"rows": right(1)}, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert "Authorization: Bearer KEY" in error(answer)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_what_needs_no_key_tells_nothing():
    """A monitor has no key; how much is scored stays secret without one."""
    service = Service(ENVS, workers=1, api_key=KEY)
    for path, status in (
        ("/health", 200),
        ("/health/live", 200),
        ("/docs", 200),
        ("/metrics", 401),
        ("/none", 401),
    ):
        answer = ask(service, "GET", path)
        assert answer.status_code == status, path
        assert KEY not in answer.text
        assert "trials" not in answer.text


@pytest.mark.parametrize("key", ["with space", "line\n", "schlüssel"])
def test_a_key_that_no_header_carries_is_refused(key):
    """No client could ever show it."""
    with pytest.raises(UsageError, match="API key"):
        Service(ENVS, workers=1, api_key=key)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_only_on_purpose(host):
    """An open door is asked for by name."""
    with pytest.raises(UsageError, match="RLVR_API_KEY"):
        listen(host, 0)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    """Some systems would take it modulo 65536."""
    with pytest.raises(UsageError, match="port is"):
        listen("127.0.0.1", port)


def test_answers_do_not_wait_for_acknowledgements():
    """Nagle's algorithm would hold the second part of each answer for 40 ms."""
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()) as caller,
    ):
        with listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert caller


def test_a_port_that_is_taken_is_named():
    """In one line, as any other error."""
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on '127.0.0.1', port {port}"):
            listen("127.0.0.1", port)


# --------------------------------------------------------------------------- the same request again


def test_a_request_that_comes_again_is_not_scored_again(service, tmp_path):
    """The same lines, from memory; also as a stream."""
    rows = [{"task": 1, "completion": f"1@row {tmp_path}/log"}, {"x": 1}]
    first, second = (score(service, rows, request_id="again") for _ in range(2))
    assert first.json() == second.json()
    assert len(logged(tmp_path / "log")) == 1
    body = json.dumps({"env": "trials", "rows": rows, "request_id": "again"})
    headers = {"content-type": "application/json", "accept": "application/x-ndjson"}
    third = ask(service, "POST", "/score", content=body, headers=headers)
    assert [json.loads(line) for line in third.text.splitlines()] == first.json()["scores"]
    assert len(logged(tmp_path / "log")) == 1


def test_a_request_that_comes_again_too_soon_joins_the_first(service, tmp_path):
    """A caller who lost patience and asks again does not double the work."""
    rows = [{"task": 1, "completion": f"1@nap {tmp_path}/log"}]
    body = {"env": "trials", "rows": rows, "request_id": "soon"}

    async def conversation(client):
        return await asyncio.gather(*(client.post("/score", json=body) for _ in range(5)))

    answers = talk(service, conversation)
    assert {answer.text for answer in answers} == {answers[0].text}
    assert answers[0].json()["scores"][0]["total"] == 1.0
    assert len(logged(tmp_path / "log")) == 1


def test_an_id_belongs_to_one_request(service):
    """Another body under it is a mistake of the caller, which a score would hide; environments are apart."""
    assert score(service, right(1), request_id="mine").status_code == 200
    answer = score(service, right(2), request_id="mine")
    assert answer.status_code == 409
    assert "request_id 'mine' came before with another body" in error(answer)
    body = {"env": "siblings", "rows": right(3), "request_id": "mine"}
    assert ask(service, "POST", "/score", json=body).status_code == 200


def test_memory_of_answers_is_bounded(tmp_path):
    """The oldest goes first: it is scored again, and its id is free."""
    with serving(remembered_mib=0.01) as service:
        rows = [{"task": 1, "completion": f"1@row {tmp_path}/log"}]
        for i in range(20):
            assert score(service, rows, request_id=f"{i}").status_code == 200
        assert 0 < service._idempotency_cache.size <= 0.01 * 2**20
        score(service, rows, request_id="19")
        assert len(logged(tmp_path / "log")) == 20
        score(service, rows, request_id="0")
        assert len(logged(tmp_path / "log")) == 21


# -------------------------------------------------------------------------- who leaves, what breaks


def test_what_nobody_waits_for_is_not_begun(tmp_path, fifo):
    """A caller who leaves takes the rows along that no worker has: a window's, not the request's."""
    log = tmp_path / "log"
    with serving() as service:
        rows = [{"task": 0, "completion": f"0@pause {fifo.path}"}]
        rows += [{"task": i, "completion": f"{i}@row {log}"} for i in range(1, 2000)]

        async def conversation() -> None:
            call = Call(service).ask(rows, request_id="left")
            waiting = Call(service).ask([{"task": 1, "completion": f"1@row {log}"}])
            pid = await asyncio.to_thread(fifo.pid)
            call.leave()
            await call.task
            os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(fifo.line)  # the second attempt
            service.queues["trials"].scorer.close()
            waiting.leave()
            await waiting.task

        asyncio.run(asyncio.wait_for(conversation(), PATIENCE_S))
        assert len(logged(log)) < 500
        assert 'rlvr_cancelled_total{env="trials"}' in service.metrics.text().decode()


def test_a_bug_is_said_to_be_ours(service, monkeypatch, caplog):
    """500 and JSON; the log has the traceback, the caller does not."""

    def observe(*args, **more):
        raise RuntimeError("inner secret")

    monkeypatch.setattr(service.queues["trials"].scorer, "observe", observe)
    answer = score(service, right(1), request_id="bug")
    assert answer.status_code == 500
    assert "a bug in the service, RuntimeError" in error(answer)
    assert "inner secret" not in answer.text
    assert "inner secret" in caplog.text
    monkeypatch.undo()
    assert (
        score(service, right(1), request_id="bug").status_code == 200
    )  # what failed is not remembered


@pytest.mark.parametrize("deaths", [1, 3, 100])
def test_rows_for_which_no_worker_starts_are_tried_again(service, monkeypatch, deaths):
    """Then they are unscored: each request has its answer, also on a machine that is out of processes."""
    real, pauses = service.queues["trials"].scorer.observe, []

    def observe(items, **more):
        if len(pauses) == deaths:
            return real(items, **more)
        if not pauses:
            real(items[:1], **more)
        raise WorkerDied("no process is left")

    monkeypatch.setattr(service.queues["trials"].scorer, "observe", observe)
    # Not `queue.time.sleep`, which is that of every thread here
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(queue, "time", clock)
    got = score(
        service, [*right(1), {}, {"task": 3, "completion": "3", "id": "c"}, *right(4)]
    ).json()["scores"]
    assert [row["id"] for row in got] == ["line:1", "line:2", "c", "line:4"]
    assert "no column 'completion'" in got[1].pop("error")
    if deaths <= 3:
        assert [row.get("total") for row in got] == [1.0, None, 1.0, 1.0]
    else:
        assert [row.get("total") for row in got] == [1.0, None, None, None]
        assert got[3]["why"] == "worker-died: no process is left"
        assert (
            len(pauses) == 4
        )  # one for the first row, three for the next, and none for what comes after it


class Worded(rlvr.Environment):
    """Judges by a file."""

    path: str

    def task(self, index):
        return rlvr.Task("t", "p")

    def verify(self, task, completion):
        return Verdict(Outcome.CORRECT, why=Path(self.path).read_text())


def test_a_service_whose_data_was_edited_judges_no_row_more(tmp_path, monkeypatch):
    """It refused once, and the request that was sent again was judged by the new content: its
    caller had scores of both and no word of it."""
    words = tmp_path / "words.txt"
    words.write_text("old")
    os.utime(words, (1, 1))
    # Else the edited file would be the run's own, made in the temporary folder meanwhile.
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    row = {"task": 0, "completion": "x"}
    with Service({"trials": Worded(path=str(words))}, workers=1) as service:
        assert score(service, [row]).json()["scores"][0]["why"] == "old"
        words.write_text("another")
        answers = [score(service, [row]) for _ in range(3)]
        health = ask(service, "GET", "/health")
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all("words.txt has another content" in error(answer) for answer in answers)
    assert health.status_code == 503
    assert "words.txt has another content" in health.json()["problems"]["trials"]


def test_a_service_that_stops_says_so():
    """Not ready, but alive, and worth asking again: behind the same address another service may answer."""
    service = Service(ENVS, workers=1)
    assert ask(service, "GET", "/health").json() == {"ready": True}
    service.http.draining = True
    assert ask(service, "GET", "/health").status_code == 503
    assert ask(service, "GET", "/health/live").status_code == 200
    answer = score(service, right(1))
    assert (answer.status_code, answer.headers["retry-after"], answer.headers["connection"]) == (
        503,
        "1",
        "close",
    )
    assert "stopping" in error(answer)


def test_what_is_missing_is_named_with_its_remedy(monkeypatch):
    """FastAPI and uvicorn come with the extra `serve` alone."""
    import rlvr.http.serve

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("rlvr.http.serve.server", "rlvr.http.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("rlvr.http.server", raising=False)
    with pytest.raises(
        MissingDependency,
        match=re.escape(
            "uvicorn is not installed; get it with: pip install -c constraints.txt '.[serve]' in a checkout"
        ),
    ):
        rlvr.http.serve.run


def test_a_service_without_environments_is_refused():
    """It could answer nothing."""
    with pytest.raises(UsageError, match="there is no environment to serve"):
        Service({})
