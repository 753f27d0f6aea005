"""Two vLLM servers on this machine: what they draw, their weights, and one of them killed."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rlvr.collect import Request, Sampling
from rlvr.samplers.protocol import TokenRow
from rlvr.samplers.servers import ServerSampler
from rlvr.samplers.servers_started import StartedServers
from rlvr.samplers.vllm_lora import AdapterSettings
from rlvr.samplers.vllm_shared import model_sizes
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from tests.rewards.parts import refusal
from tests.train.bandit import Bandit
from tests.vllm.conftest import made
from tests.vllm.in_flight import require_versions_reach_the_correction
from tests.vllm.test_lora_eval import require_right_episodes, require_same_evaluation
from tests.vllm.test_vllm import PLAIN, PROMPTS, apart, differences, drawn, perturbed


class Pair:
    """Two servers with a policy and a sampler."""

    def __init__(self, folder: Path):
        self.policy = made(tied=True, family="llama")
        self.policy.save_description(folder / "model")
        self.folder = folder
        self.servers = StartedServers(
            folder / "model", 2, flags=["--max-rows", "64"], log=folder / "log"
        )
        self.sampler = ServerSampler(
            self.servers.urls,
            self.policy.tokenization,
            model_sizes(self.policy.model.config),
            in_flight=64,
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory, engines):
    engines.close()  # two cores have enough to do
    pair = Pair(tmp_path_factory.mktemp("servers"))
    yield pair
    pair.sampler.close()
    pair.servers.close()


@pytest.fixture
def pair(shared):
    """With the weights of version 0."""
    shared.policy.model.load_state_dict(made(tied=True, family="llama").model.state_dict())
    shared.sampler.sync(shared.policy.weights(), 0)
    return shared


def test_a_seed_alone_decides_whatever_server_it_goes_to(pair):
    """128 of 128, and few beside nothing else; both servers work."""
    first = drawn(pair.sampler)
    again = drawn(pair.sampler)
    assert all(list(first[key].completion_ids) == list(again[key].completion_ids) for key in first)
    few = drawn(pair.sampler, PROMPTS[:3], n=3)
    assert all(list(first[key].completion_ids) == list(few[key].completion_ids) for key in few)
    assert apart(pair.policy, first.values()) < 1e-4
    warm = Sampling(max_tokens=16, temperature=0.7, stop=("=",))
    found = drawn(pair.sampler, n=2, sampling=warm).values()
    assert apart(pair.policy, found, 0.7) < 1e-4
    assert not any("=" in one.text for one in found)


def test_each_sync_brings_all_weights_to_every_server(pair):
    """And the probes of both say so."""
    for step in range(1, 6):
        perturbed(pair.policy, seed=step)
        pair.sampler.sync(pair.policy.weights(), step)
        probes = pair.sampler.probe([], pair.sampler.encode("12+34=" * 20))
        assert [probe.version for probe in probes] == [step, step]
        assert all(probe.expected == probe.taken for probe in probes)
        found = drawn(pair.sampler, n=2).values()
        assert {one.weights_version for one in found} == {step}
        assert apart(pair.policy, found) < 1e-4


def test_completions_that_are_under_way_go_on_with_the_new_weights(pair):
    """Paused, given new weights, resumed: each token says which weights sampled it, and all are right."""
    long, old = Sampling(max_tokens=200), made(tied=True, family="llama")
    for name in range(8):
        pair.sampler.submit(Request(name, tuple(pair.sampler.encode("1+1=")), long, name + 3, 200))
    found = dict(pair.sampler.poll())
    time.sleep(0.3)
    perturbed(pair.policy)
    pair.sampler.sync(pair.policy.weights(), 1)
    while len(found) < 8:
        found.update(pair.sampler.poll())
    mixed = [one for one in found.values() if one.token_versions]
    for one in mixed:
        switch = one.token_versions.index(1)
        before, after = old.logprobs([one])[0].tolist(), pair.policy.logprobs([one])[0].tolist()
        expected = before[:switch] + after[switch:]
        assert max(abs(a - b) for a, b in zip(expected, one.logprobs, strict=True)) < 1e-4
    assert mixed or all(
        one.weights_version == 1 or len(one.completion_ids) < 200 for one in found.values()
    )


def test_what_is_taken_back_goes_on_from_its_tokens(pair):
    """As the trainer does between steps: tokens of the old weights, then tokens of the new ones, all of them right."""
    long, old = Sampling(max_tokens=200), made(tied=True, family="llama")
    context = tuple(pair.sampler.encode("1+1="))
    for name in range(16):
        pair.sampler.submit(Request(name, context, long, name + 3, 200))
    time.sleep(0.3)
    begun, found = pair.sampler.take_back(range(16)), {}
    perturbed(pair.policy)
    pair.sampler.sync(pair.policy.weights(), 1)
    for name in range(16):
        pair.sampler.submit(Request(name, context, long, name + 3, 200, begun=begun.get(name)))
    while len(found) < 16:
        found.update(pair.sampler.poll())
    for name, first in begun.items():
        one, at = found[name], len(first.completion_ids)
        assert list(one.completion_ids[:at]) == list(first.completion_ids)
        assert list(one.token_versions) == [0] * at + [1] * (len(one.completion_ids) - at)
        before, after = old.logprobs([one])[0].tolist(), pair.policy.logprobs([one])[0].tolist()
        assert max(map(abs, differences([before[:at] + after[at:]], [one.logprobs]))) < 1e-4


def test_what_is_aborted_does_not_come(pair):
    """Whether it has begun or not."""
    for name in range(40):
        pair.sampler.submit(Request(name, tuple(pair.sampler.encode("1+1=")), PLAIN, name, 24))
    pair.sampler.abort(range(10, 40))
    found = {}
    while len(found) < 10:
        found.update(pair.sampler.poll())
    assert sorted(found) == list(range(10))
    assert pair.sampler.poll() == []


def test_a_server_that_is_killed_loses_and_changes_nothing(pair):
    """At a random moment; started again, it is given the current weights before any work."""
    perturbed(pair.policy, seed=4)
    pair.sampler.sync(pair.policy.weights(), 7)
    expected = drawn(pair.sampler)
    for p, prompt in enumerate(PROMPTS):
        for g in range(8):
            seed = 2**62 + 100 * p + g
            pair.sampler.submit(
                Request((p, g), tuple(pair.sampler.encode(prompt)), PLAIN, seed, 24)
            )
    found, after = {}, random.Random(os.getpid()).randrange(1, 100)
    while len(found) < 128:
        if len(found) >= after and pair.sampler._servers[1].ready:
            pair.servers.kill(1)
            after = 1000
        found.update(pair.sampler.poll())
    assert all(
        list(found[key].completion_ids) == list(expected[key].completion_ids) for key in expected
    )
    assert all(
        list(found[key].logprobs) == pytest.approx(list(expected[key].logprobs), abs=1e-4)
        for key in expected
    )
    pair.servers.start_again(1)
    until = time.monotonic() + 300
    while not pair.sampler._servers[1].ready and time.monotonic() < until:
        time.sleep(0.5)
    probes = pair.sampler.probe([], pair.sampler.encode("12+34="))
    assert [probe.version for probe in probes] == [7, 7]
    found = drawn(pair.sampler)
    assert all(
        list(found[key].completion_ids) == list(expected[key].completion_ids) for key in expected
    )


def test_evaluations_and_episodes_over_servers_are_those_of_the_policy(pair, say):
    """As over an engine in the process; `rlvr eval` sends the model's weights to servers that run already."""
    perturbed(pair.policy, scale=0.2)
    pair.sampler.sync(pair.policy.weights(), 1)
    require_same_evaluation(pair.sampler, pair.policy)
    require_right_episodes(pair.sampler, pair.policy)
    pair.policy.save(pair.folder / "whole")
    code, said = say(
        "eval", "tests.train.bandit:Bandit", "--model", pair.folder / "whole", "--sampler", ",".join(pair.servers.urls),
        "--limit", 8, "--max-tokens", 4, "--workers", 0,
    )  # fmt: skip
    assert code == 0, said
    assert "avg@1" in said


def test_a_command_starts_servers_and_swaps_adapters_on_them(engines, tmp_path, say):
    """`rlvr train --serve-samplers 1` with LoRA: two steps, and the canary finds the adapter on the server."""
    engines.close()
    made(tied=True, family="llama").save(tmp_path / "model")
    code, said = say(
        "train", "--env", "tests.train.bandit:Bandit", "--model", tmp_path / "model", "--run", tmp_path / "run",
        "--serve-samplers", 1, "--sampler-lora", "swapped", "--lora-rank", 4, "--steps", 2, "--prompts", 4,
        "--group-size", 4, "--max-tokens", 4, "--workers", 0, "--eval-tasks", 4, "--algorithm", "grpo", "--lr", 1e-2,
    )  # fmt: skip
    assert code == 0, said
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line).get("canary", 0.0) for line in lines) < 1e-4
    assert (tmp_path / "run" / "samplers" / "vllm-0.log").is_file()


def test_servers_that_cannot_be_used_are_named_with_what_mends_it(pair):
    """One line each."""
    url, tokens = pair.servers.urls[0], pair.policy.tokenization
    sizes = model_sizes(pair.policy.model.config)
    said = refusal(lambda: ServerSampler([url], tokens, {**sizes, "hidden_size": 96}))
    assert (
        said
        == f"{url} has another model (hidden_size 64 instead of 96): start it with the trainer's --model"
    )


def test_training_with_completions_under_way_while_weights_change(pair, tmp_path, monkeypatch):
    """The correction starts, for each token, from the version that sampled it, on whichever server."""
    urls = ",".join(pair.servers.urls)
    config = Config(
        env="bandit", model="tiny", run=tmp_path / "run", algorithm="grpo", lr=1e-2, steps=6, max_tokens=60, prompts=8,
        eval_every=None, workers=0, max_staleness=2, sampler=urls,
    )  # fmt: skip
    # Fewer than a batch has: when one ends, others are half done.
    monkeypatch.setattr(pair.sampler, "in_flight", 12)
    with Trainer(config, policy=pair.policy, env=Bandit(), sampler=pair.sampler) as made:
        require_versions_reach_the_correction(made)


def test_adapters_over_a_server_are_the_policys(engines, tmp_path, monkeypatch):
    """Swapped and merged: after each of five changes the server's numbers are those of the policy with its adapter.

    The server has a key, and refuses requests without it.
    """
    engines.close()
    monkeypatch.setenv("SAMPLER_KEY", "sesame-12345")
    policy = made(tied=True, family="llama")
    policy.add_lora(rank=4)
    policy.save_description(tmp_path / "model")
    rows = [
        TokenRow(policy.tokenization.encode(text), policy.tokenization.encode("46 7+8")[1:])
        for text in PROMPTS[:4]
    ]
    sizes, version = model_sizes(policy.model.config), 0
    flags = ["--lora-rank", "8", "--key-env", "SAMPLER_KEY"]
    with StartedServers(tmp_path / "model", 1, flags=flags, log=tmp_path / "log") as servers:
        said = refusal(lambda: ServerSampler(servers.urls, policy.tokenization, sizes))
        assert said.startswith(servers.urls[0])
        assert said.endswith("asks for a key: give --sampler-key-env VARIABLE")
        for swap in (True, False, True):
            settings = AdapterSettings(policy.lora.config, swap=swap)
            with ServerSampler(
                servers.urls, policy.tokenization, sizes, adapter=settings, key_env="SAMPLER_KEY"
            ) as sampler:
                for _ in range(5):
                    version += 1
                    with torch.no_grad():
                        for parameter in policy.lora.parameters.values():
                            parameter.add_(0.1 * torch.randn(parameter.shape))
                    sampler.sync(policy.weights(), version)
                    theirs = sampler.logprobs(rows)
                    assert max(map(abs, differences(policy.logprobs(rows).tolist(), theirs))) < 1e-4
                    with policy.lora.off():
                        assert (
                            max(map(abs, differences(policy.logprobs(rows).tolist(), theirs)))
                            > 1e-3
                        )
                found = drawn(sampler, n=2).values()
                assert {one.weights_version for one in found} == {version}
                assert apart(policy, found) < 1e-4
                [probe] = sampler.probe(rows, policy.tokenization.encode("12+34=" * 20))
                assert (probe.version, probe.expected) == (version, probe.taken)


def test_servers_end_with_the_process_that_started_them(tmp_path):
    """Also after its SIGKILL; the engine, which is a process of its own, too."""
    policy = made(tied=True, family="llama")
    policy.save_description(tmp_path / "model")
    program = (
        "import sys, time; from pathlib import Path; from rlvr.samplers.servers_started import StartedServers\n"
        f"servers = StartedServers(Path({str(tmp_path / 'model')!r}), 1, log=Path({str(tmp_path / 'log')!r}))\n"
        "print(servers._programs[0].pid, flush=True); time.sleep(600)\n"
    )
    trainer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    group = int(trainer.stdout.readline())
    members = _members(group)
    assert len(members) >= 3  # the guard, the server, the engine
    until = time.monotonic() + 60
    # On a loaded machine the server answers before the engine has mapped them.
    while not (shared := {path for one in _members(group) for path in _shared(one)}):
        assert time.monotonic() < until
        time.sleep(0.2)
    trainer.kill()
    trainer.wait()
    until = time.monotonic() + 60
    while (_members(group) or any(map(os.path.exists, shared))) and time.monotonic() < until:
        time.sleep(0.2)
    assert _members(group) == []
    assert not any(map(os.path.exists, shared))


def _shared(pid: int) -> set[str]:
    """Files of shared memory that a process has."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {
        line[line.index("/dev/shm/") :]
        for line in lines
        if "/dev/shm/" in line and "(deleted)" not in line
    }


def _members(group: int) -> list[int]:
    """The processes of a group that are not zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found
