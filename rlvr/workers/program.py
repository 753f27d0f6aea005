"""Programs that run beside the caller, and forked children."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, TypeAlias

from rlvr.workers.alive import watch

__all__ = ["ForkedChild", "Lifeline", "StartedProgram", "run_program"]

_File: TypeAlias = int | IO[bytes] | None


class Lifeline:
    """A pipe that ends when this process does, however it ends: SIGKILL included.

    A program that is given the reading end, and reads it, can end itself then; one that does not
    read it is killed by the kernel (`kill_at_end`).

    Attributes:
        theirs: descriptor of the reading end, to be passed to programs; -1 once `give` was called.
    """

    def __init__(self) -> None:
        self.theirs, ours = os.pipe()  # not inherited by programs to which it is not passed
        self._ours = ours
        # closed once, also where two threads wait for one program, and when this is dropped
        self._close_ours = weakref.finalize(self, os.close, ours)
        self._close_ours.atexit = False  # the end of the process is the pipe's
        _lifelines.add(self)

    def kill_at_end(self, pid: int, *, group: bool) -> None:
        """Have the kernel send SIGKILL when the pipe ends; on Linux alone, elsewhere nothing.

        The order lives in the open pipe, which a program keeps through `exec` until it closes the
        descriptor.  It names a process, so it is given a moment after the start: an owner that is
        killed within that moment leaves the program behind.

        PR_SET_PDEATHSIG would be no help: it reaches neither what a program has started nor one
        that has become another user, and it counts the end of the *thread* that started the program
        as the end of its owner.

        Args:
            pid: of a program that has the reading end, and was not waited for yet.
            group: whether it leads a process group, all of which is to end.
        """
        if sys.platform == "linux":
            # F_SETSIG, as the default of O_ASYNC is SIGIO, which a program may ignore
            fcntl.fcntl(self.theirs, fcntl.F_SETSIG, signal.SIGKILL)
            # it has ended, and a caller that ignores SIGCHLD leaves nothing to wait for
            with suppress(ProcessLookupError):
                fcntl.fcntl(self.theirs, fcntl.F_SETOWN, -pid if group else pid)
            flags = fcntl.fcntl(self.theirs, fcntl.F_GETFL)
            fcntl.fcntl(self.theirs, fcntl.F_SETFL, flags | os.O_ASYNC)

    def give(self) -> None:
        """Close our copy of the reading end: the programs have theirs.  Idempotent."""
        # Set first, so that a second call finds nothing to close.
        their_end, self.theirs = self.theirs, -1
        if their_end >= 0:
            os.close(their_end)

    def say(self, word: bytes) -> None:
        """Write to the programs.

        Args:
            word: a few bytes.
        """
        if self._close_ours.alive:  # else the number may be another file's
            with suppress(OSError):
                os.write(self._ours, word)

    def close(self) -> None:
        """End the pipe.  Idempotent."""
        self.give()
        self._close_ours()


_lifelines: weakref.WeakSet[Lifeline] = weakref.WeakSet()


def _close_all() -> None:
    """In a forked child, which would hold the pipes open when their owner has ended."""
    for line in list(_lifelines):
        line.close()


os.register_at_fork(after_in_child=_close_all)


class StartedProgram(subprocess.Popen[bytes]):
    """A program that has been started; `wait`, `poll` and `communicate` are those of `Popen`.

    It is killed, with its group, when this process ends, however that ends, and when this object is
    dropped (on Linux; a program that closes all descriptors it was started with goes on).

    Args:
        argv: the command and its arguments.
        name: what it is.
        owner: what it works for.
        kind: "process" if it answers requests.
        group: "session" for a session and process group of its own, which Ctrl-C of a terminal does
            not reach; "group" for a process group alone; "caller" for this process's group.
        ends_itself: it notices the end of this process by itself, and has to tidy up then.
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
        ends_itself: bool = False,
        stdin: _File = None,
        stdout: _File = None,
        stderr: _File = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        # The keeper ends itself, and has to clean up first.
        self._lifeline = None if ends_itself else Lifeline()
        passed = [*pass_fds] if self._lifeline is None else [*pass_fds, self._lifeline.theirs]
        self._has_group = group != "caller"
        try:
            super().__init__(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=passed,
                start_new_session=group == "session",
                process_group=0 if group == "group" else None,
            )
            if self._lifeline is not None:
                # Only now is there a number to send the signal to.
                self._lifeline.kill_at_end(self.pid, group=self._has_group)
        finally:
            if self._lifeline is not None:
                self._lifeline.give()
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
        # Set by Popen once it was waited for.
        if self.returncode is not None:
            return
        if self._has_group:
            # The group outlives its leader, whose number is ours until we have waited for it.
            # A group without members, or of another user's, cannot be signalled.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):  # it may have left its group, or us
            # not Popen's own, which would wait for it where another thread does already
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns its exit code, or minus the signal.

        What it leaves of its group, by then without a leader, is killed.

        Args:
            timeout: most wall seconds; None for no limit.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then.
        """
        code = super().wait(timeout)
        # At the end of the pipe the kernel kills what is left of the group.
        if self._lifeline is not None:
            self._lifeline.close()
        return code

    def end(self) -> int:
        """Kill it with its group and wait for it; returns its exit code, or minus the signal."""
        self.kill()
        return self.wait()

    def __del__(self) -> None:
        # Popen's own keeps a program that still runs, and this object, until it has ended.
        lifeline = getattr(self, "_lifeline", None)  # none where `__init__` has failed
        if lifeline is not None:
            lifeline.close()
        super().__del__()

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
        # Killed, or the `with` block would wait for its end.
        except BaseException:  # the limit, or Ctrl-C
            program.kill()
            raise
    texts = [(part or b"").decode("utf-8", "replace") for part in (out, err)]
    return subprocess.CompletedProcess(argv, program.returncode, *texts)


class ForkedChild:
    """A fork of this process that runs a function and ends with it: with 0, or with 1 if it raises.

    It is killed when this process ends, however that ends, and when this object is dropped.  Only
    where this process has one thread and holds no lock.

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
        self._lifeline = Lifeline()
        # A second descriptor of the pipe, which the fork hook does not close.
        kept = os.dup(self._lifeline.theirs)  # which the child has: its copy of ours is closed
        try:
            self.pid = os.fork()
        except OSError:  # as at the limit of processes
            self._lifeline.close()
            os.close(kept)
            raise
        if not self.pid:
            code = 1
            try:
                function()
                code = 0
            finally:
                # Without the interpreter's end: atexit functions are the parent's.
                os._exit(code)
        self._is_there = True
        self._lifeline.kill_at_end(self.pid, group=False)
        # The child has its own.
        self._lifeline.give()
        os.close(kept)
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
        self._lifeline.close()
        return os.waitstatus_to_exitcode(status)

    def disown(self) -> None:
        """In a forked child: it is the parent's."""
        self._is_there = False
