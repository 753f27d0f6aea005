"""The policy's view of completions: the same however rows are batched, and the same as the model's own logits."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from rlvr.samplers.protocol import TokenRow
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.rewards.parts import refusal
from tests.rounding import additions, assert_same

ROWS = [
    TokenRow([1, 5, 6], [7, 8, 9, 10]),
    TokenRow([1], [4]),
    TokenRow([1, 9, 9, 9, 9, 9], [12] * 20),
    TokenRow([1, 4], []),
    TokenRow([1, 20, 21], [11, 2]),
]


def gradient(policy: Policy, loss: torch.Tensor) -> torch.Tensor:
    policy.model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


def weights(shape: torch.Size) -> torch.Tensor:
    """What a loss might multiply logprobs with: all different."""
    return torch.linspace(-1, 2, shape.numel()).reshape(shape)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_each_row_alone(policy, full_logprobs, temperature):
    """In the rows' own order, zeros behind the end; float64 to 1e-12."""
    with torch.no_grad():
        found = policy.logprobs(ROWS, temperature)
        wanted = full_logprobs(policy.model, ROWS, temperature)
    assert found.shape == (5, 20)
    for row, values in zip(found, wanted, strict=True):
        torch.testing.assert_close(row[: len(values)], values, rtol=1e-12, atol=1e-12)
        assert not row[len(values) :].any()


def test_entropy_comes_with_them(policy):
    """A softmax over 23 tokens of random weights: a little below log 23, and the logprobs stay the same."""
    with torch.no_grad():
        logprobs, entropy = policy.logprobs(ROWS, with_entropy=True)
        assert torch.equal(logprobs, policy.logprobs(ROWS))
        logits = policy.model(torch.tensor([[1, 5, 6]])).logits[0, -1]
    p = logits.softmax(-1)
    torch.testing.assert_close(entropy[0, 0], -(p * p.log()).sum(), rtol=1e-12, atol=0)
    assert entropy[1, 1:].tolist() == [0.0] * 19


@pytest.mark.parametrize("max_tokens", [1, 30, 10_000])
def test_the_gradient_does_not_depend_on_the_micro_batches(fresh, full_logprobs, max_tokens):
    """Rows alone, in pairs or all at once with padding: 1e-5 of the norm, in float32."""
    policy = fresh(max_tokens=max_tokens)
    wanted = torch.stack(
        [torch.nn.functional.pad(v, (0, 20 - len(v))) for v in full_logprobs(policy.model, ROWS)]
    )
    naive = gradient(policy, (wanted * weights(wanted.shape)).sum())
    found = policy.logprobs(ROWS)
    ours = gradient(policy, (found * weights(found.shape)).sum())
    assert (ours - naive).norm() < 1e-5 * naive.norm()


def test_parts_of_the_loss_may_go_backward_one_after_the_other(fresh):
    """`micro_batches` says which rows belong together; gradients of the parts add up to that of the whole."""
    policy = fresh(max_tokens=30, overhead_tokens=0)
    whole = gradient(policy, (policy.logprobs(ROWS) * weights(torch.Size([5, 20]))).sum())
    policy.model.zero_grad()
    parts = policy.micro_batches(ROWS)
    assert len(parts) > 1
    assert sorted(i for part in parts for i in part) == [0, 1, 2, 3, 4]
    for part in parts:
        found = policy.logprobs([ROWS[i] for i in part])
        (found * weights(torch.Size([5, 20]))[part, : found.shape[1]]).sum().backward()
    added = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    assert (added - whole).norm() < 1e-5 * whole.norm()


def test_only_completions_go_through_the_head(fresh, monkeypatch):
    """A prompt of a thousand tokens costs no logits: 4 + 1 + 20 + 0 + 2 = 27 tokens do."""
    from rlvr.train import policy as module

    seen = []
    original = module.token_logprobs
    monkeypatch.setattr(
        module, "token_logprobs", lambda h, *a, **k: seen.append(len(h)) or original(h, *a, **k)
    )
    fresh().logprobs(ROWS)
    assert sum(seen) == 27


def test_checkpointing_changes_memory_and_no_number(fresh):
    """The layers are recomputed from the same weights."""
    plain, checkpointed = fresh(), fresh(gradient_checkpointing=True)
    gradients = []
    for policy in (plain, checkpointed):
        calls = []
        hook = policy.model.model.layers[0].mlp.register_forward_pre_hook(
            lambda *_, calls=calls: calls.append(1)
        )
        found = policy.logprobs(ROWS)
        gradients.append(gradient(policy, (found * weights(found.shape)).sum()))
        hook.remove()
        gradients.append(torch.tensor(float(len(calls))))
    torch.testing.assert_close(gradients[0], gradients[2], rtol=0, atol=0)
    assert gradients[3] == 2 * gradients[1]


def test_dropout_is_off_for_good():
    """GPT-2 comes with 0.1 everywhere: two looks at the same rows would differ, and ratios with them."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=23,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    policy = Policy(
        AutoModelForCausalLM.from_config(config),
        tiny("ab", hidden=8)[1],
        gradient_checkpointing=True,
    )
    assert policy.model.training
    assert torch.equal(policy.logprobs(ROWS), policy.logprobs(ROWS))


def test_autocast_is_near_and_gives_float32(fresh):
    """bfloat16 has three digits; gradients arrive in the type of the weights."""
    exact, rough = fresh(), fresh(autocast=torch.bfloat16)
    wanted, found = exact.logprobs(ROWS), rough.logprobs(ROWS)
    assert found.dtype == torch.float32
    assert 0 < (wanted - found).abs().max() < 0.05
    assert gradient(rough, found.sum()).dtype == torch.float32


SIZES = {
    "vocab_size": 23, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "scale", "softcap"),
    [
        (
            transformers.Gemma2Config(
                **SIZES, final_logit_softcapping=30.0, query_pre_attn_scalar=8
            ),
            1.0,
            30.0,
        ),
        (transformers.LlamaConfig(**SIZES, final_logit_softcapping=30.0), 1.0, None),
        (transformers.CohereConfig(**SIZES, logit_scale=0.25), 0.25, None),
        (transformers.GraniteConfig(**SIZES, logits_scaling=4.0), 0.25, None),
        (
            transformers.GPTNeoXConfig(
                **{k: v for k, v in SIZES.items() if "head" not in k}, num_attention_heads=4
            ),
            1.0,
            None,
        ),
    ],
    ids=["Gemma2", "Llama", "Cohere", "Granite", "GPTNeoX"],
)
def test_what_models_do_to_their_logits_is_found_out(config, scale, softcap, full_logprobs):
    """Caps and factors stand under different names, and some say one and do not apply it: so it is tried."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.get_output_embeddings().weight.data *= 0.01
    fresh = Policy(model, tiny("ab", hidden=8)[1])  # its logits are near 0, where no cap is felt
    assert (fresh._logits.scale, fresh._logits.softcap) == (scale, softcap)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter)  # now they are felt
    policy = Policy(model, tiny("ab", hidden=8)[1])
    assert (policy._logits.scale, policy._logits.softcap) == (scale, softcap)
    found = policy.logprobs(ROWS)
    terms = additions(model, sum(len(row.prompt_ids) + len(row.completion_ids) for row in ROWS))
    for row, wanted in zip(found, full_logprobs(model, ROWS), strict=True):
        assert_same(row[: len(wanted)], wanted, terms=terms)


def test_a_model_with_a_head_of_its_own_is_refused():
    """Its logits are not a matrix times the hidden states; every logprob would be wrong, without an error."""
    model, tokenizer = tiny("abc", hidden=32)
    plain = model.forward
    model.forward = lambda *a, **k: (
        (out := plain(*a, **k)).__setitem__("logits", out.logits.sin()) or out
    )
    assert "makes its logits" in refusal(lambda: Policy(model, tokenizer))


@pytest.mark.parametrize("bucket_bytes", [1 << 20, 4096])
def test_a_saved_policy_is_loaded_as_it_was(fresh, tmp_path, monkeypatch, bucket_bytes):
    """Weights to the bit, tokenizer and end token, from a local folder and without the network."""
    monkeypatch.setattr("rlvr.train.policy._BUCKET_BYTES", bucket_bytes)
    policy = fresh(seed=4)
    policy.save(tmp_path)
    assert (tmp_path / "model.safetensors").is_file() == (bucket_bytes == 1 << 20)  # else parts
    again = Policy.load(tmp_path, max_tokens=64)
    assert torch.equal(
        again.logprobs(ROWS), Policy(policy.model, policy.tokenizer, max_tokens=64).logprobs(ROWS)
    )
    assert (
        again.tokenization.encode("1+2=") == policy.tokenization.encode("1+2=") == [1, 5, 14, 6, 16]
    )
    assert again.tokenization.end_ids == {2}
    assert Policy.load(str(tmp_path), dtype=torch.bfloat16).model.dtype == torch.bfloat16


def test_no_bar_of_another_library_runs_through_the_log(fresh, tmp_path, capfd):
    """A policy is saved and loaded in the midst of a run's own lines; bars elsewhere stay."""
    from transformers.utils import logging

    fresh().save(tmp_path)
    Policy.load(tmp_path)
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled()


def test_a_model_that_is_not_there_is_named(tmp_path, monkeypatch):
    """One line instead of the ten that transformers prints."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "has no config.json" in refusal(lambda: Policy.load(tmp_path))
    said = refusal(lambda: Policy.load(tmp_path / "missing"))
    assert "missing" in said
    assert "\n" not in said


def test_rows_of_nothing_are_rows_of_zeros(fresh):
    """No completion has a token: no logprobs and a gradient of zero.  No rows at all is a mistake."""
    policy = fresh()
    found = policy.logprobs([TokenRow([1], []), TokenRow([1, 4], [])])
    assert found.shape == (2, 0)
    assert not gradient(policy, found.sum()).any()
    assert "no rows" in refusal(lambda: policy.logprobs([]))
