"""A service that is killed and started anew while a peer scores, and what `rlvr score` says of the same rows.

`make test-peers` runs each file in an environment of its own, with rlvr and one peer.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import rlvr
from tests.json_lines import read_json_lines, write_json_lines
from tests.peers.digits import COUNT, UNSCORED, completion_of
from tests.processes import ROOT

PLACE = f"{ROOT}/tests/peers/digits.py:Digits"
RLVR = [sys.executable, "-m", "rlvr"]


class Service:
    """`rlvr serve` in a process of its own, at the same port whenever it is started."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url, self.kills = f"http://127.0.0.1:{self.port}", 0
        self._log = log
        self.start()

    def start(self) -> None:
        """Start it, without waiting until it is there."""
        argv = [*RLVR, "serve", PLACE, "--port", str(self.port), "--workers", "1"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    def wait(self) -> None:
        """Until it answers."""
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def kill(self) -> None:
        """Kill it and its workers, as a lost machine would be."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def replace(self) -> None:
        """Kill it, and start another one at the same address, which takes a second or two."""
        self.kill()
        self.start()


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    """A service that is ready."""
    service = Service(tmp_path / "serve.log")
    service.wait()
    yield service
    service.kill()


@pytest.fixture
def env() -> rlvr.Environment:
    """The environment as the service has it."""
    return rlvr.make(PLACE)


@pytest.fixture(scope="session")
def totals(tmp_path_factory) -> dict[int, float | None]:
    """What the command says; None for UNSCORED."""
    folder = tmp_path_factory.mktemp("command")
    rows = [{"id": i, "task": i, "completion": completion_of(i)} for i in range(COUNT)]
    write_json_lines(folder / "in.jsonl", rows)
    argv = [*RLVR, "score", PLACE, str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl")]
    done = subprocess.run([*argv, "--workers", "1"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stderr  # as there are UNSCORED ones
    records = read_json_lines(folder / "out.jsonl")
    found = {record["id"]: record["total"] for record in records}
    assert {i for i, total in found.items() if total is None} == UNSCORED
    assert {total for total in found.values() if total is not None} == {0.0, 0.25, 1.25}
    return found
