"""Programs that run beside the caller, and forked children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, TypeAlias

from rlvr.workers.alive import watch

__all__ = ["ForkedChild", "Lifeline", "StartedProgram", "run_program"]

_File: TypeAlias = int | IO[bytes] | None


class Lifeline:
    """A pipe that ends when this process does, however it ends: SIGKILL included.

    A program that is given the reading end, and reads it, can end itself then.

    Attributes:
        theirs: descriptor of the reading end, to be passed to programs; -1 once `give` was called.
    """

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()  # not inherited by programs to which it is not passed

    def give(self) -> None:
        """Close our copy of the reading end: the programs have theirs.  Idempotent."""
        theirs, self.theirs = self.theirs, -1
        _close(theirs)

    def say(self, word: bytes) -> None:
        """Write to the programs.  A process forked from this one may hold the pipe open as well.

        Args:
            word: a few bytes.
        """
        with suppress(OSError):
            os.write(self._ours, word)

    def close(self) -> None:
        """End the pipe.  Idempotent."""
        self.give()
        ours, self._ours = self._ours, -1
        _close(ours)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


class StartedProgram(subprocess.Popen[bytes]):
    """A program that has been started; `wait`, `poll` and `communicate` are those of `Popen`.

    Nothing ends it with this process but what it reads itself, such as a `Lifeline`.

    Args:
        argv: the command and its arguments.
        name: what it is.
        owner: what it works for.
        kind: "process" if it answers requests.
        group: "session" for a session and process group of its own, which Ctrl-C of a terminal does
            not reach; "group" for a process group alone; "caller" for this process's group.
        stdin, stdout, stderr, env, cwd, pass_fds: see `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        owner: str,
        kind: str = "program",
        group: Literal["session", "group", "caller"] = "session",
        stdin: _File = None,
        stdout: _File = None,
        stderr: _File = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        super().__init__(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=group == "session",
            process_group=0 if group == "group" else None,
        )
        self._has_group = group != "caller"
        self.kind, self.label, self.owner = kind, name, owner
        self.since = time.monotonic()
        watch(self)

    @property
    def number(self) -> int | None:
        """Of the process; None once it was waited for."""
        return self.pid if self.returncode is None else None

    def kill(self) -> None:
        """SIGKILL it and all of its group.  Any thread may call this; nothing once it was waited
        for, as its number may be another's by then."""
        if self.returncode is not None:
            return
        if self._has_group:
            # The group outlives its leader, whose number is ours until we have waited for it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):  # it may have left its group, or us
            # not Popen's own, which would wait for it where another thread does already
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill it with its group and wait for it; returns its exit code, or minus the signal."""
        self.kill()
        return self.wait()

    def disown(self) -> None:
        """In a forked child: it is the parent's, and goes on."""
        self.returncode = 0  # or Popen would warn of a process that was not waited for


def run_program(
    argv: Sequence[str],
    *,
    name: str,
    owner: str,
    limit_s: float | None,
    group: Literal["session", "group", "caller"] = "session",
    stdin: bytes = b"",
    stdout: _File = subprocess.PIPE,
    stderr: _File = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it prints is UTF-8.

    Args:
        argv, name, owner, group, env: see `StartedProgram`.
        limit_s: wall seconds after which it and its group are killed; None for no limit.
        stdin: what it reads.
        stdout, stderr: see `subprocess.Popen`; a pipe is read.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was killed at the limit.
    """
    program = StartedProgram(
        argv,
        name=name,
        owner=owner,
        group=group,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
    )
    with program:
        try:
            out, err = program.communicate(stdin or None, timeout=limit_s)
        except BaseException:  # the limit, or Ctrl-C
            program.kill()
            raise
    texts = [(part or b"").decode("utf-8", "replace") for part in (out, err)]
    return subprocess.CompletedProcess(argv, program.returncode, *texts)


class ForkedChild:
    """A fork of this process that runs a function and ends with it: with 0, or with 1 if it raises.

    Only where this process has one thread and holds no lock.

    Args:
        function: what the child runs.
        name: what it is.
        owner: what it works for.

    Attributes:
        pid: of the child.
    """

    kind = "fork"

    def __init__(self, function: Callable[[], None], *, name: str, owner: str) -> None:
        self.label, self.owner = name, owner
        self.since = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                function()
                code = 0
            finally:
                os._exit(code)
        self._is_there = True
        watch(self)

    @property
    def number(self) -> int | None:
        """Of the process; None once it was waited for."""
        return self.pid if self._is_there else None

    def end(self) -> int:
        """Kill it and wait for it; returns its exit code, or minus the signal."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._is_there = False
        return os.waitstatus_to_exitcode(status)

    def disown(self) -> None:
        """In a forked child: it is the parent's."""
        self._is_there = False
