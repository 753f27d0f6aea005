"""Which completions of a group are trained on."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo.subsets import max_variance, random_subset
from rlvr.algo.terms import explained_variance, top_entropy

ALL = torch.ones(1, 6, dtype=torch.bool)


SCORES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 1.0, -2.0]) | st.floats(-3, 3, width=16), st.booleans()),
    min_size=1,
    max_size=7,
)
"""Scores of a group with whether each counts: many of them equal."""


@given(SCORES, st.integers(1, 5))
def test_the_chosen_scores_vary_most(group: list[tuple[float, bool]], size: int):
    """Of all subsets, found by trying them; both ends of the scores, as theorem 1 of PODS says."""
    scores = torch.tensor([[score for score, _ in group]])
    scored = torch.tensor([[counts for _, counts in group]])
    kept = max_variance(scores, scored, size=size)
    counted = [score for score, counts in group if counts]
    size = min(size, len(counted))
    assert int(kept.sum()) == size
    assert not (kept & ~scored).any()
    best = max(np.var(chosen) if chosen else 0 for chosen in itertools.combinations(counted, size))
    assert np.var(scores[kept].double().numpy() if size else 0) == pytest.approx(best, abs=1e-9)


@given(SCORES, st.integers(1, 5), st.integers(0, 9))
def test_a_random_subset_has_its_size(group: list[tuple[float, bool]], size: int, seed: int):
    """Of those that count; the generator alone decides."""
    scores = torch.tensor([[score for score, _ in group]])
    scored = torch.tensor([[counts for _, counts in group]])
    first, again = (
        random_subset(s, scored, size=size, generator=torch.Generator().manual_seed(seed))
        for s in (scores, scores + 1)
    )
    assert int(first.sum()) == min(size, int(scored.sum()))
    assert not (first & ~scored).any()
    assert torch.equal(first, again)


@given(SCORES, st.floats(0.01, 1))
def test_the_chosen_tokens_are_the_surest_of_none(group: list[tuple[float, bool]], share: float):
    """numpy's quantile; none that is left out has more entropy than one that is kept."""
    entropies = torch.tensor([[value for value, _ in group]], dtype=torch.float64)
    mask = torch.tensor([[trained for _, trained in group]])
    kept = top_entropy(entropies, mask, share=share)
    assert not (kept & ~mask).any()
    if mask.any():
        threshold = np.quantile(entropies[mask].numpy(), 1 - share)
        assert entropies[kept].min() >= threshold - 1e-9
        assert (entropies[mask & ~kept] <= threshold + 1e-9).all()
        assert kept.any()


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2), st.integers(-5, 5))
def test_a_critic_is_judged_by_what_it_leaves_open(pairs: list[tuple[int, int]], shift: int):
    """At most 1, and 1 only if it is off by a constant, which is not counted; masked tokens are not either."""
    values, returns = torch.tensor(pairs, dtype=torch.float64).T
    mask = torch.ones(1, len(pairs) + 1, dtype=torch.bool)
    mask[0, -1] = False
    V, R = (torch.cat([x, torch.tensor([math.nan]).double()])[None] for x in (values, returns))
    explained = explained_variance(V, R, mask)
    if len(set(returns.tolist())) == 1:
        assert math.isnan(explained)
        return
    rest = returns - values
    assert explained == pytest.approx(float(1 - np.var(rest.numpy()) / np.var(returns.numpy())))
    assert explained_variance(V + shift, R, mask) == pytest.approx(explained)
    assert (explained == 1) == (len(set(rest.tolist())) == 1)


def test_binary_scores_give_as_many_of_each_as_there_are():
    """1 right of 6: it and one wrong."""
    kept = max_variance(torch.tensor([[0.0, 0, 0, 1, 0, 0]]), ALL, size=2)
    assert kept[0, 3]
    assert int(kept.sum()) == 2


def test_unscored_completions_are_not_chosen():
    """However extreme the number that stands there; a group with fewer keeps all that it has, or none."""
    scores = torch.tensor([[9.0, 1.0, 0.0, 0.5, 0.0, -9.0]])
    scored = torch.tensor([[False, True, True, False, False, False]])
    for choose in (max_variance, random_subset):
        assert choose(scores, scored, size=4).tolist() == scored.tolist()
        assert not choose(scores, torch.zeros_like(scored), size=4).any()


def test_a_random_subset_repeats_with_its_generator():
    """And has the size that was asked for."""
    scores = torch.zeros(3, 6)
    first, again, other = (
        random_subset(scores, ALL.expand(3, 6), size=2, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    )
    assert first.sum(dim=1).tolist() == [2, 2, 2]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_tokens_of_highest_entropy():
    """A fifth of 10 trained tokens: 2.  The masked one, which has most, counts nowhere."""
    entropies = torch.tensor([[0.1, 0.9, 0.2, 0.3, 0.8, 99.0], [0.4, 0.5, 0.6, 0.7, 0.05, 99.0]])
    mask = entropies < 99
    assert top_entropy(entropies, mask, share=0.2).nonzero().tolist() == [[0, 1], [0, 4]]
    assert torch.equal(top_entropy(entropies, mask, share=1.0), mask)
    threshold = torch.quantile(entropies[mask], 0.75)
    assert torch.equal(top_entropy(entropies, mask, share=0.25), mask & (entropies >= threshold))
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"share is {share}; it must lie in"):
            top_entropy(entropies, mask, share=share)


def test_explained_variance_by_hand():
    """A perfect critic 1, a constant one 0, R = (0, 2) and V = (0, 1): 1 - (1/4) / 1."""
    R, on = torch.tensor([[0.0, 2.0, 7.0]]), torch.tensor([[True, True, False]])
    assert explained_variance(R, R, on) == 1
    assert explained_variance(torch.ones(1, 3), R, on) == 0
    assert explained_variance(torch.tensor([[0.0, 1.0, 0.0]]), R, on) == 0.75
