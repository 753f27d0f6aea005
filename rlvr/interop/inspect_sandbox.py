"""Our sandbox as a provider of inspect_ai: `sandbox="rlvr"`, or `("rlvr", "/app,/data")`
with folders at the root.

No network, one user, no process goes on between two commands.  Written against inspect_ai 0.3.285.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from rlvr.environment.ready_tools import sandbox
from rlvr.errors import MissingDependency, SandboxFailed, UsageError
from rlvr.interop.session_exec import HOME, SessionExec
from rlvr.sandbox import Limits

try:
    from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv
except ImportError as error:
    raise MissingDependency(
        "inspect_ai, whose sandbox this is,", "", "pip install inspect-ai==0.3.285"
    ) from error

__all__ = ["InspectSandbox"]

_LIMITS = Limits(cpu_s=3600.0, wall_s=3600.0, memory_mib=1024, disk_mib=512.0)
_TIMED_OUT = 124  # exit code of timeout(1)


@sandboxenv(name="rlvr")
class InspectSandbox(SandboxEnvironment):  # type: ignore[misc]  # inspect_ai is not installed here
    """A session for each sample.

    Args:
        folders: writable ones at the root.
    """

    def __init__(self, folders: tuple[str, ...]) -> None:
        super().__init__()
        box = sandbox(_LIMITS, folders=folders)
        self._session = box.session("bash", total_cpu_s=3600.0, total_wall_s=7200.0)
        self._exec = SessionExec(self._session)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if config is not None and not isinstance(config, str):
            raise UsageError(
                "the configuration of the sandbox 'rlvr' is a text such as '/app,/data'"
            )
        return {"default": cls(tuple(filter(None, (config or "").split(","))))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            environment.as_type(cls)._session.close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user not in (None, "", "box", "1000"):
            raise PermissionError(
                f"the sandbox 'rlvr' has one user, and the command asks for {user!r}"
            )
        place = str(PurePosixPath(HOME, cwd or ""))
        code, out, err = await self._exec.run(
            shlex.join(cmd), cwd=place, env=env or {}, timeout=timeout, stdin=input
        )
        if timeout and code == _TIMED_OUT:
            raise TimeoutError(f"{cmd[0]} took more than {timeout} s")
        return ExecResult(code == 0, code, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        why = await self._exec.put(str(PurePosixPath(HOME, file)), data)
        if "directory" in why:
            raise IsADirectoryError(file)
        if why:
            raise PermissionError(f"{file}: {why}")

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        data, why = await self._exec.get(str(PurePosixPath(HOME, file)))
        if "directory" in why.lower():
            raise IsADirectoryError(file)
        if data is None and "denied" in why:
            raise PermissionError(f"{file}: {why}")
        if data is None and self._session.over:
            raise SandboxFailed(f"the sandbox's session is over: {self._session.over}")
        if data is None:
            raise FileNotFoundError(file)
        return data.decode() if text else data
