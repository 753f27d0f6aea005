"""Tasks of inspect_ai here, ours there, and our sandbox as its provider.  Skipped where inspect_ai is not installed."""

from __future__ import annotations

import math

import pytest

import rlvr
from rlvr.errors import UsageError

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # its own, and of the libraries below it

from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402

from rlvr.agents import AgentEnv  # noqa: E402
from rlvr.collect import Groups, Sampling, ScriptedSampler  # noqa: E402
from rlvr.collect.flight import sample_groups  # noqa: E402
from rlvr.interop import from_inspect, to_inspect  # noqa: E402
from tests.processes import ROOT  # noqa: E402

PLACE = f"{ROOT}/tests/interop/inspect_tasks.py"


def played(door, text):
    env = AgentEnv(env=door, program=door.play)
    settings = {"sampling": Sampling(max_tokens=200), "group_size": 1, "step_s": 300.0}
    scripted = ScriptedSampler([text])
    with Groups(env, scripted, scorer=rlvr.Scorer(env, workers=0), **settings) as made:
        [(_, group)] = sample_groups(made, [(0, 0)])
    return group.rollouts[0]


REFUSED = {
    "graded": "the scorer 'model_graded_qa' asks a model",
    "pictures": "sample 1: its input has other than text",
    "unscored": "has no scorer",
    "files": "runs in the sandbox 'docker'; give sandbox=\"rlvr\"",
    "NO_TASK": "no task of inspect_ai",
}


@pytest.mark.parametrize("name", REFUSED)
def test_missing_parts_are_said_as_a_task_is_loaded(name):
    with pytest.raises(UsageError, match=REFUSED[name]):
        from_inspect(f"{PLACE}:{name}")


def test_samples_are_tasks():
    door = from_inspect(f"{PLACE}:sums", args={"start": 5}, tasks=1)
    [task] = door.tasks()
    assert task.id.endswith("inspect_tasks.py:sums/train/s5")
    assert task.prompt == [{"role": "user", "content": "5 + 1?"}]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "total"), [("2", 1.0), ("3", 0.0)])
def test_its_solver_asks_our_endpoint_and_its_score_is_recorded(text, total):
    rollout = played(from_inspect(f"{PLACE}:sums"), text)
    assert rollout.score.total == total, rollout.score.verdict
    assert rollout.score.verdict.detail == {"rewards": {"match": total}}
    assert len(rollout.completion_ids) == len(text) + 1


@pytest.mark.slow
def test_its_files_and_commands_are_in_our_sandbox():
    """A scorer with several values; the sample's files are there, and a command's exit code and error are its own."""
    door = from_inspect(f"{PLACE}:files", sandbox="rlvr", score="of_file.same")
    rollout = played(door, "3")
    assert rollout.score.verdict.why == "full-reward", rollout.score.verdict
    assert rollout.score.verdict.detail["rewards"] == {"of_file.same": 1.0, "of_file.code": 6.0}
    assert played(door, "4").score.total == 0.0
    assert played(door, "crash").score.verdict.why.startswith("agent-failed")
    lost = from_inspect(f"{PLACE}:files", sandbox="rlvr", score="other")
    assert played(lost, "3").score.verdict.outcome == "unscored"


class Adds(rlvr.Environment):
    """With a tool, and a user who asks once."""

    def task(self, index):
        return rlvr.Task(f"adds/{index}", f"{index} + 1?", reference=index + 1)

    @rlvr.tool
    def add(self, state, x: int, y: int) -> str:
        """Add two numbers."""
        return str(x + y)

    def verify(self, task, episode):
        right = episode.answer == str(task.reference) and len(episode.calls) == 1
        return rlvr.Verdict("correct" if right else "wrong", why="compared")


class Broken(rlvr.Environment):
    def task(self, index):
        return rlvr.Task(f"broken/{index}", "?")

    def verify(self, task, completion):
        raise RuntimeError("cannot read")


@modelapi(name="scripted")
class Scripted(ModelAPI):
    """Gives outputs in order; inspect_ai's own mock downloads a tokenizer to count them."""

    def __init__(self, model_name, base_url=None, api_key=None, config=None, outputs=()):
        super().__init__(model_name)
        self.outputs = list(outputs)

    async def generate(self, input, tools, tool_choice, config):
        return self.outputs.pop(0)

    async def count_text_tokens(self, text):
        return len(text)

    async def count_tokens(self, input, config=None):
        return 1


def evaluated(env, outputs, tmp_path, *, played=None, **settings):
    model = get_model("scripted/model", outputs=outputs, memoize=False)
    [log] = inspect_ai.eval(
        to_inspect(env, tasks=1, **settings),
        model=model,
        display="none",
        log_dir=str(tmp_path),
        **(played or {}),
    )
    assert log.status == "success", log.error
    return log.samples[0]


def test_ours_is_a_task_with_its_tools(tmp_path):
    call = ModelOutput.for_tool_call("mockllm/model", "add", {"x": 0, "y": 1})
    answer = ModelOutput.from_content("mockllm/model", "1")
    sample = evaluated(Adds(), [call, answer], tmp_path)
    assert [message.role for message in sample.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    [score] = sample.scores.values()
    assert (score.value, score.metadata["outcome"]) == (1.0, "correct")
    assert next(iter(evaluated(Adds(), [answer], tmp_path).scores.values())).value == 0.0


def test_a_task_of_ours_that_another_solver_plays_is_scored_by_its_last_text(tmp_path):
    sums = rlvr.make("arithmetic-v1")
    output = ModelOutput.from_content("mockllm/model", sums.example(sums.task(0)))
    sample = evaluated(sums, [output], tmp_path, workers=0, played={"solver": generate()})
    assert next(iter(sample.scores.values())).value == 1.0


def test_an_episode_that_a_limit_ends_is_not_paid_for_a_stray_text(tmp_path):
    """What a model says beside its call is no answer."""
    call = ModelOutput.for_tool_call("mockllm/model", "add", {"x": 0, "y": 1}, content="1")
    sample = evaluated(Adds(), [call] * 3, tmp_path, workers=0, played={"message_limit": 4})
    [score] = sample.scores.values()
    assert sample.limit.type == "message"
    assert score.value == 0.0


class Full(Adds):
    """Opens no episode."""

    def setup(self, task):
        raise OSError("no room")


@pytest.mark.parametrize("env", [Full(), Adds()], ids=["the environment", "the model"])
def test_an_episode_that_something_of_ours_fails_is_unscored(env, tmp_path):
    """Also where inspect_ai is told to score what has failed; the model has no output to give."""
    model = get_model("scripted/model", outputs=[], memoize=False)
    [log] = inspect_ai.eval(
        to_inspect(env, tasks=1, workers=0),
        model=model,
        display="none",
        log_dir=str(tmp_path),
        fail_on_error=False,
        score_on_error=True,
    )
    [score] = log.samples[0].scores.values()
    assert math.isnan(score.value)
    assert score.explanation == "episode-failed"


def test_one_reply_of_ours_and_what_is_unscored(tmp_path):
    sums = rlvr.make("arithmetic-v1")
    text = sums.example(sums.task(0))
    outputs = [ModelOutput.from_content("mockllm/model", text)]
    [score] = evaluated(sums, outputs, tmp_path, workers=0).scores.values()
    assert score.value == 1.0
    lost = evaluated(Broken(), [ModelOutput.from_content("m", "x")], tmp_path, workers=0)
    [score] = lost.scores.values()
    assert math.isnan(score.value)
    assert score.explanation == "worker-error: RuntimeError: cannot read"
