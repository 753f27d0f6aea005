"""Rows that come and go: how many steps that takes, what memory it takes, and that no rollout notices."""

import heapq
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from rlvr.samplers import banded_attention
from rlvr.samplers.decoding import Decoding
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Request, Sampling
from rlvr.samplers.tokenization import Tokenization
from tests.rewards.parts import refusal
from tests.samplers.test_local import PROMPTS, drawn, polled, submitted

LONG = Sampling(max_tokens=60)


class Constant(torch.nn.Module):
    """Says token 0 for ever, so that a rollout ends at its limit; the cache holds one number per token."""

    def __init__(self) -> None:
        super().__init__()
        self.config = transformers.Qwen2Config(num_hidden_layers=1)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def forward(self, input_ids, attention_mask, past_key_values, use_cache, position_ids):
        past_key_values.update(*[torch.zeros(len(input_ids), 1, input_ids.shape[1], 1)] * 2, 0)
        return transformers.modeling_outputs.CausalLMOutputWithPast(
            logits=torch.zeros(len(input_ids), 1, 2)
        )


def steps_of(lengths: list[int], rows: int) -> int:
    """Decode steps that rollouts of these lengths take, in groups of 16."""
    tokenizer = SimpleNamespace(get_added_vocab=dict)
    decoding = Decoding(
        Constant(),
        Tokenization(tokenizer, ()),
        LONG,
        torch.zeros(2, dtype=torch.bool),
        max_rows=rows,
    )
    for i, length in enumerate(lengths):
        decoding.add(Request(i, (1, 2, i // 16), LONG, seed=i, limit=length))
    found = []
    while len(decoding):
        found += [
            (result.request.id, len(result.completion_ids)) for result in decoding.advance(16)
        ]
    assert sorted(found) == list(enumerate(lengths))
    return decoding.steps


def in_order(lengths: list[int], rows: int) -> int:
    """The steps of a perfect refill in the given order: each rollout begins when the first row is free."""
    free = [0] * rows
    for length in lengths:
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


def geometric(count: int) -> list[int]:
    """Lengths with a mean of nearly 8, cut at 35: as skewed as 44 cut at 192."""
    return np.random.default_rng(0).geometric(1 / 8, size=count).clip(1, 35).tolist()


def test_many_rollouts_take_the_steps_of_their_tokens():
    """8192 rollouts in 64 rows: at most a tenth more than tokens / rows, which is where all rows are always busy."""
    lengths = geometric(8192)
    steps = steps_of(lengths, 64)
    assert steps == in_order(lengths, 64)
    assert steps <= 1.1 * -(-sum(lengths) // 64)


def test_fewer_rollouts_take_the_steps_of_a_perfect_refill():
    """1024 rollouts in 256 rows: with four rollouts to a row, the longest is the end, and no one knows which it is.

    Batches that wait for their longest rollout would take 2.4 times as many.
    """
    lengths = geometric(1024)
    steps = steps_of(lengths, 256)
    assert steps == in_order(lengths, 256)
    assert 2.2 * steps < sum(max(lengths[start : start + 256]) for start in range(0, 1024, 256))


def test_a_refilled_row_is_the_rollout_alone(policy, full_logprobs):
    """Two rows for 24 rollouts: the same tokens, and logprobs within 1e-10 of each row alone, in float64."""
    prompts = [
        *PROMPTS,
        (5,),
        tuple([5, 6] * 30),
    ]  # one token, and longer than all that was there before
    together, few = (drawn(policy.sampler(max_rows=rows), LONG, prompts, 4) for rows in (256, 2))
    assert {key: s.completion_ids for key, s in few.items()} == {
        key: s.completion_ids for key, s in together.items()
    }
    samples = list(few.values())
    with torch.no_grad():
        for sample, wanted in zip(samples, full_logprobs(policy.model, samples), strict=True):
            found = torch.tensor(sample.model_logprobs, dtype=torch.float64)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_attention_in_bands_is_the_same_attention(policy, full_logprobs, monkeypatch):
    """Old rows stand first and read more columns than young ones; the model's own setting is back afterwards."""
    monkeypatch.setattr("rlvr.samplers.decoding._FEWEST", 8)
    bands, attention = [], banded_attention.sdpa_attention_forward
    monkeypatch.setattr(
        banded_attention,
        "sdpa_attention_forward",
        lambda module, query, key, *rest, **more: (
            bands.append((len(query), key.shape[2])) or attention(module, query, key, *rest, **more)
        ),
    )
    samples = list(drawn(policy.sampler(max_rows=16), LONG, n=16).values())
    assert policy.model.config._attn_implementation == "sdpa"
    full = [
        rows for rows in zip(*[iter(bands)] * 3, strict=False) if [n for n, _ in rows] == [2, 4, 10]
    ]
    assert full
    assert all(oldest[1] >= middle[1] >= young[1] for oldest, middle, young in full)
    assert sum(n * width for rows in full for n, width in rows) < 0.8 * sum(
        16 * rows[0][1] for rows in full
    )
    with torch.no_grad():
        for sample, wanted in zip(samples, full_logprobs(policy.model, samples), strict=True):
            found = torch.tensor(sample.model_logprobs, dtype=torch.float64)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_the_same_requests_give_the_same_bits(policy):
    """What a resumed run relies on: tokens, texts and logprobs, whenever it is polled."""
    first, again = (drawn(policy.sampler(max_rows=3), LONG) for _ in range(2))
    assert first == again


def test_requests_join_those_that_run(policy):
    """The next turn of an episode comes while others are sampled: it is as if it had been alone."""
    alone = drawn(policy.sampler(), LONG, ["99+99="], 2)
    sampler = submitted(policy.sampler(), LONG, ["12+3="], 4)
    sampler.poll()
    assert sampler.steps > 0
    for g in range(2):
        sampler.submit(Request(("late", g), tuple(sampler.encode("99+99=")), LONG, g, 60))
    found = dict(polled(sampler, 6 - (4 - len(sampler._decoding))))
    assert [found["late", g].completion_ids for g in range(2)] == [
        alone[0, g].completion_ids for g in range(2)
    ]


def test_requests_with_other_settings_run_side_by_side(policy):
    """Each at its own temperature: what it draws is what it draws alone."""
    cold = Sampling(max_tokens=60, temperature=0.5)
    alone = drawn(policy.sampler(), LONG, ["7"], 2), drawn(policy.sampler(), cold, ["1+1="], 2)
    sampler = submitted(policy.sampler(), LONG, ["7"], 2)
    for g in range(2):
        context = tuple(sampler.encode("1+1="))
        sampler.submit(Request(("cold", g), context, cold, g, 60, rollout=g))
    together = dict(polled(sampler, 4))
    for g in range(2):
        for mixed, own in ((together[0, g], alone[0][0, g]), (together["cold", g], alone[1][0, g])):
            assert mixed.completion_ids == own.completion_ids
            assert mixed.logprobs == pytest.approx(own.logprobs, abs=1e-5)


def test_prompts_are_read_once_however_few_rows_there_are(policy):
    """A group of six in two rows: its prompt is kept until the last of them has begun."""
    sizes = []
    hook = policy.model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    drawn(policy.sampler(max_rows=2), LONG, n=6)
    hook.remove()
    assert [size for size in sizes if size[1] > 1] == [(4, 6)]


@pytest.mark.parametrize("most", [80, 110])
def test_keys_and_values_keep_to_their_limit(policy, most):
    """12 rollouts of 65 tokens would take 780; rows that have to make room are the same rollouts later on."""

    def endless(**options):
        return LocalSampler(policy.model, Tokenization(policy.tokenizer, end_ids=()), **options)

    free = drawn(endless(), LONG)
    sampler, seen, evicted = submitted(endless(max_tokens_in_flight=most), LONG), [], []
    evict = Decoding._evict
    Decoding._evict = lambda self, rollout: (
        evicted.append(rollout.request.id) or evict(self, rollout)
    )
    try:
        found = []
        while len(found) < 12:
            found += sampler.poll()
            if sampler._decoding is not None:
                room = sampler._decoding._room
                seen.append(room.places * room.columns + sampler._decoding._count_stored())
    finally:
        Decoding._evict = evict
    assert max(seen) <= most
    assert evicted
    for key, sample in found:
        assert (sample.completion_ids, sample.text) == (free[key].completion_ids, free[key].text)
        assert sample.logprobs == pytest.approx(free[key].logprobs, abs=1e-10)
    said = refusal(lambda: submitted(endless(max_tokens_in_flight=50), LONG))
    assert said.startswith(
        "request (0, 0) has 6 tokens and may get 60 more, and max_tokens_in_flight is 50; raise it"
    )


def test_what_is_aborted_leaves_its_place(policy):
    """Waiting or running; the others do not notice, and nothing is left over."""
    expected = drawn(policy.sampler(), LONG)
    sampler = submitted(policy.sampler(max_rows=4), LONG)
    found = dict(sampler.poll())
    dropped = [key for key in expected if key not in found][::2]
    sampler.abort([*dropped, "unknown"])
    found |= dict(polled(sampler, 12 - len(found) - len(dropped)))
    assert set(found) == set(expected) - set(dropped)
    assert all(found[key].completion_ids == expected[key].completion_ids for key in found)
    sampler = submitted(policy.sampler(), LONG)
    sampler.poll()
    sampler.abort(expected)
    assert sampler.poll() == []
    assert sampler._decoding is None


def test_new_weights_are_those_of_the_next_rollouts(fresh):
    """A sync in the middle: what had begun carries the old version; prompts that were read ahead are read again."""
    policy = fresh()
    sampler = submitted(
        policy.sampler(dtype=torch.float32, max_rows=2), Sampling(max_tokens=20), n=1
    )
    found = dict(sampler.poll())
    begun = {r.request.id for r in sampler._decoding._live()} | set(found)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    sampler.sync(policy.weights(), 1)
    found |= dict(polled(sampler, 4 - len(found)))
    assert {key: s.weights_version for key, s in found.items()} == {
        key: int(key not in begun) for key in found
    }
    assert 0 < len(begun) < 4
    new = drawn(policy.sampler(), Sampling(max_tokens=20), n=1)
    for key in found:
        assert (found[key].completion_ids == new[key].completion_ids) or key in begun
