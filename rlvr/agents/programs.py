"""Programs that are agents: a function, a command on this machine, or code in
a session of the sandbox.

A program gets an `AgentCall` and gives its answer, a text; or None, and the last completion is the
answer.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from rlvr.agents.tools import EpisodeTools
from rlvr.errors import RlvrError, UsageError
from rlvr.types import Prompt
from rlvr.workers.program import StartedProgram

__all__ = ["AgentCall", "AgentFailed", "AgentProgram", "Command", "require_names"]

_ANSWER_BYTES: Final = 1 << 20
_SAID_LETTERS: Final = 2000  # of what a program wrote, for the reason of a verdict


class AgentFailed(RlvrError):
    """The agent's program ended in another way than it should."""


@dataclass(slots=True, eq=False)
class AgentCall:
    """What a program is given.  The reference of the task is not in it.

    Attributes:
        task: id of the task.
        prompt: of the task, a text or chat messages.
        base_url: where the API begins.
        api_key: the key of this episode.
        model: a name for the model; any will do.
        tools: schemas of the environment's tools, as chat completions take them.
        stopped: set when the episode is over before the program has ended.
    """

    task: str
    prompt: Prompt
    base_url: str
    api_key: str
    model: str = "policy"
    tools: Sequence[Mapping[str, object]] = ()
    stopped: threading.Event = field(default_factory=threading.Event)
    _on_stop: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tools: EpisodeTools | None = None

    @property
    def mcp_url(self) -> str:
        """Where an MCP client finds the tools, by streamable HTTP, with the key as its bearer
        token."""
        return f"{self.base_url}/mcp"

    def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """The reply of a tool of the environment, for programs in this process.

        Args:
            name: of the tool.
            arguments: by name.

        Raises:
            UsageError: the episode is over, or has no tools.
        """
        if self._tools is None:
            raise UsageError(f"task {self.task!r} has no episode with tools")
        return self._tools.call(name, arguments).reply

    def take_tools(self, tools: EpisodeTools) -> None:
        """Give the program the tools of an episode.

        Args:
            tools: of the episode.
        """
        self._tools, self.tools = tools, tools.episode.schemas

    def on_stop(self, function: Callable[[], None]) -> None:
        """Call a function when the episode is over before the program has ended; at once if it is
        over already.

        Args:
            function: ends the program; may be called in any thread.
        """
        with self._lock:
            self._on_stop.append(function)
            late = self.stopped.is_set()
        if late:
            function()

    def stop(self) -> None:
        """The episode is over."""
        with self._lock:
            functions = [] if self.stopped.is_set() else list(self._on_stop)
            self.stopped.set()
        for function in functions:
            function()

    @property
    def prompt_text(self) -> str:
        """The prompt as text; chat messages as JSON."""
        return (
            self.prompt
            if isinstance(self.prompt, str)
            else json.dumps([dict(message) for message in self.prompt])
        )


AgentProgram: TypeAlias = Callable[[AgentCall], str | Awaitable[str | None] | None]
"""Runs one episode, in a thread; returns the answer, or None for the last completion.  Coroutine
functions share one event loop, so that a client that they keep stays usable."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command on this machine as an agent: one process for each episode, in an empty folder
    that is deleted after it.

    The process gets the prompt on its standard input, and the variables `OPENAI_BASE_URL`,
    `OPENAI_API_KEY`, `OPENAI_MODEL`, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY`, `RLVR_MCP_URL` and
    `RLVR_TASK`; of this process's own only PATH, LANG and those of `env`.  It is not isolated: what
    the policy makes it do is done on this machine.  When it ends or is stopped, or this process
    ends, SIGKILL included, its process group is killed.

    Args:
        argv: the command and its arguments.
        env: further variables.
        files: texts that the folder begins with, by name.
        answer: what is scored: "last", the last completion; "stdout"; the name of a file in the
            folder; or a function of the folder, for what is checked in several files.

    Raises:
        UsageError: there is no command, or a name leaves the folder.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    answer: str | Callable[[Path], str] = "last"

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv:
            raise UsageError(f"argv is {self.argv!r}; give a list, such as ['python', 'agent.py']")
        require_names([*self.files, *([self.answer] if isinstance(self.answer, str) else [])])

    def __call__(self, call: AgentCall) -> str | None:
        """Run one episode.

        Args:
            call: the episode.

        Raises:
            AgentFailed: the process ended with another code than 0, or left no answer.
        """
        with tempfile.TemporaryDirectory(prefix="rlvr-agent-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            for file, text in self.files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text, encoding="utf-8")
            with (
                tempfile.TemporaryFile() as stdin,
                tempfile.TemporaryFile() as out,
                tempfile.TemporaryFile() as err,
            ):
                stdin.write(call.prompt_text.encode("utf-8", "surrogatepass"))
                stdin.seek(0)
                program = StartedProgram(
                    self.argv,
                    name="command",
                    owner="agent",
                    cwd=folder,
                    env=self._variables(call, folder),
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                )
                call.on_stop(program.kill)
                try:
                    # not reaped yet: until then its group is the agent's, and can be killed
                    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
                finally:
                    code = program.end()
                if code != 0:
                    raise AgentFailed(f"exit code {code}: {_end_of(err)}")
                if self.answer == "stdout":
                    return _end_of(out, _ANSWER_BYTES)
            if self.answer == "last":
                return None
            return self.answer(folder) if callable(self.answer) else _read(folder, self.answer)

    def _variables(self, call: AgentCall, folder: Path) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        endpoint_variables = {
            "OPENAI_BASE_URL": call.base_url,
            "OPENAI_API_KEY": call.api_key,
            "OPENAI_MODEL": call.model,
            "ANTHROPIC_BASE_URL": call.base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": call.api_key,
            "RLVR_MCP_URL": call.mcp_url,
        }
        return {
            **inherited,
            "HOME": str(folder),
            **self.env,
            **endpoint_variables,
            "RLVR_TASK": call.task,
        }


def require_names(names: Sequence[str]) -> None:
    """Refuse names of files that leave their folder.

    Args:
        names: of files.

    Raises:
        UsageError: one does.
    """
    for name in names:
        path = Path(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise UsageError(
                f"the file {name!r} is not inside of the agent's folder; give a relative name"
            )


def _end_of(file: Any, length: int = 4 * _SAID_LETTERS) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - length))
    text = file.read().decode("utf-8", "replace")
    return str(text if length > 4 * _SAID_LETTERS else text.strip()[-_SAID_LETTERS:])


def _read(folder: Path, name: str) -> str:
    """A file that the agent has written: it may be a link, a pipe, or of any size."""
    try:
        fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise AgentFailed(f"it left no file {name!r} as its answer ({error.strerror})") from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise AgentFailed(f"what it left as {name!r} is no regular file")
        return file.read(_ANSWER_BYTES).decode("utf-8", "replace")
