"""What callers do that a service is not for: the others are served meanwhile, within the memory that was promised.

The short form of benchmarks/serve_abuse.py, which measures.
"""

import asyncio
import gc
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rlvr.errors import UsageError
from rlvr.http.body import _scanned, _width
from rlvr.http.keys import Caller, Keys
from rlvr.http.memory import MemoryShare
from rlvr.http.refused import Refused
from rlvr.http.serve import Service, ServiceLimits
from rlvr.http.serve.jobs import Job
from rlvr.http.serve.server import OWN_NAME
from tests.awaiting import Awaited
from tests.environments import PLACE, right
from tests.processes import PATIENCE_S, Fifo
from tests.serve.serving import ENVS, ask, error, served, serving, talk, unstarted

KEY = "a-key-of-the-tests"
LIMITS = "--connections 12 --peer-connections 12 --head-s 0.5 --body-mib 4 --held-mib 32 --workers 2".split()


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[int, int]]:
    """(process, port) of a service with a key and narrow limits."""
    with served(*LIMITS, RLVR_API_KEY=KEY) as (process, port):
        yield process.pid, port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def head(path: str = "/score", *, key: bool = True, more: str = "Content-Length: 2") -> bytes:
    named = f"Authorization: Bearer {KEY}\r\n" if key else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{named}{more}\r\n\r\n".encode()


def read(connection: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def post(port: int, rows: list[dict], *, more: str = "Connection: close") -> bytes:
    """The answer to rows, as it comes over the wire."""
    body = json.dumps({"env": PLACE, "rows": rows}).encode()
    with closing(connect(port)) as connection:
        connection.sendall(head(more=f"Content-Length: {len(body)}\r\n{more}") + body)
        return read(connection)


def is_served(port: int) -> bool:
    answer = post(port, right(1))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["scores"][0]["total"] == 1.0, answer
    return True


def metric(port: int, name: str) -> float:
    with closing(connect(port)) as connection:
        connection.sendall(head("/metrics", more="Connection: close").replace(b"POST", b"GET"))
        found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", read(connection).decode(), re.MULTILINE)
    assert found
    return float(found[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------ without a key


def test_what_follows_a_refusal_costs_nothing(service):
    """After its 401 a caller goes on with tiny chunks: they are not parsed, and the connection is closed in the end."""
    pid, port = service
    with closing(connect(port)) as connection:
        connection.sendall(head(key=False, more="Transfer-Encoding: chunked"))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401")
        before = cpu_s(pid)
        try:
            for _ in range(100):
                connection.sendall(b"1\r\nx\r\n" * 1000)
            read(connection)
        except OSError:
            pass
        assert cpu_s(pid) - before < 1  # parsing them takes ten times as much
    assert is_served(port)


def test_the_longest_idle_connection_makes_room(service):
    """However many there are, a new one is answered, and so is the probe of liveness."""
    _, port = service
    idle = [connect(port) for _ in range(40)]
    assert is_served(port)
    with closing(connect(port)) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'{"live": true}' in read(connection)
    assert read(idle[0]) == b""
    for connection in idle:
        connection.close()


def test_a_head_has_a_deadline_and_a_size(service):
    """A byte now and then does not keep a connection, nor do headers without an end fill the memory."""
    _, port = service
    with closing(connect(port)) as slow:
        slow.sendall(b"PO")
        assert read(slow) == b""
    with closing(connect(port)) as large:
        large.sendall(b"POST /score HTTP/1.1\r\n" + b"X: " + b"y" * 70_000)
        assert b"HTTP/1.1 431" in large.recv(1 << 16)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no HTTP at all\r\n\r\n", b"400"),
        (head(key=False) + b"{}" + head(key=False) + b"{}", b"401"),
        (head() + b"{}" + head() + b"{}", b"422"),
    ],
    ids=["not HTTP", "pipelined without a key", "pipelined"],
)
def test_a_connection_is_answered_once_in_such_a_case(service, sent, status):
    """As JSON; then it is closed."""
    with closing(connect(service[1])) as connection:
        connection.sendall(sent)
        answer = read(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 421), ("127.0.0.1:8000", 200), ("[::1]:80", 200)]
)
def test_a_page_of_elsewhere_does_not_reach_a_service_without_a_key(host, status):
    """Its own name may lead to 127.0.0.1 all the same (DNS rebinding)."""
    with unstarted() as service:
        service.http.hosts = OWN_NAME
        assert ask(service, "GET", "/health", headers={"host": host}).status_code == status


def test_a_path_is_what_it_is():
    """No redirect to an address that the caller has named."""
    with unstarted() as service:
        assert ask(service, "POST", "/score/", json={}).status_code == 404


# --------------------------------------------------------------------------------------- with a key


def test_one_request_never_occupies_the_last_worker(service, fifo):
    """Rows that do not end, and another caller is served; they are given up as soon as their caller leaves."""
    _, port = service
    body = json.dumps(
        {"env": PLACE, "rows": [{"task": 1, "completion": f"1@pause {fifo.path}"}] * 50}
    ).encode()
    with closing(connect(port)) as connection:
        connection.sendall(head(more=f"Content-Length: {len(body)}") + body)
        fifo.line()
        assert is_served(port)
        assert metric(port, "rlvr_queue_rows") == 50
        assert metric(port, "rlvr_held_bytes") > 0
    while metric(port, "rlvr_queue_rows") or metric(port, "rlvr_held_bytes"):
        pass
    assert metric(port, "rlvr_cancelled_total") >= 1
    assert is_served(port)


def test_a_row_that_takes_long_holds_up_no_other_request(fifo):
    """Requests that share a chunk with it, as they came together, are scored by another worker."""
    with serving_two() as service:
        rows = [[{"task": 1, "completion": f"1@await {fifo.path}"}], *(right(i) for i in range(8))]

        async def conversation(client):
            slow, *quick = (
                asyncio.ensure_future(client.post("/score", json={"rows": part})) for part in rows
            )
            answers = await asyncio.gather(*quick)
            assert not slow.done()
            await asyncio.to_thread(fifo.line)
            Path(f"{fifo.path}.open").touch()
            return [await slow, *answers]

        answers = talk(service, conversation)
    assert [answer.json()["scores"][0]["total"] for answer in answers] == [1.0] * 9


def serving_two() -> Service:
    return Service({"trials": ENVS["trials"]}, workers=2)


def test_a_refused_body_is_let_go_of_at_once():
    """Not when the garbage collector comes: eight callers held 467 MiB where 256 were the limit."""
    body = b'{"env": "trials", "rows": [%s{}]}' % (b"{}," * 10_000)

    async def refused(client) -> None:
        answer = await client.post(
            "/score", content=body, headers={"content-type": "application/json"}
        )
        assert "values" in error(answer)
        # The thread that parses may not have left its own frame yet.
        while any(isinstance(found, Refused) for found in gc.get_objects()):
            await asyncio.sleep(0.01)

    with unstarted(body_values=1000) as service:
        gc.disable()
        try:
            talk(service, refused)
        finally:
            gc.enable()


@pytest.mark.parametrize("value", ["[]", "{}", "0", '""', '{"a":0}'])
def test_a_body_has_a_bound_on_values(value):
    """They are counted before they are parsed: a MiB of brackets would be tens of MiB in memory."""
    with unstarted(body_values=1000) as service:
        body = f'{{"rows": [{{"task": 1, "meta": [{",".join([value] * 20_000)}]}}]}}'
        answer = ask(
            service, "POST", "/score", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413
        assert "more than 1000 values" in error(answer)
        assert service.http.memory.held == 0


@pytest.mark.parametrize("rest", ["", "x" * 20_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("before", "where"),
    [
        ("", '"id": {}'),
        ("", '"meta": {}'),
        ("", '"meta": "\\\\", "id": {}'),
        ('"rows": [], "rows": [], ', '"id": {}'),
    ],
)
def test_a_body_has_a_bound_on_depth(before, where, rest):
    """Of what is 1000 deep Python cannot make a text; it would fail with the rows of others in one chunk."""
    with unstarted() as service:
        for deep in ("[" * 980 + "]" * 980, '{"a":' * 300 + "1" + "}" * 300):
            body = (
                f'{{{before}"rows": [{{"task": 1, "completion": "{rest}", {where.format(deep)}}}]}}'
            )
            answer = ask(
                service,
                "POST",
                "/score",
                content=body,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 400
            assert "more than 200 deep" in error(answer)


@pytest.mark.parametrize("rest", ["", "x" * 20_000], ids=["small", "large"])
def test_brackets_that_are_not_deep_are_no_depth(rest):
    """In texts, or beside each other; and a text without an end is looked at once."""
    with serving() as service:
        row = {
            "task": 1,
            "completion": '1@"[' + "[{" * 300 + rest,
            "meta": [[]] * 300,
            "id": '\\"[["',
        }
        [got] = ask(service, "POST", "/score", json={"rows": [row]}).json()["scores"]
        assert got["id"] == row["id"]
        for body in ("[" * 300 + '\\"' * 8000, '"' + '\\"[' * 5000):
            headers = {"content-type": "application/json"}
            assert ask(service, "POST", "/score", content=body, headers=headers).status_code == 400


@pytest.mark.parametrize("name", ["take", "observed"])
def test_a_job_that_fails_ends_alone(name, monkeypatch, caplog):
    """The other requests of its chunk have their scores; the log has the traceback."""
    real = getattr(Job, name)

    def failing(self, *args):
        if self.count == 2:
            raise RecursionError("as asked")
        return real(self, *args)

    monkeypatch.setattr(Job, name, failing)
    with serving() as service:

        async def conversation(_):
            queue = service.queues["trials"]
            jobs = [
                service.job(queue, right(*tasks), MemoryShare(service.http.memory))
                for tasks in ((1,), (1, 2), (3,))
            ]
            for job in jobs[::2]:
                await job.wait()
            with pytest.raises(Refused, match="a bug in the service, RecursionError"):
                await jobs[1].wait()
            return [json.loads(job.lines[0])["total"] for job in jobs[::2]]

        assert talk(service, conversation) == [1.0, 1.0]
    assert "as asked" in caplog.text


def test_a_turn_that_is_over_is_forgotten():
    """Else a service would know each request that was ever passed by a new one."""
    with unstarted() as service:

        async def conversation(_):
            queue = service.queues["trials"]
            job = service.job(queue, right(1), MemoryShare(service.http.memory))
            queue._passed.add(job.owner)
            service.release(queue, job)
            return queue._passed

        assert not talk(service, conversation)


def test_what_values_take_is_counted_too():
    """Not the bytes that came over the wire alone."""
    with unstarted(body_mib=1, held_mib=1) as service:
        body = f'{{"rows": [{{"task": 1, "meta": [{",".join(["{}"] * 20_000)}]}}]}}'
        answer = ask(
            service, "POST", "/score", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 429
        assert "limit of 1 MiB" in error(answer)
        assert service.http.memory.held == 0


def test_rows_are_found_without_parsing():
    """Brackets and quotes within texts are no structure."""
    body = rb'{"env": "rows", "rows": [{"a": "}]\"[{"}, {"b": [{}]}], "meta": [{"rows": [{}]}]}'
    values, places, plain = _scanned(body, 1000)
    assert plain
    assert [body[a:b] for a, b in places] == [rb'{"a": "}]\"[{"}', b'{"b": [{}]}']
    with pytest.raises(Refused, match="more than 3 values"):
        _scanned(body, 3)
    assert values > 10


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (b'"' + b"1" * 30 + b'"', True),
        (b"1" * 19, False),
        (b"[-1, " + b"1" * 40 + b"]", False),
        (b" " * 40 + b"1", True),
    ],
)
def test_long_numbers_are_found_where_they_are_numbers(text, plain):
    """The quick parser would make floats of them; in a text they are digits."""
    assert _scanned(b'{"rows": [{"meta": ' + text + b"}]}", 1000)[2] is plain


def test_a_body_of_white_space_is_refused():
    """Looking for its first value would stop all threads."""
    with unstarted() as service:
        body = b'{"rows":' + b" " * 10**6 + b"[]}"
        answer = ask(
            service, "POST", "/score", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400
        assert "65536 bytes from byte 7 on have no value" in error(answer)


@pytest.mark.parametrize(
    ("text", "width"),
    [("a", 1), ("\\n", 1), ("ü", 2), ("\\u00e9", 2), ("😀", 4), ("\\ud83d\\ude00", 4)],
)
@pytest.mark.parametrize("at", [0, (1 << 16) - 3, 1 << 17])
def test_the_width_of_letters_is_seen_wherever_they_are(text, width, at):
    """Also across the border of two windows."""
    assert _width(b"a" * at + text.encode() + b"a" * 100_000) == width


def test_ids_and_errors_are_bounded():
    """A megabyte that was sent as an id, or as the name of a task, is not sent back."""
    with serving() as service:
        rows = [
            {"task": 1, "completion": "1", "id": "x" * 10**6},
            {"task": "y" * 10**6, "completion": "1"},
            *right(1),
        ]
        answer = ask(service, "POST", "/score", json={"rows": rows})
    assert len(answer.content) < 3000
    assert "the id has more than 200 letters" in answer.json()["scores"][0]["error"]
    assert answer.json()["scores"][2]["total"] == 1.0


# ------------------------------------------------------------------------------------- several keys


@pytest.fixture
def key_file(tmp_path, monkeypatch):
    """A file that is read for every caller."""
    monkeypatch.setattr("rlvr.http.keys._LOOK_S", 0)
    file = tmp_path / "keys"
    file.write_text("# callers\nann key-of-ann\nbob key-of-bob  # the other one\n")
    return file


def callers(keys, *names):
    """Who gets in with key-of-NAME."""
    found = [keys.caller(f"Bearer key-of-{name}") for name in names]
    return [None if one is None else one.name for one in found]


def test_keys_have_names_and_can_be_revoked(key_file):
    """The file is read again when it changes; a key may be replaced beside the old one."""
    keys = Keys(file=key_file)
    assert callers(keys, "ann", "bob", "eve") == ["ann", "bob", None]
    key_file.write_text("bob key-of-bob\nbob key-of-bob-2\n")
    assert callers(keys, "ann", "bob", "bob-2") == [None, "bob", "bob"]


@pytest.mark.parametrize(
    "change", ["empty", "comments", "gone", "folder", "pipe", "device", "bytes", "large"]
)
def test_without_a_line_no_key_holds(key_file, change):
    """The last key stayed valid after its line, or the whole file, was removed."""
    keys = Keys(file=key_file)
    assert callers(keys, "ann") == ["ann"]
    key_file.unlink()
    match change:
        case "empty":
            key_file.touch()
        case "comments":
            key_file.write_text("# ann key-of-ann\n")
        case "folder":
            key_file.mkdir()
        case "pipe":  # to open it would stop the service until another program does
            os.mkfifo(key_file)
        case "device":
            key_file.symlink_to("/dev/zero")
        case "bytes":
            key_file.write_bytes("ann key-of-ann\n".encode("utf-16"))
        case "large":
            key_file.write_text("ann key-of-ann\n" + "#" * (1 << 20))
    assert callers(keys, "ann", "bob") == [None, None]
    assert keys.any
    assert keys.problem == "no key of the key file holds"
    if change not in ("folder", "pipe", "device"):
        key_file.write_text("ann key-of-ann\n")
        assert callers(keys, "ann") == ["ann"]
        assert not keys.problem


def test_a_line_that_cannot_be_read_loses_its_key_alone(key_file):
    """One slip in an editor must lock out no other caller."""
    keys = Keys(file=key_file)
    key_file.write_text("ann key of ann\nbob key-of-bob\neve\nzoé k\u00e9y\ncy key-of-bob\n")
    assert callers(keys, "ann", "bob", "eve") == [None, "bob", None]
    # a name in Latin-1 took the keys of all others along
    key_file.write_bytes(b"zo\xe9 key-of-zoe\nbob key-of-bob\neve key-of-\xff\n")
    assert callers(keys, "zoe", "bob", "eve") == [None, "bob", None]


def test_a_change_within_a_tick_of_the_clock_is_seen(key_file):
    """Size and time of the file are as before."""
    keys = Keys(file=key_file)
    before = key_file.stat()
    key_file.write_text(key_file.read_text().replace("key-of-ann", "key-of-eve"))
    os.utime(key_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert callers(keys, "ann", "eve") == [None, "ann"]


def test_keys_end_and_have_rights(key_file):
    """A monitor reads the metrics and scores nothing; a key for a week needs no second visit."""
    key_file.write_text(
        "ann key-of-ann until=2001-02-03\nbob key-of-bob until=2999-01-01T12:00:00+02:00\n"
        "mon key-of-mon rights=metrics\n"
    )
    with Service({"trials": ENVS["trials"]}, workers=1, keys_file=key_file) as service:
        statuses = {
            (name, path): ask(
                service, "GET", path, headers={"authorization": f"Bearer key-of-{name}"}
            ).status_code
            for name in ("ann", "bob", "mon")
            for path in ("/envs", "/metrics")
        }
        health = ask(service, "GET", "/health")
        key_file.write_text("ann key-of-ann until=2001-02-03\n")
        ill = ask(service, "GET", "/health")
    assert statuses == {
        ("ann", "/envs"): 401, ("ann", "/metrics"): 401, ("bob", "/envs"): 200,
        ("bob", "/metrics"): 200, ("mon", "/envs"): 403, ("mon", "/metrics"): 200,
    }  # fmt: skip
    assert health.json() == {"ready": True}
    assert (ill.status_code, ill.json()["problems"]) == (
        503,
        {"keys": "no key of the key file holds"},
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no key"),
        ("ann\n", "it has 1 word; write a name and a key"),
        ("ann key-of-ann unti=2027-01-01", "stands behind the key"),
        ("ann key-of-ann until=soon", "until=soon"),
        ("a k\nb k\n", "there twice"),
        ("a ké", "ASCII"),
        ("ann key-of-ann#the-rest", "write a space before a comment"),
        ("ann key-of-ann until= 2999-01-01", "until=2027-01-31"),
        ("ann key-of-ann until=2999-01-01 until=2001-01-01", "each once"),
        ("ann key-of-ann rights=score, metrics", "without spaces"),
        ("ann key-of-ann rights=", "write one or more of metrics,score"),
        ("ann key-of-ann rights=Score", "write one or more of metrics,score"),
        ("# a comment\u2028ann key-of-ann", "holds no key"),
        ("# a comment\x0bann key-of-ann", "holds no key"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_refused(tmp_path, text, says):
    """When the service starts; later a line loses its own key: what is no key then is none now."""
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        Keys(file=file)
    file.write_text("bob key-of-bob")
    keys = Keys(file=file)
    file.write_text(f"bob key-of-bob\n{text}\n")
    if text != "a k\nb k\n":  # the first of two has it
        sent = [*text.split(), "key-of-ann", "key-of-ann#the-rest"]
        assert not any(keys.caller(f"Bearer {word}") for word in sent)
    assert callers(keys, "bob") == ["bob"]


def test_a_key_that_comes_later_has_as_many_letters(key_file):
    """The service asks for them where other machines can reach it, of keys that are rotated in too."""
    keys = Keys(file=key_file)
    with pytest.raises(UsageError, match=r"a key has 10 letters, .* reach 10\.0\.0\.7; use 16"):
        keys.require_letters(16, "10.0.0.7")
    long_key = "k" * 16
    key_file.write_text(f"ann {long_key}\n")
    keys = Keys(file=key_file)
    keys.require_letters(16, "10.0.0.7")
    key_file.write_text(f"ann {long_key}\nbob {long_key[1:]}\n")
    assert [keys.caller(f"Bearer {key}") for key in (long_key, long_key[1:])] == [
        Caller("ann"),
        None,
    ]


def test_a_caller_has_a_share_of_the_queue(tmp_path, fifo: Fifo):
    """A name may fill half of it; the next one is still let in."""
    file = tmp_path / "keys"
    file.write_text("ann key-of-ann\nbob key-of-bob\n")
    limits = ServiceLimits(request_rows=100, queue_rows=100)
    with Service({"trials": ENVS["trials"]}, workers=1, limits=limits, keys_file=file) as service:

        async def conversation(client):
            async def ask_as(name: str, rows: list):
                return await client.post(
                    "/score",
                    json={"rows": rows},
                    headers={"authorization": f"Bearer key-of-{name}"},
                )

            first = asyncio.ensure_future(
                ask_as("ann", [{"task": 1, "completion": f"1@await {fifo.path}"}] * 40)
            )
            await asyncio.to_thread(fifo.line)
            second = await ask_as("ann", right(*range(40)))
            third = asyncio.ensure_future(ask_as("bob", right(*range(40))))
            Path(f"{fifo.path}.open").touch()
            await asyncio.gather(first, third)
            return second, await third

        refused, taken = talk(service, conversation)
    assert refused.status_code == 429
    assert "this caller" in error(refused)
    assert taken.status_code == 200


# --------------------------------------------------------------------------------- whose turn it is


def test_a_new_request_goes_before_one_that_is_being_served(fifo: Fifo):
    """With one worker it waits for the row that is at work, and not for the next one of the same request."""
    with serving() as service:

        async def conversation(client):
            rows = [
                {"task": 1, "completion": f"1@await {fifo.path}"},
                {"task": 1, "completion": "1@hang"},
            ]
            long = asyncio.ensure_future(client.post("/score", json={"rows": rows}))
            await asyncio.to_thread(fifo.line)
            short = asyncio.ensure_future(client.post("/score", json={"rows": right(2)}))
            while service.queues["trials"].waiting < 3:
                await asyncio.sleep(0.001)
            Path(f"{fifo.path}.open").touch()
            answer = await short
            long.cancel()
            return answer

        assert talk(service, conversation).json()["scores"][0]["total"] == 1.0


def test_an_async_environment_is_served_alike(tmp_path):
    """Many rows wait at once; those of a caller who leaves are given up, and let go of the memory."""
    with Service({"awaited": Awaited()}, workers=1) as service:

        async def conversation(client):
            stuck = [{"task": 1, "completion": "1@forever"}] * 30
            leaving = asyncio.ensure_future(client.post("/score", json={"rows": stuck}))
            while service.queues["awaited"].waiting < 30:
                await asyncio.sleep(0.001)
            scored = await client.post("/score", json={"rows": right(*range(40))})
            assert not leaving.done()
            service.queues["awaited"].abort(Refused(503, "aborted", "the service was stopped"))
            refused = await leaving
            while service.http.memory.held:
                await asyncio.sleep(0.001)
            return scored, refused

        scored, refused = talk(service, conversation)
    assert [row["total"] for row in scored.json()["scores"]] == [1.0] * 40
    assert refused.status_code == 503
