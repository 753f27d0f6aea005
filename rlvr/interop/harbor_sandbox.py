"""harbor's environment over our sandbox: trials without Docker.

    harbor run -p tasks/ -a oracle --env rlvr.interop.harbor_sandbox:RlvrSandbox

The folder is read as `from_harbor` reads it, so that what is not offered here is refused before a
trial begins.  There is no network, whatever the task's policy says, one user, and no process goes
on between two commands.  Needs harbor (Python 3.12 or newer): pip install harbor==0.25.0.  Written
against harbor 0.25.0.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path, PurePosixPath

from rlvr.environment.ready_tools import sandbox
from rlvr.errors import MissingDependency, SandboxFailed
from rlvr.interop.harbor_folder import HarborFolder
from rlvr.interop.harbor_trial import begin
from rlvr.interop.session_exec import SessionExec

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

_LONGEST_S = 3600.0


# harbor is not installed where types are checked
class RlvrSandbox(BaseEnvironment):  # type: ignore[misc]
    """One session of the sandbox; a verifier of its own has another one."""

    @staticmethod
    def type() -> str:
        return "rlvr-sandbox"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        self._folder = HarborFolder.read(self.environment_dir.parent)

    async def start(self, force_build: bool) -> None:
        folder = self._folder
        self._place = begin(sandbox(folders=folder.folders), folder, _LONGEST_S)
        self._session = self._place.session
        self._exec = SessionExec(self._session)
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
    ) -> ExecResult:
        """Run a command; `user` is not read, as there is one."""
        variables = {**self.task_env_config.env, **(self._merge_env(env) or {})}
        code, out, err = await self._exec.run(
            command, cwd=cwd or self._folder.workdir, env=variables, timeout=timeout_sec
        )
        return ExecResult(stdout=out, stderr=err, return_code=code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        mode = "755" if source.stat().st_mode & stat.S_IXUSR else "644"
        if why := await self._exec.put(target_path, source.read_bytes(), mode=mode):
            raise SandboxFailed(f"{target_path} cannot be written: {why}")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        root = Path(source_dir)
        await self.exec(f"mkdir -p {shlex.quote(target_dir)}", cwd="/")
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                name = path.relative_to(root).as_posix()
                await self.upload_file(path, str(PurePosixPath(target_dir, name)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        data, why = await self._exec.get(source_path)
        if data is None:
            raise SandboxFailed(f"{source_path} cannot be read: {why}")
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
