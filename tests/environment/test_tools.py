"""Environments with tools: schemas, calls, faults, limits, and the record that is verified."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import rlvr
from rlvr import Ask, PolicyTurn, ToolError, UsageError
from rlvr.environment import EpisodeFailed
from rlvr.environment.tools import clean
from tests.environments import Desk, call


class Opened:
    """A state that counts."""

    def __init__(self) -> None:
        self.closed = self.killed = 0
        self.wake = threading.Event()

    def close(self) -> None:
        self.closed += 1

    def kill(self) -> None:
        self.killed += 1
        self.wake.set()


class Odd(Desk):
    """Tools that misbehave."""

    call_seconds: float = 0.2
    states: list = ()

    def setup(self, task):
        self.state = Opened()
        return self.state

    @rlvr.tool
    def wait(self, state) -> str:
        """Wait until the state is killed."""
        state.wake.wait(30)
        return "woken"

    @rlvr.tool
    async def nap(self, state) -> str:
        """Sleep in a coroutine."""
        await asyncio.sleep(30)
        return "rested"

    @rlvr.tool
    def fail(self, state) -> str:
        """Raise what is no fault of the model."""
        raise RuntimeError("the disk is full")

    @rlvr.tool
    def leave(self, state) -> str:
        """End the process."""
        raise SystemExit(3)

    @rlvr.tool
    def long(self, state, n: int) -> str:
        """Say much."""
        return "a" * n + "z"

    @rlvr.tool
    def table(self, state) -> Any:
        """Give JSON."""
        return {"a": [1, "ü"]}

    @rlvr.tool
    def thread(self, state) -> str:
        """Say which thread this is."""
        return threading.current_thread().name + str(threading.get_ident())


def episode(env: rlvr.Environment, index: int = 3) -> Any:
    return env.open(env.task(index))


def test_a_schema_comes_from_signature_and_docstring():
    """Types, defaults, descriptions; the state is not among the arguments."""

    class One(Desk):
        @rlvr.tool(name="look-up")
        def look(
            self, state, word: str, kind: Literal["a", "b"] = "a", most: int | None = None
        ) -> str:
            """Look a word up.

            Args:
                word: what to look up.
                most: how many.
            """

    schema = next(tool.schema for tool in One().tools(None) if tool.name == "look-up")
    assert schema["function"] == {
        "name": "look-up",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {
                "word": {"type": "string", "description": "what to look up."},
                "kind": {"type": "string", "enum": ["a", "b"]},
                "most": {
                    "anyOf": [{"type": "integer"}, {"type": "null"}],
                    "description": "how many.",
                },
            },
            "required": ["word"],
        },
    }


def bare(self, state, x) -> str: ...
def star(self, state, *x: str) -> str: ...
def strange(self, state, x: object) -> str: ...
def unknown(self, state, x: "Nothing") -> str: ...  # noqa: F821, UP037
def alone() -> str: ...


@pytest.mark.parametrize("function", [bare, star, strange, unknown, alone, 3])
def test_a_schema_that_cannot_be_made_is_one_clear_error(function):
    """When the class is defined, not when a policy calls."""
    with pytest.raises(UsageError):
        rlvr.tool(function)


@pytest.mark.parametrize("kind", [int, "str"])
def test_a_tool_that_leaves_out_the_state_is_refused(kind):
    """Else its first argument would be the state, and the policy could never give it."""

    def add(self, x, y: int) -> int:
        """Add."""
        return x + y

    add.__annotations__["x"] = kind
    with pytest.raises(UsageError, match=r"'x' would be the episode's state; .*\(self, state"):
        rlvr.tool(add)


def test_two_tools_with_one_name_are_refused():
    """Whether they are methods or come with the state."""
    with pytest.raises(UsageError, match="two tools are named 'add'"):

        class Two(Desk):
            @rlvr.tool(name="add")
            def other(self, state) -> str:
                """Add too."""

    class Late(Desk):
        def tools(self, state):
            return [*super().tools(state), *super().tools(state)]

    with pytest.raises(UsageError, match="two tools are named"):
        episode(Late())


def test_an_episode_is_turns_of_calls_and_an_answer():
    """Replies come as messages in the calls' order; the last turn is judged."""
    env = Desk()
    prompt, info = env.reset(options={"index": 3})
    assert (prompt, info["tools"][0]["function"]["name"]) == ("Add 3 and 1.", "add")
    told, reward, *over, _ = env.step("I add. " + call("add", x=3, y=1) + call("add", x=1))
    assert [message["content"] for message in told] == ["4", "1"]
    assert (reward, over) == (0.0, [False, False])
    told, reward, terminated, truncated, info = env.step("4")
    assert (told, reward, terminated, truncated) == ("", 1.0, True, False)
    record = info["record"]
    assert [(one.name, one.reply, one.error) for one in record.calls] == [
        ("add", "4", False),
        ("add", "1", False),
    ]
    assert (record.answer, record.turns[0].text, record.final) == ("4", "I add.", {"n": 2})
    assert rlvr.EpisodeRecord.from_dict(record.as_dict()) == record
    assert [message["role"] for message in record.messages] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


FAULTS = [
    ('<tool_call>{"name"</tool_call>', "error: the call is no JSON"),
    (call("divide", x=1), "error: there is no tool 'divide'; there is add"),
    (call("add"), "error: add lacks the argument 'x'"),
    (call("add", x=1, z=2), "error: add has no argument 'z'; it has x, y"),
    (call("add", x="1"), "error: the argument 'x' of add is str '1'; it must be a whole number"),
    (call("add", x=True), "error: the argument 'x' of add is bool True"),
    (call("add", x=-1), "error: only numbers from 0"),  # a ToolError
    (
        f'<tool_call>{{"name": "add", "arguments": {{"x": {"[" * 900 + "]" * 900}}}}}</tool_call>',
        "error: the arguments are nested more than 64 deep",
    ),
    (
        '<tool_call>{"name": "add", "arguments": {"x": 1e999}}</tool_call>',
        "error: the arguments hold a number that is not",
    ),
    # as Python's hexadecimal digits give it, in models' calls that are written as Python
    (Ask("add", {"x": 1 << 20_000}), "error: the arguments hold a number of more than 4,300"),
]


@pytest.mark.parametrize(("text", "reply"), FAULTS)
def test_what_the_model_did_wrong_is_a_reply(text, reply):
    """It counts as a call, and the episode goes on."""
    with episode(Desk()) as running:
        [told] = running.reply(text)
        assert told["content"].startswith(reply)
        assert running.record.calls[0].error
        assert json.dumps(running.record.as_dict())
        assert running.reply(call("add", x=1))[0]["content"] == "1"


@pytest.mark.parametrize("name", ["fail", "leave"])
def test_what_the_environment_did_wrong_is_no_reply(name):
    """Else a policy would learn from our faults; the state is closed all the same."""
    env = Odd()
    with episode(env) as running, pytest.raises(EpisodeFailed, match=f"tool '{name}'"):
        running.reply(call(name))
    assert env.state.closed == 1


def test_a_call_over_its_time_is_killed_with_what_it_works_with():
    """The reply says so, later calls are refused, and the episode can still be answered."""
    env = Odd()
    with episode(env) as running:
        assert running.reply(call("wait"))[0]["content"] == "error: time limit"
        assert env.state.killed == 1
        assert "what it worked with is gone" in running.reply(call("table"))[0]["content"]
        assert running.reply("no") is None
    assert (env.state.closed, running.record.final) == (1, None)


def test_a_coroutine_over_its_time_is_cancelled():
    """Nothing is killed, so other tools go on."""
    env = Odd()
    with episode(env) as running:
        assert running.reply(call("nap"))[0]["content"] == "error: time limit"
        assert running.reply(call("table"))[0]["content"] == '{"a": [1, "ü"]}'
    assert env.state.killed == 0


def test_code_that_cannot_be_killed_costs_its_own_episode():
    """Its thread is given up; close does not wait for it."""

    class Stuck(Desk):
        call_seconds: float = 0.1

        @rlvr.tool
        def hang(self, state) -> str:
            """Hang."""
            release.wait(60)

    release, began = threading.Event(), time.monotonic()
    with episode(Stuck()) as running:
        assert running.reply(call("hang"))[0]["content"] == "error: time limit"
        assert "has not ended" in running.reply(call("add", x=1))[0]["content"]
    assert time.monotonic() - began < 30
    release.set()


def test_budgets_refuse_and_say_so():
    """Calls beyond `calls` are answered, never dropped; turns end the episode; a reply loses its middle."""
    env = Odd(calls=3, turns=3, reply_chars=100)
    with episode(env) as running:
        told = running.reply(
            call("long", n=500) + call("long", n=5) + call("divide") + call("long", n=5)
        )
        assert [len(one["content"]) for one in told[:2]] == [100, 6]
        assert "401 characters left out" in told[0]["content"]
        assert told[0]["content"].endswith("z")
        assert told[3]["content"] == "error: no calls are left, all 3 are used; answer now"
        running.reply(call("table"))
        assert running.reply(call("table")) is None
    assert running.record.end == "turns"
    assert running.record.answer == ""


def test_the_seconds_of_all_calls_have_a_budget():
    """A policy cannot keep an episode by many slow calls."""
    with episode(Odd(episode_seconds=0.1, call_seconds=5)) as running:
        assert running.reply(call("nap"))[0]["content"] == "error: time limit"
        assert "no time is left" in running.reply(call("table"))[0]["content"]


def test_all_code_of_an_episode_runs_in_one_thread():
    """So that a connection that belongs to its thread works."""
    with episode(Odd()) as running:
        first, second = running.reply(call("thread") + call("thread"))
        assert first["content"] == second["content"]
        assert str(threading.get_ident()) not in first["content"]


def test_a_simulated_user_answers_until_it_is_content():
    """Its messages are part of the record."""

    class Talk(Desk):
        def user(self, task, transcript):
            said = sum(message["role"] == "user" for message in transcript)
            return None if said == 2 else f"And then? {said}"

    with episode(Talk()) as running:
        assert running.reply("a") == [{"role": "user", "content": "And then? 0"}]
        assert running.reply("b") == [{"role": "user", "content": "And then? 1"}]
        assert running.reply("c") is None
    assert [turn.user for turn in running.record.turns] == ["And then? 0", "And then? 1", None]
    assert running.record.answer == "c"


@dataclass
class Pair:
    first: Opened
    second: Opened


@pytest.mark.parametrize(
    "kind", [tuple, list, lambda both: dict(zip("ab", both, strict=True)), lambda both: Pair(*both)]
)
def test_all_of_a_state_is_closed(kind):
    """A tuple, list, mapping or dataclass of things that have a close."""
    both = (Opened(), Opened())

    class Several(Desk):
        def setup(self, task):
            return kind(both)

        def final(self, task, state):
            return None

    episode(Several()).close()
    assert [one.closed for one in both] == [1, 1]


def test_an_open_that_fails_is_no_episode():
    """It is UNSCORED for a collector; a mistake in the tools is an error of the caller."""

    class Broken(Desk):
        def setup(self, task):
            raise OSError("no room")

    with pytest.raises(EpisodeFailed, match="setup of Broken raised OSError: no room"):
        episode(Broken())


def test_half_characters_of_json_become_whole():
    r"""JSON can write "\ud800", which no program can encode."""
    assert clean({"x": ["a\ud800b", "😀"]}) == {"x": ["a�b", "😀"]}
    with episode(Odd()) as running:
        running.reply('<tool_call>{"name": "\\ud800", "arguments": {"\\udfff": 1}}</tool_call>')
        running.record.messages[1]["content"].encode()


def test_a_verifier_sees_the_answer_alone():
    """A tool that prints the right answer earns nothing, and so does a turn that calls."""

    class Echo(Desk):
        reward = rlvr.Correct(lambda answer, reference: answer == str(reference))
        verify = rlvr.Environment.verify

    for turns, total in ((["4"], 1.0), ([call("add", x=4)], 0.0), ([call("add", x=4), "no"], 0.0)):
        env = Echo(turns=len(turns))
        with env.open(env.task(3)) as running:
            for turn in turns:
                running.reply(turn)
        assert env.score(env.task(3), env.completion_of(running.record)).total == total


def test_turns_can_be_given_in_the_forms_of_others():
    """A chat message of OpenAI's API with arguments as text, or an `Ask`."""
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "abc", "function": {"name": "add", "arguments": '{"x": 2}'}}],
    }
    with episode(Desk()) as running:
        assert running.reply(message) == [
            {"role": "tool", "name": "add", "content": "2", "tool_call_id": "abc"}
        ]
        assert running.reply(Ask("add", {"x": 5}))[0]["content"] == "5"
        assert running.call("add", {"x": 6}).reply == "6"
        with pytest.raises(UsageError, match="a turn of the policy is"):
            running.reply(5)


def test_ids_of_calls_are_unique():
    """A model that gives two calls one id, or a long one, would be told replies that no API can match with them."""
    ask = rlvr.Ask("add", {"x": 1}, id="a")
    with Desk().open(Desk().task(0)) as running:
        running.reply(rlvr.PolicyTurn("", (ask, ask)))
        told = running.reply(
            rlvr.PolicyTurn("", (ask, rlvr.Ask("add", {"x": 1}, id="i" * 65), rlvr.Ask("add", {})))
        )
        ids = [call.id for call in running.record.calls]
    assert len(set(ids)) == 5
    assert ids[0] == "a"
    assert [message["tool_call_id"] for message in told] == ids[2:]


def test_a_completion_without_an_episode_is_refused():
    """`verify` reads the record; a text alone has none."""
    env = Desk()
    with pytest.raises(UsageError, match="verifies episodes"):
        env.score(env.task(1), "2")


def test_tool_errors_are_exported():
    """Authors raise them."""
    assert issubclass(ToolError, Exception)


class Beside(rlvr.Environment):
    """Tools that have to meet, and tools that must not."""

    call_seconds: float = 20.0
    calls: int = 6

    def task(self, index):
        return rlvr.Task(f"beside/{index}", "Meet.")

    def setup(self, task):
        return {"barrier": threading.Barrier(2), "loops": [], "events": {}, "busy": 0, "most": 0}

    @rlvr.tool(parallel=True)
    def meet(self, state, name: str) -> str:
        """Wait for another call."""
        state["barrier"].wait(15)
        return name

    @rlvr.tool(parallel=True)
    async def swap(self, state, mine: str, other: str) -> str:
        """Wait in one loop until the other call was made."""
        loop = asyncio.get_running_loop()
        for name in (mine, other):
            state["events"].setdefault(name, asyncio.Event())
        state["loops"].append(loop)
        state["events"][mine].set()
        await state["events"][other].wait()
        if mine == "bad":
            raise ToolError("bad")
        return f"{mine} in {len(set(state['loops']))} loop"

    @rlvr.tool(parallel=True)
    async def sleep(self, state) -> str:
        """Never end."""
        await asyncio.sleep(100)

    @rlvr.tool(parallel=True)
    async def cancel(self, state) -> str:
        """Cancel its own task."""
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    @rlvr.tool
    def alone(self, state) -> str:
        """Be the only one."""
        state["busy"] += 1
        state["most"] = max(state["most"], state["busy"])
        state["busy"] -= 1
        return str(state["most"])

    def verify(self, task, record):
        return rlvr.Verdict("correct", why="met")


def beside(*asks, **options):
    with Beside(**options).open(Beside().task(0)) as episode:
        episode.reply(PolicyTurn("", tuple(Ask(name, arguments) for name, arguments in asks)))
    return [call.reply for call in episode.record.calls]


def test_parallel_tools_run_side_by_side_and_reply_in_order():
    """Each of two calls waits for the other; one of another tool between them is not passed over."""
    two = [("meet", {"name": "a"}), ("meet", {"name": "b"})]
    assert beside(*two, ("alone", {}), *two, ("alone", {}))[:6] == ["a", "b", "1", "a", "b", "1"]
    assert beside(
        ("swap", {"mine": "x", "other": "bad"}), ("swap", {"mine": "bad", "other": "x"})
    ) == [
        "x in 1 loop",
        "error: bad",
    ]


def test_parallel_calls_that_cancel_themselves_are_an_error_of_their_code():
    """As one that calls exit(): neither ends a thread of ours."""
    with pytest.raises(EpisodeFailed, match="CancelledError"):
        beside(("cancel", {}), ("cancel", {}))


def test_parallel_tools_have_the_limits_of_others():
    """A call that hangs is ended alone, and those beyond the number of calls are refused in their order."""
    replies = beside(
        ("sleep", {}),
        ("swap", {"mine": "x", "other": "y"}),
        ("swap", {"mine": "y", "other": "x"}),
        ("swap", {"mine": "z"}),
        call_seconds=0.5,
        calls=3,
    )
    assert replies[0] == "error: time limit"
    assert [reply.partition(" in")[0] for reply in replies[1:3]] == ["x", "y"]
    assert replies[3].startswith("error: no calls are left")
