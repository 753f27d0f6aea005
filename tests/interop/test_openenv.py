"""OpenEnv: our environments behind its server and clients, and its servers here.  Skipped without openenv-core."""

from __future__ import annotations

from contextlib import contextmanager

import httpx
import pytest

import rlvr
from rlvr.errors import UsageError
from tests.environments import Desk
from tests.interop.episodes import EPISODES, Seen, ours, seen

pytest.importorskip("openenv.core", reason="openenv-core is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # OpenEnv's own, and of the libraries below it

from openenv.core.generic_client import GenericEnvClient  # noqa: E402
from openenv.core.mcp_client import MCPToolClient  # noqa: E402

from rlvr.http.server import ServerThread, listen, url_of  # noqa: E402
from rlvr.interop import from_openenv, to_openenv  # noqa: E402


@contextmanager
def served(app):
    """Our server in a thread; gives its URL."""
    with listen("127.0.0.1", 0) as listening, ServerThread(app, listening, "openenv"):
        yield url_of(listening)


@pytest.fixture(scope="module")
def desk():
    """(URL, records that `verify` saw) of a server."""
    kept = []
    env = Seen()
    env.seen = kept.append
    with served(to_openenv(env).app()) as url:
        yield url, kept


@pytest.mark.parametrize("number", range(len(EPISODES)))
def test_the_same_actions_make_the_same_calls_and_totals(number, desk):
    """Through OpenEnv's server and its client, with its own `call_tool`, and with turns as chat messages."""
    (url, kept), (calls, answer) = desk, EPISODES[number]
    for as_turns in (False, True):
        with GenericEnvClient(base_url=url).sync() as client:
            begun = client.reset(index=3).observation
            assert begun["messages"] == [{"role": "user", "content": "Add 3 and 1."}]
            for name, arguments in calls:
                one = {"function": {"name": name, "arguments": arguments}}
                turn = {"tool_calls": [one]}
                client.step(
                    turn
                    if as_turns
                    else {"type": "call_tool", "tool_name": name, "arguments": arguments}
                )
            last = client.step({"text": answer})
        assert last.done
        assert (seen(kept[-1]), last.reward, last.observation["outcome"]) == ours(
            calls, answer, Seen()
        )


def test_its_client_for_tools_finds_ours(desk):
    """`MCPToolClient` lists them, and its calls give our replies, faults of the model among them."""
    with MCPToolClient(base_url=desk[0]).sync() as client:
        client.reset(index=0)
        [tool] = client.list_tools()
        assert (tool.name, tool.input_schema["required"]) == ("add", ["x"])
        assert client.call_tool("add", x=1, y=2) == "3"
        assert client.call_tool("add").startswith("error: ")
        assert client.state().step_count == 2


def test_our_failures_have_no_reward():
    """A tool that raises: an error for the client, and no observation with a reward."""

    class Broken(Desk):
        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            """Add."""
            raise RuntimeError("no disk")

    served_env = to_openenv(Broken()).environment()
    served_env.reset(index=3)
    with pytest.raises(rlvr.Unscored, match="no disk"):
        served_env.step(_action(type="call_tool", tool_name="add", arguments={"x": 1}))
    served_env.close()


def test_sessions_share_nothing(desk):
    """Two clients at once: each has its own task and its own budget of calls."""
    with (
        GenericEnvClient(base_url=desk[0]).sync() as one,
        GenericEnvClient(base_url=desk[0]).sync() as two,
    ):
        one.reset(index=1)
        two.reset(index=2)
        one.step({"tool_calls": [{"function": {"name": "add", "arguments": {"x": 1}}}]})
        ends = [client.step({"text": "2"}) for client in (one, two)]
    assert [end.reward for end in ends] == [1.0, 0.0]


def test_what_is_no_environment_is_refused():
    with pytest.raises(UsageError, match="is not an environment"):
        to_openenv("arithmetic-v1")


def test_the_interface_is_documented_and_a_key_is_wanted(monkeypatch):
    """OpenAPI of OpenEnv's own types; its requests pass our checks of keys and bodies."""
    monkeypatch.setenv("RLVR_API_KEY", "a-key-of-the-tests")
    with served(to_openenv(Seen()).app()) as url:
        paths = httpx.get(f"{url}/openapi.json").json()["paths"]
        assert "requestBody" in paths["/step"]["post"]
        assert httpx.get(f"{url}/health").json() == {"ready": True}
        assert httpx.get(f"{url}/schema").status_code == 401
        headers = {"authorization": "Bearer a-key-of-the-tests"}
        assert "action" in httpx.get(f"{url}/schema", headers=headers).json()
        reply = httpx.post(f"{url}/reset", headers=headers, json={"seed": 1})
        assert reply.json()["observation"]["messages"]
        assert httpx.post(f"{url}/reset", headers=headers, content=b"{").status_code == 415
        with pytest.raises(Exception, match="403"), GenericEnvClient(base_url=url).sync():
            pass


def test_a_server_of_openenv_is_an_environment_here(desk):
    """There and back: the same calls and totals, and a recorded episode is verified without the server."""
    rows = [{"prompt": f"Add {i} and 1.", "index": i, "answer_as": "text"} for i in range(4)]
    env = from_openenv(desk[0], rows, calls=32, turns=32)
    for calls, answer in EPISODES[:3]:
        with env.open(env.task(3)) as running:
            for name, arguments in calls:
                running.call(name, arguments)
            running.reply(answer)
        found = env.score(env.task(3), env.completion_of(running.record))
        wanted = ours(calls, answer, Seen())
        assert [call.reply for call in running.record.calls] == [
            reply for _, _, reply, _ in wanted[0]
        ]
        assert (found.total, found.verdict.outcome) == wanted[1:]
        again = from_openenv("http://127.0.0.1:9", [{"prompt": "?"}])  # no server listens there
        assert (
            again.verify(env.task(3), rlvr.EpisodeRecord.from_dict(running.record.as_dict()))
            == found.verdict
        )


def test_a_server_that_is_not_there_is_our_failure():
    """UNSCORED, and not the policy's fault."""
    env = from_openenv("http://127.0.0.1:9", [{"prompt": "?"}])
    with pytest.raises(rlvr.Unscored):
        env.open(env.task(0))


def _action(**fields):
    from rlvr.http.openenv import TurnAction

    return TurnAction(**fields)
