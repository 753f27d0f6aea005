"""Weights against an engine whose numbers differ: by hand, at each level, and what they must not touch."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo.corrections import compose, kept, masked, truncated
from rlvr.algo.parts import Correction

NAN, INF = math.nan, math.inf
# trainer / sampler: 2, 1/2, 8 and a masked token; product 8, geometric mean 2
RATIOS = torch.tensor([[2.0, 0.5, 8.0, 1.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False]])
SAMPLER = torch.full_like(RATIOS, -3.0)
X = (RATIOS.log() - 3.0, SAMPLER, MASK)


def weights(correction) -> list[float]:
    return [round(w, 12) for w in correction.weights[0].tolist()]


def test_truncated_by_hand():
    """min(w, 4) per token; the product 8 becomes 4; the geometric mean 2 stays."""
    assert weights(truncated(*X, cap=4.0)) == [2, 0.5, 4, 0]
    assert weights(truncated(*X, cap=4.0, level="sequence")) == [4, 4, 4, 0]
    assert weights(truncated(*X, cap=4.0, level="geometric")) == [2, 2, 2, 0]


def test_masked_by_hand():
    """Inside [0.6, 4] the weight stays, outside it is 0, not the bound; a sequence goes as a whole."""
    assert weights(masked(*X, low=0.6, high=4.0)) == [2, 0, 0, 0]
    assert weights(masked(*X, low=0.6, high=4.0, level="sequence")) == [0, 0, 0, 0]
    assert weights(masked(*X, low=0.6, high=4.0, level="geometric")) == [2, 2, 2, 0]


def test_what_was_cut_is_counted():
    """One token of three below, one above; ratios and KL over the trained tokens."""
    means = masked(*X, low=0.6, high=4.0).stats.means()
    assert means["clipped_low"] == means["clipped_high"] == pytest.approx(1 / 3)
    assert means["ratio_mean"] == pytest.approx(10.5 / 3)
    assert means["kl"] == pytest.approx((1 - 0.5 + 7 - math.log(8)) / 3)
    assert truncated(*X, cap=4.0).stats.means()["clipped_high"] == pytest.approx(1 / 3)


LEVELS = {
    "token": lambda logs: [math.exp(log) for log in logs],
    "sequence": lambda logs: [math.exp(sum(logs))] * len(logs),
    "geometric": lambda logs: [math.exp(sum(logs) / len(logs))] * len(logs),
}
"""The weight of each token, by the log ratios of its row."""
RULES = {
    "truncate": (partial(truncated, cap=2.0), lambda w: min(w, 2.0)),
    "band": (partial(masked, low=0.5, high=2.0), lambda w: w if 0.5 <= w <= 2 else 0.0),
    "mask": (partial(kept, low=0.5, high=2.0), lambda w: 1.0 if 0.5 <= w <= 2 else 0.0),
}


@given(
    st.sampled_from(sorted(LEVELS)),
    st.sampled_from(sorted(RULES)),
    st.lists(st.floats(-2, 2).map(lambda x: round(x, 3)), min_size=1, max_size=4),
    st.sampled_from([NAN, INF, -INF]),
)
def test_the_weights_of_any_row(level: str, rule: str, logs: list[float], junk: float):
    """By plain arithmetic; an engine may report anything for a token that it did not sample, whose weight is 0."""
    correct, weigh = RULES[rule]
    logprobs = torch.tensor([[*(log - 3 for log in logs), junk]], dtype=torch.float64)
    sampler = torch.tensor([[-3.0] * len(logs) + [-junk]], dtype=torch.float64)
    mask = torch.tensor([[True] * len(logs) + [False]])
    found = correct(logprobs.requires_grad_(), sampler, mask, level=level)
    ratios = LEVELS[level](logs)
    assert found.weights[0].tolist() == pytest.approx([*map(weigh, ratios), 0.0])
    assert not found.weights.requires_grad
    means = found.stats.means()
    assert means["clipped_high"] == pytest.approx(sum(w > 2 for w in ratios) / len(ratios))
    below = 0 if rule == "truncate" else sum(w < 0.5 for w in ratios)
    assert means["clipped_low"] == pytest.approx(below / len(ratios))


@given(st.sampled_from(sorted(LEVELS)), st.sampled_from(sorted(RULES)))
def test_equal_engines_are_not_corrected(level: str, rule: str):
    """Weight 1 wherever a token is trained on."""
    correct, _ = RULES[rule]
    assert weights(correct(SAMPLER, SAMPLER, MASK, level=level)) == [1, 1, 1, 0]


@given(
    st.lists(
        st.sampled_from(["token:truncate:2", "sequence:mask:0.5:2", "geometric:band:0.8:1.5"]),
        min_size=1, max_size=3, unique=True,
    ),
    st.lists(st.floats(-1, 1), min_size=1, max_size=3),
)  # fmt: skip
def test_any_corrections_are_multiplied(texts: list[str], logs: list[float]):
    """In any order; each is reported by its text."""
    logprobs = torch.tensor([logs], dtype=torch.float64)
    rest = (torch.zeros_like(logprobs), torch.ones_like(logprobs, dtype=torch.bool))
    product, each = compose([Correction.read(text) for text in texts], logprobs, *rest)
    assert list(each) == texts
    expected = [
        math.prod(one.weights[0, at].item() for one in each.values()) for at in range(len(logs))
    ]
    assert product[0].tolist() == pytest.approx(expected)
    backwards, _ = compose([Correction.read(text) for text in texts[::-1]], logprobs, *rest)
    torch.testing.assert_close(backwards, product)


def test_the_product_over_a_long_row_does_not_overflow():
    """A thousand tokens of ratio 2 are 2^1000, inf in float32, and so would be the logged mean: it ends at e^20."""
    x = torch.full((1, 1001), math.log(2.0)), torch.zeros(1, 1001), torch.arange(1001)[None] < 1000
    weights, stats = truncated(*x, cap=5.0, level="sequence")
    assert weights[0, [0, 1000]].tolist() == [5, 0]
    assert stats.means()["ratio_mean"] == pytest.approx(math.exp(20), rel=1e-5)


def test_bounds_without_1_between_them_are_refused():
    """Such bounds would drop every token of two equal engines."""
    with pytest.raises(ValueError, match=r"cap is 0\.9; it must be at least 1"):
        truncated(*X, cap=0.9)
    with pytest.raises(ValueError, match=r"low is 1\.1 and high is 2\.0; 1 must lie between them"):
        masked(*X, low=1.1, high=2.0)
    with pytest.raises(ValueError, match=r"low is -0\.1 and high is 2\.0"):
        masked(*X, low=-0.1, high=2.0)


def test_several_corrections_are_multiplied():
    """sequence:mask keeps or drops a row, token:truncate weighs its tokens; each is reported by its text.

    Row 1: ratios 3 and 1/2, product 3/2, inside [0.5, 2]: weights min(3, 2) and 1/2.  Row 2: product 4: dropped.
    """
    ratios = torch.tensor([[3.0, 0.5], [4.0, 1.0]], dtype=torch.float64)
    mask = torch.ones(2, 2, dtype=torch.bool)
    rules = [Correction.read(text) for text in ("sequence:mask:0.5:2", "token:truncate:2")]
    weights, each = compose(rules, ratios.log(), torch.zeros_like(ratios), mask)
    assert weights.tolist() == [[2.0, pytest.approx(0.5)], [0.0, 0.0]]
    assert list(each) == ["sequence:mask:0.5:2", "token:truncate:2"]
    assert each["sequence:mask:0.5:2"].weights.tolist() == [[1.0, 1.0], [0.0, 0.0]]
