"""Rows side by side in one: no padding, and not one number different."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    MistralConfig,
    Qwen3MoeConfig,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.samplers import packed_attention
from rlvr.samplers.protocol import TokenRow
from rlvr.train.packing import pack, packs
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.rewards.parts import refusal
from tests.train.test_policy import ROWS, SIZES, gradient, weights

GPT2 = GPT2Config(
    vocab_size=23, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
)
MOE = Qwen3MoeConfig(**SIZES, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2)


def made(config, attention: str = "sdpa", **options) -> Policy:
    """A policy with random weights; the same config gives the same ones."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return Policy(model, tiny("ab", hidden=8)[1], **options)


def test_a_pack_by_hand():
    """Prompts of 3 and 1 tokens, completions of 2 and 1: the last token of each predicts nothing."""
    packed = pack([TokenRow([1, 5, 6], [7, 8]), TokenRow([1], [4])])
    assert packed.input_ids.tolist() == [[1, 5, 6, 7, 1]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 0]]
    assert packed.sources.tolist() == [2, 3, 4]
    assert packed.targets.tolist() == [7, 8, 4]
    assert (packed.rows.tolist(), packed.columns.tolist()) == ([0, 0, 1], [0, 1, 0])
    assert (packed.height, packed.width) == (2, 2)


TOKENS = st.lists(st.integers(1, 22), max_size=4)
ROWS_OF = st.lists(st.builds(TokenRow, TOKENS.filter(len), TOKENS), min_size=1, max_size=5)


@given(ROWS_OF.filter(lambda rows: any(row.completion_ids for row in rows)))
def test_a_pack_holds_each_row_as_it_is_alone(rows):
    """Token by token: each completion token is predicted from the one before it, in its own row."""
    packed = pack(rows)
    inputs, positions = packed.input_ids[0].tolist(), packed.position_ids[0].tolist()
    expected, at = [], 0
    for number, row in enumerate(rows):
        ids = [*row.prompt_ids, *row.completion_ids]
        alone = ids[: len(ids) - 1] if row.completion_ids else ids
        assert inputs[at : at + len(alone)] == alone
        assert positions[at : at + len(alone)] == list(range(len(alone)))
        first = at + len(row.prompt_ids) - 1
        expected += [(first + i, token, number, i) for i, token in enumerate(row.completion_ids)]
        at += len(alone)
    assert len(inputs) == at
    places = (packed.sources, packed.targets, packed.rows, packed.columns)
    assert list(zip(*(values.tolist() for values in places), strict=True)) == expected


@given(st.lists(st.integers(1, 15), max_size=10), st.integers(1, 12))
def test_packs_are_filled_from_the_longest_row_on(lengths, most):
    """Every row in one pack, none over the limit but alone, and first-fit decreasing by a plain loop."""
    plain: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for pack_ in plain:
            if sum(lengths[j] for j in pack_) + lengths[i] <= most:
                pack_.append(i)
                break
        else:
            plain.append([i])
    assert packs(lengths, max_tokens=most) == plain


@pytest.mark.parametrize("config", [None, GPT2, MOE, MistralConfig(**SIZES, sliding_window=4)],
                         ids=["Qwen2", "GPT2", "experts", "a window"])  # fmt: skip
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packing_changes_no_gradient(fresh, full_logprobs, config, attention):
    """Against each row alone through the whole model: logprobs and gradients to 1e-5, in float32."""
    policy = fresh(packing=True) if config is None else made(config, attention, packing=True)
    wanted = torch.stack(
        [torch.nn.functional.pad(v, (0, 20 - len(v))) for v in full_logprobs(policy.model, ROWS)]
    )
    naive = gradient(policy, (wanted * weights(wanted.shape)).sum())
    found = policy.logprobs(ROWS)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    ours = gradient(policy, (found * weights(found.shape)).sum())
    assert (ours - naive).norm() < 1e-5 * naive.norm()


def test_no_row_of_a_pack_is_compared_with_another(fresh, monkeypatch):
    """Attention gets each row alone, and no mask of 38 x 38."""
    policy, sizes = fresh(packing=True), []
    alone = packed_attention.scaled_dot_product_attention

    def seen(query, key, value, **options):
        sizes.append((query.shape[2], key.shape[2]))
        return alone(query, key, value, **options)

    monkeypatch.setattr(packed_attention, "scaled_dot_product_attention", seen)
    policy.logprobs(ROWS)
    lengths = [len(row.prompt_ids) + max(len(row.completion_ids) - 1, 0) for row in ROWS]
    layers = policy.model.config.num_hidden_layers
    assert sorted(sizes) == sorted([(n, n) for n in lengths] * layers)


def test_a_pack_is_one_row_of_the_model(fresh):
    """3 + 3, 1 + 0, 6 + 19, 2 + 0 and 3 + 1 tokens: 38 in one row, where padding to 25 takes 125."""
    policy, sizes = fresh(packing=True), []
    policy.model.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    policy.logprobs(ROWS)
    assert sizes == [(1, 38)]


def row_by_row(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    is_causal=True,
    position_ids=None,
    **kwargs,
):
    """Attention as flash attention computes it: no mask; where positions begin anew, a row begins."""
    assert attention_mask is None
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    starts = [*(position_ids[0] == 0).nonzero().flatten().tolist(), query.shape[2]]
    rows = [slice(a, b) for a, b in itertools.pairwise(starts)]
    found = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, r], key[:, :, r], value[:, :, r], is_causal=True, scale=scaling
        )
        for r in rows
    ]
    return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None


def test_positions_are_all_that_attention_without_a_mask_needs(monkeypatch):
    """Flash attention runs on GPUs alone; what it is given, and what it does with it, is tried with a stand-in."""
    plain = Policy(*tiny("0123456789abcdefghi", hidden=32))
    ALL_ATTENTION_FUNCTIONS.register(
        "row_by_row", row_by_row
    )  # it has no function for masks, and so gets none
    try:
        model, tokenizer = tiny("0123456789abcdefghi", hidden=32)
        model.set_attn_implementation("row_by_row")
        packed = Policy(model, tokenizer, packing=True)
        found = packed.logprobs(ROWS)
        both = [
            gradient(one, (x * weights(x.shape)).sum())
            for one, x in ((packed, found), (plain, plain.logprobs(ROWS)))
        ]
    finally:
        del ALL_ATTENTION_FUNCTIONS._global_mapping["row_by_row"]
    assert (both[0] - both[1]).norm() < 1e-5 * both[1].norm()


def test_a_model_that_would_mix_the_rows_is_refused():
    """Bloom takes no positions.  A model that ignores them reads all rows as one: its logprobs would be wrong."""
    bloom = BloomConfig(
        vocab_size=23, hidden_size=32, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    said = refusal(lambda: made(bloom, "eager", packing=True))
    assert "packing is on, and BloomForCausalLM" in said
    assert "switch packing off" in said
    model, tokenizer = tiny("0123456789abcdefghi", hidden=32)
    plain = model.base_model.forward
    model.base_model.forward = lambda *a, position_ids=None, **k: plain(*a, **k)
    assert "does not keep the rows of a pack apart" in refusal(
        lambda: Policy(model, tokenizer, packing=True)
    )
    assert Policy(model, tokenizer).logprobs(ROWS[:1]).shape == (1, 4)
