"""Agents as episodes: programs of three kinds, their scores, and what they do wrong."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import mcp
import openai
import pytest
from mcp.client.streamable_http import streamable_http_client

import rlvr
from rlvr.agents import AgentEnv, AgentEpisode, Command, SandboxAgent
from rlvr.collect import Groups, Sampling, ScriptedSampler
from rlvr.collect.flight import sample_groups
from rlvr.errors import UsageError
from rlvr.sandbox import Limits, Sandbox


class Sums(rlvr.Environment):
    """Right is the number of the task."""

    def task(self, index):
        return rlvr.Task(f"sums/{index}", f"say {index}", reference=str(index))

    def verify(self, task, completion):
        right = completion.strip() == task.reference
        return rlvr.Verdict(rlvr.Outcome.CORRECT if right else rlvr.Outcome.WRONG, why="compared")


def says(context, number, seed):
    """What the last message asks to say."""
    return context.rpartition("say ")[2].partition("\n")[0]


def groups(program, *, env=None, sampler=None, tasks=1, group_size=2, **settings):
    """The groups of the first tasks."""
    options = {
        name: settings.pop(name) for name in ("failure", "request_tokens") if name in settings
    }
    env = AgentEnv(env=env or Sums(), program=program, **options)
    settings = {"sampling": Sampling(max_tokens=100), "group_size": group_size} | settings
    settings["scorer"] = rlvr.Scorer(env, workers=0)
    with Groups(env, sampler or ScriptedSampler(says), **settings) as made:
        return [
            group
            for _, group in sorted(
                sample_groups(made, [(i, i) for i in range(tasks)]), key=lambda one: one[0]
            )
        ]


def client(call):
    return openai.OpenAI(base_url=call.base_url, api_key=call.api_key, max_retries=0)


def ask(made, messages):
    return made.chat.completions.create(model="m", messages=messages).choices[0].message


def twice(call):
    """Asks twice; the last completion is the answer."""
    with client(call) as made:
        messages = [{"role": "user", "content": call.prompt}]
        messages += [ask(made, messages), {"role": "user", "content": call.prompt}]
        ask(made, messages)


def test_a_function_is_an_agent_and_the_last_completion_its_answer():
    found = groups(twice, tasks=3)
    assert [group.task.id for group in found] == ["sums/0", "sums/1", "sums/2"]
    for group in found:
        for rollout in group.rollouts:
            assert (rollout.score.total, len(rollout.turns), rollout.branches) == (1.0, 2, ())


def test_an_agent_may_give_another_answer_than_the_last_completion():
    def wrong(call):
        twice(call)
        return "no number"

    [group] = groups(wrong)
    assert {rollout.score.verdict.outcome for rollout in group.rollouts} == {rlvr.Outcome.WRONG}


SCRIPT = """
import json, os, sys, urllib.request
prompt = sys.stdin.read()
body = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
open("answer.txt", "w").write(said)
print(said, sorted(os.listdir()), "SECRET" in os.environ)
"""


def test_a_command_is_an_agent_scored_by_what_it_leaves(monkeypatch):
    """A file of its folder, its output, or a function of the folder; it sees no variable of this process."""
    monkeypatch.setenv("SECRET", "x")
    argv = [sys.executable, "-S", "-c", SCRIPT]
    for answer in ("answer.txt", "last", lambda folder: (folder / "answer.txt").read_text()):
        [group] = groups(Command(argv=argv, answer=answer), group_size=1)
        assert group.rollouts[0].score.verdict.correct, group.rollouts[0].score
    said = []
    groups(
        lambda call: said.append(Command(argv=argv, answer="stdout", files={"given": "x"})(call)),
        group_size=1,
    )
    assert said == ["0 ['answer.txt', 'given'] False\n"]


@pytest.mark.parametrize(
    ("code", "answer", "why"),
    [
        ("import sys; sys.exit('bad luck')", "last", "bad luck"),
        ("pass", "answer.txt", "no file"),
        ("import os; os.symlink('/etc/passwd', 'answer.txt')", "answer.txt", "no file"),
        ("import os; os.mkfifo('answer.txt')", "answer.txt", "no regular file"),
    ],
)
def test_a_command_that_fails_says_how(code, answer, why):
    """It had a completion before, so the policy may have caused it: WRONG, unless the user says otherwise."""
    argv = [
        sys.executable,
        "-S",
        "-c",
        SCRIPT.replace('open("answer.txt"', 'open("other.txt"') + code,
    ]
    [group] = groups(Command(argv=argv, answer=answer), group_size=1)
    verdict = group.rollouts[0].score.verdict
    assert (verdict.outcome, why in verdict.why) == (rlvr.Outcome.WRONG, True), verdict


def test_the_programs_own_failure_is_unscored():
    """Before any completion nothing is the policy's; afterwards it is as the user says."""

    def breaks(call):
        raise ZeroDivisionError("mine")

    def breaks_later(call):
        twice(call)
        raise ZeroDivisionError("whose?")

    for program, settings, outcome in (
        (breaks, {}, rlvr.Outcome.UNSCORED),
        (lambda call: "0", {}, rlvr.Outcome.UNSCORED),  # it never asked the policy
        (breaks_later, {}, rlvr.Outcome.WRONG),
        (breaks_later, {"failure": "unscored"}, rlvr.Outcome.UNSCORED),
        (lambda call: twice(call) or 3, {}, rlvr.Outcome.WRONG),
    ):
        [group] = groups(program, **settings)
        scores = [rollout.score for rollout in group.rollouts]
        assert [score.verdict.outcome for score in scores] == [outcome] * 2, scores
        assert all(
            score.total == (None if outcome is rlvr.Outcome.UNSCORED else 0.0) for score in scores
        )


def test_an_agent_that_never_ends_is_stopped(tmp_path, monkeypatch):
    """By the clock of its own work, here one that a test may set, or by the errors that it does not heed."""
    pid = tmp_path / "pid"

    def hangs(call):
        twice(call)
        pid.write_text("0")
        call.stopped.wait()

    def asks_on(call):
        with client(call) as made:
            while True:
                try:
                    ask(made, [{"role": "user", "content": "say 0"}])
                except openai.BadRequestError:
                    time.sleep(0.001)

    note = f"open({str(pid)!r}, 'w').write(str(os.getpid()))"
    sleeps = Command(
        argv=[sys.executable, "-S", "-c", f"{SCRIPT}\n{note}\nimport time\ntime.sleep(600)"]
    )
    monkeypatch.setattr(
        AgentEpisode,
        "own_s",
        property(lambda self: 99.0 if pid.exists() and pid.read_text() else 0.0),
    )
    for program, why in ((asks_on, "never ends"), (hangs, "time limit"), (sleeps, "time limit")):
        pid.unlink(missing_ok=True)
        [group] = groups(program, step_s=60.0, group_size=1)
        verdict = group.rollouts[0].score.verdict
        assert (verdict.outcome, why in verdict.why) == (rlvr.Outcome.WRONG, True), verdict
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_turns_and_tokens_are_the_runs_limits():
    """An agent that ends when it is told so is scored, as truncated."""

    def until_told(call):
        with client(call) as made:
            for _ in range(50):
                try:
                    ask(made, [{"role": "user", "content": call.prompt}])
                except openai.BadRequestError:
                    return

    for settings in ({"max_turns": 3}, {"sampling": Sampling(max_tokens=6)}):
        [group] = groups(until_told, group_size=1, **settings)
        [rollout] = group.rollouts
        assert (rollout.truncated, len(rollout.branches), rollout.score.verdict.correct) == (
            True,
            2,
            True,
        )


def test_a_sampler_that_raises_ends_the_collection():
    class Broken(ScriptedSampler):
        def poll(self):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        groups(twice, sampler=Broken(says))


def test_what_cannot_be_an_agents_environment_is_refused():
    for options, said in (
        ({"env": None, "program": twice}, "None is not an environment"),
        ({"env": Sums(), "program": "agent.py"}, "program"),
        ({"env": Sums(), "program": twice, "failure": "zero"}, "failure"),
    ):
        with pytest.raises(UsageError, match=said):
            AgentEnv(**options)
    assert AgentEnv(env=Sums(), program=twice).reset(options={"index": 3})[0] == "say 3"
    for bad in (
        {"argv": "python agent.py"},
        {"argv": ["x"], "answer": "../up"},
        {"argv": ["x"], "files": {"/etc/x": ""}},
    ):
        with pytest.raises(UsageError):
            Command(**bad)


def test_a_run_that_is_interrupted_ends_its_agents():
    asking, stopped = threading.Event(), threading.Event()

    def waits(call):
        twice(call)
        asking.set()
        call.stopped.wait()
        stopped.set()

    sampling = Sampling(max_tokens=100)
    env = AgentEnv(env=Sums(), program=waits)
    made = Groups(
        env,
        ScriptedSampler(says),
        group_size=2,
        sampling=sampling,
        scorer=rlvr.Scorer(env, workers=0),
    )
    with ThreadPoolExecutor(1) as pool:
        collecting = pool.submit(lambda: list(sample_groups(made, [(0, 0)])))
        assert asking.wait(30)
        made.close()
        assert stopped.wait(30)
        with pytest.raises(UsageError, match="closed"):
            collecting.result()


class Store(rlvr.Environment):
    """Numbers behind a tool; right is their sum."""

    calls: int = 2
    reward = rlvr.Correct(lambda answer, reference: answer == reference)

    def task(self, index):
        return rlvr.Task(f"store/{index}", f"say {index + 7}", reference=str(index + 7))

    @rlvr.tool
    def look(self, state, name: str) -> int:
        """Look up a number."""
        if name == "broken":
            raise KeyError(name)
        return len(name)


def test_an_agent_gets_the_environments_tools_under_its_limits():
    """By call and by an MCP client; the record has the calls, and the answer is judged as any other."""

    def works(call):
        twice(call)
        assert [one["function"]["name"] for one in call.tools] == ["look"]
        said.append(call.call("look", {"name": "abc"}))
        said.append(asyncio.run(by_protocol(call)))
        said.append(call.call("look", {"name": "abc"}))

    async def by_protocol(call):
        head = {"authorization": f"Bearer {call.api_key}"}
        async with (
            httpx.AsyncClient(headers=head) as http,
            mcp.Client(streamable_http_client(call.mcp_url, http_client=http)) as made,
        ):
            listed = await made.list_tools()
            assert listed.tools[0].input_schema["required"] == ["name"]
            reply = await made.call_tool("look", {"name": "abcd"})
            return reply.content[0].text

    said = []
    [group] = groups(works, env=Store(), group_size=1)
    assert said == ["3", "4", "error: no calls are left, all 2 are used; answer now"]
    [rollout] = group.rollouts
    assert [call.reply for call in rollout.episode.calls] == said
    assert (rollout.episode.answer, rollout.score.total) == ("7", 1.0)


def test_a_tool_that_fails_is_our_failure():
    """UNSCORED, also where the agent goes on."""

    def works(call):
        twice(call)
        with contextlib.suppress(rlvr.RlvrError):
            call.call("look", {"name": "broken"})

    [group] = groups(works, env=Store(), group_size=1)
    assert group.rollouts[0].score.verdict.why.startswith("environment-error: the tool 'look'")


def test_a_mixture_holds_agents():
    """Beside other environments, each played by its own player."""
    mixture = rlvr.Mixture(
        envs=[rlvr.Share(AgentEnv(env=Sums(), program=twice)), rlvr.Share(Store())]
    )
    scorer = rlvr.Scorer(mixture, workers=0)
    sampling = Sampling(max_tokens=100)
    with Groups(
        mixture, ScriptedSampler(says), group_size=1, sampling=sampling, scorer=scorer
    ) as made:
        found = dict(sample_groups(made, [(i, i) for i in range(2)]))
    assert [found[i].task.id for i in range(2)] == ["agent/Sums:sums/0", "Store:store/0"]
    assert [found[i].rollouts[0].score.total for i in range(2)] == [1.0, 1.0]
    assert [len(found[i].rollouts[0].turns) for i in range(2)] == [2, 1]


IN_SESSION = """
import json, os, urllib.request
from concurrent.futures import ThreadPoolExecutor

def ask(messages, **more):
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]

messages = [{"role": "user", "content": os.environ["PROMPT"]}]
messages += [ask(messages), {"role": "user", "content": os.environ["PROMPT"]}]
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(limits=Limits(cpu_s=2.0)) as made:
        yield made


def test_code_in_a_session_of_the_sandbox_is_an_agent(sandbox):
    """It has no network; its requests, parallel ones too, reach the endpoint all the same."""
    code = IN_SESSION + (
        "with ThreadPoolExecutor(3) as pool:\n    found = list(pool.map(ask, [messages] * 3))\n"
        "print('noise')\nopen('answer.txt', 'w').write(found[0]['content'])\n"
    )
    program = SandboxAgent(
        sandbox=sandbox, code=code, answer="answer.txt", files={"notes/a.txt": "x"}
    )
    [group] = groups(program, request_tokens=10)
    for rollout in group.rollouts:
        assert rollout.score.verdict.correct, rollout.score
        assert len(rollout.branches) == 2
        assert rollout.turns[0].start == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("while True: pass", "CPU"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import sys; sys.stdout.write('x' * 10**8)", "output"),
        ("import _policy; _policy.step = print\nask(messages)", "no longer answers"),
        ("urllib.request.urlopen('http://127.0.0.1:1')", "URLError"),
    ],
)
def test_hostile_code_costs_its_own_episode(sandbox, code, why):
    program = SandboxAgent(sandbox=sandbox, code=f"{IN_SESSION}\nask(messages)\n{code}")
    [group] = groups(program, group_size=1)
    verdict = group.rollouts[0].score.verdict
    assert (verdict.outcome, why in verdict.why) == (rlvr.Outcome.WRONG, True), verdict
