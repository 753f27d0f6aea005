"""An environment behind OpenEnv's protocol, an application on this foundation.

    to_openenv(rlvr.make("bash-v1")).serve(port=8000)      # for any client of OpenEnv

Needs openenv-core, whose routes and WebSockets answer: who may ask, limits, errors, metrics and the
documentation are ours.  Written against openenv-core 0.3.0.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.environment import Environment, require_environment
from rlvr.errors import MissingDependency, UsageError
from rlvr.http.application import Application, HttpState, Route, standard_routes
from rlvr.http.keys import Keys
from rlvr.http.limits import HttpLimits
from rlvr.http.openapi import with_docs
from rlvr.http.request import HttpRequest
from rlvr.http.responses import Response, json_bytes
from rlvr.http.server import listen, run
from rlvr.interop.adapter import Adapter, chat_messages, reward_value
from rlvr.scoring import Scorer
from rlvr.types import JsonDict, JsonObject
from rlvr.validate import require_whole

try:
    from fastapi import FastAPI
    from fastapi.routing import APIRoute
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment as OpenEnvironment
    from openenv.core.env_server.mcp_types import CallToolObservation, ListToolsObservation
    from openenv.core.env_server.mcp_types import Tool as ListedTool
    from openenv.core.env_server.types import Action, Observation, State
    from pydantic import Field
except ImportError as error:
    raise MissingDependency(
        "openenv-core, whose environments these are,", "", "pip install openenv-core==0.3.0"
    ) from error

__all__ = ["OpenEnvServer", "TurnAction", "TurnObservation", "to_openenv"]


class TurnAction(Action):  # type: ignore[misc]  # openenv has no types
    """A turn of the policy.  With the type "call_tool" or "list_tools" it is
    OpenEnv's action of that name.

    Attributes:
        text: what the policy wrote; calls may stand in it, in <tool_call> tags.
        tool_calls: calls, in the form of OpenAI's API.
        tool_name, arguments: of "call_tool".
    """

    type: Literal["turn", "call_tool", "list_tools"] = "turn"
    text: str = ""
    tool_calls: list[dict[str, object]] = Field(default_factory=list)
    tool_name: str = ""
    arguments: JsonDict = Field(default_factory=dict)


class TurnObservation(Observation):  # type: ignore[misc]
    """What the policy is told.

    Attributes:
        messages: chat messages: the prompt after `reset`, then replies.
        schemas: of the tools, after `reset`.
        task: id of the task.
        outcome, why, parts: of the score, at the end.
        truncated: True if the episode ended by a limit.
    """

    messages: list[JsonDict] = Field(default_factory=list)
    schemas: list[dict[str, object]] = Field(default_factory=list)
    task: str = ""
    outcome: str = ""
    why: str = ""
    parts: dict[str, float] = Field(default_factory=dict)
    truncated: bool = False


def to_openenv(
    env: Environment, *, max_sessions: int = 64, scorer: str | None = None
) -> OpenEnvServer:
    """An environment for OpenEnv: `.serve(port=8000)` serves it, `.app()` is the ASGI application,
    `.environment` an environment.

    A turn of the policy is a step: `{"text": …}`, with calls in <tool_call> tags or as
    `tool_calls`.  OpenEnv's own `list_tools` and `call_tool` work too; then the last step is the
    answer, `{"text": …}`.  `reset` takes a seed, or `index` of a task.  UNSCORED is an error and
    never a reward.

    Args:
        env: an environment, of one turn or of several.
        max_sessions: most episodes at a time; OpenEnv refuses further ones.
        scorer: services that score an environment of one turn, such as `"http://10.0.0.7:8000"`, as
            `--scorer` takes them; None to score in this process.

    Raises:
        UsageError: it is none, its reward compares the completions of a group, or it has several
            turns and a scorer.
    """
    require_environment(env)
    # A group cannot be gathered from episodes of several clients.
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

    def environment(self) -> object:
        """A new environment of OpenEnv, for one episode at a time."""
        env = copy.deepcopy(self.env, {id(self.env.reward): self.env.reward})
        return _Served(env, None if self._adapter is None else self._adapter.scorer)

    def app(self) -> Application:
        """OpenEnv's protocol on our foundation (extra `serve`), an ASGI application: its limits and
        its errors; a key of the variable RLVR_API_KEY, where that is set."""
        theirs = create_fastapi_app(
            self.environment, TurnAction, TurnObservation, max_concurrent_envs=self.max_sessions
        )
        return _application_of(theirs, self.env.id)

    def serve(self, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
            host, port: where to listen.

        Raises:
            UsageError: the port is taken, or other machines can reach it and there is no key.
        """
        app = self.app()
        try:
            run(app, listen(host, port, beyond_this_machine=app.state.keys.any))
        finally:
            app.state.close()


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
        **_: object,
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

    def step(self, action: TurnAction, timeout_s: float | None = None, **_: object) -> Observation:
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

    def _take_step(self, said: Any) -> tuple[Any, float, bool, bool, JsonDict]:
        """A step of the environment; one that services score has no other."""
        if self._scorer is None:
            step_result: tuple[object, float, bool, bool, dict[str, object]] = self._env.step(said)
            return step_result
        if "index" not in self._info:
            raise UsageError(f"{self._env.id}: step before reset")
        # Taken out: a second step of the same episode is an error.
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


def _message(text: str, calls: Sequence[Mapping[str, object]]) -> JsonDict:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def _listed(schema: JsonObject) -> ListedTool:
    function = schema["function"]
    return ListedTool(
        name=function["name"],
        description=function["description"],
        input_schema=dict(function["parameters"]),
    )


def _application_of(theirs: FastAPI, name: str) -> Application:
    """An application on our foundation whose answers are OpenEnv's.

    Args:
        theirs: made by OpenEnv.
        name: of the environment.
    """
    state = HttpState(HttpLimits(), Keys(os.environ.get("RLVR_API_KEY")))
    routes = [
        _forwarding(state, theirs, route, method)
        for route in theirs.routes
        # Our own readiness stands at this path.
        if isinstance(route, APIRoute) and route.path != "/health"
        for method in sorted(route.methods or ())
    ]
    about = f"{name} by the protocol of OpenEnv; an episode is a WebSocket at /ws."
    routes += standard_routes(state)
    documented = with_docs("OpenEnv", about, routes, wants_key=state.keys.any)
    return Application(state, documented, websockets=theirs)


def _forwarding(state: HttpState, theirs: ASGIApp, route: APIRoute, method: str) -> Route:
    async def handle(request: HttpRequest) -> Response:
        state.require_accepting()
        body = b""
        if method == "POST":
            # Written anew, as the body was parsed here, within our limits.
            body = json_bytes((await state.bodies.read(request)).asked)
        return _Forwarded(theirs, body)

    reads = None if route.body_field is None else route.body_field.field_info.annotation
    summary = str(route.summary or route.name)
    return Route(method, route.path, handle, summary, reads=reads, answers=route.response_model)


class _Forwarded:
    """Another application's answer to a body that is here already."""

    def __init__(self, app: ASGIApp, body: bytes) -> None:
        self._app, self._body, self.status = app, body, 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answer."""

        async def give_body() -> dict[str, object]:
            return {"type": "http.request", "body": self._body, "more_body": False}

        async def note_status(message: Message) -> None:
            self.status = message.get("status", self.status)
            await send(message)

        # The length may differ from what came.
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        headers.append((b"content-length", b"%d" % len(self._body)))
        await self._app({**scope, "headers": headers}, give_body, note_status)
