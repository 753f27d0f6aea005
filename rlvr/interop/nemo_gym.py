"""Rows of NeMo Gym and the resources server that judges them, as an `Environment`.

    env = from_nemo_gym("http://127.0.0.1:8000", "rows.jsonl")

Each episode is a session: `/seed_session` with the row, a POST for each call of the row's tools,
and `/verify` with the row and the policy's response.  Its number is recorded, so that `rlvr replay`
needs no server.

What the server fails at is UNSCORED: sessions that could not be reset entered GRPO as zeros in
1,172 of 1,280 rollouts of a run (NVIDIA-NeMo/Gym, pull request 2552).  Needs no package of NeMo
Gym.  Written against 0.4.0 to 0.7.0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx

from rlvr.environment import Environment
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool
from rlvr.episode import EpisodeRecord
from rlvr.errors import DataError, ServiceFailed, ToolError, Unscored, UsageError, brief
from rlvr.interop.reported import RecordedSession, verdict_of_reward
from rlvr.types import JsonDict, JsonObject, Message, Task, Verdict
from rlvr.validate import require_number

__all__ = ["NemoGymEnv", "from_nemo_gym"]

_ROLES: Final = ("system", "developer", "user", "assistant")
_TEXTS: Final = ("input_text", "output_text", "text")
_OWN_ROUTES: Final = ("verify", "seed_session", "aggregate_metrics", "close_session", "mcp")


def from_nemo_gym(
    url: str,
    rows: str | Path | Iterable[Mapping[str, object]],
    *,
    headers: Mapping[str, str] | None = None,
    best: float = 1.0,
    split: str = "train",
    **options: Any,
) -> NemoGymEnv:
    """Rows and a resources server as an environment.

    Args:
        url: of the server.
        rows: a file of JSON lines, or the rows; each has `responses_create_params`.
        headers: for every request.
        best: the most that an episode can earn.
        split: name of the tasks' split.
        options: its limits, see `EpisodeLimits`.

    Raises:
        DataError: a row asks for what is not offered here, such as images or hosted tools; names
            the row.
        ServiceFailed: the server does not seed a session.
        UsageError: the server has its tools behind MCP alone.
    """
    return NemoGymEnv(
        url=url.rstrip("/"),
        rows=tuple(_rows_of(rows)),
        headers=dict(headers or {}),
        best=best,
        split=split,
        **options,
    )


class NemoGymEnv(Environment):
    """Rows of NeMo Gym; made by `from_nemo_gym`.

    The reasons: `full-reward` is CORRECT; `reward` WRONG.  `detail` has the other numbers of the
    server's answer.

    Options:
        url, rows, headers, best: see there.
    """

    id: ClassVar[str] = "nemo-gym-v0"
    domain = "tools"
    url: str
    rows: Any = ()
    headers: Any = None
    best: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("best", self.best, above=0)
        self._loaded: dict[str, Task] = {}
        for number, row in enumerate(self.rows, 1):
            prompt, tools = _prompt(row, number), _tools(row, number)
            name = f"{self.id}/{self.split}/{row.get('id', number)}"
            if name in self._loaded:
                raise DataError(f"row {number}: another row has the id {row['id']!r} too")
            self._loaded[name] = Task(name, prompt, meta={"row": dict(row), "tools": tools})
        if not self._loaded:
            raise DataError("there are no rows")
        first = next(iter(self._loaded.values()))
        with _GymSession(self, first) as session:
            if session.by_mcp and not first.meta["tools"]:
                raise UsageError(
                    f"{self.url} has its tools behind MCP alone, and the rows name none: give rows "
                    "with responses_create_params.tools"
                )

    @property
    def config(self) -> JsonDict:
        """Without the rows, which stand in the tasks, and without the headers, which may have a
        key."""
        left = ("rows", "headers")
        return {name: value for name, value in super().config.items() if name not in left}

    def tasks(self) -> Iterator[Task]:
        yield from self._loaded.values()

    def open(self, task: Task) -> ToolEpisode:
        return RecordedSession(self, task)

    def setup(self, task: Task) -> _GymSession:
        return _GymSession(self, task)

    def tools(self, state: _GymSession) -> list[Tool]:
        return [
            Tool(
                tool["name"],
                tool.get("description") or "",
                tool.get("parameters") or {"type": "object", "properties": {}},
                partial(state.call, tool["name"]),
                checked=False,
            )
            for tool in state.task.meta["tools"]
        ]

    def final(self, task: Task, state: _GymSession) -> dict[str, object]:
        return state.verify()

    def verify(self, task: Task, episode: EpisodeRecord) -> Verdict:
        final = episode.final if isinstance(episode.final, Mapping) else {"reward": 0.0}
        earned, answer = float(final["reward"]), episode.answer
        detail = {"numbers": final.get("numbers", {})}
        return verdict_of_reward(earned, self.best, answer, detail)


class _GymSession:
    """A session with the server, which keeps it by cookies."""

    def __init__(self, env: NemoGymEnv, task: Task) -> None:
        self.task, self.record = task, EpisodeRecord(())
        self._row: JsonObject = task.meta["row"]
        self._client = httpx.Client(
            base_url=env.url, headers=env.headers or {}, timeout=env.call_seconds + 50
        )
        try:
            seeded = self._post("seed_session", self._row)
        except BaseException:
            self._client.close()
            raise
        self.by_mcp = bool(seeded.get("mcp"))

    def __enter__(self) -> _GymSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, name: str, **arguments: object) -> str:
        """Call a tool of the server."""
        reply = self._send(name, arguments)
        if 400 <= reply.status_code < 500:
            raise ToolError(f"{reply.status_code}: {reply.text[:2000]}")
        _require_success(name, reply)
        return reply.text

    def verify(self) -> dict[str, object]:
        """The server's judgement."""
        answer = self._post("verify", {**self._row, "response": self._response()})
        reward = answer.get("reward")
        if answer.get("mask_sample") or answer.get("failure_kind"):
            kind = answer.get("failure_kind") or "mask_sample"
            raise Unscored(f"NeMo Gym: {kind}: {brief(answer.get('failure_reason', ''))}")
        right = isinstance(reward, int | float) and math.isfinite(reward)
        if not right:
            raise Unscored(f"NeMo Gym's server gave the reward {brief(reward)}")
        numbers = {
            name: value
            for name, value in answer.items()
            if isinstance(value, int | float) and name != "reward"
        }
        return {"reward": float(reward or 0.0), "numbers": numbers}

    def close(self) -> None:
        """End the session, where the server knows of that."""
        with suppress(httpx.HTTPError):
            self._client.post("/close_session", json={})
        self._client.close()

    def _response(self) -> JsonDict:
        """The policy's turns as a response of OpenAI's Responses API."""
        params = self._row["responses_create_params"]
        output: list[JsonDict] = []
        for number, turn in enumerate(self.record.turns):
            if turn.text or not turn.calls:
                output.append(_message(f"msg_{number}", turn.text))
            for call in turn.calls:
                arguments = json.dumps(dict(call.arguments))
                call_item = {"type": "function_call", "call_id": call.id, "name": call.name}
                output.append({**call_item, "arguments": arguments})
                output_item = {
                    "type": "function_call_output",
                    "call_id": call.id,
                    "output": call.reply,
                }
                output.append(output_item)
            if turn.user is not None:
                output.append({"type": "message", "role": "user", "content": turn.user})
        return {
            "id": "resp_rlvr",
            "object": "response",
            "created_at": 0,
            "model": str(params.get("model") or "policy"),
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": params.get("tools") or [],
            "status": "completed",
        }

    def _post(self, route: str, body: Mapping[str, object]) -> JsonDict:
        reply = self._send(route, body)
        _require_success(route, reply)
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceFailed(f"NeMo Gym's /{route} gave {brief(reply.text)}, which is no object")
        return answer

    def _send(self, route: str, body: Mapping[str, object]) -> httpx.Response:
        try:
            return self._client.post(f"/{route}", json=dict(body))
        except httpx.HTTPError as error:
            raise ServiceFailed(
                f"NeMo Gym's server at {self._client.base_url} does not answer /{route}: "
                f"{type(error).__name__}: {error}"
            ) from error


def _require_success(route: str, reply: httpx.Response) -> None:
    if not reply.is_success:
        raise ServiceFailed(
            f"NeMo Gym's /{route} gave status {reply.status_code}: {reply.text[:300]}"
        )


def _message(name: str, text: str) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    head = {"id": name, "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": content}


# --------------------------------------------------------------------------------------------- rows


def _rows_of(rows: str | Path | Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    if not isinstance(rows, str | Path):
        yield from rows
        return
    with Path(rows).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                raise DataError(f"{rows}:{number}: it is no JSON: {error}") from None


def _params(row: object, number: int) -> JsonObject:
    params = row.get("responses_create_params") if isinstance(row, Mapping) else None
    if not isinstance(params, Mapping):
        raise DataError(f"row {number}: it has no responses_create_params")
    return params


def _prompt(row: object, number: int) -> list[Message]:
    params = _params(row, number)
    items = params.get("input")
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if not isinstance(items, list) or not items:
        raise DataError(f"row {number}: its input is {brief(items)}; it must be a text or messages")
    instructions = params.get("instructions")
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        if kind != "message" or item.get("role") not in _ROLES:
            raise DataError(f"row {number}: its input has {brief(item)}; only messages are taken")
        role = "system" if item["role"] == "developer" else item["role"]
        messages.append({"role": role, "content": _content(item.get("content"), number)})
    return messages


def _content(content: object, number: int) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else [None]:
        if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
            raise DataError(f"row {number}: its input has {brief(part)}; only texts are taken")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


def _tools(row: object, number: int) -> list[JsonDict]:
    tools = _params(row, number).get("tools") or []
    names: set[str] = set()
    for tool in tools:
        kind, name = tool.get("type"), tool.get("name")
        if kind != "function" or not isinstance(name, str):
            raise DataError(
                f"row {number}: the tool {brief(tool)} is no function; only those are taken"
            )
        if name in names or name in _OWN_ROUTES:
            raise DataError(f"row {number}: the name of the tool {name!r} is taken")
        names.add(name)
    return [dict(tool) for tool in tools]
