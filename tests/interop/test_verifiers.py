"""Tasksets of Prime Intellect's verifiers as environments here.  Skipped where verifiers is not installed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import rlvr
from rlvr.errors import UsageError
from tests.environments import call

pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # its own, and of the libraries below it

import verifiers.v1 as vf  # noqa: E402

from rlvr.interop import from_verifiers  # noqa: E402


class Counted(vf.State):
    made: int = 0


class SumData(vf.TaskData):
    answer: int = 0


class Adding(vf.Toolset[vf.ToolsetConfig, Counted]):
    """As an author of verifiers writes it."""

    TOOL_PREFIX = None

    @vf.tool
    async def add(self, x: int, y: int = 0) -> int:
        """Add two numbers."""
        if x < 0:
            raise ValueError("only numbers from 0")
        self.state.made += 1
        return x + y


class SumTask(vf.Task[SumData, Counted]):
    @classmethod
    def toolsets(cls, config):
        return [Adding(vf.ToolsetConfig())]

    @vf.reward(weight=0.75)
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        if trace.last_reply == "crash":
            raise RuntimeError("cannot read")
        return float(trace.last_reply == str(task.answer))

    @vf.reward(weight=0.25)
    async def called(self, trace: vf.Trace) -> float:
        return float(trace.state.made == 1 and len(trace.tool_messages) == 1)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> Iterable[SumTask]:
        for i in range(3):
            yield SumTask(
                SumData(prompt=f"Add {i} and 1.", answer=i + 1, system_prompt="Be short.")
            )


@pytest.fixture
def env():
    return from_verifiers(Sums(vf.TasksetConfig()))


@pytest.mark.parametrize(
    ("turns", "total", "why"),
    [
        ([call("add", x=1, y=1), "2"], 1.0, "full-reward"),
        (["2"], 0.75, "reward"),
        ([call("add", x=1, y=1), "3"], 0.25, "reward"),
        (["3"], 0.0, "reward"),
        ([call("add", x=-1), call("add", x="1"), "2"], 0.75, "reward"),
        (["crash"], 0.0, "crash"),
    ],
)
def test_its_rewards_are_the_totals(env, turns, total, why):
    """Its tools, its state, its weights; faults of the model are replies, and a replay needs no tool."""
    task = env.task(1)
    assert task.prompt[0] == {"role": "system", "content": "Be short."}
    with env.open(task) as running:
        for turn in turns:
            running.reply(turn)
    score = env.score(task, env.completion_of(running.record))
    assert (score.verdict.value, score.verdict.why.partition(":")[0]) == (total, why)
    assert all(one.error for one in running.record.calls if one.arguments.get("x") != 1)
    again = rlvr.EpisodeRecord.from_dict(running.record.as_dict())
    assert env.score(task, env.completion_of(again)) == score


def test_episodes_share_no_state(env):
    """Each has toolsets of its own."""
    with env.open(env.task(0)) as one, env.open(env.task(0)) as two:
        one.reply(call("add", x=1))
        for running in (one, two):
            running.reply("1")
    assert [running.record.final["made"] for running in (one, two)] == [1, 0]


def test_what_needs_its_own_loop_is_refused():
    """Rewards over a runtime, hooks, a user that begins, and what is no taskset: one error, that says what."""

    class InABox(SumTask):
        @vf.reward
        async def files(self, runtime: vf.Runtime) -> float:
            return 1.0

    class Boxed(Sums):
        def load(self):
            yield InABox(SumData(prompt="?"))

    with pytest.raises(UsageError, match=r"needs files\(runtime\)"):
        from_verifiers(Boxed(vf.TasksetConfig()))
    with pytest.raises(UsageError, match="no taskset"):
        from_verifiers("math")
    with pytest.raises(UsageError, match="best"):
        from_verifiers(Sums(vf.TasksetConfig()), best=0)


# ------------------------------------------------------------------------------- what owns its loop


class FileTask(vf.Task[SumData]):
    """Needs verifiers' own runtime: it writes a file before, and reads it after."""

    async def setup(self, trace, runtime) -> None:
        await runtime.write("answer.txt", str(self.data.answer).encode())

    @vf.reward
    async def same(self, trace: vf.Trace, runtime) -> float:
        if trace.last_reply == "crash":
            raise RuntimeError("cannot read")
        return float((await runtime.read("answer.txt")).decode() == trace.last_reply)


class Files(vf.Taskset[FileTask, vf.TasksetConfig]):
    def load(self) -> Iterable[FileTask]:
        return [FileTask(SumData(prompt="Say 3.", answer=3))]


class Pictures(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self) -> Iterable[vf.Task]:
        return [vf.Task(vf.TaskData(prompt="Look.", image="ubuntu"))]


class Remote(vf.Taskset[vf.Task, vf.TasksetConfig]):
    @classmethod
    def toolsets(cls, config):
        return [vf.Toolset(vf.ToolsetConfig(url="https://tools.example/mcp"))]

    def load(self) -> Iterable[vf.Task]:
        return [vf.Task(vf.TaskData(prompt="Ask the server."))]


class Seen(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self) -> Iterable[vf.Task]:
        picture = vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url="data:,x"))
        return [vf.Task(vf.TaskData(prompt=[vf.UserMessage(content=[picture])]))]


def test_tools_of_other_machines_and_images_are_refused_as_tasks_are_loaded():
    """Played without its tools, a task would be wrong for ever, and say nothing of why."""
    with pytest.raises(UsageError, match=r"tools at https://tools\.example/mcp"):
        from_verifiers(Remote(vf.TasksetConfig()))
    for loop in ("ours", "theirs"):
        with pytest.raises(UsageError, match="only texts are taken"):
            from_verifiers(Seen(vf.TasksetConfig()), loop=loop)


def test_what_owns_its_loop_names_the_other_door_and_what_it_lacks():
    """Hooks are refused here by name; a container is refused there as well, as the tasks are loaded."""
    with pytest.raises(UsageError, match=r'setup.*same.runtime.*loop="theirs"'):
        from_verifiers(Files(vf.TasksetConfig()))
    door = from_verifiers(Files(vf.TasksetConfig()), loop="theirs")
    assert [task.prompt for task in door.tasks()] == ["Say 3."]
    with pytest.raises(UsageError, match="needs a container"):
        from_verifiers(Pictures(vf.TasksetConfig()), loop="theirs")
    with pytest.raises(UsageError, match="it must be one of 'ours', 'theirs'"):
        from_verifiers(Files(vf.TasksetConfig()), loop="other")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "outcome", "why"),
    [("3", "correct", "full-reward"), ("4", "wrong", "reward"), ("crash", "wrong", "agent-failed")],
)
def test_their_loop_runs_on_our_endpoint_and_its_reward_is_recorded(text, outcome, why):
    agents = pytest.importorskip("rlvr.agents")
    collect = pytest.importorskip("rlvr.collect")
    from rlvr.collect.flight import sample_groups

    door = from_verifiers(Files(vf.TasksetConfig()), loop="theirs")
    env = agents.AgentEnv(env=door, program=door.play)
    settings = {"sampling": collect.Sampling(max_tokens=200), "group_size": 1, "step_s": 300.0}
    scripted = collect.ScriptedSampler([text])
    with collect.Groups(env, scripted, scorer=rlvr.Scorer(env, workers=0), **settings) as made:
        [(_, group)] = sample_groups(made, [(0, 0)])
    [rollout] = group.rollouts
    assert rollout.score.verdict.outcome == outcome, rollout.score.verdict
    assert rollout.score.verdict.why.startswith(why)
    assert len(rollout.completion_ids) == len(text) + 1
