"""`rlvr serve` as a process: where it listens, how it stops, and what becomes of requests when workers are killed."""

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.errors import RlvrError, ServiceFailed, UsageError
from rlvr.scoring.engines.client import Client
from tests.environments import PLACE, right
from tests.processes import PATIENCE_S, children, ended
from tests.serve.serving import served


def get(port: int, path: str) -> tuple[int, dict]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def aside(call: Callable[[], object]) -> tuple[threading.Thread, list]:
    """Call it in a thread; its result or exception comes into the list."""
    results: list = []

    def run() -> None:
        try:
            results.append(call())
        except RlvrError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_sigterm_drains(fifo):
    """What is under way is answered, what comes is sent away with 503, and the process ends with 0."""
    with served() as (process, port), Client(f"http://127.0.0.1:{port}", patience_s=0) as client:
        rows = [{"task": 1, "completion": f"1@gate {fifo.path}"}, *right(2, 3)]
        thread, results = aside(lambda: client.score(PLACE, rows))
        worker = fifo.pid()
        assert get(port, "/health") == (200, {"ready": True})
        process.send_signal(signal.SIGTERM)
        while get(port, "/health")[0] == 200:
            pass
        assert get(port, "/health/live") == (200, {"live": True})
        with pytest.raises(ServiceFailed, match="the service is stopping"):
            client.score(PLACE, right(1))
        Path(f"{fifo.path}.open").touch()
        os.kill(worker, signal.SIGKILL)  # its second attempt finds the gate open
        thread.join()
        assert [reply.score.total for reply in results[0]] == [1.0, 1.0, 1.0]
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout.read() == "stopped\n"
        assert process.stderr.read() == ""


def test_draining_has_an_end(fifo):
    """A request that hangs does not keep the service: it is told, the workers go, and the process ends with 0."""
    with (
        served("--drain-s", "0.2") as (process, port),
        Client(f"http://127.0.0.1:{port}", patience_s=0) as client,
    ):
        thread, results = aside(
            lambda: client.score(PLACE, [{"task": 1, "completion": f"1@pause {fifo.path}"}])
        )
        worker = fifo.pid()
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert "the service was stopped before this was scored; ask again" in str(results[0])
        assert process.wait(PATIENCE_S) == 0
        assert ended(worker)


def test_it_listens_on_this_machine_alone_and_keeps_its_key():
    """127.0.0.1 and no other address; the key comes from the environment, is asked for, and leaves the environment."""
    with served(RLVR_API_KEY="do-not-tell-anyone") as (process, port):
        assert get(port, "/health")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=PATIENCE_S)
        url = f"http://127.0.0.1:{port}"
        assert Client(url, "do-not-tell-anyone").score(PLACE, right(1))[0].score.total == 1.0
        with pytest.raises(UsageError, match="wants its API key"):
            Client(url, "abd").score(PLACE, right(1))
        for pid in (
            process.pid,
            *children(process.pid),
        ):  # workers run code of others, and can read this
            assert b"do-not-tell-anyone" not in Path(f"/proc/{pid}/environ").read_bytes()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_no_request_is_lost_while_workers_are_killed():
    """Every row has its answer, in its place; unscored is only what was hit twice, so at most half as many as kills."""
    with (
        served("--workers", "2") as (process, port),
        Client(f"http://127.0.0.1:{port}", batch=10) as client,
    ):
        callers = [
            aside(lambda i=i: client.score(PLACE, right(*range(i, i + 400)))) for i in range(4)
        ]
        kills = 0
        while any(thread.is_alive() for thread, _ in callers):
            workers = children(process.pid)
            if workers and kills < 10:
                with suppress(ProcessLookupError):  # the service has just replaced it
                    os.kill(min(workers), signal.SIGKILL)
                    kills += 1
            callers[0][0].join(0.2)  # three that are killed while they start are an error
        assert kills
        replies = [
            (str(n), reply.score) for i in range(4) for n, reply in enumerate(callers[i][1][0], i)
        ]
        assert len(replies) == 1600
        lost = [score.verdict.reason for _, score in replies if score.total is None]
        assert lost == ["worker-died"] * len(lost)
        assert len(lost) <= kills // 2
        assert all(
            score.verdict.answer == answer for answer, score in replies if score.total is not None
        )


@pytest.mark.usefixtures("interruptible")
def test_an_early_refusal_reaches_who_is_still_sending():
    """413 is answered before the body has come, and read all the same.  SIGHUP, of a closed terminal, drains too."""
    with served("--body-mib", "0.01", "--held-mib", "1") as (process, port):
        with pytest.raises(UsageError, match="more than 10485 bytes; send fewer rows"):
            Client(f"http://127.0.0.1:{port}").score(
                PLACE, [{"task": 1, "completion": "1" * 3_000_000}]
            )
        assert Client(f"http://127.0.0.1:{port}").score(PLACE, right(1))[0].score.total == 1.0
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout.read() == "stopped\n"


@pytest.mark.parametrize(
    ("flags", "key", "says"),
    [
        ((), " ", "RLVR_API_KEY is blank"),
        (
            ("--host", "0.0.0.0"),
            "short",
            "a key has 5 letters, and other machines can reach 0.0.0.0",
        ),
        (("--processes", "0"), "a-key", "processes is 0"),
    ],
)
def test_a_service_that_would_not_be_safe_does_not_start(monkeypatch, capsys, flags, key, says):
    """One line, and exit code 2."""
    monkeypatch.setenv("RLVR_API_KEY", key)
    assert main(["serve", PLACE, "--port", "0", "--workers", "1", *flags]) == 2
    assert says in capsys.readouterr().err


def test_a_closed_stdout_does_not_end_it():
    """A service outlives what has read its first line; that "stopped" was not printed gives 2, as for any command."""
    with served() as (process, port):
        process.stdout.close()
        assert get(port, "/health")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 2


def test_several_processes_share_a_port_and_count_together():
    """One that is killed is replaced; what it has counted stays counted."""
    with served("--processes", "2") as (process, port):
        url = f"http://127.0.0.1:{port}"
        for i in range(20):
            with Client(url) as client:  # a connection of its own, so that both processes get some
                assert client.score(PLACE, right(i))[0].score.total == 1.0
        services = children(process.pid)
        assert len(services) == 2
        os.kill(min(services), signal.SIGKILL)
        with Client(url) as client:
            assert client.score(PLACE, right(20))[0].score.total == 1.0
        with closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        ) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        assert f'rlvr_scores_total{{env="{PLACE}",outcome="correct"}} 21.0' in text
        while len(children(process.pid)) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
