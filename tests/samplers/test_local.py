"""The local sampler: what it draws, when it stops, and what it says about it."""

import math
from collections import Counter

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM

from rlvr.errors import RlvrError
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.preallocated_cache import PreallocatedLayer, cache_argument
from rlvr.samplers.protocol import Request, Sampler, Sampling, TokenRow
from rlvr.samplers.token_sampling import allowed_tokens
from rlvr.samplers.tokenization import Tokenization
from rlvr.train.policy import Policy
from rlvr.train.tiny import character_tokenizer
from tests.rewards.parts import refusal
from tests.train.chances import too_unlikely

PROMPTS = ["12+3=", "7", "99+99=", "1+1="]  # of different lengths, so that some are padded


def submitted(sampler, sampling, prompts=PROMPTS, n=3, seeds=None, limits=None):
    """Ask for n rollouts of each prompt."""
    for p, prompt in enumerate(prompts):
        context = tuple(prompt) if isinstance(prompt, tuple) else tuple(sampler.encode(prompt))
        limit = sampling.max_tokens if limits is None else limits[p]
        for g in range(n):
            seed = 1000 * p + g if seeds is None else seeds[p][g]
            sampler.submit(Request((p, g), context, sampling, seed, limit, rollout=g))
    return sampler


def polled(sampler, count):
    """As many finished requests as there are, in their order."""
    out = []
    while len(out) < count:
        out += sampler.poll()
    return out


def drawn(sampler, sampling, prompts=PROMPTS, n=3, **options):
    """(prompt, rollout) → sample; each exactly once."""
    submitted(sampler, sampling, prompts, n, **options)
    out = polled(sampler, len(prompts) * n)
    found = dict(out)
    assert sorted(found) == [(p, g) for p in range(len(prompts)) for g in range(n)]
    assert len(out) == len(found)
    assert sampler.poll() == []
    return found


def test_it_is_a_sampler(policy):
    """It has all that the protocol asks for, and draws from the policy's own module."""
    sampler = policy.sampler()
    assert isinstance(sampler, Sampler)
    assert sampler.model is policy.model


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_full_forward(policy, full_logprobs, temperature):
    """Prompts padded, read once per group, rows dropped and moved on the way: 1e-10 from each row alone, in float64."""
    samples = list(
        drawn(policy.sampler(), Sampling(max_tokens=40, temperature=temperature)).values()
    )
    lengths = [len(s.completion_ids) for s in samples]
    assert len(set(lengths)) > 4  # or nothing was dropped
    with torch.no_grad():
        own, tempered = (full_logprobs(policy.model, samples, t) for t in (1.0, temperature))
    for sample, one, other in zip(samples, own, tempered, strict=True):
        torch.testing.assert_close(
            torch.tensor(sample.model_logprobs, dtype=torch.float64), one, rtol=0, atol=1e-10
        )
        torch.testing.assert_close(
            torch.tensor(sample.logprobs, dtype=torch.float64), other, rtol=0, atol=1e-10
        )


def test_a_rollout_is_the_same_alone_and_in_any_company(policy):
    """The seed fixes it: not its batch, not its place, not the others' lengths, not how many are side by side."""
    sampling = Sampling(max_tokens=40)
    together = drawn(policy.sampler(), sampling)
    for (p, g), sample in together.items():
        alone = drawn(policy.sampler(), sampling, [PROMPTS[p]], 1, seeds=[[1000 * p + g]])[0, 0]
        assert alone.completion_ids == sample.completion_ids
        assert alone.text == sample.text
    narrow = drawn(policy.sampler(max_rows=5), sampling)
    assert {k: s.completion_ids for k, s in narrow.items()} == {
        k: s.completion_ids for k, s in together.items()
    }
    others = drawn(
        policy.sampler(),
        sampling,
        seeds=[[10**9 + 1000 * p + g for g in range(3)] for p in range(4)],
    )
    assert all(
        others[k].completion_ids != s.completion_ids
        for k, s in together.items()
        if len(s.completion_ids) > 5
    )


def test_rows_of_several_samplings_are_side_by_side(policy):
    """Greedy, cooler and cut-off ones beside others: each as it is alone, in one batch."""
    kinds = [
        Sampling(max_tokens=30),
        Sampling(max_tokens=40, temperature=0.0),
        Sampling(max_tokens=30, temperature=0.7, top_p=0.8),
        Sampling(max_tokens=30, top_k=3),
    ]
    apart = [drawn(policy.sampler(), kind, n=1) for kind in kinds]
    sampler = policy.sampler()
    for number, kind in enumerate(kinds):
        for p, prompt in enumerate(PROMPTS):
            context = tuple(sampler.encode(prompt))
            sampler.submit(Request((number, p), context, kind, 1000 * p, kind.max_tokens))
    found = dict(polled(sampler, 16))
    for number, alone in enumerate(apart):
        for p in range(4):
            mine, theirs = found[number, p], alone[p, 0]
            assert mine.completion_ids == theirs.completion_ids
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
    assert sampler.steps < 1.5 * max(len(one.completion_ids) for one in found.values()) + 32


def test_what_ends_early_does_not_change_the_rest(policy):
    """With a limit of 3 for one prompt the others draw what they drew without it."""
    sampling = Sampling(max_tokens=30)
    free, limited = (
        drawn(policy.sampler(), sampling, limits=limits) for limits in (None, [30, 3, 30, 30])
    )
    for key, sample in free.items():
        if key[0] == 1:
            assert limited[key].completion_ids == sample.completion_ids[:3]
            assert limited[key].truncated == (len(sample.completion_ids) > 3)
        else:
            assert (
                limited[key].completion_ids == sample.completion_ids
            )  # logprobs agree up to their last bit


def test_a_prompt_is_read_once_and_finished_rows_leave(policy):
    """The first forward has a row per prompt, all but its last token; each later one a row per rollout that grows."""
    sizes = []
    hook = policy.model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    lengths = [
        len(s.completion_ids) for s in drawn(policy.sampler(), Sampling(max_tokens=25)).values()
    ]
    hook.remove()
    assert sizes[0] == (4, 6)  # <bos>99+99= is the longest prompt
    assert sizes[1:] == [(sum(n > t for n in lengths), 1) for t in range(max(lengths))]


def test_rollouts_come_as_they_finish(policy):
    """So that scoring the short ones overlaps with the long ones; and the caller is not left in inference mode."""
    sampler, lengths = submitted(policy.sampler(), Sampling(max_tokens=25)), []
    for _, sample in polled(sampler, 12):
        assert not torch.is_inference_mode_enabled()
        lengths.append(len(sample.completion_ids))
    assert lengths == sorted(lengths)


def test_the_sampler_draws_from_the_model(policy):
    """The whole way, 3000 rollouts of one token with top-p at temperature 1.5, against the model's own softmax."""
    sampling = Sampling(max_tokens=1, temperature=1.5, top_p=0.8)
    found = drawn(policy.sampler(max_rows=1000), sampling, ["12+"], 3000)
    with torch.no_grad():
        logits = policy.model(torch.tensor([policy.tokenization.encode("12+")])).logits[0, -1]
    probs = (logits / 1.5).softmax(0)
    probs = probs.where(allowed_tokens(probs[None], sampling)[0], 0)
    assert 0.8 <= probs.sum() < 1
    exact = probs / probs.sum()
    assert not too_unlikely(Counter(s.completion_ids[0] for s in found.values()), exact.tolist())
    for sample in found.values():
        assert sample.logprobs[0] == pytest.approx(
            math.log(exact[sample.completion_ids[0]]), abs=1e-12
        )


def test_temperature_zero_takes_the_most_likely(policy):
    """As `generate` does; the choice was certain, so its logprob is 0, and the model's own is kept."""
    sample = drawn(policy.sampler(), Sampling(max_tokens=12, temperature=0), ["12+3="], 1)[0, 0]
    ids = torch.tensor([policy.tokenization.encode("12+3=")])
    wanted = policy.model.generate(
        ids, do_sample=False, max_new_tokens=12, attention_mask=torch.ones_like(ids)
    )
    assert sample.completion_ids == wanted[0, ids.shape[1] :].tolist()
    assert set(sample.logprobs) == {0.0}
    assert all(value < 0 for value in sample.model_logprobs)


def test_the_end_token_ends_a_rollout_and_the_limit_cuts_it_off(policy):
    """The end token is among the ids, for the policy drew it, and not in the text; at the limit it still counts."""
    samples = drawn(policy.sampler(), Sampling(max_tokens=40), n=8).values()
    ended = [s for s in samples if not s.truncated]
    assert ended
    for sample in samples:
        assert (sample.completion_ids[-1] == 2) == (not sample.truncated)
        assert 2 not in sample.completion_ids[:-1]
        assert len(sample.completion_ids) == 40 or not sample.truncated
        assert "<eos>" not in sample.text
        assert sample.text == policy.tokenization.decode(sample.completion_ids)
    [(key, short)] = [
        min(
            drawn(policy.sampler(), Sampling(max_tokens=40), n=8).items(),
            key=lambda kv: len(kv[1].text),
        )
    ]
    exact = drawn(policy.sampler(), Sampling(max_tokens=len(short.completion_ids)), n=8)[key]
    assert exact == short
    assert not exact.truncated


def test_every_end_token_of_the_generation_config_counts(fresh):
    """Chat models have several; one known to the tokenizer alone counts too."""
    policy = fresh()
    policy.model.generation_config.eos_token_id = [4, 5, 6, 7, 8]
    policy = Policy(policy.model, policy.tokenizer)
    samples = drawn(policy.sampler(), Sampling(max_tokens=60), n=8).values()
    assert {s.completion_ids[-1] for s in samples if not s.truncated} >= {2, 4, 5}
    assert all({2, 4, 5, 6, 7, 8}.isdisjoint(s.completion_ids[:-1]) for s in samples)
    assert all({*"01234"}.isdisjoint(s.text) for s in samples)


def test_a_stop_text_ends_a_rollout_wherever_its_tokens_begin(policy):
    """Of "a" and "b" both alone may stand in the text; together they end it, and the text stops before them."""
    free = drawn(policy.sampler(), Sampling(max_tokens=200), n=6)
    stopped = drawn(policy.sampler(), Sampling(max_tokens=200, stop=("ab", "+", "90")), n=6)
    ends = Counter()
    for key, sample in stopped.items():
        whole = free[key].text
        at = min(
            (whole.find(stop) for stop in ("ab", "+", "90") if stop in whole), default=len(whole)
        )
        assert sample.text == whole[:at]
        said = policy.tokenizer.decode(sample.completion_ids, skip_special_tokens=True)
        ends[next((stop for stop in ("ab", "+", "90") if said.endswith(stop)), "none")] += 1
        assert sample.truncated == (len(sample.completion_ids) == 200)
        assert free[key].completion_ids[: len(sample.completion_ids)] == sample.completion_ids
    assert ends["+"]
    assert ends["90"] + ends["ab"]


class Scripted(torch.nn.Module):
    """Says given tokens, whatever came before; only what the sampler looks at is there."""

    def __init__(self, script: list[int], vocabulary: int) -> None:
        super().__init__()
        self.script, self.head = script, torch.nn.Linear(1, vocabulary)
        self.config = transformers.Qwen2Config(num_hidden_layers=1, max_position_embeddings=64)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head

    def forward(self, input_ids, attention_mask, past_key_values, use_cache, position_ids):
        logits = torch.full((len(input_ids), 1, self.head.out_features), -1e4)
        logits[:, 0, self.script[int(position_ids[0, -1])]] = 0.0
        past_key_values.update(*[torch.zeros(len(input_ids), 1, input_ids.shape[1], 1)] * 2, 0)
        return transformers.modeling_outputs.CausalLMOutputWithPast(logits=logits)


def says(tokenizer, tokens: list[str], stop: tuple[str, ...]):
    """The sample of a model that says these tokens after a prompt of one."""
    script = tokenizer.convert_tokens_to_ids(tokens)
    assert None not in script
    sampler = LocalSampler(Scripted(script, len(tokenizer)), Tokenization(tokenizer, end_ids=()))
    return drawn(sampler, Sampling(max_tokens=len(script), stop=stop), [(0,)], 1)[0, 0]


def bpe(pieces: list[str], byte_level: bool = False):
    """A tokenizer with exactly these tokens, and special <s> before them."""
    tokenizer = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(["<s>", *pieces])}, merges=[])
    )
    tokenizer.decoder = decoders.ByteLevel() if byte_level else decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def test_a_special_token_as_stop_text():
    """Texts are decoded without special tokens, so it is seen as the token that it is; the text has none of it."""
    tokenizer = bpe(["x"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    sample = says(tokenizer, ["x", "<|im_end|>", "x", "x"], ("<|im_end|>",))
    assert (sample.text, len(sample.completion_ids), sample.truncated) == ("x", 2, False)


def test_a_stop_text_that_begins_with_a_space():
    """Tokenizers after SentencePiece write ▁ for it, and leave it out where a text begins."""
    tokenizer = bpe(["x", "▁Q", "▁", ":", "Q"])
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    sample = says(tokenizer, ["x", "▁Q", ":", "x"], (" Q:",))
    assert (sample.text, len(sample.completion_ids)) == ("x", 3)
    sample = says(tokenizer, ["x", "Q", ":", "▁Q", "x"], (" ",))
    assert (sample.text, len(sample.completion_ids)) == ("xQ:", 4)
    assert says(tokenizer, ["x", "Q", ":", "x"], (" Q:",)).truncated


@pytest.mark.parametrize(
    ("tokens", "stop", "text", "drawn_tokens"),
    [
        (["x", "yen", "d", "x"], ("end",), "xy", 3),  # begins in one token, ends in the next
        (
            ["x", "yen", "de", "x"],
            ("end",),
            "xy",
            3,
        ),  # what comes after it in that token is cut off as well
        (["x", "bend", "x"], ("end",), "xb", 2),  # inside of one
        (["e", "e", "n", "d"], ("end",), "e", 4),  # after a false start
        (["e", "n", "x", "d"], ("end",), "enxd", 4),  # held apart: all of it is text
        (["x", "d", "e", "n"], ("end", "de"), "x", 3),  # whichever is complete first
        (["bend", "x"], ("en", "bend"), "", 1),  # whichever begins first, of two in one token
    ],
)
def test_a_stop_text_across_tokens(tokens, stop, text, drawn_tokens):
    """Ids keep all that was drawn, the text ends where the stop text begins."""
    sample = says(bpe(["x", "yen", "d", "de", "bend", "e", "n"]), tokens, stop)
    assert (sample.text, len(sample.completion_ids)) == (text, drawn_tokens)
    assert sample.truncated == (text == "enxd")


def test_a_stop_text_of_half_characters():
    """Byte-level tokens Ã and © are the two bytes of é, and neither alone is a character."""
    tokenizer = bpe(["x", "Ã", "©", "ª"], byte_level=True)
    sample = says(tokenizer, ["x", "Ã", "©", "x"], ("é",))
    assert (sample.text, len(sample.completion_ids)) == ("x", 3)
    assert says(tokenizer, ["x", "Ã", "ª", "x"], ("é",)).text == "xêx"


def test_a_prompt_may_be_tokens_already(policy):
    """To go on from a completion: taken as they are, no second <bos>."""
    ids = tuple(policy.tokenization.encode("12+3="))
    sampling = Sampling(max_tokens=10)
    from_ids = drawn(policy.sampler(), sampling, [ids], 2)
    assert from_ids == drawn(policy.sampler(), sampling, ["12+3="], 2)
    assert list(from_ids[0, 0].prompt_ids) == list(ids)


def test_gradient_checkpointing_does_not_take_the_cache_away(fresh):
    """Layers in training mode drop it; the sampler looks at the model in evaluation mode and puts it back."""
    plain, checkpointed = fresh(), fresh(gradient_checkpointing=True)
    sampling = Sampling(max_tokens=20)
    found = dict(polled(submitted(checkpointed.sampler(), sampling), 12))
    assert checkpointed.model.training
    assert found == drawn(plain.sampler(), sampling)
    checkpointed.logprobs(
        list(found.values())
    ).sum().backward()  # nothing is left that autograd cannot use


def test_the_canary_sees_what_generation_sees(fresh):
    """Token by token with the cache, the same logprobs as the policy's: until weights differ that should not."""
    policy, rows = (
        fresh(),
        [TokenRow([1, 4, 5], [6, 7, 8, 2, 9]), TokenRow([1], [10]), TokenRow([1, 2], [])],
    )

    def difference(sampler) -> float:
        wanted = policy.logprobs(rows).tolist()
        assert [len(values) for values in sampler.logprobs(rows)] == [5, 1, 0]
        pairs = zip(sampler.logprobs(rows), wanted, strict=True)
        return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=False))

    shared, copied = policy.sampler(), policy.sampler(dtype=torch.float32)
    assert difference(shared) < 1e-5
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    assert difference(shared) < 1e-5
    assert difference(copied) > 1e-3
    shared.sync(policy.weights(), 1)  # its own
    said = refusal(lambda: shared.sync([copied.model.state_dict()], 2))
    assert said.startswith(
        "this sampler shares the trainer's weights, and 'model.embed_tokens.weight' is not among"
    )
    assert shared.version == 1
    copied.sync(policy.weights(), 7)
    assert difference(copied) < 1e-5
    assert {s.weights_version for s in drawn(copied, Sampling(max_tokens=2)).values()} == {7}


def test_a_copy_in_bfloat16_keeps_its_buffers(fresh):
    """Rotary frequencies rounded to three digits would turn far positions by the wrong angle."""
    sampler = fresh().sampler(dtype=torch.bfloat16)
    assert {p.dtype for p in sampler.model.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in sampler.model.buffers()} == {torch.float32}
    samples = drawn(sampler, Sampling(max_tokens=20)).values()
    assert all(len(s.model_logprobs) == len(s.completion_ids) for s in samples)


def test_autocast_is_that_of_the_policy(fresh):
    """Ratios begin at 1: what the sampler says and what the policy says differ by the products' order alone."""
    policy = fresh(autocast=torch.bfloat16)
    samples = list(drawn(policy.sampler(), Sampling(max_tokens=20)).values())
    with torch.no_grad():
        found = policy.logprobs(samples)
    for sample, row in zip(samples, found, strict=True):
        own = torch.tensor(sample.model_logprobs)
        assert (own - row[: len(own)]).abs().max() < 0.03


def test_keys_are_kept_in_the_type_that_attention_takes(fresh, monkeypatch):
    """Rotated in float32 beside values in bfloat16 they took twice the room, and were cast again at every token."""
    seen, update = set(), PreallocatedLayer.update

    def updating(layer, *states, **more):
        found = update(layer, *states, **more)
        seen.add(tuple(one.dtype for one in found))
        return found

    monkeypatch.setattr(PreallocatedLayer, "update", updating)
    drawn(fresh(autocast=torch.bfloat16).sampler(), Sampling(max_tokens=3))
    assert seen == {(torch.bfloat16, torch.bfloat16)}


def test_logits_that_are_not_finite_stop_the_run(fresh):
    """A step that went wrong shows here first; drawing on would give token 22 for ever."""
    policy = fresh()
    with torch.no_grad():
        policy.model.lm_head.weight[7] = float("nan")
    with pytest.raises(RlvrError, match=r"not finite after 0 tokens of request \(0, 0\)"):
        drawn(policy.sampler(), Sampling(max_tokens=5))


def test_what_does_not_fit_is_said_before_the_first_token(policy):
    """Beyond its positions a model draws nonsense, or crashes with an index."""
    sampler = policy.sampler()
    said = refusal(lambda: drawn(sampler, Sampling(max_tokens=1020)))
    assert (
        "request (0, 0) has 6 tokens and may get 1020 more, and the model has 1024 positions"
        in said
    )
    said = refusal(lambda: drawn(policy.sampler(), Sampling(max_tokens=1), [tuple([5] * 1024)], 1))
    assert (
        "request (0, 0) has 1024 tokens and the model 1024 positions: no room is left for a completion"
        in said
    )
    assert "limit 0" in refusal(lambda: drawn(sampler, Sampling(max_tokens=5), limits=[5, 0, 5, 5]))
    assert "max_rows is 0" in refusal(lambda: policy.sampler(max_rows=0))


SIZES = {
    "vocab_size": 23, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
OTHERS = {
    "eager attention": transformers.LlamaConfig(**SIZES, attn_implementation="eager"),
    "a sliding window": transformers.MistralConfig(**SIZES, sliding_window=6),
    "sliding and full": transformers.Gemma2Config(
        **SIZES, sliding_window=6, query_pre_attn_scalar=8
    ),
    "learned positions": transformers.GPT2Config(
        vocab_size=23,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "no positions": transformers.BloomConfig(
        vocab_size=23, hidden_size=32, n_layer=2, n_head=4, eos_token_id=2
    ),
    "convolutions": transformers.Lfm2Config(
        **{k: v for k, v in SIZES.items() if k != "head_dim"},
        layer_types=["conv", "full_attention"],
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_of_models_agree_with_their_full_forward(kind, full_logprobs):
    """Caches that slide or hold states, masks of other shapes: every row as if it were alone."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(OTHERS[kind])
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    policy = Policy(model.eval(), character_tokenizer("0123456789+-= abcxy"))
    for rows in (256, 5):  # all at once, and refilled
        samples = list(drawn(policy.sampler(max_rows=rows), Sampling(max_tokens=20)).values())
        assert len({len(s.completion_ids) for s in samples}) > 2
        with torch.no_grad():
            for sample, wanted in zip(samples, full_logprobs(model, samples), strict=True):
                torch.testing.assert_close(
                    torch.tensor(sample.model_logprobs), wanted, rtol=0, atol=1e-5
                )


def test_a_model_without_a_cache_is_refused(monkeypatch):
    """Without one every token would be drawn as if it were the first."""
    policy = Policy(
        AutoModelForCausalLM.from_config(OTHERS["no positions"]), character_tokenizer("ab")
    )
    monkeypatch.setattr(type(policy.model), "forward", lambda self, input_ids: None)
    assert "BloomForCausalLM takes neither cache nor past_key_values" in refusal(policy.sampler)


@pytest.mark.parametrize("name", ["cache", "past_key_values", ""])
def test_the_cache_is_given_by_the_name_that_the_model_has(name):
    """transformers 5.24 renamed it."""
    model = torch.nn.Module()
    model.forward = {
        "cache": lambda input_ids, cache=None: None,
        "past_key_values": lambda input_ids, past_key_values=None: None,
        "": lambda input_ids: None,
    }[name]
    assert cache_argument(model) == name
