"""One token per row: which tokens may be drawn, how often each is, and from which random numbers."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.samplers.protocol import Sampling
from rlvr.samplers.token_sampling import allowed_tokens, sample_tokens, uniforms
from tests.train.chances import too_unlikely

LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.0, 0.0, -3.0, 1.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"temperature": 2.0}, [0, 1, 2, 3, 4, 5, 6]),
        ({"top_k": 3}, [1, 3, 6]),
        ({"top_p": 0.65}, [1, 6]),  # e^2 of the 17.4 in all are 43 %, with e^1.5 it is 68 %
        ({"min_p": 0.3}, [1, 3, 6]),  # e^(1 - 2) is 0.37, e^(0.3 - 2) is 0.18
        ({"temperature": 0.5, "top_k": 4, "top_p": 0.9, "min_p": 0.01}, [1, 3, 6]),
    ],
    ids=str,
)
def test_draws_follow_the_distribution(sampling, expected):
    """20 000 draws, one seed each, against the exact probabilities by chi-square; their logprobs are exact too."""
    sampling = Sampling(max_tokens=1, **sampling)
    exact = torch.zeros(7, dtype=torch.float64)
    exact[expected] = (LOGITS[expected] / sampling.temperature).softmax(0)
    token, logprobs, own = sample_tokens(
        LOGITS.expand(20_000, -1), torch.from_numpy(uniforms(range(20_000), [3])[:, 0]), sampling
    )
    assert not too_unlikely(Counter(token.tolist()), exact.tolist())
    torch.testing.assert_close(logprobs, exact.log()[token])
    torch.testing.assert_close(own, LOGITS.log_softmax(0)[token])


def test_what_is_kept_by_hand():
    """Probabilities 5, 3, 1.5 and 0.5 in 10."""
    probs = torch.tensor([[0.3, 0.5, 0.05, 0.15]])

    def left(**options: float) -> list[int]:
        return (
            allowed_tokens(probs, Sampling(max_tokens=1, **options))[0].nonzero().flatten().tolist()
        )

    assert left(top_p=0.5) == [1]
    assert left(top_p=0.51) == [0, 1]
    assert left(min_p=0.31) == [0, 1]
    assert left(top_k=3, top_p=0.82) == [
        0,
        1,
    ]  # of the 9.5 that top-k leaves it wants 7.8, and two have 8
    assert left(top_k=3, top_p=0.85) == [0, 1, 3]  # 8.1


WEIGHTS = st.lists(st.integers(1, 10_000), min_size=1, max_size=9, unique=True)


@given(WEIGHTS, st.integers(0, 10), st.integers(1, 40), st.integers(0, 39))
def test_what_is_kept_by_exact_fractions(weights, top_k, top_p, min_p):
    """Top-k first, of what it leaves the fewest that have `top_p` of the mass, and the share of the greatest."""
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    kept = order[:top_k] if top_k else order
    mass, nucleus = sum(weights[i] for i in kept), []
    for i in kept:
        if Fraction(sum(weights[j] for j in nucleus), mass) < Fraction(2 * top_p - 1, 80):
            nucleus.append(i)
    floor = Fraction(min_p, 40) * weights[order[0]]
    expected = sorted(i for i in nucleus if weights[i] >= floor)
    options = {"top_k": top_k} if top_k else {}
    options |= {"top_p": (2 * top_p - 1) / 80, "min_p": min_p / 40}
    probs = torch.tensor([weights], dtype=torch.float64) / sum(weights)
    allowed = allowed_tokens(probs, Sampling(max_tokens=1, **options))
    assert allowed[0].nonzero().flatten().tolist() == expected


@given(
    st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 40), st.sampled_from([1.0, 0.9, 0.3])
)
def test_a_row_draws_alone_and_by_the_cumulative_sum(seed, count, vocabulary, top_p):
    """The token in whose slice of the unit interval the number falls, whatever the other rows are."""
    sampling = Sampling(max_tokens=1, temperature=0.8, top_p=top_p)
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, vocabulary, generator=draws)
    uniform = torch.rand(count, generator=draws, dtype=torch.float64)
    together = sample_tokens(logits, uniform, sampling)
    for i in range(count):
        alone = sample_tokens(logits[[i]], uniform[[i]], sampling)
        assert [x[i].item() for x in together] == [x.item() for x in alone]
        probs = (logits[[i]].double() / 0.8).softmax(1)
        probs = probs * allowed_tokens(probs, sampling)
        upto = (probs / probs.sum()).cumsum(1)[0].tolist()
        token = int(alone[0])
        assert (upto[token - 1] if token else 0) - 1e-6 <= uniform[i] <= upto[token] + 1e-6


def test_a_nucleus_wider_than_the_first_look():
    """1000 equally likely tokens: half the mass is 500 of them, more than are sorted at first; ties are all kept."""
    falling = torch.linspace(2, 1, 1000, dtype=torch.float64).softmax(0)
    count = int(allowed_tokens(falling[None], Sampling(max_tokens=1, top_p=0.5)).sum())
    mass = falling.cumsum(0)
    assert mass[count - 2] < 0.5 <= mass[count - 1]
    assert allowed_tokens(torch.full((1, 1000), 0.001), Sampling(max_tokens=1, top_p=0.5)).all()


def splitmix64(state: int) -> Iterator[int]:
    """As published, in Python's own integers."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        yield z ^ z >> 31


def test_random_numbers_stay_what_they_are():
    """A resumed run draws what the uninterrupted one would have, on any machine and in any part of the stream."""
    assert list(islice(splitmix64(1234567), 2)) == [
        6457827717110365317,
        3203168211198807973,
    ]  # a known vector
    for seed in (0, 1, 1000, 2**63 - 1):
        wanted = [
            ((z >> 16) + 0.5) / 2**48 for z in islice(splitmix64(next(splitmix64(seed))), 300)
        ]
        assert uniforms([5, seed], range(300))[1].tolist() == wanted
        assert uniforms([seed], range(256, 300))[0].tolist() == wanted[256:]


def test_random_numbers_are_uniform_and_independent():
    """Along a stream, and across the streams of neighbouring seeds, 90 000 of them."""
    many = uniforms(range(300), range(300))
    assert 0 < many.min() < 1e-4
    assert 1 - 1e-4 < many.max() < 1
    assert not too_unlikely(Counter((many * 50).astype(int).ravel().tolist()), [1 / 50] * 50)
    pairs = ((many[:, 1:], many[:, :-1]), (many[1:], many[:-1]))
    for one, other in pairs:
        assert (
            abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.0134
        )  # 4 sigma of 1 / sqrt(90 000)


def test_the_ends_of_the_unit_interval_draw_tokens_that_can_be_drawn():
    """The smallest and the greatest random number, where the first and the last token have been cut off."""
    logits = torch.tensor([[-5.0, 1.0, 1.0, -5.0]]).expand(2, -1)
    token, _, _ = sample_tokens(
        logits,
        torch.tensor([0.5, 2**48 - 0.5], dtype=torch.float64) / 2**48,
        Sampling(max_tokens=1, top_k=2),
    )
    assert token.tolist() == [1, 2]
