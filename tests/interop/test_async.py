"""Async environments behind the trainers' conventions and the service: 8 calls at once, whatever the door."""

import asyncio
import inspect
import json
import pickle

import httpx
import pytest

import rlvr
from rlvr.http.serve import Service, app_of
from rlvr.interop import from_trl, to_openrlhf, to_trl, to_verl
from rlvr.interop.adapter import TASK, task_as_json
from rlvr.interop.openrlhf import remote_reply
from rlvr.records import provenance, record, replay
from rlvr.testing import check
from tests.awaiting import Awaited, most_at_once
from tests.processes import PATIENCE_S

ENV = Awaited()


def sent(index: int) -> dict:
    return {"ground_truth": None, "extra_info": {TASK: task_as_json(ENV.task(index))}}


def test_verl_awaits_its_calls_together(tmp_path):
    """verl asks for one completion at a time; it awaits what `inspect` calls a coroutine function."""
    log = tmp_path / "log"
    with to_verl(ENV, workers=0) as reward:
        compute_score = pickle.loads(pickle.dumps(reward)).acompute_score
        assert inspect.iscoroutinefunction(compute_score)

        async def ask():
            answers = (compute_score("x", f"{i}@together {log} 8", **sent(i)) for i in range(16))
            return await asyncio.gather(*answers)

        replies = asyncio.run(ask())
        assert replies[3] == reward("x", "3", **sent(3))
    assert [reply["score"] for reply in replies] == [1.0] * 16
    assert most_at_once(log) == 8


def test_trl_and_openrlhf_score_a_batch_together(tmp_path):
    tasks = [task_as_json(ENV.task(i)) for i in range(8)]
    said = [f"{i}@together {tmp_path / 'trl'} 8" for i in range(8)]
    with to_trl(ENV, tasks=8, workers=0) as reward:
        assert reward(["?"] * 8, said, **{TASK: tasks}) == [1.0] * 8
    said = [f"Say {i}.{i}@together {tmp_path / 'openrlhf'} 8" for i in range(8)]
    with to_openrlhf(ENV, workers=0) as reward:
        request = {"query": said, "prompts": [f"Say {i}." for i in range(8)], "labels": tasks}
        assert remote_reply(reward.scorer, request)["rewards"] == [1.0] * 8


def test_an_async_reward_function_of_trls_is_awaited():
    """As a part and as a verifier; what it raises is an endpoint's failure, and so ours, unless told otherwise."""

    async def judge(completions, solution, **_):
        await asyncio.sleep(0)
        [text] = [completion[0]["content"] for completion in completions]
        return [{"1": 1.0, "half": 0.5, "none": None}.get(text, "?") if text != "down" else 1 / 0]

    env = rlvr.Environment.from_rows(
        [{"prompt": "?", "reference": "1"}],
        reward=rlvr.Correct(from_trl(judge)) + from_trl(judge, name="part"),
    )
    with rlvr.Scorer(env, workers=0) as scorer:
        scores = scorer.score_group(env.task(0), ["1", "half", "none", "down", "x"])
    assert [score.total for score in scores] == [2.0, 1.0, None, None, None]
    whys = [score.verdict.why for score in scores]
    assert whys[2:4] == [
        "no-opinion: judge gave None",
        "worker-error: ZeroDivisionError: division by zero",
    ]
    assert "is no number in [0, 1]" in whys[4]
    wrong = rlvr.Environment.from_rows(
        [{"prompt": "?", "reference": "1"}], verifier=from_trl(judge, failure="wrong")
    )
    assert wrong.score(wrong.task(0), "down").verdict.reason == "crash"
    forgot = from_trl(lambda completions, **_: judge(completions, None), name="forgot")
    with pytest.raises(rlvr.RewardError, match="a coroutine that was not awaited"):
        forgot.verify("1", "1")


def test_the_service_awaits_requests_together(tmp_path):
    """8 requests of one row each, on one worker."""
    log = tmp_path / "log"

    async def ask(service):
        transport = httpx.ASGITransport(app_of(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            rows = [[{"task": i, "completion": f"{i}@together {log} 8"}] for i in range(8)]
            calls = (client.post("/score", json={"env": "awaited", "rows": one}) for one in rows)
            return await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)

    with Service({"awaited": ENV}, workers=1) as service:
        answers = asyncio.run(ask(service))
    assert [answer.json()["scores"][0]["total"] for answer in answers] == [1.0] * 8


def test_records_of_an_async_environment_replay(monkeypatch):
    monkeypatch.setattr("rlvr.scoring.records.make", lambda name, **config: Awaited(**config))
    run = provenance(ENV, "awaited")
    rows = [{"task": i, "completion": f"{i % 3}"} for i in range(6)]
    records = [json.loads(json.dumps(record(one, run))) for one in rlvr.score(ENV, rows, workers=0)]
    assert list(replay(records, workers=0)) == [[]] * 6


@pytest.mark.slow
def test_an_async_environment_is_checked_as_others_are():
    """In worker processes, in others and in threads."""

    class Exact(Awaited):
        async def verify(self, task, completion):
            await asyncio.sleep(0)
            right = completion.strip() == f"\\boxed{{{task.reference}}}"
            return rlvr.Verdict(
                "correct" if right else "wrong", why="compared", answer=completion[:20]
            )

    report = check(Exact(), tasks=3, skip=("split-overlap",))
    assert not [finding for finding in report.findings if finding.severity == "hole"], (
        report.as_dict()
    )
