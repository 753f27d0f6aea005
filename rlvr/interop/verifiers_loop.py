"""What of `verifiers` owns its loop, on our endpoint: harness, runtime, tool servers,
users, hooks; see `reported`.

Written against verifiers 0.4.0.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

from rlvr.errors import MissingDependency, Unscored, UsageError, brief
from rlvr.interop.reported import ReportedEnv, report
from rlvr.types import JsonDict, Task

try:
    import verifiers.v1 as vf
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.runtimes import SubprocessConfig
except ImportError as error:
    raise MissingDependency(
        "verifiers, whose environments these are,", "", "pip install verifiers==0.4.0"
    ) from error

__all__ = ["VerifiersLoopEnv"]

# The model, or what it did in the runtime, may be the cause of these, once it has said something.
_ITS_OWN = ("HarnessError", "ProviderError", "TaskError")


class VerifiersLoopEnv(ReportedEnv):
    """A taskset, or a whole environment of several agents, played by verifiers;
    made by `from_verifiers`.

    Several trainable traces of one episode count by the mean of their rewards.

    Options:
        theirs: object of a class derived from `vf.Taskset` or `vf.Env`.
        count: number of tasks; None for all of a finite one.
        harness: id of the harness that plays a taskset, such as "null", a plain chat with tools, or
            "bash".
    """

    id: ClassVar[str] = "verifiers-loop-v0"
    theirs: Any = None
    count: int | None = None
    harness: str = "null"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._env = self.theirs if isinstance(self.theirs, vf.Env) else None
        taskset = self.theirs.taskset if self._env is not None else self.theirs
        if not isinstance(taskset, vf.Taskset):
            raise UsageError(f"{brief(self.theirs)} is no taskset and no environment of verifiers")
        if self._env is not None:
            _require_here(self._env)
        kind = type(taskset).__name__
        if self.count is None and not taskset.bounded:
            raise UsageError(f"{kind} has no end: say how many, tasks=1000")
        self._tasks_by_id: JsonDict = {}
        for index, vf_task in enumerate(islice(taskset, self.count)):
            needs = _missing(vf_task, alone=self._env is None)
            if needs:
                raise UsageError(f"{kind}: its task {vf_task.data.id or index} needs {needs}")
            self._tasks_by_id[f"{kind}/{self.split}/{vf_task.data.id or index}"] = vf_task
        if not self._tasks_by_id:
            raise UsageError(f"{kind} has no tasks")

    @property
    def config(self) -> dict[str, object]:
        """Without the object, which a record cannot repeat."""
        return {name: value for name, value in super().config.items() if name != "theirs"}

    def tasks(self) -> Iterator[Task]:
        for name, vf_task in self._tasks_by_id.items():
            yield Task(name, vf_task.data.prompt_text)

    async def play(self, call: Any) -> str:
        vf_task = self._tasks_by_id.get(call.task)
        if vf_task is None:
            raise UsageError(f"there is no task {call.task!r} here")
        with _key(call.api_key) as variable:
            client = vf.EvalClientConfig(base_url=call.base_url, api_key_var=variable)
            if self._env is None:
                config = vf.AgentConfig(
                    model=call.model,
                    client=client,
                    harness={"id": self.harness},
                    runtime=SubprocessConfig(),
                )
                traces, errors = [await vf.make_agent(config).run(vf_task)], []
            else:
                context = vf.ModelContext(model=call.model, client=client)
                async with self._env.serving():
                    episode = await self._env.run_episode(vf_task, context)
                traces, errors = list(episode.traces), list(episode.errors)
        return _write_report(traces, errors)


def _write_report(traces: list[Any], errors: list[object]) -> str:
    """The report of what was played.

    Raises:
        Unscored: verifiers failed.
        RuntimeError: the policy may be why: the outcome is that of `AgentEnv.failure`.
    """
    faults = [*errors, *(fault for trace in traces if not trace.ok for fault in trace.errors)]
    if faults:
        last = faults[-1]
        has_reply = any(trace.assistant_messages for trace in traces)
        message = f"verifiers: {last.type}: {str(last.message)[:300]}"
        raise RuntimeError(message) if has_reply and last.type in _ITS_OWN else Unscored(message)
    trainable = [trace for trace in traces if getattr(trace.agent, "trainable", True)] or traces
    rewards = {
        name: None if value is None else float(value.value)
        for trace in trainable
        for name, value in trace.rewards.items()
    }
    if not trainable or not rewards or None in rewards.values():
        raise Unscored(f"verifiers gave no number for its rewards {sorted(rewards)}")
    mean = sum(float(trace.reward) for trace in trainable) / len(trainable)
    return report(mean, rewards, trainable[-1].last_reply)


def _require_here(env: Any) -> None:
    """Refuse agents on machines that cannot reach our endpoint."""
    for name, spec in agent_config_fields(env.config).items():
        place = spec.runtime.type
        if place not in ("subprocess", "docker", "apptainer"):
            raise UsageError(
                f"{type(env).__name__}: its agent {name!r} runs on {place!r}, which cannot reach "
                f"our endpoint: "
                'give {"runtime": {"type": "subprocess"}} in its configuration'
            )


def _missing(one: Any, *, alone: bool) -> str:
    """What a task needs that this machine does not have; "" for nothing."""
    if type(one).NEEDS_CONTAINER or one.data.image:
        return "a container, and this machine offers it processes alone"
    if alone and one.data.prompt is None:
        return "a user that begins: give the environment that has one, not its taskset"
    messages = [] if isinstance(one.data.prompt, str) else one.data.prompt or []
    if any(not isinstance(message.content, str) for message in messages):
        return "images; only texts are taken"
    return ""


@contextmanager
def _key(key: str) -> Iterator[str]:
    """A variable of its own for an episode's key, which verifiers hands to no program."""
    name = f"RLVR_{uuid.uuid4().hex}_API_KEY"
    os.environ[name] = key
    try:
        yield name
    finally:
        del os.environ[name]
