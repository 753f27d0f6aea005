"""LoRA: what is trained is the adapter alone, and what comes out is the model that it makes with the weights."""

import json
import warnings

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rlvr.algo.papers import load_algorithm
from rlvr.errors import DataError, MissingDependency, UsageError
from rlvr.train.learner import Learner
from rlvr.train.parts import Reference
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.commands import refusal_of
from tests.policies import CHARSET
from tests.rewards.parts import refusal
from tests.train.bandit import CHARSET as BANDIT
from tests.train.bandit import policy as bandit
from tests.train.bandit import run_to_end
from tests.train.test_learner import batch_of, learner, own_folder  # noqa: F401  `own_folder` is used by all
from tests.train.test_packing import GPT2, MOE, made
from tests.train.test_policy import ROWS, weights

ENV = "tests.train.bandit:Bandit"
FLAGS = [
    "--env",
    ENV,
    "--prompts",
    4,
    "--group-size",
    4,
    "--max-tokens",
    4,
    "--workers",
    0,
    "--eval-tasks",
    4,
]


def moved(policy: Policy, scale: float = 0.2) -> Policy:
    """As after some steps: a new adapter changes nothing."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in policy.lora.parameters.values():
            parameter.copy_(
                scale * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
            )
    return policy


@pytest.fixture
def adapted(fresh):
    """A policy with an adapter that has learned something."""

    def make(**options) -> Policy:
        policy = fresh(**options)
        policy.add_lora(rank=3)
        return moved(policy)

    return make


def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained(fresh):
    """B is 0.  7 linear layers in each of 2 blocks, 2 matrices each; the head and the embedding have none."""
    policy = fresh()
    before = policy.logprobs(ROWS).detach()
    generator = torch.get_rng_state()
    policy.add_lora(rank=3)
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(policy.logprobs(ROWS), before)
    assert policy.lora.is_new
    trained = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    assert trained == list(policy.lora.parameters)
    assert len(trained) == 2 * 7 * 2
    assert not any("lm_head" in name or "embed" in name for name in trained)
    assert len(learner(load_algorithm("dr_grpo"), made=policy).parameters) == 28


def test_the_same_seed_makes_the_same_adapter(fresh):
    """A run begins with it."""
    one, same, other = fresh(), fresh(), fresh()
    for policy, seed in ((one, 1), (same, 1), (other, 2)):
        policy.add_lora(rank=2, seed=seed)
    a, b, c = (list(policy.lora.state_dict().values()) for policy in (one, same, other))
    assert all(map(torch.equal, a, b))
    assert not all(map(torch.equal, a, c))


@pytest.mark.parametrize(
    "options", [{}, {"packing": True}, {"gradient_checkpointing": True}, {"max_tokens": 30}]
)
def test_the_adapters_gradient_is_that_of_each_row_alone(adapted, full_logprobs, options):
    """Shared prompts, packed, recomputed, in parts: 1e-5 of the norm, in float32."""
    policy = adapted(**options)
    trained = list(policy.lora.parameters.values())
    pad = torch.nn.functional.pad
    wanted = torch.stack([pad(v, (0, 20 - len(v))) for v in full_logprobs(policy.model, ROWS)])
    naive = torch.cat(
        [g.flatten() for g in torch.autograd.grad((wanted * weights(wanted.shape)).sum(), trained)]
    )
    found = policy.logprobs(ROWS)
    ours = torch.cat(
        [g.flatten() for g in torch.autograd.grad((found * weights(found.shape)).sum(), trained)]
    )
    assert (ours - naive).norm() < 1e-5 * naive.norm()


def test_layers_that_keep_their_weights_transposed_are_merged(tmp_path):
    """GPT-2 has them."""
    policy = made(GPT2)
    policy.add_lora(rank=2)
    wanted = moved(policy).logprobs(ROWS).detach()
    policy.save(tmp_path)
    torch.testing.assert_close(Policy.load(tmp_path).logprobs(ROWS), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("q_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ],
)
def test_experts_have_adapters_too(full_logprobs, targets, tmp_path):
    """peft puts one product on each expert of a fused parameter: gradients, merging and saving as for layers."""
    policy = made(MOE)
    policy.add_lora(rank=2, targets=targets)
    moved(policy)
    names = set(policy.lora.parameters)
    assert any("experts" in name for name in names)
    trained = list(policy.lora.parameters.values())
    pad = torch.nn.functional.pad
    wanted = torch.stack([pad(v, (0, 20 - len(v))) for v in full_logprobs(policy.model, ROWS)])
    naive = torch.autograd.grad((wanted * weights(wanted.shape)).sum(), trained)
    found = policy.logprobs(ROWS)
    ours = torch.autograd.grad((found * weights(found.shape)).sum(), trained)
    both = [torch.cat([g.flatten() for g in gradients]) for gradients in (ours, naive)]
    assert (both[0] - both[1]).norm() < 1e-5 * both[1].norm()
    made(MOE).save(tmp_path / "base")
    policy.model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    policy.save(tmp_path / "model")
    merged, *loaded = (Policy.load(tmp_path / folder) for folder in ("model", "model/adapter"))
    for one in (merged, *loaded):
        torch.testing.assert_close(one.logprobs(ROWS), found, rtol=1e-5, atol=1e-5)


def test_the_reference_is_the_adapter_switched_off(fresh):
    """No copy of the weights; after a reset, the adapter as it was then."""
    policy = fresh()
    begun = policy.logprobs(ROWS).detach()
    policy.add_lora(rank=3)
    reference = policy.frozen_copy()
    moved(policy)
    now = policy.logprobs(ROWS).detach()
    assert (now - begun).abs().max() > 0.01
    with torch.no_grad():
        assert torch.equal(reference.logprobs(ROWS), begun)
    assert torch.equal(policy.logprobs(ROWS), now)
    assert all(p.requires_grad for p in policy.lora.parameters.values())
    reference.load_state_dict(policy.state_dict())
    moved(policy, 0.3)
    with torch.no_grad():
        assert torch.equal(reference.logprobs(ROWS), now)
    kept = reference.state_dict()
    again = policy.frozen_copy()
    again.load_state_dict(kept)
    with torch.no_grad():
        assert torch.equal(again.logprobs(ROWS), now)


def test_an_adapter_that_has_learned_before_is_its_own_reference(adapted):
    """The reference is the policy as it was given, and not what lies beneath."""
    policy = adapted()
    now = policy.logprobs(ROWS).detach()
    reference = policy.frozen_copy()
    moved(policy, 0.4)
    with torch.no_grad():
        assert torch.equal(reference.logprobs(ROWS), now)


def test_a_step_moves_the_adapter_alone(fresh):
    """With a KL penalty: the reference stays where it is, and the first KL is 0."""
    policy = fresh()
    policy.add_lora(rank=3)
    frozen = {name: p.clone() for name, p in policy.model.named_parameters() if not p.requires_grad}
    taught: Learner = learner(load_algorithm("grpo"), made=policy)
    batch = taught.prepared(batch_of())
    numbers = taught.update(batch, [range(6)], pytest.fail)
    assert numbers["kl_ref"] == 0
    assert numbers["updates"] == 1
    assert all(
        torch.equal(p, frozen[name])
        for name, p in policy.model.named_parameters()
        if name in frozen
    )
    assert not policy.lora.is_new
    assert torch.equal(
        taught.logprobs(batch.rows, taught.part(Reference).policy), batch.ref_logprobs
    )


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning"
)  # peft asks for it
def test_a_saved_policy_is_merged_and_has_its_adapter_beside_it(adapted, tmp_path):
    """Merged it is any model; the adapter is one of peft's, and with its base the same policy."""
    policy = adapted()
    base = Policy(*tiny(CHARSET, hidden=32, heads=4, kv_heads=2))
    base.save(tmp_path / "base")
    policy.model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    policy.save(tmp_path / "model")
    wanted = policy.logprobs(ROWS).detach()
    before = policy.lora.state_dict()
    assert torch.equal(policy.logprobs(ROWS), wanted)
    merged = Policy.load(tmp_path / "model")
    assert merged.lora is None
    assert {p.dtype for p in merged.model.parameters()} == {torch.float32}
    torch.testing.assert_close(merged.logprobs(ROWS), wanted, rtol=1e-5, atol=1e-5)
    loaded = Policy.load(tmp_path / "model" / "adapter")
    torch.testing.assert_close(loaded.logprobs(ROWS), wanted, rtol=1e-5, atol=1e-5)
    theirs = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "model/adapter"
    )
    torch.testing.assert_close(
        Policy(theirs, policy.tokenizer).logprobs(ROWS), wanted, rtol=1e-6, atol=1e-6
    )
    assert all(p.requires_grad for p in Policy(theirs, policy.tokenizer).lora.parameters.values())
    assert all(torch.equal(v, before[k]) for k, v in policy.lora.state_dict().items())
    loaded.add_lora(rank=2)  # and training goes on from there
    loaded.save(tmp_path / "second")
    torch.testing.assert_close(
        Policy.load(tmp_path / "second").logprobs(ROWS), wanted, rtol=1e-5, atol=1e-5
    )


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning"
)  # peft asks for it
def test_a_model_that_peft_has_wrapped_is_the_same(fresh):
    """Its layers are in the model already."""
    policy = fresh()
    wrapped = get_peft_model(
        fresh().model,
        LoraConfig(r=3, lora_alpha=6, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    theirs = Policy(wrapped, policy.tokenizer)
    assert len(moved(theirs).lora.parameters) == 28
    policy.add_lora(rank=3)
    assert torch.equal(moved(policy).logprobs(ROWS), theirs.logprobs(ROWS))


def test_bfloat16_weights_get_an_adapter_in_float32(fresh):
    """A learning rate of 1e-6 would change nothing in bfloat16."""
    model, tokenizer = tiny(CHARSET, hidden=32, dtype=torch.bfloat16)
    policy = Policy(model, tokenizer, autocast=torch.bfloat16)
    policy.add_lora(rank=2)
    assert {p.dtype for p in policy.lora.parameters.values()} == {torch.float32}
    found = moved(policy).logprobs(ROWS)
    assert gradient_dtypes(policy, found.sum()) == {torch.float32}
    [bucket] = policy.weights()
    assert {value.dtype for value in policy.lora.merge(bucket).values()} == {torch.float32}


def gradient_dtypes(policy, loss):
    loss.backward()
    return {p.grad.dtype for p in policy.lora.parameters.values()}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rank": 0}, "lora_rank is 0; it must be a whole number of at least 1"),
        ({"rank": 2, "alpha": 0}, "lora_alpha is 0; it must be a number above 0"),
        ({"rank": 2, "targets": ["qproj"]}, "no layer of Qwen2ForCausalLM is called; it has "
                                            "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; give none"),
        ({"rank": 2, "targets": ["q_proj", "qproj"]}, "lora_targets has 'qproj'"),
        ({"rank": 2, "targets": ["proj"]}, "lora_targets has 'proj'"),
        ({"rank": 2, "targets": [""]}, "lora_targets has ''"),
        ({"rank": 2, "targets": ["self_attn"]}, "no LoRA adapter can be put on self_attn: "),
        ({"rank": 2, "targets": ["lm_head"]}, "LoRA on lm_head: embeddings and head"),
        ({"rank": 2, "targets": ["embed_tokens"]}, "LoRA on model.embed_tokens: embeddings and head"),
    ],
)  # fmt: skip
def test_what_cannot_have_an_adapter_is_one_line(fresh, arguments, why):
    """One name that matches would let peft leave out the others without a word."""
    said = refusal(lambda: fresh().add_lora(**arguments))
    assert why in said
    assert "\n" not in said


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning"
)  # peft asks for it
def test_what_is_not_plain_lora_is_refused(fresh):
    """It would be computed or merged wrongly."""
    tokenizer = fresh().tokenizer
    kinds = {
        "freeze it": LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"]),
        "DoRA": LoraConfig(target_modules=["q_proj"], use_dora=True),
        "has no LoRA layers": PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
    }
    for why, config in kinds.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped = get_peft_model(fresh().model, config)
        assert why in refusal(lambda wrapped=wrapped: Policy(wrapped, tokenizer))
    wrapped = get_peft_model(fresh().model, LoraConfig(target_modules=["q_proj"]))
    wrapped.add_adapter("second", LoraConfig(target_modules=["q_proj"]))
    assert "has 2 adapters (default, second)" in refusal(lambda: Policy(wrapped, tokenizer))
    policy = fresh()
    policy.add_lora(rank=1)
    assert "has an adapter already" in refusal(lambda: policy.add_lora(rank=1))


def test_an_adapter_goes_on_with_its_own_base_alone(fresh, adapted):
    """Its numbers mean nothing beside other weights."""
    state = adapted().state_dict()
    other = fresh(seed=1)
    other.add_lora(rank=3)
    with pytest.raises(DataError, match="not those that this adapter was trained beside"):
        other.load_state_dict(state)
    wide = fresh()
    wide.add_lora(rank=4)
    with pytest.raises(UsageError, match="another rank"):
        wide.load_state_dict(state)


def test_an_adapters_folder_that_cannot_be_used_is_one_line(adapted, tmp_path, monkeypatch):
    """Its base is not named, not there, or another model."""
    policy = adapted()
    policy.lora.save(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    assert "does not say which model the adapter belongs to" in refusal(
        lambda: Policy.load(tmp_path)
    )
    config = json.loads((tmp_path / "adapter_config.json").read_text())

    def based_on(base: str) -> str:
        (tmp_path / "adapter_config.json").write_text(
            json.dumps(config | {"base_model_name_or_path": base})
        )
        said = refusal(lambda: Policy.load(tmp_path))
        assert "\n" not in said
        return said

    assert "which is an adapter too" in based_on(str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "nowhere" in based_on(str(tmp_path / "nowhere"))
    Policy(*tiny(CHARSET, hidden=48, heads=4)).save(tmp_path / "other")
    assert "does not fit its model" in based_on(str(tmp_path / "other"))


def test_a_run_trains_an_adapter_and_leaves_it_alone_and_merged(say, tmp_path):
    """From the command line: checkpoints hold the adapter alone, and the command goes on from them; both folders of
    the model can be evaluated, with the same completions."""
    Policy(*tiny(BANDIT, hidden=64, layers=2)).save(tmp_path / "base")
    flags = [*FLAGS, "--model", tmp_path / "base", "--run", tmp_path / "run", "--algorithm", "grpo", "--lr", "0.05",
             "--lora-alpha", 8, "--lora-targets", "q_proj", "v_proj", "--lora-rank", 2]  # fmt: skip
    code, said = say("train", *flags, "--steps", 1)
    assert code == 0, said
    code, said = say("train", *flags, "--steps", 2)
    assert code == 0, said
    assert "continuing after step 1" in say.err
    sizes = [path.stat().st_size for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert max(sizes) < (tmp_path / "base" / "model.safetensors").stat().st_size / 2
    config = json.loads(
        (tmp_path / "run" / "model" / "adapter" / "adapter_config.json").read_text()
    )
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (
        2,
        8,
        str(tmp_path / "base"),
    )
    reports = []
    for folder in ("model", "model/adapter"):
        code, said = say("eval", ENV, "--model", tmp_path / "run" / folder, "--limit", 8, "-n", 2, "--max-tokens", 4,
                         "--workers", 0, "-o", tmp_path / "r.json")  # fmt: skip
        assert code == 0, said
        reports.append(json.loads((tmp_path / "r.json").read_text())["tasks"])
    assert reports[0] == reports[1]
    assert "settings.lora_rank: int 2 there, int 4 here" in refusal_of(
        *say("train", *flags[:-1], 4, "--steps", 2)
    )


@pytest.mark.slow
def test_an_adapter_is_trained_in_bfloat16(say, tmp_path):
    """The frozen weights are bfloat16, the checkpoint goes on, and the merged model is float32."""
    Policy(*tiny(BANDIT, hidden=16, heads=2)).save(tmp_path / "base")
    flags = [
        *FLAGS,
        "--model",
        tmp_path / "base",
        "--run",
        tmp_path / "run",
        "--lora-rank",
        2,
        "--algorithm",
        "grpo",
    ]
    for steps in (1, 2):
        code, said = say("train", *flags, "--precision", "bf16", "--steps", steps)
        assert code == 0, said
    assert Policy.load(tmp_path / "run" / "model").model.dtype == torch.float32


@pytest.mark.slow
def test_another_base_under_the_same_name_is_noticed(say, tmp_path):
    """The checkpoint has the adapter alone."""
    Policy(*tiny(BANDIT, hidden=16, heads=2)).save(tmp_path / "base")
    flags = [
        *FLAGS,
        "--model",
        tmp_path / "base",
        "--run",
        tmp_path / "run",
        "--algorithm",
        "dr_grpo",
        "--lora-rank",
        2,
    ]
    assert say("train", *flags, "--steps", 1)[0] == 0
    Policy(*tiny(BANDIT, hidden=16, heads=2, seed=1)).save(tmp_path / "base")
    # Not one line: what the run would do is said before its checkpoint is read.
    code, said, *_ = say("train", *flags, "--steps", 2)
    assert (code, "not those that this adapter was trained beside" in said) == (2, True), said


def test_an_adapter_learns(tmp_path):
    """The bandit's first character, from nearly never to nearly always; and the sampler has the adapter too.

    The head stays frozen, so it is given the size that heads have: with a new one all tokens are equally likely.
    """
    made = bandit()
    with torch.no_grad():
        made.model.get_output_embeddings().weight.mul_(50)
    rows = run_to_end(
        tmp_path / "run", made=made, lora_rank=4, steps=15, prompts=8, lr=0.03, algorithm="dr_grpo"
    )
    assert rows[0]["accuracy"] < 0.3
    assert sum(row["accuracy"] for row in rows[-3:]) / 3 > 0.9
    assert max(row["canary"] for row in rows) < 1e-4


def test_without_peft_the_extra_is_named(fresh, monkeypatch):
    """One line says how to get it."""
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingDependency, match=r"peft is not installed.*\[lora\]"):
        fresh().add_lora(rank=1)
