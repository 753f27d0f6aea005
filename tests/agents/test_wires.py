"""One request on three wires: the tokens of a conversation are the same, and so are its rows."""

import json

import httpx
import openai
import pytest

from rlvr.agents import AgentEndpoint
from rlvr.collect import Sampling, ScriptedSampler
from rlvr.types import Outcome, Score, Task, Verdict

SCORE = Score(1.0, {"correct": 1.0}, Verdict(Outcome.CORRECT, why="by hand"))
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


def script(context, number, seed):
    """A call where there are tools and no reply yet, else the last line of the conversation in capitals."""
    if "tools: add" in context and "tool: " not in context:
        return 'Let me add. <tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>'
    return context.rstrip().splitlines()[-2].rpartition(": ")[2].upper()


@pytest.fixture(scope="module")
def endpoint():
    with AgentEndpoint(ScriptedSampler(script, logprobs=-0.5)) as made:
        yield made


@pytest.fixture
def episode(endpoint):
    with endpoint.open(sampling=Sampling(max_tokens=1000), max_requests=20) as made:
        yield made


def rows(episode):
    episode.close()
    first = episode.rollout(Task("t", "p"), SCORE)
    return [first, *first.branches]


def post(episode, wire, body, *, key=None, **more):
    head = {"x-api-key": key or episode.api_key}
    answer = httpx.post(f"{episode.base_url}/{wire}", json={**body, **more}, headers=head)
    return answer.status_code, answer


def events(answer):
    """The events of a stream, each of which is named twice."""
    found = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


# ---------------------------------------------------------------------------------------- Responses

TOOL = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": True}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_responses_of_the_openai_client_are_one_row(episode, stream, by_id):
    """With the whole conversation each time, or with the id of the response before."""

    def ask(made, **settings):
        if not stream:
            return made.responses.create(model="any", tools=[TOOL], instructions="Add.", **settings)
        with made.responses.stream(model="any", tools=[TOOL], instructions="Add.", **settings) as s:
            return s.get_final_response()

    with openai.OpenAI(base_url=episode.base_url, api_key=episode.api_key, max_retries=0) as made:
        first = ask(made, input="hello")
        said, call = first.output
        assert (said.content[0].text, call.name, json.loads(call.arguments)) == (
            "Let me add.",
            "add",
            {"x": 1},
        )
        reply = {"type": "function_call_output", "call_id": call.call_id, "output": "two"}
        if by_id:
            second = ask(made, input=[reply], previous_response_id=first.id)
        else:
            items = [
                {key: one for key, one in item.to_dict().items() if key != "parsed_arguments"}
                for item in first.output
            ]
            second = ask(made, input=[{"role": "user", "content": "hello"}, *items, reply])
        assert (second.output_text, second.status) == ("TWO", "completed")
        assert second.usage.total_tokens == second.usage.input_tokens + second.usage.output_tokens
    [row] = rows(episode)
    assert (len(row.turns), sum(row.completion_mask)) == (
        2,
        first.usage.output_tokens + second.usage.output_tokens,
    )


def test_a_response_of_another_episode_is_unknown(endpoint, episode):
    """Each has its own; the error names the id."""
    _, first = post(episode, "responses", {"input": "a"})
    with endpoint.open(sampling=Sampling(max_tokens=100)) as other:
        again = {"input": "b", "previous_response_id": first.json()["id"]}
        status, answer = post(other, "responses", again)
    assert (status, answer.json()["error"]["code"]) == (400, "previous_response_id")


# ----------------------------------------------------------------------------------------- Messages

OWN = {"name": "add", "description": "Add.", "input_schema": SCHEMA}


@pytest.mark.parametrize("stream", [False, True])
def test_messages_are_one_row(episode, stream):
    """Text, calls and results as blocks; the system's text apart."""

    def ask(messages):
        body = {
            "model": "any",
            "max_tokens": 200,
            "system": "Add.",
            "tools": [OWN],
            "stream": stream,
        }
        status, answer = post(episode, "messages", body, messages=messages)
        assert status == 200, answer.text
        return read(events(answer)) if stream else answer.json()

    def read(pieces):
        assert [pieces[0]["type"], pieces[-1]["type"]] == ["message_start", "message_stop"]
        blocks = [one["content_block"] for one in pieces if one["type"] == "content_block_start"]
        for one in pieces:
            if one["type"] == "content_block_delta":
                block, delta = blocks[one["index"]], one["delta"]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                else:
                    block["input"] = json.loads(delta["partial_json"])
        [ended] = [one for one in pieces if one["type"] == "message_delta"]
        return {
            **pieces[0]["message"],
            "content": blocks,
            **ended["delta"],
            "usage": ended["usage"],
        }

    messages = [{"role": "user", "content": "hello"}]
    first = ask(messages)
    text, call = first["content"]
    assert (text["text"], call["name"], call["input"]) == ("Let me add.", "add", {"x": 1})
    assert first["stop_reason"] == "tool_use"
    result = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": [{"type": "text", "text": "two"}],
    }
    second = ask(
        [
            *messages,
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result]},
        ]
    )
    assert (second["content"][0]["text"], second["stop_reason"]) == ("TWO", "end_turn")
    [row] = rows(episode)
    assert len(row.turns) == 2


def test_a_conversation_may_change_its_wire(episode):
    """The policy is asked the same on each, so that its tokens are trained on once."""
    said = {"role": "user", "content": "hello"}
    _, first = post(episode, "chat/completions", {"messages": [said]})
    reply = {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]}
    more = {"role": "user", "content": "again"}
    _, second = post(episode, "responses", {"input": [said, reply, more]})
    messages = [
        said,
        reply,
        more,
        {"role": "assistant", "content": "AGAIN"},
        {"role": "user", "content": "last"},
    ]
    _, third = post(episode, "messages", {"messages": messages, "max_tokens": 50})
    assert second.json()["output"][0]["content"][0]["text"] == "AGAIN"
    assert third.json()["content"][0]["text"] == "LAST"
    [row] = rows(episode)
    assert len(row.turns) == 3


def test_wishes_are_counted_and_what_is_hosted_is_refused(episode):
    """Forms of the answer are not enforced; a warning of the run names them."""
    user = [{"role": "user", "content": "a"}]
    function = {"type": "function", "function": {"name": "add"}}
    wishes = {"tool_choice": "required", "response_format": {"type": "json_object"}}
    assert (
        post(episode, "chat/completions", {"messages": user, "tools": [function]}, **wishes)[0]
        == 200
    )
    form = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
    assert post(episode, "responses", {"input": "a"}, text=form)[0] == 200
    assert (
        post(
            episode,
            "messages",
            {"messages": user, "tools": [OWN], "max_tokens": 9},
            tool_choice={"type": "any"},
        )[0]
        == 200
    )
    assert episode.ignored == {"tool_choice": 2, "response_format": 2}


HOSTILE = [
    ("responses", {}, "input"),
    ("responses", {"input": 3}, "input"),
    ("responses", {"input": [{"type": "computer_call"}]}, "computer_call"),
    (
        "responses",
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input_image",
    ),
    ("responses", {"input": [{"role": "wizard", "content": "a"}]}, "role"),
    ("responses", {"input": "a", "tools": [{"type": "web_search"}]}, "only functions"),
    ("responses", {"input": "a", "previous_response_id": {}}, "no such response"),
    ("responses", {"input": "a", "text": 3}, "an object"),
    ("messages", {}, "messages"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
    ("messages", {"messages": [{"role": "user", "content": 3}]}, "content"),
    ("messages", {"messages": [{"role": "tool", "content": "a"}]}, "role"),
    (
        "messages",
        {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "bash_20250124"}]},
        "your own",
    ),
    (
        "messages",
        {"messages": [{"role": "user", "content": "a"}], "tool_choice": "any"},
        "tool_choice",
    ),
    (
        "messages",
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        "tool_call_id",
    ),
]


def test_hostile_bodies_cost_one_line_each(episode):
    """In a form that clients of all wires read; nothing is sampled."""
    for wire, body, said in HOSTILE:
        status, answer = post(episode, wire, body)
        assert status == 400, (wire, body, answer.text)
        error = answer.json()
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        assert said in error["error"]["message"], (wire, body, error)
    assert post(episode, "messages", {}, key="wrong")[0] == 401
    assert episode.completions == 0
