"""Samples one token per row, with random numbers of each row's own.  Axes: B rows, V vocabulary.

A row's random numbers depend only on its seed and the step, not on the other rows of the batch.
The logits may: a matrix product over another batch can round differently in the last bit, and a
random number that lies within that bit of the boundary between two tokens then selects the other
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from rlvr.samplers.protocol import Sampling

__all__ = ["allowed_tokens", "sample_tokens", "uniforms"]

# SplitMix64's increment, 2**64 over the golden ratio, and odd: its multiples pass through all
# numbers of 64 bits before one repeats.  `_mix_bits` is SplitMix64's finaliser.
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
# the nucleus nearly always has fewer tokens; sorting all 150k takes far longer
_WIDE_ENOUGH: Final = 256


def uniforms(seeds: Sequence[int], steps: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Random numbers in (0, 1), a stream for each seed; shape [len(seeds), number of steps].

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, fig. 9 and 17), whose state is a counter.  The
    seed is mixed first, since otherwise seeds that differ by a multiple of the increment would
    share a stream.  48 bits are kept, so that the greatest number times a total still rounds to
    less than the total.

    Args:
        seeds: whole numbers, taken modulo 2**64.
        steps: which numbers of each stream, from 0: one list for all, or a row for each seed.
    """
    states = _mix_bits(np.array([seed % 2**64 for seed in seeds], dtype=np.uint64) + _GAMMA)
    # + 1: the state 0 of a stream is its seed itself.
    counters = (np.asarray(steps, dtype=np.int64) + 1).astype(np.uint64) * _GAMMA
    # 48 of 64 bits, exactly representable in float64.
    numbers = (_mix_bits(states[:, None] + counters) >> np.uint64(16)).astype(np.float64)
    # The middle of each of 2**48 intervals: never 0, never 1.
    return (numbers + 0.5) * 2.0**-48


def _mix_bits(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def sample_tokens(
    logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"], sampling: Sampling
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Sample by inverting the cumulative distribution: (tokens, their log-probabilities as sampled,
    the model's own).

    The order is temperature, then top-k, top-p and min-p, each applied to what the one before left
    (as in transformers; vLLM applies min-p first).  At temperature 0 the most likely token is
    certain, with logprob 0.

    Args:
        logits: of the model.
        uniform: a random number in (0, 1) for each row.
        sampling: temperature, top-k, top-p and min-p.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    model_logprobs = logits.log_softmax(dim=-1)
    if sampling.temperature == 0:
        # Ties go to the first.
        token = logits.argmax(dim=-1, keepdim=True)
        model_logprob = model_logprobs.gather(1, token).squeeze(1)
        return token.squeeze(1), torch.zeros_like(model_logprob), model_logprob
    logprobs = model_logprobs
    if sampling.temperature != 1:
        logprobs = (logits / sampling.temperature).log_softmax(dim=-1)
    probs = logprobs.exp()
    if sampling.truncates:
        probs = probs.where(allowed_tokens(probs, sampling), 0.0)
    # float64: it sums 150k small numbers
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    cumulative = probs.cumsum(dim=-1, dtype=exact)
    total = cumulative[:, -1:]
    # A point on the total of what is kept, so that nothing has to be normalised.
    point = uniform.to(exact).unsqueeze(1) * total
    if exact == torch.float32:  # the product may have rounded up to the total
        point = torch.minimum(point, total * (1 - 2 * torch.finfo(exact).eps))
    # never selects a token of probability 0
    token = torch.searchsorted(cumulative, point, right=True)
    # NaN leads beyond the end; the caller sees it in the logprobs
    token = token.clamp_(max=logits.shape[1] - 1)
    model_logprob = model_logprobs.gather(1, token).squeeze(1)
    sampled_logprob = (
        model_logprob if sampling.temperature == 1 else logprobs.gather(1, token).squeeze(1)
    )
    if sampling.truncates:
        # Sampled from what was kept: its probabilities are divided by their sum.
        sampled_logprob = sampled_logprob - total.squeeze(1).log().to(sampled_logprob.dtype)
    return token.squeeze(1), sampled_logprob, model_logprob


def allowed_tokens(probs: Float[Tensor, "B V"], sampling: Sampling) -> Bool[Tensor, "B V"]:
    """True for tokens that top-k, top-p and min-p keep.  Ties with the least likely kept token are
    kept too.

    Args:
        probs: probabilities of all tokens.
        sampling: top-k, top-p and min-p.
    """
    floor = torch.zeros_like(probs[:, :1])
    if 0 < sampling.top_k < probs.shape[1]:
        floor = probs.topk(sampling.top_k, dim=-1).values[:, -1:]
    if sampling.top_p < 1:
        # The mass of what top-k has left, of which top-p takes its share.
        mass = sampling.top_p * probs.where(probs >= floor, 0.0).sum(dim=-1, keepdim=True)
        floor = torch.maximum(floor, _nucleus_floor(probs, mass))
    if sampling.min_p > 0:
        floor = torch.maximum(floor, sampling.min_p * probs.amax(dim=-1, keepdim=True))
    return probs >= floor


def _nucleus_floor(probs: Float[Tensor, "B V"], mass: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
    """The probability of the least likely token in the smallest set of tokens that reaches the
    mass."""
    for width in (_WIDE_ENOUGH, probs.shape[1]):
        falling = probs.topk(min(width, probs.shape[1]), dim=-1).values
        reached = falling.cumsum(dim=-1)
        # Wide enough for all rows, or once more over the whole vocabulary.
        if width >= probs.shape[1] or bool((reached[:, -1:] >= mass).all()):
            break
    last = (reached < mass).sum(dim=-1, keepdim=True).clamp_(max=falling.shape[1] - 1)
    return falling.gather(1, last)
