"""`sampler_faults`: an engine of one's own is tried before a run depends on it."""

from dataclasses import replace

import pytest

from rlvr.errors import SamplingFailed
from rlvr.samplers.conformance import sampler_faults
from tests.adding.constant import Constant


class Wrong(Constant):
    """Keeps the promises of a sampler but for one.

    Args:
        change: sample → what `poll` gives instead.
        methods: replaced, by name.
    """

    def __init__(self, change=lambda sample: sample, **methods):
        super().__init__("abcde")
        self._change = change
        for name, method in methods.items():
            setattr(self, name, method)

    def poll(self):
        return [(request_id, self._change(sample)) for request_id, sample in super().poll()]


def without_memory():
    """A sampler that gives a request to the second `poll` as well."""
    sampler = Wrong()
    polled = []

    def poll():
        polled.extend(Constant.poll(sampler))
        return list(polled)

    sampler.poll = poll
    return sampler


def by_call():
    """A sampler whose tokens follow from the number of the call, not from the seed."""
    sampler = Wrong()
    calls = iter(range(1000))

    def poll():
        sampler.text = f"{next(calls):03}"
        return Constant.poll(sampler)

    sampler.poll = poll
    return sampler


WRONG = {
    "no token": Wrong(encode=lambda prompt: []),
    "not the request's context": Wrong(lambda sample: replace(sample, prompt_ids=[1])),
    "where the request's limit was 1": Wrong(
        lambda sample: replace(sample, completion_ids=[97, 0], logprobs=[0.0] * 2, text="a")
    ),
    "truncated is True after 6 of 8": Wrong(lambda sample: replace(sample, truncated=True)),
    "weights_version is 7": Wrong(lambda sample: replace(sample, weights_version=7)),
    "above 0 or not finite": Wrong(
        lambda sample: replace(sample, logprobs=[0.5] * len(sample.logprobs))
    ),
    "decode() of its tokens 'abcde'": Wrong(lambda sample: replace(sample, text="else")),
    "differ by 1, more than 0.001": Wrong(
        logprobs=lambda rows: [[-1.0] * len(row.completion_ids) for row in rows]
    ),
    "differ by nan, more than 0.001": Wrong(
        logprobs=lambda rows: [
            [*[0.0] * (len(row.completion_ids) - 1), float("nan")] for row in rows
        ]
    ),
    "not one number per token": Wrong(logprobs=lambda rows: [[0.0] for _ in rows]),
    "other tokens the second time": by_call(),
    "has the stop text": Wrong(
        lambda sample: replace(sample, text=Constant("abcde").decode(sample.completion_ids)),
        _sample=lambda request: Constant("abcde")._sample(
            replace(request, sampling=replace(request.sampling, stop=()))
        ),
    ),
    "was returned before, or was aborted": Wrong(abort=lambda ids: None),
    "not submitted, was returned": without_memory(),
    "a request failed: no room": Wrong(lambda sample: SamplingFailed("no room")),
    "gave a str, not a Sample": Wrong(lambda sample: "abcde"),
    "did not return 4 of the requests": Wrong(poll=list),
}


@pytest.mark.parametrize("fault", WRONG)
def test_each_broken_promise_is_named(fault):
    """Without it the first sign was a canary in a run, or rewards of texts that were not sampled."""
    assert any(fault in said for said in sampler_faults(WRONG[fault], wall_s=1))


def test_engines_that_keep_all_have_no_fault(policy):
    """The one in this process, with a model; and that of the documentation, with texts of any length."""
    assert sampler_faults(policy.sampler(), "1+1=") == []
    for text in ("", "abc", "a" * 20):
        assert sampler_faults(Constant(text)) == []
