"""A resources server of NeMo Gym, as small as one can be: sessions by cookie, a tool, and what it fails at."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import rlvr
from rlvr.errors import DataError, ServiceFailed, UsageError
from rlvr.interop import from_nemo_gym

ADD = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    },
    "strict": True,
}


def row(x=20, **params):
    asked = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": f"{x} + 1?"},
    ]
    return {
        "responses_create_params": {"input": asked, "tools": [ADD], **params},
        "expected_answer": str(x + 1),
    }


class Gym(ThreadingHTTPServer):
    """Remembers what it was asked; `fails` maps routes to what they answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.fails, self.sessions, self.mcp = [], {}, 0, False
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, route, body, cookie):
        if route == "/seed_session":
            self.sessions += 1
            return 200, {"mcp": {"url_path": "/mcp"}} if self.mcp else {}
        if route == "/add":
            if "x" not in body:
                return 422, {"detail": "x is missing"}
            return 200, {"sum": body["x"] + body["y"], "session": cookie}
        if route == "/verify":
            output = body["response"]["output"]
            said = output[-1]["content"][0]["text"]
            right = said == body["expected_answer"]
            return 200, {**body, "reward": 1.0 if right else 0.25, "length": len(said)}
        return 404, {}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        status, told = self.server.fails.get(self.path) or self.server.answer(
            self.path, body, self.headers.get("cookie", "")
        )
        data = told.encode() if isinstance(told, str) else json.dumps(told).encode()
        self.send_response(status)
        if self.path == "/seed_session":
            self.send_header("set-cookie", f"session=s{self.server.sessions}")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def gym():
    with Gym() as server:
        yield server
        server.shutdown()


def play(env, *turns):
    task = env.task(0)
    with env.open(task) as episode:
        for turn in turns:
            episode.reply(turn)
        return episode.record, env.score(task, episode.completion())


def test_an_episode_is_a_session_with_its_row(gym):
    """Seeded with the row, called with its cookie, verified with the row and the policy's response."""
    env = from_nemo_gym(gym.url, [row()])
    gym.asked.clear()
    assert [message["role"] for message in env.task(0).prompt] == ["system", "user"]
    record, score = play(env, rlvr.Ask("add", {"x": 20, "y": 1}), "21")
    assert json.loads(record.calls[0].reply) == {"sum": 21, "session": "session=s2"}
    assert (score.total, score.verdict.why) == (1.0, "full-reward")
    assert score.verdict.detail["numbers"] == {"length": 2}
    assert [route for route, _ in gym.asked] == [
        "/seed_session",
        "/add",
        "/verify",
        "/close_session",
    ]
    response = gym.asked[2][1]["response"]
    assert [item["type"] for item in response["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert gym.asked[2][1]["expected_answer"] == "21"
    assert env.score(env.task(0), env.completion_of(record)).total == 1.0  # without the server


def test_a_bad_call_is_told_and_part_of_the_reward_is_a_value(gym):
    record, score = play(from_nemo_gym(gym.url, [row()]), rlvr.Ask("add", {"y": 1}), "22")
    assert record.calls[0].reply.startswith("error: 422: ")
    assert (score.verdict.outcome, score.verdict.value) == ("wrong", 0.25)


FAILS = {
    "/seed_session": (503, "browser did not reset"),
    "/add": (500, "broken"),
    "/verify": (500, "broken"),
}


@pytest.mark.parametrize("route", FAILS)
def test_what_the_server_fails_at_is_unscored_and_no_zero(gym, route):
    env = from_nemo_gym(gym.url, [row()])
    gym.fails[route] = FAILS[route]
    with pytest.raises(ServiceFailed, match=f"{route} gave status 50[03]"):
        play(env, rlvr.Ask("add", {"x": 1, "y": 1}), "21")


@pytest.mark.parametrize(
    "told",
    [
        {"reward": 0.0, "mask_sample": True},
        {"reward": 0.0, "failure_kind": "environment", "failure_reason": "no browser"},
        {"reward": None},
        {},
        '{"reward": NaN}',
        "[]",
    ],
    ids=str,
)
def test_a_judgement_that_is_none_is_unscored(gym, told):
    env = from_nemo_gym(gym.url, [row()])
    gym.fails["/verify"] = (200, told)
    with pytest.raises(rlvr.errors.Unscored):
        play(env, "21")


ROWS = {
    "row 1: it has no responses_create_params": {"x": 1},
    "row 1: its input is": {"responses_create_params": {"input": []}},
    "only texts are taken": row(input=[{"role": "user", "content": [{"type": "input_image"}]}]),
    "only messages are taken": row(input=[{"type": "function_call", "name": "x"}]),
    "is no function; only those are taken": row(tools=[{"type": "web_search"}]),
    "the name of the tool 'add' is taken": row(tools=[ADD, ADD]),
    "the name of the tool 'verify' is taken": row(tools=[{**ADD, "name": "verify"}]),
}


@pytest.mark.parametrize("why", ROWS)
def test_a_row_that_asks_for_more_is_refused_as_it_is_loaded(gym, why):
    with pytest.raises(DataError, match=why):
        from_nemo_gym(gym.url, [ROWS[why]])


def test_missing_parts_are_said_as_it_is_loaded(gym, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row()) + "\n\n{broken\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:3: it is no JSON"):
        from_nemo_gym(gym.url, path)
    with pytest.raises(DataError, match="there are no rows"):
        from_nemo_gym(gym.url, [])
    gym.mcp = True
    with pytest.raises(UsageError, match="tools behind MCP alone"):
        from_nemo_gym(gym.url, [row(tools=[])])
    with pytest.raises(ServiceFailed, match="does not answer /seed_session"):
        from_nemo_gym("http://127.0.0.1:9", [row()])
