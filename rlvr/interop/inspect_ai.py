"""Tasks of inspect_ai as an `Environment`, and ours as a `Task` of inspect_ai.

    door = from_inspect("path/to/tasks.py:my_task")         # its solver and scorer, on our endpoint
    env = AgentEnv(env=door, program=door.play)
    inspect_ai.eval(to_inspect(rlvr.make("bash-v1"), tasks=20), model="…")

inspect_ai runs one evaluation in a process, so each episode has a process of its own.  Our sandbox
is its provider "rlvr", see `inspect_sandbox`.  Needs inspect_ai, which is no extra: pip install
inspect-ai==0.3.285.  Written against inspect_ai 0.3.285.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from rlvr.environment import Environment
from rlvr.environment.registry import object_at
from rlvr.episode import EpisodeRecord
from rlvr.errors import MissingDependency, Unscored, UsageError, brief
from rlvr.interop.adapter import (
    TASK,
    chat_messages,
    finite_tasks,
    refuse_group_reward,
    scorer_of,
    task_as_json,
    task_of,
)
from rlvr.interop.reported import ReportedEnv, report
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.types import JsonObject, Message, Task
from rlvr.workers.program import StartedProgram
from rlvr.workers.thread import DaemonThread
from rlvr.workers.threads import settle

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessage
    from inspect_ai.scorer import Target
    from inspect_ai.solver import Generate, Solver, TaskState

    _TheirScorer: TypeAlias = Callable[[TaskState, Target], Awaitable["Score"]]

try:
    import inspect_ai
    from inspect_ai._util.registry import registry_log_name
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        get_model,
    )
    from inspect_ai.scorer import Score, mean, scorer, stderr, value_to_float
    from inspect_ai.solver import solver
    from inspect_ai.tool import ToolInfo
    from inspect_ai.util import LimitExceededError
except ImportError as error:
    raise MissingDependency(
        "inspect_ai, whose tasks these are,", "", "pip install inspect-ai==0.3.285"
    ) from error

__all__ = ["InspectEnv", "from_inspect", "load_task", "result_of", "run_sample", "to_inspect"]

_RECORD: Final = "rlvr_episode"


def from_inspect(
    place: str,
    *,
    args: Mapping[str, object] | None = None,
    tasks: int | None = None,
    sandbox: str | None = None,
    score: str = "",
    best: float = 1.0,
    split: str = "train",
) -> InspectEnv:
    """A task of inspect_ai, played by its own solver and judged by its own scorers, as an
    environment for `AgentEnv`.

    Args:
        place: of a `Task` or a function that gives one: "path/to/file.py:name" or "module:name".
        args: of the function.
        tasks: number of samples; None for all.
        sandbox: in place of the task's own, "rlvr" for ours.
        score: the scorer that counts, "name" or "name.key" of one with several values; "" for the
            first.
        best: the most that a sample can earn.
        split: name of the tasks' split.

    Raises:
        MissingDependency: openai is not installed.
        UsageError: it is none, or needs what is not offered here: images, grading models, a sandbox
            that does not isolate; names it.
    """
    return InspectEnv(
        place=place,
        args=dict(args or {}),
        count=tasks,
        sandbox=sandbox,
        score_name=score,
        best=best,
        split=split,
    )


class InspectEnv(ReportedEnv):
    """A task of inspect_ai; made by `from_inspect`.

    Options:
        place, args, sandbox: see there; `count` is `tasks`, `score_name` is `score`.
    """

    id: ClassVar[str] = "inspect-v0"
    place: str
    args: Any = None
    count: int | None = None
    sandbox: str | None = None
    score_name: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("openai") is None:  # else each sample ends without a word
            raise MissingDependency("openai, by which inspect_ai asks the policy,", "endpoint")
        task = load_task(self.place, self.args or {})
        _require_offered(self.place, task, self.sandbox)
        self._prompts: dict[str, tuple[int, list[Message]]] = {}
        for index, sample in enumerate(list(task.dataset)[: self.count]):
            where = f"{self.place}: sample {sample.id or index + 1}"
            sandbox_type = sample.sandbox and sample.sandbox.type
            _require_isolated(where, sandbox_type, self.sandbox)
            name = f"{self.place}/{self.split}/{sample.id or index + 1}"
            self._prompts[name] = (index, _messages(where, sample.input))
        if not self._prompts:
            raise UsageError(f"{self.place} has no samples")

    def tasks(self) -> Iterator[Task]:
        for name, (_, prompt) in self._prompts.items():
            yield Task(name, prompt)

    async def play(self, call: Any) -> str:
        """Play a sample in a process of its own."""
        if call.task not in self._prompts:
            raise UsageError(f"there is no task {call.task!r} here")
        with tempfile.TemporaryDirectory(prefix="rlvr-inspect-") as folder:
            order = {
                "place": self.place,
                "args": self.args,
                "index": self._prompts[call.task][0],
                "sandbox": self.sandbox,
                "base_url": call.base_url,
                "api_key": call.api_key,
                "model": call.model,
                "folder": folder,
            }
            process = StartedProgram(
                [sys.executable, "-m", "rlvr.interop.inspect_run"],
                name="inspect_ai",
                owner="agent",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            ended: Future[tuple[bytes, bytes]] = Future()
            ended.set_running_or_notify_cancel()  # the thread settles it, also after a cancellation
            talk = partial(process.communicate, json.dumps(order).encode())
            DaemonThread(settle, ended, talk, name="inspect_ai", owner="agent")
            try:
                _, err = await asyncio.wrap_future(ended)
            finally:
                process.kill()
            result = Path(folder, "result.json")
            if not result.is_file():
                tail = err.decode("utf-8", "replace").strip()[-300:]
                raise Unscored(f"inspect_ai ended with exit code {process.returncode}: {tail}")
            return self._report_of(json.loads(result.read_text()))

    def _report_of(self, result: JsonObject) -> str:
        if result["error"]:
            message = f"inspect_ai: {result['error'][:300]}"
            raise RuntimeError(message) if result["said"] else Unscored(message)
        scores: dict[str, float | None] = result["scores"]
        name = self.score_name or next(iter(scores), "")
        if scores.get(name) is None:
            raise Unscored(f"inspect_ai gave no number for the score {name!r} of {sorted(scores)}")
        return report(scores[name], scores, result["answer"])


def load_task(place: str, args: Mapping[str, object]) -> inspect_ai.Task:
    """The task at a place.

    Args:
        place, args: see `from_inspect`.

    Raises:
        UsageError: there is none.
    """
    loaded = object_at(place, what="task of inspect_ai")
    task = (
        loaded(**args) if callable(loaded) and not isinstance(loaded, inspect_ai.Task) else loaded
    )
    if not isinstance(task, inspect_ai.Task):
        raise UsageError(f"{place} gave {brief(task)}, which is no task of inspect_ai")
    return task


def _require_offered(place: str, task: inspect_ai.Task, sandbox: str | None) -> None:
    if not hasattr(task.dataset, "__iter__"):
        raise UsageError(f"{place} makes samples as it runs; give a task with a dataset")
    if not task.scorer:
        raise UsageError(f"{place} has no scorer")
    for scorer in task.scorer:
        name = registry_log_name(scorer)
        if "model_graded" in name:
            raise UsageError(
                f"{place}: the scorer {name!r} asks a model, and the only one here is the policy"
            )
    if task.model_roles:
        raise UsageError(f"{place} needs models for the roles {sorted(task.model_roles)}")
    _require_isolated(place, task.sandbox and task.sandbox.type, sandbox)


def _require_isolated(where: str, own: str | None, sandbox: str | None) -> None:
    if own is not None and own != "rlvr" and sandbox is None:
        raise UsageError(f'{where} runs in the sandbox {own!r}; give sandbox="rlvr" for ours')


def _messages(where: str, given: Any) -> list[Message]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Message] = []
    for message in given:
        if not isinstance(message.content, str):
            raise UsageError(f"{where}: its input has other than text; only texts are taken")
        messages.append({"role": message.role, "content": message.content})
    return messages


# --------------------------------------------------------------------------------------------- ours


def to_inspect(
    env: Environment,
    *,
    tasks: int | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> inspect_ai.Task:
    """An environment as a task of inspect_ai: its prompts, its tools and users, and its totals as
    scores.

    UNSCORED is `Score.unscored`, which inspect_ai leaves out of its metrics.

    Args:
        env: of any number of turns.
        tasks: number of tasks; None for all of a finite split.
        workers, wall_s, memory_mib, scorer: see `to_trl`.

    Raises:
        UsageError: the reward compares the completions of a group, or a setting cannot work.
    """
    refuse_group_reward(env, "inspect_ai")
    judge = scorer_of(env, scorer=scorer, workers=workers, wall_s=wall_s, memory_mib=memory_mib)
    samples = [
        Sample(
            id=task.id,
            input=[_their_message(message) for message in chat_messages(task.prompt)],
            target=str(task.reference or ""),
            metadata={TASK: task_as_json(task)},
        )
        for task in finite_tasks(env, tasks)
    ]
    return inspect_ai.Task(
        name=env.id.replace("/", "-"),
        dataset=MemoryDataset(samples),
        solver=_player(env)(),
        scorer=_totals(env, judge)(),
    )


def _player(env: Environment) -> Callable[[], Solver]:
    @solver  # type: ignore[untyped-decorator]  # inspect_ai is not looked into
    def rlvr_episode() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.metadata[_RECORD] = None  # of an episode that the environment or the model fails
            task = task_of(env, {TASK: state.metadata[TASK]})
            episode = await asyncio.to_thread(env.open, task)
            failed = False
            try:
                tools = [ToolInfo.model_validate(schema["function"]) for schema in episode.schemas]
                replies: Any = ()
                while replies is not None:
                    state.output = await get_model().generate(state.messages, tools=tools)
                    state.messages.append(state.output.message)
                    turn = _turn(state.output.message)
                    replies = await asyncio.to_thread(episode.reply, turn)
                    state.messages += [_their_message(message) for message in replies or ()]
            except Exception as error:
                failed = not isinstance(error, LimitExceededError)
                raise
            finally:  # an episode that a limit of inspect_ai ends has a record, too
                if not failed:
                    state.metadata[_RECORD] = episode.record.as_dict()
                await asyncio.to_thread(episode.close)
            return state

        return solve

    player: Callable[[], Solver] = rlvr_episode
    return player


def _totals(env: Environment, judge: Scorer) -> Callable[[], _TheirScorer]:
    @scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
    def rlvr_total() -> _TheirScorer:
        async def score(state: TaskState, target: Target) -> Score:
            task = task_of(env, {TASK: state.metadata[TASK]})
            completion = state.output.completion
            if _RECORD in state.metadata:  # else another solver than ours has replied
                if state.metadata[_RECORD] is None:
                    return Score.unscored(reason="scoring_failed", explanation="episode-failed")
                record = EpisodeRecord.from_dict(state.metadata[_RECORD])
                completion = env.completion_of(record)
            our_score = await judge.ascore(task, completion)
            verdict = our_score.verdict
            if our_score.total is None:
                return Score.unscored(reason="scoring_failed", explanation=verdict.why)
            metadata = {"outcome": verdict.outcome.value, "parts": dict(our_score.parts)}
            answer = verdict.answer or state.output.completion
            return Score(
                value=our_score.total, answer=answer, explanation=verdict.why, metadata=metadata
            )

        return score

    totals: Callable[[], _TheirScorer] = rlvr_total
    return totals


def _turn(message: ChatMessage) -> dict[str, object]:
    """A message of inspect_ai's as OpenAI's API has it."""
    calls = [
        {"id": call.id, "function": {"name": call.function, "arguments": dict(call.arguments)}}
        for call in message.tool_calls or ()
    ]
    return {"role": "assistant", "content": message.text, "tool_calls": calls}


def _their_message(message: Mapping[str, object]) -> ChatMessage:
    content = message["content"]
    match message["role"]:
        case "system":
            return ChatMessageSystem(content=content)
        case "assistant":
            return ChatMessageAssistant(content=content)
        case "tool":
            return ChatMessageTool(
                content=content,
                tool_call_id=message["tool_call_id"],
                function=message.get("name"),
            )
    return ChatMessageUser(content=content)


def result_of(sample: EvalSample) -> dict[str, object]:
    """What a played sample came to, as `InspectEnv` reads it.

    Args:
        sample: of a log.
    """
    number = value_to_float()
    scores: dict[str, float | None] = {}
    for name, score in (sample.scores or {}).items():
        values = {"": score.value} if not isinstance(score.value, dict) else score.value
        for key, value in values.items():
            as_number = number(value) if isinstance(value, str | int | float | bool) else None
            finite = as_number is not None and abs(as_number) < float("inf")
            scores[f"{name}.{key}" if key else name] = as_number if finite else None
    has_reply = any(message.role == "assistant" for message in sample.messages)
    answer = sample.output.completion if sample.output is not None else ""
    why = sample.error.message if sample.error is not None else ""
    return {"error": why, "said": has_reply, "scores": scores, "answer": answer}


def run_sample(order: JsonObject) -> None:
    """Play a sample in this process, and write what it came to.

    Args:
        order: see `InspectEnv.play`.
    """
    task = load_task(order["place"], order["args"] or {})
    task.dataset = MemoryDataset([list(task.dataset)[order["index"]]])
    [log] = inspect_ai.eval(
        task,
        model=f"openai-api/rlvr/{order['model']}",
        model_base_url=order["base_url"],
        model_args={"api_key": order["api_key"]},
        sandbox=order["sandbox"],
        epochs=1,
        fail_on_error=False,
        max_retries=0,
        display="none",
        log_dir=order["folder"],
        log_format="json",
    )
    samples = log.samples or []
    if not samples:
        raise SystemExit(f"no sample was played: {log.error.message if log.error else log.status}")
    Path(order["folder"], "result.json").write_text(json.dumps(result_of(samples[0])))
