"""What an agent asks for as rows: nothing is encoded twice, and no token is trained on twice."""

import itertools

import pytest

from rlvr.agents.conversations import Conversations
from rlvr.agents.messages import assistant_message, read_request
from rlvr.collect import END, Sample, Sampling, ScriptedSampler
from rlvr.http.refused import Refused
from rlvr.types import Outcome, Score, Task, Verdict

SAMPLING = Sampling(max_tokens=50)
SCORE = Score(1.0, {"correct": 1.0}, Verdict(Outcome.CORRECT, why="by hand"))


class Counting(ScriptedSampler):
    """Remembers what was encoded."""

    def __init__(self):
        super().__init__(["x"])
        self.encoded = []

    def encode(self, prompt, after=(), *, tools=()):
        self.encoded.append([message["content"] for message in prompt])
        return super().encode(prompt, after, tools=tools)


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def asked(conversations, sampler, messages, text, logprob=-1.0, tools=()):
    """Ask, and be answered with a text."""
    asking = conversations.begin(sampler, messages, tools)
    ids = [*map(ord, text), END]
    sample = Sample(text, list(asking.context), ids, [logprob] * len(ids), False, 3)
    return conversations.add(asking, assistant_message(said(text)), sample, SAMPLING)


def rollout(conversations):
    return conversations.rollout(Task("t", "p"), SCORE, 0, truncated=False)


def trained(row):
    """The texts that a row is trained on."""
    groups = itertools.groupby(
        zip(row.completion_ids, row.completion_mask, strict=True), key=lambda one: one[1]
    )
    return ["".join(chr(token) for token, _ in part if token != END) for own, part in groups if own]


def test_a_conversation_that_goes_on_is_one_row_and_encodes_what_is_new_alone():
    conversations, sampler = Conversations(), Counting()
    asked(conversations, sampler, [user("a")], "one", -0.5)
    asked(conversations, sampler, [user("a"), said("one"), user("b")], "two", -0.25)
    row = rollout(conversations)
    assert sampler.encoded == [["a"], ["b"]]
    assert (trained(row), row.branches, row.weights_version) == (["one", "two"], (), 3)
    assert sampler.decode(row.prompt_ids) + sampler.decode(row.completion_ids) == (
        "user: a\nassistant: one\nuser: b\nassistant: two"
    )
    at = row.turns[1]
    assert (row.turns[0].start, list(row.behaviour_logprobs[at.start : at.stop])) == (
        0,
        [-0.25] * 4,
    )
    assert row.completion.length_tokens == 8


def test_a_branch_is_a_row_of_its_own_in_which_shared_turns_are_context():
    """Two requests extend the same one: its completion is trained on in the first row alone."""
    conversations, sampler = Conversations(), Counting()
    asked(conversations, sampler, [user("a")], "one")
    asked(conversations, sampler, [user("a"), said("one"), user("b")], "two")
    asked(conversations, sampler, [user("a"), said("one"), user("c")], "three")
    first = rollout(conversations)
    [second] = first.branches
    assert (trained(first), trained(second)) == (["one", "two"], ["three"])
    assert [len(second.turns), len(second.branches)] == [1, 0]
    assert second.completion_ids[:4] == first.completion_ids[:4] == [*map(ord, "one"), END]
    assert sampler.encoded == [["a"], ["b"], ["c"]]
    assert first.completion.length_tokens == 4 + 4 + 6


@pytest.mark.parametrize(
    "messages",
    [
        [user("A"), said("one"), user("b")],  # the beginning is another one
        [user("a"), said("One"), user("b")],  # the policy's own words were changed
        [user("a"), user("b")],  # they were left out
        [{"role": "system", "content": "s"}, user("a"), said("one"), user("b")],
    ],
)
def test_a_rewritten_conversation_begins_another_row(messages):
    """Its tokens are other ones, so nothing of the first row is used; what the agent put in is never trained on."""
    conversations, sampler = Conversations(), Counting()
    asked(conversations, sampler, [user("a")], "one")
    asked(conversations, sampler, messages, "two")
    first = rollout(conversations)
    [second] = first.branches
    assert (trained(first), trained(second)) == (["one"], ["two"])
    assert list(second.prompt_ids) == list(sampler.encode(messages))


def test_other_tools_begin_another_row():
    """The template shows them at the beginning."""

    conversations, sampler = Conversations(), Counting()
    tool = {"type": "function", "function": {"name": "f"}}
    asked(conversations, sampler, [user("a")], "one", tools=[tool])
    asked(conversations, sampler, [user("a"), said("one"), user("b")], "two", tools=[tool])
    assert not rollout(conversations).branches
    asked(conversations, sampler, [user("a"), said("one"), user("b")], "two")
    assert len(rollout(conversations).branches) == 1


def test_replies_come_back_in_other_spellings():
    """Clients add empty fields, drop white space around the text, and send arguments as text or as an object."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    sent = {"role": "assistant", "content": None, "tool_calls": [call]}
    back = {**sent, "content": "", "refusal": None, "audio": None, "function_call": None}
    tool = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "2"}]}
    request = read_request({"messages": [user("a"), back, tool, user("b")]})
    conversations, sampler = Conversations(), Counting()
    asking = conversations.begin(sampler, [user("a")], ())
    sample = Sample(" x ", list(asking.context), [120, END], [-1.0, -1.0], False, 0)
    exchange = conversations.add(asking, assistant_message(sent), sample, SAMPLING)
    found = conversations.begin(sampler, request.messages, ())
    assert found.parent is exchange
    assert found.added == [
        {"role": "tool", "content": "2", "tool_call_id": "1", "name": "f"},
        user("b"),
    ]
    plain = conversations.add(
        conversations.begin(sampler, [user("c")], ()), said(" x\n"), sample, SAMPLING
    )
    assert conversations.begin(sampler, [user("c"), said("x"), user("d")], ()).parent is plain


def test_an_episode_without_a_completion_has_no_tokens():
    row = rollout(Conversations())
    assert (row.prompt_ids, row.completion_ids, row.branches) == ((), (), ())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "messages"),
        ({"messages": [said("x")]}, "end with one of the assistant"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"messages": [user([{"type": "image_url", "image_url": "x"}])]}, "only texts"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"messages": [user("a")], "n": 0}, "n is"),
        ({"messages": [user("a")], "n": True}, "n is"),
        ({"messages": [user("a")], "max_tokens": -1}, "max_tokens"),
        ({"messages": [user("a")], "stop": [""]}, "stop"),
        ({"messages": [user("a")], "tools": [{"type": "function"}]}, "tools"),
        ({"messages": [user("a")], "top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_what_cannot_be_kept_to_is_refused_by_name(body, named):
    with pytest.raises(Refused, match=named) as caught:
        read_request(body)
    assert caught.value.status == 400
