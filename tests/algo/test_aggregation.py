"""Denominators: by hand, and the promise that a loss does not depend on how the rows were split."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.algo.aggregation import Denominators, constant, denominators, sequence_mean, token_mean
from rlvr.algo.kl import kl_loss
from rlvr.algo.objectives import cispo, clipped, gspo

LOSSES = torch.tensor([[1.0, 2.0, 3.0], [8.0, math.nan, math.inf], [math.nan] * 3])
MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


def test_each_mean_by_hand():
    """Rows 1 2 3 and 8 and one that is masked: (2 + 8) / 2; 14 / 4; 14 / (2 · 10)."""
    assert sequence_mean(LOSSES, MASK, sequences=2) == 5
    assert token_mean(LOSSES, MASK, tokens=4) == 3.5
    assert constant(LOSSES, MASK, sequences=2, length_tokens=10) == pytest.approx(0.7)


def test_a_row_without_a_trained_token_is_no_sequence():
    """An overlong completion that is masked must not dilute the others."""
    assert denominators(MASK) == Denominators(sequences=2, tokens=4, of_groups={0: 4})
    assert denominators(MASK[:1]) + denominators(MASK[1:]) == denominators(MASK)


@pytest.mark.parametrize(
    ("mean", "message"),
    [
        (
            partial(sequence_mean, sequences=0),
            r"sequences is 0; the whole batch's count must be at least 1",
        ),
        (partial(token_mean, tokens=0), r"tokens is 0"),
        (partial(constant, sequences=0, length_tokens=5), r"sequences is 0"),
        (partial(constant, sequences=2, length_tokens=0), r"length_tokens is 0"),
    ],
)
def test_a_batch_of_nothing_has_no_mean(mean, message: str):
    """0 / 0 would be NaN in every weight."""
    with pytest.raises(ValueError, match=message):
        mean(LOSSES, MASK)


MEANS = {
    "sequence_mean": lambda x, m, d: sequence_mean(x, m, sequences=d.sequences),
    "token_mean": lambda x, m, d: token_mean(x, m, tokens=d.tokens),
    "constant": lambda x, m, d: constant(x, m, sequences=d.sequences, length_tokens=9),
}
OBJECTIVES = {
    "clipped": partial(clipped, low=0.2, high=0.28),
    "gspo": partial(gspo, low=0.1, high=0.2),
    "cispo": partial(cispo, high=1.0),
}


@pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@settings(max_examples=25)
@given(data=st.data())
def test_micro_batches_add_up(objective, mean, data):
    """Loss and gradient are the whole batch's to 1e-6, however rows are split, ordered and padded."""
    B, T = data.draw(st.integers(1, 6)), 5
    lengths = torch.tensor(
        data.draw(st.lists(st.integers(0, T), min_size=B, max_size=B).filter(any))
    )
    mask = torch.arange(T) < lengths[:, None]
    rng = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    behaviour = -torch.rand(B, T, generator=rng)
    x = [
        behaviour + 0.5 * torch.randn(B, T, generator=rng),
        behaviour,
        torch.randn(B, 1, generator=rng),
    ]
    ref = behaviour + 0.1
    whole = denominators(mask)

    def loss(lp: torch.Tensor, rows: list[int], width: int) -> torch.Tensor:
        """Of some rows, padded to some width."""
        m, b, A, r = mask[rows, :width], x[1][rows, :width], x[2][rows], ref[rows, :width]
        losses = objective(lp[rows, :width], b, A, m).losses
        return mean(losses + 0.1 * kl_loss(lp[rows, :width], r, m, estimator="k3"), m, whole)

    order = data.draw(st.permutations(range(B)))
    cut = data.draw(st.integers(0, B))
    one, split = x[0].clone().requires_grad_(), x[0].clone().requires_grad_()
    all_at_once = loss(one, list(range(B)), T)
    all_at_once.backward()
    total = 0.0
    for rows in (order[:cut], order[cut:]):
        if rows:
            part = loss(split, list(rows), max(int(lengths[list(rows)].max()), 1))
            part.backward()
            total += part.item()
    assert total == pytest.approx(all_at_once.item(), abs=1e-6)
    torch.testing.assert_close(split.grad, one.grad, rtol=0, atol=1e-6)


def test_a_loss_of_a_hand_made_batch_to_the_last_digit():
    """DAPO on two rows of 2 and 1 tokens, A = 1 and -1: ratios 3/2 (clipped to 1.28) and 1; 1/2 (clipped to 0.8).

    (-1.28 - 1 + 0.8) / 3 over tokens; ((-1.28 - 1) / 2 + 0.8) / 2 over sequences.
    """
    lp = torch.tensor([[1.5, 1.0], [0.5, 7.0]], dtype=torch.float64).log()
    mask = torch.tensor([[True, True], [True, False]])
    A = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    losses, _ = clipped(lp, torch.zeros_like(lp), A, mask, low=0.2, high=0.28)
    d = denominators(mask)
    assert token_mean(losses, mask, tokens=d.tokens).item() == pytest.approx(-1.48 / 3, abs=1e-15)
    assert sequence_mean(losses, mask, sequences=d.sequences).item() == pytest.approx(
        -0.17, abs=1e-15
    )
