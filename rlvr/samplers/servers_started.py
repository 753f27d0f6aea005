"""vLLM servers on this machine that end with the process that started
them, also after its SIGKILL."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from rlvr.errors import UsageError
from rlvr.workers.closing import Closing
from rlvr.workers.program import Lifeline, StartedProgram

__all__ = ["StartedServers"]

_START_S: Final = 900.0  # a large model on a loaded machine
_GRACE_S: Final = 30.0  # for the first process to end the others


class StartedServers(Closing):
    """Starts servers, and ends them when it is closed; use it as a context manager.

    Each is in a process group of its own, whose first process holds one end of a pipe.  When this
    process ends, in whatever way, so does the pipe, and the first process kills its group: vLLM's
    engine would go on otherwise.

    Args:
        model: folder with config and tokenizer; the servers begin without weights.
        count: how many servers.
        python: of the environment that has vLLM; None for this one.
        flags: further flags of `rlvr.samplers.vllm_server`.
        devices: for each server what CUDA_VISIBLE_DEVICES is; None to leave it.
        log: folder for what the servers print.

    Attributes:
        urls: of the servers, once they answer.

    Raises:
        UsageError: a server ended before it answered; the message has its last line.
    """

    def __init__(
        self,
        model: Path,
        count: int,
        *,
        python: Path | None = None,
        flags: Sequence[str] = (),
        devices: Sequence[str] | None = None,
        log: Path,
    ) -> None:
        self.urls: list[str] = []
        self._log, self._devices = log, devices
        log.mkdir(parents=True, exist_ok=True)
        self._command = [
            str(python or sys.executable),
            "-m",
            "rlvr.samplers.vllm_server",
            str(model),
            "--dummy",
            *flags,
        ]
        self._programs: list[StartedProgram] = []
        self._lifeline = Lifeline()  # nothing is written to it
        try:
            for number in range(count):
                # The kernel's choice; another program may take it before the server listens.
                port = _free_port()
                self._programs.append(self._start_server(number, port))
                self.urls.append(f"http://127.0.0.1:{port}")
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start_server(self, number: int, port: int) -> StartedProgram:
        command = [*self._command, "--port", str(port), "--alive-fd"]
        command.append(str(self._lifeline.theirs))
        environment = dict(os.environ)
        if self._devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self._devices[number]
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)  # of torchrun; vLLM would join its processes
        with self._path(number).open("wb") as log:
            try:
                return StartedProgram(
                    command,
                    name=f"vLLM server {number}",
                    owner="samplers",
                    group="group",
                    ends_itself=True,  # by `--alive-fd`; the trackers of shared memory go on
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[self._lifeline.theirs],
                    env=environment,
                )
            except OSError as error:
                raise UsageError(
                    f"{command[0]} cannot be started ({error.strerror}); give --sampler-python the "
                    "Python of the environment that has vLLM"
                ) from None

    def _path(self, number: int) -> Path:
        return self._log / f"vllm-{number}.log"

    def _wait(self) -> None:
        """Wait until all servers answer."""
        with httpx.Client(timeout=2, trust_env=False) as client:  # to make one takes 40 ms
            self._wait_by(client)

    def _wait_by(self, client: httpx.Client) -> None:
        until = time.monotonic() + _START_S
        for number, (url, process) in enumerate(zip(self.urls, self._programs, strict=True)):
            while not _answers(client, url):
                # Ended, or too slow: its last line says more than a status.
                if process.poll() is not None or time.monotonic() > until:
                    lines = (
                        self._path(number)
                        .read_text(encoding="utf-8", errors="replace")
                        .strip()
                        .splitlines()
                    )
                    last = lines[-1].strip()[-300:] if lines else "it printed nothing"
                    raise UsageError(
                        f"the vLLM server did not start: {last} (all of it is in "
                        f"{self._path(number)})"
                    )
                time.sleep(0.2)

    def kill(self, number: int) -> None:
        """Kill one server with all its processes: its first one does, and leaves no shared memory
        behind.

        Args:
            number: which one.
        """
        program = self._programs[number]
        # SIGTERM first: the first process then ends its group in order.
        program.terminate()
        try:
            program.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            program.end()

    def start_again(self, number: int) -> None:
        """Start a server that has ended, at the address that it had; does not wait until it
        answers.

        Args:
            number: which one.
        """
        self._programs[number] = self._start_server(
            number, int(self.urls[number].rpartition(":")[2])
        )

    def close(self) -> None:
        """End all servers.  Idempotent."""
        for number in range(len(self._programs)):
            self.kill(number)
        self._lifeline.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(client: httpx.Client, url: str) -> bool:
    with suppress(httpx.HTTPError):
        return client.get(f"{url}/health").status_code == 200
    return False
