"""The log of requests: who asked for what and what became of it, without a key or a text, in bounded files."""

import errno
import fcntl
import json
import os
import resource
import signal

import httpx
import pytest

from rlvr.errors import UsageError
from rlvr.http.audit import AuditLog
from rlvr.http.serve import Service, app_of
from rlvr.http.serve.responses import ScoresResponse
from tests.environments import Trials

KEYS = "ann a-long-enough-key-of-ann\nbob a-long-enough-key-of-bob rights=metrics\n"


@pytest.mark.anyio
async def test_each_request_is_a_line_without_key_or_text(tmp_path):
    """A score, a refusal for want of a right, for a wrong key, and a path that is none."""
    (tmp_path / "keys").write_text(KEYS)
    log = tmp_path / "audit.jsonl"
    rows = [{"task": 7, "completion": text} for text in ("7", "secret words", "")]
    rows.append({"reference": "no completion"})
    with Service({"t": Trials()}, workers=1, keys_file=tmp_path / "keys", audit_log=log) as service:
        transport = httpx.ASGITransport(app_of(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for key in ("a-long-enough-key-of-ann", "a-long-enough-key-of-bob", "wrong"):
                headers = {"Authorization": f"Bearer {key}"}
                await client.post("/score", json={"rows": rows}, headers=headers)
            await client.get("/secret/path", headers=headers)
        identity = service.identities["t"].whole
    text = log.read_text()
    assert "secret" not in text
    assert "long-enough" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["caller"], one["path"], one["status"]) for one in lines] == [
        ("ann", "/score", 200),
        ("bob", "/score", 403),
        ("", "/score", 401),
        ("", "other", 401),
    ]
    assert lines[0]["rows"] == 4
    assert lines[0]["outcomes"] == {"correct": 1, "wrong": 1, "unparsed": 1, "refused": 1}
    assert (lines[0]["env"], lines[0]["identity"]) == ("t", identity)
    assert lines[0]["ms"] > 0
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.anyio
async def test_a_request_whose_answer_fails_keeps_its_rows(tmp_path, monkeypatch):
    """They were judged, whatever became of the answer."""

    async def fails(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ScoresResponse, "_send_whole", fails)
    log = tmp_path / "audit.jsonl"
    with Service({"t": Trials()}, workers=1, audit_log=log) as service:
        transport = httpx.ASGITransport(app_of(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            row = {"task": 7, "completion": "7"}
            answer = await client.post("/score", json={"rows": [row]})
    assert answer.status_code == 500
    [line] = map(json.loads, log.read_text().splitlines())
    assert (line["status"], line["env"], line["rows"]) == (500, "t", 1)
    assert line["outcomes"] == {"correct": 1}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_the_log_is_bounded(tmp_path):
    """Two writers, as of two processes: the file and the one before it, each at most a line over the limit."""
    path = tmp_path / "audit.jsonl"
    logs = [AuditLog(path, most_bytes=1000) for _ in range(2)]
    for number in range(200):
        logs[number % 2].write("ann", "POST", "/score", 200, 0.001, {"rows": number})
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert set(sizes) == {"audit.jsonl", "audit.jsonl.1"}
    assert max(sizes.values()) < 1300
    assert json.loads(path.read_text().splitlines()[-1])["rows"] == 199


def test_a_log_that_cannot_be_written_is_said_at_the_start(tmp_path):
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        AuditLog(tmp_path / "none" / "audit.jsonl")


def test_a_pipe_that_nobody_reads_makes_no_request_wait(tmp_path):
    """Such as `>(jq .)` with a stopped jq: the event loop would wait for it, and all callers."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="cannot be written"):
        AuditLog(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(path)
    for _ in range(2000):
        log.write("ann", "POST", "/score", 200, 0.001, {"rows": 1})
    os.close(reader)
    log.close()


def test_a_line_that_a_full_disk_cuts_off_costs_no_other(tmp_path):
    """The next one would have been added to its half, and neither could be read."""
    log = AuditLog(tmp_path / "audit.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))  # one line and a part of the next
        for number in range(3):
            log.write("ann", "POST", "/score", 200, 0.001, {"rows": number})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    log.write("ann", "POST", "/score", 200, 0.001, {"rows": 3})
    first, torn, last = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["rows"] for line in (first, last)] == [0, 3]
    assert not torn.endswith("}")


def test_two_processes_keep_the_full_file(tmp_path, monkeypatch):
    """Both see that it is full; the second would have put the new, empty file in its place."""
    path = tmp_path / "audit.jsonl"
    one, other = (AuditLog(path, most_bytes=1000) for _ in range(2))
    while path.stat().st_size < 1000:
        one.write("ann", "POST", "/score", 200, 0.001, {})
    compare = os.path.samestat

    def other_writes_meanwhile(*stats):
        monkeypatch.setattr(os.path, "samestat", compare)
        same = compare(*stats)
        other.write("bob", "POST", "/score", 200, 0.001, {})
        return same

    monkeypatch.setattr(os.path, "samestat", other_writes_meanwhile)
    one.write("ann", "POST", "/score", 200, 0.001, {})
    assert (tmp_path / "audit.jsonl.1").stat().st_size > 1000
    assert "bob" in path.read_text() + (tmp_path / "audit.jsonl.1").read_text()


def test_a_file_system_without_locks_loses_no_line(tmp_path, monkeypatch):
    """Once the file was full, each line was lost there."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, most_bytes=1)
    for number in range(3):
        log.write("ann", "POST", "/score", 200, 0.001, {"rows": number})
    files = (path.with_name("audit.jsonl.1"), path)
    assert [json.loads(file.read_text())["rows"] for file in files] == [1, 2]
