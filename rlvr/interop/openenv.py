"""OpenEnv: environments with tools or several turns behind its server, and the servers of others here.

    uvicorn.run(to_openenv(rlvr.make("bash-v1")).app(), port=8000)      # ours, for any client of OpenEnv
    env = from_openenv("http://localhost:8000", [{"prompt": "…", "seed": 7}])       # theirs, as ours

Needs openenv-core, which brings a web server and much else, so it is no extra: pip install
openenv-core==0.3.0. Written against openenv-core 0.3.0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from rlvr.environment import Environment, require_environment
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool
from rlvr.episode import EpisodeRecord
from rlvr.errors import MissingDependency, ToolError, UsageError, brief
from rlvr.interop.adapter import Adapter, chat_messages, reward_value
from rlvr.scoring import Scorer
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_number, require_whole

try:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment as OpenEnvironment
    from openenv.core.env_server.mcp_types import CallToolObservation, ListToolsObservation
    from openenv.core.env_server.mcp_types import Tool as ListedTool
    from openenv.core.env_server.types import Action, Observation, State
    from openenv.core.generic_client import GenericEnvClient
    from pydantic import Field
except ImportError as error:
    raise MissingDependency(
        "openenv-core, whose environments these are,", "", "pip install openenv-core==0.3.0"
    ) from error

__all__ = [
    "OpenEnvServer",
    "OpenEnvTools",
    "TurnAction",
    "TurnObservation",
    "from_openenv",
    "to_openenv",
]


# ------------------------------------------------------------------------------------------ to theirs


class TurnAction(Action):  # type: ignore[misc]  # openenv has no types
    """A turn of the policy.  With the type "call_tool" or "list_tools" it is OpenEnv's action of that name.

    Attributes:
        text: what the policy wrote; calls may stand in it, in <tool_call> tags.
        tool_calls: calls, in the form of OpenAI's API.
        tool_name, arguments: of "call_tool".
    """

    type: Literal["turn", "call_tool", "list_tools"] = "turn"
    text: str = ""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    tool_name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)


class TurnObservation(Observation):  # type: ignore[misc]
    """What the policy is told.

    Attributes:
        messages: chat messages: the prompt after `reset`, then replies.
        schemas: of the tools, after `reset`.
        task: id of the task.
        outcome, why, parts: of the score, at the end.
        truncated: True if the episode ended by a limit.
    """

    messages: list[dict[str, Any]] = Field(default_factory=list)
    schemas: list[dict[str, Any]] = Field(default_factory=list)
    task: str = ""
    outcome: str = ""
    why: str = ""
    parts: dict[str, float] = Field(default_factory=dict)
    truncated: bool = False


def to_openenv(
    env: Environment, *, max_sessions: int = 64, scorer: str | None = None
) -> OpenEnvServer:
    """An environment for OpenEnv: `.app()` is the server, `.environment` an environment.

    A turn of the policy is a step: `{"text": …}`, with calls in <tool_call> tags or as
    `tool_calls`.  OpenEnv's own `list_tools` and `call_tool` work too; then the last step is the
    answer, `{"text": …}`.  `reset` takes a seed, or `index` of a task.  UNSCORED is an error and
    never a reward.

    Args:
        env: an environment, of one turn or of several.
        max_sessions: most episodes at a time; OpenEnv refuses further ones.
        scorer: services that score an environment of one turn, such as `"http://10.0.0.7:8000"`, as `--scorer` takes
            them; None to score in this process.

    Raises:
        UsageError: it is none, its reward compares the completions of a group, or it has several
            turns and a scorer.
    """
    require_environment(env)
    if env.reward.group_level:
        raise UsageError(
            f"the reward {env.reward} compares completions of a group, and these are scored alone"
        )
    return OpenEnvServer(env, require_whole("max_sessions", max_sessions, 1), scorer)


class OpenEnvServer:
    """What `to_openenv` gives.

    Args:
        env, max_sessions, scorer: see there.
    """

    def __init__(self, env: Environment, max_sessions: int, scorer: str | None) -> None:
        self.env, self.max_sessions = env, max_sessions
        self._adapter = None if scorer is None else Adapter(env, scorer=scorer)

    def environment(self) -> Any:
        """A new environment of OpenEnv, for one episode at a time."""
        env = copy.deepcopy(self.env, {id(self.env.reward): self.env.reward})
        return _Served(env, None if self._adapter is None else self._adapter.scorer)

    def app(self) -> Any:
        """OpenEnv's server, an application for uvicorn.  It has no access control: let it listen on
        this machine."""
        return create_fastapi_app(
            self.environment, TurnAction, TurnObservation, max_concurrent_envs=self.max_sessions
        )


class _Served(OpenEnvironment):  # type: ignore[misc]
    """One of our environments as OpenEnv's."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: Any, scorer: Scorer | None) -> None:
        super().__init__()
        self._env, self._info, self._steps = env, dict[str, Any](), 0
        self._scorer = scorer

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> TurnObservation:
        """Begin an episode."""
        prompt, self._info = self._env.reset(
            seed=seed, options=None if index is None else {"index": index}
        )
        self._steps = 0
        return TurnObservation(
            messages=chat_messages(prompt),
            schemas=self._info.get("tools", []),
            task=str(self._info.get("task", "")),
        )

    def step(self, action: TurnAction, timeout_s: float | None = None, **_: Any) -> Observation:
        """A turn of the policy."""
        if action.type == "list_tools":
            return ListToolsObservation(
                tools=[_listed(schema) for schema in self._info.get("tools", [])]
            )
        action_text: Any = action.text
        if action.type == "call_tool":
            action_text = _message(
                "", [{"function": {"name": action.tool_name, "arguments": action.arguments}}]
            )
        elif action.tool_calls:
            action_text = _message(action.text, action.tool_calls)
        messages, reward, terminated, truncated, info = self._take_step(action_text)
        self._steps += 1
        ended, score = terminated or truncated, info.get("score")
        if action.type == "call_tool":
            reply = info["record"].calls[-1].reply if ended else messages[-1]["content"]
            return CallToolObservation(
                tool_name=action.tool_name, result=reply, done=ended, reward=float(reward)
            )
        return TurnObservation(
            messages=[] if ended and not messages else chat_messages(messages),
            task=str(info.get("task", "")),
            done=ended,
            reward=float(reward),
            truncated=truncated,
            outcome="" if score is None else str(score.verdict.outcome),
            why="" if score is None else score.verdict.why,
            parts={} if score is None else dict(score.parts),
        )

    def _take_step(self, said: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the environment; one that services score has no other."""
        if self._scorer is None:
            step_result: tuple[Any, float, bool, bool, dict[str, Any]] = self._env.step(said)
            return step_result
        if "index" not in self._info:
            raise UsageError(f"{self._env.id}: step before reset")
        task = self._env.task(self._info.pop("index"))
        score = self._scorer.score(task, said)
        return "", reward_value(task, score, None), True, False, {"task": task.id, "score": score}

    @property
    def state(self) -> State:
        """The task and the number of steps; nothing that a policy is not told."""
        return State(episode_id=str(self._info.get("task", "")), step_count=self._steps)

    def close(self) -> None:
        """End the episode."""
        self._env.close()


def _message(text: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def _listed(schema: Mapping[str, Any]) -> ListedTool:
    function = schema["function"]
    return ListedTool(
        name=function["name"],
        description=function["description"],
        input_schema=dict(function["parameters"]),
    )


# ------------------------------------------------------------------------------------------ to ours


def from_openenv(
    url: str,
    rows: Sequence[Mapping[str, Any]],
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
    def config(self) -> dict[str, Any]:
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
        return _WithAnswer(self, task)

    def final(self, task: Task, state: _Session) -> dict[str, Any]:
        field = task.meta.get("answer_as")
        if field and not state.done:
            state.step({field: state.answer})
        return {"reward": state.reward, "done": state.done}

    def verify(self, task: Task, episode: EpisodeRecord) -> Verdict:
        final = episode.final or {"reward": 0.0, "done": False}
        earned = float(final["reward"])
        value = min(1.0, max(0.0, earned / self.best))
        if earned >= self.best:
            return Verdict(Outcome.CORRECT, why="full-reward", answer=episode.answer)
        why = f"reward: {earned:g} of {self.best:g}" + ("" if final["done"] else ", not done")
        return Verdict(Outcome.WRONG, value=value, why=why, answer=episode.answer)


class _WithAnswer(ToolEpisode):
    """An episode whose session is told the answer when it ends."""

    def finish(self, end: str = "answer") -> None:
        if not self.end:
            self._state.answer = self.record.answer
        super().finish(end)


class _Session:
    """A session with a server: an episode of its own."""

    def __init__(self, url: str, given: Mapping[str, Any], wall_s: float) -> None:
        self.reward, self.done, self.answer = 0.0, False, ""
        self._client = GenericEnvClient(base_url=url, message_timeout_s=wall_s + 5).sync()
        self._client.connect()
        try:
            self._client.reset(**given)
            listed = self._client.step({"type": "list_tools"}).observation
            self.tools: list[dict[str, Any]] = listed["tools"]
        except BaseException:
            self.close()
            raise

    def call(self, name: str, **arguments: Any) -> str:
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

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
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


def _text(result: Any) -> str:
    """What a tool gave: a text, or what FastMCP puts around it."""
    if isinstance(result, Mapping):
        if result.get("data") is not None:
            return str(result["data"])
        if isinstance(result.get("content"), list):
            return "\n".join(str(part.get("text", "")) for part in result["content"])
    return "" if result is None else str(result)
