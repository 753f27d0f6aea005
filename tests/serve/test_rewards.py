"""A reward model behind HTTP: what the service answers, and what the part of a reward takes from it."""

import asyncio
import json
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import rlvr
from rlvr.errors import ServiceFailed, UsageError
from rlvr.http.serve import Service, ServiceLimits
from rlvr.scoring.engines import ServedReward, ServedSteps
from tests.environments import Trials
from tests.processes import ROOT
from tests.serve.serving import Call, answering, ask, error, talk


class Letters:
    """The share of the letter a, as a model that is quick and known; it can be told to fail, or to wait."""

    version, reads = "abc123", "completions"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def scores(self, prompts, completions):
        self.batches.append(len(completions))
        self.go_on.wait(60)
        if any(prompt == "fail" for prompt in prompts):
            raise RuntimeError("out of memory at 0x7f")
        if any(prompt == "refuse" for prompt in prompts):
            raise UsageError("the prompt has 9 tokens and the reward model 8 positions")
        if any(prompt == "nan" for prompt in prompts):
            return [math.nan] * len(prompts)
        return [text.count("a") / max(1, len(text)) for text in completions]


def rows(*texts: str, prompt="p") -> list:
    return [{"prompt": prompt, "completion": text} for text in texts]


def lines(answer) -> list:
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def model():
    return Letters()


@pytest.fixture
def service(model):
    with Service({}, reward_model=model) as service:
        yield service
        model.go_on.set()


def test_rows_have_a_line_each(service, model):
    """In order, in batches of at most 64, each with its id; a row that cannot be used hinders no other."""
    assert ask(service, "GET", "/reward-model").json() == {
        "version": "abc123",
        "reads": "completions",
    }
    given = [
        *rows("ab", "\ud800a", ""),
        5,
        {"prompt": [], "completion": "a"},
        {"prompt": "p", "completion": 1},
    ]
    given += [
        {"id": "x", "prompt": [{"role": "user", "content": "p"}], "completion": "a"},
        *rows("a", prompt="refuse"),
    ]
    body = json.dumps({"version": "abc123", "rows": given})
    headers = {"content-type": "application/json"}
    found = lines(ask(service, "POST", "/rewards", content=body, headers=headers))
    assert [one.get("reward") for one in found] == [0.5, 0.5, 0.0, None, None, None, 1.0, None]
    assert [one["id"] for one in found] == [*(f"line:{n}" for n in range(1, 7)), "x", "line:8"]
    assert "9 tokens" in found[7]["error"]
    assert "send a mapping" in found[3]["error"]
    model.batches.clear()
    assert len(lines(ask(service, "POST", "/rewards", json={"rows": rows(*"a" * 130)}))) == 130
    assert model.batches == [64, 64, 2]
    assert "no environment" in error(ask(service, "POST", "/score", json={"rows": []}))
    assert b"rlvr_rewards_total 134" in ask(service, "GET", "/metrics").content


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"rows": rows("a", prompt="fail")}, 500, "RuntimeError"),
        ({"rows": rows("a", prompt="nan")}, 500, "no number in [0, 1]"),
        ({"rows": rows("a"), "version": "other"}, 503, "abc123 and not other"),
        ({"rows": "a"}, 422, "'rows' is a str"),
        ({"rows": rows(*"a" * 9)}, 413, "the limit is 8"),
    ],
)
def test_what_is_refused(model, body, status, said):
    """With the reason, and never with a number."""
    with Service({}, reward_model=model, limits=ServiceLimits(request_rows=8)) as service:
        answer = ask(service, "POST", "/rewards", json=body)
    assert answer.status_code == status
    assert said in error(answer)
    assert "0x7f" not in answer.text


def test_a_service_without_a_reward_model_says_so():
    """And one without anything is none."""
    with Service({"trials": Trials()}, workers=0) as service:
        for method, path in (("GET", "/reward-model"), ("POST", "/rewards")):
            answer = ask(service, method, path, json={"rows": []})
            assert answer.status_code == 404
            assert "--reward-model" in error(answer)
    with pytest.raises(UsageError, match="or give a reward model"):
        Service({})


def test_the_queue_has_an_end_and_a_caller_that_leaves_is_dropped(model):
    """429 beyond the limit; what was not begun when its caller left is never computed; a stop answers 503."""

    async def conversation(client) -> None:
        model.go_on.clear()
        first = Call(service, "/rewards").ask(rows(*"a" * 3))
        while not model.batches:
            await asyncio.sleep(0.001)
        second = Call(service, "/rewards").ask(rows(*"a" * 4))
        while service.reward_queue(None).waiting < 7:
            await asyncio.sleep(0.001)
        full = await client.post("/rewards", json={"rows": rows("a", "a")})
        assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
        second.leave()
        await second.task
        assert service.reward_queue(None).waiting == 3
        service.abort()
        assert await first.status() == 503
        model.go_on.set()
        await first.task
        assert (await client.post("/rewards", json={"rows": rows("a")})).status_code == 200
        assert model.batches == [3, 1]

    with Service(
        {}, reward_model=model, limits=ServiceLimits(queue_rows=8, request_rows=8)
    ) as service:
        talk(service, conversation)


def test_requests_need_the_key(model):
    """As everywhere else."""
    with Service({}, reward_model=model, api_key="sesame-of-sixteen") as service:
        assert ask(service, "POST", "/rewards", json={"rows": []}).status_code == 401
        assert ask(service, "GET", "/reward-model").status_code == 401


# ----------------------------------------------------------------------------- the part of a reward


def given(env: rlvr.Environment, *texts: str) -> list[rlvr.Score]:
    return [
        one.score
        for one in rlvr.score(env, [{"task": 7, "completion": text} for text in texts], workers=0)
    ]


def test_the_part_adds_what_the_service_says():
    """Weighted, in bounds, and never a verdict; the group in one request, or in several where it is large."""
    with answering() as (url, state):
        part = ServedReward(url, patience_s=0)
        env = Trials()
        env = env.with_reward(env.reward + 0.5 * part.clip(0, 0.2))
        assert str(part) == "learned(version='v1')"
        scores = given(env, "7", "a", "aaaa")
        assert [one.parts["learned"] for one in scores] == [0.0, 0.05, 0.2]
        assert [one.total for one in scores] == [1.0, 0.05, 0.1]
        assert [one.verdict.correct for one in scores] == [True, False, False]
        task = rlvr.Task("t", "p", "r")
        assert part.values([rlvr.Completion("a" * (n % 3)) for n in range(600)], [], task)[:3] == [
            0.0,
            0.1,
            0.2,
        ]
        assert state.asked == [3, 256, 256, 88]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b'{"id": "1", "reward": 0.5}\n', "the row '1' where '0' was due"),
        (200, b'{"id": "0", "reward": 1.5}\n', "not a number in [0, 1]"),
        (200, b'{"id": "0", "reward": -0.1}\n', "not a number in [0, 1]"),
        (200, b'{"id": "0", "reward": NaN}\n', "not a number in [0, 1]"),
        (200, b'{"id": "0", "reward": true}\n', "not a number in [0, 1]"),
        (200, b'{"id": "0", "reward": "0.5"}\n', "not a number in [0, 1]"),
        (200, b'{"id": "0", "error": "no"}\n', "cannot read the row: no"),
        (
            200,
            b'{"id": "0", "reward": 0.5}\n{"id": "1", "reward": 0.5}\n',
            "more lines than the 1 rows",
        ),
        (200, b"", "0 lines for 1 rows"),
        (200, b"<html>\n", "not that of rlvr serve"),
        (500, b"sesame", "status 500: …"),
        (401, b'{"error": "wants its key"}', "wants its key"),
    ],
)
def test_an_answer_that_is_none_leaves_the_group_unscored(status, body, said, monkeypatch):
    """With the reason, in which no key stands; and the next group is scored again."""
    monkeypatch.setenv("RLVR_API_KEY", "sesame")
    with answering() as (url, state):
        env = Trials()
        env = env.with_reward(env.reward + ServedReward(url, patience_s=0))
        state.next = [(status, body)]
        [score] = given(env, "7")
        assert (score.total, score.verdict.outcome) == (None, rlvr.Outcome.UNSCORED)
        assert said in score.verdict.why
        assert "sesame" not in f"{score}{env.reward}"
        assert state.keys == ["Bearer sesame"] * len(state.keys)
        [score] = given(env, "7")
        assert score.total == 1.0


class Steps(Letters):
    """The same of each step; "short" forgets one, and "nan" has no number."""

    reads = "steps"

    def step_scores(self, prompt, steps):
        found = self.scores([prompt] * len(steps), steps)
        return found[1:] if prompt == "short" else found


def test_a_process_reward_model_gives_a_number_for_each_step():
    """Rows have steps instead of a completion; one that has none is told so beside the others."""
    with Service({}, reward_model=Steps()) as service:
        assert ask(service, "GET", "/reward-model").json()["reads"] == "steps"
        given = [
            {"prompt": "p", "steps": ["ab", "a"]},
            *rows("a"),
            {"prompt": "p", "steps": []},
            {"prompt": "p", "steps": [1]},
        ]
        found = lines(ask(service, "POST", "/rewards", json={"rows": given}))
        assert [one.get("rewards") for one in found] == [[0.5, 1.0], None, None, None]
        assert all("judges the steps" in one["error"] for one in found[1:])
        for prompt in ("short", "nan"):
            bad = {"rows": [{"prompt": prompt, "steps": ["a", "b"]}]}
            answer = ask(service, "POST", "/rewards", json=bad)
            assert (answer.status_code, "for each of the steps" in error(answer)) == (500, True)


@pytest.mark.parametrize("body", [b'{"id": "0", "rewards": 1}', b'{"id": "0", "rewards": [0, 2]}'])
def test_steps_are_asked_for_at_an_address(body):
    """What is no number in [0, 1] is our fault; a model of the other kind is refused at once."""
    task = rlvr.Task("t", "p")
    with answering() as (url, state):
        with pytest.raises(UsageError, match="judges completions, and steps are to be judged"):
            ServedSteps(url)
        state.reads = "steps"
        assert ServedSteps(url)(task, ["a", "b", "aa"]) == [0.1, 0.0, 0.2]
        with pytest.raises(UsageError, match="judges steps, and completions are to be judged"):
            ServedReward(url)
        asked = ServedSteps(url, patience_s=0)
        state.next = [(200, body + b"\n")]
        with pytest.raises(ServiceFailed):
            asked(task, ["a", "b"])


def test_another_model_by_now_is_no_score():
    """The services were started anew with a model that was trained since: its numbers are not mixed with the others."""
    with answering() as (url, state):
        env = Trials()
        env = env.with_reward(env.reward + ServedReward(url, patience_s=0.2))
        state.version = "v2"
        [score] = given(env, "7")
        assert score.total is None
        assert "another model" in score.verdict.why
        with answering() as (other, _), pytest.raises(UsageError, match="different reward models"):
            ServedReward(f"{url},{other}")


def test_a_request_is_sent_again_and_a_dead_service_is_asked_once():
    """503 is passed; a service that is gone costs its patience once, not once per group."""
    with answering() as (url, state):
        env = Trials()
        part = ServedReward(url, patience_s=1.5)
        env = env.with_reward(env.reward + part)
        state.next = [(503, b'{"error": "stopping"}')] * 2
        assert [one.total for one in given(env, "7")] == [1.0]
        state.next = [(503, b'{"error": "stopping"}')] * 40
        assert [one.total for one in given(env, "7")] == [None]
        left = len(state.next)
        assert 0 < left < 39
        assert [one.total for one in given(env, "7")] == [None]
        assert len(state.next) == left - 1
        state.next.clear()
        assert [one.total for one in given(env, "7")] == [1.0]


def test_a_service_that_answers_with_its_failure_keeps_its_patience():
    """It is there: the fault may be that of one row, and the next group's requests are sent again as ever."""
    with answering() as (url, state):
        env = Trials()
        env = env.with_reward(env.reward + ServedReward(url, patience_s=0.2))
        state.next = [
            (500, b'{"error": "the reward model failed"}'),
            (503, b'{"error": "stopping"}'),
        ]
        assert [one.total for one in given(env, "7")] == [None]
        assert [one.total for one in given(env, "7")] == [1.0]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://any:sesame@127.0.0.1:1", "set RLVR_API_KEY"),
        ("127.0.0.1:1", "no scheme"),
        ("", "there is no url"),
        (5, "no text"),
    ],
)
def test_addresses_that_are_none(url, said):
    """Refused by name, and without the key."""
    with pytest.raises(UsageError, match=said) as found:
        ServedReward(url)
    assert "sesame" not in str(found.value)


def test_a_service_that_is_not_there_or_something_else_is_refused_at_once():
    """Before a run begins, with the command that starts one."""
    with answering() as (url, state):
        state.next = [(200, b'{"hello": 1}'), (404, b'{"error": "there is no reward model"}')]
        with pytest.raises(UsageError, match="does not say which reward model"):
            ServedReward(url)
        with pytest.raises(UsageError, match=f"{url}: there is no reward model"):
            ServedReward(url)
    with pytest.raises(ServiceFailed, match="rlvr serve --reward-model"):
        ServedReward("http://127.0.0.1:1")


def test_threads_share_the_connections():
    """Groups are scored in the collector's threads."""
    with answering() as (url, _), ThreadPoolExecutor(8) as threads:
        part, task = ServedReward(url), rlvr.Task("t", "p", "r")
        found = list(
            threads.map(
                lambda n: part.values([rlvr.Completion("a" * (n % 5))], [], task), range(60)
            )
        )
    assert found == [[n % 5 / 10] for n in range(60)]


def test_scoring_with_the_endpoint_needs_no_torch():
    """Neither the process that puts scores together nor its workers."""
    code = """
import sys
import rlvr
from rlvr.scoring.engines import ServedReward
from tests.environments import Trials

class NoTorch(Trials):
    def verify(self, task, completion):
        assert "torch" not in sys.modules
        return super().verify(task, completion)

env = NoTorch()
env = env.with_reward(env.reward + 0.5 * ServedReward(sys.argv[1]))
rows = [{"task": 7, "completion": text} for text in ("7", "aa")]
print([one.score.total for one in rlvr.score(env, rows, workers=1)], "torch" in sys.modules)
"""
    with answering() as (url, _):
        found = subprocess.run(
            [sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert found.stdout == "[1.0, 0.1] False\n"
