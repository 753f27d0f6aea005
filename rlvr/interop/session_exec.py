"""Commands of others in a bash session: exit codes, both streams, and files at any path,
as their sandboxes have."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rlvr.errors import SandboxFailed
from rlvr.sandbox import Ending
from rlvr.sandbox.sessions import Session

__all__ = ["HOME", "SessionExec"]

HOME = "/box/home"
_SPOOL = ".rlvr"  # in the session's own folder: what a command wrote, and files on their way
_TIMED_OUT = 124  # exit code of timeout(1)


class SessionExec:
    """Runs one command after another in a session.

    Args:
        session: in bash.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float | None = None,
        stdin: str | bytes | None = None,
    ) -> tuple[int, str, str]:
        """Run a command in a shell of its own; its exit code and what it wrote.

        Args:
            command: for bash.
            cwd: where it runs.
            env: further variables.
            timeout: wall seconds; the code is then 124.
            stdin: its standard input.

        Raises:
            SandboxFailed: the session is over.
        """
        lines = [f"cd {shlex.quote(cwd)} || exit 1"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        self._write("command", "\n".join([*lines, command, ""]).encode())
        self._write("in", stdin.encode() if isinstance(stdin, str) else stdin or b"")
        limit = f"timeout -k 5 {timeout:g} " if timeout else ""
        spool = f"{HOME}/{_SPOOL}"
        reply = await self._session.arun(
            f"{limit}bash {spool}/command < {spool}/in > {spool}/out 2> {spool}/err; echo $?"
        )
        if reply.ending is Ending.IE or not reply.open:
            raise SandboxFailed(f"the sandbox's session is over: {reply.why}")
        code = reply.text.strip().rpartition("\n")[2]
        ended = int(code) if reply.ending is Ending.OK and code.isdigit() else _TIMED_OUT
        return ended, self._read("out"), self._read("err")

    async def put(self, path: str, data: bytes, *, mode: str = "644") -> str:
        """Write a file; what is wrong with that, "" for nothing.

        Args:
            path: absolute.
            data: its content.
            mode: its rights.

        Raises:
            SandboxFailed: the session is over, or has no room.
        """
        self._write("file", data)
        target, spooled = shlex.quote(path), f"{HOME}/{_SPOOL}/file"
        code, out, err = await self.run(
            f"mkdir -p $(dirname {target}) && mv -T {spooled} {target} && chmod {mode} {target}",
            cwd="/",
            env={},
        )
        return "" if code == 0 else (err or out).strip()

    async def get(self, path: str) -> tuple[bytes | None, str]:
        """A file's content, or None and why.

        Args:
            path: absolute.

        Raises:
            SandboxFailed: the session is over.
        """
        command = f"cat {shlex.quote(path)} > {HOME}/{_SPOOL}/file"
        code, out, err = await self.run(command, cwd="/", env={})
        if code != 0:
            return None, (err or out).strip()
        return self._session.read(f"{_SPOOL}/file"), "too large"

    def _write(self, name: str, data: bytes) -> None:
        if not self._session.write(f"{_SPOOL}/{name}", data):
            raise SandboxFailed(f"a file cannot be written: {self._session.over or 'no room'}")

    def _read(self, name: str) -> str:
        return (self._session.read(f"{_SPOOL}/{name}") or b"").decode("utf-8", "replace")
