"""Guests without a sandbox: a small server that forks the processes of a run, so that one takes milliseconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 20.0


class Guests:
    """The server, from the tests' side.

    Args:
        python: the interpreter of the guests, with its options.
    """

    def __init__(self, python: list[str] | None = None) -> None:
        command = [*(python or [sys.executable]), str(Path(__file__).resolve())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def suite(
        self, program: str, style: str, test: str, *, patience_s: float = PATIENCE_S, **spec: Any
    ) -> Any:
        """What a suite says of a program: `suite.Results`."""
        from rlvr.sandbox.guest.suite import read_suite_cases

        spec = {"setup": "", "entry_point": None, "module": ["solution"], "stop": False, **spec}
        spec = {**spec, "style": style, "test": test}
        reply = self._ask(do="suite", program=program, spec=spec, patience_s=patience_s)
        return read_suite_cases(bytes.fromhex(reply["results"]))

    def calls(self, program: str, *calls: Any) -> Any:
        """The replies of a program to some (name, args…)."""
        from rlvr.sandbox.guest.calls import read_replies, requests

        asked = requests([(name, args, {}, ()) for name, *args in calls])
        reply = self._ask(do="calls", program=program, calls=asked.decode(), patience_s=PATIENCE_S)
        return read_replies(bytes.fromhex(reply["results"]), len(calls))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def passed(results: Any) -> bool:
    """Whether a suite has passed."""
    outcomes = {case.outcome for case in results.cases}
    return results.done and "pass" in outcomes and outcomes <= {"pass", "skip"}


# --------------------------------------------------------------------------------------- the server


def stubs() -> None:
    """The modules of a guest, without the code of the packages around them, as in `rlvr.sandbox.slots`."""
    for name, *folder in (
        ("rlvr",),
        ("rlvr.sandbox", ROOT / "sandbox"),
        ("rlvr.workers", ROOT / "rlvr/workers"),
    ):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = list(map(str, folder))


def fork(work: Any, keep: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        if not os.environ.get("GUESTS_STDERR"):
            os.dup2(null, 2)
        for fd in range(3, 256):
            if fd not in keep:
                with contextlib.suppress(OSError):
                    os.close(fd)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        work()
        sys.stdout.flush()
    except SystemExit:
        pass
    except BaseException:  # noqa: BLE001  it is shown where GUESTS_STDERR is set
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def program(source: str, then: Any) -> Any:
    def work() -> None:
        module = sys.modules["solution"] = types.ModuleType("solution")
        exec(compile(source, "solution.py", "exec"), vars(module))
        then(vars(module))

    return work


def serve_one(request: Any) -> Any:
    from rlvr.sandbox.guest import calls, suite

    read, write = os.pipe()
    if request["do"] == "suite":
        ours, theirs = (end.detach() for end in socket.socketpair())
        pids = [
            fork(lambda: suite.main(request["spec"], ours, write), (ours, write)),
            fork(
                program(request["program"], lambda names: calls.serve_calls(names, theirs)),
                (theirs,),
            ),
        ]
        ends = (ours, theirs, write)
    else:
        calls_fd = os.memfd_create("calls")
        os.write(calls_fd, request["calls"].encode())
        os.lseek(calls_fd, 0, 0)
        pids = [
            fork(
                program(request["program"], lambda names: calls.main(names, calls_fd, write)),
                (calls_fd, write),
            )
        ]
        ends = (calls_fd, write)
    for fd in ends:
        os.close(fd)
    return {"results": _read(read, pids, request["patience_s"]).hex()}


def _read(fd: int, pids: list[int], patience_s: float) -> bytes:
    """Until the first process, which writes the results, is gone; then all of them are killed."""
    os.set_blocking(fd, False)
    data, until, gone = b"", time.monotonic() + patience_s, False
    while not gone and time.monotonic() < until:
        gone = os.waitpid(pids[0], os.WNOHANG)[0] != 0
        while True:
            try:
                part = os.read(fd, 1 << 20)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
        time.sleep(0.001)
    os.close(fd)
    for i, pid in enumerate(pids):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        if i or not gone:
            os.waitpid(pid, 0)
    return data


if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    stubs()

    try:
        import pytest
    except ImportError:
        pytest = None
    for line in sys.stdin:
        sys.__stdout__.write(json.dumps(serve_one(json.loads(line))) + "\n")
        sys.__stdout__.flush()
