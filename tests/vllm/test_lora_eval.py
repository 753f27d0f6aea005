"""LoRA adapters in vLLM, swapped and merged; evaluation and episodes over an engine."""

import pytest
import torch

import rlvr
from rlvr.collect import Collector, Sampling
from rlvr.collect.evaluation import evaluate
from rlvr.samplers.protocol import TokenRow
from rlvr.samplers.vllm import VLLMSampler
from rlvr.samplers.vllm_lora import AdapterSettings
from tests.train.bandit import Bandit
from tests.vllm.conftest import made
from tests.vllm.test_vllm import PROMPTS, apart, differences, drawn, perturbed


@pytest.mark.parametrize("swap", [True, False], ids=["swapped", "merged"])
def test_an_adapter_is_the_policys(engines, tmp_path, swap):
    """After each of five changes of the adapter; the engine's numbers are those of the policy with it."""
    engines.close()
    policy = made(
        tied=True, family="llama"
    )  # whose head vLLM has adapters for, which Qwen2's has not
    policy.add_lora(rank=4)
    policy.save_description(tmp_path)
    rows = [
        TokenRow(policy.tokenization.encode(text), policy.tokenization.encode("46 7+8")[1:])
        for text in PROMPTS[:4]
    ]
    with VLLMSampler(
        tmp_path, policy.tokenization, adapter=AdapterSettings(policy.lora.config, swap=swap)
    ) as sampler:
        for step in range(5):
            with torch.no_grad():
                for parameter in policy.lora.parameters.values():
                    parameter.add_(0.1 * torch.randn(parameter.shape))
            sampler.sync(policy.weights(), step)
            theirs = sampler.logprobs(rows)
            assert max(map(abs, differences(policy.logprobs(rows).tolist(), theirs))) < 1e-4
            with policy.lora.off():
                assert max(map(abs, differences(policy.logprobs(rows).tolist(), theirs))) > 1e-3
        found = drawn(sampler, n=2).values()
        assert {one.weights_version for one in found} == {4}
        assert apart(policy, found) < 1e-4
        probe = sampler.probe(rows, policy.tokenization.encode("12+34=" * 20))[0]
        assert probe.expected == probe.taken


def test_an_evaluation_is_that_of_the_policy(tied):
    """At temperature 0 its completions are those of the local sampler."""
    perturbed(tied.policy, scale=0.2)
    tied.sampler.sync(tied.policy.weights(), 1)
    require_same_evaluation(tied.sampler, tied.policy)


def require_same_evaluation(sampler, policy):
    greedy = Sampling(max_tokens=8, temperature=0.0)
    reports = [
        evaluate(Bandit(split="test"), one, sampling=greedy, limit=20)
        for one in (sampler, policy.sampler())
    ]
    assert [task.correct for task in reports[0].tasks] == [
        task.correct for task in reports[1].tasks
    ]
    assert [task.answers for task in reports[0].tasks] == [
        task.answers for task in reports[1].tasks
    ]


class Turns(rlvr.Environment):
    """Three turns, whatever is said."""

    turns: int = 3

    def task(self, index):
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"{index}+1=")

    def user(self, task, transcript):
        return "2="

    def verify(self, task, episode):
        return rlvr.Verdict("correct", why="three turns")


def test_commands_sample_from_the_engine(engines, tmp_path, say):
    """`rlvr eval --sampler vllm` and `rlvr train --sampler vllm`: the model's weights are sent, and checked."""
    engines.close()
    model = tmp_path / "model"
    made(tied=True, family="llama").save(model)
    where = "tests.train.bandit:Bandit"
    code, said = say(
        "eval",
        where,
        "--model",
        model,
        "--sampler",
        "vllm",
        "--limit",
        8,
        "--max-tokens",
        4,
        "--workers",
        0,
    )
    assert code == 0, said
    assert "avg@1" in said
    code, said = say(
        "train", "--env", where, "--model", model, "--run", tmp_path / "run", "--sampler", "vllm", "--steps", 2,
        "--prompts", 4, "--group-size", 4, "--max-tokens", 4, "--workers", 0, "--eval-tasks", 4, "--algorithm", "grpo",
    )  # fmt: skip
    assert code == 0, said
    assert (tmp_path / "run" / "model" / "config.json").is_file()


def test_episodes_of_several_turns(tied):
    """The next turn continues the tokens of the conversation; log-probabilities are right in every turn."""
    require_right_episodes(tied.sampler, tied.policy)


def require_right_episodes(sampler, policy):
    stops = Sampling(max_tokens=48, stop=("=", "1", "2"))
    with Collector(Turns(), sampler, group_size=2, sampling=stops) as collector:
        groups = collector.collect(prompts=2).groups
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert len(rollouts) == 4
    assert any(len(rollout.turns) > 1 for rollout in rollouts)
    ours = policy.logprobs(rollouts).tolist()
    for left, rollout in zip(ours, rollouts, strict=True):
        masked = zip(left, rollout.behaviour_logprobs, rollout.completion_mask, strict=False)
        trained = [abs(a - b) for a, b, mask in masked if mask]
        assert trained
        assert max(trained) < 1e-4
