"""The client of vLLM over both transports, against scripted engines: its promises do not depend on the transport."""

import time

import pytest
import torch

from rlvr.errors import SamplingFailed, UsageError
from rlvr.samplers import servers as servers_module
from rlvr.samplers.protocol import Request, Sampler, Sampling, TokenRow
from rlvr.samplers.servers import ServerSampler
from rlvr.samplers.vllm import VLLMSampler
from rlvr.samplers.vllm_lora import AdapterSettings
from rlvr.samplers.vllm_shared import checkpoint_weights, model_sizes
from tests.samplers.engine_fake import install
from tests.samplers.vllm_fake import Fake

PLAIN = Sampling(max_tokens=8)


@pytest.fixture
def weights(policy):
    return policy.model.state_dict()


@pytest.fixture
def here(policy, weights, monkeypatch):
    """Makes samplers over a scripted engine in this process."""
    about = {"names": list(checkpoint_weights(weights, tied=True)), "tied": True, "positions": 64}
    install(monkeypatch, min(policy.tokenization.end_ids), about)
    return lambda **options: VLLMSampler("model", policy.tokenization, **options)


@pytest.fixture
def engine(here):
    return here()


@pytest.fixture(params=["here", "servers"])
def sampler(request, policy, weights, tmp_path, monkeypatch):
    """A sampler over each transport."""
    if request.param == "here":
        yield request.getfixturevalue("engine")
        return
    monkeypatch.setattr(servers_module, "_HEALTH_S", 0.05)
    sizes = model_sizes(policy.model.config)
    fake = Fake(policy, checkpoint_weights(weights, tied=True), sizes=sizes)
    with ServerSampler([fake.url], policy.tokenization, sizes, folder=tmp_path) as made:
        yield made
    fake.kill()


def ask(sampler, names):
    for name in names:
        sampler.submit(Request(name, (1, 5, 6), PLAIN, seed=name, limit=8))


def collect(sampler, count):
    found, until = {}, time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found.update(sampler.poll())
    return found


def test_completions_carry_tokens_logprobs_reason_and_version(sampler, weights):
    """By the weights that were sent, and by the seed alone; a limit of one token cuts a completion off."""
    assert isinstance(sampler, Sampler)
    sampler.sync([weights], 3)
    ask(sampler, range(6))
    sampler.submit(Request("cut", (1,), PLAIN, seed=2, limit=1))
    found = collect(sampler, 7)
    assert {name: found[name].completion_ids[0] for name in range(6)} == {
        name: 4 + name for name in range(6)
    }
    assert {one.weights_version for one in found.values()} == {3}
    assert list(found[0].logprobs) == [-0.5, -0.5]
    assert [found["cut"].truncated, found[0].truncated] == [True, False]
    assert list(found["cut"].completion_ids) == [6]


def test_dropped_requests_do_not_come_and_their_ids_are_free_again(sampler, weights):
    """A second request of the same id is another one."""
    sampler.sync([weights], 0)
    ask(sampler, range(4))
    sampler.abort([1, 3, 77])
    sampler.submit(Request(1, (1, 5), PLAIN, seed=7, limit=8))
    found = collect(sampler, 3)
    assert sorted(found) == [0, 1, 2]
    assert found[1].completion_ids[0] == 11
    assert sampler.take_back([0, 9]) == {}


def test_a_probe_names_what_was_taken_and_logprobs_are_of_the_rows(sampler, weights):
    """Weights come in buckets; the canary sees version and names of all of them."""
    names = list(weights)
    buckets = [{name: weights[name] for name in part} for part in (names[:9], names[9:])]
    sampler.sync(buckets, 5)
    [probe] = sampler.probe([TokenRow([1, 5], [6, 7])], [1, 5, 6])
    assert (probe.version, probe.logprobs, probe.logprob) == (5, [[-0.5, -0.5]], -0.5)
    assert probe.expected == probe.taken == set(checkpoint_weights(weights, tied=True))
    assert sampler.logprobs([TokenRow([1], [5]), TokenRow([1, 2], [])]) == [[-0.5], []]


def test_a_part_of_the_weights_is_refused_before_an_engine_is_given_any(sampler, weights):
    """It would keep the others without a word."""
    del weights["model.norm.weight"]
    with pytest.raises(UsageError, match="the weights lack 1 of the 26"):
        sampler.sync([weights], 1)
    assert sampler.version == -1


def test_what_an_engine_here_has_begun_goes_on_from_its_tokens(engine, weights):
    """A request that has no token yet begins again; those that had some go on with the new weights."""
    engine.sync([weights], 3)
    ask(engine, [0, 1])
    engine._engine.step()
    ask(engine, [2])
    begun = engine.take_back([0, 1, 2])
    assert {name: (one.completion_ids, one.versions) for name, one in begun.items()} == {
        0: ([4], [3]),
        1: ([5], [3]),
    }
    assert engine._engine.llm.open == {}
    engine.sync([weights], 4)
    engine.submit(Request(0, (1, 5, 6), PLAIN, seed=0, limit=8, begun=begun[0]))
    [sample] = collect(engine, 1).values()
    assert sample.completion_ids[0] == 4
    assert list(sample.token_versions) == [3, 4, 4]


def test_tokens_taken_back_after_a_sync_are_of_the_weights_that_sampled_them(engine, weights):
    """vLLM labels finished requests alone; with the newest label an importance weight would be 1."""
    engine.sync([weights], 3)
    engine._engine.llm.tokens = 4
    ask(engine, [0])
    engine._engine.step()
    engine.sync([weights], 4)
    engine._engine.step()
    assert list(engine.take_back([0])[0].versions) == [3, 4]


def test_a_probe_loses_no_completion_that_is_under_way(engine, weights):
    """The engine computes a token for all of them when it computes one for the probe."""
    engine.sync([weights], 0)
    ask(engine, range(3))
    engine._engine.step()
    [probe] = engine.probe([TokenRow([1], [5, 6])], [1, 5])
    assert probe.logprobs == [[-0.5, -0.5]]
    assert sorted(collect(engine, 3)) == [0, 1, 2]


def test_a_request_over_its_time_fails_and_leaves_the_engine(here, weights):
    """Its rollout is UNSCORED."""
    engine = here(timeout_s=1e-9)
    engine.sync([weights], 0)
    ask(engine, [0])
    engine._engine.step = lambda: None  # it makes no progress
    [(name, failed)] = engine.poll()
    assert (name, type(failed)) == (0, SamplingFailed)
    assert engine._engine.llm.open == {}


def test_an_engine_that_slept_is_given_all_weights(engine, weights):
    """First room for the weights, then these, then room for the cache."""
    engine.sync([weights], 0)
    engine.sleep()
    assert engine.asleep
    engine.sync([{name: value + 1 for name, value in weights.items()}], 1)
    assert not engine.asleep
    calls = engine._engine.llm.calls[3:]
    assert calls == ["sleep", "wake weights", "load", "wake kv_cache", "wake", "reset", "label"]
    norm = weights["model.norm.weight"].flatten()[0].item()
    assert engine._engine.llm.weights["model.norm.weight"] == norm + 1


def test_an_adapter_is_swapped_and_the_base_loaded_once(here, weights):
    """And once more after a sleep, which drops it."""
    engine = here(adapter=AdapterSettings({"r": 2, "lora_alpha": 4}, swap=True))
    layer = "model.layers.0.mlp.up_proj"
    parts = {f"{layer}.lora_{side}.default.weight": torch.ones(2, 2) for side in "AB"}
    for version in range(2):
        engine.sync([weights, parts], version)
    assert engine._engine.llm.calls == (
        ["load", "add 1", "reset", "label", "add 2", "remove 1", "reset", "label"]
    )
    assert engine._engine.llm.options["max_lora_rank"] == 8
    engine.sleep()
    engine.sync([weights, parts], 2)
    assert engine._engine.llm.calls.count("load") == 2
