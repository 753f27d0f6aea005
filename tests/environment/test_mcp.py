"""Tools of an MCP server, a process of its own over stdio, in episodes."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import rlvr
from rlvr.environment.ready_tools import mcp
from rlvr.environment.ready_tools.servers import _list_tools
from rlvr.errors import ServiceFailed, UsageError
from tests.environments import Desk, call

pytest.importorskip("mcp")
SERVER = [sys.executable, str(Path(__file__).parent / "mcp_server.py")]


class Served(Desk):
    """The tools are the server's."""

    call_seconds: float = 30.0

    def setup(self, task):
        return mcp(SERVER)

    def tools(self, state):
        return state.tools


@pytest.mark.slow  # as below
def test_an_episode_calls_a_server_until_it_dies():
    """Schemas, replies, what the model did wrong; a server that dies is our fault."""
    env = Served()
    with env.open(env.task(2)) as running:
        assert [schema["function"]["name"] for schema in running.schemas] == [
            "add",
            "fail",
            "die",
            "hang",
        ]
        assert running.schemas[0]["function"]["parameters"]["required"] == ["x"]
        assert running.reply(call("add", x=2, y=1))[0]["content"] == "3"
        assert running.reply(call("add", x="q"))[0]["content"].startswith("error: ")
        assert running.reply(call("fail"))[0]["content"].startswith("error: ")
        with pytest.raises(ServiceFailed, match="MCP server"):
            running.reply(call("die"))


@pytest.mark.slow  # the SDK takes seconds to start; the kill itself is tested in tests/environment/test_tools.py
def test_a_server_that_hangs_is_ended():
    """The call answers with the time limit, and its process is gone."""
    env = Served(call_seconds=0.3)
    with env.open(env.task(2)) as running:
        assert running.reply(call("hang"))[0]["content"] == "error: time limit"
        assert "what it worked with is gone" in running.reply(call("add", x=1))[0]["content"]
        assert running.reply("3") is None
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


@pytest.mark.slow  # as above
def test_a_server_at_a_url_is_the_same():
    """A server process of its own over HTTP: several episodes at once, and its death is our fault."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([*SERVER, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            with mcp(url) as one, mcp(url) as two:
                assert [tool.name for tool in one.tools] == ["add", "fail", "die", "hang"]
                assert [
                    server.call("add", {"x": 2, "y": i}) for i, server in enumerate((one, two))
                ] == ["2", "3"]
                with pytest.raises(rlvr.ToolError):
                    one.call("fail", {})
                with pytest.raises(ServiceFailed, match="MCP server"):
                    one.call("die", {})
        finally:
            process.kill()


def pages(tools, *, endless=False):
    """A client whose server lists two tools a page."""

    async def list_tools(cursor=None):
        at = int(cursor or 0)
        more = endless or at + 2 < len(tools)
        return SimpleNamespace(
            tools=tools[at % len(tools) :][:2], next_cursor=str(at + 2) if more else None
        )

    return SimpleNamespace(list_tools=list_tools)


def test_a_long_list_of_tools_comes_in_pages():
    """All of them; a list without end is one error."""
    assert asyncio.run(_list_tools(pages(list("abcde")))) == list("abcde")
    with pytest.raises(ServiceFailed, match="does not end"):
        asyncio.run(_list_tools(pages(list("abcd"), endless=True)))
