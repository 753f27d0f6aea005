"""Prompts read once for all their completions: fewer tokens, and not one number different."""

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config

from rlvr.samplers.protocol import TokenRow
from rlvr.train.prompt_sharing import supports_prompt_sharing, worth_sharing_prompts
from rlvr.train.tiny import tiny
from tests.train.test_policy import gradient, weights

LONG, SHORT = [1, *range(4, 16)], [1, 9, 5, 8, 7, 6, 4, 12]
GROUPS = [
    *(TokenRow(LONG, ids) for ids in ([7, 8, 9], [4], [], [10, 11, 12, 13, 14, 2])),
    *(TokenRow(SHORT, ids) for ids in ([5, 2], [15], [16, 17, 18, 2], [4, 4, 4, 4, 4, 4])),
]
SIZES = {"vocab_size": 23, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "pad_token_id": 0,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64}  # fmt: skip


def of(config, attention="sdpa"):
    """A model with random weights."""
    return AutoModelForCausalLM.from_config(
        config, attn_implementation=attention, dtype=torch.float64
    )


@pytest.mark.parametrize("rows", [GROUPS, GROUPS[:4], [TokenRow(LONG, [t]) for t in range(4, 12)]])
def test_shared_prompts_change_no_logprob(policy, full_logprobs, rows):
    """Prompts of two lengths, of one, and completions of a single token: float64 to 1e-12."""
    assert policy._shares_prompts
    assert worth_sharing_prompts(rows)
    with torch.no_grad():
        found = policy.logprobs(rows)
        wanted = full_logprobs(policy.model, rows)
    for row, values in zip(found, wanted, strict=True):
        torch.testing.assert_close(row[: len(values)], values, rtol=1e-12, atol=1e-12)
        assert not row[len(values) :].any()


def test_the_gradient_goes_through_the_shared_keys(fresh):
    """A prompt's keys and values get the gradients of all its completions: 1e-5 of the norm, in float32."""
    policy, apart = fresh(), fresh(seed=0)
    apart._shares_prompts = False
    both = [
        gradient(one, (found * weights(found.shape)).sum())
        for one, found in ((one, one.logprobs(GROUPS)) for one in (policy, apart))
    ]
    assert (both[0] - both[1]).norm() < 1e-5 * both[1].norm()


def test_a_prompt_goes_through_the_model_once(fresh):
    """Two prompts padded to 13, then what eight completions have before their last token, padded to 5."""
    policy, sizes = fresh(), []
    policy.model.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    policy.logprobs(GROUPS)
    assert sizes == [(2, 13), (8, 5)]


def test_what_saves_too_little_is_left_alone():
    """Prompts all different, prompts of one token, and a mask larger than what it would save."""
    assert not worth_sharing_prompts([TokenRow([1, i], [3, 4]) for i in range(8)])
    assert not worth_sharing_prompts([TokenRow([1], [3] * 20)] * 8)
    assert worth_sharing_prompts([TokenRow([1] * 500, [3] * 1000)] * 2)
    assert not worth_sharing_prompts([TokenRow([1] * 1000, [3] * 2000)] * 2)


@pytest.mark.parametrize(
    ("model", "can"),
    [
        (lambda: of(Qwen2Config(**SIZES)), True),
        (
            lambda: of(Qwen2Config(**SIZES), "eager"),
            False,
        ),  # adds its mask, and ours is of booleans
        (
            lambda: of(Qwen2Config(**SIZES)).bfloat16(),
            False,
        ),  # in which nothing could be told apart
        (lambda: of(MistralConfig(**SIZES, sliding_window=4)), False),
        (
            lambda: of(
                Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1)
            ),
            False,
        ),
    ],
    ids=["all tokens", "eager", "bfloat16", "a window", "some layers"],
)
def test_models_that_do_not_look_at_everything_read_their_own_prompts(model, can):
    """A layer with a window keeps other keys than a mask would show it; nor is a guess made where none can be tried."""
    assert supports_prompt_sharing(model()) is can


def test_a_model_that_says_something_else_then_is_found_out():
    """Ours looks at the answer, not at the model's name."""
    model, _ = tiny("0123456789abcdef", hidden=32)
    assert supports_prompt_sharing(model)
    model.base_model.layers[0].register_forward_hook(
        lambda _, args, out: out * 1.1 if out.shape[1] == 2 else out
    )
    assert not supports_prompt_sharing(model)


def test_checkpointed_layers_keep_no_cache(fresh):
    """They run again in backward, and would write their keys twice."""
    assert not fresh(gradient_checkpointing=True)._shares_prompts
    assert fresh()._shares_prompts
