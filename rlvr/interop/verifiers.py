"""Environments of Prime Intellect's `verifiers`: a taskset, its tools and its rewards as an
`Environment`; and ours as a taskset.

    # theirs, as ours
    env = from_verifiers(MyTaskset(MyConfig()))
    # ours, for prime-rl and others
    taskset = to_verifiers(rlvr.make("gsm8k-v4"), scorer="http://10.0.0.7:8000")

The tasks' prompts, the `@vf.tool` methods of their toolsets, called in this process, and their
`@vf.reward` methods over the trace.  Harnesses and runtimes are not used: rlvr's own loop plays the
episode.  Needs verifiers, which brings much else and is no extra: pip install verifiers==0.4.0.
Written against verifiers 0.4.0 (its `v1`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from rlvr.environment import Environment
from rlvr.environment.tools import Tool, schema_of
from rlvr.episode import EpisodeRecord
from rlvr.errors import MissingDependency, ToolError, Unscored, UsageError, brief
from rlvr.interop.adapter import (
    TASK,
    Adapter,
    chat_messages,
    completion_with_length,
    finite_tasks,
    refuse_group_reward,
    reward_value,
    task_as_json,
    task_of,
)
from rlvr.interop.reported import verdict_of_reward
from rlvr.interop.verifiers_loop import VerifiersLoopEnv
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.types import JsonDict, JsonObject, Outcome, Prompt, Task, Verdict
from rlvr.validate import require_number, require_one_of, require_optional_whole
from rlvr.workers.thread import DaemonThread
from rlvr.workers.threads import settle

try:
    import verifiers.v1 as vf
    from verifiers.v1.mcp.server import _call_state
    from verifiers.v1.state import state_cls
    from verifiers.v1.types import (
        AssistantMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from verifiers.v1.utils.decorators import discover_decorated
except ImportError as error:
    raise MissingDependency(
        "verifiers, whose environments these are,", "", "pip install verifiers==0.4.0"
    ) from error

__all__ = ["VerifiersEnv", "from_verifiers", "to_verifiers"]


def to_verifiers(
    env: Environment,
    *,
    tasks: int | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> vf.Taskset:
    """An environment as a taskset of `verifiers`: each task has the reward `total`.

    UNSCORED, and services that are not there, are errors of the trace, whose reward then is None
    and never 0.

    Args:
        env: a single-turn environment whose reward does not compare the completions of a group.
        tasks: number of tasks; None for all of a finite split.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.
        scorer: services that score instead of workers here, such as `"http://10.0.0.7:8000"`,
            as `--scorer` takes them.

    Raises:
        UsageError: `env` is no such environment, or a setting cannot work.
    """
    refuse_group_reward(env, "verifiers")
    adapter = Adapter(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib, scorer=scorer)
    taskset = _OurTaskset(vf.TasksetConfig())
    taskset.ours = [_our_task(adapter, task) for task in finite_tasks(env, tasks)]
    return taskset


class _OurData(vf.TaskData):  # type: ignore[misc]  # verifiers has no types for mypy here
    rlvr_task: str


class _OurTask(vf.Task[_OurData]):  # type: ignore[misc]
    adapter: Any = None

    @vf.reward  # type: ignore[untyped-decorator]
    async def total(self, trace: vf.Trace) -> float:
        """Of the policy's last words."""
        task = task_of(self.adapter.env, {TASK: self.data.rlvr_task})
        completion = completion_with_length(self.adapter.env, trace.last_reply, None)
        return reward_value(task, await self.adapter.scorer.ascore(task, completion), None)


class _OurTaskset(vf.Taskset[_OurTask]):  # type: ignore[misc]
    ours: Any = ()

    def load(self) -> list[_OurTask]:
        tasks: list[_OurTask] = self.ours
        return tasks


def _our_task(adapter: Adapter, task: Task) -> _OurTask:
    data = _OurData(prompt=chat_messages(task.prompt), rlvr_task=task_as_json(task), id=task.id)
    peer_task = _OurTask(data)
    peer_task.adapter = adapter
    return peer_task


def from_verifiers(
    taskset: vf.Taskset,
    *,
    tasks: int | None = None,
    best: float = 1.0,
    failure: str = "wrong",
    split: str = "train",
    loop: str = "ours",
    harness: str = "null",
    **options: Any,
) -> object:
    """A taskset of `verifiers` as an `Environment`.

    What is scored by its trace alone is played here.  What has hooks, a runtime, tool servers,
    users or several agents owns its loop: with `loop="theirs"` verifiers plays it on our endpoint,
    and its reward is recorded:

        door = from_verifiers(taskset, loop="theirs")
        env = AgentEnv(env=door, program=door.play)

    An episode has toolsets of its own, also where the taskset would share them.  The verdict is
    about the weighted sum of the task's rewards over the recorded messages: `best` or more is
    CORRECT, and the value is its share of `best`.

    Args:
        taskset: an object of a class derived from `vf.Taskset`; with `loop="theirs"` also of
            `vf.Env`.
        tasks: number of its tasks; None for all of a finite one.
        best: the most that an episode can earn.
        failure: the outcome where a reward method raises, which the policy's words may have caused:
            "wrong", or "unscored", which says that they never do.
        split: name of the tasks' split.
        loop: "ours" or "theirs".
        harness: that plays with `loop="theirs"`, such as "null", a chat with tools, or "bash".
        options: its limits: `turns`, `calls`, `call_seconds`, `episode_seconds`, `reply_chars`.

    Raises:
        UsageError: it is no taskset, has no end and `tasks` is None, or needs a runtime or a
            harness of verifiers.
    """
    require_one_of("loop", loop, ("ours", "theirs"))
    if loop == "theirs":
        return VerifiersLoopEnv(
            theirs=taskset, count=tasks, best=best, harness=harness, split=split, **options
        )
    return VerifiersEnv(
        taskset=taskset, count=tasks, best=best, failure=failure, split=split, **options
    )


class VerifiersEnv(Environment):
    """A taskset of `verifiers`; made by `from_verifiers`.

    The reasons: `full-reward` is CORRECT; `reward` and `crash` (of a reward method) WRONG.
    `detail` has the rewards by name.

    Options:
        taskset, count, best, failure: see there; `count` is `tasks`.
    """

    id: ClassVar[str] = "verifiers-v0"
    domain = "tools"
    taskset: Any = None
    count: int | None = None
    best: float = 1.0
    failure: str = "wrong"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("best", self.best, above=0)
        require_one_of("failure", self.failure, ("wrong", "unscored"))
        require_optional_whole("tasks", self.count, 1, none="all")
        if not isinstance(self.taskset, vf.Taskset):
            raise UsageError(
                f"{brief(self.taskset)} is no taskset; give an object of a class derived from "
                f"vf.Taskset"
            )
        if self.count is None and not self.taskset.bounded:
            raise UsageError(f"{type(self.taskset).__name__} has no end: say how many, tasks=1000")
        self._theirs: JsonDict = {}
        for index, peer_task in enumerate(islice(self.taskset, self.count)):
            _require_plain(self.taskset, peer_task)
            _prompt(peer_task.data)  # which refuses images
            self._theirs[
                f"{type(self.taskset).__name__}/{self.split}/{peer_task.data.id or index}"
            ] = peer_task
        if not self._theirs:
            raise UsageError(f"{type(self.taskset).__name__} has no tasks")

    @property
    def config(self) -> JsonDict:
        """Without the taskset, which a record cannot repeat."""
        return {name: value for name, value in super().config.items() if name != "taskset"}

    def tasks(self) -> Iterator[Task]:
        for name, peer_task in self._theirs.items():
            yield Task(name, _prompt(peer_task.data))

    def setup(self, task: Task) -> _Toolsets:
        return _Toolsets(self.taskset, self._theirs[task.id])

    def tools(self, state: _Toolsets) -> list[Tool]:
        return state.tools

    def final(self, task: Task, state: _Toolsets) -> object:
        return json.loads(state.shared.model_dump_json())

    def verify(self, task: Task, episode: EpisodeRecord) -> Verdict:
        peer_task = self._theirs.get(task.id)
        if peer_task is None:
            raise UsageError(
                f"this taskset has no task {task.id!r}; replay a record with the taskset that made "
                f"it"
            )
        trace = _trace(peer_task, task, episode)
        try:
            _run(partial(peer_task.score, trace))
        except Exception as error:
            cause = error.__cause__ or error
            if self.failure == "unscored":
                raise Unscored(
                    f"a reward of {type(peer_task).__name__} raised {type(cause).__name__}: {cause}"
                ) from error
            return Verdict(
                Outcome.WRONG,
                why=f"crash: {type(cause).__name__}: {cause}"[:300],
                answer=episode.answer,
            )
        rewards = {
            name: None if reward is None else reward.value for name, reward in trace.rewards.items()
        }
        if not rewards or None in rewards.values():
            raise Unscored(
                f"{type(peer_task).__name__} gave no number for its rewards {sorted(rewards)}"
            )
        earned = float(trace.reward)
        if not abs(earned) < float("inf"):
            return Verdict(
                Outcome.WRONG, why=f"crash: the reward is {earned}", answer=episode.answer
            )
        return verdict_of_reward(earned, self.best, episode.answer, {"rewards": rewards})


class _Toolsets:
    """The toolsets of an episode, in this process, and the state that they share.

    Args:
        taskset: whose tools every task has.
        one: the task.
    """

    def __init__(self, taskset: vf.Taskset, one: vf.Task) -> None:
        toolsets = [*type(taskset).toolsets(taskset.config), *type(one).toolsets(one.config)]
        self.shared = next(
            (
                state_cls(type(server))()
                for server in toolsets
                if state_cls(type(server)) is not vf.State
            ),
            vf.State(),
        )
        self._made = toolsets
        self.tools: list[Tool] = []
        for toolset in toolsets:
            _run(toolset.setup)
            if toolset in toolsets[len(type(taskset).toolsets(taskset.config)) :]:
                _run(partial(toolset.setup_task, one.data))
            for function in discover_decorated(toolset, "tool"):
                name = getattr(function, "tool_name", None) or function.__name__
                prefix = f"{toolset.server_name}_" if toolset.server_name else ""
                schema = schema_of(function, name=prefix + name)
                self.tools.append(
                    Tool(
                        schema.name,
                        schema.description,
                        schema.parameters,
                        partial(self._call_tool, function),
                    )
                )

    def _call_tool(self, function: Callable[..., object], **arguments: object) -> str:
        """Call a tool.  What it raises is told to the model, as verifiers' servers do."""

        async def call() -> Any:
            _call_state.set(self.shared)
            value = function(**arguments)
            return await value if inspect.isawaitable(value) else value

        try:
            result = _run(call)
        except Exception as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error
        return result if isinstance(result, str) else json.dumps(result, default=str)

    def close(self) -> None:
        """Close what the toolsets opened."""
        for toolset in self._made:
            _run(toolset._exit_stack.aclose)


def _require_plain(taskset: vf.Taskset, one: vf.Task) -> None:
    """Refuse a task that needs what only verifiers' own loop has."""
    kind = type(one)
    needs = [
        name for name in ("setup", "finalize") if getattr(kind, name) is not getattr(vf.Task, name)
    ]
    if kind.NEEDS_CONTAINER:
        needs.append("a container")
    hooks = [*one.hooks("metric"), *one.hooks("reward")]
    required = [hook.__name__ for hook in hooks if _requires_runtime(hook)]
    if one.hooks("stop"):
        needs.append("@vf.stop")
    toolsets = [*type(taskset).toolsets(taskset.config), *kind.toolsets(one.config)]
    needs += [f"tools at {url}" for toolset in toolsets if (url := toolset.config.url)]
    if needs or required or one.data.prompt is None:
        what = (
            ", ".join([*needs, *(f"{name}(runtime)" for name in required)]) or "a user that begins"
        )
        raise UsageError(
            f"{kind.__name__} needs {what}, which only verifiers' own harness and runtime have: "
            "give "
            'loop="theirs" and let AgentEnv play it'
        )


def _requires_runtime(hook: Callable[..., object]) -> bool:
    parameter = inspect.signature(hook).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _prompt(data: vf.TaskData) -> Prompt:
    messages = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*messages, {"role": "user", "content": data.prompt}] if messages else data.prompt
    return [
        *messages,
        *({"role": message.role, "content": _text(message.content)} for message in data.prompt),
    ]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    raise UsageError(f"a prompt has the content {brief(content)}; only texts are taken, no images")


def _trace(one: vf.Task, task: Task, episode: EpisodeRecord) -> vf.Trace:
    """The trace that verifiers' rewards read, of a recorded episode."""
    trace = vf.Trace(
        task=vf.TraceTask(type=type(one).__name__, data=one.data, key=one.key, hash=one.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        is_completed=True,
        ok=True,
        stop_condition=None if episode.end == "answer" else "max_turns",
    )
    begun = (
        [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else task.prompt
    )
    for number, (message, sampled) in enumerate(
        [*((m, False) for m in begun), *_list_messages(episode)]
    ):
        trace.nodes.append(
            vf.MessageNode(
                parent=number - 1 if number else None, message=_theirs(message), sampled=sampled
            )
        )
    kinds = [state_cls(type(toolset)) for toolset in type(one).toolsets(one.config)]
    kind = next((state_kind for state_kind in kinds if state_kind is not vf.State), vf.State)
    trace.state = kind.model_validate(episode.final or {})
    return trace


def _list_messages(episode: EpisodeRecord) -> list[tuple[Mapping[str, object], bool]]:
    return [(message, message["role"] == "assistant") for message in episode.messages]


def _theirs(message: JsonObject) -> object:
    match message["role"]:
        case "system":
            return SystemMessage(content=message["content"])
        case "assistant":
            calls = [
                ToolCall(
                    id=call["id"],
                    name=call["function"]["name"],
                    arguments=json.dumps(call["function"]["arguments"]),
                )
                for call in message.get("tool_calls", ())
            ]
            return AssistantMessage(content=message["content"], tool_calls=calls or None)
        case "tool":
            return ToolMessage(
                tool_call_id=message["tool_call_id"],
                content=message["content"],
                name=message.get("name"),
            )
    return UserMessage(content=message["content"])


def _run(function: Callable[[], Any]) -> Any:
    """The result of an async function, from any thread, also one whose event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(function())
    done: Future[object] = Future()

    DaemonThread(
        settle,
        done,
        lambda: asyncio.run(function()),
        name="verifiers",
        owner="interop",
        kind="loop",
    )
    return done.result()
