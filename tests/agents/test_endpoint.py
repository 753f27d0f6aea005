"""The endpoint, asked by the `openai` client."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from rlvr.agents import AgentEndpoint
from rlvr.collect import END, Sampling, ScriptedSampler
from rlvr.errors import SamplingFailed, UsageError
from rlvr.types import Outcome, Score, Task, Verdict

SCORE = Score(1.0, {"correct": 1.0}, Verdict(Outcome.CORRECT, why="by hand"))


def echo(context, number, seed):
    """The last message of the user, in capitals."""
    return context.rpartition("user: ")[2].partition("\n")[0].upper()


@pytest.fixture(scope="module")
def endpoint():
    with AgentEndpoint(ScriptedSampler(echo, logprobs=-0.5)) as made:
        yield made


@pytest.fixture
def episode(endpoint):
    with endpoint.open(sampling=Sampling(max_tokens=100), max_requests=4) as made:
        yield made


def client(episode, **more):
    return openai.OpenAI(
        **{"base_url": episode.base_url, "api_key": episode.api_key, "max_retries": 0, **more}
    )


def ask(made, *messages, **more):
    return made.chat.completions.create(model="any", messages=[*messages], **more)


def user(text):
    return {"role": "user", "content": text}


def rows(episode):
    episode.close()
    first = episode.rollout(Task("t", "p"), SCORE)
    return [first, *first.branches]


def test_a_conversation_of_the_openai_client_is_one_row(episode):
    """Its own message objects go back; ids and log-probabilities are those of the sampler."""
    with client(episode) as made:
        first = ask(made, user("abc"), logprobs=True)
        [choice] = first.choices
        assert (choice.message.content, choice.finish_reason) == ("ABC", "stop")
        assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (
            len("user: abc\nassistant: "),
            4,
        )
        assert [one.logprob for one in choice.logprobs.content] == [-0.5] * 4
        ask(made, user("abc"), choice.message, user("de"))
    assert (episode.answer, episode.completions, episode.tokens) == ("DE", 2, 7)
    [row] = rows(episode)
    assert [row.completion_ids[turn.start : turn.stop] for turn in row.turns] == [
        [*map(ord, "ABC"), END],
        [*map(ord, "DE"), END],
    ]
    assert sum(row.behaviour_logprobs) == -0.5 * 7


def test_a_stream_has_the_same_tokens(episode):
    with client(episode) as made:
        pieces = list(ask(made, user("abc"), stream=True, stream_options={"include_usage": True}))
        text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
        assert (text, pieces[-2].choices[0].finish_reason, pieces[-1].usage.completion_tokens) == (
            "ABC",
            "stop",
            4,
        )
        ask(
            made, user("abc"), {"role": "assistant", "content": text}, user("de"), stream=True
        ).close()
        deadline = time.monotonic() + 30
        while episode.completions < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(rows(episode)) == 1


def test_several_choices_and_parallel_requests_are_rows(endpoint):
    with endpoint.open(
        sampling=Sampling(max_tokens=1000), max_requests=20, request_tokens=20
    ) as episode:
        with client(episode) as made, ThreadPoolExecutor(8) as pool:
            assert [one.message.content for one in ask(made, user("x"), n=2).choices] == ["X", "X"]
            texts = [f"question {i}" for i in range(16)]
            found = list(
                pool.map(lambda text: ask(made, user(text)).choices[0].message.content, texts)
            )
        assert found == [text.upper() for text in texts]
        made = rows(episode)
    assert len(made) == 18
    assert all(all(row.completion_mask) for row in made)


def test_episodes_side_by_side_do_not_mix(endpoint):
    opened = [endpoint.open(sampling=Sampling(max_tokens=100), max_requests=4) for _ in range(8)]

    def run(number):
        with client(opened[number]) as made:
            first = ask(made, user(f"n{number}")).choices[0].message
            return ask(made, user(f"n{number}"), first, user("go on")).choices[0].message.content

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == ["GO ON"] * 8
    texts = [rows(one)[0].text for one in opened]
    assert [text.partition("\n")[0] for text in texts] == [f"N{i}" for i in range(8)]


def test_a_key_holds_for_its_open_episode_alone(endpoint, episode):
    with (
        client(episode, api_key="guessed") as made,
        pytest.raises(openai.AuthenticationError, match="no"),
    ):
        ask(made, user("x"))
    with client(episode) as made:
        assert [one.id for one in made.models.list()] == ["policy"]
        with pytest.raises(openai.NotFoundError, match="chat/completions"):
            made.completions.create(model="any", prompt="x")
        with pytest.raises(UsageError, match="still open"):
            episode.rollout(Task("t", "p"), SCORE)
        episode.close()
        with pytest.raises(openai.AuthenticationError, match="over"):
            ask(made, user("x"))
    assert episode.completions == 0


def test_a_key_may_come_in_the_url_alone(endpoint, episode):
    """For agents that take a base URL and nothing else; as `rlvr serve` takes it."""
    import httpx

    url = episode.base_url.replace("http://", f"http://agent:{episode.api_key}@")
    answer = httpx.post(f"{url}/chat/completions", json={"messages": [user("x")]})
    assert answer.json()["choices"][0]["message"]["content"] == "X"


def test_limits_of_an_episode_are_said_and_truncate_it(endpoint):
    """A completion is cut at the episode's last token; then, and after the last request, the agent is told to end."""
    with (
        endpoint.open(sampling=Sampling(max_tokens=6), max_requests=3) as episode,
        client(episode) as made,
    ):
        assert ask(made, user("abc"), max_tokens=2).choices[0].finish_reason == "length"
        assert ask(made, user("abcdefgh")).choices[0].message.content == "ABCD"
        with pytest.raises(openai.BadRequestError, match="6 tokens"):
            ask(made, user("x"))
        with pytest.raises(openai.BadRequestError, match="3 completions"):
            ask(made, user("x"))
        assert (episode.truncated, episode.tokens, episode.never_ends) == (True, 6, False)
        assert all(row.truncated for row in rows(episode))


def test_parallel_requests_never_take_more_than_the_episode_has(endpoint):
    """Each holds what it may need, so the others wait."""
    with (
        endpoint.open(sampling=Sampling(max_tokens=9), max_requests=9) as episode,
        client(episode) as made,
    ):
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(ask, made, user("abc")) for _ in range(4)]
        errors = [one.exception() for one in found]
        assert sum(isinstance(error, openai.BadRequestError) for error in errors) == 1
        assert (episode.tokens, errors.count(None)) == (9, 3)


def test_a_conversation_longer_than_the_model_is_refused_by_its_usual_name(endpoint):
    class Short(ScriptedSampler):
        positions = 30

    with (
        AgentEndpoint(Short(["ok"])) as made,
        made.open(sampling=Sampling(max_tokens=100)) as episode,
    ):
        with client(episode) as asking:
            assert ask(asking, user("x")).choices[0].message.content == "ok"
            with pytest.raises(openai.BadRequestError, match="30 positions") as caught:
                ask(asking, user("x" * 30))
        assert (caught.value.code, episode.truncated) == ("context_length_exceeded", True)


def test_settings_that_training_has_to_know_are_the_runs(endpoint, episode):
    """A temperature is ignored, and counted; stop texts and fewer tokens are the agent's to ask for."""
    with client(episode) as made:
        assert (
            ask(made, user("abc"), temperature=0, top_p=0.1, stop="C").choices[0].message.content
            == "AB"
        )
    assert dict(episode.ignored) == {"temperature": 1, "top_p": 1}


def test_seeds_do_not_depend_on_the_order_of_requests(endpoint):
    """The same request asked twice gets two seeds; the same two in another episode with this key get the same two."""
    seeds = ScriptedSampler(lambda context, number, seed: str(seed))
    with AgentEndpoint(seeds) as made:
        found = []
        for texts in (("a", "b", "a"), ("a", "a", "b")):
            with (
                made.open(sampling=Sampling(max_tokens=200), seed_key=("s", 1)) as episode,
                client(episode) as asking,
            ):
                found.append(
                    sorted(ask(asking, user(text)).choices[0].message.content for text in texts)
                )
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


class Slow(ScriptedSampler):
    """Finishes nothing before it is let."""

    def __init__(self):
        super().__init__(["done"])
        self.let, self.aborted = threading.Event(), []

    def poll(self):
        return super().poll() if self.let.wait(0.01) else []

    def abort(self, ids):
        self.aborted += ids
        super().abort(ids)


def test_an_agent_that_leaves_or_is_ended_takes_its_requests_with_it():
    sampler = Slow()
    with AgentEndpoint(sampler) as made:
        with made.open(sampling=Sampling(max_tokens=9)) as episode:
            with client(episode, timeout=0.3) as asking, pytest.raises(openai.APITimeoutError):
                ask(asking, user("x"))
            assert episode.own_s < 30
            with ThreadPoolExecutor(1) as pool, client(episode) as asking:
                late = pool.submit(ask, asking, user("y"))
                while len(sampler._requests) == 0 or not episode.pending:
                    time.sleep(0.01)
                assert episode.own_s == 0  # it waits for the policy
                episode.close()
                with pytest.raises(openai.AuthenticationError, match="over"):
                    late.result()
        made.settle()
        assert (len(sampler.aborted), sampler._requests) == (2, {})
        assert rows(episode)[0].completion_ids == ()


TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_come_and_go_as_the_client_has_them(stream):
    """The tools stand in the prompt; a call in the policy's text is one for the agent; its reply is context."""
    said = ['Hm. <tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>', "It is 3."]
    sampler = ScriptedSampler(lambda context, number, seed: said["tool: " in context])
    with AgentEndpoint(sampler) as made, made.open(sampling=Sampling(max_tokens=500)) as episode:
        with client(episode) as asking:
            [choice] = (answer := ask(asking, user("1 + 2?"), tools=[TOOL], stream=stream)) and (
                [joined(answer)] if stream else answer.choices
            )
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Hm.")
            [call] = choice.message.tool_calls
            assert (call.function.name, call.function.arguments, len(call.id)) == (
                "add",
                '{"x": 1}',
                9,
            )
            reply = {"role": "tool", "tool_call_id": call.id, "content": "3"}
            last = ask(asking, user("1 + 2?"), choice.message, reply, tools=[TOOL])
            assert (last.choices[0].message.content, last.choices[0].finish_reason) == (
                "It is 3.",
                "stop",
            )
        [row] = rows(episode)
    assert "tools: add" in sampler.decode(row.prompt_ids)
    assert [
        sampler.decode(row.completion_ids[turn.start : turn.stop]) for turn in row.turns
    ] == said
    assert "tool: 3" in row.text


def joined(stream):
    """The pieces of a stream as the choice that they make, with the client's own accumulation of calls."""
    from openai.types.chat.chat_completion import Choice

    message, reason = {"role": "assistant", "content": "", "tool_calls": []}, None
    for piece in stream:
        [choice] = piece.choices
        message["content"] += choice.delta.content or ""
        message["tool_calls"] += [
            one.model_dump(exclude={"index"}) for one in choice.delta.tool_calls or ()
        ]
        reason = choice.finish_reason or reason
    return Choice.model_validate({"index": 0, "finish_reason": reason, "message": message})


def test_a_call_that_cannot_be_read_is_the_text_that_it_is():
    broken = '<tool_call>{"name": "add", "argum</tool_call>'
    sampling = Sampling(max_tokens=99)
    with (
        AgentEndpoint(ScriptedSampler([broken])) as made,
        made.open(sampling=sampling) as it,
        client(it) as asking,
    ):
        [choice] = ask(asking, user("x"), tools=[TOOL]).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (
        broken,
        None,
        "stop",
    )


def test_what_the_sampler_cannot_do_is_the_servers_error():
    """One completion that failed is told to its agent; a sampler that raises ends all, and the collector gets it."""

    class Failing(ScriptedSampler):
        mode = "one"

        def poll(self):
            if self.mode == "all":
                raise RuntimeError("no memory")
            return [(name, SamplingFailed("a dead engine")) for name, _ in super().poll()]

    sampler = Failing(["x"])
    with AgentEndpoint(sampler) as made, made.open(sampling=Sampling(max_tokens=9)) as episode:
        with client(episode) as asking:
            with pytest.raises(openai.InternalServerError, match="a dead engine"):
                ask(asking, user("x"))
            assert (str(episode.failed), made.error) == ("a dead engine", None)
            sampler.mode = "all"
            for _ in range(2):
                with pytest.raises(openai.InternalServerError, match="no memory"):
                    ask(asking, user("x"))
        assert str(made.error) == "no memory"
        with pytest.raises(RuntimeError, match="no memory"):
            made.open(sampling=Sampling(max_tokens=9))


def test_hostile_bodies_cost_an_error_each(endpoint, episode):
    """Whatever is sent with a key, the endpoint goes on."""
    import httpx

    url, head = (
        f"{episode.base_url}/chat/completions",
        {"authorization": f"Bearer {episode.api_key}"},
    )
    deep = b'{"messages": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    many = b'{"messages": [' + b"{}," * 210_000 + b"{}]}"
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"messages": null}',
        deep,
        many,
        b'{"messages": [{"role": ["a"]}]}',
    ):
        answer = httpx.post(url, content=body, headers={**head, "content-type": "application/json"})
        assert 400 <= answer.status_code < 500, body[:20]
        assert answer.json()["error"]["message"]
    assert (
        httpx.post(url, content=b"{}", headers=head).status_code == 415
    )  # as a web page could send it
    assert httpx.post(f"{episode.base_url}/x", json={}, headers=head).status_code == 404
    lone = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    assert (
        httpx.post(
            url, content=lone, headers={**head, "content-type": "application/json"}
        ).status_code
        == 200
    )
