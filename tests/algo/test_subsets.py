"""Which completions of a group are trained on."""

import itertools

import torch

from rlvr.algo.subsets import max_variance, random_subset
from rlvr.algo.terms import explained_variance, top_entropy

ALL = torch.ones(1, 6, dtype=torch.bool)


def test_the_chosen_scores_vary_most():
    """Of all 15 subsets of 4 of 6, found by trying them; both ends of the scores, as theorem 1 of PODS says."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        scores = torch.rand(1, 6, generator=draw)
        kept = max_variance(scores, ALL, size=4)
        assert int(kept.sum()) == 4
        best = max(
            scores[0, list(one)].var(correction=0) for one in itertools.combinations(range(6), 4)
        )
        torch.testing.assert_close(scores[kept].var(correction=0), best)


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


def test_explained_variance_by_hand():
    """A perfect critic 1, a constant one 0, R = (0, 2) and V = (0, 1): 1 - (1/4) / 1."""
    R, on = torch.tensor([[0.0, 2.0, 7.0]]), torch.tensor([[True, True, False]])
    assert explained_variance(R, R, on) == 1
    assert explained_variance(torch.ones(1, 3), R, on) == 0
    assert explained_variance(torch.tensor([[0.0, 1.0, 0.0]]), R, on) == 0.75
