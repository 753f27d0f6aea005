"""One trial of a harbor task in the sandbox: what the policy finds, what it leaves, and
what the tests make of that.

    begin ─▶ Workplace ─▶ leave ─▶ files
          ─▶ judge (a fresh session, which gets the tests and these files) ─▶ reward

Also where the task would have its tests run in the policy's own container: there a process, an
alias or a variable of the policy could decide.  The files of its writable folders are then what it
leaves.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Final

from rlvr.errors import SandboxFailed
from rlvr.interop.harbor_folder import LOGS, SOLUTION, TESTS, Artifact, HarborFolder
from rlvr.sandbox import Ending, Limits, Sandbox
from rlvr.sandbox.grading import Box
from rlvr.sandbox.sessions import Session

__all__ = [
    "HarborReward",
    "Workplace",
    "begin",
    "judge_trial",
    "solution_files",
    "solve",
    "solve_command",
]

_REWARDS: Final = ("reward.json", "reward.txt")
_PRIVATE: Final = frozenset((LOGS, TESTS, SOLUTION))
_MEMORY_MIB: Final = 1024
_TAIL: Final = 500  # characters of what the tests printed


@dataclass(frozen=True, slots=True)
class HarborReward:
    """What the tests wrote.

    Attributes:
        value: the number that counts: `reward`, or the only one.  None if there is none.
        rewards: all numbers by name.
        why: there is no value; "" if there is.
        tail: the end of what the tests printed.
    """

    value: float | None
    rewards: Mapping[str, float]
    why: str = ""
    tail: str = ""


class Workplace:
    """The policy's session of a task.

    Args:
        session: in bash.
        folder: the task.
    """

    def __init__(self, session: Session, folder: HarborFolder) -> None:
        self.session, self._folder = session, folder

    def outputs(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """The files that the policy leaves to the tests, by absolute path without its first slash.

        Args:
            patterns: not read, as each task has its own.
        """
        artifacts = self._folder.artifacts
        if not self._folder.separate:
            places = [place for place in self._folder.folders if place not in _PRIVATE]
            artifacts = (*map(Artifact, places), *artifacts)
        wanted_patterns = [
            pattern
            for artifact in artifacts
            for pattern in (artifact.source[1:], f"{artifact.source[1:]}/**")
        ]
        files = self.session.outputs(wanted_patterns)
        return {name: data for name, data in files.items() if _is_kept(name, artifacts)}

    def box(self, files: Mapping[str, bytes]) -> Box:
        """A fresh box, see `Session.box`.

        Args:
            files: see there.
        """
        return self.session.box(files)

    def freeze(self) -> None:
        """See `Session.freeze`."""
        self.session.freeze()

    def kill(self) -> None:
        """See `Session.kill`."""
        self.session.kill()

    def close(self) -> None:
        """See `Session.close`."""
        self.session.close()


class _NoRoomError(SandboxFailed):
    """A session has no room for a file or a folder."""


def begin(sandbox: Sandbox, folder: HarborFolder, seconds: float) -> Workplace:
    """Open a session in which a task begins.

    Args:
        sandbox: with the task's folders.
        folder: the task.
        seconds: CPU and wall seconds of a call.

    Raises:
        SandboxFailed: a file cannot be put there.
    """
    session = _open(sandbox, folder, seconds, folder.agent_s + folder.verifier_s)
    try:
        _put(session, folder.files)
        _enter(session, folder, folder.env)
    except BaseException:
        session.close()
        raise
    return Workplace(session, folder)


def judge_trial(
    sandbox: Sandbox, folder: HarborFolder, left: Mapping[str, bytes], seconds: float
) -> HarborReward:
    """Run the tests in a fresh session that has what the policy left.

    Args:
        sandbox: with the task's folders.
        folder: the task.
        left: files by absolute path without its first slash.
        seconds: most CPU and wall seconds of the tests, if the task does not say less.

    Raises:
        SandboxFailed: we failed.
    """
    seconds = min(seconds, folder.verifier_s)
    files = {f"/{name}": data for name, data in left.items()}
    if folder.separate:
        files = {**_outside(folder.files, folder.artifacts), **files}
    with _open(sandbox, folder, seconds, seconds) as session:
        try:
            _put(session, files)
            _put(session, {f"{TESTS}/{name}": data for name, data in folder.tests.items()})
            _enter(session, folder, {**folder.env, **folder.verifier_env})
        except _NoRoomError as error:
            if not left:
                raise
            # Without what was left there is room: so the folder was validated.
            return HarborReward(None, {}, f"no-reward: beside what was left, {error}"[:200], "")
        log = f"{LOGS}/verifier/test-stdout.txt"
        _require_ours(session.run(f"({TESTS}/test.sh) > {log} 2>&1"))
        written = {name: session.read(f"{LOGS}/verifier/{name}") for name in _REWARDS}
        tail = (session.read(log) or b"")[-_TAIL:].decode("utf-8", "replace")
        return _reward(written, tail, session.over)


def solution_files(folder: HarborFolder) -> dict[str, bytes]:
    """The files of the solution by absolute path.

    Args:
        folder: the task.
    """
    return {f"{SOLUTION}/{name}": data for name, data in folder.solution.items()}


def solve(place: Workplace, folder: HarborFolder) -> None:
    """Run the task's own solution.

    Args:
        place: of the policy.
        folder: the task.

    Raises:
        SandboxFailed: we failed.
    """
    _put(place.session, solution_files(folder))
    _require_ours(place.session.run(solve_command(folder)))


def solve_command(folder: HarborFolder) -> str:
    """The command that runs the solution.

    Args:
        folder: the task.
    """
    words = [f"{name}={shlex.quote(value)}" for name, value in folder.solution_env.items()]
    return " ".join(["env", *words, f"{SOLUTION}/solve.sh"])


def _open(sandbox: Sandbox, folder: HarborFolder, seconds: float, total_s: float) -> Session:
    memory = folder.memory_mib or _MEMORY_MIB
    limits = Limits(
        cpu_s=seconds,
        wall_s=seconds,
        memory_mib=memory,
        disk_mib=min(folder.storage_mib or memory, memory),
    )
    return sandbox.session("bash", limits=limits, total_cpu_s=total_s, total_wall_s=2 * total_s)


def _put(session: Session, files: Mapping[str, bytes]) -> None:
    """Write files.  Those that begin with #! can be executed: what a session leaves has no
    modes."""
    for path, data in files.items():
        if not session.write(path, data):
            if session.over:
                raise SandboxFailed(f"{path} could not be written: {session.over}")
            raise _NoRoomError(f"{path} could not be written: no room")
    scripts = [shlex.quote(path) for path, data in files.items() if data.startswith(b"#!")]
    if scripts:
        _require_ours(session.run(f"chmod +x -- {' '.join(scripts)}"))


def _enter(session: Session, folder: HarborFolder, env: Mapping[str, str]) -> None:
    lines = [f"mkdir -p {LOGS}/agent {LOGS}/verifier {LOGS}/artifacts"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    workdir = shlex.quote(folder.workdir)
    reply = session.run("\n".join([*lines, f"mkdir -p {workdir} && cd {workdir}"]))
    _require_ours(reply)
    if reply.ending is not Ending.OK:
        raise _NoRoomError(f"the folder {folder.workdir} cannot be entered: {reply.text[:200]}")


def _require_ours(reply: Any) -> None:
    if reply.ending is Ending.IE:
        raise SandboxFailed(reply.why)


def _is_kept(name: str, artifacts: Sequence[Artifact]) -> bool:
    """Whether an artifact has a file, and does not exclude it."""
    for artifact in artifacts:
        source = artifact.source[1:]
        inner = name.removeprefix(source).removeprefix("/").split("/")
        if name != source and not name.startswith(source + "/"):
            continue
        parts = [*inner, *("/".join(inner[: i + 1]) for i in range(len(inner)))]
        if not any(fnmatch(part, pattern) for part in parts for pattern in artifact.exclude):
            return True
    return False


def _outside(files: Mapping[str, bytes], artifacts: Sequence[Artifact]) -> dict[str, bytes]:
    """The image's files without those in a place that the policy's replace."""
    places = [artifact.source for artifact in artifacts]
    return {
        path: data
        for path, data in files.items()
        if not any(path == place or path.startswith(place + "/") for place in places)
    }


def _reward(written: Mapping[str, bytes | None], tail: str, over: str) -> HarborReward:
    """The numbers of reward.json, or else the one of reward.txt."""
    as_json, as_text = (written[name] for name in _REWARDS)
    if as_json is None and as_text is None:
        return HarborReward(
            None, {}, f"no-reward: the tests wrote none{over and f', {over}'}", tail
        )
    try:
        rewards = json.loads(as_json) if as_json is not None else float(as_text or b"")
    except (ValueError, RecursionError) as error:
        return HarborReward(
            None, {}, f"no-reward: what the tests wrote is no number: {error}"[:200], tail
        )
    named = rewards if isinstance(rewards, dict) else {"reward": rewards}
    for name, value in named.items():
        number = isinstance(value, int | float)
        if not number or not math.isfinite(value):
            why = f"no-reward: {name[:50]} is {str(value)[:50]}"
            return HarborReward(None, {}, why, tail)
    numbers = {str(name): float(value) for name, value in named.items()}
    if "reward" not in numbers and len(numbers) != 1:
        return HarborReward(None, numbers, "no-reward: none of the numbers is named reward", tail)
    return HarborReward(numbers.get("reward", next(iter(numbers.values()))), numbers, "", tail)
