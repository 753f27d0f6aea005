"""harbor's environment over our sandbox: trials without Docker.

    harbor run -p tasks/ -a oracle --env rlvr.interop.harbor_sandbox:RlvrSandbox

The folder is read as `from_harbor` reads it, so that what is not offered here is refused before a trial begins.  There
is no network, whatever the task's policy says, one user, and no process goes on between two commands.  Needs harbor
(Python 3.12 or newer): pip install harbor==0.25.0.  Written against harbor 0.25.0.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from rlvr.errors import MissingDependency, SandboxFailed
from rlvr.interop.harbor_folder import HarborFolder
from rlvr.interop.harbor_trial import begin
from rlvr.sandbox import Ending
from rlvr.tools import sandbox

try:
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.environments.capabilities import EnvironmentCapabilities
except ImportError as error:
    raise MissingDependency(
        "harbor, whose environment this is,",
        "",
        "pip install harbor==0.25.0 (Python 3.12 or newer)",
    ) from error

__all__ = ["RlvrSandbox"]

_SPOOL = ".harbor"  # in the session's own folder: what a command wrote, and files on their way
_LONGEST_S = 3600.0
_TIMED_OUT = 124  # exit code of timeout(1)


class RlvrSandbox(BaseEnvironment):  # type: ignore[misc]  # harbor is not installed where types are checked
    """One session of the sandbox; a verifier of its own has another one."""

    @staticmethod
    def type() -> str:
        return "rlvr-sandbox"

    @property
    def capabilities(self) -> Any:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        self._folder = HarborFolder.read(self.environment_dir.parent)

    async def start(self, force_build: bool) -> None:
        folder = self._folder
        self._place = begin(sandbox(folders=folder.folders), folder, _LONGEST_S)
        self._session = self._place.session
        await self.ensure_dirs(self._mount_targets(writable_only=True))

    async def stop(self, delete: bool) -> None:
        if hasattr(self, "_place"):
            self._place.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Any:
        """Run a command; `user` is not read, as there is one."""
        variables = {**self.task_env_config.env, **(self._merge_env(env) or {})}
        lines = [f"cd {shlex.quote(cwd or self._folder.workdir)} || exit 1"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        script = "\n".join([*lines, command, ""])
        home = f"/box/home/{_SPOOL}"
        self._write(f"{_SPOOL}/command", script.encode())
        limit = f"timeout -k 5 {timeout_sec} " if timeout_sec else ""
        reply = await self._session.arun(
            f"{limit}bash {home}/command > {home}/out 2> {home}/err < /dev/null; echo $?"
        )
        if reply.ending is Ending.IE or not reply.open:
            raise SandboxFailed(f"the sandbox's session is over: {reply.why}")
        out, err = (self._text(f"{_SPOOL}/{name}") for name in ("out", "err"))
        code = reply.text.strip().rpartition("\n")[2]
        if reply.ending is not Ending.OK:
            code = str(_TIMED_OUT)
        return ExecResult(stdout=out, stderr=err, return_code=int(code))

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        self._write(f"{_SPOOL}/file", source.read_bytes())
        mode = "755" if source.stat().st_mode & stat.S_IXUSR else "644"
        target = shlex.quote(target_path)
        spooled = f"/box/home/{_SPOOL}/file"
        await self._do(
            f"mkdir -p $(dirname {target}) && mv {spooled} {target} && chmod {mode} {target}"
        )

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        root = Path(source_dir)
        await self._do(f"mkdir -p {shlex.quote(target_dir)}")
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                name = path.relative_to(root).as_posix()
                await self.upload_file(path, str(PurePosixPath(target_dir, name)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._do(f"cat {shlex.quote(source_path)} > /box/home/{_SPOOL}/file")
        data = self._session.read(f"{_SPOOL}/file")
        if data is None:
            raise SandboxFailed(
                f"{source_path} cannot be read: {self._session.over or 'too large'}"
            )
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """The regular files, read without a command of the session."""
        inside = PurePosixPath(source_dir).as_posix().lstrip("/")
        target = Path(target_dir)
        target.mkdir(parents=True, exist_ok=True)
        for name, data in self._session.outputs((f"{inside}/**",)).items():
            path = target / PurePosixPath(name).relative_to(inside)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    async def _do(self, command: str) -> None:
        result = await self.exec(command, cwd="/")
        if result.return_code != 0:
            raise SandboxFailed(f"{command[:80]}: {result.stderr or result.stdout}")

    def _write(self, path: str, data: bytes) -> None:
        if not self._session.write(path, data):
            raise SandboxFailed(f"{path} cannot be written: {self._session.over or 'no room'}")

    def _text(self, path: str) -> str:
        return (self._session.read(path) or b"").decode("utf-8", "replace")
