"""The sampler over vLLM servers, against scripted ones: routing, deaths, weights, and what is said of bad servers."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rlvr.collect import Request, Sampler, Sampling
from rlvr.errors import SamplingFailed, ServiceFailed, UsageError
from rlvr.samplers import servers as module
from rlvr.samplers.protocol import Begun, TokenRow
from rlvr.samplers.servers import ServerSampler
from rlvr.samplers.vllm_lora import AdapterSettings
from rlvr.samplers.vllm_server import server_variables
from rlvr.samplers.vllm_shared import (
    EngineAnswer,
    checkpoint_weights,
    model_sizes,
    require_all_names,
    require_head_size,
    sample_of,
    sampling_parameters,
    token_versions,
    version_of_label,
)
from tests.rewards.parts import refusal
from tests.samplers.vllm_fake import Fake

PLAIN = Sampling(max_tokens=8)


@pytest.fixture
def weights(policy):
    return policy.model.state_dict()


@pytest.fixture
def fakes(policy, weights, monkeypatch):
    """Makes scripted servers, and looks at their health often."""
    monkeypatch.setattr(module, "_HEALTH_S", 0.05)
    made = []

    def make(count: int, **about) -> list[Fake]:
        sizes = {"sizes": model_sizes(policy.model.config)}
        names = checkpoint_weights(weights, tied=True)
        made.extend(Fake(policy, names, **{**sizes, **about}) for _ in range(count))
        return made[-count:]

    yield make
    for fake in made:
        if not fake.dead:
            fake.kill()


@pytest.fixture
def over(policy, tmp_path):
    """Makes samplers over scripted servers."""
    made = []

    def make(fakes, **options) -> ServerSampler:
        urls = [fake.url for fake in fakes]
        options = {"folder": tmp_path, "in_flight": 4, **options}
        made.append(
            ServerSampler(urls, policy.tokenization, model_sizes(policy.model.config), **options)
        )
        return made[-1]

    yield make
    for sampler in made:
        sampler.close()


def submit(sampler, names):
    for name in names:
        sampler.submit(Request(name, (1, 5, 6), PLAIN, seed=name, limit=8))


def collected(sampler, count, during=lambda found: None):
    found, until = {}, time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found.update(sampler.poll())
        during(found)
    return found


def tokens(found):
    return {name: sample.completion_ids[0] for name, sample in found.items()}


EXPECTED = {name: 4 + name % 8 for name in range(40)}


def test_requests_go_to_the_server_with_the_fewest(fakes, over, weights):
    """Each server has as many as the other; samples carry the version of the weights that were sent."""
    two = fakes(2)
    sampler = over(two)
    assert isinstance(sampler, Sampler)
    sampler.sync([weights], 3)
    submit(sampler, range(40))
    found = collected(sampler, 40)
    assert tokens(found) == EXPECTED
    assert {sample.weights_version for sample in found.values()} == {3}
    counts = [sum(len(body["token_ids"]) == 3 for body in fake.asked) for fake in two]
    assert sum(counts) == 40
    assert min(counts) > 10
    assert sampler.positions == 64


def test_every_field_of_sampling_is_sent(fakes, over, weights):
    """A server fills what is left out from the model's generation config."""
    [fake] = fakes(1)
    sampler = over([fake])
    sampler.sync([weights], 0)
    warm = Sampling(max_tokens=8, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, stop=("x",))
    sampler.submit(Request("a", (1, 5), warm, 2**62 + 1, 3))
    collected(sampler, 1)
    sent = fake.asked[-1]["sampling_params"]
    wanted = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 2**62 + 1,
        "max_tokens": 3,
        "n": 1,
    }
    wanted |= {
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": ["x"],
    }
    assert wanted.items() <= sent.items()


def test_weights_are_sent_between_pause_and_resume_and_caches_reset(fakes, over, weights):
    """In this order, on every server; the file of the version before is deleted."""
    two = fakes(2)
    sampler = over(two)
    for version in (0, 1):
        weights = {name: one + version for name, one in weights.items()}
        for fake in two:
            fake.calls.clear()
        sampler.sync([weights], version)
        for fake in two:
            order = [call for call in fake.calls if call not in ("/health", "/weight_info")]
            assert order == [
                "/pause",
                "/collective_rpc",
                "/reset_prefix_cache",
                "/update_weight_version",
                "/resume",
            ]
            assert fake.weights["model.norm.weight"] == weights["model.norm.weight"][0].item()
            assert "lm_head.weight" not in fake.weights  # tied
    assert len(list(sampler._folder.glob("*/*.safetensors"))) == 1
    probes = sampler.probe([TokenRow([1, 5], [6, 7])], [1, 5, 6])
    assert [(probe.engine, probe.version) for probe in probes] == [(fake.url, 1) for fake in two]
    assert probes[0].logprobs == [[-0.5, -0.5]]
    assert probes[0].expected == probes[0].taken
    assert sampler.logprobs([TokenRow([1], [5])]) == [[-0.5]]


def test_a_part_of_the_weights_is_refused(fakes, over, weights):
    """Before a server is paused."""
    [fake] = fakes(1)
    sampler = over([fake])
    del weights["model.norm.weight"]
    assert "the weights lack 1 of the 26" in refusal(lambda: sampler.sync([weights], 1))
    assert "/pause" not in fake.calls


@pytest.mark.parametrize("after", [1, 7, 20])
def test_the_requests_of_a_dead_server_move(fakes, over, weights, after):
    """None is lost or changed; the server that comes back gets the current weights before any work."""
    two = fakes(2)
    for fake in two:
        fake.slow_s = 0.02
    sampler = over(two)
    sampler.sync([weights], 5)
    submit(sampler, range(40))

    def during(found):
        if len(found) >= after and not two[1].dead:
            two[1].kill()

    assert tokens(collected(sampler, 40, during)) == EXPECTED
    assert sampler.moved > 0
    two[1].asked.clear()
    two[1].weights.clear()
    two[1].start()
    submit(sampler, range(40))
    until = time.monotonic() + 60
    found = {}
    while (not two[1].asked or len(found) < 40) and time.monotonic() < until:
        if len(found) >= 40 or not sampler._asked:
            sampler.submit(Request(len(found) + 100, (1, 5, 6), PLAIN, seed=0, limit=8))
        found.update(sampler.poll())
    assert {sample.weights_version for sample in found.values()} == {5}
    assert two[1].weights  # before it was asked
    assert two[1].label == "5"


def test_a_server_that_was_started_anew_while_nothing_was_asked_gets_the_weights(
    fakes, over, weights
):
    """It answers as before, with weights of its own: its version says so."""
    [fake] = fakes(1)
    sampler = over([fake])
    sampler.sync([weights], 5)
    fake.label = "default"
    submit(sampler, range(8))
    found = collected(sampler, 8)
    assert {sample.weights_version for sample in found.values()} == {5}
    assert fake.label == "5"


def test_without_any_server_sampling_waits_and_then_ends(fakes, over, weights):
    """The error names each with its reason."""
    [fake] = fakes(1)
    sampler = over([fake], patience_s=0.2)
    sampler.sync([weights], 5)
    fake.kill()
    submit(sampler, range(4))
    with pytest.raises(
        ServiceFailed,
        match=rf"no server has been there for 0.2 s: {fake.url}: .*"
        "(no answer|does not|cannot be reached)",
    ):
        collected(sampler, 4)


def test_a_sync_without_any_server_ends_the_run(fakes, over, weights):
    """And one of two is enough."""
    two = fakes(2)
    sampler = over(two)
    two[0].kill()
    sampler.sync([weights], 0)
    assert [probe.engine for probe in sampler.probe([], [1, 5])] == [two[1].url]
    two[1].kill()
    with pytest.raises(ServiceFailed, match="no server could take the weights of version 1"):
        sampler.sync([weights], 1)


def test_a_request_that_a_server_refuses_fails_alone(fakes, over, weights):
    """One that it fails on is tried three times, as the fault may be of the server."""
    [fake] = fakes(1)
    sampler = over([fake])
    sampler.sync([weights], 0)
    for status, times in ((400, 1), (500, 3)):
        fake.broken["/inference/v1/generate"] = status, {"error": "why"}
        fake.calls.clear()
        submit(sampler, [1])
        [failed] = collected(sampler, 1).values()
        assert isinstance(failed, SamplingFailed)
        assert f'status {status}: {{"error": "why"}}' in str(failed)
        assert fake.calls.count("/inference/v1/generate") == times
    fake.broken.clear()
    submit(sampler, [2])
    assert tokens(collected(sampler, 1)) == {2: 6}


def test_what_is_aborted_does_not_come(fakes, over, weights):
    """Whether it waits or has begun."""
    [fake] = fakes(1)
    fake.slow_s = 0.1
    sampler = over([fake])
    sampler.sync([weights], 0)
    submit(sampler, range(10))
    sampler.abort([0, 1, 8, 9, 77])
    assert sorted(collected(sampler, 6)) == [2, 3, 4, 5, 6, 7]
    assert sampler.poll() == []


def test_what_is_taken_back_has_its_tokens_and_goes_on_from_them(fakes, over, weights):
    """Those that have begun come with what they have, the others without; all go on with the new weights."""
    [fake] = fakes(1)
    sampler = over([fake])
    fake.slow_s = 30.0  # after the greeting
    sampler.sync([weights], 3)
    submit(sampler, range(6))
    until = time.monotonic() + 60
    while len(fake.asked) < 5 and time.monotonic() < until:  # 4 in flight, and one of the greeting
        assert sampler.poll() == []
    begun = sampler.take_back(range(6))
    assert {name: (one.completion_ids, one.versions) for name, one in begun.items()} == {
        name: ([4 + name], [3]) for name in range(4)
    }
    assert sampler.poll() == []
    fake.slow_s = 0.0
    sampler.sync([weights], 4)
    for name in range(6):
        sampler.submit(Request(name, (1, 5, 6), PLAIN, seed=name, limit=8, begun=begun.get(name)))
    found = collected(sampler, 6)
    assert all(found[name].completion_ids[0] == 4 + name for name in range(6))
    assert [list(found[name].token_versions) for name in range(4)] == [[3, 4, 4]] * 4
    assert [found[name].weights_version for name in (0, 5)] == [3, 4]
    sent = [body for body in fake.asked if body["token_ids"] == [1, 5, 6, 4]]
    assert sent[0]["sampling_params"]["max_tokens"] == 7
    assert sent[0]["sampling_params"]["seed"] not in range(
        6
    )  # not the numbers that the first token was drawn with


def test_the_key_goes_along_and_is_in_no_error(fakes, over, weights, monkeypatch):
    """A wrong one, and none, are named by the flag that mends it."""
    [fake] = fakes(1)
    fake.key = "sesame-12345"
    assert refusal(lambda: over([fake])).endswith("asks for a key: give --sampler-key-env VARIABLE")
    monkeypatch.setenv("SERVER_KEY", "other-98765")
    said = refusal(lambda: over([fake], key_env="SERVER_KEY"))
    assert said.endswith("asks for a key: that in SERVER_KEY is another one")
    assert "98765" not in said
    monkeypatch.setenv("SERVER_KEY", fake.key)
    sampler = over([fake], key_env="SERVER_KEY")
    sampler.sync([weights], 0)
    submit(sampler, [1])
    assert tokens(collected(sampler, 1)) == {1: 5}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.40.0"}, "is vLLM 0.40.0; weights are sent to 0.32 alone"),
        (
            {"broken": {"/inference/v1/generate": (403, {})}},
            "start the server with --enable-scale-out",
        ),
        ({"broken": {"/collective_rpc": (404, {})}}, "has no door for weights"),
        (
            {"broken": {"/collective_rpc": (500, {"error": "no such method"})}},
            "--worker-extension-cls rlvr.samplers",
        ),
        (
            {"broken": {"/tokenize": (200, {"tokens": [1, 2]})}},
            "has another tokenizer: start it with the trainer's",
        ),
        ({"sizes": {"hidden_size": 7}}, "has another model (hidden_size 7 instead of 32)"),
        (
            {"logprobs": "raw_logprobs"},
            "gives raw_logprobs: start it with --logprobs-mode processed_logprobs",
        ),
    ],
)
def test_a_server_that_cannot_be_used_is_named_with_what_mends_it(fakes, over, change, said):
    """Before the run begins."""
    [fake] = fakes(
        1, **{name: value for name, value in change.items() if name in ("sizes", "logprobs")}
    )
    fake.version, fake.broken = change.get("version", fake.version), change.get("broken", {})
    found = refusal(lambda: over([fake]))
    assert found.startswith(fake.url)
    assert said in found
    assert "\n" not in found


def test_a_server_that_is_not_there_is_named(fakes, over):
    """With how to start one."""
    [fake] = fakes(1)
    fake.kill()
    with pytest.raises(
        ServiceFailed,
        match=r"cannot be reached .*: start it by `python -m rlvr.samplers.vllm_server",
    ):
        over([fake])


def test_a_server_is_no_engine_of_the_process_that_starts_it(monkeypatch):
    """An engine in the process leaves a variable behind, under which a server's threads are not bound."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    variables = server_variables(on_cpu=True)
    assert variables["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert variables["VLLM_LOGGING_LEVEL"] == "INFO"  # as set


def test_servers_elsewhere_need_a_folder(policy):
    """Shared memory is this machine's alone."""
    said = refusal(lambda: ServerSampler(["http://10.0.0.1:8000"], policy.tokenization, {}))
    assert said.startswith("http://10.0.0.1:8000 is on another machine: give --sampler-folder")


def test_a_folder_for_weights_that_is_relative_is_sent_whole(fakes, over, tmp_path, monkeypatch):
    """The servers run somewhere else."""
    monkeypatch.chdir(tmp_path)
    sampler = over(fakes(1), folder=Path("here"))
    assert sampler._folder.parent == tmp_path / "here"
    sampler.close()
    assert list(Path("here").iterdir()) == []


def test_weights_are_deleted_when_the_trainer_is_killed(tmp_path):
    """They take a machine's memory; a process that was forked meanwhile does not keep `close` waiting."""
    program = (
        "import os, sys, time; from pathlib import Path; from rlvr.samplers.servers import _Remover\n"
        "for name in ('closed', 'killed'):\n"
        "    folder = Path(sys.argv[1]) / name; folder.mkdir(); (folder / 'weights').write_text('1')\n"
        "    remover = _Remover(folder)\n"
        "    if name == 'closed':\n"
        "        child = os.fork()\n"
        "        if not child: time.sleep(600)\n"
        "        remover.close(); remover.close(); os.kill(child, 9)\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout.readline() == "ready\n"
        assert [path.name for path in tmp_path.iterdir()] == ["killed"]
        trainer.kill()
    until = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------- pure parts


def test_merged_weights_are_base_plus_scaled_product():
    """W + 2 · B A by hand: [[1]] + 2 · [[3]] [[5]] = [[31]]; names lose peft's layer."""
    state = {
        "a.q.base_layer.weight": torch.tensor([[1.0]]),
        "a.q.lora_A.default.weight": torch.tensor([[5.0]]),
        "a.q.lora_B.default.weight": torch.tensor([[3.0]]),
        "lm_head.weight": torch.tensor([[7.0]]),
    }
    assert {
        k: v.item() for k, v in checkpoint_weights(state, tied=True, lora_scale=2.0).items()
    } == {"a.q.weight": 31}
    plain = checkpoint_weights(state, tied=False)
    assert {k: v.item() for k, v in plain.items()} == {"a.q.weight": 1, "lm_head.weight": 7}


def test_adapters_that_vllm_has_not_are_refused():
    """DoRA and rank-stabilised scales would be computed otherwise, without an error."""
    config = {"r": 12, "lora_alpha": 6, "use_dora": False, "use_rslora": False}
    settings = AdapterSettings(config, swap=True)
    assert (settings.scale, settings.engine_rank) == (0.5, 16)
    for name in ("use_dora", "use_rslora"):
        assert refusal(lambda name=name: AdapterSettings({**config, name: True})).startswith(
            f"the LoRA adapter has {name}"
        )
    for name in ("lm_head", "model.embed_tokens"):
        on_an_end = {**config, "target_modules": ["q_proj", name]}
        assert "set sampler_lora to merged" in refusal(
            lambda given=on_an_end: AdapterSettings(given, swap=True)
        )
        assert not AdapterSettings(on_an_end).swap
    assert "at most 512" in refusal(lambda: AdapterSettings({**config, "r": 1024}, swap=True))


def test_names_that_are_missing_or_unknown_are_refused():
    """The first one of each is named."""
    require_all_names(["a", "b"], ["b", "a"])
    assert "lack 1 of the 2" in refusal(lambda: require_all_names(["a"], ["b", "a"]))
    assert "1 names that the engine does not know, such as c" in refusal(
        lambda: require_all_names("abc", "ab")
    )


def test_labels_of_weights():
    """An engine begins with "default"."""
    assert [version_of_label(label) for label in ("7", "default", "-1", "native-7", "٣")] == [
        7,
        -1,
        -1,
        -1,
        -1,
    ]


def test_spans_of_weights_become_a_version_per_token(policy):
    """None where all tokens are of one version."""
    request = Request("a", (1,), PLAIN, 0, 8)
    versions = token_versions([("4", 0, 1), ("6", 1, 3)])
    answer = EngineAnswer([5, 6, 7], [-1.0] * 3, versions, "length")
    both = sample_of(request, policy.tokenization, answer)
    assert (both.weights_version, list(both.token_versions), both.truncated) == (4, [4, 6, 6], True)
    one = sample_of(request, policy.tokenization, EngineAnswer([5], [-1.0], [4], "stop"))
    assert (one.weights_version, one.token_versions, one.truncated) == (4, None, False)


def test_a_stop_text_that_began_before_the_weights_changed_is_found(policy):
    """vLLM looks for it in what it adds alone; the tokens behind it are cut off."""
    ids = policy.tokenizer("12", add_special_tokens=False)["input_ids"]
    more = policy.tokenizer("345", add_special_tokens=False)["input_ids"]
    stopping = Sampling(max_tokens=8, stop=("23",))
    request = Request("a", (1,), stopping, 0, 8, begun=Begun(ids, [-0.5, -0.25], None, [1, 1]))
    answer = EngineAnswer(more, [-1.0, -2.0, -3.0], [2] * 3, "length")
    found = sample_of(request, policy.tokenization, answer)
    assert (found.text, list(found.logprobs), found.truncated) == ("1", [-0.5, -0.25, -1.0], False)
    assert list(found.token_versions) == [1, 1, 2]


def test_a_temperature_that_vllm_would_raise_is_refused(policy):
    """0 and 0.01 are taken as they are."""
    for temperature in (0.0, 0.01):
        asked = Request("a", (1,), Sampling(max_tokens=8, temperature=temperature), 0, 8)
        assert sampling_parameters(asked, policy.tokenization)["temperature"] == temperature
    cold = Request("a", (1,), Sampling(max_tokens=8, temperature=0.005), 0, 8)
    with pytest.raises(UsageError, match=r"vLLM raises it to 0\.01"):
        sampling_parameters(cold, policy.tokenization)


def test_head_sizes_that_an_engine_does_not_have_are_refused(policy):
    """32 wide in 4 heads: 8."""
    assert "heads are 8 wide" in refusal(lambda: require_head_size(policy.model.config, [32, 64]))
    require_head_size(policy.model.config, [8])
