"""Samplings, samples and the scripted sampler: what a collector may rely on."""

import pytest

import rlvr
from rlvr.collect import END, Request, Sample, Sampler, Sampling, ScriptedSampler, rollout_seed
from tests.rewards.parts import refusal

PLAIN = Sampling(max_tokens=8)
CHAT = [{"role": "user", "content": "hi"}]


def drawn(sampler, prompts, n=1, sampling=PLAIN, limits=None):
    """Samples by (prompt, rollout)."""
    for p, prompt in enumerate(prompts):
        limit = sampling.max_tokens if limits is None else limits[p]
        for g in range(n):
            sampler.submit(
                Request(
                    (p, g), tuple(sampler.encode(prompt)), sampling, 100 * p + g, limit, rollout=g
                )
            )
    return dict(sampler.poll())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"min_p": "0"}, "min_p is '0'"),
        ({"stop": "###"}, "stop is str '###'"),
        ({"stop": ("",)}, "stop is tuple ('',)"),
    ],
)
def test_a_sampling_that_cannot_work_is_refused(given, named):
    """Here, and not by an engine after minutes of loading."""
    assert refusal(lambda: Sampling(**{"max_tokens": 8, **given})).startswith(named)


def test_a_list_of_stop_texts_becomes_a_tuple():
    """So that a sampling can be hashed and compared, wherever it was read from."""
    assert Sampling(max_tokens=8, stop=["a"]) == Sampling(max_tokens=8, stop=("a",))


def test_the_plain_distribution_is_told_from_scaled_and_cut_ones():
    """Temperature scales; top-p, top-k and min-p cut."""
    assert PLAIN.plain
    assert not PLAIN.truncates
    assert not Sampling(max_tokens=8, temperature=0.7).plain
    assert not Sampling(max_tokens=8, temperature=0.7).truncates
    for cut in ({"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}):
        assert Sampling(max_tokens=8, **cut).truncates
        assert not Sampling(max_tokens=8, **cut).plain


def test_behaviour_logprobs_are_the_models_own_where_nothing_was_done_to_them():
    """The raw ones are what the trainer computes at temperature 1; else it takes the actual ones."""
    sample = Sample("a", [1], [2], [-0.25], False, 3, model_logprobs=[-0.5])
    assert sample.behaviour_logprobs(PLAIN) == [-0.5]
    assert sample.behaviour_logprobs(Sampling(max_tokens=8, temperature=0.5)) == [-0.25]
    assert sample.behaviour_logprobs(Sampling(max_tokens=8, top_k=2)) == [-0.25]
    assert Sample("a", [1], [2], [-0.25], False, 3).behaviour_logprobs(PLAIN) == [
        -0.25
    ]  # an engine knows one kind


def test_a_sample_without_tokens_or_with_missing_logprobs_is_refused():
    """Even an empty answer has its end token."""
    with pytest.raises(ValueError, match="at least 1"):
        Sample("", [1], [], [], False, 0)
    with pytest.raises(ValueError, match="'logprobs': 1"):
        Sample("ab", [1], [2, 3], [-1.0], False, 0)
    with pytest.raises(ValueError, match="'model_logprobs': 1"):
        Sample("ab", [1], [2, 3], [-1.0, -1.0], False, 0, model_logprobs=[-1.0])


def test_a_rollout_seed_is_a_hash_of_its_whole_key():
    """(1, 2) and (2, 1), and "1" and 1, are different rollouts; the same key is the same one, in any process."""
    keys = [(1, 2), (2, 1), (3,), (1, "2"), ("1", 2), (12,)]
    seeds = [rollout_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert rollout_seed("collect", 0, "t", 1) == 5415567602260263348


# ----------------------------------------------------------------------------------------- scripted


def test_a_scripted_sampler_is_a_sampler():
    """It has all that the protocol asks for."""
    assert isinstance(ScriptedSampler(["a"]), Sampler)


def test_listed_texts_go_round():
    """Rollout g gets text g modulo their number, for every prompt."""
    got = drawn(ScriptedSampler(["a", "b"]), ["x", "y"], 3)
    assert {key: sample.text for key, sample in got.items()} == {
        (p, g): text for p in (0, 1) for g, text in enumerate("aba")
    }


def test_a_token_is_a_character_and_the_end_has_one_of_its_own():
    """ "né" is three tokens long, and the text does not show the last."""
    sample = drawn(ScriptedSampler(["né"], version=4), ["x?"])[0, 0]
    assert sample == Sample("né", [120, 63], [110, 233, END], [-1.0] * 3, False, 4)


def test_the_token_limit_cuts_and_says_so():
    """ "abc" and its end are four tokens: at four it is whole, at three the end is missing, at two the c."""
    for limit, text, truncated in ((4, "abc", False), (3, "abc", True), (2, "ab", True)):
        sample = drawn(ScriptedSampler(["abc"]), ["x"], sampling=Sampling(max_tokens=limit))[0, 0]
        assert (sample.text, len(sample.completion_ids), sample.truncated) == (
            text,
            limit,
            truncated,
        )


def test_limits_hold_for_their_own_request():
    """`max_tokens` is that of a rollout, of which a request may be a part."""
    got = drawn(
        ScriptedSampler(["abcdef"]), ["x", "y"], sampling=Sampling(max_tokens=4), limits=[2, 4]
    )
    assert [got[p, 0].text for p in (0, 1)] == ["ab", "abcd"]


def test_a_stop_text_ends_the_completion_and_is_no_part_of_it():
    """The first of several."""
    sample = drawn(
        ScriptedSampler(["one;two.three"]), ["x"], sampling=Sampling(max_tokens=64, stop=(".", ";"))
    )[0, 0]
    assert (sample.text, sample.truncated) == ("one", False)


def test_a_script_sees_context_rollout_and_seed():
    """The context as text, that of a chat too."""
    seen = []
    sampler = ScriptedSampler(lambda *given: seen.append(given) or "a")
    drawn(sampler, ["x", CHAT], 2)
    assert seen == [
        ("x", 0, 0),
        ("x", 1, 1),
        ("user: hi\nassistant: ", 0, 100),
        ("user: hi\nassistant: ", 1, 101),
    ]


def test_a_reply_is_encoded_after_what_stands_there():
    """A chat's reply ends the open turn first."""
    sampler = ScriptedSampler(["a"])
    assert sampler.decode(sampler.encode(CHAT)) == "user: hi\nassistant: "
    assert sampler.decode(sampler.encode(CHAT, after=[65])) == "\nuser: hi\nassistant: "


def test_what_is_aborted_does_not_come():
    """And what is not there is ignored."""
    sampler = ScriptedSampler(["a"])
    for name in range(3):
        sampler.submit(Request(name, (120,), PLAIN, 0, 8))
    sampler.abort([1, 7])
    assert [name for name, _ in sampler.poll()] == [0, 2]
    assert sampler.poll() == []


def test_logprobs_can_be_scripted_too():
    """For tests of ratios: here minus the token's place."""
    sampler = ScriptedSampler(["ab"], logprobs=lambda ids: [-float(i) for i in range(len(ids))])
    assert drawn(sampler, ["x"])[0, 0].logprobs == [0.0, -1.0, -2.0]


def test_sync_takes_over_the_version():
    """There are no weights."""
    sampler = ScriptedSampler(["a"])
    sampler.sync(None, 7)
    assert sampler.version == drawn(sampler, ["x"])[0, 0].weights_version == 7


@pytest.mark.parametrize("script", ["a", [], [1], None, 7])
def test_a_script_that_is_none_is_refused(script):
    """A lone text would be taken letter by letter."""
    assert refusal(lambda: ScriptedSampler(script)).startswith("script is ")


def test_logprobs_above_0_are_refused():
    """There are no such probabilities."""
    assert refusal(lambda: ScriptedSampler(["a"], logprobs=0.5)).startswith("logprobs is 0.5")


class Careless(ScriptedSampler):
    """Breaks the promise of `poll` in the way its version says."""

    steps = 0

    def poll(self):
        given = super().poll()
        self.steps += bool(given)
        return {
            0: given[:-1],
            1: [*given, given[0]] if given else [],
            2: [("odd", sample) for _, sample in given],
        }[self.version]


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (0, "Careless makes no step and returns nothing: it has lost a request"),
        (1, "Careless returned request (0, 0) twice, or it was not asked for"),
        (2, "Careless returned request odd twice, or it was not asked for"),
    ],
)
def test_a_sampler_that_breaks_its_promise_is_named(way, said):
    """Silence about it would be a group with a hole."""
    from tests.collect.collecting import collector

    with collector(script=Careless(["a"], version=way), group_size=2) as broken:
        assert refusal(lambda: broken.collect(3)) == said


def test_what_is_no_sampler_is_refused():
    """A function of the prompt would be natural to try."""
    from tests.collect.collecting import SAMPLING
    from tests.environments import Trials

    said = refusal(lambda: rlvr.collect.Collector(Trials(), print, group_size=2, sampling=SAMPLING))
    assert said.startswith(
        "<built-in function print> is no sampler: it needs version, submit, poll, abort, sync, "
    )
