"""Mixtures of experts: routed like each row alone, with the gradients of each row alone."""

from contextlib import ExitStack

import pytest
import torch
from transformers import MixtralConfig

from rlvr.train.config import Config
from rlvr.train.sampling import open_sampler
from tests.rewards.parts import refusal
from tests.train.test_packing import MOE, made
from tests.train.test_policy import ROWS, SIZES, gradient, weights

MIXTRAL = MixtralConfig(
    **SIZES, num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.1
)


@pytest.mark.parametrize("config", [MOE, MIXTRAL], ids=["Qwen3Moe", "Mixtral"])
@pytest.mark.parametrize(
    "options", [{}, {"max_tokens": 30, "share_prompts": False}, {"gradient_checkpointing": True}]
)
def test_the_gradient_is_that_of_each_row_alone(full_logprobs, config, options):
    """Experts get other tokens beside a row's own, in another order: 1e-5 of the norm, in float32."""
    policy = made(config, **options)
    policy.model.eval()  # the same routes in the rows' own forward, without jitter
    wanted = torch.stack(
        [torch.nn.functional.pad(v, (0, 20 - len(v))) for v in full_logprobs(policy.model, ROWS)]
    )
    naive = gradient(policy, (wanted * weights(wanted.shape)).sum())
    policy.model.train(bool(options.get("gradient_checkpointing")))
    found = policy.logprobs(ROWS)
    ours = gradient(policy, (found * weights(found.shape)).sum())
    assert naive.norm() > 0
    assert (ours - naive).norm() < 1e-5 * naive.norm()
    assert all(
        p.grad is not None and p.grad.any()
        for n, p in policy.model.named_parameters()
        if "expert" in n
    )


@pytest.mark.parametrize("config", [MOE, MIXTRAL], ids=["Qwen3Moe", "Mixtral"])
@pytest.mark.parametrize("sampler", ["vllm", "http://127.0.0.1:1"])
def test_vllm_is_refused_before_it_starts(tmp_path, config, sampler):
    """It keeps the weights of experts in another form than transformers does."""
    settings = Config(env="x", model="x", run=tmp_path / "run", sampler=sampler)
    said = refusal(lambda: ExitStack().enter_context(open_sampler(made(config), settings)))
    assert said == (
        f"{config.model_type} is a mixture of experts, whose weights vLLM keeps in another form than the trainer; "
        "sample with --sampler local"
    )
