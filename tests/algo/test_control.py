"""Coefficients that adapt: both rules for β, and the entropy's."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo.control import BOUNDS, next_beta, next_entropy_coefficient, ziegler_beta


def test_beta_follows_the_kl():
    """Target 0.01: halved below 0.01 / 1.5, doubled above 0.015."""
    assert [next_beta(1.0, kl, target=0.01) for kl in (0.006, 0.007, 0.014, 0.016)] == [
        0.5,
        1.0,
        1.0,
        2.0,
    ]
    with pytest.raises(ValueError, match=r"target is 0\.0; it must be above 0"):
        next_beta(1.0, 0.1, target=0.0)
    with pytest.raises(ValueError, match=r"kl is NaN"):
        next_beta(1.0, math.nan, target=0.1)


def test_zieglers_rule_by_hand():
    """β 0.2, target 6, 256 of a horizon of 10,000: KL 12 is clipped to +0.2, so β grows by 0.2 * 0.0256; KL 6.5 has
    the error 1/12; KL 0 is clipped to -0.2."""
    found = [ziegler_beta(0.2, kl, target=6.0, samples=256) for kl in (12.0, 6.5, 6.0, 0.0)]
    assert found == pytest.approx([0.201024, 0.2 * (1 + 0.0256 / 12), 0.2, 0.198976], abs=1e-15)
    with pytest.raises(ValueError, match="target is -1"):
        ziegler_beta(0.2, 1.0, target=-1.0, samples=1)


def test_beta_stays_in_bounds():
    """Doubling for a thousand steps is inf, halving is 0, and neither comes back."""
    high = low = 1.0
    for _ in range(1200):
        high, low = next_beta(high, 1.0, target=0.01), next_beta(low, 0.0, target=0.01)
    assert (low, high) == BOUNDS
    assert ziegler_beta(1e3, 99.0, target=1.0, samples=10**6) == BOUNDS[1]


def test_the_entropy_coefficient_rises_while_the_entropy_is_low():
    """By 0.005 at or below the target, else down, between its ends."""
    settings = {"target": 0.2, "step": 0.005, "most": 0.01}
    assert next_entropy_coefficient(0.001, 0.2, **settings) == pytest.approx(0.006)
    assert next_entropy_coefficient(0.006, 0.1, **settings) == 0.01
    assert next_entropy_coefficient(0.006, 0.3, **settings) == pytest.approx(0.001)
    assert next_entropy_coefficient(0.001, 0.3, **settings) == 0.0


POSITIVE = st.floats(1e-5, 1e2)


@given(POSITIVE, st.floats(0, 1e3), POSITIVE, st.integers(1, 10_000))
def test_both_rules_move_beta_towards_the_target(beta, kl, target, samples):
    """Up where the KL is above it, down below; by a factor of 2, or of a fifth per horizon."""
    for after, most in (
        (next_beta(beta, kl, target=target), 2),
        (ziegler_beta(beta, kl, target=target, samples=samples), 1 + 0.2 * samples / 10_000),
    ):
        assert after >= beta if kl >= target else after <= beta
        assert BOUNDS[0] <= after <= min(BOUNDS[1], beta * most * (1 + 1e-12))
        assert after >= min(beta * (0.5 if most == 2 else 2 - most), BOUNDS[1]) * (1 - 1e-12)


@given(st.floats(0, 1), st.floats(0, 3), st.floats(0, 3), st.floats(0, 0.5))
def test_the_entropy_coefficient_moves_by_one_step(coefficient, entropy, target, step):
    """Up to the target and at it, down above; never out of its ends."""
    after = next_entropy_coefficient(coefficient, entropy, target=target, step=step)
    moved = coefficient + (step if entropy <= target else -step)
    assert after == min(max(moved, 0), 1)
