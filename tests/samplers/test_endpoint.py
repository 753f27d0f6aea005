"""Completions from an endpoint that is slow, limits, fails, cuts off, hangs, or answers in another shape."""

import time

import pytest

from rlvr.collect.evaluation import evaluate
from rlvr.errors import SamplingFailed, ServiceFailed, UsageError
from rlvr.samplers.endpoint import EndpointSampler
from rlvr.samplers.protocol import Request, Sample, Sampler, Sampling, replies
from rlvr.types import Group, Outcome
from tests.collect.collecting import Count, Inline
from tests.endpoint import endpoint, refused, reply, said
from tests.environments import Words

KEY = "sk-a-secret-of-the-test"


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv(
        "OPENAI_ORG_ID", "another"
    )  # of another endpoint, which is not this one's business


def ask(sampler, *prompts, limit=50, **sampling):
    """The results of some prompts, in their order."""
    asked = Sampling(max_tokens=limit, **sampling)
    for number, prompt in enumerate(prompts):
        sampler.submit(Request(number, tuple(sampler.encode(prompt)), asked, 2**40 + number, limit))
    found = {}
    while len(found) < len(prompts):
        found |= dict(sampler.poll())
    return [found[number] for number in range(len(prompts))]


def sampler_of(served, **settings):
    return EndpointSampler(served.url, "toy", **({"key_env": "TEST_KEY", "retries": 3} | settings))


def test_texts_go_out_and_come_back():
    """As chat messages, with the settings of sampling; the key travels in its header and is in no body."""
    with (
        endpoint(lambda number, body: said(body["messages"][-1]["content"] + "!")) as served,
        sampler_of(served) as sampler,
    ):
        assert isinstance(sampler, Sampler)
        system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "b"}]
        first, second = ask(sampler, "a b c", system, top_p=0.9, stop=["\n"])
    assert (first.text, len(first.completion_ids), first.truncated) == ("a b c!", 3, False)
    assert (second.text, sampler.decode(second.completion_ids)) == ("b!", "b!")
    body = served.bodies[0 if served.bodies[0]["messages"][0]["content"] == "a b c" else 1]
    assert body == {
        "model": "toy",
        "messages": [{"role": "user", "content": "a b c"}],
        "temperature": 1.0,
        "top_p": 0.9,
        "stop": ["\n"],
        "seed": 0,
        "max_tokens": 50,
    }
    assert set(served.keys) == {f"Bearer {KEY}"}
    assert set(served.paths) == {"/v1/chat/completions"}


def test_the_completions_api_continues_texts():
    """The prompt as it is; parameters can be added and left out."""
    answer = {"choices": [{"text": " world", "finish_reason": "length"}]}
    with endpoint(lambda number, body: answer) as served:
        settings = {"api": "completions", "body": {"echo": False, "seed": None}, "key_env": None}
        with sampler_of(served, **settings) as sampler:
            [sample] = ask(sampler, "Hello", top_k=5)
            with pytest.raises(UsageError, match="takes texts"):
                sampler.encode([{"role": "user", "content": "b"}])
    assert (sample.text, sample.truncated) == (" world", True)
    assert served.paths == ["/v1/completions"]
    assert served.bodies[0] | {"prompt": "Hello", "echo": False, "top_k": 5} == served.bodies[0]
    assert "seed" not in served.bodies[0]


def test_no_more_are_asked_at_once_than_were_allowed():
    """Two of six, though each takes a while."""

    def slow(number, body):
        time.sleep(0.05)
        return said("1")

    with endpoint(slow) as served, sampler_of(served, in_flight=2) as sampler:
        assert all(isinstance(sample, Sample) for sample in ask(sampler, *"abcdef"))
    assert served.busiest <= 2


def cut(handler):
    reply(handler, 200, said("1"), cut=5)


@pytest.mark.parametrize(
    "trouble",
    [
        refused(429, "slow down", Retry_After="0.1"),
        refused(503, "overloaded"),
        cut,
        lambda handler: reply(handler, 200, "<html>gateway</html>"),
        {"error": {"message": "upstream failed"}},
    ],
    ids=["limited", "failed", "cut", "html", "error in 200"],
)
def test_what_passes_is_asked_again(trouble):
    """Every other request meets it."""
    with (
        endpoint(lambda number, body: said("1") if number % 2 else trouble) as served,
        sampler_of(served) as sampler,
    ):
        [sample] = ask(sampler, "a")
    assert sample.text == "1"
    assert len(served.bodies) == 2


def test_a_limit_is_waited_for_while_others_get_through():
    """The second prompt is limited more often than it may be asked again; it has its turn in the end."""
    limited = []

    def handle(number, body):
        if body["messages"][0]["content"] == "b" and len(limited) < 3:
            limited.append(number)
            return refused(429, "slow down", Retry_After="0.01")
        time.sleep(0.05)
        return said("1")

    with endpoint(handle) as served, sampler_of(served, retries=1, in_flight=2) as sampler:
        assert [sample.text for sample in ask(sampler, "b", *"a" * 40)] == ["1"] * 41
    assert len(limited) == 3


def test_one_that_hangs_fails_alone():
    """It has a limit of time; the other one's answer is there."""

    def handle(number, body):
        return (
            (lambda handler: handler.hang(30))
            if body["messages"][0]["content"] == "hang"
            else said("1")
        )

    with endpoint(handle) as served, sampler_of(served, retries=0, timeout_s=0.5) as sampler:
        lost, sample = ask(sampler, "hang", "a")
    assert isinstance(lost, SamplingFailed)
    assert "no answer within 0.5 s" in str(lost)
    assert sample.text == "1"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"choices": []}, "no choices"),
        ({"choices": [{"message": None}]}, "dict"),
        ({"choices": [{"message": {"content": 3}}]}, "dict"),
        ([1, 2], "list [1, 2]"),
        (lambda handler: reply(handler, 200, "<html>login</html>"), "login"),
        (
            lambda handler: reply(handler, 422, {"detail": [{"msg": f"bad seed {KEY}"}]}),
            "bad seed [key]",
        ),
        (refused(400, "too long"), "too long"),
    ],
)
def test_another_shape_fails_in_one_line(answer, says):
    """It says what came, and the others go on."""
    with (
        endpoint(lambda number, body: said("1") if number == 0 else answer) as served,
        sampler_of(served, retries=1) as sampler,
    ):
        ask(sampler, "a")
        [lost] = ask(sampler, "b")
    assert isinstance(lost, SamplingFailed)
    assert says in str(lost)
    assert "\n" not in str(lost)
    assert KEY not in str(lost)


def test_answers_may_lack_and_have_more():
    """Parts of texts; only reasoning; a refusal; no usage, or one that no list could hold."""
    answers = [
        said(
            [{"type": "text", "text": "1"}, {"type": "image"}, {"type": "text", "text": "2"}],
            tokens=1,
        ),
        said(None, "length", reasoning_content="hmm"),
        said(None, refusal="I will not."),
        {"choices": [{"message": {"content": "abcd" * 5}}]},
        said("1", tokens=10**15),
    ]
    with (
        endpoint(lambda number, body: answers[int(body["messages"][0]["content"])]) as served,
        sampler_of(served) as sampler,
    ):
        samples = ask(sampler, *"01234")
    assert [sample.text for sample in samples] == ["12", "", "I will not.", "abcd" * 5, "1"]
    assert [len(sample.completion_ids) for sample in samples] == [1, 1, 1, 5, 50]
    assert samples[1].truncated
    assert samples[1].completion_ids[0].reply.reasoning == "hmm"


def test_a_newer_name_of_the_limit_is_learnt():
    """OpenAI's newer models take max_completion_tokens."""

    def handle(number, body):
        if "max_tokens" in body:
            return refused(
                400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            )
        return said("1")

    with endpoint(handle) as served, sampler_of(served) as sampler:
        assert [sample.text for sample in ask(sampler, *"abc")] == ["1"] * 3
    assert served.bodies[-1]["max_completion_tokens"] == 50


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_concerns_all_requests_is_raised(status):
    """With the name of the variable and of the model, and without the key, though the endpoint repeats it."""
    with (
        endpoint(lambda number, body: refused(status, f"no {KEY}")) as served,
        sampler_of(served) as sampler,
        pytest.raises(UsageError, match=r"model 'toy'; the variable TEST_KEY") as error,
    ):
        ask(sampler, "a", "b")
    assert KEY not in str(error.value)


def test_an_endpoint_that_is_not_there_is_said_soon():
    """Not after all retries of all requests."""
    with endpoint(lambda number, body: said("1")) as served:
        pass
    began = time.monotonic()
    with (
        sampler_of(served, retries=9) as sampler,
        pytest.raises(ServiceFailed, match="cannot be reached"),
    ):
        ask(sampler, "a")
    assert time.monotonic() - began < 10


def test_an_endpoint_that_ends_is_given_up():
    """After as many failures in a row."""
    with (
        endpoint(lambda number, body: said("1") if number < 3 else refused(500, "dead")) as served,
        sampler_of(served, retries=0, in_flight=1) as sampler,
        pytest.raises(ServiceFailed, match=r"16 requests in a row failed.*dead"),
    ):
        ask(sampler, *"a" * 40)
    assert len(served.bodies) == 3 + 16


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "localhost:8000"}, "write where its API begins"),
        ({"url": f"https://me:{KEY}@host/v1"}, "password"),
        ({"key_env": KEY}, "not set or empty"),
        ({"key_env": "NO_SUCH_KEY"}, "'NO_SUCH_KEY'"),
        ({"model": ""}, "model"),
        ({"in_flight": 0}, "in_flight"),
        ({"api": "responses"}, "api"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_settings_that_cannot_work(settings, says):
    """Before anything is asked, and without the key."""
    with pytest.raises(UsageError, match=says) as error:
        EndpointSampler(**({"url": "http://127.0.0.1:1/v1", "model": "toy"} | settings))
    assert KEY not in str(error.value)


def test_a_whole_evaluation():
    """One task's request is refused: its rollouts are UNSCORED, with the reason, and in no metric."""

    def handle(number, body):
        word = body["messages"][0]["content"][4:-1]
        return refused(400, "filtered") if word == "train-1" else said(word)

    groups: dict[int, Group] = {}
    env = Words()
    with endpoint(handle) as served, sampler_of(served) as sampler:
        report = evaluate(
            env,
            sampler,
            sampling=Sampling(max_tokens=9),
            n=2,
            scorer=Inline(env),
            on_group=groups.__setitem__,
        )
    assert report.metrics["avg@2"].value == 1.0
    assert [task.unscored for task in report.tasks] == [0, 2, 0]
    verdict = groups[1].rollouts[0].score.verdict
    assert verdict.outcome is Outcome.UNSCORED
    assert verdict.why.startswith("sampling-failed: ")
    assert "filtered" in verdict.why
    assert [reply.completion_tokens for reply in replies(groups[0].rollouts[0])] == [1]


def test_episodes_of_several_turns():
    """Each turn sends the conversation so far; tokens are those that the endpoint counts."""
    rollouts = []

    def handle(number, body):
        return said(str((len(body["messages"]) + 1) // 2), tokens=2)

    with endpoint(handle) as served, sampler_of(served) as sampler:
        evaluate(
            Count(),
            sampler,
            sampling=Sampling(max_tokens=100),
            limit=6,
            on_group=lambda index, group: rollouts.extend(group.rollouts),
        )
    assert {rollout.score.verdict.why for rollout in rollouts} == {"counted"}
    assert {len(rollout.turns) for rollout in rollouts} == {1, 2, 3}
    longest = max(served.bodies, key=lambda body: len(body["messages"]))["messages"]
    assert [message["content"] for message in longest] == ["To 3.", "1", "On!", "2", "On!"]
    assert [message["role"] for message in longest] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    for rollout in rollouts:
        assert len(replies(rollout)) == len(rollout.turns) == rollout.completion.length_tokens / 2
