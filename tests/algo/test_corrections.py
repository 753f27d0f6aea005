"""Weights against an engine whose numbers differ: by hand, at each level, and what they must not touch."""

import math
from functools import partial

import pytest
import torch

from rlvr.algo.corrections import compose, masked, truncated
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


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("correct", [truncated, partial(masked, low=0.5, high=2.0)])
def test_equal_engines_are_not_corrected(correct, level: str):
    """Weight 1 wherever a token is trained on."""
    assert weights(correct(SAMPLER, SAMPLER, MASK, level=level)) == [1, 1, 1, 0]


@pytest.mark.parametrize("junk", [NAN, INF, -INF])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("correct", [truncated, partial(masked, low=0.5, high=2.0)])
def test_a_masked_token_changes_no_weight(correct, level: str, junk: float):
    """An engine may report -inf, or nothing, for a token that it did not sample."""
    spoilt = (torch.where(MASK, X[0], junk), torch.where(MASK, SAMPLER, -junk), MASK)
    torch.testing.assert_close(
        correct(*spoilt, level=level).weights, correct(*X, level=level).weights, rtol=0, atol=0
    )


@pytest.mark.parametrize("correct", [truncated, partial(masked, low=0.5, high=2.0)])
def test_weights_carry_no_gradient(correct):
    """They change the measure, not the objective."""
    assert not correct(X[0].clone().requires_grad_(), SAMPLER, MASK).weights.requires_grad


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
