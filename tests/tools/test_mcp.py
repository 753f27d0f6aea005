"""Tools of an MCP server, a process of its own over stdio, in episodes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rlvr
from rlvr.errors import ServiceFailed, UsageError
from rlvr.tools import mcp
from tests.environments import Desk, call

pytest.importorskip("mcp")
SERVER = [sys.executable, str(Path(__file__).parent / "server.py")]


class Served(Desk):
    """The tools are the server's."""

    call_seconds: float = 30.0

    def open(self, task):
        return mcp(SERVER)

    def tools(self, state):
        return state.tools


@pytest.mark.slow  # as below
def test_an_episode_calls_a_server_until_it_dies():
    """Schemas, replies, what the model did wrong; a server that dies is our fault."""
    env = Served()
    with env.begin(env.task(2)) as running:
        assert [schema["function"]["name"] for schema in running.schemas] == ["add", "fail", "die", "hang"]
        assert running.schemas[0]["function"]["parameters"]["required"] == ["x"]
        assert running.take(call("add", x=2, y=1))[0]["content"] == "3"
        assert running.take(call("add", x="q"))[0]["content"].startswith("error: ")
        assert running.take(call("fail"))[0]["content"].startswith("error: ")
        with pytest.raises(ServiceFailed, match="MCP server"):
            running.take(call("die"))


@pytest.mark.slow  # the SDK takes seconds to start; the kill itself is tested in tests/environment/test_tools.py
def test_a_server_that_hangs_is_ended():
    """The call answers with the time limit, and its process is gone."""
    env = Served(call_seconds=0.3)
    with env.begin(env.task(2)) as running:
        assert running.take(call("hang"))[0]["content"] == "error: time limit"
        assert "what it worked with is gone" in running.take(call("add", x=1))[0]["content"]
        assert running.take("3") is None
    assert env.score(running.task, env.completion_of(running.record)).total == 1.0


@pytest.mark.parametrize("where", ["python server.py", [], ["a", 1]])
def test_what_is_neither_command_nor_url_is_refused(where):
    """The error shows both forms."""
    with pytest.raises(UsageError, match="mcp: "):
        mcp(where)


@pytest.mark.parametrize("command", [["true"], ["/nonexistent/server"]])
def test_a_server_that_does_not_start_is_one_clear_error(command):
    """An episode that begins with it is UNSCORED."""
    with pytest.raises(ServiceFailed, match="cannot be used"):
        mcp(command)
    assert issubclass(ServiceFailed, rlvr.Unscored)
