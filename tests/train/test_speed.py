"""A dry run answers soon: completions are cut at a time, and the forecast follows from what was measured."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlvr.collect import Sampling
from rlvr.errors import SamplingFailed
from rlvr.samplers.protocol import Request, Sample
from rlvr.train.config import Config
from rlvr.train.dry_run import speed_lines
from rlvr.train.policy import Policy
from rlvr.train.speed import CutSampler, Speed, _count_passed, measure_speed
from rlvr.train.tiny import tiny
from rlvr.types import Group, Rollout, Task

PROMPT = (1, 2, 3)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(*tiny("0123456789+= ", hidden=16, layers=1, heads=2, max_length_tokens=4096))


def requests(count: int, limit: int) -> list[Request]:
    sampling = Sampling(max_tokens=limit, temperature=1.0)
    return [Request(i, PROMPT, sampling, seed=i, limit=limit, rollout=i) for i in range(count)]


def test_what_is_under_way_when_the_time_is_over_comes_truncated(policy, monkeypatch):
    """With its tokens so far, which are those of an uncut completion; a later request fails."""
    policy.tokenization.end_ids = frozenset()  # nothing ends by itself
    clock = [0.0]
    monkeypatch.setattr("rlvr.train.speed.time.monotonic", lambda: clock[0])
    whole, cut = policy.sampler(), CutSampler(policy.sampler(), budget_s=5.0)
    for one in requests(3, 40):
        whole.submit(one)
        cut.submit(one)
    expected = {}
    while len(expected) < 3:
        expected |= dict(whole.poll())
    for _ in range(7):
        assert cut.poll() == []
    clock[0] = 5.0
    found = dict(cut.poll())
    assert cut.cut == 3
    assert cut.tokens == 21
    for name, sample in found.items():
        assert isinstance(sample, Sample)
        assert sample.truncated
        assert list(sample.completion_ids) == list(expected[name].completion_ids[:7])
    cut.submit(replace(requests(1, 4)[0], id="late"))
    [(name, error)] = cut.poll()
    assert name == "late"
    assert isinstance(error, SamplingFailed)


def speed(**changes) -> Speed:
    measured = {
        "rows": 16, "row_tokens_per_s": 100.0, "forward_tokens_per_s": 50.0,
        "update_tokens_per_s": 20.0, "sampled_tokens": 1600.0, "sampled_is_limit": True,
        "prompt_tokens": 100, "passed_tokens": 400.0, "passes": 1, "epochs": 2,
    }  # fmt: skip
    return Speed(**(measured | changes))


def test_a_step_is_sampling_and_passes():
    """1600/100 + 100/50 = 18 s of sampling; 400 (1/50 + 2/20) = 48 s of passes."""
    assert speed().sampling_s == pytest.approx(18)
    assert speed().update_s == pytest.approx(48)
    settings = Config(
        env="arithmetic-v1", model="m", run=Path("r"), prompts=2, group_size=8, steps=10
    ).resolve()
    _, forecast, left_out = speed_lines(speed(), settings)
    assert "1 min 6 s per step (sampling 18 s, update 48 s)" in forecast
    assert "16 completions of 100 tokens, the limit; 10 steps take 11 min 0 s" in forecast
    assert "evaluations" in left_out


def test_the_update_is_measured_in_the_tokens_that_pass_through_the_layers(policy, tmp_path):
    """A shared prompt passes once; gradients are dropped again, and no weight moves."""
    config = Config(
        env="arithmetic-v1", model="m", run=tmp_path, prompts=2, group_size=4, max_tokens=8,
        algorithm="grpo",
    ).resolve()  # fmt: skip
    rollout = Rollout(Task("t", "1+1="), "2", list(range(1, 9)), [1, 2], [True] * 2, [0.0] * 2, 0)
    group = Group(rollout.task, [rollout] * 4)
    before = [p.detach().clone() for p in policy.model.parameters()]
    found = measure_speed(policy, policy.sampler(), group, 1.0, config)
    assert found.sampled_tokens == 2 * 4 * 2, "all have ended, so their mean counts"
    assert not found.sampled_is_limit
    assert found.rows == 8
    assert (found.passes, found.epochs) == (1, config.algorithm.epochs)
    assert found.passed_tokens <= 2 * 4 * (8 + 2)
    assert found.step_s > 0
    assert all(p.grad is None for p in policy.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    cut = replace(rollout, truncated=True)
    found = measure_speed(policy, policy.sampler(), Group(cut.task, [cut] * 4), 1.0, config)
    assert found.sampled_tokens == 2 * 4 * 8, "one that was cut may be as long as it may be"
    assert found.sampled_is_limit
    assert _count_passed(policy, [cut] * 4) > 0
