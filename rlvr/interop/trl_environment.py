"""TRL's `environment_factory`: an environment with tools for `GRPOTrainer`, which runs
the loop of calls itself.

    tools = to_trl_environment(rlvr.make("bash-v1"), tasks=1000) trainer = GRPOTrainer(model,
    environment_factory=tools.environment_factory, reward_funcs=tools.reward_funcs,
                          train_dataset=tools.dataset,
                          args=GRPOConfig(max_tool_calling_iterations=7, …))

TRL makes one instance for each rollout, calls `reset(**row)`, shows the instance's methods to the
model, and makes the calls that it reads.  The score needs the final answer too, which `get_reward`
is not given, so it comes from a reward function, to which TRL gives both.  UNSCORED is None, which
TRL from 1.6 on leaves out of the group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from rlvr.data.rows import as_dataset
from rlvr.environment import Environment
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool
from rlvr.episode import PolicyTurn
from rlvr.errors import Unscored, UsageError
from rlvr.interop.adapter import TASK, chat_messages, finite_tasks, task_as_json, task_of
from rlvr.types import JsonObject, Outcome, Score, Task, Verdict

__all__ = ["TRLTools", "to_trl_environment"]

_TYPES: Final = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def to_trl_environment(env: Environment, *, tasks: int | None = None) -> TRLTools:
    """An environment with tools for TRL: `.environment_factory`, `.reward_funcs` and `.dataset`.

    Its tools must be those of every task, and there can be no simulated user: TRL ends a rollout
    with the first turn without a call.  The limit on turns is TRL's `max_tool_calling_iterations`;
    that on calls is the environment's.

    Args:
        env: an environment with tools.
        tasks: number of tasks in the data set; None for all of a finite split.

    Raises:
        UsageError: it is no environment with tools, simulates a user, or compares the completions
            of a group.
    """
    return TRLTools(env, tasks)


class TRLTools:
    """What `to_trl_environment` gives.

    Args:
        env, tasks: see there.

    Attributes:
        dataset: the columns `prompt`, chat messages, and `rlvr_task`.
        reward_funcs: the score's total, for `GRPOTrainer`.
    """

    def __init__(self, env: Environment, tasks: int | None) -> None:
        first = next(iter(finite_tasks(env, 1)))
        with env.open(first) as episode:
            self._tools = dict(episode.tools)
        if not self._tools:
            raise UsageError(
                f"{env.id} has no tools: TRL's environments are tools; use to_trl for single turns"
            )
        if type(env).user is not Environment.user:
            raise UsageError(
                f"{env.id} simulates a user, and TRL ends a rollout with the first turn without a "
                f"call"
            )
        if env.reward.group_level:
            raise UsageError(
                f"the reward {env.reward} compares completions of a group, and these are scored "
                f"alone"
            )
        self.env = env
        methods = {name: _method(tool) for name, tool in self._tools.items()}
        self._class = type(type(env).__name__, (_TRLEnvironment,), methods)
        self.dataset = as_dataset(
            {"prompt": chat_messages(task.prompt), TASK: task_as_json(task)}
            for task in finite_tasks(env, tasks)
        )
        self.reward_funcs = [partial(_rewards, env)]
        self.reward_funcs[0].__name__ = env.id  # type: ignore[attr-defined]  # TRL logs it

    def environment_factory(self) -> _TRLEnvironment:
        """A new instance, as TRL asks for them."""
        environment: _TRLEnvironment = self._class(self.env, frozenset(self._tools))
        return environment


class _TRLEnvironment:
    """One rollout at a time.  TRL takes each method without a leading underscore,
    but `reset`, for a tool."""

    def __init__(self, env: Environment, names: frozenset[str]) -> None:
        self._env, self._names = env, names
        self._running: ToolEpisode | None = None
        self._task: Task | None = None
        self._lost: Unscored | None = None

    def reset(self, **row: object) -> None:
        """Begin the episode of a row's task."""
        self._close()
        self._task, self._lost = task_of(self._env, row), None
        try:
            self._running = running = cast("ToolEpisode", self._env.open(self._task))
        except Unscored as error:
            self._lost = error
            return
        if frozenset(running.tools) != self._names:
            raise UsageError(
                f"{self._env.id}: task {self._task.id!r} has the tools {sorted(running.tools)} and "
                f"others have "
                f"{sorted(self._names)}; TRL shows all tasks the same"
            )

    def _call(self, name: str, arguments: Mapping[str, object]) -> str:
        if self._running is None or self._lost is not None:
            return "error: the environment failed"
        try:
            return self._running.call(name, arguments).reply
        except Unscored as error:  # not the model's doing: the rollout has no reward
            self._lost = error
            return "error: the environment failed"

    def _score(self, answer: str) -> Score:
        """End the episode with the policy's last words."""
        assert self._task is not None
        running, lost = self._running, self._lost
        try:
            if running is not None and lost is None:
                running.reply(PolicyTurn(answer))
                length = 0 if self._env.reward.needs_length else None
                return self._env.score(self._task, running.completion(length))
        except Unscored as error:
            lost = error
        finally:
            self._close()
        why = "reset has not begun an episode" if lost is None else f"{lost.reason}: {lost}"
        return Score(None, {}, Verdict(Outcome.UNSCORED, why=why))

    def _close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def __del__(self) -> None:
        self._close()


def _rewards(
    env: Environment, completions: Sequence[object], environments: Sequence[Any], **_: object
) -> list[float | None]:
    """TRL's reward function: the totals of a batch, None for UNSCORED."""
    return [
        environment._score(_answer(completion)).total
        for completion, environment in zip(completions, environments, strict=True)
    ]


def _answer(completion: Any) -> str:
    """The last turn of the policy, if it made no call; "" if it did, as where its calls ran out."""
    if isinstance(completion, str):
        return completion
    last = completion[-1] if completion else {}
    return (
        str(last.get("content") or "")
        if last.get("role") == "assistant" and not last.get("tool_calls")
        else ""
    )


def _method(tool: Tool) -> Callable[..., str]:
    """A tool as a method whose signature and docstring give its schema again."""

    if (
        tool.name in ("reset", "get_reward")
        or tool.name.startswith("_")
        or not tool.name.isidentifier()
    ):
        raise UsageError(
            f"a tool is named {tool.name!r}, which TRL does not take for one; rename it"
        )

    def method(self: _TRLEnvironment, /, **arguments: object) -> str:
        return self._call(tool.name, arguments)  # which says what is wrong with them

    properties: JsonObject = tool.parameters.get("properties", {})
    required = set(tool.parameters.get("required", ()))
    types = {name: _type_of(schema) for name, schema in properties.items()}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name in sorted(properties, key=lambda name: name not in required):
        default = inspect.Parameter.empty if name in required else properties[name].get("default")
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=types[name]))
    lines = [
        f"    {name}: {' '.join(str(schema.get('description') or name).split())}"
        for name, schema in properties.items()
    ]
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join(
        [tool.description or tool.name, "", *(["Args:", *lines] if lines else [])]
    )
    method.__annotations__ = {**types, "return": str}
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method


def _type_of(schema: Mapping[str, object]) -> object:
    """The Python type of a schema, as far as transformers reads types; anything else is `Any`."""
    kind = schema.get("type")
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any
