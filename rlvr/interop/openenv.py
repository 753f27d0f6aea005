"""Servers of OpenEnv as environments here; `rlvr.http.openenv` is the other way.

    env = from_openenv("http://localhost:8000", [{"prompt": "…", "seed": 7}])

Needs openenv-core, which brings a web server and much else, so it is no extra: pip install
openenv-core==0.3.0. Written against openenv-core 0.3.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rlvr.environment import Environment
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool
from rlvr.episode import EpisodeRecord
from rlvr.errors import MissingDependency, ToolError, UsageError, brief
from rlvr.interop.reported import RecordedSession, verdict_of_reward
from rlvr.types import JsonDict, Task, Verdict
from rlvr.validate import require_number

if TYPE_CHECKING:
    from rlvr.data.lines import Row

try:
    from openenv.core.generic_client import GenericEnvClient
except ImportError as error:
    raise MissingDependency(
        "openenv-core, whose environments these are,", "", "pip install openenv-core==0.3.0"
    ) from error

__all__ = ["OpenEnvTools", "from_openenv"]


def from_openenv(
    url: str,
    rows: Sequence[Row],
    *,
    best: float = 1.0,
    split: str = "train",
    **options: Any,
) -> OpenEnvTools:
    """A server of OpenEnv with tools as an `Environment`.

    Each episode is a session of its own: `reset` with the row's columns, the tools that it lists,
    its calls, and at the end the answer.  The verdict is about the sum of the rewards that the
    server gave: `best` or more is CORRECT, and the value is its share of `best`, between 0 and 1.
    The sum is part of the record, so a replay needs no server.

    Args:
        url: of the server.
        rows: for each task `prompt`, `answer_as` if the server takes answers, and what `reset`
            takes, such as `seed`. `answer_as` names the field of the action in which the policy's
            answer is sent: "text" for servers of `to_openenv`, "message" for others.
        best: the most that an episode can earn.
        split: name of the tasks' split.
        options: its limits: `turns`, `calls`, `call_seconds`, `episode_seconds`, `reply_chars`.

    Raises:
        UsageError: a row has no prompt, or `best` is not above 0.
    """
    return OpenEnvTools(
        url=url, rows=tuple(dict(row) for row in rows), best=best, split=split, **options
    )


class OpenEnvTools(Environment):
    """A server of OpenEnv; made by `from_openenv`.

    Options:
        url, rows, best: see there.
    """

    id: ClassVar[str] = "openenv-v0"
    domain = "tools"
    url: str = ""
    rows: tuple[Mapping[str, Any], ...] = ()
    best: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("best", self.best, above=0)
        for index, row in enumerate(self.rows):
            if not row.get("prompt"):
                raise UsageError(f"row {index} is {brief(dict(row))}; each needs a 'prompt'")

    @property
    def config(self) -> JsonDict:
        """Without the rows, which a record cannot repeat; each recorded task has its own."""
        return {name: value for name, value in super().config.items() if name != "rows"}

    def tasks(self) -> Iterator[Task]:
        for index, row in enumerate(self.rows):
            meta = {name: value for name, value in row.items() if name != "prompt"}
            yield Task(f"{self.id}/{self.split}/{index}", row["prompt"], meta=meta)

    def setup(self, task: Task) -> _Session:
        reset_options = {name: value for name, value in task.meta.items() if name != "answer_as"}
        return _Session(self.url, reset_options, self.call_seconds)

    def tools(self, state: _Session) -> list[Tool]:
        return [
            Tool(
                listed_tool["name"],
                listed_tool.get("description", ""),
                listed_tool["input_schema"],
                partial(state.call, listed_tool["name"]),
                False,
            )
            for listed_tool in state.tools
        ]

    def open(self, task: Task) -> ToolEpisode:
        return RecordedSession(self, task)

    def final(self, task: Task, state: _Session) -> JsonDict:
        field = task.meta.get("answer_as")
        if field and not state.done:
            state.step({field: state.record.answer})
        return {"reward": state.reward, "done": state.done}

    def verify(self, task: Task, episode: EpisodeRecord) -> Verdict:
        final = episode.final or {"reward": 0.0, "done": False}
        suffix = "" if final["done"] else ", not done"
        return verdict_of_reward(float(final["reward"]), self.best, episode.answer, {}, suffix)


class _Session:
    """A session with a server: an episode of its own."""

    def __init__(self, url: str, given: Mapping[str, object], wall_s: float) -> None:
        self.reward, self.done, self.record = 0.0, False, EpisodeRecord(())
        self._client = GenericEnvClient(base_url=url, message_timeout_s=wall_s + 5).sync()
        self._client.connect()
        try:
            self._client.reset(**given)
            listed = self._client.step({"type": "list_tools"}).observation
            self.tools: list[JsonDict] = listed["tools"]
        except BaseException:
            self.close()
            raise

    def call(self, name: str, **arguments: object) -> str:
        """Call a tool of the server."""
        if self.done:
            raise ToolError("the episode is over; answer now")
        result = self.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
        fault = result.get("error")
        if fault and fault.get("error_type") != "transport_error":
            raise ToolError(str(fault.get("message")))
        if fault:
            raise RuntimeError(f"OpenEnv's server could not call {name!r}: {fault.get('message')}")
        return _text(result.get("result"))

    def step(self, action: Mapping[str, object]) -> JsonDict:
        """Take a step, and add up its reward."""
        result = self._client.step(dict(action))
        reward = float(result.reward or 0.0)
        if not math.isfinite(reward):
            raise ValueError(f"OpenEnv's server gave the reward {reward}")
        self.reward += reward
        self.done = self.done or bool(result.done)
        return dict(result.observation)

    def close(self) -> None:
        """End the session."""
        self._client.close()


def _text(result: object) -> str:
    """What a tool gave: a text, or what FastMCP puts around it."""
    if isinstance(result, Mapping):
        if result.get("data") is not None:
            return str(result["data"])
        if isinstance(result.get("content"), list):
            return "\n".join(str(part.get("text", "")) for part in result["content"])
    return "" if result is None else str(result)
