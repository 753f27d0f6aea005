"""A library that owns its loop, on our endpoint: its reward is recorded, its failure is UNSCORED."""

import math

import httpx
import pytest

import rlvr
from rlvr.agents import AgentEnv
from rlvr.collect import Groups, Sampling, ScriptedSampler
from rlvr.collect.flight import sample_groups
from rlvr.errors import Unscored
from rlvr.interop.reported import ReportedEnv, report


class Library(ReportedEnv):
    """Asks once, and pays what the policy names."""

    def tasks(self):
        yield rlvr.Task("library/0", "Name a number.")

    async def play(self, call):
        async with httpx.AsyncClient() as client:
            asked = {"model": "m", "messages": [{"role": "user", "content": call.prompt}]}
            key = {"authorization": f"Bearer {call.api_key}"}
            reply = await client.post(f"{call.base_url}/chat/completions", json=asked, headers=key)
        text = reply.json()["choices"][0]["message"]["content"]
        if text == "lost":
            raise Unscored("the library's box is gone")
        if text == "crash":
            raise RuntimeError("the library cannot read it")
        return report(
            None if text == "mute" else float(text), {"named": 0.0}, text, "it wrote none"
        )


@pytest.mark.parametrize(
    ("text", "outcome", "total", "why"),
    [
        ("1", "correct", 1.0, "full-reward"),
        ("0.25", "wrong", 0.25, "reward: 0.25 of 1"),
        ("-3", "wrong", 0.0, "reward: -3 of 1"),
        ("nan", "wrong", 0.0, "no-reward"),
        ("mute", "wrong", 0.0, "no-reward: it wrote none"),
        ("crash", "wrong", 0.0, "agent-failed: RuntimeError"),
        ("lost", "unscored", None, "the library's box is gone"),
    ],
)
def test_what_a_library_reports(text, outcome, total, why):
    door = Library()
    env = AgentEnv(env=door, program=door.play)
    settings = {"sampling": Sampling(max_tokens=100), "group_size": 1}
    with Groups(
        env, ScriptedSampler([text]), scorer=rlvr.Scorer(env, workers=0), **settings
    ) as made:
        [(_, group)] = sample_groups(made, [(0, 0)])
    score = group.rollouts[0].score
    assert (score.verdict.outcome, score.total) == (outcome, total)
    assert why in score.verdict.why


def test_a_recorded_report_is_scored_again_and_a_policys_own_words_are_none():
    door = Library()
    task = door.task(0)
    assert door.score(task, report(1.0, {"named": 1.0}, "1")).total == 1.0
    assert door.score(task, report(0.5, {}, "1")).verdict.value == 0.5
    for text in ("1", '{"reward": 1}', "[]", "{", '{"form": "rlvr-report-0", "reward": 1}'):
        assert door.score(task, text).verdict.why.startswith("no-report")
    assert not math.isnan(door.score(task, report(math.inf, {}, "1")).total)
