"""Blocks of a page run by forks of an interpreter that has imported torch, which takes longer than what they do."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shlex
import subprocess
import sys
from pathlib import Path

from rlvr.cli import main
from tests.processes import PATIENCE_S

_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["rlvr.cli", "rlvr.train.loop", "rlvr.train.plot"])


def run_forked(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A block of Python, or a shell block that runs `rlvr` and nothing else, in this folder."""
    log = folder / "said.log"
    process = _WARM.Process(target=_run, args=(language, code, folder, log))
    process.start()
    process.join(5 * PATIENCE_S)
    if process.exitcode is None:
        process.kill()
        process.join()
    return subprocess.CompletedProcess(code, process.exitcode, log.read_text(), "")


def _run(language: str, code: str, folder: Path, log: Path) -> None:
    os.chdir(folder)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        if language == "python":
            exec(compile(code, "block", "exec"), {"__name__": "__main__"})
            return
        for line in code.replace("\\\n", " ").splitlines():
            command, *argv = shlex.split(line)
            assert command == "rlvr", line
            assert main(argv) == 0, line
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
        sys.stdout.flush()
