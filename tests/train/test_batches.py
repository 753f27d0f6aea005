"""Buckets and padding."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.samplers.protocol import TokenRow
from rlvr.train.batches import buckets, pad, ragged_to_padded
from tests.rewards.parts import refusal


def cost(lengths: list[int], parts: list[list[int]], overhead: int) -> int:
    return sum(len(part) * max(lengths[i] for i in part) + overhead for part in parts)


def test_one_long_row_does_not_make_the_short_ones_long():
    """Together 4 · 10 + 5 = 45 tokens; apart 10 + 5 and 3 · 1 + 5, 23."""
    assert buckets([1, 10, 1, 1], max_tokens=100, overhead_tokens=5) == [[1], [0, 2, 3]]


def test_where_starting_a_batch_is_dear_padding_is_cheaper():
    """Together 40 + 30 = 70; apart 10 + 30 + 3 + 30 = 73."""
    assert buckets([1, 10, 1, 1], max_tokens=100, overhead_tokens=30) == [[1, 0, 2, 3]]


def test_the_budget_counts_padding():
    """Rows of 5, 4, 4: two fit in 10 tokens (5 + 5 with padding), three do not (15)."""
    assert buckets([4, 5, 4], max_tokens=10, overhead_tokens=100) in ([[1, 0], [2]], [[1], [0, 2]])
    assert buckets([4, 5, 4], max_tokens=15, overhead_tokens=100) == [[1, 0, 2]]


def test_a_row_beyond_the_budget_is_a_batch_of_its_own():
    """It cannot be split, and leaving it out would change the gradient."""
    assert buckets([3, 50, 3], max_tokens=10, overhead_tokens=0) == [[1], [0, 2]]


@given(
    lengths=st.lists(st.integers(0, 12), max_size=7),
    max_tokens=st.integers(1, 40),
    overhead=st.integers(0, 20),
)
def test_no_other_split_of_the_sorted_rows_is_cheaper(
    lengths: list[int], max_tokens: int, overhead: int
):
    """All splits are tried; every row is in one batch, and every batch in the budget."""
    found = buckets(lengths, max_tokens=max_tokens, overhead_tokens=overhead)
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    assert [i for part in found for i in part] == order
    tried = []
    for cuts in range(max(1, len(lengths))):
        for inner in combinations(range(1, len(lengths)), cuts):
            parts = [order[a:b] for a, b in pairwise([0, *inner, len(lengths)])]
            if all(len(p) == 1 or len(p) * lengths[p[0]] <= max_tokens for p in parts if p):
                tried.append(cost(lengths, [p for p in parts if p], overhead))
    assert cost(lengths, found, overhead) == min(tried)


def test_budgets_that_hold_nothing_are_refused():
    """Zero tokens would loop for ever in a greedier bucketing."""
    assert "max_tokens is 0" in refusal(lambda: buckets([1], max_tokens=0))
    assert "overhead_tokens is -1" in refusal(
        lambda: buckets([1], max_tokens=1, overhead_tokens=-1)
    )


def test_rows_side_by_side():
    """[1 2 | 3 4] and [5 | 6], by hand: token 3 is predicted where 2 stands, at 1; token 6 where 5 stands, at 3.

    The last tokens, 4 and 6, predict nothing and are not read.
    """
    padded = pad([TokenRow([1, 2], [3, 4]), TokenRow([5], [6])], pad_id=9)
    assert padded.input_ids.tolist() == [[1, 2, 3], [5, 9, 9]]
    assert padded.sources.tolist() == [1, 2, 3]
    assert padded.targets.tolist() == [3, 4, 6]
    assert padded.rows.tolist() == [0, 0, 1]
    assert padded.columns.tolist() == [0, 1, 0]
    assert padded.width == 2


def test_values_go_back_to_their_rows():
    """With gradients, and zeros where there is no token; a row without a completion is a row of zeros."""
    padded = pad([TokenRow([1], [2]), TokenRow([1], []), TokenRow([1, 1], [3, 4, 5])])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    back = ragged_to_padded(values, padded)
    assert back.tolist() == [[1, 0, 0], [0, 0, 0], [2, 3, 4]]
    assert torch.equal(ragged_to_padded(values, padded, 5), torch.nn.functional.pad(back, (0, 2)))
    (back * torch.tensor([[5.0, 6.0, 7.0]])).sum().backward()
    assert values.grad.tolist() == [5, 5, 6, 7]


def test_nothing_predicts_the_first_token_of_an_empty_prompt():
    """The row is named, for it is one of hundreds."""
    assert "row 1 has an empty prompt" in refusal(
        lambda: pad([TokenRow([1], [2]), TokenRow([], [2])])
    )
    with pytest.raises(ValueError, match="no rows"):
        pad([])
