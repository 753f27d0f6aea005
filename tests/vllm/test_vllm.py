"""The sampler over vLLM in this process: what it draws, and that the weights it draws from are the trainer's."""

import math
import random
from dataclasses import replace

import pytest
import torch

from rlvr.collect import Request, Sample, Sampler, Sampling
from rlvr.errors import SamplingFailed, UsageError
from rlvr.samplers.protocol import TokenRow
from rlvr.samplers.vllm import VLLMSampler
from tests.rewards.parts import refusal
from tests.vllm.conftest import made

PLAIN = Sampling(max_tokens=24)
PROMPTS = [f"{i}+{7 * i % 50}=" for i in range(16)]


def drawn(sampler, prompts=PROMPTS, n=8, sampling=PLAIN, limits=None):
    """Samples by (prompt, rollout)."""
    for p, prompt in enumerate(prompts):
        limit = sampling.max_tokens if limits is None else limits[p]
        for g in range(n):
            ids = tuple(sampler.encode(prompt))
            sampler.submit(Request((p, g), ids, sampling, 2**62 + 100 * p + g, limit, rollout=g))
    found = {}
    while len(found) < len(prompts) * n:
        found.update(sampler.poll())
    return found


def perturbed(policy, scale=0.05, seed=1):
    """Change all weights of a policy."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def differences(ours, theirs):
    """Theirs minus ours, where ours are padded."""
    pairs = [
        pair
        for left, right in zip(ours, theirs, strict=True)
        for pair in zip(left, right, strict=False)
    ]
    return [b - a for a, b in pairs]


def apart(policy, samples, temperature=1.0):
    """Largest difference of the trainer's log-probabilities and those that came with the samples."""
    rows = list(samples)
    ours = policy.logprobs(rows, temperature).tolist()
    return max(map(abs, differences(ours, [row.logprobs for row in rows])))


# ----------------------------------------------------------------------------------------- sampling


def test_it_is_a_sampler(tied):
    """It has all that the protocol asks for."""
    assert isinstance(tied.sampler, Sampler)
    assert tied.sampler.positions == 256


def test_a_seed_alone_decides(tied):
    """All 128, in the same batch again, in another order of requests, and 24 of them beside nothing else."""
    first = drawn(tied.sampler)
    again = drawn(tied.sampler)
    assert [list(one.completion_ids) for one in first.values()] == [
        list(again[key].completion_ids) for key in first
    ]
    few = drawn(tied.sampler, PROMPTS[:3])
    assert all(list(first[key].completion_ids) == list(few[key].completion_ids) for key in few)
    assert len({tuple(one.completion_ids) for one in first.values()}) > 100


def test_more_prompts_than_one_step_reads(tied):
    """8,000 tokens, and a step reads 4,096: on a CPU vLLM fails on a part of a prompt whose rollout has a seed."""
    prompts = [f"{i:03d}+" * 32 for i in range(64)]
    found = drawn(tied.sampler, prompts, n=1)
    assert len(found) == 64
    assert apart(tied.policy, found.values()) < 1e-4


def test_the_log_probabilities_are_those_of_the_distribution_that_is_sampled(tied):
    """Those of the model at temperature 1, and those of the scaled logits at another one."""
    rows = drawn(tied.sampler, n=2).values()
    assert apart(tied.policy, rows) < 1e-4
    warm = Sampling(max_tokens=16, temperature=0.7)
    rows = list(drawn(tied.sampler, n=2, sampling=warm).values())
    assert apart(tied.policy, rows, 0.7) < 1e-4


def test_top_p_leaves_the_share_that_it_keeps(tied):
    """The kept tokens' probabilities are divided by their sum, so each is at least as likely as under the model."""
    rows = list(drawn(tied.sampler, n=2, sampling=Sampling(max_tokens=16, top_p=0.5)).values())
    ours = tied.policy.logprobs(rows).tolist()
    found = differences(ours, [row.logprobs for row in rows])
    assert min(found) > -1e-4
    assert max(found) <= math.log(2) + 1e-4


def test_text_is_what_the_tokens_say(tied):
    """Without the end token, which is among the tokens; the policy's other samplers decode in the same way."""
    found = drawn(tied.sampler, n=4).values()
    for one in found:
        assert one.text == tied.policy.tokenization.decode(one.completion_ids)
        assert one.truncated == (one.completion_ids[-1] not in tied.policy.tokenization.end_ids)
    assert any(one.truncated for one in found)


def test_limits_end_a_completion_and_it_says_so(tied):
    """Those of each request."""
    found = drawn(tied.sampler, PROMPTS[:4], n=2, limits=[1, 3, 24, 24])
    assert {len(found[0, g].completion_ids) for g in range(2)} == {1}
    assert all(len(found[1, g].completion_ids) <= 3 for g in range(2))


def test_stop_texts_and_stop_tokens(tied):
    """A text is cut off at a stop text, which stays among the tokens; a special token is recognised by its id."""
    found = drawn(tied.sampler, n=4, sampling=Sampling(max_tokens=64, stop=("=", "x"))).values()
    stopped = [one for one in found if not one.truncated]
    assert stopped
    assert not any("=" in one.text or "x" in one.text for one in found)
    ids = {
        tied.policy.tokenizer.convert_tokens_to_ids(text) for text in "=x"
    } | tied.policy.tokenization.end_ids
    assert all(one.completion_ids[-1] in ids for one in stopped)
    special = drawn(tied.sampler, n=2, sampling=Sampling(max_tokens=64, stop=("<unk>",))).values()
    unknown = tied.policy.tokenizer.convert_tokens_to_ids("<unk>")
    assert any(one.completion_ids[-1] == unknown and not one.truncated for one in special)


def test_a_token_prompt_is_continued_as_it_is(tied):
    """Nothing is put before it or tokenised twice."""
    ids = (*tied.sampler.encode("12+34="), 9, 8)
    tied.sampler.submit(Request("a", ids, PLAIN, 1, 5))
    found = {}
    while not found:
        found.update(tied.sampler.poll())
    assert tuple(found["a"].prompt_ids) == ids


def test_what_is_aborted_does_not_come_and_leaves_the_engine(tied):
    """And what is not there is ignored."""
    for name in range(4):
        tied.sampler.submit(Request(name, tuple(tied.sampler.encode("1+1=")), PLAIN, name, 24))
    tied.sampler.abort([1, 7])
    found = {}
    while len(found) < 3:
        found.update(tied.sampler.poll())
    assert sorted(found) == [0, 2, 3]
    tied.sampler.submit(Request(5, tuple(tied.sampler.encode("1+1=")), PLAIN, 5, 24))
    tied.sampler.abort([5])
    assert not tied.sampler._engine.llm.llm_engine.has_unfinished_requests()
    assert tied.sampler.poll() == []


def test_a_request_over_its_time_fails_and_leaves_the_engine(tied, monkeypatch):
    """Its rollout is UNSCORED; the others go on."""
    tied.sampler.submit(Request("late", tuple(tied.sampler.encode("1+1=")), PLAIN, 5, 24))
    monkeypatch.setattr(tied.sampler, "timeout_s", 0.0)
    monkeypatch.setattr(tied.sampler._engine, "step", lambda: None)  # it makes no progress
    [(name, failed)] = tied.sampler.poll()
    assert (name, type(failed)) == ("late", SamplingFailed)
    assert not tied.sampler._engine.llm.llm_engine.has_unfinished_requests()


def test_what_cannot_be_sampled_is_refused(tied):
    """Too long, or a temperature that vLLM would change."""
    ids = tuple(tied.sampler.encode("1+1="))
    assert "was started for 256" in refusal(
        lambda: tied.sampler.submit(Request(0, ids, PLAIN, 0, 256))
    )
    cold = replace(PLAIN, temperature=0.001)
    assert "vLLM raises it to 0.01" in refusal(
        lambda: tied.sampler.submit(Request(0, ids, cold, 0, 8))
    )


def test_heads_of_a_width_that_the_cpu_does_not_have_are_refused_at_once(tmp_path):
    """vLLM says so with the first token; the demo's model has heads of 24."""
    from rlvr.train.policy import Policy
    from rlvr.train.tiny import tiny

    policy = Policy(*tiny("0123", hidden=48, heads=2, layers=1))
    policy.save_description(tmp_path)
    said = refusal(lambda: VLLMSampler(tmp_path, policy.tokenization))
    assert said.startswith(
        "the model's attention heads are 24 wide, and vLLM's attention on a CPU has only 32, 64"
    )


def test_the_global_generators_are_left_as_they_were(tied, monkeypatch):
    """vLLM seeds the whole process when an engine is made, and puts an empty function in place of one of torch's."""
    from rlvr.samplers import vllm as module

    before, python = torch.get_rng_state(), random.getstate()
    with module._generators_kept():
        torch.manual_seed(7)
        random.seed(7)
        torch.set_num_threads = None
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python
    torch.set_num_threads(1)


# ------------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_each_sync_brings_all_weights(engines, is_tied):
    """Twenty random changes of all weights; each time log-probabilities of given rows and of sampled ones agree."""
    engine = engines.of(tied=is_tied)
    rows = [
        TokenRow(engine.sampler.encode(text), engine.sampler.encode("46 7+8")[1:])
        for text in PROMPTS[:4]
    ]
    for step in range(1, 21):
        perturbed(engine.policy, seed=step)
        engine.sampler.sync(engine.policy.weights(), step)
        ours = engine.policy.logprobs(rows).tolist()
        theirs = engine.sampler.logprobs(rows)
        assert max(map(abs, differences(ours, theirs))) < 1e-4
    found = drawn(engine.sampler, n=2).values()
    assert {one.weights_version for one in found} == {20}
    assert apart(engine.policy, found) < 1e-4


def test_a_part_of_the_weights_is_refused(tied):
    """vLLM would take it without a word, and keep the others."""
    weights = dict(tied.policy.model.state_dict())
    del weights["model.norm.weight"]
    said = refusal(lambda: tied.sampler.sync([weights], 1))
    assert "the weights lack 1 of the 26 that the engine has, such as model.norm.weight" in said
    assert tied.sampler.version == 0


def test_a_name_that_the_engine_does_not_know_is_refused(tied):
    """Before anything is loaded, so that the engine goes on with what it has."""
    weights = {**tied.policy.model.state_dict(), "model.oops": torch.zeros(1)}
    assert "1 names that the engine does not know, such as model.oops" in refusal(
        lambda: tied.sampler.sync([weights], 1)
    )
    assert apart(tied.policy, drawn(tied.sampler, n=1).values()) < 1e-4


def test_completions_that_are_under_way_go_on_with_the_new_weights(tied):
    """Their tokens say which weights sampled them, and all are right: the tokens so far are read anew."""
    long = Sampling(max_tokens=200)
    names = list(range(4))
    for name in names:
        tied.sampler.submit(Request(name, tuple(tied.sampler.encode("1+1=")), long, name + 3, 200))
    found = {}
    for _ in range(2):  # 32 steps
        found.update(tied.sampler.poll())
    old = made(tied=True)
    perturbed(tied.policy)
    tied.sampler.sync(tied.policy.weights(), 1)
    while len(found) < len(names):
        found.update(tied.sampler.poll())
    mixed = [one for one in found.values() if isinstance(one, Sample) and one.token_versions]
    assert mixed
    for one in mixed:
        switch = one.token_versions.index(1)
        assert list(one.token_versions) == [0] * switch + [1] * (len(one.completion_ids) - switch)
        assert one.weights_version == 0
        before, after = old.logprobs([one])[0].tolist(), tied.policy.logprobs([one])[0].tolist()
        expected = before[:switch] + after[switch:]
        assert max(map(abs, differences([expected], [one.logprobs]))) < 1e-4


def test_a_probe_goes_beside_completions_that_are_under_way(tied):
    """Neither loses a token, and the probe's log-probabilities are right."""
    names, found = list(range(4)), {}
    for name in names:
        prompt = tuple(tied.sampler.encode("1+1="))
        tied.sampler.submit(Request(name, prompt, Sampling(max_tokens=60), name, 60))
    found.update(tied.sampler.poll())
    rows = [
        TokenRow(tied.sampler.encode(text), tied.sampler.encode("46 7+8")[1:])
        for text in PROMPTS[:2]
    ]
    [probe] = tied.sampler.probe(rows, tied.sampler.encode("1+1="))
    assert max(map(abs, differences(tied.policy.logprobs(rows).tolist(), probe.logprobs))) < 1e-4
    while len(found) < len(names):
        found.update(tied.sampler.poll())
    assert apart(tied.policy, found.values()) < 1e-4


def test_what_is_taken_back_goes_on_from_its_tokens(tied):
    """As the trainer does between steps: tokens of the old weights, then tokens of the new ones, all of them right."""
    long, old = Sampling(max_tokens=100), made(tied=True)
    context = tuple(tied.sampler.encode("1+1="))
    for name in range(8):
        tied.sampler.submit(Request(name, context, long, name + 3, 100))
    found = dict(tied.sampler.poll())
    begun = tied.sampler.take_back(range(8))
    assert begun
    assert not tied.sampler._engine.llm.llm_engine.has_unfinished_requests()
    perturbed(tied.policy)
    tied.sampler.sync(tied.policy.weights(), 1)
    for name in set(range(8)) - found.keys():
        tied.sampler.submit(Request(name, context, long, name + 3, 100, begun=begun.get(name)))
    while len(found) < 8:
        found.update(tied.sampler.poll())
    for name, first in begun.items():
        one, at = found[name], len(first.completion_ids)
        assert list(one.completion_ids[:at]) == list(first.completion_ids)
        assert list(one.token_versions) == [0] * at + [1] * (len(one.completion_ids) - at)
        before, after = old.logprobs([one])[0].tolist(), tied.policy.logprobs([one])[0].tolist()
        assert max(map(abs, differences([before[:at] + after[at:]], [one.logprobs]))) < 1e-4


def test_sleep_and_waking_bring_new_weights(tied):
    """On a CPU the calls are made and free nothing."""
    perturbed(tied.policy, seed=3)
    tied.sampler.sleep()
    tied.sampler.sync(tied.policy.weights(), 4)
    found = drawn(tied.sampler, n=1).values()
    assert {one.weights_version for one in found} == {4}
    assert apart(tied.policy, found) < 1e-4


def test_a_second_version_of_vllm_is_refused(monkeypatch):
    """What was not tested is not trusted with weights."""
    import vllm

    from rlvr.samplers import vllm as module

    monkeypatch.setattr(vllm, "__version__", "0.40.1")
    with pytest.raises(
        UsageError, match=r"vLLM 0\.40\.1 is installed, and weights are sent to 0\.32 alone"
    ):
        module._require_vllm()
