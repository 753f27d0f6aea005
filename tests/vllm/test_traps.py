"""Ways in which weights do not arrive in an engine, each brought back on purpose: the run ends with the reason.

The canary's four probes are held against them one by one, since each of them is blind to something.
"""

import copy
import json
from pathlib import Path

import torch

from rlvr.samplers import vllm_worker
from rlvr.samplers.protocol import TokenRow
from rlvr.train.canary import CanaryFailed
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from tests.train.bandit import Bandit
from tests.vllm.in_flight import require_versions_reach_the_correction
from tests.vllm.test_vllm import differences, perturbed


def trainer(tmp_path: Path, engine, **settings) -> Trainer:
    """A run over the engine of this process, on an environment that a tiny policy solves in a few steps."""
    settings = {
        "steps": 3,
        "max_tokens": 8,
        "prompts": 8,
        "eval_every": None,
        "workers": 0,
    } | settings
    config = Config(
        env="bandit", model="tiny", run=tmp_path / "run", algorithm="grpo", lr=1e-2, **settings
    )
    return Trainer(
        config,
        policy=engine.policy,
        env=Bandit(),
        eval_env=Bandit(split="test"),
        sampler=engine.sampler,
    )


def canary(made: Trainer):
    """What the canary says of the engine after a change of all weights, or why the run would end."""
    perturbed(made.policy, seed=9)
    made.steps_done += 1
    try:
        return made.source.sync(made.steps_done)["canary"]
    except CanaryFailed as error:
        return str(error)


def test_twenty_steps_of_training_with_the_canary(engines, tmp_path):
    """Trainer and engine agree after each of twenty real updates, tied and untied."""
    for tied in (True, False):
        engine = engines.of(tied=tied)
        before = copy.deepcopy(engine.policy.model.state_dict())
        with trainer(tmp_path / str(tied), engine, steps=20) as made:
            made.run()
        after = made.policy.model.state_dict()
        lines = (made.config.run / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == 20
        assert max(json.loads(line)["canary"] for line in lines) < 1e-4
        assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_stale_head_ends_the_run(tied, tmp_path, monkeypatch):
    """Trap 1: a tied head on a CPU keeps its own packed copy of the embedding."""
    with trainer(tmp_path, tied) as made:
        assert canary(made) < 1e-4
        monkeypatch.setattr(vllm_worker, "pack_tied_head", lambda model: None)
        assert "gives a token the logprob" in (said := canary(made))
        assert "it does not have the trainer's weights" in said


def test_a_stale_prefix_cache_ends_the_run(tied, tmp_path, monkeypatch):
    """Trap 2: keys and values of the old weights stay, and are used for prompts that were read before."""
    with trainer(tmp_path, tied) as made:
        assert canary(made) < 1e-4
        monkeypatch.setattr(tied.sampler._engine, "_clear_cache", lambda: None)
        said = canary(made)
    assert "uses keys and values of other weights" in said


def test_a_part_of_the_weights_ends_the_run(tied, tmp_path, monkeypatch):
    """Trap 4: the engine takes a part of the weights without a word, where names are not compared before."""
    monkeypatch.setattr(vllm_worker, "require_all_names", lambda given, expected: None)
    load = tied.sampler._engine._load
    with trainer(tmp_path, tied) as made:
        monkeypatch.setattr(
            tied.sampler._engine,
            "_load",
            lambda weights: load(
                {name: one for name, one in weights.items() if name != "model.norm.weight"}
            ),
        )
        said = canary(made)
    assert "took 25 of its 26 weights, and not model.norm.weight" in said


def test_a_sync_that_does_not_happen_ends_the_run(tied, tmp_path, monkeypatch):
    """The engine says that it has another version, however small the step was."""
    with trainer(tmp_path, tied) as made:
        monkeypatch.setattr(tied.sampler, "sync", lambda weights, version: None)
        assert "says that its weights are of version 0" in canary(made)


def test_the_same_weights_of_another_run_are_noticed(tied, tmp_path):
    """Another program wrote to the engine between two syncs."""
    with trainer(tmp_path, tied) as made:
        assert canary(made) < 1e-4
        tied.sampler._engine.llm.update_weight_version("99")
        said = ""
        try:
            made.source._canary.check(
                made.policy, made.source._canary.observe(tied.sampler), made.steps_done
            )
        except CanaryFailed as error:
            said = str(error)
    assert "says that its weights are of version 99" in said


def checksums(engine):
    return engine.sampler._engine.llm.collective_rpc("compute_weight_checksums")[0]


def test_checksums_alone_do_not_see_a_stale_head(tied, monkeypatch):
    """Trap 3: the engine's checksums are the same with the stale and with the new head, whose numbers differ."""
    rows = [TokenRow(tied.sampler.encode("12+34="), tied.sampler.encode("46 7+8")[1:])]

    def apart():
        return max(
            map(abs, differences(tied.policy.logprobs(rows).tolist(), tied.sampler.logprobs(rows)))
        )

    with monkeypatch.context() as broken:
        broken.setattr(vllm_worker, "pack_tied_head", lambda model: None)
        perturbed(tied.policy, seed=2)
        tied.sampler.sync(tied.policy.weights(), 1)
    stale, difference = checksums(tied), apart()
    tied.sampler._engine.llm.apply_model(vllm_worker.pack_tied_head)
    assert checksums(tied) == stale
    assert difference > 1e-2
    assert apart() < 1e-4


def test_log_probabilities_of_given_rows_alone_do_not_see_a_stale_cache(tied, monkeypatch):
    """Trap 5: they skip the cache that completions go through; the probe of the long prompt does not."""
    ids = tuple(tied.sampler.encode("12+34=" * 30))
    tied.sampler.probe([], ids)
    monkeypatch.setattr(tied.sampler._engine, "_clear_cache", lambda: None)
    perturbed(tied.policy, seed=2)
    tied.sampler.sync(tied.policy.weights(), 1)
    rows = [TokenRow(ids[:90], ids[90:])]
    [probe] = tied.sampler.probe(rows, ids)
    assert max(map(abs, differences(tied.policy.logprobs(rows).tolist(), probe.logprobs))) < 1e-4
    ours = tied.policy.logprobs([TokenRow(ids, [probe.token])]).item()
    assert abs(ours - probe.logprob) > 1e-3


def test_training_with_completions_under_way_while_weights_change(engines, tmp_path):
    """The correction starts, for each token, from the version that sampled it."""
    # Fewer rows than a batch has: when one ends, others are half done.
    tied = engines.of(tied=True, max_rows=24)
    settings = {"max_staleness": 2, "steps": 6, "max_tokens": 60, "sampler": "vllm"}
    with trainer(tmp_path, tied, **settings) as made:
        require_versions_reach_the_correction(made)


def test_sleeping_during_updates(tied, tmp_path):
    """A run whose engine sleeps while the policy is updated trains as any other; on a CPU nothing is freed."""
    with trainer(tmp_path, tied, steps=2, sampler="vllm", sampler_sleep=True) as made:
        asleep = []
        learn = made.learner.learn
        made.learner.learn = lambda *of: asleep.append(tied.sampler.asleep) or learn(*of)
        made.run()
    assert asleep == [True, True]
    assert not tied.sampler.asleep
